"""Lowerings of windows that move over a tensor: reduce_window, also with computed sizes.

Windows that hold all elements before (or after) each one are a running sum, product or
maximum: `cumulative`. JAX writes them with computed sizes where the shape is symbolic, as a
custom call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ingot.compiler.frontends.stablehlo import bodies
from ingot.compiler.frontends.stablehlo.lift import cast, scalar_problem
from ingot.compiler.frontends.stablehlo.lowering import Context, Result, ints, lowering
from ingot.compiler.frontends.stablehlo.lowerings.fold import fold_running, fold_windows
from ingot.compiler.frontends.stablehlo.lowerings.reduction import (
    check_reduction,
    is_identity,
    with_init,
)
from ingot.compiler.frontends.stablehlo.reading.program import SourceBlock, SourceOp, SourceProgram
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim

__all__ = ["check_dynamic_reduce_window", "dynamic_reduce_window"]


@dataclass(frozen=True)
class _Windows:
    """Sizes and steps per dim; `padding` has a pair for each."""

    sizes: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    base_dilation: tuple[Dim, ...]
    dilation: tuple[Dim, ...]
    padding: tuple[tuple[Dim, Dim], ...]

    def cumulative_axis(self, shape: Sequence[Dim]) -> int | None:
        """The axis whose prefixes (or suffixes) the windows are, as a cumsum is written."""
        wide = [axis for axis, size in enumerate(self.sizes) if size != 1]
        steps = (*self.strides, *self.base_dilation, *self.dilation)
        if len(wide) != 1 or any(step != 1 for step in steps):
            return None
        (axis,) = wide
        others = all(pair == (0, 0) for a, pair in enumerate(self.padding) if a != axis)
        ends = self.padding[axis] in ((self.sizes[axis] - 1, 0), (0, self.sizes[axis] - 1))
        return axis if others and ends and shape[axis] == self.sizes[axis] else None


@lowering("reduce_window", check=check_reduction)
def reduce_window(context: Context, op: SourceOp) -> Result:
    """Combine elements under a moving window, whose padding is the init value."""
    kinds = bodies.reduction_kinds(op)

    def steps(name: str) -> tuple[int, ...]:
        return ints(op.attributes[name]) or (1,) * len(sizes)

    sizes = ints(op.attributes["window_dimensions"])
    padding = ints(op.attributes["padding"]) or (0,) * (2 * len(sizes))
    windows = _Windows(
        sizes,
        steps("window_strides"),
        steps("base_dilations"),
        steps("window_dilations"),
        _pairs(padding),
    )
    if kinds is None:
        block = bodies.body_of(op)
        assert block is not None
        return _folded(context, op, block, windows)
    return [
        _combine(context, op, place, len(kinds) + place, kind, windows)
        for place, kind in enumerate(kinds)
    ]


def check_dynamic_reduce_window(op: SourceOp, program: SourceProgram) -> str | None:
    """Why the custom call `stablehlo.dynamic_reduce_window` cannot be lowered, if so."""
    return scalar_problem(_called_body(op, program), program)


def dynamic_reduce_window(context: Context, op: SourceOp) -> Result:
    """As reduce_window, with sizes, strides, dilations and padding as operands."""
    block = _called_body(op, context.program)
    assert block is not None
    sizes, strides, base, dilation = (context.sizes(op, place, low=1) for place in range(2, 6))
    padding = context.sizes(op, 6, low=None)
    windows = _Windows(sizes, strides, base, dilation, _pairs(padding))
    kind = bodies.combination(block, 0, 0, 1)
    if kind is not None and kind != "set":
        return [_combine(context, op, 0, 1, kind, windows)]
    return _folded(context, op, block, windows)


def _folded(context: Context, op: SourceOp, block: SourceBlock, windows: _Windows) -> Result:
    """By any region."""
    axis = windows.cumulative_axis(tensor_type(context.flat([context.lowered(op, 0)])[0]).shape)
    if axis is not None:
        return fold_running(context, op, block, axis, reverse=windows.padding[axis][0] == 0)
    dilations = (windows.base_dilation, windows.dilation)
    return fold_windows(
        context, op, block, windows.sizes, windows.strides, dilations, windows.padding
    )


def _called_body(op: SourceOp, program: SourceProgram) -> SourceBlock | None:
    """The body of the function by which a custom call combines elements."""
    called = op.attributes.get("called_computations")
    if not isinstance(called, (list, tuple)) or len(called) != 1 or len(op.operands) != 7:
        return None
    function = program.functions.get(str(called[0]))
    if function is None or len(function.arguments) != 2:
        return None
    return function.body


def _pairs(padding: Sequence[Dim]) -> tuple[tuple[Dim, Dim], ...]:
    return tuple(zip(padding[::2], padding[1::2], strict=True))


def _combine(
    context: Context, op: SourceOp, place: int, init: int, kind: str, windows: _Windows
) -> Value:
    x = context.operand(op, place)
    type = tensor_type(x)
    axis = windows.cumulative_axis(type.shape)
    starts_from_nothing = is_identity(context, context.lowered(op, init), kind, type.dtype)
    if axis is not None and starts_from_nothing:
        reverse = windows.padding[axis][0] == 0
        return context.builder.value("cumulative", x, axis=axis, kind=kind, reverse=reverse)
    if any(step != 1 for step in windows.base_dilation) or not starts_from_nothing:
        low, high = (tuple(pair[side] for pair in windows.padding) for side in (0, 1))
        interior = tuple(step - 1 for step in windows.base_dilation)
        start = cast(context.builder, context.operand(op, init), type.dtype)
        x = context.builder.value("pad", x, start, low=low, high=high, interior=interior)
        rank = len(windows.sizes)
        windows = replace(windows, base_dilation=(1,) * rank, padding=((0, 0),) * rank)
    value = context.builder.value(
        "reduce_window",
        x,
        kind=kind,
        window=windows.sizes,
        strides=windows.strides,
        padding=windows.padding,
        base_dilation=windows.base_dilation,
        window_dilation=windows.dilation,
    )
    return with_init(context, op, value, init, kind)

"""Cuts long reductions to few results in two, so that many workgroups share them.

A kernel reduces a row in one workgroup. Where there are few rows and each is long, the parts
of a row are reduced first and then what they give: reduce(x[m, n]) over both axes becomes a
reduction over n and one over m; one long axis is reshaped into two before. Sums of f16 and
bf16 stay f32 in between and are rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops import Reduce, lookup
from ingot.compiler.graph.rewriter import rewrite
from ingot.compiler.ir import Module, Op, Value, count_uses
from ingot.compiler.ir.dims import Bounds, Dim, bounds, known_dim, product
from ingot.hal.spec import dtype

__all__ = ["split_reductions"]

# Two threads with AVX-512 take 106 us for one row of 4 Mi, whole 183, but 44 for 1 Mi, whole 38.
# The numbers are for GPUs, of which none was measured: a group of items reads 60 to 100 GB/s.
_LONG = 1 << 18  # elements of a row from which on it is cut: below, a second kernel costs more
_FEW = 16  # rows; more keep a device busy as they are
_PARTS = (64, 1 << 14)  # of a row, fewest and most
_WANTED = 512  # parts, about
_SHORTEST = 64  # elements of a part
_DEPTH = 16  # element-wise ops through which a reshape moves


def split_reductions(module: Module) -> Module:
    """Cut the reductions of every function; returns the module."""
    for function in module.functions.values():
        uses = count_uses(function)
        rewrite(function.block, _rule(uses, function.symbols))
    return module


def _rule(
    uses: Mapping[Value, int], known: Bounds
) -> Callable[[Op, Builder], Sequence[Value] | None]:
    def rule(op: Op, builder: Builder) -> Sequence[Value] | None:
        if op.name != "reduce":
            return None
        (x,) = op.operands
        shape, axes = tensor_type(x).shape, Reduce.of(op).axes
        rows = product(dim for axis, dim in enumerate(shape) if axis not in axes)
        row = product(shape[axis] for axis in axes)
        if bounds(rows, known)[1] > _FEW or bounds(row, known)[0] < _LONG:
            return None
        kind = Reduce.of(op).kind
        kept = _axis_of_parts(shape, axes, known)
        if kept is not None:
            return [_two_steps(builder, x, axes, kept, kind)]
        lengths = {each: dim for each in axes if isinstance(dim := shape[each], int)}
        axis = max(lengths, key=lambda each: lengths[each], default=axes[0])
        parts = _parts_of(shape[axis])
        if parts is None:
            return None
        cut = (*shape[:axis], parts, known_dim(shape[axis]) // parts, *shape[axis + 1 :])
        x = _reshaped(builder, x, cut, uses, _DEPTH)
        axes = (*(each + (each > axis) for each in axes), axis + 1)
        return [_two_steps(builder, x, axes, axis, kind)]

    return rule


def _axis_of_parts(shape: Sequence[Dim], axes: Sequence[int], known: Bounds) -> int | None:
    """The first reduced axis whose steps are parts of a good size and number."""
    for axis in sorted(axes):
        others = product(shape[each] for each in axes if each != axis)
        extent = shape[axis]
        fits = not isinstance(extent, int) or _PARTS[0] <= extent <= _PARTS[1]
        if fits and bounds(others, known)[0] >= _SHORTEST:
            return axis
    return None


def _parts_of(extent: Dim) -> int | None:
    """Into how many equal parts to cut an axis."""
    if not isinstance(extent, int):
        return None
    low, high = _PARTS
    counts = [n for n in range(low, high + 1) if extent % n == 0 and extent // n >= _SHORTEST]
    return min(counts, key=lambda n: max(n, _WANTED) / min(n, _WANTED), default=None)


def _two_steps(builder: Builder, x: Value, axes: Sequence[int], kept: int, kind: str) -> Value:
    """x reduced over `axes`, over `kept` last."""
    element = tensor_type(x).dtype
    if element.is_float and element.bits < 32 and kind in ("add", "mul"):
        x = builder.value("convert", x, dtype=dtype("f32"))
    first = tuple(sorted({*axes} - {kept}))
    parts = builder.value("reduce", x, axes=first, kind=kind)
    place = kept - sum(axis < kept for axis in first)
    total = builder.value("reduce", parts, axes=(place,), kind=kind)
    if tensor_type(total).dtype != element:
        total = builder.value("convert", total, dtype=element)
    return total


def _reshaped(
    builder: Builder, x: Value, shape: Sequence[Dim], uses: Mapping[Value, int], depth: int
) -> Value:
    """x in another shape; of element-wise ops that nobody else needs the operands change, so
    that they stay in one kernel with what is done to the result."""
    op = x.owner
    if isinstance(op, Op) and depth and uses.get(x, 1) == 1:
        if op.name == "broadcast" and tensor_type(op.operands[0]).rank == 0:
            return builder.value("broadcast", op.operands[0], shape=shape, dimensions=())
        if lookup(op.name).family == "elementwise":
            operands = [_reshaped(builder, each, shape, uses, depth - 1) for each in op.operands]
            return builder.like(op, *operands)
    return builder.value("reshape", x, shape=tuple(shape))

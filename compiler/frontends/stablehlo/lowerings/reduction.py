"""Lowerings of reduce and sort; reduce_window is in `window.py`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ingot.compiler.frontends.stablehlo import bodies
from ingot.compiler.frontends.stablehlo.lift import cast, check_body, element_of, paired
from ingot.compiler.frontends.stablehlo.lowering import (
    Context,
    Lowered,
    Result,
    ints,
    lowering,
)
from ingot.compiler.frontends.stablehlo.lowerings.fold import fold_rows
from ingot.compiler.frontends.stablehlo.reading.program import (
    SourceBlock,
    SourceOp,
    SourceProgram,
    SourceValue,
)
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops.reduction import identity
from ingot.compiler.ir import Block, Region, ScalarType, Value
from ingot.hal.spec import DType

__all__ = ["check_reduction", "is_identity", "with_init"]


def check_reduction(op: SourceOp, program: SourceProgram) -> str | None:
    """Why a reduction, perhaps of windows, cannot be lowered; None if it can."""
    return None if bodies.reduction_kinds(op) is not None else check_body(op, program)


@lowering("reduce", check=check_reduction)
def reduce(context: Context, op: SourceOp) -> Result:
    """Combine elements along axes; the init value enters once, where it is not the identity."""
    block, kinds = bodies.body_of(op), bodies.reduction_kinds(op)
    if kinds is None or block is None:
        return _arg_reduce(context, op) or fold_rows(context, op)
    axes, results = ints(op.attributes["dimensions"]), []
    for place, kind in enumerate(kinds):
        wanted = element_of(block.arguments[place].type)
        x = cast(context.builder, context.operand(op, place), wanted)
        value = context.builder.op("reduce", x, axes=axes, kind=kind) if axes else x
        results.append(with_init(context, op, value, len(kinds) + place, kind))
    return results


def with_init(context: Context, op: SourceOp, value: Value, place: int, kind: str) -> Value:
    """`value` combined with the init value, unless that is the identity."""
    type = tensor_type(value)
    if is_identity(context, context.lowered(op, place), kind, type.dtype):
        return value
    init = cast(context.builder, context.operand(op, place), type.dtype)
    init = context.builder.broadcast_to(init, type.shape)
    return context.builder.op(kind, value, init)  # type: ignore[no-any-return]


def is_identity(context: Context, init: Lowered, kind: str, element: DType) -> bool:
    """Whether an init value changes nothing under `kind`."""
    constant = init.constant
    known = None if constant is not None else context.known(init)
    if known is not None:
        return known == (identity(kind, element),)
    if constant is None or constant.array.size == 0:
        return False
    if element.is_float and constant.array.dtype.kind == "u":
        return False  # floats as bits, because ml_dtypes is missing
    value = np.asarray(constant.array).reshape(-1)[0]
    return bool(value == identity(kind, element))


def _arg_reduce(context: Context, op: SourceOp) -> list[Value] | None:
    """A reduce of values and their places as arg_max or arg_min; None if it is neither."""
    axes = ints(op.attributes["dimensions"])
    found = bodies.arg_kind(op) if len(op.operands) == 4 and len(axes) == 1 else None
    if found is None:
        return None
    (axis,), (name, last) = axes, found
    kind = "max" if name == "arg_max" else "min"
    x = context.operand(op, 0)
    type = tensor_type(x)
    counts = context.lowered(op, 1).iota_axis == axis
    if not counts or not is_identity(context, context.lowered(op, 2), kind, type.dtype):
        return None
    if type.shape[axis] == 0:
        return None
    wanted = tensor_type(context.operand(op, 1)).dtype
    index = context.builder.op(name, x, axis=axis, dtype=wanted, last=last)
    return [context.builder.op("reduce", x, axes=(axis,), kind=kind), index]


@lowering("sort", check=check_body)
def sort(context: Context, op: SourceOp) -> list[Lowered]:
    """Sort the operands together along one axis, stable; the comparator is a scalar region.

    What the comparator uses from outside and only the call knows is sorted with them.
    """
    block = bodies.body_of(op)
    assert block is not None
    xs = context.same_shape(op, context.flat_operands(op))
    count, shape = len(xs), tensor_type(xs[0]).shape
    known, others = _captured(context, block)
    outside = context.flat([context.values[value] for value in others])
    xs += [context.builder.broadcast_to(value, shape) for value in outside]
    inner_block = Block(ScalarType(tensor_type(x).dtype) for x in xs for _ in range(2))
    given = [*block.arguments[::2], *others]
    first, second = (paired(given, inner_block.arguments[side::2]) for side in (0, 1))
    inner = replace(
        context,
        builder=Builder(inner_block, context.location(op)),
        values={
            **known,
            **dict(zip(given, first, strict=True)),
            **dict(zip(block.arguments[1::2], second, strict=False)),
        },
        lifted=(),
    )
    (result,) = context.lower_ops(inner, block)
    inner.builder.yield_(inner.value(result))
    axis = op.attributes["dimension"]
    sort_op = context.builder.append("sort", xs, [Region([inner_block])], {"axis": axis})
    return paired(op.results, sort_op.results[:count])


def _captured(
    context: Context, block: SourceBlock
) -> tuple[dict[SourceValue, Lowered], list[SourceValue]]:
    """What a comparator uses from outside: numbers, to be made anew inside it, and the rest."""
    inside = {*block.arguments, *(value for each in block.ops for value in each.results)}
    used = dict.fromkeys(value for each in block.ops for value in each.operands)
    numbers, others = {}, []
    for value in used:
        lowered = context.values.get(value)
        if value in inside or lowered is None:
            continue
        constant = lowered.constant or context.whole_number(lowered)
        if constant is not None:
            numbers[value] = Lowered(constant=constant)
        else:
            others.append(value)
    return numbers, others

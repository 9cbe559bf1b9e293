"""Lowerings of reduce and sort; reduce_window is in `lower_window.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ingot.compiler.frontends.stablehlo import bodies
from ingot.compiler.frontends.stablehlo.lowering import (
    Context,
    Lowered,
    ints,
    lowering,
)
from ingot.compiler.frontends.stablehlo.program import (
    SourceBlock,
    SourceOp,
    SourceProgram,
    SourceValue,
    TensorType,
)
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Block, Region, ScalarType, Value
from ingot.hal.spec import dtype

__all__ = ["BODY", "is_identity", "with_init"]

BODY = "a region that is none of add, multiply, maximum, minimum, and, or, xor"


def _check_reduce(op: SourceOp, program: SourceProgram) -> str | None:
    if bodies.reduction_kinds(op) is not None:
        return None
    one_axis = len(op.operands) == 4 and len(ints(op.attributes["dimensions"])) == 1
    return None if one_axis and bodies.arg_kind(op) else f"{BODY}, argmax or argmin"


@lowering("reduce", check=_check_reduce)
def reduce(context: Context, op: SourceOp) -> list[Value]:
    """Combine elements along axes; the init value enters once, where it is not the identity."""
    axes, kinds = ints(op.attributes["dimensions"]), bodies.reduction_kinds(op)
    if kinds is None:
        return _arg_reduce(context, op, axes[0])
    results = []
    for place, kind in enumerate(kinds):
        x = context.operand(op, place)
        value = context.builder.op("reduce", x, axes=axes, kind=kind) if axes else x
        results.append(with_init(context, op, value, len(kinds) + place, kind))
    return results


def with_init(context: Context, op: SourceOp, value: Value, place: int, kind: str) -> Value:
    """`value` combined with the init value, unless that is the identity."""
    type = tensor_type(value)
    if is_identity(context.lowered(op, place), kind, type.dtype.name):
        return value
    init = context.builder.broadcast_to(context.operand(op, place), type.shape)
    return context.builder.op(kind, value, init)  # type: ignore[no-any-return]


def is_identity(init: Lowered, kind: str, element: str) -> bool:
    """Whether an init value changes nothing under `kind`."""
    if init.sizes is not None and len(init.sizes) == 1:
        return bool(init.sizes[0] == bodies.identity(kind, element))
    constant = init.constant
    if constant is None or constant.array.size == 0:
        return False
    if dtype(element).is_float and constant.array.dtype.kind == "u":
        return False  # floats as bits, because ml_dtypes is missing
    value = np.asarray(constant.array).reshape(-1)[0]
    return bool(value == bodies.identity(kind, element))


def _arg_reduce(context: Context, op: SourceOp, axis: int) -> list[Value]:
    found = bodies.arg_kind(op)
    assert found is not None
    name, last = found
    kind = "max" if name == "arg_max" else "min"
    x = context.operand(op, 0)
    type = tensor_type(x)
    if context.lowered(op, 1).iota_axis != axis:
        raise context.error(op, "its second operand must count the elements of the reduced axis")
    if not is_identity(context.lowered(op, 2), kind, type.dtype.name):
        raise context.error(op, f"its init value must be the identity of {kind}")
    wanted = tensor_type(context.operand(op, 1)).dtype
    index = context.builder.op(name, x, axis=axis, dtype=wanted, last=last)
    return [context.builder.op("reduce", x, axes=(axis,), kind=kind), index]


def _check_sort(op: SourceOp, program: SourceProgram) -> str | None:
    block = bodies.body_of(op)
    if block is None or len(block.ops[-1].operands) != 1:
        return "a comparator without result"
    inside = {each.full_name for each in block.ops} - {"return"}
    odd = sorted(name for name in inside if name not in _IN_COMPARATORS)
    return f"a comparator with {', '.join(odd)}" if odd else None


_IN_COMPARATORS = frozenset(
    {
        "abs",
        "add",
        "and",
        "bitcast_convert",
        "compare",
        "constant",
        "convert",
        "divide",
        "maximum",
        "minimum",
        "multiply",
        "negate",
        "not",
        "or",
        "remainder",
        "select",
        "sign",
        "subtract",
        "xor",
    }
)


@lowering("sort", check=_check_sort)
def sort(context: Context, op: SourceOp) -> list[Value]:
    """Sort the operands together along one axis, stable; the comparator is a scalar region."""
    block = bodies.body_of(op)
    assert block is not None
    types = [argument.type for argument in block.arguments]
    elements = [type.element for type in types if isinstance(type, TensorType)]
    inner_block = Block(ScalarType(dtype(element)) for element in elements)
    inner = Context(
        context.program,
        Builder(inner_block, context.location(op)),
        context.symbols,
        context.lower_ops,
        {**_captured(context, op, block), **_arguments(block.arguments, inner_block)},
        context.prefix,
        context.depth,
    )
    (result,) = context.lower_ops(inner, block)
    inner.builder.yield_(inner.value(result))
    xs = context.same_shape(op, context.operands(op))
    sorted_ = context.builder.op(
        "sort", *xs, regions=[Region([inner_block])], axis=op.attributes["dimension"]
    )
    return list(sorted_) if isinstance(sorted_, tuple) else [sorted_]


def _captured(context: Context, op: SourceOp, block: SourceBlock) -> dict[SourceValue, Lowered]:
    """Numbers from outside of a comparator, to be made anew inside it."""
    inside = {*block.arguments, *(value for each in block.ops for value in each.results)}
    captured = {}
    for value in {value for each in block.ops for value in each.operands} - inside:
        lowered = context.values[value]
        sizes = lowered.sizes or ()
        if lowered.constant is None and not (sizes and all(isinstance(n, int) for n in sizes)):
            raise context.error(op, "its comparator uses a value that only the call knows")
        captured[value] = replace(lowered, value=None)
    return captured


def _arguments(source: Sequence[SourceValue], block: Block) -> dict[SourceValue, Lowered]:
    return {old: Lowered(new) for old, new in zip(source, block.arguments, strict=True)}

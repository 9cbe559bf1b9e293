"""Lowerings of ops on quantised tensors, which are integers in the graph.

What only moves elements is the op on integers. All others are what the specification says: the
op on the numbers that the integers stand for, and its results quantised again. Arguments and
results of functions are integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ingot.compiler.frontends.stablehlo.lowering import LOWERINGS, Context, Lowered, lowering
from ingot.compiler.frontends.stablehlo.reading.program import (
    QuantizedType,
    SourceOp,
    SourceProgram,
    SourceType,
    TensorType,
)
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DTYPES, dtype

__all__ = ["is_quantized", "lower_quantized"]

_WHOLE = frozenset(
    {
        *("call", "case", "composite", "custom_call", "get_dimension_size", "get_tuple_element"),
        *("if", "optimization_barrier", "return", "sharding_constraint", "tuple"),
        *("unrealized_conversion_cast", "while"),
    }
)
"""Ops that take quantised tensors as they are."""
_MOVES = frozenset(
    {
        *("bitcast_convert", "broadcast", "broadcast_in_dim", "concatenate"),
        *("dynamic_broadcast_in_dim", "dynamic_gather", "dynamic_pad", "dynamic_reshape"),
        *("dynamic_slice", "dynamic_update_slice", "gather", "pad", "real_dynamic_slice"),
        *("reshape", "reverse", "select", "set_dimension_size", "slice", "torch_index_select"),
        "transpose",
    }
)


def _type_of(type: SourceType) -> QuantizedType | None:
    return type.quantized if isinstance(type, TensorType) else None


def is_quantized(op: SourceOp) -> bool:
    """Whether this file lowers the op."""
    values = (*op.operands, *op.results)
    return op.name not in _WHOLE and any(_type_of(value.type) for value in values)


def lower_quantized(context: Context, op: SourceOp) -> Sequence[Lowered]:
    """What an op on quantised tensors gives."""
    if op.name == "constant":
        return [_constant(context, op)]
    if op.name in _MOVES and _is_one_type(op):
        return _made(context, op)
    return _on_numbers(context, op)


def _constant(context: Context, op: SourceOp) -> Lowered:
    """Its attribute holds the integers, of whichever sign."""
    constant, type = op.attributes["value"], op.results[0].tensor
    array = constant.array
    if constant.element != type.element and DTYPES[type.element].bits >= 8:
        array = array.view(dtype(type.element).numpy)
    return Lowered(constant=replace(constant, array=array, element=type.element))


def _is_one_type(op: SourceOp) -> bool:
    """Whether all tensors are quantised alike; the axis moves with the elements."""
    types = {_type_of(value.type) for value in (*op.operands, *op.results)}
    return len({replace(type, axis=None) for type in types if type is not None}) == 1


def _made(context: Context, op: SourceOp) -> list[Lowered]:
    made = LOWERINGS[op.full_name].lower(context, op)
    several = [made] if isinstance(made, (Value, Lowered)) else made
    return [Lowered(each) if isinstance(each, Value) else each for each in several]


def _on_numbers(context: Context, op: SourceOp) -> list[Lowered]:
    """The op on what the integers stand for; then those results that are quantised."""
    numbers = [
        None
        if (type := _type_of(operand.type)) is None
        else _dequantize(context, op, context.operand(op, place), type)
        for place, operand in enumerate(op.operands)
    ]
    results = context.lower_as(op, numbers, _expressed)
    return [
        Lowered(
            made if (type := _type_of(result.type)) is None else _quantize(context, op, made, type)
        )
        for result, made in zip(op.results, results, strict=True)
    ]


def _expressed(type: SourceType) -> SourceType:
    own = _type_of(type)
    if own is None or not isinstance(type, TensorType):
        return type
    return replace(type, element=own.expressed, quantized=None)


def _dequantize(context: Context, op: SourceOp, x: Value, type: QuantizedType) -> Value:
    """(x - zero point) * scale."""
    builder, wanted = context.builder, dtype(type.expressed)
    wide = builder.value("convert", x, dtype=wanted)
    zeros, scales = _parameters(context, op, wide, type)
    return builder.value("mul", builder.value("sub", wide, zeros), scales)


def _quantize(context: Context, op: SourceOp, x: Value, type: QuantizedType) -> Value:
    """x / scale + zero point, clamped to the range of the integers and rounded, halves to even."""
    builder = context.builder
    zeros, scales = _parameters(context, op, x, type)
    moved = builder.value("add", builder.value("div", x, scales), zeros)
    own = tensor_type(x)
    low, high = (builder.full(limit, own.dtype, own.shape) for limit in (type.low, type.high))
    clamped = builder.value("clamp", low, moved, high)
    rounded = builder.value("round_even", clamped)
    return builder.value("convert", rounded, dtype=dtype(type.storage))


def _parameters(
    context: Context, op: SourceOp, x: Value, type: QuantizedType
) -> tuple[Value, Value]:
    """Zero points and scales in the shape and dtype of x."""
    own, builder = tensor_type(x), context.builder
    if type.axis is None:
        zero, scale = (
            builder.full(number, own.dtype, own.shape) for number in (type.zeros[0], type.scales[0])
        )
        return zero, scale
    count = len(type.scales)
    length: Dim = own.shape[type.axis] if type.axis < own.rank else 0
    if length != count:
        raise context.error(op, f"{count} scales for axis {type.axis} of {own}: fix the program")
    zeros, scales = (
        builder.value(
            "broadcast",
            builder.constant(list(numbers), own.dtype),
            shape=own.shape,
            dimensions=(type.axis,),
        )
        for numbers in (type.zeros, type.scales)
    )
    return zeros, scales


def _check(op: SourceOp, program: SourceProgram) -> str | None:
    values = (*op.operands, *op.results)
    return None if any(_type_of(value.type) for value in values) else "nothing is quantised"


@lowering("uniform_quantize", "uniform_dequantize", check=_check)
def convert(context: Context, op: SourceOp) -> Value:
    """Of numbers, that is nothing."""
    return context.operand(op, 0)

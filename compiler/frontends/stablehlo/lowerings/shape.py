"""Lowerings of ops that move elements and compute none, and their forms with dynamic sizes."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.stablehlo.lowering import Context, Lowered, ints, lowering
from ingot.compiler.frontends.stablehlo.reading.program import SourceOp, TensorType
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []


@lowering("constant")
def constant(context: Context, op: SourceOp) -> Lowered:
    return Lowered(constant=op.attributes["value"])


@lowering("iota")
def iota(context: Context, op: SourceOp) -> Lowered:
    type = op.results[0].tensor
    return _iota(context, op, type, [dim or 0 for dim in type.shape])


@lowering("dynamic_iota")
def dynamic_iota(context: Context, op: SourceOp) -> Lowered:
    type = op.results[0].tensor
    return _iota(context, op, type, context.sizes(op, 0))


def _iota(context: Context, op: SourceOp, type: TensorType, shape: Sequence[Dim]) -> Lowered:
    axis = op.attributes["iota_dimension"]
    value = context.builder.op("iota", dtype=dtype(type.element), shape=tuple(shape), axis=axis)
    return Lowered(value, iota_axis=axis)


@lowering("get_dimension_size")
def get_dimension_size(context: Context, op: SourceOp) -> Value:
    dim = tensor_type(context.operand(op, 0)).shape[op.attributes["dimension"]]
    return context.builder.op("dim", value=dim, dtype=dtype("i32"))  # type: ignore[no-any-return]


@lowering("broadcast_in_dim")
def broadcast_in_dim(context: Context, op: SourceOp) -> Lowered:
    if context.lifted is not None:
        return context.lowered(op, 0)
    type = op.results[0].tensor
    x = tensor_type(context.operand(op, 0))
    places = ints(op.attributes["broadcast_dimensions"])
    shape: list[Dim] = [0 if dim is None else dim for dim in type.shape]
    for axis, place in enumerate(places):
        if type.shape[place] is None:
            shape[place] = x.shape[axis]
    return _broadcast(context, op, shape)


@lowering("dynamic_broadcast_in_dim")
def dynamic_broadcast_in_dim(context: Context, op: SourceOp) -> Lowered:
    return _broadcast(context, op, context.sizes(op, 1))


def _broadcast(context: Context, op: SourceOp, shape: Sequence[Dim]) -> Lowered:
    source, x = context.lowered(op, 0), context.operand(op, 0)
    places = ints(op.attributes["broadcast_dimensions"])
    type = tensor_type(x)
    wanted = [
        dim if dim == 1 else shape[place] for dim, place in zip(type.shape, places, strict=True)
    ]
    x = context.agree(op, x, wanted)
    if type.shape == tuple(shape) and places == tuple(range(type.rank)):
        return source
    value = context.builder.op("broadcast", x, shape=tuple(shape), dimensions=places)
    counted = source.iota_axis
    if counted is None or type.shape[counted] == 1:
        return Lowered(value)
    return Lowered(value, iota_axis=places[counted])


@lowering("broadcast")
def broadcast(context: Context, op: SourceOp) -> Value:
    x = context.operand(op, 0)
    shape = (*ints(op.attributes["broadcast_sizes"]), *tensor_type(x).shape)
    return context.builder.broadcast_to(x, shape)


@lowering("reshape", "dynamic_reshape")
def reshape(context: Context, op: SourceOp) -> Value:
    if context.lifted is not None:
        return context.operand(op, 0)
    x, type = context.operand(op, 0), op.results[0].tensor
    if op.name == "dynamic_reshape":
        shape = context.sizes(op, 1)
    elif None in type.shape:
        raise context.error(op, "a reshape to an unknown shape; use dynamic_reshape")
    else:
        shape = tuple(dim or 0 for dim in type.shape)
    return context.builder.reshape(x, shape)


@lowering("transpose")
def transpose(context: Context, op: SourceOp) -> Value:
    return context.builder.transpose(context.operand(op, 0), ints(op.attributes["permutation"]))


@lowering("slice")
def slice_(context: Context, op: SourceOp) -> Value:
    start, limit, stride = (
        ints(op.attributes[name]) for name in ("start_indices", "limit_indices", "strides")
    )
    x = context.operand(op, 0)
    return context.builder.op("slice", x, start=start, limit=limit, stride=stride)  # type: ignore[no-any-return]


@lowering("real_dynamic_slice")
def real_dynamic_slice(context: Context, op: SourceOp) -> Value:
    block = _block_of_known_sizes(context, op)
    if block is not None:
        return block
    start, limit = context.sizes(op, 1), context.sizes(op, 2)
    stride = context.sizes(op, 3, low=1)
    x = context.operand(op, 0)
    return context.builder.op("slice", x, start=start, limit=limit, stride=stride)  # type: ignore[no-any-return]


def _block_of_known_sizes(context: Context, op: SourceOp) -> Value | None:
    """A slice from `start` to `start + sizes` with known sizes, as jax writes a dynamic_slice of
    symbolic sizes: only where it begins depends on data, so nothing is read back."""
    first, limit = op.operands[1], op.operands[2].producer
    if limit is None or limit.name != "add" or first not in limit.operands:
        return None
    other = limit.operands[1 - limit.operands.index(first)]
    sizes, strides = (context.known(context.values[each]) for each in (other, op.operands[3]))
    if context.known(context.values[first]) is not None or sizes is None or strides is None:
        return None
    if any(step != 1 for step in strides):
        return None
    x = context.operand(op, 0)
    room = tuple(dim - size for dim, size in zip(tensor_type(x).shape, sizes, strict=True))
    clamp = first.producer
    if clamp is not None and clamp.name == "clamp":  # dynamic_slice does that, too
        low, high = (context.known(context.values[clamp.operands[place]]) for place in (0, 2))
        if low is not None and not any(low) and high == room:
            first = clamp.operands[1]
    starts = context.parts(first)
    return context.builder.op("dynamic_slice", x, *starts, sizes=sizes)  # type: ignore[no-any-return]


@lowering("pad")
def pad(context: Context, op: SourceOp) -> Value:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return _pad(context, op, *(ints(op.attributes[name]) for name in names))


@lowering("dynamic_pad")
def dynamic_pad(context: Context, op: SourceOp) -> Value:
    low, high = (context.sizes(op, place, low=None) for place in (2, 3))
    return _pad(context, op, low, high, context.sizes(op, 4))


def _pad(
    context: Context, op: SourceOp, low: Sequence[Dim], high: Sequence[Dim], inside: Sequence[Dim]
) -> Value:
    x, value = context.operand(op, 0), context.operand(op, 1)
    return context.builder.op(  # type: ignore[no-any-return]
        "pad", x, value, low=tuple(low), high=tuple(high), interior=tuple(inside)
    )


@lowering("concatenate")
def concatenate(context: Context, op: SourceOp) -> Value:
    values, axis = context.operands(op), op.attributes["dimension"]
    first = list(tensor_type(values[0]).shape)
    for place, value in enumerate(values):
        first[axis] = tensor_type(value).shape[axis]
        values[place] = context.agree(op, value, first)
    return context.builder.op("concatenate", *values, axis=axis)  # type: ignore[no-any-return]


@lowering("reverse")
def reverse(context: Context, op: SourceOp) -> Value:
    x = context.operand(op, 0)
    return context.builder.op("reverse", x, axes=ints(op.attributes["dimensions"]))  # type: ignore[no-any-return]


@lowering("optimization_barrier", "builtin.unrealized_conversion_cast", "sdy.sharding_constraint")
def unchanged(context: Context, op: SourceOp) -> list[Lowered]:
    """What is for other compilers; the last two stand around typed keys of jax."""
    return [context.lowered(op, place) for place in range(len(op.operands))]

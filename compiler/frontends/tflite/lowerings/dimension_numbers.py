"""Ops of StableHLO that say by numbers of dims what they combine, and may have a body."""

from __future__ import annotations

from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, type_of
from ingot.compiler.frontends.tflite.lowering import Context, lowering
from ingot.compiler.ir import Value

__all__: list[str] = []

_COMBINED = {
    "ADD": "add",
    "AND": "and",
    "LOGICAL_AND": "and",
    "LOGICAL_OR": "or",
    "MAXIMUM": "max",
    "MINIMUM": "min",
    "MUL": "mul",
    "MULTIPLY": "mul",
    "OR": "or",
}


def _kind(c: Context, place: int) -> str:
    """What a body makes of two numbers; `set` is the second one."""
    body = c.walker.body(place)
    names = [each.name.removeprefix("STABLEHLO_") for each in body.operators]
    if not names and body.outputs == body.inputs[1:]:
        return "set"
    taken = sorted(body.operators[0].inputs) == sorted(body.inputs) if len(names) == 1 else False
    if not taken or names[0] not in _COMBINED:
        raise UnsupportedNode(
            f"its body is {' '.join(names) or 'empty'}: use one op of two numbers"
        )
    return _COMBINED[names[0]]


def _numbers(c: Context, *names: str) -> dict[str, Any]:
    return {name: tuple(getattr(c.options, name)) for name in names}


@lowering("STABLEHLO_GATHER", raw=True)
def gather(c: Context, x: Value, indices: Value) -> Value:
    numbers = _numbers(c, "offset_dims", "collapsed_slice_dims", "start_index_map", "slice_sizes")
    return c.op("gather", x, indices, index_vector_dim=c.options.index_vector_dim, **numbers)


@lowering("STABLEHLO_SCATTER", raw=True)
def scatter(c: Context, x: Value, indices: Value, updates: Value) -> Value:
    """Windows that do not fit are left out."""
    names = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")
    kind = _kind(c, c.options.update_computation_subgraph_index)
    depth = c.options.index_vector_dim
    numbers = _numbers(c, *names)
    return c.op("scatter", x, indices, updates, index_vector_dim=depth, kind=kind, **numbers)


@lowering("STABLEHLO_REDUCE", raw=True)
def reduce(c: Context, x: Value, start: Value) -> Value:
    kind = _kind(c, c.options.body_subgraph_index)
    return c.op(kind, *c.broadcast(c.reduce(x, c.options.dimensions, kind), start))


@lowering("STABLEHLO_REDUCE_WINDOW", raw=True)
def reduce_window(c: Context, x: Value, start: Value) -> Value:
    kind, ones = _kind(c, c.options.body_subgraph_index), (1,) * type_of(x).rank
    padding = c.options.padding or (0,) * (2 * len(ones))
    total = c.op(
        "reduce_window",
        x,
        kind=kind,
        window=tuple(c.options.window_dimensions),
        strides=tuple(c.options.window_strides) or ones,
        padding=tuple(zip(padding[::2], padding[1::2], strict=True)),
        base_dilation=tuple(c.options.base_dilations) or ones,
        window_dilation=tuple(c.options.window_dilations) or ones,
    )
    return c.op(kind, *c.broadcast(total, start))


@lowering("STABLEHLO_DOT_GENERAL", raw=True)
def dot_general(c: Context, a: Value, b: Value) -> Value:
    return c.op(
        "dot_general",
        a,
        b,
        lhs_batch=tuple(c.options.lhs_batching_dimensions),
        rhs_batch=tuple(c.options.rhs_batching_dimensions),
        lhs_contract=tuple(c.options.lhs_contracting_dimensions),
        rhs_contract=tuple(c.options.rhs_contracting_dimensions),
        dtype=c.outputs[0].dtype,
    )


@lowering("STABLEHLO_IOTA", raw=True)
def iota(c: Context) -> Value:
    """Of the shape that the file notes of the result."""
    type = c.outputs[0].type
    return c.places(type.shape, c.options.iota_dimension, type.dtype.name)

"""Ops of StableHLO that say by numbers of dims what they combine, and may have a body."""

from __future__ import annotations

from typing import Any

from ingot.compiler.frontends.convolutions import MOST_SPATIAL, convolve
from ingot.compiler.frontends.emitter import UnsupportedNode, type_of
from ingot.compiler.frontends.tflite.lowering import Context, lowering
from ingot.compiler.frontends.tflite.lowerings.elementwise import COMPARISONS
from ingot.compiler.frontends.tflite.lowerings.selections import in_order
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
_DIRECTIONS = {"LESS": "lt", "GREATER": "gt"}
_MIRRORED = {"lt": "gt", "gt": "lt"}


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


@lowering("STABLEHLO_GATHER", codes=0)
def gather(c: Context, x: Value, indices: Value) -> Value:
    numbers = _numbers(c, "offset_dims", "collapsed_slice_dims", "start_index_map", "slice_sizes")
    return c.op("gather", x, indices, index_vector_dim=c.options.index_vector_dim, **numbers)


@lowering("STABLEHLO_SCATTER")
def scatter(c: Context, x: Value, indices: Value, updates: Value) -> Value:
    """Windows that do not fit are left out."""
    names = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")
    kind = _kind(c, c.options.update_computation_subgraph_index)
    depth = c.options.index_vector_dim
    numbers = _numbers(c, *names)
    return c.op("scatter", x, indices, updates, index_vector_dim=depth, kind=kind, **numbers)


@lowering("STABLEHLO_REDUCE")
def reduce(c: Context, x: Value, start: Value) -> Value:
    kind = _kind(c, c.options.body_subgraph_index)
    return c.op(kind, *c.broadcast(c.reduce(x, c.options.dimensions, kind), start))


@lowering("STABLEHLO_REDUCE_WINDOW")
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


@lowering("STABLEHLO_DOT_GENERAL")
def dot_general(c: Context, a: Value, b: Value) -> Value:
    return c.op(
        "dot_general",
        a,
        b,
        lhs_batch=tuple(c.options.lhs_batching_dimensions),
        rhs_batch=tuple(c.options.rhs_batching_dimensions),
        lhs_contract=tuple(c.options.lhs_contracting_dimensions),
        rhs_contract=tuple(c.options.rhs_contracting_dimensions),
        dtype=c.dtype,
    )


@lowering("STABLEHLO_CONVOLUTION")
def convolution(c: Context, x: Value, w: Value) -> Value:
    numbers = vars(c.options)
    for operand, prefix, one, other in (
        (x, "input", "batch", "feature"),
        (w, "kernel", "input_feature", "output_feature"),
        (x, "output", "batch", "feature"),
    ):
        ends = [numbers[f"{prefix}_{each}_dimension"] for each in (one, other)]
        named = [*numbers[f"{prefix}_spatial_dimensions"], *ends]
        if sorted(named) != list(range(type_of(operand).rank)):
            raise UnsupportedNode(f"the axes of its {prefix}, {named}, are not each one once")
    if type_of(x).rank > MOST_SPATIAL + 2:
        raise UnsupportedNode(f"more than {MOST_SPATIAL} spatial dims")
    return convolve(c.builder, x, w, numbers, c.options.padding, c.dtype)


@lowering("STABLEHLO_SORT")
def sort(c: Context, *given: Value) -> tuple[Value, ...]:
    """Together along one axis, stable."""
    body = c.walker.body(c.options.comparator_subgraph_index)
    names = " ".join(each.name for each in body.operators)
    direction = _DIRECTIONS.get(names.removeprefix("STABLEHLO_"), "")
    compared = body.operators[0].inputs if len(body.operators) == 1 else ()
    if names == "STABLEHLO_COMPARE":
        direction = COMPARISONS[body.operators[0].options.comparison_direction]
    pairs = [tuple(body.inputs[at : at + 2]) for at in range(0, len(body.inputs), 2)]
    for key, pair in enumerate(pairs):
        if direction in _MIRRORED and tuple(compared) in (pair, pair[::-1]):
            direction = direction if tuple(compared) == pair else _MIRRORED[direction]
            return in_order(c, given, key, direction, c.options.dimension)
    raise UnsupportedNode(
        f"its comparator is {names or 'empty'}: use one op that tells which of two is less"
    )


@lowering("STABLEHLO_IOTA", raw=True)
def iota(c: Context) -> Value:
    """Of the shape that the file notes of the result."""
    type = c.outputs[0].type
    return c.places(type.shape, c.options.iota_dimension, type.dtype.name)

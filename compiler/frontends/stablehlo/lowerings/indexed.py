"""Lowerings of ops that read or write at computed indices."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.stablehlo.lowering import Context, ints, lowering
from ingot.compiler.frontends.stablehlo.reading.program import SourceOp, TensorType
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim

__all__ = ["SCATTER", "agreed_indices"]


@lowering("gather")
def gather(context: Context, op: SourceOp) -> Value:
    return _gather(context, op, ints(op.attributes["slice_sizes"]))


@lowering("dynamic_gather")
def dynamic_gather(context: Context, op: SourceOp) -> Value:
    sizes = list(context.sizes(op, 2))
    for axis in (
        *ints(op.attributes["collapsed_slice_dims"]),
        *ints(op.attributes.get("operand_batching_dims", ())),
    ):
        context.equate(op, sizes[axis], 1)
        sizes[axis] = 1
    return _gather(context, op, sizes)


def _gather(context: Context, op: SourceOp, sizes: Sequence[Dim]) -> Value:
    window = _known_window(context, op, sizes)
    if window is not None:
        return window
    operand, indices = context.operand(op, 0), context.operand(op, 1)
    indices = agreed_indices(context, op, operand, indices, GATHER)
    axis = _take_axis(op, operand, indices, sizes)
    if axis is not None:
        shape = tensor_type(indices).shape
        if op.attributes["index_vector_dim"] < len(shape):
            flat = shape[: op.attributes["index_vector_dim"]]
            indices = context.builder.op("reshape", indices, shape=flat)
        return context.builder.op("take", operand, indices, axis=axis, mode="clamp")  # type: ignore[no-any-return]
    return context.builder.op(  # type: ignore[no-any-return]
        "gather",
        operand,
        indices,
        offset_dims=ints(op.attributes["offset_dims"]),
        collapsed_slice_dims=ints(op.attributes["collapsed_slice_dims"]),
        operand_batching_dims=ints(op.attributes.get("operand_batching_dims", ())),
        start_indices_batching_dims=ints(op.attributes.get("start_indices_batching_dims", ())),
        start_index_map=ints(op.attributes["start_index_map"]),
        index_vector_dim=op.attributes["index_vector_dim"],
        slice_sizes=tuple(sizes),
        mode="clamp",
    )


GATHER = ("start_index_map", "operand_batching_dims", "start_indices_batching_dims")
SCATTER = (
    "scatter_dims_to_operand_dims",
    "input_batching_dims",
    "scatter_indices_batching_dims",
)
"""The names of what a gather and a scatter say of the same things."""


def agreed_indices(
    context: Context, op: SourceOp, x: Value, indices: Value, names: Sequence[str]
) -> Value:
    """The indices with the length of their vectors and the batch dims that x has."""
    map, of_x, of_indices = (ints(op.attributes.get(name, ())) for name in names)
    shape, vector = list(tensor_type(indices).shape), op.attributes["index_vector_dim"]
    if vector < len(shape):
        shape[vector] = len(map)
    for axis, source in zip(of_indices, of_x, strict=True):
        shape[axis] = tensor_type(x).shape[source]
    return context.agree(op, indices, shape)


def _known_window(context: Context, op: SourceOp, sizes: Sequence[Dim]) -> Value | None:
    """A gather of one window at a place known from the shapes, such as x[:, -1], as a slice."""
    operand = context.operand(op, 0)
    shape, known = tensor_type(operand).shape, context.known(context.lowered(op, 1))
    start_map = ints(op.attributes["start_index_map"])
    if known is None or op.attributes["index_vector_dim"] != 0 or len(known) != len(start_map):
        return None
    indices = op.operands[1].type
    one_window = isinstance(indices, TensorType) and len(indices.shape) == 1
    if not one_window or ints(op.attributes.get("operand_batching_dims", ())):
        return None
    starts: list[Dim] = [0] * len(shape)
    for axis, start in zip(start_map, known, strict=True):
        starts[axis] = start
    columns = list(zip(starts, sizes, shape, strict=True))
    if not all(_fits(context, *column) for column in columns):
        return None
    limit = tuple(start + size for start, size, _ in columns)
    window = context.builder.op("slice", operand, start=tuple(starts), limit=limit)
    collapsed = ints(op.attributes["collapsed_slice_dims"])
    kept = tuple(size for axis, size in enumerate(sizes) if axis not in collapsed)
    return context.builder.op("reshape", window, shape=kept) if collapsed else window  # type: ignore[no-any-return]


def _take_axis(op: SourceOp, operand: Value, indices: Value, sizes: Sequence[Dim]) -> int | None:
    """The axis of a gather that takes whole slices at single indices, as an embedding does."""
    start_map = ints(op.attributes["start_index_map"])
    vector_dim, shape = op.attributes["index_vector_dim"], tensor_type(indices).shape
    single = vector_dim == len(shape) or (vector_dim == len(shape) - 1 and shape[-1] == 1)
    batching = ints(op.attributes.get("operand_batching_dims", ()))
    if len(start_map) != 1 or start_map != ints(op.attributes["collapsed_slice_dims"]):
        return None
    if not single or batching:
        return None
    (axis,) = start_map
    source = tensor_type(operand).shape
    whole = all(sizes[a] == dim for a, dim in enumerate(source) if a != axis)
    batch = len(shape) if vector_dim == len(shape) else len(shape) - 1
    offsets = (*range(axis), *range(axis + batch, len(source) - 1 + batch))
    return axis if whole and ints(op.attributes["offset_dims"]) == offsets else None


@lowering("dynamic_slice")
def dynamic_slice(context: Context, op: SourceOp) -> Value:
    """A block at start indices; a plain slice where they are known from the shapes."""
    x, sizes = context.operand(op, 0), ints(op.attributes["slice_sizes"])
    shape = tensor_type(x).shape
    starts: list[Dim] = []
    for axis, size in enumerate(sizes):
        known = context.known(context.lowered(op, 1 + axis))
        if known is None or not _fits(context, known[0], size, shape[axis]):
            break
        starts.append(known[0])
    else:
        limit = tuple(start + size for start, size in zip(starts, sizes, strict=True))
        return context.builder.op("slice", x, start=tuple(starts), limit=limit)  # type: ignore[no-any-return]
    return context.builder.op("dynamic_slice", *context.operands(op), sizes=sizes)  # type: ignore[no-any-return]


def _fits(context: Context, start: Dim, size: Dim, dim: Dim) -> bool:
    known = context.symbols.bounds
    return dims.prove_le(0, start, known) and dims.prove_le(start + size, dim, known)


@lowering("dynamic_update_slice")
def dynamic_update_slice(context: Context, op: SourceOp) -> Value:
    return context.builder.op("dynamic_update_slice", *context.operands(op))  # type: ignore[no-any-return]

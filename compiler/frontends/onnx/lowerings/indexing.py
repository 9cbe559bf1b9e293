"""Gather and scatter. Negative indices count from the end; one outside is an error at run time."""

from __future__ import annotations

import numpy as np

from ingot.compiler.frontends import indexed
from ingot.compiler.frontends.indexed import gather_slices
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Expr
from ingot.hal.spec import dtype

__all__: list[str] = []


@lowering("Gather")
def gather(node: Node) -> Value:
    x, indices = node.input(0), node.input(1)
    return node.op("take", x, indices, axis=node.axis(0, type_of(x).rank), mode="wrap_check")


@lowering("GatherElements")
def gather_elements(node: Node) -> Value:
    x, indices = node.input(0), node.input(1)
    rank = type_of(x).rank
    axis = node.axis(0, rank)
    limit = [shape_of(x)[axis] if each == axis else shape_of(indices)[each] for each in range(rank)]
    if tuple(limit) != shape_of(x):
        x = node.op("slice", x, start=(0,) * rank, limit=tuple(limit), stride=(1,) * rank)
    return node.gather_along(x, indices, axis, "wrap_check")


@lowering("GatherND")
def gather_nd(node: Node) -> Value:
    x, indices = node.input(0), node.input(1)
    batch = node.integer("batch_dims", 0)
    depth = _index_depth(indices)
    unsupported(
        not 0 <= batch <= batch + depth <= type_of(x).rank,
        f"batch_dims {batch} and index vectors of {depth} entries do not fit {x.type}",
    )
    indices = node.agree(indices, (*shape_of(x)[:batch], *shape_of(indices)[batch:]))
    return gather_slices(node, x, indices, "wrap_check", batch)


def _index_depth(indices: Value) -> int:
    """The count of components of one index: the last dim of `indices`."""
    shape = shape_of(indices)
    depth = shape[-1] if shape else None
    if not isinstance(depth, int):
        raise UnsupportedNode(f"its indices are {indices.type}: the last dim must be a number")
    return depth


def _kind(node: Node) -> str:
    return {"none": "set"}.get(node.text("reduction", "none"), node.text("reduction", "none"))


@lowering("ScatterND")
def scatter_nd(node: Node) -> Value:
    x, indices, updates = node.input(0), node.input(1), node.input(2)
    leading = type_of(indices).rank - 1
    depth = leading + type_of(x).rank - type_of(updates).rank  # what the updates leave of an index
    unsupported(
        not 0 <= depth <= type_of(x).rank,
        f"its updates {updates.type} do not fit {x.type} at {indices.type}: fix the model",
    )
    indices = node.agree_on(indices, leading, depth)
    updates = node.agree(updates, (*shape_of(indices)[:-1], *shape_of(x)[depth:]))
    return indexed.scatter_slices(node, x, indices, updates, _kind(node))


@lowering("ScatterElements", "Scatter")
def scatter_elements(node: Node) -> Value:
    """Indices that leave out the end of an axis update a corner of the input."""
    x, indices, updates = node.input(0), node.input(1), node.input(2)
    axis, updates = node.axis(0, type_of(x).rank), node.agree(updates, shape_of(indices))
    return indexed.scatter_elements(node, x, axis, indices, updates, _kind(node))


def _wrap(node: Node, indices: Value, bound: Value) -> Value:
    """Indices with `bound` added where they are negative; others stay, also outside."""
    negative = node.compare("lt", indices, 0)
    spread = node.broadcast_to(bound, shape_of(indices))
    return node.op("select", negative, node.op("add", indices, spread), indices)


@lowering("OneHot")
def one_hot(node: Node) -> Value:
    """values[1] where the index is the place on the new axis, values[0] elsewhere."""
    indices, values = node.input(0), node.input(2)
    part = node.parts(1)[0]
    part = part if isinstance(part, (Value, Expr)) else int(part)
    depth = node.define_size(part, f"{node.proto.output[0]}_depth", "the depth")
    rank = type_of(indices).rank + 1
    axis = node.axis(-1, rank)
    shape = [*shape_of(indices)[:axis], depth, *shape_of(indices)[axis:]]
    whole = node.convert(indices, "i64")
    wrapped = _wrap(node, whole, node.size(depth))
    column = node.reshape(wrapped, [*shape[:axis], 1, *shape[axis + 1 :]])
    places = node.op("iota", dtype=dtype("i64"), shape=tuple(shape), axis=axis)
    hot = node.compare("eq", node.broadcast_to(column, shape), places)
    off, on = (node.broadcast_to(_element(node, values, index), shape) for index in (0, 1))
    return node.op("select", hot, on, off)


def _element(node: Node, values: Value, index: int) -> Value:
    """One element of a rank-1 tensor as rank 0."""
    return node.op("take", values, node.constant(np.int64(index), "i64"), axis=0, mode="check")


@lowering("ReverseSequence", since=10)
def reverse_sequence(node: Node) -> Value:
    """The first lengths[b] elements of each batch b in opposite order, the others as they are."""
    x, lengths = node.input(0), node.convert(node.input(1), "i64")
    rank = type_of(x).rank
    time, batch = node.axis(0, rank, "time_axis"), node.axis(1, rank, "batch_axis")
    unsupported(time == batch, f"time_axis and batch_axis are both {time}: fix the model")
    order = (batch, time, *(axis for axis in range(rank) if axis not in (batch, time)))
    moved = node.transpose(x, order)
    shape = shape_of(moved)
    lengths = node.broadcast_back(node.agree(lengths, shape[:1]), shape[:2], [1])
    places = node.op("iota", dtype=dtype("i64"), shape=shape[:2], axis=1)
    mirrored = node.op("sub", node.op("sub", lengths, 1), places)
    inside = node.compare("lt", places, lengths)
    taken = _take_per_batch(node, moved, node.op("select", inside, mirrored, places))
    return node.transpose(taken, [order.index(axis) for axis in range(rank)])


def _take_per_batch(node: Node, x: Value, places: Value) -> Value:
    """x[b, places[b, t], ...]: [b, n, rest...] at i64[b, t] -> [b, t, rest...]."""
    return gather_slices(node, x, node.reshape(places, (*shape_of(places), 1)), "wrap_check", 1)


@lowering("TensorScatter", since=24)
def tensor_scatter(node: Node) -> Value:
    """A cache with an update written at write_indices[b] along an axis, perhaps around its end."""
    x, update, indices = node.input(0), node.input(1), node.optional(2)
    rank = type_of(x).rank
    axis = node.axis(-2, rank)
    mode = node.text("mode", "linear")
    unsupported(mode not in ("linear", "circular"), f"mode '{mode}' is not known")
    unsupported(axis == 0, "axis 0 holds the batches: fix the model")
    update = node.agree(
        update,
        tuple(
            shape_of(update)[place] if place == axis else dim
            for place, dim in enumerate(shape_of(x))
        ),
    )
    order = (0, axis, *(each for each in range(1, rank) if each != axis))
    cache, moved = node.transpose(x, order), node.transpose(update, order)
    batch, length = shape_of(moved)[:2]
    places = node.op("iota", dtype=dtype("i64"), shape=(batch, length), axis=1)
    if indices is not None:
        starts = node.convert(node.agree(indices, (batch,)), "i64")
        starts = node.broadcast_back(starts, (batch, length), [1])
        places = node.op("add", places, starts)
    if mode == "circular":
        capacity = node.broadcast_to(node.size(shape_of(cache)[1]), (batch, length))
        places = node.op("rem", places, capacity)
    written = node.op(
        "scatter",
        cache,
        places,
        moved,
        update_window_dims=tuple(range(2, rank)),
        inserted_window_dims=(1,),
        input_batching_dims=(0,),
        scatter_indices_batching_dims=(0,),
        scatter_dims_to_operand_dims=(1,),
        index_vector_dim=2,
        kind="set",
        mode="wrap_check",
    )
    return node.transpose(written, [order.index(each) for each in range(rank)])

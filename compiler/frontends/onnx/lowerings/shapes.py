"""Ops that make, move or measure tensors without computing on their elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np

from ingot.compiler.frontends.onnx.choices import axes_of
from ingot.compiler.frontends.onnx.computed_shapes import (
    computed_range,
    define_pads,
    expanded_dims,
    may_be_zero,
    pad_by_index,
    resolve_shape,
    slice_bounds,
    slice_by_index,
)
from ingot.compiler.frontends.onnx.malformed import bounded
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.frontends.onnx.structures import Structure
from ingot.compiler.frontends.onnx.tensors import dtype_of
from ingot.compiler.frontends.strings import constant_strings
from ingot.compiler.frontends.triangles import rows_and_columns
from ingot.compiler.ir import Literal, Value, dims
from ingot.compiler.ir.dims import Dim, Expr, known_dim
from ingot.hal.spec import DType, dtype

__all__: list[str] = []

_GREATEST_RANK = 64  # NumPy's, too
_TO_THE_END = 2**31 - 1  # exporters write this or more for "up to the end"


@lowering("Constant")
def constant(node: Node) -> Structure:
    texts = node.tensor_texts("value")
    if texts is not None:
        return constant_strings(node, *texts)
    if node.has("value_string"):
        return constant_strings(node, [node.text("value_string", "")], ())
    listed = node.texts("value_strings")
    if listed is not None:
        return constant_strings(node, listed, (len(listed),))
    literal = node.tensor("value") or node.sparse_tensor("sparse_value")
    if literal is not None:
        return node.literal(literal)
    if node.has("value_float"):
        return node.constant(node.number("value_float", 0), "f32")
    if node.has("value_int"):
        return node.constant(node.integer("value_int", 0), "i64")
    if node.has("value_floats"):
        return node.constant(np.asarray(node.numbers("value_floats"), np.float32), "f32")
    if node.has("value_ints"):
        return node.constant(np.asarray(node.integers("value_ints"), np.int64), "i64")
    raise UnsupportedNode("it has no value: fix the model")


@lowering("ConstantOfShape")
def constant_of_shape(node: Node) -> Value:
    shape = node.define_dims(0, "the shape")
    literal = node.tensor("value") or Literal(np.zeros(1, np.float32), dtype("f32"))
    return node.broadcast_to(node.literal(Literal(literal.array.reshape(()), literal.dtype)), shape)


@lowering("Shape")
def shape(node: Node) -> Value:
    dims_of = shape_of(node.input(0))
    start, end = node.integer("start", 0), node.integer("end", len(dims_of))
    return node.sizes(dims_of[slice(start, end)])


@lowering("Size")
def size(node: Node) -> Value:
    return node.size(dims.product(shape_of(node.input(0))))


@lowering("Reshape")
def reshape(node: Node) -> Value:
    """0 keeps a dim (unless allowzero), -1 takes what is left."""
    x = node.input(0)
    wanted = node.parts(1)
    keeps = not node.integer("allowzero", 0)
    result: list[Dim | Value] = []
    for axis, dim in enumerate(wanted):
        if dim == 0 and keeps:
            unsupported(
                axis >= type_of(x).rank, f"dim {axis} of its shape is 0 but not in {x.type}"
            )
            dim = shape_of(x)[axis]
        elif keeps and not isinstance(dim, Value) and may_be_zero(x, axis, dim):
            dim = node.size(dim)
        result.append(dim)
    if any(isinstance(dim, Value) for dim in result):
        return node.reshape(x, resolve_shape(node, x, result, keeps))
    shape = [dim for dim in result if not isinstance(dim, Value)]
    if wanted.count(-1) > 1:
        raise UnsupportedNode(f"its shape {wanted} has more than one -1: fix the model")
    if -1 in wanted:
        at = wanted.index(-1)
        rest = dims.product(dim for axis, dim in enumerate(shape) if axis != at)
        if rest == 0:
            raise UnsupportedNode(f"its shape {wanted} has both -1 and an empty dim: fix the model")
        shape[at] = dims.floordiv(dims.product(shape_of(x)), rest)
    return node.reshape(x, shape)


@lowering("Flatten")
def flatten(node: Node) -> Value:
    x = node.input(0)
    rank, axis = type_of(x).rank, node.integer("axis", 1)
    axis = rank if axis == rank else node.normalize_axis(axis, rank)
    return node.reshape(x, (dims.product(shape_of(x)[:axis]), dims.product(shape_of(x)[axis:])))


@lowering("Squeeze")
def squeeze(node: Node) -> Value:
    x = node.input(0)
    single = [axis for axis, dim in enumerate(shape_of(x)) if not isinstance(dim, int) or dim == 1]
    axes = axes_of(node, 1, type_of(x).rank, among=single)
    if axes is None:
        axes = [axis for axis in single if shape_of(x)[axis] == 1]
        for axis in set(single) - set(axes):  # a rank cannot depend on the call
            is_one = node.compare("eq", node.size(shape_of(x)[axis]), 1)
            what = f"whether dim {axis} is 1, which Squeeze without axes would remove,"
            node.require(node.convert(is_one, "i64"), 0, what)
    removed = set(axes)
    for axis in removed:
        dim = shape_of(x)[axis]
        fixed = isinstance(dim, int) and dim != 1
        unsupported(fixed, f"dim {axis} is {dim}, only a dim of 1 can be removed: fix the model")
    x = node.agree(x, [1 if axis in removed else dim for axis, dim in enumerate(shape_of(x))])
    return node.reshape(x, [dim for axis, dim in enumerate(shape_of(x)) if axis not in removed])


@lowering("Unsqueeze")
def unsqueeze(node: Node) -> Value:
    x = node.input(0)
    listed = node.optional(1)
    count = len(node.integers("axes") or ()) if listed is None else dims.product(shape_of(listed))
    unsupported(
        not isinstance(count, int), f"the count of its axes is {count}, which must be known"
    )
    rank = type_of(x).rank + bounded(known_dim(count), "the count of its axes", _GREATEST_RANK)
    axes = axes_of(node, 1, rank) or []
    added = set(axes)
    unsupported(len(added) != len(axes), f"its axes {axes} name one axis twice: fix the model")
    old = iter(shape_of(x))
    return node.reshape(x, [1 if axis in added else next(old) for axis in range(rank)])


@lowering("Transpose")
def transpose(node: Node) -> Value:
    x = node.input(0)
    return node.transpose(x, node.integers("perm") or tuple(reversed(range(type_of(x).rank))))


@lowering("Expand")
def expand(node: Node) -> Value:
    x = node.input(0)
    return node.broadcast_to(x, node.common_shape(shape_of(x), expanded_dims(node, x)))


@lowering("Tile")
def tile(node: Node) -> Value:
    x = node.input(0)
    repeats = node.define_dims(1, "the repeats")
    unsupported(len(repeats) != type_of(x).rank, f"repeats has {len(repeats)} entries for {x.type}")
    spread: list[Dim] = []
    for repeat, dim in zip(repeats, shape_of(x), strict=True):
        spread += [repeat, dim]
    split = node.reshape(x, [each for dim in shape_of(x) for each in (1, dim)])
    result = [repeat * dim for repeat, dim in zip(repeats, shape_of(x), strict=True)]
    return node.reshape(node.broadcast_to(split, spread), result)


@lowering("Concat")
def concatenate(node: Node) -> Value:
    values = list(node.present())
    axis = node.axis(0, type_of(values[0]).rank)
    for place, value in enumerate(values):
        shape = list(shape_of(values[0]))
        unsupported(type_of(value).rank != len(shape), f"{value.type} and {values[0].type} differ")
        shape[axis] = shape_of(value)[axis]
        values[place] = node.agree(value, shape)
    return values[0] if len(values) == 1 else node.op("concatenate", *values, axis=axis)


@lowering("Slice")
def slice_(node: Node) -> Value:
    """Bounds are inputs since opset 10, attributes before."""
    x = node.input(0)
    rank = type_of(x).rank
    starts, ends = _slice_ends(node, 1, "starts"), _slice_ends(node, 2, "ends")
    axes = axes_of(node, 3, rank, ordered=True) or list(range(len(starts)))
    steps = _slice_steps(node, len(starts))
    start: list[Dim] = [0] * rank
    limit: list[Dim] = list(shape_of(x))
    stride = [1] * rank
    reverse: list[int] = []
    for first, last, axis, step in zip(starts, ends, axes, steps, strict=True):
        if isinstance(step, Value):
            x = slice_by_index(node, x, first, last, step, axis)
            limit[axis] = shape_of(x)[axis]
            continue
        if isinstance(first, Value) or isinstance(last, Value):
            start[axis], limit[axis] = slice_bounds(node, first, last, axis, step < 0)
        else:
            start[axis], limit[axis] = _slice_bounds(first, last, shape_of(x)[axis], step < 0)
        stride[axis] = abs(step)
        if step < 0:
            reverse.append(axis)
    if reverse:
        x = node.op("reverse", x, axes=tuple(sorted(reverse)))
    if all(
        (low, high, step) == (0, dim, 1)
        for low, high, step, dim in zip(start, limit, stride, shape_of(x), strict=True)
    ):
        return x
    return node.op("slice", x, start=tuple(start), limit=tuple(limit), stride=tuple(stride))


def _slice_ends(node: Node, index: int, name: str) -> Sequence[Dim | Value]:
    if node.optional(index) is not None:
        return node.parts(index)
    attribute = node.integers(name)
    if attribute is None:
        raise UnsupportedNode(f"its {name} are missing: fix the model")
    return attribute


def _slice_steps(node: Node, count: int) -> list[int | Value]:
    """Numbers that are not 0, or values that the call checks."""
    steps: list[int | Value] = []
    for step in node.parts(4) if node.optional(4) is not None else [1] * count:
        unsupported(step == 0, "a step is 0, expected another number: fix the model")
        steps.append(node.size(step) if isinstance(step, Expr) else step)
    return steps


def _slice_bounds(first: Dim, last: Dim, dim: Dim, backward: bool) -> tuple[Dim, Dim]:
    """Start and limit within [0, dim], of the reversed axis if `backward`."""
    if backward:
        # index i of the axis is dim - 1 - i of the reversed one
        lowest = dim if _below(last, -_TO_THE_END) else dim - 1 - _wrap(last, dim)
        # a start in front of the axis is its first element, as one behind it is its last
        first = 0 if _above(first) else dims.minimum(dim - 1 - _wrap(first, dim), dim - 1)
        last = lowest
    else:
        first, last = _wrap(first, dim), dim if _above(last) else _wrap(last, dim)
    start = dims.maximum(dims.minimum(first, dim), 0)
    return start, dims.maximum(dims.minimum(last, dim), start)


def _wrap(index: Dim, dim: Dim) -> Dim:
    """A negative index counted from the end."""
    below = dims.minimum(dims.maximum(index * -1, 0), 1)  # 1 where it is negative
    return index + dim * below


def _above(index: Dim) -> bool:
    return isinstance(index, int) and index >= _TO_THE_END


def _below(index: Dim, bound: int) -> bool:
    return isinstance(index, int) and index <= bound


@lowering("Split")
def split(node: Node) -> tuple[Value, ...]:
    x = node.input(0)
    axis = node.axis(0, type_of(x).rank)
    dim = shape_of(x)[axis]
    sizes: Sequence[Dim]
    if node.optional(1) is not None:
        sizes = node.define_dims(1, "the sizes of the parts")
    elif node.has("split"):
        sizes = node.integers("split") or ()
    else:
        part = dims.ceildiv(dim, node.output_count)
        rest = dim - part * (node.output_count - 1)
        sizes = [*[part] * (node.output_count - 1), rest]
    parts: list[Value] = []
    begin: Dim = 0
    for count in sizes:
        parts.append(node.sliced(x, axis, begin, begin + count))
        begin = begin + count
    fixed = isinstance(begin, int) and isinstance(dim, int) and begin != dim
    unsupported(fixed, f"its parts {sizes} sum to {begin}, but dim {axis} is {dim}")
    node.agree_on(x, axis, begin)
    return tuple(parts)


@lowering("Pad")
def pad(node: Node) -> Value:
    """constant, edge, reflect or wrap; pads and value are inputs since opset 11."""
    x = node.input(0)
    rank = type_of(x).rank
    axes = axes_of(node, 3, rank, ordered=True) or list(range(rank))
    own = [shape_of(x)[axis] for axis in axes]
    if node.optional(1) is not None:
        before, behind = define_pads(node, 1, own)
    else:
        pads: list[Dim] = list(node.integers("pads") or ())
        wrong = len(pads) != 2 * len(axes)
        unsupported(wrong, f"pads has {len(pads)} entries, not {2 * len(axes)}")
        before, behind = pads[: len(axes)], pads[len(axes) :]
    low: list[Dim] = [0] * rank
    high: list[Dim] = [0] * rank
    for axis, front, end in zip(axes, before, behind, strict=True):
        low[axis], high[axis] = front, end
    mode = node.text("mode", "constant")
    if mode != "constant":
        known = mode in ("edge", "reflect", "wrap")
        unsupported(not known, f"mode '{mode}' is not known: fix the model")
        for axis, amounts in enumerate(zip(low, high, strict=True)):
            x = x if amounts == (0, 0) else pad_by_index(node, x, axis, *amounts, mode)
        return x
    value = node.optional(2)
    if value is None:
        value = node.constant(node.number("value", 0.0), type_of(x).dtype)
    scalar = node.reshape(value, ())
    return node.padded(x, low, high, scalar)


@lowering("Range")
def range_(node: Node) -> Value:
    """start, start + delta, ... below limit."""
    element = type_of(node.input(0)).dtype
    parts = [node.parts(index)[0] for index in range(3)]
    if any(isinstance(part, Value) for part in parts):
        return computed_range(node)
    start, limit, delta = (part for part in parts if not isinstance(part, Value))
    count: Dim
    if isinstance(delta, Expr) or delta == 0:
        raise UnsupportedNode(f"its delta is {delta}, expected a number other than 0")
    if element.is_float:
        count = max(math.ceil(cast(float, limit - start) / delta), 0)
    elif delta > 0:
        count = dims.maximum(dims.ceildiv(limit - start, delta), 0)
    else:
        count = dims.maximum(dims.ceildiv(start - limit, -delta), 0)
    result = node.op("iota", dtype=element, shape=(count,), axis=0)
    if delta != 1:
        result = node.op("mul", result, delta)
    if start != 0:
        first = _number(node, start, element)
        result = node.op("add", result, node.broadcast_to(first, (count,)))
    return result


def _number(node: Node, number: Dim, element: DType) -> Value:
    return (
        node.size(number, element) if isinstance(number, Expr) else node.constant(number, element)
    )


@lowering("EyeLike")
def eye_like(node: Node) -> Value:
    x = node.input(0)
    element = dtype_of(node.integer("dtype", 0)) or type_of(x).dtype
    unsupported(type_of(x).rank != 2, f"its input is {x.type}, expected rank 2")
    rows, columns = rows_and_columns(node, shape_of(x))
    shifted = node.op("add", rows, node.integer("k", 0))
    return node.convert(node.compare("eq", shifted, columns), element)


@lowering("Trilu")
def triangle(node: Node) -> Value:
    """The upper or lower triangle of the last two axes, zeros elsewhere."""
    x = node.input(0)
    rows, columns = rows_and_columns(node, shape_of(x))
    offset = node.optional(1)
    if offset is None:
        shifted = rows
    else:
        diagonal = node.reshape(node.convert(offset, "i64"), ())
        shifted = node.op("add", rows, node.broadcast_to(diagonal, shape_of(rows)))
    direction = "ge" if node.integer("upper", 1) else "le"
    return node.op("select", node.compare(direction, columns, shifted), x, 0)


@lowering("DepthToSpace")
def depth_to_space(node: Node) -> Value:
    x = node.input(0)
    block = node.integer("blocksize", 1)
    batch, channels, height, width = shape_of(x)
    inner = channels // (block * block)
    if node.text("mode", "DCR") == "DCR":
        split = node.reshape(x, (batch, block, block, inner, height, width))
        moved = node.transpose(split, (0, 3, 4, 1, 5, 2))
    else:
        split = node.reshape(x, (batch, inner, block, block, height, width))
        moved = node.transpose(split, (0, 1, 4, 2, 5, 3))
    return node.reshape(moved, (batch, inner, height * block, width * block))


@lowering("SpaceToDepth")
def space_to_depth(node: Node) -> Value:
    x = node.input(0)
    block = node.integer("blocksize", 1)
    batch, channels, height, width = shape_of(x)
    rows, columns = height // block, width // block
    split = node.reshape(x, (batch, channels, rows, block, columns, block))
    depth_first = node.text("mode", "DCR") == "DCR"
    moved = node.transpose(split, (0, 3, 5, 1, 2, 4) if depth_first else (0, 1, 3, 5, 2, 4))
    return node.reshape(moved, (batch, channels * block * block, rows, columns))

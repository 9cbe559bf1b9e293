"""Brings contractions into the forms that kernels have; what is in one already stays.

A product needs each group of dims (rows, columns, depth) of an operand to be one run of
memory, and its columns to be one dim; an operand that is not gets a transpose or a reshape
in front. A convolution becomes channels
last, without dilation of its input (zeros are put between its elements), without groups
(one convolution per group, or `depthwise` where a group is one channel), and its right
side is packed even if it is known only at the call. Windows that no kernel has become other
ops (`expand_windows.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.folding.simplify import dims, ints
from ingot.compiler.graph.forms.expand_windows import (
    fill_holes,
    has_unknown_window,
    multiply_windows,
)
from ingot.compiler.graph.forms.pack_weights import is_channels_last, pack_convolution
from ingot.compiler.graph.ops import parse_layout
from ingot.compiler.graph.rewriter import rewrite
from ingot.compiler.ir import Module, Op, TensorType, Value
from ingot.compiler.ir.dims import Dim, product, row_major_strides

__all__ = ["arrange_contractions", "run_stride"]


def arrange_contractions(module: Module) -> Module:
    """Rewrite the contractions of every function; returns the module."""
    for function in module.functions.values():
        rewrite(function.block, _arrange)
    return module


def run_stride(type: TensorType, axes: Sequence[int]) -> Dim:
    """The stride of the dims `axes` taken as one dim, in their order.

    Raises ValueError where they are not one run of memory.
    """
    strides = row_major_strides(type.shape)
    kept = [axis for axis in axes if type.shape[axis] != 1]
    for outer, inner in itertools.pairwise(kept):
        if strides[outer] != strides[inner] * type.shape[inner]:
            raise ValueError(f"dims {list(axes)} of {type} are not one run of memory")
    return strides[kept[-1]] if kept else 1


def _arrange(op: Op, builder: Builder) -> Sequence[Value] | None:
    if op.name == "dot_general":
        return _arrange_dot(op, builder)
    if op.name == "convolution":
        return _arrange_convolution(op, builder)
    filled = fill_holes(op, builder) if op.name == "reduce_window" else None
    return None if filled is None else [filled]


# Products.


def _arrange_dot(op: Op, builder: Builder) -> Sequence[Value] | None:
    a, b = op.operands
    lhs = (ints(op, "lhs_batch"), ints(op, "lhs_contract"))
    rhs = (ints(op, "rhs_batch"), ints(op, "rhs_contract"))
    lhs_order, rhs_order = _order(tensor_type(a), *lhs), _order(tensor_type(b), *rhs)
    if lhs_order is None and rhs_order is None:
        return _merge_columns(op, builder)
    attributes = {
        "lhs_batch": lhs[0],
        "lhs_contract": lhs[1],
        "rhs_batch": rhs[0],
        "rhs_contract": rhs[1],
        "dtype": op.attributes["dtype"],
    }
    for side, order in (("lhs", lhs_order), ("rhs", rhs_order)):
        if order is None:
            continue
        batch, contract = attributes[f"{side}_batch"], attributes[f"{side}_contract"]
        rank = len(order)
        attributes[f"{side}_batch"] = tuple(range(len(batch)))  # type: ignore[arg-type]
        attributes[f"{side}_contract"] = tuple(range(rank - len(contract), rank))  # type: ignore[arg-type]
        operand = builder.op("transpose", a if side == "lhs" else b, permutation=order)
        a, b = (operand, b) if side == "lhs" else (a, operand)
    return [builder.op("dot_general", a, b, **attributes)]


def _order(
    type: TensorType, batch: Sequence[int], contract: Sequence[int]
) -> tuple[int, ...] | None:
    """The transpose to [batch, free, contracted], or None if the operand is fine as it is."""
    free = [axis for axis in range(type.rank) if axis not in (*batch, *contract)]
    try:
        run_stride(type, free)
        run_stride(type, contract)
    except ValueError:
        return (*batch, *free, *contract)
    return None


def _merge_columns(op: Op, builder: Builder) -> Sequence[Value] | None:
    """The product with the free dims of its right side as one dim; None if they are one."""
    b = op.operands[1]
    shape = tensor_type(b).shape
    batch, contract = ints(op, "rhs_batch"), ints(op, "rhs_contract")
    free = [axis for axis in range(len(shape)) if axis not in (*batch, *contract)]
    if len(free) == 1:
        return None
    columns = product(shape[axis] for axis in free)
    # Dims between those of the run have the size 1, so the run may stand at its innermost.
    kept = [axis for axis in free if shape[axis] != 1] or free
    order = [axis for axis in range(len(shape)) if axis not in free or axis in kept[-1:]]
    merged = tuple(columns if axis in free else shape[axis] for axis in order)
    if not free:
        merged = (*merged, 1)
    places = {axis: place for place, axis in enumerate(order)}
    changed = dict(
        op.attributes,
        rhs_batch=tuple(places[axis] for axis in batch),
        rhs_contract=tuple(places[axis] for axis in contract),
    )
    b = builder.value("reshape", b, shape=merged)
    y = builder.value("dot_general", op.operands[0], b, **changed)
    return [builder.value("reshape", y, shape=tensor_type(op.result).shape)]


# Convolutions.


def _arrange_convolution(op: Op, builder: Builder) -> Sequence[Value] | None:
    if not is_channels_last(op):
        return _channels_last(op, builder)
    if any(step != 1 for step in dims(op, "lhs_dilation")):
        return _dilate_input(op, builder)
    if has_unknown_window(op):
        return [multiply_windows(op, builder)]
    groups = op.attributes["groups"]
    assert isinstance(groups, int)
    if groups == 1:
        return pack_convolution(op, builder)
    *_, inputs, outputs = tensor_type(op.operands[1]).shape
    if inputs == 1:
        return _depthwise(op, builder, groups)
    assert isinstance(inputs, int)
    assert isinstance(outputs, int)
    return _split_groups(op, builder, groups, inputs, outputs // groups)


def _attributes(op: Op, **changed: object) -> dict[str, object]:
    return {**op.attributes, **changed}


def _transposed(x: Value, order: Sequence[int], builder: Builder) -> Value:
    if list(order) == list(range(len(order))):
        return x
    return builder.op("transpose", x, permutation=tuple(order))  # type: ignore[no-any-return]


def _channels_last(op: Op, builder: Builder) -> Sequence[Value]:
    layout = op.attributes["layout"]
    assert isinstance(layout, str)
    places = parse_layout(layout)
    x_order = (places.batch, *places.spatial, places.feature)
    w_order = (*places.weight_spatial, places.weight_input, places.weight_output)
    x = _transposed(op.operands[0], x_order, builder)
    w = _transposed(op.operands[1], w_order, builder)
    spatial = "dehwfgjklm"[: len(places.spatial)]
    last, kernel = f"n{spatial}c", f"{spatial}io"
    changed = _attributes(op, layout=f"{last},{kernel}->{last}")
    y = builder.op("convolution", x, w, **changed)
    made = [places.result_batch, *places.result_spatial, places.result_feature]
    return [_transposed(y, [made.index(axis) for axis in range(len(made))], builder)]


def _dilate_input(op: Op, builder: Builder) -> Sequence[Value]:
    x, w = op.operands
    rank = tensor_type(x).rank
    none = (0,) * rank
    interior = (0, *(step - 1 for step in dims(op, "lhs_dilation")), 0)
    zero = builder.constant(0, tensor_type(x).dtype)
    x = builder.op("pad", x, zero, low=none, high=none, interior=interior)
    changed = _attributes(op, lhs_dilation=(1,) * (rank - 2))
    return [builder.op("convolution", x, w, **changed)]


def _depthwise(op: Op, builder: Builder, groups: int) -> Sequence[Value]:
    """A channel a group; with several outputs each, the inputs are repeated."""
    x, w = op.operands
    type, weight = tensor_type(x), tensor_type(w)
    outputs = weight.shape[-1]
    assert isinstance(outputs, int)
    times = outputs // groups
    if times != 1:
        repeated = (*type.shape, times)
        x = builder.op("broadcast", x, shape=repeated, dimensions=tuple(range(type.rank)))
        x = builder.op("reshape", x, shape=(*type.shape[:-1], outputs))
    w = builder.op("reshape", w, shape=(*weight.shape[:-2], outputs))
    moves = {name: op.attributes[name] for name in ("strides", "rhs_dilation", "padding", "dtype")}
    return [builder.op("depthwise", x, w, **moves)]


def _split_groups(
    op: Op, builder: Builder, groups: int, inputs: int, outputs: int
) -> Sequence[Value]:
    """One convolution per group, side by side."""
    x, w = op.operands
    parts = []
    for group in range(groups):
        x_part = _slice_last(x, group * inputs, inputs, builder)
        w_part = _slice_last(w, group * outputs, outputs, builder)
        parts.append(builder.op("convolution", x_part, w_part, **_attributes(op, groups=1)))
    return [builder.op("concatenate", *parts, axis=tensor_type(x).rank - 1)]


def _slice_last(x: Value, first: int, count: int, builder: Builder) -> Value:
    shape = tensor_type(x).shape
    start = (*(0 for _ in shape[:-1]), first)
    limit = (*shape[:-1], first + count)
    return builder.op(  # type: ignore[no-any-return]
        "slice", x, start=start, limit=limit, stride=(1,) * len(shape)
    )

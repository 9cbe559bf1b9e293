"""Finds softmax(q k^T) v, whoever wrote it, and makes it one `attention` op.

Recognised: a scale (multiplication or division by a scalar constant) on q, on k or on the
scores, masks that are added or selected with a hugely negative number, also to scores whose
batch is regrouped, softmax with or without subtracting the maximum, a guard that turns NaN rows
or those without keys to zeros, any order of axes in the two contractions, and heads of k and v that
are repeated for several of q. The transposes that split heads stay outside as plain ops.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.shared_heads import shared_heads
from ingot.compiler.graph.ops import Broadcast, Compare, DotGeneral, Reduce, Transpose
from ingot.compiler.graph.references.numbers import widen
from ingot.compiler.graph.rewriter import defined_by, rewrite, splat_of
from ingot.compiler.ir import Module, Op, TensorType, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim

__all__ = ["HIDDEN", "fuse_attention", "is_fusable", "match_softmax"]

_FEATURES = 640
"""The widest rows of q, k and v that the kernel holds in scratch."""

HIDDEN = -1e9
"""A masked score at or below this has weight 0 beside any other."""


def fuse_attention(module: Module) -> Module:
    """Fuse attention in every function; returns the module."""
    for function in module.functions.values():
        rewrite(function.block, _fuse)
    return module


@dataclass(frozen=True)
class _Scores:
    """scale * q k^T + masks, as found: the contraction and what is around it."""

    contraction: Op
    scale: float
    masks: tuple[Value, ...]


def _fuse(op: Op, builder: Builder) -> Sequence[Value] | None:
    """A contraction of softmax weights with v becomes attention."""
    if op.name != "dot_general":
        return None
    for place in (0, 1):
        weights, test = _without_guard(op.operands[place])
        source = match_softmax(weights)
        if source is None:
            continue
        guards_nan = test is not None and _tells_nan(test, weights)
        empty = test is not None and _tells_empty(test, source)
        if test is not None and not guards_nan and not empty:
            continue
        scores = _match_scores(source)
        if scores is None or not _contracts_last(op, place):
            continue
        return _build(op, place, scores, guards_nan, empty, builder)
    return None


# Softmax


def _without_guard(value: Value) -> tuple[Value, Value | None]:
    """p and the test of `select(test, 0, p)`; another value is p itself."""
    op = defined_by(value, "select")
    if op is None or splat_of(op.operands[1]) != 0:
        return value, None
    test, _, below = op.operands
    return below, test


def _tells_nan(test: Value, value: Value) -> bool:
    """Whether it is is_nan(value), or value != value."""
    is_nan = defined_by(test, "is_nan")
    if is_nan is not None:
        return is_nan.operands[0] is value
    op = defined_by(test, "compare")
    differs = op is not None and Compare.of(op).direction == "ne"
    return differs and op is not None and op.operands[0] is op.operands[1] is value


def _tells_empty(test: Value, scores: Value) -> bool:
    """Whether it says of each row of scores whether their maximum is -inf."""
    views: list[Op] = []
    while (view := defined_by(test, "broadcast", "reshape")) is not None:
        views.append(view)
        test = view.operands[0]
    op = defined_by(test, "compare")
    if op is None or Compare.of(op).direction != "eq":
        return False
    pairs = (op.operands, op.operands[::-1])
    return any(_is_lowest(a) and _is_reduced(b, "max", scores, views) for a, b in pairs)


def _is_lowest(value: Value) -> bool:
    number = splat_of(value)
    return number is not None and float(widen(np.asarray(number))) == -np.inf


def match_softmax(value: Value) -> Value | None:
    """x if the value is softmax(x) over the last axis, else None."""
    op = defined_by(value, "div", "mul")
    if op is None:
        return None
    exponential = defined_by(op.operands[0], "exp")
    if exponential is None:
        return None
    divisor: Value | None = op.operands[1]
    if op.name == "mul":
        divisor = _reciprocal(op.operands[1])
    if divisor is None or not _is_reduced(divisor, "add", exponential.result):
        return None
    source = exponential.operands[0]
    shifted = defined_by(source, "sub")
    if shifted is not None and _is_reduced(shifted.operands[1], "max", shifted.operands[0]):
        return shifted.operands[0]
    return source


def _reciprocal(value: Value) -> Value | None:
    """y if the value is 1 / y, perhaps broadcast."""
    op = defined_by(_below_views(value), "div")
    if op is None:
        return None
    one = splat_of(op.operands[0])
    return op.operands[1] if one is not None and one == 1 else None


def _below_views(value: Value) -> Value:
    """The value below broadcasts and reshapes."""
    while (op := defined_by(value, "broadcast", "reshape")) is not None:
        value = op.operands[0]
    return value


def _is_reduced(value: Value, kind: str, source: Value, above: Sequence[Op] = ()) -> bool:
    """Whether the value is `source` reduced over its last axis, and broadcast back by the views
    below it and those `above`, of which the last one comes first.

    Guards for rows without a finite element change nothing where the result is not NaN.
    """
    rank = tensor_type(source).rank
    views = list(above)
    while (op := _view_or_guard(value, kind)) is not None:
        place = 0
        if op.name == "select":
            place = 1
        elif op.name == "max":
            place = 0 if splat_of(op.operands[0]) is None else 1
        if op.name in ("broadcast", "reshape"):
            views.append(op)
        value = op.operands[place]
    reduce = defined_by(value, "reduce")
    if reduce is None or Reduce.of(reduce).kind != kind or reduce.operands[0] is not source:
        return False
    return Reduce.of(reduce).axes == (rank - 1,) and _keeps_rows(views[::-1], reduce, rank)


def _view_or_guard(value: Value, kind: str) -> Op | None:
    """A broadcast or reshape; for a maximum also max(-inf, m) and select(is_finite(m), m, 0)."""
    op = defined_by(value, "broadcast", "reshape")
    if op is not None or kind != "max":
        return op
    op = defined_by(value, "max")
    if op is not None:
        numbers = [operand for operand in op.operands if splat_of(operand) is not None]
        return op if len(numbers) == 1 and _is_lowest(numbers[0]) else None
    op = defined_by(value, "select")
    if op is not None:
        test = defined_by(op.operands[0], "is_finite")
        return op if test is not None and test.operands[0] is op.operands[1] else None
    return None


def _keeps_rows(views: list[Op], reduce: Op, rank: int) -> bool:
    """Whether the views put row i of the reduction to row i of a tensor of `rank` dims.

    Reshapes may add and remove dims of 1, whose axes hold one row wherever they are.
    """
    rows = tensor_type(reduce.result).shape
    # where each axis of the reduction is now; None for a dim of 1
    places: list[int | None] = [axis if dim != 1 else None for axis, dim in enumerate(rows)]
    for op in views:
        source, target = tensor_type(op.operands[0]).shape, tensor_type(op.result).shape
        if op.name == "broadcast":
            dimensions = Broadcast.of(op).dimensions
            places = [None if place is None else dimensions[place] for place in places]
            continue
        before = [axis for axis, dim in enumerate(source) if dim != 1]
        after = [axis for axis, dim in enumerate(target) if dim != 1]
        if [source[axis] for axis in before] != [target[axis] for axis in after]:
            return False
        moved = dict(zip(before, after, strict=True))
        places = [None if place is None else moved[place] for place in places]
    return all(place in (None, axis) for axis, place in enumerate(places)) and rank > len(rows)


# Scores


def _match_scores(value: Value) -> _Scores | None:
    """Peel masks, then scales, off the scores until q k^T is left."""
    masks: list[Value] = []
    shape = tensor_type(value).shape
    while (op := defined_by(value, "add", "select", "reshape")) is not None:
        if op.name == "reshape":
            if not _keeps_scores(op):
                return None
            value = op.operands[0]
        elif op.name == "select":
            negative = splat_of(op.operands[2])
            if negative is None or float(widen(np.asarray(negative))) > HIDDEN:
                return None
            masks.append(op.result)
            value = op.operands[1]
        else:
            left, right = (_reaches_contraction(operand, False) for operand in op.operands)
            if not left and not right:
                left, right = (_reaches_contraction(operand) for operand in op.operands)
            if left == right:
                return None
            masks.append(op.operands[1 if left else 0])
            value = op.operands[0 if left else 1]
    if tensor_type(value).shape != shape:
        return None
    scale = 1.0
    value, factor = _without_scale(value)
    scale *= factor
    contraction = defined_by(value, "dot_general")
    if contraction is None or len(DotGeneral.of(contraction).lhs_contract) != 1:
        return None
    return _Scores(contraction, scale, tuple(masks))


def _keeps_scores(reshape: Op) -> bool:
    """Whether it only regroups what stands in front of the two axes of scores."""
    before, after = (tensor_type(each).shape for each in (*reshape.operands, reshape.result))
    return min(len(before), len(after)) > 2 and before[-2:] == after[-2:]


def _reaches_contraction(value: Value, regrouped: bool = True) -> bool:
    """Whether the value is a contraction below masks and scales, perhaps `regrouped`."""
    while (op := defined_by(value, "add", "select", "mul", "div", "reshape")) is not None:
        if op.name == "select":
            value = op.operands[1]
        elif op.name == "reshape":
            if not regrouped or not _keeps_scores(op):
                return False
            value = op.operands[0]
        elif op.name == "add":
            return any(_reaches_contraction(operand, regrouped) for operand in op.operands)
        elif splat_of(op.operands[1]) is not None:
            value = op.operands[0]
        elif op.name == "mul" and splat_of(op.operands[0]) is not None:
            value = op.operands[1]
        else:
            return False
    return defined_by(value, "dot_general") is not None


def _without_scale(value: Value) -> tuple[Value, float]:
    """The value below multiplications and divisions by scalar constants, and their product."""
    scale = 1.0
    while (op := defined_by(value, "mul", "div")) is not None:
        right, left = splat_of(op.operands[1]), splat_of(op.operands[0])
        if right is not None:
            number = float(widen(np.asarray(right)))
            scale = scale * number if op.name == "mul" else scale / number
            value = op.operands[0]
        elif op.name == "mul" and left is not None:
            scale *= float(widen(np.asarray(left)))
            value = op.operands[1]
        else:
            break
    return value, scale


def _free_axis(op: Op, place: int) -> int | None:
    """The one axis of a contraction's operand that is neither batch nor contracted."""
    side = ("lhs", "rhs")[place]
    taken = (*DotGeneral.of(op).batch(side), *DotGeneral.of(op).contract(side))
    free = [axis for axis in range(tensor_type(op.operands[place]).rank) if axis not in taken]
    return free[0] if len(free) == 1 else None


def _contracts_last(op: Op, place: int) -> bool:
    """Whether the contraction takes the softmax weights' last axis, and all others but one
    as batch, in order; and v has one free axis."""
    side = ("lhs", "rhs")[place]
    rank = tensor_type(op.operands[place]).rank
    batch = sorted(DotGeneral.of(op).batch(side))
    last = DotGeneral.of(op).contract(side) == (rank - 1,)
    return last and batch == list(range(rank - 2)) and _free_axis(op, 1 - place) is not None


# Building


def is_fusable(q: TensorType, v: TensorType) -> bool:
    """Whether there is a kernel: it computes in f32, and holds a row of features in scratch."""
    features = (q.shape[-1], v.shape[-1])
    small = all(isinstance(each, int) and 0 < each <= _FEATURES for each in features)
    return small and q.dtype.name in ("f32", "f16", "bf16")


def _build(
    op: Op, place: int, scores: _Scores, guards_nan: bool, empty: bool, builder: Builder
) -> Sequence[Value] | None:
    inner = scores.contraction
    m_axis, n_axis = _free_axis(inner, 0), _free_axis(inner, 1)
    type = tensor_type(op.result)
    if m_axis is None or n_axis is None or not type.dtype.is_float:
        return None
    if any(tensor_type(each).dtype is not type.dtype for each in (*inner.operands, *op.operands)):
        return None
    q, q_scale = _scaled_operand(inner, 0, m_axis, builder)
    k, k_scale = _scaled_operand(inner, 1, n_axis, builder)
    weight_side, v_side = (("lhs", "rhs"), ("rhs", "lhs"))[place]
    batch = _by_order(DotGeneral.of(op).batch(weight_side), DotGeneral.of(op).batch(v_side))
    v_axis = _free_axis(op, 1 - place)
    assert v_axis is not None
    v_order = (*batch, *DotGeneral.of(op).contract(v_side), v_axis)
    v = builder.transpose(op.operands[1 - place], v_order)
    if not is_fusable(tensor_type(q), tensor_type(v)):
        return None
    mask = _mask(scores, builder)
    scale = scores.scale * q_scale * k_scale
    masks = () if mask is None else (mask,)
    heads = _shared(k, v, builder)
    result = builder.value("attention", q, *heads, *masks, scale=scale, empty=empty)
    if guards_nan:
        result = _guard(result, v, builder)
    return [_in_order(result, op, place, builder)]


def _shared(k: Value, v: Value, builder: Builder) -> tuple[Value, Value]:
    """Keys and values without the repeats that both have of each head."""
    heads, others = shared_heads(k, builder), shared_heads(v, builder)
    if heads is None or others is None:
        return k, v
    same = tensor_type(heads).shape[:-2] == tensor_type(others).shape[:-2]
    return (heads, others) if same else (k, v)


def _by_order(keys: tuple[int, ...], values: tuple[int, ...]) -> list[int]:
    """`values` in the order in which `keys` ascend."""
    return [value for _, value in sorted(zip(keys, values, strict=True))]


def _scaled_operand(op: Op, place: int, free: int, builder: Builder) -> tuple[Value, float]:
    """q or k as [batch..., free, contracted], without its scale, and that scale."""
    side = ("lhs", "rhs")[place]
    order = (*DotGeneral.of(op).batch(side), free, *DotGeneral.of(op).contract(side))
    value, scale = _without_scale(op.operands[place])
    moved = defined_by(value, "transpose")
    if moved is not None:  # the scale may stand below the transpose
        below, more = _without_scale(moved.operands[0])
        if more != 1.0:
            permutation = Transpose.of(moved).permutation
            value, scale = builder.value("transpose", below, permutation=permutation), scale * more
    return builder.transpose(value, order), scale


def _mask(scores: _Scores, builder: Builder) -> Value | None:
    """The sum of all masks, as small as they came, or None without one."""
    total: Value | None = None
    shape = tensor_type(scores.contraction.result).shape
    for whole in scores.masks:
        op = defined_by(whole, "select")
        if op is not None and _reaches_contraction(op.operands[1]):
            mask = _selected_mask(op, builder)
        else:
            mask = _unbroadcast(whole, builder)
        mask = _regrouped(mask, tensor_type(whole).shape, shape, builder)
        if total is None:
            total = mask
        else:
            total = builder.value("add", *builder.broadcast_together(total, mask))
    return total


def _regrouped(mask: Value, shape: Sequence[Dim], wanted: Sequence[Dim], builder: Builder) -> Value:
    """A mask of scores of `shape` for those of `wanted`, as small as it came behind the dims in
    which these differ."""
    if tuple(shape) == tuple(wanted):
        return mask
    same = 2
    while shape[-same - 1 :] == wanted[-same - 1 :]:
        same += 1
    sizes = tensor_type(mask).shape
    sizes = (*[1] * (len(shape) - len(sizes)), *sizes)
    last = sizes[-same:]
    wide = builder.broadcast_to(
        builder.value("reshape", mask, shape=sizes), (*shape[:-same], *last)
    )
    return builder.value("reshape", wide, shape=(*wanted[:-same], *last))


def _selected_mask(op: Op, builder: Builder) -> Value:
    """select(p, scores, huge) as a mask to add: 0 where p, else the huge negative number."""
    predicate = _unbroadcast(op.operands[0], builder)
    shape = tensor_type(predicate).shape
    dtype = tensor_type(op.result).dtype
    zero = builder.full(0, dtype, shape)
    huge = builder.full(splat_of(op.operands[2]), dtype, shape)
    return builder.value("select", predicate, zero, huge)


def _unbroadcast(value: Value, builder: Builder) -> Value:
    """A broadcast value as it was before, with dims of 1 that align it to the result."""
    op = defined_by(value, "broadcast")
    if op is None:
        return value
    source, dimensions = op.operands[0], Broadcast.of(op).dimensions
    if list(dimensions) != sorted(dimensions):
        return value
    shape: list[Dim] = [1] * tensor_type(value).rank
    for dim, place in zip(tensor_type(source).shape, dimensions, strict=True):
        shape[place] = dim
    if tuple(shape) == tensor_type(source).shape:
        return source
    return builder.value("reshape", source, shape=tuple(shape))


def _guard(result: Value, v: Value, builder: Builder) -> Value:
    """Zeros in rows whose softmax is NaN, as `select(is_nan(p), 0, p)` before v gives.

    Where v itself is not finite, 0 * v is NaN there too, hence the sum of v * 0.
    """
    type, v_type = tensor_type(result), tensor_type(v)
    zeros = builder.value("mul", v, builder.full(0, v_type.dtype, v_type.shape))
    column = builder.value("reduce", zeros, axes=(v_type.rank - 2,), kind="add")
    dimensions = (*range(type.rank - 2), type.rank - 1)
    spread = builder.value("broadcast", column, shape=type.shape, dimensions=dimensions)
    return builder.value("select", builder.value("is_nan", result), spread, result)


def _in_order(result: Value, op: Op, place: int, builder: Builder) -> Value:
    """[sorted batch..., m, e] with the axes in the order of the contraction's result."""
    rank = tensor_type(result).rank
    side = ("lhs", "rhs")[place]
    batch = DotGeneral.of(op).batch(side)
    ends = [rank - 2, rank - 1] if place == 0 else [rank - 1, rank - 2]
    return builder.transpose(result, [*batch, *ends])

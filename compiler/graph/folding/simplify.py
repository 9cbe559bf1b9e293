"""Removes ops that do nothing and merges neighbours: shapes, conversions, algebra.

The algebraic rules are data in `algebra.py`; the rules here look at attributes. Each is
sound for every dtype and for symbolic dims.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.folding.algebra import apply_rules
from ingot.compiler.graph.forms.reshapes import reshape_groups
from ingot.compiler.graph.ops import (
    AlongAxis,
    Broadcast,
    Compare,
    Gather,
    Pad,
    Reduce,
    Reshape,
    Reverse,
    Slice,
    Take,
    Transpose,
    lookup,
    picked,
)
from ingot.compiler.graph.rewriter import defined_by, literal_of_value, rewrite, splat_of
from ingot.compiler.ir import Module, Op, Value
from ingot.compiler.ir.dims import Dim, product
from ingot.hal.spec import DType

__all__ = ["simplify"]

_MOST_RUNS = 8
"""Slices that a take of known places becomes: each has code of its own in a kernel."""

_LONGEST_STEP = 8
"""Of such a slice, whose elements kernels shuffle out of vectors."""


def simplify(module: Module) -> Module:
    """Apply all rules to every function; returns the module."""
    for function in module.functions.values():
        rewrite(function.block, _simplify)
    return module


def _simplify(op: Op, builder: Builder) -> Sequence[Value] | None:
    for rule in _RULES.get(op.name, ()):
        value = rule(op, builder)
        if value is not None:
            return [value]
    if len(op.results) != 1 or op.regions:
        return None
    values = apply_rules(op, builder)
    if values is None and lookup(op.name).family == "elementwise":
        value = _sink_ones(op, builder)
        values = None if value is None else [value]
    return values


def _identity(op: Op, builder: Builder) -> Value | None:
    """An op that gives its operand's type back and cannot have moved anything."""
    return op.operands[0] if op.result.type == op.operands[0].type else None


def _reshape_of_reshape(op: Op, builder: Builder) -> Value | None:
    """The first of two need not be done, unless it alone checks a count of elements."""
    inner = defined_by(op.operands[0], "reshape")
    if inner is None:
        return None
    x, shape = inner.operands[0], Reshape.of(op).shape
    first, between, last = map(product, (tensor_type(x).shape, Reshape.of(inner).shape, shape))
    if between not in (first, last):
        return None
    return builder.value("reshape", x, shape=shape)


def _reshape_of_broadcast(op: Op, builder: Builder) -> Value | None:
    """A reshaped broadcast of a scalar is a broadcast."""
    inner = defined_by(op.operands[0], "broadcast")
    if inner is None or tensor_type(inner.operands[0]).rank != 0:
        return None
    scalar = inner.operands[0]
    return builder.value("broadcast", scalar, shape=Reshape.of(op).shape, dimensions=())


def _transpose_identity(op: Op, builder: Builder) -> Value | None:
    permutation = Transpose.of(op).permutation
    return op.operands[0] if permutation == tuple(range(len(permutation))) else None


def _transpose_of_transpose(op: Op, builder: Builder) -> Value | None:
    inner = defined_by(op.operands[0], "transpose")
    if inner is None:
        return None
    first = Transpose.of(inner).permutation
    merged = tuple(first[axis] for axis in Transpose.of(op).permutation)
    return builder.value("transpose", inner.operands[0], permutation=merged)


def _transpose_of_ones(op: Op, builder: Builder) -> Value | None:
    """A transpose that keeps the order of all dims but those of 1 is a reshape."""
    shape = tensor_type(op.operands[0]).shape
    moved = [axis for axis in Transpose.of(op).permutation if shape[axis] != 1]
    if moved != sorted(moved):
        return None
    return builder.value("reshape", op.operands[0], shape=tensor_type(op.result).shape)


def _transpose_of_broadcast(op: Op, builder: Builder) -> Value | None:
    inner = defined_by(op.operands[0], "broadcast")
    if inner is None:
        return None
    permutation = Transpose.of(op).permutation
    dimensions = tuple(permutation.index(place) for place in Broadcast.of(inner).dimensions)
    shape = tensor_type(op.result).shape
    x = inner.operands[0]
    return builder.value("broadcast", x, shape=shape, dimensions=dimensions)


def _transpose_of_reshape(op: Op, builder: Builder) -> Value | None:
    """Transposes go before reshapes that merge dims, whose groups they leave whole.

    With `_reshape_of_transpose` this brings all to the order split, transpose, merge, in which
    neighbours meet and cancel.
    """
    inner = defined_by(op.operands[0], "reshape")
    if inner is None:
        return None
    x, target = inner.operands[0], tensor_type(inner.result).shape
    groups = reshape_groups(tensor_type(x).shape, target)
    if groups is None or any(len(_without_ones([target[a] for a in n])) > 1 for _, n in groups):
        return None
    group_of = {axis: place for place, (_, new) in enumerate(groups) for axis in new}
    permutation = list(Transpose.of(op).permutation)
    order = list(dict.fromkeys(group_of[axis] for axis in permutation))
    if [axis for place in order for axis in groups[place][1]] != permutation:
        return None
    order += [place for place, (_, new) in enumerate(groups) if not new]
    moved = tuple(axis for place in order for axis in groups[place][0])
    x = builder.value("transpose", x, permutation=moved)
    return builder.value("reshape", x, shape=tensor_type(op.result).shape)


def _reshape_of_transpose(op: Op, builder: Builder) -> Value | None:
    """Reshapes that split dims go before transposes."""
    inner = defined_by(op.operands[0], "transpose")
    if inner is None:
        return None
    shape, target = tensor_type(inner.result).shape, Reshape.of(op).shape
    permutation = Transpose.of(inner).permutation
    groups = reshape_groups(shape, target)
    if groups is None or all(len(_without_ones([target[a] for a in n])) < 2 for _, n in groups):
        return None
    order: list[tuple[int, range]] = []
    for old, new in groups:
        axes = [axis for axis in old if shape[axis] != 1]
        if len(axes) > 1:
            return None
        order.append((permutation[axes[0]] if axes else len(shape), new))
    sequence = [axis for _, new in sorted(order, key=lambda item: item[0]) for axis in new]
    x = inner.operands[0]
    x = builder.value("reshape", x, shape=tuple(target[axis] for axis in sequence))
    inverse = sorted(range(len(sequence)), key=sequence.__getitem__)
    return builder.value("transpose", x, permutation=tuple(inverse))


def _broadcast_identity(op: Op, builder: Builder) -> Value | None:
    dimensions = Broadcast.of(op).dimensions
    in_order = dimensions == tuple(range(len(dimensions)))
    return op.operands[0] if in_order and op.result.type == op.operands[0].type else None


def _broadcast_of_broadcast(op: Op, builder: Builder) -> Value | None:
    inner = defined_by(op.operands[0], "broadcast")
    if inner is None:
        return None
    outer = Broadcast.of(op).dimensions
    merged = tuple(outer[place] for place in Broadcast.of(inner).dimensions)
    x, shape = inner.operands[0], Broadcast.of(op).shape
    return builder.value("broadcast", x, shape=shape, dimensions=merged)


def _broadcast_of_reshape(op: Op, builder: Builder) -> Value | None:
    """A broadcast of a reshape that only added dims of 1 can leave them out itself."""
    inner = defined_by(op.operands[0], "reshape")
    if inner is None:
        return None
    source, target = tensor_type(inner.operands[0]).shape, tensor_type(inner.result).shape
    kept: list[int] = []
    rest = list(source)
    for axis, dim in enumerate(target):
        if rest and rest[0] == dim:
            rest.pop(0)
            kept.append(axis)
        elif dim != 1:
            return None
    if rest or len(source) == len(target):
        return None
    outer = Broadcast.of(op).dimensions
    dimensions = tuple(outer[axis] for axis in kept)
    x, shape = inner.operands[0], Broadcast.of(op).shape
    return builder.value("broadcast", x, shape=shape, dimensions=dimensions)


def _broadcast_of_ones(op: Op, builder: Builder) -> Value | None:
    """Dims of 1 need not be there to be repeated."""
    x, dimensions = op.operands[0], Broadcast.of(op).dimensions
    shape = tensor_type(x).shape
    kept = [axis for axis, dim in enumerate(shape) if dim != 1]
    if len(kept) == len(shape):
        return None
    x = builder.value("reshape", x, shape=tuple(shape[axis] for axis in kept))
    left = tuple(dimensions[axis] for axis in kept)
    return builder.value("broadcast", x, shape=Broadcast.of(op).shape, dimensions=left)


def _broadcast_of_nothing(op: Op, builder: Builder) -> Value | None:
    """A broadcast that repeats nothing only adds dims of 1: a reshape, which costs nothing."""
    dimensions, shape = Broadcast.of(op).dimensions, Broadcast.of(op).shape
    source = tensor_type(op.operands[0]).shape
    if list(dimensions) != sorted(dimensions) or not source:
        return None
    same = all(dim == shape[place] for dim, place in zip(source, dimensions, strict=True))
    added = all(shape[place] == 1 for place in range(len(shape)) if place not in dimensions)
    return builder.value("reshape", op.operands[0], shape=shape) if same and added else None


def _slice_everything(op: Op, builder: Builder) -> Value | None:
    x = op.operands[0]
    whole = Slice.of(op).limit == tensor_type(x).shape
    whole = whole and all(dim == 0 for dim in Slice.of(op).start)
    return x if whole and all(dim == 1 for dim in Slice.of(op).stride) else None


def _slice_of_slice(op: Op, builder: Builder) -> Value | None:
    inner = defined_by(op.operands[0], "slice")
    if inner is None:
        return None
    outer = Slice.of(op)
    first, step = Slice.of(inner).start, Slice.of(inner).stride
    if any(each != 1 for each in step):
        return None  # the limit of a strided slice is not exact
    return builder.value(
        "slice",
        inner.operands[0],
        start=tuple(a + b for a, b in zip(first, outer.start, strict=True)),
        limit=tuple(a + b for a, b in zip(first, outer.limit, strict=True)),
        stride=outer.stride,
    )


def _slice_of_transpose(op: Op, builder: Builder) -> Value | None:
    """Slices go before transposes, which then move less."""
    inner = defined_by(op.operands[0], "transpose")
    if inner is None:
        return None
    permutation = Transpose.of(inner).permutation
    axes = [permutation.index(axis) for axis in range(len(permutation))]
    x = builder.like(op, inner.operands[0], attributes=picked(op.attributes, axes))
    return builder.value("transpose", x, permutation=permutation)


def _slice_of_concatenate(op: Op, builder: Builder) -> Value | None:
    """A slice that is exactly a run of operands of a concatenate."""
    inner = defined_by(op.operands[0], "concatenate")
    if inner is None or any(each != 1 for each in Slice.of(op).stride):
        return None
    axis = AlongAxis.of(inner).axis
    start, limit, whole = Slice.of(op).start, Slice.of(op).limit, tensor_type(inner.result).shape
    others = [a for a in range(len(whole)) if a != axis]
    if any((start[a], limit[a]) != (0, whole[a]) for a in others):
        return None
    ends: list[Dim] = [0]
    for operand in inner.operands:
        ends.append(ends[-1] + tensor_type(operand).shape[axis])
    if start[axis] not in ends or limit[axis] not in ends:
        return None
    run = inner.operands[ends.index(start[axis]) : ends.index(limit[axis])]
    if not run or len(run) == len(inner.operands):
        return None
    return builder.value("concatenate", *run, axis=axis)


def _take_constant(op: Op, builder: Builder) -> Value | None:
    """A take of places known now that are a few runs of even steps, rising or falling, as padding
    by reflection and resizes by half have, is their slices side by side; one of neighbours each of
    which comes several times, as a nearest resize has, is a broadcast."""
    operand, indices = op.operands
    literal = literal_of_value(indices)
    axis = Take.of(op).axis
    shape = tensor_type(operand).shape
    bound = shape[axis]
    if literal is None or len(literal.shape) > 1 or not isinstance(bound, int):
        return None
    places = [int(place) for place in literal.array.reshape(-1)]
    if Take.of(op).mode == "wrap_check":
        places = [place + bound if place < 0 else place for place in places]
    if not places or min(places) < 0 or max(places) >= bound:
        return None
    if times := _times(places):
        return _repeated(op, (places[0], places[-1] + 1), times, builder)
    runs = _runs(places)
    if not runs:
        return None
    parts = []
    for first, last, step in runs:
        start, limit, stride = [0] * len(shape), list(shape), [1] * len(shape)
        start[axis], limit[axis] = min(first, last), max(first, last) + 1
        stride[axis] = max(abs(step), 1)
        bounds = {"start": tuple(start), "limit": tuple(limit), "stride": tuple(stride)}
        part = builder.value("slice", operand, **bounds)
        parts.append(builder.value("reverse", part, axes=(axis,)) if step < 0 else part)
    value = parts[0] if len(parts) == 1 else builder.value("concatenate", *parts, axis=axis)
    return builder.value("reshape", value, shape=tensor_type(op.result).shape)


def _times(places: Sequence[int]) -> int:
    """How often each of two neighbours or more comes, if all come as often and more than once."""
    times, count = places.count(places[0]), len(places)
    if times == 1 or times == count or count % times:
        return 0
    is_even = all(place == places[0] + at // times for at, place in enumerate(places))
    return times if is_even else 0


def _repeated(op: Op, part: tuple[int, int], times: int, builder: Builder) -> Value:
    """Places [first, end) of the taken axis, each so many times."""
    operand, axis = op.operands[0], Take.of(op).axis
    shape = tensor_type(operand).shape
    start, limit = [0] * len(shape), list(shape)
    start[axis], limit[axis] = part
    value = builder.value("slice", operand, start=tuple(start), limit=tuple(limit))
    wide = (*shape[:axis], part[1] - part[0], times, *shape[axis + 1 :])
    kept = tuple(place for place in range(len(wide)) if place != axis + 1)
    value = builder.value("broadcast", value, shape=wide, dimensions=kept)
    return builder.value("reshape", value, shape=tensor_type(op.result).shape)


def _runs(places: Sequence[int]) -> list[tuple[int, int, int]]:
    """First and last place of each run of even steps, and the step, 0 of a single place; none, if
    one in four begins a run."""
    runs: list[tuple[int, int, int]] = []
    most = max(min(len(places) // 4, _MOST_RUNS), 1)
    steps = [b - a for a, b in pairwise(places)]
    begin = 0
    while begin < len(places) and len(runs) <= most:
        end, step = begin, steps[begin] if begin < len(steps) else 0
        while end < len(steps) and steps[end] == step and 0 < abs(step) <= _LONGEST_STEP:
            end += 1
        if end == begin + 1 and abs(step) > 1:
            end = begin  # two places that lie apart may be the end of one run and the next
        runs.append((places[begin], places[end], step if end > begin else 0))
        begin = end + 1
    return runs if len(runs) <= most else []


def _pad_nothing(op: Op, builder: Builder) -> Value | None:
    amounts = (*Pad.of(op).low, *Pad.of(op).high, *Pad.of(op).interior)
    return op.operands[0] if all(each == 0 for each in amounts) else None


def _concatenate_one(op: Op, builder: Builder) -> Value | None:
    return op.operands[0] if len(op.operands) == 1 else None


def _concatenate_without_empty(op: Op, builder: Builder) -> Value | None:
    axis = AlongAxis.of(op).axis
    full = [x for x in op.operands if tensor_type(x).shape[axis] != 0]
    if not full or len(full) == len(op.operands):
        return None
    return builder.value("concatenate", *full, axis=axis)


def _reverse_nothing(op: Op, builder: Builder) -> Value | None:
    x = op.operands[0]
    return x if all(tensor_type(x).shape[axis] == 1 for axis in Reverse.of(op).axes) else None


def _reduce_nothing(op: Op, builder: Builder) -> Value | None:
    """A reduction over dims of 1 by max or min (a sum would turn -0 to 0) is a reshape."""
    x = op.operands[0]
    axes = Reduce.of(op).axes
    if axes and Reduce.of(op).kind not in ("max", "min", "and", "or"):
        return None
    if any(tensor_type(x).shape[axis] != 1 for axis in axes):
        return None
    return builder.value("reshape", x, shape=tensor_type(op.result).shape)


def _convert_of_convert(op: Op, builder: Builder) -> Value | None:
    """Converting there and back gives the value back if the way there was exact. From a float to an
    integer it saturates, from an integer it wraps: of these two, one is not the other."""
    inner = defined_by(op.operands[0], "convert")
    if inner is None:
        return None
    source, middle = tensor_type(inner.operands[0]).dtype, tensor_type(inner.result).dtype
    if not holds_exactly(source, middle):
        return None
    target = tensor_type(op.result).dtype
    if target is source:
        return inner.operands[0]
    saturates = source.is_integer and middle.is_float and target.is_integer
    if saturates and not holds_exactly(source, target):
        return None
    return builder.value("convert", inner.operands[0], dtype=target)


def _convert_of_clamp(op: Op, builder: Builder) -> Value | None:
    """Converting a float to an integer saturates: a clamp to its range or more changes nothing."""
    inner, target = defined_by(op.operands[0], "clamp"), tensor_type(op.result).dtype
    if inner is None or not target.is_integer or not tensor_type(inner.result).dtype.is_float:
        return None
    low, high = splat_of(inner.operands[0]), splat_of(inner.operands[2])
    if low is None or high is None:
        return None
    least, greatest = target.limits
    if not (float(low) <= least and float(high) >= greatest):
        return None
    return builder.value("convert", inner.operands[1], dtype=target)


def _reinterpret_and_back(op: Op, builder: Builder) -> Value | None:
    inner = defined_by(op.operands[0], "reinterpret")
    same = inner is not None and inner.operands[0].type == op.result.type
    return inner.operands[0] if inner is not None and same else None


def _clamp_of_booleans(op: Op, builder: Builder) -> Value | None:
    low, x, high = op.operands
    if not tensor_type(x).dtype.is_boolean:
        return None
    return builder.value("and", builder.value("or", x, low), high)


def holds_exactly(source: DType, target: DType) -> bool:
    """Whether every value of `source` is one of `target`, so that conversion loses nothing."""
    if source is target:
        return True
    if source.is_boolean:
        return target.is_integer or target.fraction > 0
    if source.is_integer and target.is_integer:
        extra = target.kind == "i" and source.kind == "u"
        return (target.kind == "i" or source.kind == "u") and target.bits >= source.bits + extra
    if not target.fraction:
        return False
    if source.is_integer:
        bits = source.bits - (source.kind == "i")
        return bits <= min(target.fraction + 1, target.bias)
    return 0 < source.fraction <= target.fraction and source.bias <= target.bias


def _sink_ones(op: Op, builder: Builder) -> Value | None:
    """An element-wise op behind reshapes that only add or drop dims of 1 goes before them."""
    sources: list[Value | None] = []
    for operand in op.operands:
        inner = defined_by(operand, "reshape")
        if inner is None:
            if splat_of(operand) is None and _repeated_scalar(operand) is None:
                return None
            sources.append(None)
            continue
        source = tensor_type(inner.operands[0]).shape
        if _without_ones(source) != _without_ones(tensor_type(operand).shape):
            return None
        sources.append(inner.operands[0])
    shapes = {tensor_type(source).shape for source in sources if source is not None}
    if len(shapes) != 1:
        return None
    (shape,) = shapes
    moved = [
        _in_shape(operand, shape, builder) if source is None else source
        for operand, source in zip(op.operands, sources, strict=True)
    ]
    value = builder.like(op, *moved)
    return builder.value("reshape", value, shape=tensor_type(op.result).shape)


def _repeated_scalar(value: Value) -> Value | None:
    """The value of rank 0 that all elements are, such as a size."""
    op = defined_by(value, "broadcast")
    return op.operands[0] if op is not None and not tensor_type(op.operands[0]).shape else None


def _in_shape(value: Value, shape: Sequence[Dim], builder: Builder) -> Value:
    """A value whose elements are all one, in a shape of as many."""
    scalar = _repeated_scalar(value)
    if scalar is None:
        return builder.value("reshape", value, shape=tuple(shape))
    return builder.value("broadcast", scalar, shape=tuple(shape), dimensions=())


def _without_ones(shape: Sequence[Dim]) -> list[Dim]:
    return [dim for dim in shape if dim != 1]


def _compare_of_boolean(op: Op, builder: Builder) -> Value | None:
    """`convert(p) != 0` is the boolean p."""
    inner = defined_by(op.operands[0], "convert")
    if inner is None or not tensor_type(inner.operands[0]).dtype.is_boolean:
        return None
    zero = splat_of(op.operands[1])
    is_test = Compare.of(op).direction in ("ne", "gt") and zero is not None and zero == 0
    return inner.operands[0] if is_test else None


def _gather_rows(op: Op, builder: Builder) -> Value | None:
    """A gather of whole rows along one axis is a take, which kernels read without arithmetic."""
    operand, indices = op.operands
    source, index_type = tensor_type(operand), tensor_type(indices)
    gather = Gather.of(op)
    axes, place = gather.start_index_map, gather.index_vector_dim
    if len(axes) != 1 or gather.collapsed_slice_dims != axes or gather.operand_batching_dims:
        return None
    (axis,) = axes
    sizes = (*source.shape[:axis], 1, *source.shape[axis + 1 :])
    if gather.slice_sizes != sizes:
        return None
    shape = index_type.shape
    flat = shape if place == index_type.rank else (*shape[:place], *shape[place + 1 :])
    offsets = (*range(axis), *range(axis + len(flat), source.rank - 1 + len(flat)))
    if gather.offset_dims != offsets:
        return None
    if flat != shape:
        indices = builder.value("reshape", indices, shape=flat)
    return builder.value("take", operand, indices, axis=axis, mode=gather.mode)


_RULES: dict[str, tuple[Callable[[Op, Builder], Value | None], ...]] = {
    "reshape": (
        _identity,
        _reshape_of_reshape,
        _reshape_of_broadcast,
        _reshape_of_transpose,
    ),
    "transpose": (
        _transpose_identity,
        _transpose_of_transpose,
        _transpose_of_broadcast,
        _transpose_of_ones,
        _transpose_of_reshape,
    ),
    "broadcast": (
        _broadcast_identity,
        _broadcast_of_broadcast,
        _broadcast_of_reshape,
        _broadcast_of_nothing,
        _broadcast_of_ones,
    ),
    "slice": (_slice_everything, _slice_of_slice, _slice_of_transpose, _slice_of_concatenate),
    "pad": (_pad_nothing,),
    "concatenate": (_concatenate_one, _concatenate_without_empty),
    "reverse": (_reverse_nothing,),
    "reduce": (_reduce_nothing,),
    "clamp": (_clamp_of_booleans,),
    "convert": (_identity, _convert_of_convert, _convert_of_clamp),
    "bitcast": (_identity,),
    "reinterpret": (_reinterpret_and_back,),
    "compare": (_compare_of_boolean,),
    "gather": (_gather_rows,),
    "take": (_take_constant,),
}

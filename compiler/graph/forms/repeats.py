"""What a broadcast tensor is made of: a small one, of which each element is repeated.

Scales of a quantised weight stand in a program as broadcast, reshape and slice ops that give
every element its scale. `repeats_of` sees through these, and `repeated` makes such a tensor
again where other lengths of repeats are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops import Broadcast, Reverse, Slice, Transpose
from ingot.compiler.graph.rewriter import defined_by, is_static, splat_of
from ingot.compiler.ir import Op, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import known_dim, known_dims

__all__ = ["Repeats", "repeated", "repeats_of"]

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Repeats:
    """A tensor of `shape` with element i of axis a that of `source` at i // lengths[a]."""

    source: Value
    lengths: Shape
    shape: Shape


def repeats_of(value: Value, builder: Builder) -> Repeats:
    """What the value repeats; itself, once, where that is not known. Dims are static."""
    ops: list[Op] = []
    while (op := defined_by(value, *_RULES)) and is_static(tensor_type(op.operands[0]).shape):
        ops.append(op)
        value = op.operands[0]
    found = _itself(value)
    for op in reversed(ops):
        (result,) = op.results
        found = _RULES[op.name](op, found, static_shape(result), builder) or _itself(result)
    return found


def _itself(value: Value) -> Repeats:
    shape = static_shape(value)
    return Repeats(value, (1,) * len(shape), shape)


def repeated(source: Value, axis: int, length: int, size: int, builder: Builder) -> Value:
    """`source` with each element of the axis `length` times, cut to `size`."""
    shape = tensor_type(source).shape
    if length == 1:
        return source
    outer, inner = shape[: axis + 1], shape[axis + 1 :]
    places = tuple(place for place in range(len(shape) + 1) if place != axis + 1)
    wide = builder.value("broadcast", source, shape=(*outer, length, *inner), dimensions=places)
    long = (*shape[:axis], known_dim(shape[axis]) * length, *inner)
    wide = builder.value("reshape", wide, shape=long)
    limit = (*shape[:axis], size, *inner)
    return wide if long == limit else builder.value("slice", wide, start=(0,) * len(shape),
                                                     limit=limit)  # fmt: skip


def static_shape(value: Value) -> Shape:
    """The dims of a tensor, which are numbers."""
    return known_dims(tensor_type(value).shape)


def _broadcast(op: Op, x: Repeats, shape: Shape, builder: Builder) -> Repeats | None:
    dimensions = Broadcast.of(op).dimensions
    if list(dimensions) != sorted(dimensions):
        return None
    lengths, small = list(shape), [1] * len(shape)
    for axis, place in enumerate(dimensions):
        small[place] = static_shape(x.source)[axis]
        if x.shape[axis] == shape[place]:
            lengths[place] = x.lengths[axis]
    return Repeats(builder.reshape(x.source, small), tuple(lengths), shape)


def _reshape(op: Op, x: Repeats, shape: Shape, builder: Builder) -> Repeats | None:
    lengths: list[int] = []
    small: list[int] = []
    first = last = 0
    while first < len(x.shape) or last < len(shape):
        old, new = _next_run(x.shape, shape, first, last)
        run = _merged(x, first, old) if new - last == 1 else _split(x, first, old, shape[last:new])
        if run is None:
            return None
        lengths += run[0]
        small += run[1]
        first, last = old, new
    return Repeats(builder.reshape(x.source, small), tuple(lengths), shape)


def _next_run(a: Shape, b: Shape, first: int, last: int) -> tuple[int, int]:
    """The ends of the next axes of both shapes that have as many elements."""
    i, j = min(first + 1, len(a)), min(last + 1, len(b))
    while (left := prod(a[first:i])) != (right := prod(b[last:j])):
        if left < right:
            i += 1
        else:
            j += 1
    return i, j


_Run = tuple[Sequence[int], Sequence[int]]


def _merged(x: Repeats, first: int, end: int) -> _Run | None:
    """Lengths and small dims of axes that become one: the last ones may be repeats alone."""
    length, varies = 1, False
    for axis in reversed(range(first, end)):
        size, own = x.shape[axis], x.lengths[axis]
        if varies and own != 1 and size != 1:
            return None
        if not varies:
            length *= min(own, size)
            varies = own < size
            if varies and size % own and prod(x.shape[first:axis]) != 1:
                return None
    small = prod(static_shape(x.source)[first:end])
    return (length,), (small,)


def _split(x: Repeats, first: int, end: int, sizes: Shape) -> _Run | None:
    """The same of axes that become several: where all are repeats, or none is."""
    own, old = x.lengths[first:end], x.shape[first:end]
    if all(length >= size for length, size in zip(own, old, strict=True)):
        return sizes, (1,) * len(sizes)
    if all(length == 1 for length in own):
        return (1,) * len(sizes), sizes
    if len(old) == 1 and old[0] in sizes:  # other axes are of one element
        place, small = sizes.index(old[0]), static_shape(x.source)[first]
        ones = [1] * len(sizes)
        return [*ones[:place], own[0], *ones[place + 1 :]], [
            *ones[:place],
            small,
            *ones[place + 1 :],
        ]
    return None


def _slice(op: Op, x: Repeats, shape: Shape, builder: Builder) -> Repeats | None:
    start, stride = Slice.of(op).start, Slice.of(op).stride
    if any(start) or any(step != 1 for step in stride):
        return None
    limit = tuple(-(-size // length) for size, length in zip(shape, x.lengths, strict=True))
    source = x.source
    if limit != static_shape(source):
        source = builder.value("slice", source, start=start, limit=limit)
    return Repeats(source, x.lengths, shape)


def _transpose(op: Op, x: Repeats, shape: Shape, builder: Builder) -> Repeats | None:
    permutation = Transpose.of(op).permutation
    source = builder.value("transpose", x.source, permutation=permutation)
    return Repeats(source, tuple(x.lengths[axis] for axis in permutation), shape)


def _pointwise(op: Op, x: Repeats, shape: Shape, builder: Builder) -> Repeats | None:
    """An op on single elements and numbers."""
    small = static_shape(x.source)
    others: list[Value] = []
    for each in op.operands[1:]:
        number = splat_of(each)
        if number is None:
            return None
        others.append(builder.full(number, tensor_type(each).dtype, small))
    source = builder.like(op, x.source, *others)
    return Repeats(source, x.lengths, shape)


def _reverse(op: Op, x: Repeats, shape: Shape, builder: Builder) -> Repeats | None:
    """Axes along which nothing changes, or nothing is repeated."""
    axes = [axis for axis in Reverse.of(op).axes if x.lengths[axis] < shape[axis]]
    if any(x.lengths[axis] != 1 for axis in axes):
        return None
    return replace(x, source=builder.value("reverse", x.source, axes=axes)) if axes else x


_RULES = {
    "broadcast": _broadcast,
    "reshape": _reshape,
    "reverse": _reverse,
    "slice": _slice,
    "transpose": _transpose,
    **dict.fromkeys(
        ("convert", "bitcast", "shift_left", "shift_right_arithmetic"), _pointwise
    ),  # what decodes narrow integers
}

"""Weights that share memory of which something is written: views of one variable."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ingot.compiler.frontends.emitter import Emitter, UnsupportedNode
from ingot.compiler.frontends.indexed import scatter_elements
from ingot.compiler.frontends.torch.archive import Place
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["Shared", "read_part", "shared_variables", "strided_places", "write_part"]

_I64 = dtype("i64")


class Shared(NamedTuple):
    """A variable that lies at `place`, and the weights that are views of it."""

    name: str
    place: Place
    members: Mapping[str, Place]


def shared_variables(
    weights: Mapping[str, tuple[object, Place]], written: set[str]
) -> Iterator[Shared]:
    """Of weights, by what tells their memory and by their place in it, those that share bytes of
    which some are written. The variable is the first one that has all the bytes; if there is none,
    a row of all of them under the joined names. UnsupportedNode: they cannot be one variable."""
    ordered = sorted(weights, key=lambda name: (weights[name][1].start, name))
    groups: dict[object, list[list[str]]] = {}
    ends: dict[object, int] = {}
    for name in ordered:
        memory, place = weights[name]
        if place.start == place.end:
            continue
        known = groups.setdefault(memory, [])
        if known and place.start < ends[memory]:
            known[-1].append(name)
        else:
            known.append([name])
        ends[memory] = max(place.end, ends.get(memory, 0))
    for names in (sorted(each) for known in groups.values() for each in known):
        if len(names) > 1 and not written.isdisjoint(names):
            yield _shared({name: weights[name][1] for name in names}, written)


def _shared(members: Mapping[str, Place], written: set[str]) -> Shared:
    first, *others = members
    element = members[first].dtype
    for name in others:
        if members[name].dtype is not element:
            raise UnsupportedNode(
                f"buffer '{name}' of {members[name].dtype} shares memory, which it writes, with "
                f"'{first}' of {element}: register a clone, or make one of the other in forward"
            )
    for name in sorted(written & members.keys()):
        place = members[name]
        if math.prod(place.shape) * element.bytes > place.end - place.start:
            raise UnsupportedNode(
                f"buffer '{name}', which it writes, has several elements in one place: register a "
                "clone of it"
            )
    start = min(place.start for place in members.values())
    end = max(place.end for place in members.values())
    for name, place in members.items():
        if (place.start, place.end) == (start, end) and place.is_dense(_axes(place)):
            return Shared(name, place, members)
    row = Place(element, ((end - start) // element.bytes,), (element.bytes,), start, end)
    return Shared("+".join(members), row, members)


def _axes(place: Place) -> list[int]:
    """The axes in the order in which its elements lie."""
    return sorted(range(len(place.shape)), key=lambda axis: -place.strides[axis])


class _Box(NamedTuple):
    """A range of each axis of a whole; its axes in the order of a part, then those of length 1."""

    starts: list[int]
    lengths: list[int]
    order: list[int]


def _box(whole: Place, part: Place) -> _Box | None:
    """None: the part is no range of each axis."""
    starts, lengths = [0] * len(whole.shape), [1] * len(whole.shape)
    rest, at = part.start - whole.start, dict[int, int]()
    for axis in _axes(whole):
        if whole.shape[axis] != 1:
            starts[axis], rest = divmod(rest, whole.strides[axis])
            at[whole.strides[axis]] = axis
    order: list[int] = []
    for size, step in zip(part.shape, part.strides, strict=True):
        if size == 1:
            continue
        axis = at.pop(step, -1)
        if axis < 0 or starts[axis] + size > whole.shape[axis]:
            return None
        lengths[axis] = size
        order.append(axis)
    return _Box(starts, lengths, [*order, *(set(range(len(lengths))) - set(order))])


def read_part(c: Emitter, x: Value, whole: Place, part: Place) -> Value:
    """The elements of `part` where x has those of `whole`."""
    box = _box(whole, part)
    if box is None:
        return c.op("take", _row(c, x, whole), _places(c, whole, part), axis=0, mode="check")
    for axis, (start, length) in enumerate(zip(box.starts, box.lengths, strict=True)):
        x = c.sliced(x, axis, start, start + length)
    return c.reshape(c.transpose(x, box.order), part.shape)


def write_part(c: Emitter, x: Value, whole: Place, part: Place, value: Value) -> Value:
    """x, which has the elements of `whole`, with `value` as those of `part`."""
    box = _box(whole, part)
    if box is not None:
        value = c.reshape(value, [box.lengths[axis] for axis in box.order])
        value = c.transpose(value, [box.order.index(axis) for axis in range(len(box.order))])
        if tuple(box.lengths) == whole.shape:
            return value
        return c.op("dynamic_update_slice", x, value, *(c.builder.number(each, _I64)
                                                        for each in box.starts))  # fmt: skip
    count = (math.prod(part.shape),)
    places = c.reshape(_places(c, whole, part), count)
    row = scatter_elements(c, _row(c, x, whole), 0, places, c.reshape(value, count), "set")
    axes = _axes(whole)
    turned = c.reshape(row, [whole.shape[axis] for axis in axes])
    return c.transpose(turned, [axes.index(axis) for axis in range(len(axes))])


def _row(c: Emitter, x: Value, whole: Place) -> Value:
    """The elements in the order in which they lie."""
    return c.reshape(c.transpose(x, _axes(whole)), (math.prod(whole.shape),))


def _places(c: Emitter, whole: Place, part: Place) -> Value:
    width = part.dtype.bytes
    strides = [step // width for step in part.strides]
    return strided_places(c, (part.start - whole.start) // width, part.shape, strides)


def strided_places(c: Emitter, start: Dim, size: Sequence[Dim], strides: Sequence[Dim]) -> Value:
    """Sums of indices times strides, of a tensor of this size."""
    shape = tuple(size)
    places = c.builder.number(start, _I64, shape)
    for axis, step in enumerate(strides):
        index = c.op("iota", dtype=_I64, shape=shape, axis=axis)
        places = c.op("add", places, c.op("mul", index, c.builder.number(step, _I64, shape)))
    return places

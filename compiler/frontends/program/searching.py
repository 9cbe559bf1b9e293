"""Places of elements: the greatest, those that are not 0, those in order; elements at places."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.indexed import index_tensors, slice_range
from ingot.compiler.frontends.ordering import count_before, sort_with_places
from ingot.compiler.frontends.program.elementwise import common_dtype
from ingot.compiler.frontends.program.tensor import (
    Size,
    Tensor,
    as_dim,
    current,
    given,
    public,
    value_of,
)
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["axis_of_sort"]

_I64 = dtype("i64")


def _place(x: Any, axis: int | None, keepdims: bool, name: str) -> Tensor:
    trace, value = current(), value_of(x)
    if type_of(value).dtype.is_boolean:
        value = trace.convert(value, "i8")
    shape, rank = shape_of(value), type_of(value).rank
    if axis is None:
        value = trace.reshape(value, (dims.product(shape),))
        place = trace.op(name, value, axis=0, dtype=_I64)
        return given(trace.reshape(place, (1,) * rank) if keepdims else place)
    at = trace.normalize_axis(axis, rank)
    place = trace.op(name, value, axis=at, dtype=_I64)
    return given(trace.keep_axes(place, shape, [at]) if keepdims else place)


@public
def argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the greatest element is, the first of equal ones; of all elements for None."""
    return _place(x, axis, keepdims, "arg_max")


@public
def argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Where the least element is, the first of equal ones; of all elements for None."""
    return _place(x, axis, keepdims, "arg_min")


@public
def nonzero(x: Any, /) -> tuple[Tensor, ...]:
    """The places of elements that are true or not 0: a tensor of rank 1 for each axis. How many
    there are is a dim of its own, which the call finds."""
    value = value_of(x)
    if not type_of(value).rank:
        raise UnsupportedNode("its operand has rank 0: reshape it to one of rank 1")
    return tuple(given(each) for each in _places(value))


def _places(x: Value) -> list[Value]:
    trace = current()
    found = trace.op("nonzero", x, symbols=(trace.fresh("count"),))
    count = shape_of(found)[1]
    rows = (trace.sliced(found, 0, row, row + 1) for row in range(type_of(x).rank))
    return [trace.reshape(row, (count,)) for row in rows]


@public
def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Tensor:
    """Where the elements of x2 would stand in x1, which is sorted as `sort` does, NaN last."""
    trace = current()
    row, wanted = value_of(x1), value_of(x2)
    if sorter is not None:
        row = trace.op("take", row, value_of(sorter), axis=0, mode="check")
    if side not in ("left", "right") or type_of(row).rank != 1:
        raise UnsupportedNode('x1 must have rank 1, and side is "left" or "right"')

    def before(a: Value, b: Value) -> Value:
        found = trace.compare("lt" if side == "left" else "le", a, b)
        if not type_of(b).dtype.is_float:
            return found
        last = trace.compare("ne", b, b)
        if side == "left":
            last = trace.op("and", last, trace.compare("eq", a, a))
        return trace.op("or", found, last)

    element = common_dtype(given(row), given(wanted))
    row, wanted = (trace.convert(each, element) for each in (row, wanted))
    return given(count_before(trace, row, wanted, before))


@public
def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """x sorted along an axis; NaN stands behind all numbers, in front of them if `descending`."""
    return given(_sorted(x, axis, descending)[0])


@public
def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Where the elements of `sort` were."""
    return given(_sorted(x, axis, descending)[1])


def _sorted(x: Any, axis: int, descending: bool) -> tuple[Value, Value]:
    value = value_of(x)
    return sort_with_places(current(), value, axis_of_sort(value, axis), descending)


def axis_of_sort(x: Value, axis: int) -> int:
    """The axis, counted from 0. UnsupportedNode: x has none."""
    if not type_of(x).rank:
        raise UnsupportedNode("its operand has rank 0: reshape it to one of rank 1")
    return current().normalize_axis(axis, type_of(x).rank)


@public
def top_k(x: Any, k: Any, /, *, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The `k` greatest elements along an axis, falling (or the least, rising), and their places."""
    value = value_of(x)
    at = current().normalize_axis(axis, type_of(value).rank)
    found = current().several("top_k", value, k=as_dim(k), axis=at, largest=largest, dtype=_I64)
    return given(found[0]), given(found[1])


@public
def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Tensor:
    """Elements of an axis at places, which may count from the end; one outside ends the call."""
    value = value_of(x)
    if axis is None:
        if type_of(value).rank != 1:
            raise UnsupportedNode(f"x is {value.type}, so the axis must be given")
        axis = 0
    at = current().normalize_axis(axis, type_of(value).rank)
    return given(current().op("take", value, _integers(indices), axis=at, mode="wrap_check"))


@public
def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Tensor:
    """Elements of an axis at places of their own for each place of the other axes."""
    trace = current()
    value, places = value_of(x), _integers(indices)
    at = trace.normalize_axis(axis, type_of(value).rank)
    if type_of(places).rank != type_of(value).rank:
        raise UnsupportedNode(f"indices are {places.type}, but x is {value.type}: ranks differ")
    shapes = [list(shape_of(each)) for each in (value, places)]
    sizes = [shape[at] for shape in shapes]
    for shape in shapes:
        shape[at] = 1
    common = list(trace.common_shape(*shapes))
    wide = []
    for each, size in zip((value, places), sizes, strict=True):
        common[at] = size
        wide.append(trace.broadcast_to(each, common))
    return given(trace.gather_along(wide[0], wide[1], at, "wrap_check"))


def _integers(indices: Any) -> Value:
    value = value_of(indices)
    if not type_of(value).dtype.is_integer:
        raise UnsupportedNode(f"indices are {value.type}, expected integers")
    return value


@public
def dynamic_slice(x: Any, starts: Sequence[Any], sizes: Sequence[Any], /) -> Tensor:
    """A block of `sizes` at places that are tensors; they are clamped so that it fits."""
    value = value_of(x)
    found = [_integers(each) for each in starts]
    if not len(found) == len(sizes) == type_of(value).rank:
        raise UnsupportedNode(f"it takes a start and a size for each axis of {value.type}")
    return given(current().op("dynamic_slice", value, *found, sizes=tuple(map(as_dim, sizes))))


@public
def dynamic_update_slice(x: Any, update: Any, starts: Sequence[Any], /) -> Tensor:
    """x with a block replaced at places that are tensors; they are clamped so that it fits."""
    value = value_of(x)
    new = current().convert(value_of(update, type_of(value).dtype), type_of(value).dtype)
    found = [_integers(each) for each in starts]
    if not len(found) == type_of(new).rank == type_of(value).rank:
        raise UnsupportedNode(f"it takes an update and a start for each axis of {value.type}")
    return given(current().op("dynamic_update_slice", value, new, *found))


# ---- x[...]


@public
def _index(x: Any, key: Any, /) -> Tensor:
    """NumPy's indexing, basic and advanced."""
    trace, value = current(), value_of(x)
    keys = _whole_key(key if isinstance(key, tuple) else (key,), type_of(value).rank)
    is_advanced = any(not isinstance(each, (int, Size, slice, type(None))) for each in keys)
    shape: list[Dim] = []
    places: list[Value | None] = []
    axis = 0
    for each in keys:
        if each is None:
            shape.append(1)
            places.append(None)
        elif isinstance(each, slice):
            value = _ranged(value, axis, each)
            shape.append(shape_of(value)[axis])
            places.append(None)
            axis += 1
        elif isinstance(each, (int, Size)) and not is_advanced:
            value = _picked(value, axis, as_dim(each))
            axis += 1
        else:
            found = _index_values(each, value, axis)
            places += found
            end = axis + _axes_taken(each)
            shape += shape_of(value)[axis:end] or [1]
            axis = end
    value = trace.reshape(value, shape)
    return given(index_tensors(trace, value, places))


def _whole_key(keys: Sequence[Any], rank: int) -> list[Any]:
    """The key with full ranges in place of the ellipsis, and for the axes behind it."""
    count = 0
    for each in keys:
        if each is not None and not isinstance(each, EllipsisType):
            count += _axes_taken(each)
    dots = [at for at, each in enumerate(keys) if isinstance(each, EllipsisType)]
    if count > rank or len(dots) > 1:
        raise UnsupportedNode(f"the index has {count} axes and {len(dots)} '...' for rank {rank}")
    at = dots[0] if dots else len(keys)
    return [*keys[:at], *[slice(None)] * (rank - count), *keys[at + len(dots) :]]


def _axes_taken(key: Any) -> int:
    if isinstance(key, (int, Size, slice)):
        if isinstance(key, bool):
            raise UnsupportedNode("the index is a boolean: use ops.where or a tensor of booleans")
        return 1
    type = type_of(value_of(key))
    return type.rank if type.dtype.is_boolean else 1


def _index_values(key: Any, x: Value, axis: int) -> list[Value | None]:
    """What indexes one axis or, if it is a mask, several."""
    value = value_of(key)
    if not type_of(value).dtype.is_boolean:
        return [_integers(key)]
    shape = shape_of(x)[axis : axis + type_of(value).rank]
    return [*_places(current().reshape(current().agree(value, shape), shape or (1,)))]


def _picked(x: Value, axis: int, index: Dim) -> Value:
    """One place of an axis, which is kept as a dim of 1 and dropped by the reshape at the end."""
    size = shape_of(x)[axis]
    if isinstance(index, int) and index < 0:
        index = size + index
    if isinstance(index, int) and isinstance(size, int) and not 0 <= index < size:
        raise UnsupportedNode(f"index {index} is out of range for axis {axis} of {x.type}")
    if dims.prove_le(0, index) and dims.prove_le(index + 1, size):
        return current().sliced(x, axis, index, index + 1)
    place = current().reshape(current().size(index), (1,))
    return current().op("take", x, place, axis=axis, mode="check")


def _ranged(x: Value, axis: int, key: slice) -> Value:
    size = shape_of(x)[axis]
    step = 1 if key.step is None else key.step
    start, stop = (None if each is None else as_dim(each) for each in (key.start, key.stop))
    if not isinstance(step, int) or isinstance(step, bool) or step == 0:
        raise UnsupportedNode(f"the step of the index is {step}, expected a number other than 0")
    if step < 0:
        x = current().op("reverse", x, axes=(axis,))
        start, stop = (_mirrored(each, size) for each in (start, stop))
    return current().sliced(x, axis, *slice_range(size, start, stop, abs(step)))


def _mirrored(index: Dim | None, size: Dim) -> Dim | None:
    """The place as it is counted in the reversed axis."""
    if index is None:
        return None
    if isinstance(index, int) and index < 0:
        return -1 - index
    return dims.maximum(size - 1 - index, 0)

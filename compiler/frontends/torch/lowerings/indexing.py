"""Reads and writes at indices. Negative ones count from the end where torch lets them; one outside
ends the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.indexed import (
    index_tensors,
    join_places,
    scatter_elements,
    scatter_rows,
    slice_range,
)
from ingot.compiler.frontends.torch.lowering import Context, Scalar, lowering
from ingot.compiler.frontends.torch.lowerings.arithmetic import floor_divide
from ingot.compiler.graph.ops.reduction import identity
from ingot.compiler.ir import TensorType, Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


@lowering("aten.embedding.default")
def embedding(c: Context, weight: Value, indices: Value, *_: Any, **__: Any) -> Value:
    return c.op("take", weight, indices, axis=0, mode="check")


@lowering("aten.index_select.default")
def index_select(c: Context, x: Value, axis: int, indices: Value) -> Value:
    if not type_of(x).rank:
        x = c.reshape(x, (1,))
        return c.reshape(c.op("take", x, indices, axis=0, mode="check"), c.shape)
    return c.op("take", x, indices, axis=c.axis(axis, x), mode="check")


@lowering("aten.gather.default")
def gather(c: Context, x: Value, axis: int, indices: Value, **__: Any) -> Value:
    rank, axis = type_of(x).rank, c.axis(axis, x)
    if 0 in shape_of(indices):  # which may have any rank
        return c.full(0, type_of(x).dtype, shape_of(indices))
    if not rank:
        return c.broadcast_to(x, shape_of(indices))
    x = _corner(c, x, indices, axis)
    return c.gather_along(x, indices, axis, "check")


@lowering("aten.take_along_dim.default")
def take_along(c: Context, x: Value, indices: Value, dim: int | None = None) -> Value:
    if dim is None:
        return gather(c, c.flat(x), 0, c.flat(indices))
    axis = c.axis(dim, x)
    size = c.filled(shape_of(x)[axis], _I64, shape_of(indices))
    is_back = c.compare("lt", indices, 0)
    indices = c.op("select", is_back, c.op("add", indices, size), indices)
    batch = c.common_shape(
        *([1 if at == axis else n for at, n in enumerate(shape_of(each))] for each in (x, indices))
    )
    x, indices = (
        c.broadcast_to(each, [shape_of(each)[axis] if at == axis else n for at, n in
                              enumerate(batch)]) for each in (x, indices)
    )  # fmt: skip
    return gather(c, x, axis, indices)


def _corner(c: Context, x: Value, indices: Value, axis: int) -> Value:
    """x as far as the indices reach along the other axes."""
    for at, dim in enumerate(shape_of(indices)):
        if at != axis and dim != shape_of(x)[at]:
            x = c.sliced(x, at, 0, dim)
    return x


def _scattered(c: Context, x: Value, axis: int, indices: Value, updates: Value, kind: str) -> Value:
    rank, axis = type_of(x).rank, c.axis(axis, x)
    if not rank:
        return c.reshape(scatter_one(c, x, indices, updates, kind), ())
    updates = c.convert(updates, type_of(x).dtype)
    for at, dim in enumerate(shape_of(indices)):
        if dim != shape_of(updates)[at]:
            updates = c.sliced(updates, at, 0, dim)
    return scatter_elements(c, x, axis, indices, updates, kind)


def scatter_one(c: Context, x: Value, indices: Value, updates: Value, kind: str) -> Value:
    """Of tensors of rank 0."""
    wide = [c.reshape(each, (1,)) for each in (x, indices, updates)]
    return _scattered(c, wide[0], 0, wide[1], wide[2], kind)


@lowering("aten.scatter.src", "aten.scatter.value")
def scatter(c: Context, x: Value, axis: int, indices: Value, source: Scalar) -> Value:
    return _scattered(c, x, axis, indices, _source(c, x, indices, source), "set")


def _source(c: Context, x: Value, indices: Value, source: Scalar) -> Value:
    if isinstance(source, Value):
        return source
    return c.filled(source, type_of(x).dtype, shape_of(indices))


_KINDS = {
    "add": "add",
    "sum": "add",
    "multiply": "mul",
    "prod": "mul",
    "amax": "max",
    "amin": "min",
}


@lowering("aten.scatter_add.default")
def scatter_add(c: Context, x: Value, axis: int, indices: Value, source: Value) -> Value:
    return _scattered(c, x, axis, indices, source, "add")


@lowering("aten.scatter.reduce", "aten.scatter.value_reduce", "aten.scatter_reduce.two")
def scatter_reduce(
    c: Context, x: Value, axis: int, indices: Value, source: Scalar, reduce: str = "sum", *,
    include_self: bool = True,
) -> Value:  # fmt: skip
    source = _source(c, x, indices, source)
    if reduce not in (*_KINDS, "mean"):
        raise UnsupportedNode(f"it reduces by {reduce}, expected mean or one of {list(_KINDS)}")
    kind = _KINDS.get(reduce, "add")
    ones = c.full(1, type_of(x).dtype, shape_of(source))
    if not include_self:
        hit = _scattered(c, c.fill(0, like=x), axis, indices, ones, "set")
        touched = c.compare("ne", hit, 0)
        x = c.op("select", touched, identity(kind, type_of(x).dtype), x)
    found = _scattered(c, x, axis, indices, source, kind)
    if reduce != "mean":
        return found
    start = c.fill(int(include_self), like=x)
    count = _scattered(c, start, axis, indices, ones, "add")
    divisor = c.op("max", count, 1)
    if type_of(x).dtype.is_float:
        return c.op("div", found, divisor)
    return floor_divide(c, found, divisor)


def _row_scattered(
    c: Context, x: Value, axis: int, indices: Value, rows: Value, kind: str
) -> Value:
    """Slices of x along an axis at indices [n]; the slices are along the same axis of `rows`."""
    axis, rank = c.axis(axis, x), type_of(x).rank
    if not rank:
        wide = [c.reshape(each, (1,)) for each in (x, rows)]
        return c.reshape(_row_scattered(c, wide[0], 0, indices, wide[1], kind), ())
    indices = c.flat(indices)
    rows = c.convert(rows, type_of(x).dtype)
    shape = list(shape_of(x))
    shape[axis] = shape_of(indices)[0]
    rows = c.broadcast_to(rows, shape)
    order = [axis, *(at for at in range(rank) if at != axis)]
    moved, updates = c.transpose(x, order), c.transpose(rows, order)
    written = scatter_rows(c, moved, indices, updates, kind, "wrap_check")
    return c.transpose(written, [order.index(at) for at in range(rank)])


@lowering("aten.index_copy.default")
def index_copy(c: Context, x: Value, axis: int, indices: Value, source: Value) -> Value:
    return _row_scattered(c, x, axis, indices, source, "set")


@lowering("aten.index_add.default")
def index_add(
    c: Context, x: Value, axis: int, indices: Value, source: Value, *, alpha: Any = 1
) -> Value:
    if alpha != 1:
        source = c.op("mul", source, alpha)
    return _row_scattered(c, x, axis, indices, source, "add")


@lowering("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(c: Context, x: Value, axis: int, indices: Value, value: Scalar) -> Value:
    return _row_scattered(c, x, axis, indices, c.scalar(value, type_of(x).dtype), "set")


@lowering("aten.index_reduce.default")
def index_reduce(
    c: Context, x: Value, axis: int, indices: Value, source: Value, reduce: str, *,
    include_self: bool = True,
) -> Value:  # fmt: skip
    if not type_of(x).rank:
        return scatter_reduce(c, x, 0, c.reshape(indices, ()), source, reduce,
                              include_self=include_self)  # fmt: skip
    axis = c.axis(axis, x)
    wide = _along(c, indices, axis, shape_of(source))
    return scatter_reduce(c, x, axis, wide, source, reduce, include_self=include_self)


def _along(c: Context, indices: Value, axis: int, shape: Sequence[Dim]) -> Value:
    """Indices [n] at all places of the other axes."""
    flat = c.flat(indices)
    return c.op("broadcast", flat, shape=tuple(shape), dimensions=(axis,))


@lowering("aten.put.default")
def put(c: Context, x: Value, indices: Value, source: Value, accumulate: bool = False) -> Value:
    """Elements of x, counted row by row, become those of the source."""
    flat, places, values = (c.flat(each) for each in (x, indices, source))
    kind = "add" if accumulate else "set"
    return c.reshape(scatter_elements(c, flat, 0, places, values, kind), shape_of(x))


@lowering("aten.select_scatter.default")
def select_scatter(c: Context, x: Value, source: Value, axis: int, index: Dim) -> Value:
    axis = c.axis(axis, x)
    size = shape_of(x)[axis]
    start = index + size if isinstance(index, int) and index < 0 else index
    shape = [1 if at == axis else dim for at, dim in enumerate(shape_of(x))]
    return _written(c, x, c.reshape(source, shape), axis, start, start + 1, 1)


@lowering("aten.slice_scatter.default")
def slice_scatter(
    c: Context, x: Value, source: Value, axis: int = 0, start: Any = None, end: Any = None,
    step: int = 1,
) -> Value:  # fmt: skip
    axis = c.axis(axis, x)
    return _written(c, x, source, axis, *slice_range(shape_of(x)[axis], start, end, step))


def _written(
    c: Context, x: Value, part: Value, axis: int, start: Dim, end: Dim, step: int
) -> Value:
    part = c.convert(part, type_of(x).dtype)
    if step != 1:
        count = shape_of(part)[axis]
        places = c.op("iota", dtype=_I64, shape=(count,), axis=0)
        places = c.op("mul", places, step)
        places = c.op("add", places, c.filled(start, "i64", (count,)))
        return _row_scattered(c, x, axis, places, part, "set")
    zero = c.size(0)
    starts = [c.size(start) if at == axis else zero for at in range(type_of(x).rank)]
    return c.op("dynamic_update_slice", x, part, *starts)


@lowering("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(c: Context, x: Value, indices: Sequence[Value | None]) -> Value:
    """NumPy's advanced indexing; masks become the places where they hold."""
    return index_tensors(c, x, _places(c, x, indices))


def _places(c: Context, x: Value, indices: Sequence[Value | None]) -> list[Value | None]:
    given: list[Value | None] = []
    for each in indices:
        if each is None or not type_of(each).dtype.is_boolean:
            given.append(each)
            continue
        places = c.op("nonzero", each, symbols=(next(c.fresh_names()),))
        count = shape_of(places)[1]
        for row in range(type_of(each).rank):
            given.append(c.reshape(c.sliced(places, 0, row, row + 1), (count,)))
    return given


@lowering("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(
    c: Context, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    values = c.convert(values, type_of(x).dtype)
    single = [each for each in indices if each is not None]
    if len(single) == 1 and type_of(single[0]).dtype.is_boolean and not shape_of(values):
        mask = single[0]  # one number wherever the mask holds
        if not accumulate and indices[0] is mask:
            shape = [*shape_of(mask), *[1] * (type_of(x).rank - type_of(mask).rank)]
            return c.op("select", *c.broadcast(c.reshape(mask, shape), values, x))
    given = _places(c, x, indices)
    axes = [axis for axis, each in enumerate(given) if each is not None]
    found = [each for each in given if each is not None]
    flat, moved, rest = join_places(c, x, axes, found)
    count = type_of(flat).rank
    own = shape_of(x)
    lead, tail = list(shape_of(flat)), [own[axis] for axis in rest]
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    front = axes[0] if adjacent else 0
    wide = c.broadcast_to(values, [*tail[:front], *lead, *tail[front:]])
    order = [*range(front, front + count), *range(front), *range(front + count, count + len(rest))]
    updates = c.transpose(wide, order)
    updates = c.reshape(updates, (dims.product(lead), *tail))
    kind = "add" if accumulate else "set"
    written = scatter_rows(c, moved, c.flat(flat), updates, kind, "wrap_check")
    permuted = [own[axis] for axis in (*axes, *rest)]
    back = [[*axes, *rest].index(axis) for axis in range(len(own))]
    return c.transpose(c.reshape(written, permuted), back)


@lowering("aten.masked_select.default")
def masked_select(c: Context, x: Value, mask: Value) -> Value:
    return index(c, *_of_one_shape(c, x, mask))


def _of_one_shape(c: Context, x: Value, mask: Value) -> tuple[Value, list[Value | None]]:
    wide, chosen = c.broadcast(x, mask)
    if not type_of(wide).rank:
        wide, chosen = c.reshape(wide, (1,)), c.reshape(chosen, (1,))
    return wide, [chosen]


@lowering("aten.nonzero.default")
def nonzero(c: Context, x: Value) -> Value:
    """[n, rank]."""
    places = c.op("nonzero", c.reshape(x, shape_of(x) or (1,)), symbols=(next(c.fresh_names()),))
    if not type_of(x).rank:
        return c.full(0, _I64, (shape_of(places)[1], 0))
    return c.transpose(places, (1, 0))


@lowering("aten.diagonal.default", view=False)
@lowering("aten.diagonal_copy.default")
def diagonal(c: Context, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    a, b = c.axis(dim1, x), c.axis(dim2, x)
    rank = type_of(x).rank
    rest = [axis for axis in range(rank) if axis not in (a, b)]
    shape = shape_of(x)
    length = c.shape[-1]
    places = c.op("iota", dtype=_I64, shape=(length,), axis=0)
    row = c.op("add", places, max(-offset, 0))
    column = c.op("add", places, max(offset, 0))
    flat = c.op("add", c.op("mul", row, c.filled(shape[b], _I64, (length,))), column)
    moved = c.transpose(x, [*rest, a, b])
    joined = c.reshape(moved, (*(shape[axis] for axis in rest), shape[a] * shape[b]))
    return c.op("take", joined, flat, axis=rank - 2, mode="check")


@lowering("aten.diagonal_scatter.default")
def diagonal_scatter(
    c: Context, x: Value, source: Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Value:
    """x with `source` on a diagonal."""
    count = dims.product(shape_of(x))
    places = c.reshape(c.op("iota", dtype=_I64, shape=(count,), axis=0), shape_of(x))
    inner = c.declaring(TensorType(_I64, shape_of(source)))
    return put(c, x, diagonal(inner, places, offset, dim1, dim2), source)


@lowering("aten.one_hot.default")
def one_hot(c: Context, indices: Value, count: int = -1) -> Value:
    if count < 0:
        raise UnsupportedNode("num_classes must be given, since shapes depend on it")
    shape = (*shape_of(indices), count)
    places = c.op("iota", dtype=_I64, shape=shape, axis=len(shape) - 1)
    wide = c.op("broadcast", indices, shape=shape, dimensions=tuple(range(len(shape) - 1)))
    return c.convert(c.compare("eq", c.convert(wide, _I64), places), _I64)


@lowering("aten.histc.default")
def histogram(c: Context, x: Value, bins: int = 100, min: float = 0, max: float = 0) -> Value:
    """How many elements each part of [min, max], or of what they span, has; others do not count."""
    x = c.flat(x)
    low, high = (c.full(each, c.dtype, ()) for each in (min, max))
    if min == max:
        low, high = (c.reduce(x, [0], kind) for kind in ("min", "max"))
        one, same = c.fill(1, like=low), c.compare("eq", low, high)
        low = c.op("select", same, c.op("sub", low, one), low)
        high = c.op("select", same, c.op("add", high, one), high)
    low, high = (c.broadcast_to(each, shape_of(x)) for each in (low, high))
    inside = c.op("and", c.compare("ge", x, low), c.compare("le", x, high))
    place = c.op("div", c.op("sub", x, low), c.op("sub", high, low))
    place = c.op("mul", place, bins)
    place = c.op("min", c.convert(c.op("floor", place), _I64), c.full(bins - 1, _I64, shape_of(x)))
    place = c.op("select", inside, place, c.full(bins, _I64, shape_of(x)))
    counts = c.full(0, c.dtype, (bins + 1,))
    counts = scatter_elements(c, counts, 0, place, c.fill(1, like=x), "add")
    return c.sliced(counts, 0, 0, bins)

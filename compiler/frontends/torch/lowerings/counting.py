"""What equal elements make: medians and modes, distinct elements, how often each occurs or how many
lie between edges; and segments of neighbours. How many distinct ones there are is a dim that the
call finds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.indexed import scatter_elements, scatter_rows
from ingot.compiler.frontends.normalizing import narrow, widen
from ingot.compiler.frontends.ordering import count_before, sort_by, sort_with_places
from ingot.compiler.frontends.torch.lowering import Context, lowering
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


# ---- medians and modes


def _median(skips: bool) -> Callable[..., list[Value]]:
    """The lower one of two in the middle, and its place; of numbers alone if it `skips` NaN, else
    NaN where there is one."""

    def lower(c: Context, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
        if not type_of(x).rank:
            return [x, c.full(0, _I64, ())]
        axis, shape = c.axis(dim, x), shape_of(x)
        rising, places = sort_with_places(c, x, axis, False)
        middle = _middle(c, x, axis, skips)
        found = [c.gather_along(each, middle, axis, "check") for each in (rising, places)]
        rest = [*shape[:axis], *shape[axis + 1 :]]
        return found if keepdim else [c.reshape(each, rest) for each in found]

    return lower


def _middle(c: Context, x: Value, axis: int, skips: bool) -> Value:
    """The place of the median in sorted lines, whose numbers stand in front: a dim of 1."""
    size = shape_of(x)[axis]
    kept = [1 if at == axis else dim for at, dim in enumerate(shape_of(x))]
    half = c.filled(dims.floordiv(size - 1, 2), _I64, kept)
    if not type_of(x).dtype.is_float:
        return half
    is_number = c.convert(c.op("not", c.op("is_nan", x)), _I64)
    count = c.reduce(is_number, [axis], "add", keep=True)
    if not skips:
        whole = c.compare("eq", count, c.filled(size, _I64, kept))
        return c.op("select", whole, half, count)
    last = c.op("max", c.op("sub", count, 1), 0)
    return c.op("shift_right_arithmetic", last, 1)


def _of_all(c: Context, x: Value, skips: bool) -> Value:
    return c.reshape(_median(skips)(c, c.flat(x), 0)[0], ())


for _name, _skips in {"median": False, "nanmedian": True}.items():
    lowering(f"aten.{_name}.dim")(_median(_skips))
    lowering(f"aten.{_name}.default")(partial(_of_all, skips=_skips))


@lowering("aten.mode.default")
def mode(c: Context, x: Value, dim: int = -1, keepdim: bool = False) -> list[Value]:
    """Of the elements that occur most often the least one, and its last place."""
    if not type_of(x).rank:
        return [x, c.full(0, _I64, ())]
    axis, shape = c.axis(dim, x), shape_of(x)
    rising, places = sort_with_places(c, x, axis, False)
    at = c.op("iota", dtype=_I64, shape=shape, axis=axis)
    first = c.op("select", _begins(c, rising, axis), at, 0)
    first = c.op("cumulative", first, axis=axis, kind="max")
    best = c.op("arg_max", c.op("sub", at, first), axis=axis, dtype=_I64)
    best = c.keep_axes(best, shape, [axis])
    found = [c.gather_along(each, best, axis, "check") for each in (rising, places)]
    rest = [*shape[:axis], *shape[axis + 1 :]]
    return found if keepdim else [c.reshape(each, rest) for each in found]


def _begins(c: Context, x: Value, axis: int) -> Value:
    """Whether an element differs from the one before it along an axis, as the first one does."""
    shape, rank = shape_of(x), type_of(x).rank
    low, high = ([number if a == axis else 0 for a in range(rank)] for number in (1, -1))
    before = c.agree(c.padded(x, low, high), shape)
    at = c.op("iota", dtype=_I64, shape=shape, axis=axis)
    return c.op("or", c.compare("ne", x, before), c.compare("eq", at, 0))


# ---- distinct elements


@lowering("aten._unique2.default")
def distinct(
    c: Context, x: Value, ordered: bool = True, inverse: bool = False, counts: bool = False
) -> list[Value]:
    flat = c.flat(x)
    rising, order = sort_with_places(c, flat, 0, False)
    starts, numbers = _starts(c, _begins(c, rising, 0))
    of_each = scatter_elements(c, c.fill(0, like=numbers), 0, order, numbers, "set")
    return _found(c, c.op("take", rising, starts, axis=0, mode="check"), of_each, starts)


@lowering("aten.unique_consecutive.default")
def distinct_neighbours(
    c: Context, x: Value, inverse: bool = False, counts: bool = False, dim: int | None = None
) -> list[Value]:
    if dim is None:
        flat = c.flat(x)
        starts, numbers = _starts(c, _begins(c, flat, 0))
        return _found(c, c.op("take", flat, starts, axis=0, mode="check"), numbers, starts)
    axis = c.axis(dim, x)
    starts, numbers = _starts(c, _row_begins(c, _rows(c, x, axis)))
    return _found(c, c.op("take", x, starts, axis=axis, mode="check"), numbers, starts)


@lowering("aten.unique_dim.default")
def distinct_slices(
    c: Context, x: Value, dim: int, ordered: bool = True, inverse: bool = False,
    counts: bool = False,
) -> list[Value]:  # fmt: skip
    """Slices along an axis in the order of their elements, each once."""
    axis = c.axis(dim, x)
    rows = _rows(c, x, axis)
    count, width = shape_of(rows)
    if not isinstance(width, int) or not 0 < width <= 64:
        raise UnsupportedNode(f"its slices have {width} elements, expected 1 to 64")
    columns = [c.reshape(c.sliced(rows, 1, at, at + 1), (count,)) for at in range(width)]
    order = sort_by(c, columns, 0, False)[-1]
    rising = c.op("take", rows, order, axis=0, mode="check")
    starts, numbers = _starts(c, _row_begins(c, rising))
    of_each = scatter_elements(c, c.fill(0, like=numbers), 0, order, numbers, "set")
    places = c.op("take", order, starts, axis=0, mode="check")
    return _found(c, c.op("take", x, places, axis=axis, mode="check"), of_each, starts)


def _rows(c: Context, x: Value, axis: int) -> Value:
    """[n, k]: the slices along an axis."""
    rest = [at for at in range(type_of(x).rank) if at != axis]
    count = dims.product(shape_of(x)[at] for at in rest)
    return c.reshape(c.transpose(x, [axis, *rest]), (shape_of(x)[axis], count))


def _row_begins(c: Context, rows: Value) -> Value:
    return c.reduce(_begins(c, rows, 0), [1], "or")


def _starts(c: Context, begins: Value) -> tuple[Value, Value]:
    """Where the groups begin [g], and the number of the group of each element [n]."""
    places = c.op("nonzero", begins, symbols=(next(c.fresh_names()),))
    sums = c.op("cumulative", c.convert(begins, _I64), axis=0, kind="add")
    return c.reshape(places, shape_of(places)[1:]), c.op("sub", sums, 1)


def _found(c: Context, values: Value, numbers: Value, starts: Value) -> list[Value]:
    """The results: what is not asked for is empty."""
    (groups,), (count,) = shape_of(starts), shape_of(numbers)
    behind = c.padded(starts, (-1,), (1,), c.size(count))
    sizes = c.op("sub", c.agree(behind, (groups,)), starts)
    made: list[Value] = [values]
    for found, declared in zip((numbers, sizes), c.declared[1:], strict=True):
        shape = () if declared is None else declared.shape
        is_asked = declared is not None and shape != (0,)
        shape = (groups,) if found is sizes else shape
        made.append(c.reshape(found, shape) if is_asked else c.full(0, _I64, (0,)))
    return made


# ---- how often


@lowering("aten.bincount.default")
def count_of_each(
    c: Context, x: Value, weights: Value | None = None, minlength: Dim = 0
) -> Value:  # fmt: skip
    """How often 0, 1, ... occur, or the sums of their weights."""
    numbers = c.convert(x, _I64)
    greatest = c.reduce(numbers, [0], "max")
    length = c.op("add", greatest, 1)
    size = _measured(c, c.op("max", length, c.size(minlength)))
    added = c.convert(weights, c.dtype) if weights is not None else c.full(1, c.dtype, shape_of(x))
    return scatter_elements(c, c.filled(0, c.dtype, (size,)), 0, numbers, added, "add")


def _measured(c: Context, number: Value) -> Dim:
    """The dim that a number of rank 0 is."""
    (part,) = c.amounts.parts(c.builder, number)
    if not isinstance(part, Value):
        return part
    low, high = c.bounds(c.hint)
    name = partial(c.fresh, c.hint)
    return c.amounts.define_size(c.builder, part, name, f"the number '{c.hint}'", low or 0, high)


@lowering("aten.repeat_interleave.Tensor")
def repeated_places(c: Context, repeats: Value, *, output_size: Dim | None = None) -> Value:
    """0, 1, ..., each as often as `repeats` says."""
    counts = c.convert(repeats, _I64)
    ends = c.op("cumulative", counts, axis=0, kind="add")
    size = _measured(c, c.reduce(counts, [0], "add")) if output_size is None else output_size
    passed = scatter_rows(c, c.filled(0, _I64, (size,)), ends, c.fill(1, like=ends), "add")
    found = c.op("cumulative", passed, axis=0, kind="add")
    return c.convert(found, c.dtype)


@lowering("aten.nonzero_static.default")
def first_places(c: Context, x: Value, *, size: Dim, fill_value: int = -1) -> Value:
    """[size, rank]: the places of the first elements that are not 0; `fill_value` behind them."""
    shape = shape_of(x)
    if not shape:
        return c.full(fill_value, _I64, (size, 0))
    kept = c.flat(c.convert(x, "i1"))
    flags = c.convert(kept, _I64)
    before = c.op("cumulative", flags, axis=0, kind="add", exclusive=True)
    target = c.op("select", kept, before, -1)
    at = c.op("iota", dtype=_I64, shape=shape_of(kept), axis=0)
    found = scatter_rows(c, c.filled(-1, _I64, (size,)), target, at, "set")
    is_none = c.compare("lt", found, 0)
    columns = []
    for axis, dim in enumerate(shape):
        step = c.filled(dims.product(shape[axis + 1 :]), _I64, (size,))
        place = c.op("rem", c.op("div", found, step), c.filled(dim, _I64, (size,)))
        place = c.op("select", is_none, fill_value, place)
        columns.append(c.reshape(place, (size, 1)))
    return c.op("concatenate", *columns, axis=1)


# ---- histograms and segments


@lowering("aten.histogram.bins_tensor", "aten.histogram.bin_ct")
def histogram(
    c: Context, x: Value, bins: Any = 100, *, range: Sequence[float] | None = None,
    weight: Value | None = None, density: bool = False,
) -> list[Value]:  # fmt: skip
    """How many elements, or what weights, lie between neighbouring edges, and the edges; the last
    bin has both of its own."""
    x = c.flat(x)
    edges = bins if isinstance(bins, Value) else _even_edges(c, x, bins, range)
    return [_counted(c, [x], [edges], weight, density), edges]


@lowering("aten._histogramdd_bin_edges.default")
def edges_by_axis(
    c: Context, x: Value, bins: Sequence[Dim], *, range: Sequence[float] | None = None, **_: Any
) -> list[Value]:
    ends: Any = [None] * len(bins)
    if range is not None:
        ends = zip(range[::2], range[1::2], strict=True)
    columns = _columns(c, x, len(bins))
    return [_even_edges(c, *each) for each in zip(columns, bins, ends, strict=True)]


@lowering("aten._histogramdd_from_bin_cts.default", "aten._histogramdd_from_bin_tensors.default")
def histogram_of_points(
    c: Context, x: Value, bins: Sequence[Any], *, range: Sequence[float] | None = None,
    weight: Value | None = None, density: bool = False,
) -> Value:  # fmt: skip
    """`histogram` of points [..., axes] between edges of each axis: [bins, ...]."""
    are_edges = all(isinstance(each, Value) for each in bins)
    edges = bins if are_edges else edges_by_axis(c, x, bins, range=range)
    return _counted(c, _columns(c, x, len(bins)), edges, weight, density)


def _columns(c: Context, x: Value, count: int) -> list[Value]:
    """The coordinates of points [..., count], of each axis in one line."""
    last = type_of(x).rank - 1
    return [c.flat(c.sliced(x, last, at, at + 1)) for at in range(count)]


def _counted(
    c: Context, columns: Sequence[Value], edges: Sequence[Value], weight: Value | None,
    density: bool,
) -> Value:  # fmt: skip
    """How many points, or what weights of them, lie in each bin; `density`: of each unit of the
    bin's size, and the whole is 1."""
    element, (count,) = type_of(columns[0]).dtype, shape_of(columns[0])
    sizes = [shape_of(each)[0] for each in edges]
    grid = [size + 1 for size in sizes]  # the first is below all edges, the last above
    place = c.filled(0, _I64, (count,))
    for x, line, size in zip(columns, edges, sizes, strict=True):
        at = count_before(c, line, x, partial(c.compare, "le"))
        end = c.broadcast_to(c.sliced(line, 0, size - 1, size), (count,))
        at = c.op("sub", at, c.convert(c.compare("eq", x, end), _I64))
        row = c.broadcast_to(c.size(size + 1, _I64), (count,))
        place = c.op("add", c.op("mul", place, row), at)
    added = c.filled(1, element, (count,)) if weight is None else c.convert(c.flat(weight), element)
    sums = c.full(0, element, (dims.product(grid),))
    found = c.reshape(scatter_elements(c, sums, 0, place, added, "add"), grid)
    for axis, size in enumerate(sizes):
        found = c.sliced(found, axis, 1, size)
    if not density:
        return found
    axes = list(range(len(sizes)))
    volume = c.broadcast_to(c.reduce(found, axes, "add"), shape_of(found))
    for axis, (line, size) in enumerate(zip(edges, sizes, strict=True)):
        width = c.op("sub", c.sliced(line, 0, 1, size), c.sliced(line, 0, 0, size - 1))
        wide = c.op("broadcast", width, shape=shape_of(found), dimensions=(axis,))
        volume = c.op("mul", volume, wide)
    return c.op("div", found, volume)


def _even_edges(c: Context, x: Value, bins: Dim, ends: Sequence[float] | None) -> Value:
    """Those of bins of one width from the least to the greatest element, or between `ends`."""
    element = type_of(x).dtype
    if ends is not None:
        low, high = (c.full(each, element, ()) for each in ends)
    elif shape_of(x) == (0,):
        low, high = (c.full(each, element, ()) for each in (0, 1))
    else:
        low, high = (c.reduce(x, [0], kind) for kind in ("min", "max"))
    half, same = c.fill(0.5, like=low), c.compare("eq", low, high)
    low = c.op("select", same, c.op("sub", low, half), low)
    high = c.op("select", same, c.op("add", high, half), high)
    places = c.convert(c.op("iota", dtype=_I64, shape=(bins + 1,), axis=0), element)
    step = c.op("div", c.op("sub", high, low), c.size(bins, element))
    left = c.op("sub", c.broadcast_to(c.size(bins, element), (bins + 1,)), places)
    low, high, step = (c.broadcast_to(each, (bins + 1,)) for each in (low, high, step))
    rising = c.op("add", low, c.op("mul", step, places))
    falling = c.op("sub", high, c.op("mul", step, left))
    return c.op("select", c.compare("lt", places, left), rising, falling)


def _check_none(c: Context, wrong: Value, what: str) -> None:
    """That none of the elements is true, when the program runs."""
    axes = list(range(type_of(wrong).rank))
    number, name = c.reduce(c.convert(wrong, _I64), axes, "add"), partial(c.fresh, "wrong")
    c.amounts.define_size(c.builder, number, name, f"the number of {what}", 0, 0)


_SEGMENTS = {"sum": 0, "mean": 0, "max": -math.inf, "min": math.inf, "prod": 1}


def _rows_of_segments(c: Context, first: Value, ends: Value, count: Dim) -> Value:
    """i64[b * count]: in which of the b * s segments each element lies, as many as end in front of
    it of its batch; -1 in none."""
    batch, size = shape_of(ends)
    step = c.broadcast_to(c.size(count + 1), (batch, size))
    line = c.op("iota", dtype=_I64, shape=(batch, size), axis=0)
    inside = c.op("min", ends, c.broadcast_to(c.size(count), (batch, size)))
    inside = c.op("max", inside, 0)
    at = c.op("add", inside, c.op("mul", line, step))
    passed = c.full(0, _I64, (batch * (count + 1),))
    at = c.reshape(at, (batch * size,))
    passed = c.reshape(scatter_rows(c, passed, at, c.fill(1, like=at), "add"), (batch, count + 1))
    number = c.op("cumulative", passed, axis=1, kind="add")
    grid = (batch, count)
    number = c.sliced(number, 1, 0, count)
    place = c.op("iota", dtype=_I64, shape=grid, axis=1)
    least = c.reduce(first, [1], "min")
    before = c.compare("lt", place, c.op("broadcast", least, shape=grid, dimensions=(0,)))
    behind = c.compare("ge", number, c.broadcast_to(c.size(size), grid))
    line = c.op("iota", dtype=_I64, shape=grid, axis=0)
    row = c.op("add", number, c.op("mul", line, c.broadcast_to(c.size(size), grid)))
    none = c.op("or", before, behind)
    return c.reshape(c.op("select", none, c.full(-1, _I64, grid), row), (batch * count,))


@lowering("aten.segment_reduce.default")
def reduce_segments(
    c: Context, x: Value, reduce: str, *, lengths: Value | None = None,
    indices: Value | None = None, offsets: Value | None = None, axis: int = 0,
    unsafe: bool = False, initial: Any = None,
) -> Value:  # fmt: skip
    """Neighbouring slices of x[b..., n, ...] combined to [b..., s, ...]: as many as `lengths`
    [b..., s], or those between `offsets` [b..., s + 1]."""
    if indices is not None or reduce not in _SEGMENTS:
        raise UnsupportedNode("it takes lengths or offsets, and one of " + ", ".join(_SEGMENTS))
    axis, shape, given = c.axis(axis, x), shape_of(x), lengths if offsets is None else offsets
    assert given is not None
    batch, count, rest = dims.product(shape[:axis]), shape[axis], shape[axis + 1 :]
    given = c.convert(c.reshape(given, (batch, shape_of(given)[-1])), _I64)
    size = shape_of(given)[1]
    if offsets is None:
        ends = c.op("cumulative", given, axis=1, kind="add")
        first = c.op("sub", ends, given)
        if not unsafe:
            sums = c.reduce(given, [1], "add")
            wanted = c.broadcast_to(c.size(count), shape_of(sums))
            _check_none(c, c.compare("ne", sums, wanted), "sums of lengths that are not the axis")
            _check_none(c, c.compare("lt", given, 0), "lengths below 0")
    else:
        first, ends = (c.sliced(given, 1, at, size - 1 + at) for at in (0, 1))
        size = size - 1
    width = dims.product(rest)
    wide = widen(c, c.reshape(x, (batch * count, width)))
    kind = {"sum": "add", "mean": "add", "prod": "mul"}.get(reduce, reduce)
    rows = _rows_of_segments(c, first, ends, count)
    found = c.full(_SEGMENTS[reduce], type_of(wide).dtype, (batch * size, width))
    found = scatter_rows(c, found, rows, wide, kind)
    if initial is not None:
        start = c.fill(initial, like=found)
        found = c.op(kind, found, start)
    if reduce == "mean":
        number = c.convert(
            c.reshape(c.op("sub", ends, first), (batch * size,)), type_of(wide).dtype
        )
        number = c.op("broadcast", number, shape=shape_of(found), dimensions=(0,))
        is_empty = c.compare("eq", number, 0)
        none = c.fill(math.nan if initial is None else initial, like=found)
        found = c.op("select", is_empty, none, c.op("div", found, number))
    return narrow(c, c.reshape(found, c.shape), x)

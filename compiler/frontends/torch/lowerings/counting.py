"""What equal elements make: medians and modes, distinct elements, and how often each occurs. How
many distinct ones there are is a dim that the call finds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.indexed import scatter_elements
from ingot.compiler.frontends.ordering import sort_by, sort_with_places
from ingot.compiler.frontends.torch.lowering import Context, lowering
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


def _flat(c: Context, x: Value) -> Value:
    return c.reshape(x, (dims.product(shape_of(x)),))


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
    last = c.op("max", c.op("sub", count, c.fill(1, like=count)), c.fill(0, like=count))
    return c.op("shift_right_arithmetic", last, c.fill(1, like=last))


def _of_all(c: Context, x: Value, skips: bool) -> Value:
    return c.reshape(_median(skips)(c, _flat(c, x), 0)[0], ())


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
    first = c.op("select", _begins(c, rising, axis), at, c.fill(0, like=at))
    first = c.op("cumulative", first, axis=axis, kind="max", exclusive=False, reverse=False)
    best = c.op("arg_max", c.op("sub", at, first), axis=axis, dtype=_I64, last=False)
    best = c.keep_axes(best, shape, [axis])
    found = [c.gather_along(each, best, axis, "check") for each in (rising, places)]
    rest = [*shape[:axis], *shape[axis + 1 :]]
    return found if keepdim else [c.reshape(each, rest) for each in found]


def _begins(c: Context, x: Value, axis: int) -> Value:
    """Whether an element differs from the one before it along an axis, as the first one does."""
    shape, rank = shape_of(x), type_of(x).rank
    low, high = ([number if a == axis else 0 for a in range(rank)] for number in (1, -1))
    filling = c.full(0, type_of(x).dtype, ())
    before = c.agree(c.op("pad", x, filling, low=tuple(low), high=tuple(high)), shape)
    at = c.op("iota", dtype=_I64, shape=shape, axis=axis)
    return c.op("or", c.compare("ne", x, before), c.compare("eq", at, c.fill(0, like=at)))


# ---- distinct elements


@lowering("aten._unique2.default")
def distinct(
    c: Context, x: Value, ordered: bool = True, inverse: bool = False, counts: bool = False
) -> list[Value]:
    flat = _flat(c, x)
    rising, order = sort_with_places(c, flat, 0, False)
    starts, numbers = _starts(c, _begins(c, rising, 0))
    of_each = scatter_elements(c, c.fill(0, like=numbers), 0, order, numbers, "set")
    return _found(c, c.op("take", rising, starts, axis=0, mode="check"), of_each, starts)


@lowering("aten.unique_consecutive.default")
def distinct_neighbours(
    c: Context, x: Value, inverse: bool = False, counts: bool = False, dim: int | None = None
) -> list[Value]:
    if dim is None:
        flat = _flat(c, x)
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
    sums = c.op("cumulative", c.convert(begins, _I64), axis=0, kind="add", exclusive=False,
                reverse=False)  # fmt: skip
    return c.reshape(places, shape_of(places)[1:]), c.op("sub", sums, c.fill(1, like=sums))


def _found(c: Context, values: Value, numbers: Value, starts: Value) -> list[Value]:
    """The results: what is not asked for is empty."""
    (groups,), (count,) = shape_of(starts), shape_of(numbers)
    behind = c.op("pad", starts, c.size(count), low=(-1,), high=(1,))
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
    length = c.op("add", greatest, c.fill(1, like=greatest))
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
    ends = c.op("cumulative", counts, axis=0, kind="add", exclusive=False, reverse=False)
    size = _measured(c, c.reduce(counts, [0], "add")) if output_size is None else output_size
    passed = c.op(
        "scatter",
        c.filled(0, _I64, (size,)),
        c.reshape(ends, (*shape_of(ends), 1)),
        c.fill(1, like=ends),
        update_window_dims=(),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
        index_vector_dim=1,
        kind="add",
        mode="skip",
    )
    found = c.op("cumulative", passed, axis=0, kind="add", exclusive=False, reverse=False)
    return c.convert(found, c.dtype)


@lowering("aten.nonzero_static.default")
def first_places(c: Context, x: Value, *, size: Dim, fill_value: int = -1) -> Value:
    """[size, rank]: the places of the first elements that are not 0; `fill_value` behind them."""
    shape = shape_of(x)
    if not shape:
        return c.full(fill_value, _I64, (size, 0))
    kept = _flat(c, c.convert(x, "i1"))
    flags = c.convert(kept, _I64)
    before = c.op("cumulative", flags, axis=0, kind="add", exclusive=True, reverse=False)
    target = c.op("select", kept, before, c.fill(-1, like=before))
    at = c.op("iota", dtype=_I64, shape=shape_of(kept), axis=0)
    found = c.op(
        "scatter",
        c.filled(-1, _I64, (size,)),
        c.reshape(target, (*shape_of(target), 1)),
        at,
        update_window_dims=(),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
        index_vector_dim=1,
        kind="set",
        mode="skip",
    )
    is_none = c.compare("lt", found, c.fill(0, like=found))
    columns = []
    for axis, dim in enumerate(shape):
        step = c.filled(dims.product(shape[axis + 1 :]), _I64, (size,))
        place = c.op("rem", c.op("div", found, step), c.filled(dim, _I64, (size,)))
        place = c.op("select", is_none, c.fill(fill_value, like=place), place)
        columns.append(c.reshape(place, (size, 1)))
    return c.op("concatenate", *columns, axis=1)

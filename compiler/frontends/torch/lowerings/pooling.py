"""Pooling over windows, and to a given size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.normalizing import mean, narrow, widen
from ingot.compiler.frontends.pooling import Window, averaged, chosen, pooled
from ingot.compiler.frontends.torch.lowering import Context, lowering, per_axis
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


def _window(
    x: Value, count: int, kernel: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: bool = False,
) -> Window:  # fmt: skip
    """The window over the last axes of x, as torch describes it."""
    sizes = tuple(per_axis(kernel, count))
    strides = tuple(per_axis(stride, count)) if stride else sizes
    pads = tuple((pad, pad) for pad in per_axis(padding, count))
    window = Window(sizes, strides, pads, tuple(per_axis(dilation, count)))
    return window.ceiled(shape_of(x)[-count:]) if ceil_mode else window


def _places(c: Context, shape: Sequence[Dim], lead: int) -> Value:
    """Of each element its place in its plane, which the axes from `lead` on are."""
    plane = c.op("iota", dtype=_I64, shape=(dims.product(shape[lead:]),), axis=0)
    return c.broadcast_to(c.reshape(plane, shape[lead:]), shape)


def _adaptive_max_pool(c: Context, x: Value, sizes: Sequence[Dim]) -> list[Value]:
    """Also the places. Windows of an axis get the length of its longest, by elements twice."""
    shape, lead = shape_of(x), type_of(x).rank - len(sizes)
    known = _places(c, shape, lead)
    lengths = []
    for axis, size in enumerate(sizes, lead):
        own = shape[axis]
        if not isinstance(own, int) or not isinstance(size, int) or not size:
            raise UnsupportedNode(f"it adapts {own} to {size}: both must be known, and not 0")
        windows = [(at * own // size, -(-(at + 1) * own // size)) for at in range(size)]
        lengths.append(max(last - first for first, last in windows))
        if own % size:
            taken = [min(first + step, last - 1) for first, last in windows
                     for step in range(lengths[-1])]  # fmt: skip
            places = c.constant(taken, "i64")
            x, known = (c.op("take", each, places, axis=axis, mode="check") for each in (x, known))
    return _greatest(c, x, known, _window(x, len(sizes), lengths))


def _fractional(
    c: Context, x: Value, sizes: Sequence[int], counts: Sequence[int], samples: Value
) -> list[Value]:
    """The greatest of each window, and its place; where windows of a plane begin follows from one
    number below 1 for each axis, which `samples` [..., axes] has, in 2D the last axis first."""
    lead, shape = type_of(x).rank - len(sizes), shape_of(x)
    samples = c.convert(samples, type_of(x).dtype)
    planes = shape_of(x)[:lead]
    known = _places(c, shape, lead)
    for place, (size, count) in enumerate(zip(sizes, counts, strict=True)):
        axis = lead + place
        at = len(sizes) - 1 - place if len(sizes) == 2 else place
        sample = c.reshape(c.sliced(samples, type_of(samples).rank - 1, at, at + 1), (*planes, 1))
        starts = _starts(c, sample, shape[axis], size, count)
        inner = c.op("iota", dtype=_I64, shape=(*planes, count, size), axis=lead + 1)
        wide = c.broadcast_to(c.reshape(starts, (*planes, count, 1)), shape_of(inner))
        taken = c.reshape(c.op("add", wide, inner), (*planes, count * size))
        now = [*shape_of(x)]
        now[axis] = count * size
        taken = c.op("broadcast", taken, shape=tuple(now), dimensions=(*range(lead), axis))
        x, known = (c.gather_along(each, taken, axis, "check") for each in (x, known))
    return _greatest(c, x, known, _window(x, len(sizes), sizes))


def _starts(c: Context, sample: Value, own: Dim, size: int, count: int) -> Value:
    """Where windows of an axis begin: i64[..., count]."""
    shape = (*shape_of(sample)[:-1], count)
    last = c.filled(own - size, _I64, shape)
    if count == 1:
        return last
    step = c.op("div", c.size(own - size, type_of(sample).dtype),
                c.size(count - 1, type_of(sample).dtype))  # fmt: skip
    step, wide = (c.broadcast_to(each, shape) for each in (step, sample))
    index = c.op("iota", dtype=_I64, shape=shape, axis=len(shape) - 1)
    first, moved = (
        c.convert(c.op("trunc", c.op("mul", each, step)), _I64)
        for each in (wide, c.op("add", c.convert(index, type_of(sample).dtype), wide))
    )
    is_last = c.compare("eq", index, count - 1)
    return c.op("select", is_last, last, c.op("sub", moved, first))


def _greatest(c: Context, x: Value, known: Value, window: Window) -> list[Value]:
    """The greatest element of each window, and its number in `known`."""
    is_float = type_of(x).dtype.is_float

    def keeps(inner: Builder, best: Sequence[Value], other: Sequence[Value]) -> Value:
        held = inner.value("not", inner.value("compare", best[0], other[0], direction="lt"))
        if not is_float:
            return held
        return inner.value("and", inner.value("not", inner.value("is_nan", other[0])), held)

    return chosen(c, x, known, window, keeps)


def _average_pool(
    c: Context, x: Value, count: int, kernel: Any, stride: Any = (), padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Value:  # fmt: skip
    window = _window(x, count, kernel, stride, padding, 1, ceil_mode)
    if divisor_override is None:
        return averaged(c, x, window, include=count_include_pad)
    return narrow(c, c.op("div", pooled(c, widen(c, x), "add", window), divisor_override), x)


def _register(count: int) -> None:
    def max_pool(c: Context, x: Value, *given: Any) -> Value:
        return pooled(c, x, "max", _window(x, count, *given))

    def with_places(c: Context, x: Value, *given: Any) -> list[Value]:
        known = _places(c, shape_of(x), type_of(x).rank - count)
        return _greatest(c, x, known, _window(x, count, *given))

    def average(c: Context, x: Value, *given: Any, **named: Any) -> Value:
        return _average_pool(c, x, count, *given, **named)

    def adaptive_average(c: Context, x: Value, size: Any) -> Value:
        return _adaptive(c, x, per_axis(size, count), "add")

    def adaptive_max(c: Context, x: Value, size: Any) -> list[Value]:
        return _adaptive_max_pool(c, x, per_axis(size, count))

    def fractional(c: Context, x: Value, kernel: Any, size: Any, samples: Value) -> list[Value]:
        return _fractional(c, x, per_axis(kernel, count), per_axis(size, count), samples)

    if count > 1:
        lowering(f"aten.fractional_max_pool{count}d.default")(fractional)
    lowering(f"aten.adaptive_max_pool{count}d.default")(adaptive_max)
    lowering(f"aten.max_pool{count}d.default")(max_pool)
    lowering(f"aten.max_pool{count}d_with_indices.default")(with_places)
    lowering(f"aten.avg_pool{count}d.default")(average)
    name = f"adaptive_avg_pool{count}d"
    lowering(*(f"aten.{each}.default" for each in (name, f"_{name}")))(adaptive_average)


for _count in (1, 2, 3):
    _register(_count)


def _adaptive(c: Context, x: Value, sizes: Sequence[Dim], kind: str) -> Value:
    """The mean of whole axes, then axis by axis of equal windows, or of windows that torch lays."""
    wide, first = widen(c, x), type_of(x).rank - len(sizes)
    whole = [first + place for place, size in enumerate(sizes) if size == 1]
    if whole:
        wide = c.keep_axes(mean(c, wide, whole), shape_of(x), whole)
    for place, size in enumerate(sizes):
        wide = _adapted(c, wide, first + place, size)
    return narrow(c, wide, x)


def _adapted(c: Context, x: Value, axis: int, size: Dim) -> Value:
    own = shape_of(x)[axis]
    if size == own:
        return x
    if not isinstance(own, int) or not isinstance(size, int):
        raise UnsupportedNode("it adapts a symbolic dim to a size other than 1")
    if own % size == 0:
        shape = list(shape_of(x))
        split = c.reshape(x, [*shape[:axis], size, own // size, *shape[axis + 1 :]])
        return mean(c, split, [axis + 1])
    parts = []
    for place in range(size):
        first, last = place * own // size, -(-(place + 1) * own // size)
        part = mean(c, c.sliced(x, axis, first, last), [axis])
        parts.append(c.keep_axes(part, shape_of(x), [axis]))
    return c.op("concatenate", *parts, axis=axis)

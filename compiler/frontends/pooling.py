"""Pooling over windows of some axes, next to each other, for all front ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ingot.compiler.frontends.emitter import Emitter, shape_of, type_of
from ingot.compiler.frontends.normalizing import narrow, widen
from ingot.compiler.frontends.windows import Windows, select_elements
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim

__all__ = ["Window", "averaged", "chosen", "pooled", "same_padding"]

Pairs = tuple[tuple[Dim, Dim], ...]


@dataclass(frozen=True)
class Window:
    """A window over axes; padding as (before, after) of each, and what stands behind that so that
    the last window begins within the padded axis (`ceiled`)."""

    sizes: tuple[Dim, ...]
    strides: tuple[int, ...]
    padding: Pairs
    dilations: tuple[int, ...]
    extra: tuple[Dim, ...] = ()

    def ceiled(self, spatial: Sequence[Dim]) -> Window:
        """The window for axes that are not cut where a last stride does not fit."""
        extra: list[Dim] = []
        columns = zip(spatial, self.sizes, self.strides, self.padding, self.dilations, strict=True)
        for dim, size, stride, (low, high), dilation in columns:
            reach = (size - 1) * dilation + 1
            count = dims.ceildiv(dim + low + high - reach, stride) + 1
            # a last window that would see nothing but padding is left out
            count = dims.minimum(count, dims.ceildiv(dim + low, stride))
            extra.append(dims.maximum((count - 1) * stride + reach - dim - low - high, 0))
        return replace(self, extra=tuple(extra))

    @property
    def ends(self) -> Pairs:
        """All that stands before and behind each axis."""
        more = self.extra or (0,) * len(self.sizes)
        pairs = zip(self.padding, more, strict=True)
        return tuple((low, high + behind) for (low, high), behind in pairs)


def same_padding(
    spatial: Sequence[Dim],
    sizes: Sequence[Dim],
    strides: Sequence[Dim],
    dilations: Sequence[Dim],
    upper: bool = True,
) -> Pairs:
    """What stands before and behind each axis, so that windows begin at every stride; the odd one
    behind it if `upper`."""
    pairs: list[tuple[Dim, Dim]] = []
    for dim, size, stride, dilation in zip(spatial, sizes, strides, dilations, strict=True):
        reach = (size - 1) * dilation + 1
        total = dims.maximum((dims.ceildiv(dim, stride) - 1) * stride + reach - dim, 0)
        small = dims.floordiv(total, 2)
        pairs.append((small, total - small) if upper else (total - small, small))
    return tuple(pairs)


def pooled(c: Emitter, x: Value, kind: str, window: Window, first: int | None = None) -> Value:
    """The elements of each window combined; the window's axes begin at `first`, or are the last."""
    first, behind = _around(x, window, first)
    return c.op(
        "reduce_window",
        x,
        kind=kind,
        window=(*[1] * first, *window.sizes, *[1] * behind),
        strides=(*[1] * first, *window.strides, *[1] * behind),
        padding=(*[(0, 0)] * first, *window.ends, *[(0, 0)] * behind),
        window_dilation=(*[1] * first, *window.dilations, *[1] * behind),
    )


def _around(x: Value, window: Window, first: int | None) -> tuple[int, int]:
    """How many axes are before those of the window, and behind."""
    rest = type_of(x).rank - len(window.sizes)
    return (rest, 0) if first is None else (first, rest - first)


def averaged(
    c: Emitter,
    given: Value,
    window: Window,
    *,
    include: bool = False,
    whole: bool = False,
    first: int | None = None,
) -> Value:
    """The mean of each window. With `include`, places of the padding count; if `whole`, so do those
    behind it, which a `ceiled` window reaches."""
    x = widen(c, given)
    total = pooled(c, x, "add", window, first)
    padded = any(pair != (0, 0) for pair in window.padding)
    if (include and whole) or (not any(window.extra) and (include or not padded)):
        count = c.size(dims.product(window.sizes), type_of(x).dtype)
    else:
        before, behind = _around(x, window, first)
        spatial = shape_of(x)[before : before + len(window.sizes)]
        if include:
            pairs = zip(spatial, window.padding, strict=True)
            spatial = tuple(dim + low + high for dim, (low, high) in pairs)
            window = replace(window, padding=((0, 0),) * len(spatial))
        ones = c.full(1, type_of(x).dtype, (*[1] * before, *spatial, *[1] * behind))
        count = pooled(c, ones, "add", window, first)
    return narrow(c, c.op("div", total, c.broadcast_to(count, shape_of(total))), given)


def chosen(
    c: Emitter,
    x: Value,
    numbers: Value,
    window: Window,
    keeps: Callable[[Builder, Sequence[Value], Sequence[Value]], Value],
) -> list[Value]:
    """The element that each window of the last axes chooses, and its number, as `select_elements`
    has them."""
    ones = (1,) * (type_of(x).rank - len(window.sizes))
    if any(pair != (0, 0) for pair in window.ends):
        ends = (*[(0, 0)] * len(ones), *window.ends)
        low, high = (tuple(pair[end] for pair in ends) for end in (0, 1))
        x, numbers = c.padded(x, low, high), c.padded(numbers, low, high, -1)
    sizes, strides, dilations = (
        (*ones, *each) for each in (window.sizes, window.strides, window.dilations)
    )
    windows = Windows(sizes, strides, dilations, shape_of(x))
    return select_elements(c.builder, [x], numbers, windows, keeps)

"""Windows and spectra of signals, which torch decomposes where it may."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.fourier import fitted, over_axes
from ingot.compiler.frontends.indexed import rolled
from ingot.compiler.frontends.torch.complex_values import ComplexValue, complex_lowering
from ingot.compiler.frontends.torch.lowering import COMPOSED, LOWERINGS, Context, lowering
from ingot.compiler.ir import TensorType, Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []


def _window(name: str, usual: Sequence[float]) -> None:
    """A sum of cosines, of which `usual` are the factors; the first two may be given."""

    def lower(c: Context, length: Dim, periodic: bool = True, *given: float, **__: Any) -> Value:
        factors = (*given, *usual[len(given) :])
        wide = dtype("f64")
        places = c.op("iota", dtype=dtype("i64"), shape=c.shape, axis=0)
        period = length if periodic else dims.maximum(length - 1, 1)
        turn = c.op("div", c.convert(places, wide), c.filled(period, wide, c.shape))
        found = c.fill(factors[0] if length != 1 else 1, like=turn)
        for count, factor in enumerate(factors[1:] if length != 1 else (), 1):
            angle = c.op("mul", turn, 2 * math.pi * count)
            wave = c.op("mul", c.op("cos", angle), (-1) ** count * factor)
            found = c.op("add", found, wave)
        return c.convert(found, c.dtype)

    forms = ("default", "periodic", "periodic_alpha", "periodic_alpha_beta")
    names = [f"aten.{name}_window.{form}" for form in forms]
    COMPOSED.update(names)
    lowering(*names)(lower)


_window("hann", (0.5, 0.5))
_window("hamming", (0.54, 0.46))
_window("blackman", (0.42, 0.5, 0.08))


def _spectra(
    c: Context, x: Any, points: int, hop: int | None = None, length: int | None = None,
    window: Any = None, normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, align_to_window: bool | None = None,
) -> ComplexValue:  # fmt: skip
    """[..., n] -> [..., frequencies, frames]."""
    parts: tuple[Value, ...] = x.parts if isinstance(x, ComplexValue) else (x,)
    if window is not None and isinstance(window, ComplexValue):
        raise UnsupportedNode("its window is complex: use a real one")
    if return_complex is False:
        raise UnsupportedNode("its result are pairs of numbers: set return_complex=True")
    own = points if length is None else length
    window = c.full(1, type_of(parts[0]).dtype, (own,)) if window is None else window
    before = (points - own) // 2
    zeros = c.full(0, type_of(window).dtype, (before,))
    window = fitted(c, c.op("concatenate", zeros, window, axis=0), 0, points)
    if align_to_window:
        parts = tuple(_around(c, each, before) for each in parts)
    frames = c.declared[0].shape[-1]  # type: ignore[union-attr]
    shape = (*shape_of(parts[0])[:-1], frames, points)
    inner = c.declaring(TensorType(type_of(parts[0]).dtype, shape))
    step = points // 4 if hop is None else hop
    rows = [LOWERINGS["aten.unfold.default"](inner, each, -1, points, step) for each in parts]
    weights = c.broadcast_to(window, shape)
    rows = [c.op("mul", each, weights) for each in rows]
    one_sided = len(parts) == 1 and onesided is not False
    pair = (rows[0], rows[1] if len(rows) > 1 else None)
    found = over_axes(c, pair, [len(shape) - 1], one_sided=one_sided)
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    turned = [c.transpose(each, order) for each in found]
    if normalized:
        factor = 1 / math.sqrt(points)
        turned = [c.op("mul", each, factor) for each in turned]
    return ComplexValue(*turned)


complex_lowering("aten.stft.default")(_spectra)


def _around(c: Context, x: Value, count: int) -> Value:
    """x with so many zeros at both ends of its last axis."""
    ends = (*[0] * (type_of(x).rank - 1), count)
    return c.padded(x, ends, ends)


def _shifted(name: str, extra: int) -> None:
    """The middle moves to the front, or back."""

    def lower(c: Context, x: Any, axes: Any = None) -> Any:
        if isinstance(x, ComplexValue):
            return ComplexValue(*(lower(c, each, axes) for each in x.parts))
        for axis in c.axes(axes, x):
            size = shape_of(x)[axis]
            x = rolled(c, x, axis, dims.floordiv(size + extra, 2))
        return x

    COMPOSED.add(name)
    lowering(name)(lower)
    complex_lowering(name)(lower)


_shifted("aten.fft_fftshift.default", 0)
_shifted("aten.fft_ifftshift.default", 1)

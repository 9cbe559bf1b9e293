"""Discrete Fourier transforms, `ingot.ops.fft`: the standard's extension of this name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.fourier import fitted, over_axes, to_real
from ingot.compiler.frontends.program.complex import of_parts, part_dtype, parts_of
from ingot.compiler.frontends.program.creation import arange, astype
from ingot.compiler.frontends.program.dtypes import default_float
from ingot.compiler.frontends.program.elementwise import floating, where
from ingot.compiler.frontends.program.manipulation import axes_of, roll
from ingot.compiler.frontends.program.tensor import (
    ComplexTensor,
    Size,
    Tensor,
    as_dim,
    as_size,
    current,
    extension,
    given,
    value_of,
)
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim

__all__: list[str] = []

_SWAPPED: dict[Any, str] = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _points(x: Value, s: Any, axes: Any) -> tuple[list[int], list[Dim | None]]:
    """The axes, and the lengths that they get; None: their own."""
    rank = type_of(x).rank
    if axes is None and s is not None:
        axes = tuple(range(rank - len(s), rank))
    found = axes_of(axes, rank)
    if not found:
        raise UnsupportedNode("it transforms no axis")
    if s is None:
        return found, [None] * len(found)
    lengths = [None if each is None else as_dim(each) for each in s]
    if len(lengths) != len(found):
        raise UnsupportedNode(f"s is {s}, but the axes are {axes}: give as many lengths")
    return found, lengths


def _fitted(part: Value, axis: int, length: Dim | None) -> Value:
    """As `fitted`, of at least one point."""
    part = fitted(current(), part, axis, length)
    if dims.bounds(shape_of(part)[axis])[1] < 1:
        raise UnsupportedNode(f"axis {axis} has no points: give a tensor or lengths of 1 or more")
    return part


def _scaled(
    parts: Sequence[Value], lengths: Sequence[Dim], norm: str, inverse: bool
) -> list[Value]:
    if norm not in _SWAPPED:
        raise UnsupportedNode(f"norm is {norm!r}, expected one of {', '.join(_SWAPPED)}")
    if norm == ("forward" if inverse else "backward"):
        return list(parts)
    trace = current()
    count = trace.size(dims.product(lengths), type_of(parts[0]).dtype)
    divisor = trace.op("sqrt", count) if norm == "ortho" else count
    return [trace.op("div", x, trace.broadcast_to(divisor, shape_of(x))) for x in parts]


def _transform(x: Any, s: Any, axes: Any, norm: str, inverse: bool) -> ComplexTensor:
    trace, (real, imaginary) = current(), parts_of(x)
    found, lengths = _points(real, s, axes)
    for axis, length in zip(found, lengths, strict=True):
        real, imaginary = (_fitted(part, axis, length) for part in (real, imaginary))
    parts = over_axes(trace, (real, imaginary), found, inverse=inverse)
    shape = shape_of(real)
    real, imaginary = _scaled(parts, [shape[axis] for axis in found], norm, inverse)
    return of_parts((real, imaginary))


def _of_real(x: Any, s: Any, axes: Any, norm: str) -> ComplexTensor:
    if isinstance(x, ComplexTensor):
        raise UnsupportedNode("its operand is complex: take ops.real(x), or the function fft")
    trace = current()
    value = trace.convert(floating(x), part_dtype(x))
    found, lengths = _points(value, s, axes)
    for axis, length in zip(found, lengths, strict=True):
        value = _fitted(value, axis, length)
    parts = over_axes(trace, (value, None), found, one_sided=True)
    shape = shape_of(value)
    real, imaginary = _scaled(parts, [shape[axis] for axis in found], norm, False)
    return of_parts((real, imaginary))


def _to_real(x: Any, s: Any, axes: Any, norm: str) -> Tensor:
    trace, (real, imaginary) = current(), parts_of(x)
    found, lengths = _points(real, s, axes)
    last = lengths[-1]
    length = (shape_of(real)[found[-1]] - 1) * 2 if last is None else last
    if dims.bounds(length)[1] < 1:
        raise UnsupportedNode(f"it would give {length} numbers, expected 1 or more: pass a length")
    lengths[-1] = dims.floordiv(length, 2) + 1
    for axis, wanted in zip(found, lengths, strict=True):
        real, imaginary = (_fitted(part, axis, wanted) for part in (real, imaginary))
    points = [*(shape_of(real)[axis] for axis in found[:-1]), length]
    made = to_real(trace, (real, imaginary), found, length)
    return given(_scaled([made], points, norm, True)[0])


def _one(n: Any) -> Any:
    return None if n is None else (n,)


@extension("fft")
def fft(x: Any, /, *, n: Any = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The transform along an axis, which is cut or filled with zeros to `n` points. `norm` says
    what divides by n: the inverse ("backward"), this one ("forward"), or both by the root."""
    return _transform(x, _one(n), (axis,), norm, False)


@extension("fft")
def ifft(x: Any, /, *, n: Any = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `fft`."""
    return _transform(x, _one(n), (axis,), norm, True)


@extension("fft")
def fftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """The transform along several axes, which get the lengths `s`; all of them for None."""
    return _transform(x, s, axes, norm, False)


@extension("fft")
def ifftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """The inverse of `fftn`."""
    return _transform(x, s, axes, norm, True)


@extension("fft")
def rfft(x: Any, /, *, n: Any = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The first n // 2 + 1 frequencies of real numbers, of which the others are mirrors."""
    return _of_real(x, _one(n), (axis,), norm)


@extension("fft")
def irfft(x: Any, /, *, n: Any = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `rfft`: `n` real numbers, 2 (m - 1) of m frequencies for None."""
    return _to_real(x, _one(n), (axis,), norm)


@extension("fft")
def rfftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """As `fftn` of real numbers, with half of the frequencies of the last axis."""
    return _of_real(x, s, axes, norm)


@extension("fft")
def irfftn(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Tensor:
    """The inverse of `rfftn`."""
    return _to_real(x, s, axes, norm)


@extension("fft")
def hfft(x: Any, /, *, n: Any = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The real transform of what has mirrored conjugates, of which x is the first half."""
    real, imaginary = parts_of(x)
    turned = of_parts((real, current().op("neg", imaginary)))
    return _to_real(turned, _one(n), (axis,), _SWAPPED.get(norm, norm))


@extension("fft")
def ihfft(x: Any, /, *, n: Any = None, axis: int = -1, norm: str = "backward") -> Tensor:
    """The inverse of `hfft`."""
    real, imaginary = _of_real(x, _one(n), (axis,), _SWAPPED.get(norm, norm)).parts
    return of_parts((real, current().op("neg", imaginary)))


def _steps(places: Tensor, n: Any, d: float, dtype: Any) -> Tensor:
    if dims.bounds(as_dim(n))[1] < 1 or d == 0:
        raise UnsupportedNode(f"n is {n} and d is {d}: n must be 1 or more, and d not 0")
    element = default_float() if dtype is None else dtype
    return astype(astype(places, "float64") / (n * d), element)


@extension("fft")
def fftfreq(n: int | Size, /, *, d: float = 1.0, dtype: Any = None) -> Tensor:
    """The frequencies of `fft` of n points at distances d: 0, 1, ..., -2, -1 over n d."""
    places = arange(n)
    return _steps(where(places < (n + 1) // 2, places, places - n), n, d, dtype)


@extension("fft")
def rfftfreq(n: int | Size, /, *, d: float = 1.0, dtype: Any = None) -> Tensor:
    """Those of `rfft`: 0, 1, ..., n // 2 over n d."""
    return _steps(arange(n // 2 + 1), n, d, dtype)


@extension("fft")
def fftshift(x: Any, /, *, axes: Any = None) -> Tensor:
    """The frequency 0 in the middle of the axes; all of them for None."""
    return _shifted(x, axes, back=False)


@extension("fft")
def ifftshift(x: Any, /, *, axes: Any = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _shifted(x, axes, back=True)


def _shifted(x: Any, axes: Any, back: bool) -> Tensor:
    tensor = x if isinstance(x, Tensor) else given(value_of(x))
    found = axes_of(axes, tensor.ndim)
    halves = [as_dim(tensor.shape[axis] // 2) for axis in found]
    shifts = [as_size(half * -1 if back else half) for half in halves]
    return roll(tensor, tuple(shifts), axis=tuple(found))

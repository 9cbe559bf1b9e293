"""Which codes stand for a weight: rounded to the nearest, or with errors compensated.

Rows of a weight [n, k] are cut into groups, each with a scale. Codes are signed and the scale
covers the numbers on both sides of 0, or unsigned with a zero point, where that is closer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ingot.compiler.graph.quantizing.codes import Codes

__all__ = ["BITS", "Grid", "compensated", "rounded", "sum_of_squares"]

_Array = np.ndarray[Any, Any]

BITS = {"int8": 8, "int4": 4, "int3": 3, "int2": 2, "bf16": 16, "f16": 16}
"""By the names of `weights`."""

_SHRINKS = np.linspace(1.0, 0.5, 26)
"""Parts of the range that are tried where the squared error decides."""

_CLOSER = 0.95
"""What part of the squared error zero points must leave, to be worth their bytes."""

_BLOCK = 128
_DAMPING = 0.01  # of the mean of the Hessian's diagonal, added to it


@dataclass(frozen=True)
class Grid:
    """How weights are rounded. `group`: codes of a row that share a scale; `is_searched`: scales
    have the least squared error, else they cover all numbers; `is_narrow`: scales are f16."""

    bits: int
    group: int
    is_searched: bool
    is_signed: bool = True
    is_narrow: bool = False

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest code."""
        half = 1 << (self.bits - 1)
        return (-half, half - 1) if self.is_signed else (0, 2 * half - 1)

    def scales(self, w: _Array) -> tuple[_Array, _Array]:
        """Scales and zero points of groups [..., group]: [...] each, f32."""
        if not self.is_searched:
            return self._scales(w, 1.0)
        best = self._scales(w, 1.0)
        least = self._error(w, *best)
        for shrink in _SHRINKS[1:]:
            tried = self._scales(w, shrink)
            error = self._error(w, *tried)
            is_less = error < least
            least = np.where(is_less, error, least)
            best = tuple(np.where(is_less, a, b) for a, b in zip(tried, best, strict=True))  # type: ignore[assignment]
        return best

    def _scales(self, w: _Array, shrink: float) -> tuple[_Array, _Array]:
        low, high = np.minimum(w.min(-1), 0) * shrink, np.maximum(w.max(-1), 0) * shrink
        least, greatest = self.bounds
        if self.is_signed:
            scale = np.maximum(low / least, high / greatest)
        else:
            scale = (high - low) / greatest
        scale = self._stored(scale)
        zero = (
            np.zeros_like(scale) if self.is_signed else np.clip(np.rint(-low / scale), 0, greatest)
        )
        return scale, zero

    def _stored(self, scale: _Array) -> _Array:
        """Scales as they are stored, f32; 1 where there is nothing to scale."""
        if self.is_narrow:
            scale = scale.astype(np.float16)
        tiny = np.finfo(scale.dtype).tiny
        return np.where(scale < tiny, 1, scale).astype(np.float32)

    def codes(self, w: _Array, scale: _Array, zero: _Array) -> _Array:
        """Codes of groups [..., group], as f32."""
        codes = w / scale[..., None]
        np.rint(codes, out=codes)
        codes += zero[..., None]
        return np.clip(codes, *self.bounds, out=codes)

    def _error(self, w: _Array, scale: _Array, zero: _Array) -> _Array:
        """The sum of squared errors of each group."""
        numbers = self.codes(w, scale, zero)
        numbers -= zero[..., None]
        numbers *= scale[..., None]
        numbers -= w
        return np.asarray(np.einsum("...i,...i->...", numbers, numbers))

    def made(self, codes: _Array, scales: _Array, zeros: _Array) -> Codes:
        """A weight of codes [n, k] with scales and zeros [n, groups]."""
        stored = codes.astype(np.int8 if self.is_signed else np.uint8)
        scales = scales.astype(np.float16 if self.is_narrow else np.float32)
        points = None if self.is_signed else zeros.astype(np.uint8)
        return Codes(stored, self.bits, scales, points)


def sum_of_squares(x: _Array) -> float:
    flat = x.reshape(-1)
    return float(np.dot(flat, flat))


def rounded(w: _Array, grid: Grid, may_have_zeros: bool) -> tuple[Codes, Grid]:
    """The codes nearest to w [n, k]; and the grid, which has zero points where they may be and
    make the error less."""
    signed = _rounded(w, grid)
    if not may_have_zeros:
        return signed, grid
    unsigned = _rounded(w, replace(grid, is_signed=False))
    errors = [sum_of_squares(each.numbers() - w) for each in (signed, unsigned)]
    if errors[1] < _CLOSER * errors[0]:
        return unsigned, replace(grid, is_signed=False)
    return signed, grid


def _rounded(w: _Array, grid: Grid) -> Codes:
    n, k = w.shape
    groups = w.reshape(n, k // grid.group, grid.group)
    scales, zeros = grid.scales(groups)
    return grid.made(grid.codes(groups, scales, zeros).reshape(n, k), scales, zeros)


def compensated(w: _Array, grid: Grid, hessian: _Array) -> Codes:
    """Codes for w [n, k] whose products with inputs come close to those of w: the error of a code
    is made up for by those behind it in its row, as GPTQ does (Frantar and others, 2022).

    `hessian`: the sum over inputs x of x x^T, [k, k]. Those that never occur are as they are.
    """
    w, (n, k) = w.astype(np.float64), w.shape
    factor = _factor(hessian)
    codes = np.empty((n, k), np.float32)
    scales = np.empty((n, k // grid.group), np.float32)
    zeros = np.empty_like(scales)
    for first in range(0, k, _BLOCK):
        last = min(first + _BLOCK, k)
        errors = np.empty((n, last - first))
        for at in range(first, last):
            place = at // grid.group
            if at % grid.group == 0:
                # What blocks in front leave to this group, which ends behind its own block perhaps.
                end = at + grid.group
                group = w[:, at:end].copy()
                if end > last:
                    group[:, last - at :] -= errors[:, : at - first] @ factor[first:at, last:end]
                found = grid.scales(group[:, None].astype(np.float32))
                scales[:, place], zeros[:, place] = (each[:, 0] for each in found)
            scale, zero = scales[:, place], zeros[:, place]
            codes[:, at] = grid.codes(w[:, at, None].astype(np.float32), scale, zero)[:, 0]
            number = (codes[:, at] - zero) * scale
            error = (w[:, at] - number) / factor[at, at]
            w[:, at + 1 : last] -= np.outer(error, factor[at, at + 1 : last])
            errors[:, at - first] = error
        w[:, last:] -= errors @ factor[first:last, last:]
    return grid.made(codes, scales, zeros)


def _factor(hessian: _Array) -> _Array:
    """The upper Cholesky factor of the inverse of the Hessian, damped."""
    matrix = hessian.astype(np.float64)
    diagonal = np.diagonal(matrix)
    mean = float(diagonal.mean()) or 1.0
    matrix[np.diag_indices_from(matrix)] += np.where(diagonal == 0, mean, _DAMPING * mean)
    return np.asarray(np.linalg.cholesky(np.linalg.inv(matrix)).T)

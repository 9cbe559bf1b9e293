"""The numbers of Winograd's F(4, 3) and F(2, 3): 4 results of a 3-tap filter from 6 products, and 2
from 4.

Y = A^T [(G g) * (B^T d)], applied along both spatial axes. The points of F(4, 3) are 0, +-1/sqrt 2,
+-sqrt 2 and infinity, which lose four to five times less than 0, +-1, +-2; those of F(2, 3) 0, +-1
and infinity. Source: A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks; the
matrices are built here from the points by the transposed Toom-Cook rule.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

__all__ = ["BY_PLACES", "FORMS", "MOST_TILES", "WINDOW", "Winograd"]

WINDOW = 3

MOST_TILES = 64
"""Tiles that share a read of weights which are too long for caches, where they are many."""

Matrix = np.ndarray[Any, np.dtype[np.float64]]


class Winograd:
    """F(output, 3) with these finite points; infinity is the last one."""

    def __init__(self, *points: float) -> None:
        self.points = points
        self.input = len(points) + 1
        """Inputs per axis of a tile, and products."""
        self.output = self.input - WINDOW + 1
        """Results per axis of a tile."""
        self.places = self.input**2
        """Products of a tile."""

    @cached_property
    def input_matrix(self) -> Matrix:
        """B^T: f64[input, input]."""
        rows = [self._polynomial(place) for place in range(len(self.points))]
        last = np.poly(self.points)[::-1]
        return np.asarray([*(np.append(row, 0.0) for row in rows), last], np.float64)

    @cached_property
    def weight_matrix(self) -> Matrix:
        """G: f64[input, 3]."""
        rows = []
        for place, point in enumerate(self.points):
            others = [point - other for each, other in enumerate(self.points) if each != place]
            rows.append([point**power / math.prod(others) for power in range(WINDOW)])
        return np.asarray([*rows, [0.0, 0.0, 1.0]], np.float64)

    @cached_property
    def output_matrix(self) -> Matrix:
        """A^T: f64[output, input]."""
        columns = [[point**power for power in range(self.output)] for point in self.points]
        last = [0.0] * (self.output - 1) + [1.0]
        transposed: Matrix = np.asarray([*columns, last], np.float64)
        return np.ascontiguousarray(transposed.T)

    def _polynomial(self, place: int) -> Matrix:
        """Coefficients, lowest first, of the product of (x - p) over the other points."""
        others = [point for each, point in enumerate(self.points) if each != place]
        return np.asarray(np.poly(others)[::-1], np.float64)


_NEAR, _FAR = math.sqrt(0.5), math.sqrt(2.0)

FORMS = (Winograd(0.0, _NEAR, -_NEAR, _FAR, -_FAR), Winograd(0.0, 1.0, -1.0))
"""F(4, 3) and F(2, 3)."""

BY_PLACES = {form.places: form for form in FORMS}

"""The numbers of Winograd's F(4, 3): 4 results of a 3-tap filter from 6 products.

Y = A^T [(G g) * (B^T d)], applied along both spatial axes. The points are 0, +-1/sqrt 2,
+-sqrt 2 and infinity, which lose four to five times less than 0, +-1, +-2. Source: A.
Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks; the matrices are built
here from the points by the transposed Toom-Cook rule.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

__all__ = ["INPUT", "OUTPUT", "POINTS", "WINDOW", "input_matrix", "output_matrix", "weight_matrix"]

OUTPUT = 4
"""Results per axis of a tile."""

WINDOW = 3

INPUT = OUTPUT + WINDOW - 1
"""Inputs per axis of a tile, and products."""

POINTS = (0.0, math.sqrt(0.5), -math.sqrt(0.5), math.sqrt(2.0), -math.sqrt(2.0))
"""The finite points; infinity is the last row."""

Matrix = np.ndarray[Any, np.dtype[np.float64]]


@cache
def input_matrix() -> Matrix:
    """B^T: f64[6, 6]."""
    rows = [_polynomial(place) for place in range(len(POINTS))]
    last = np.poly(POINTS)[::-1]
    return np.asarray([*(np.append(row, 0.0) for row in rows), last], np.float64)


@cache
def weight_matrix() -> Matrix:
    """G: f64[6, 3]."""
    rows = []
    for place, point in enumerate(POINTS):
        others = [point - other for each, other in enumerate(POINTS) if each != place]
        rows.append([point**power / math.prod(others) for power in range(WINDOW)])
    return np.asarray([*rows, [0.0, 0.0, 1.0]], np.float64)


@cache
def output_matrix() -> Matrix:
    """A^T: f64[4, 6]."""
    columns = [[point**power for power in range(OUTPUT)] for point in POINTS]
    transposed: Matrix = np.asarray([*columns, [0.0, 0.0, 0.0, 1.0]], np.float64)
    return np.ascontiguousarray(transposed.T)


def _polynomial(place: int) -> Matrix:
    """Coefficients, lowest first, of the product of (x - p) over the other points."""
    others = [point for each, point in enumerate(POINTS) if each != place]
    return np.asarray(np.poly(others)[::-1], np.float64)

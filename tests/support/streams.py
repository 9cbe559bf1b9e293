"""Streams of random numbers in NumPy, and how far numbers are from a distribution."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["distance", "fractions", "gaussian", "words"]

Array = np.ndarray[Any, Any]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def words(position: int, seed: int, blocks: Array) -> tuple[Array, Array]:
    """The two words of each block of the stream that begins at this position."""
    low, high = (np.uint32(position >> shift & 0xFFFFFFFF) for shift in (0, 32))
    keys = [np.uint32(seed) ^ high, low]
    keys.append(np.uint32(0x1BD11BDA) ^ keys[0] ^ keys[1])
    counter = blocks.astype(np.uint64)
    with np.errstate(over="ignore"):
        x = counter.astype(np.uint32) + keys[0]
        y = (counter >> np.uint64(32)).astype(np.uint32) + keys[1]
        for turn in range(5):
            for rotation in _ROTATIONS[turn % 2]:
                x = x + y
                y = (y << np.uint32(rotation) | y >> np.uint32(32 - rotation)) ^ x
            x = x + keys[(turn + 1) % 3]
            y = y + keys[(turn + 2) % 3] + np.uint32(turn + 1)
    return x, y


def fractions(position: int, seed: int, count: int) -> Array:
    """The first numbers in [0, 1) of a stream, as f32."""
    low, _ = words(position, seed, np.arange(count))
    return (low >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def distance(sample: Array, cumulative: Callable[[Array], Array]) -> float:
    """Kolmogorov's and Smirnov's distance times the root of the count: above 1.63 once in a
    hundred samples of the distribution."""
    x = np.sort(np.asarray(sample, np.float64).ravel())
    expected = cumulative(x)
    steps = np.arange(x.size + 1) / x.size
    apart = max((steps[1:] - expected).max(), (expected - steps[:-1]).max())
    return float(apart * math.sqrt(x.size))


def gaussian(x: Array) -> Array:
    """The chance that a normal number is below x."""
    return 0.5 + 0.5 * np.vectorize(math.erf)(x / math.sqrt(2))

"""What loop ops on registers mean, as NumPy code.

An array's first axis is that of the work items; a vector has a second one, its lanes.
Element-wise ops have their references at the graph level. Memory, loops and branches are
the interpreter's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from ingot.compiler.graph.ops import OPS
from ingot.compiler.graph.references.numbers import Array, dtype_of, narrow, quiet, widen
from ingot.hal.spec import DType

__all__ = ["REFERENCES"]


def _broadcast(x: Array, *, lanes: int) -> Array:
    return np.repeat(x[:, None], lanes, axis=1)


def _extract(vector: Array, *, lane: int) -> Array:
    return np.asarray(vector[:, lane])


def _insert(vector: Array, scalar: Array, *, lane: int) -> Array:
    result: Array = vector.copy()
    result[:, lane] = scalar
    return result


def _shuffle(a: Array, b: Array, *, lanes: Sequence[int]) -> Array:
    return np.asarray(np.concatenate([a, b], axis=1)[:, list(lanes)])


def _pick(vector: Array, places: Array) -> Array:
    return np.take_along_axis(vector, places, axis=1)


def _reduce(vector: Array, *, kind: str) -> Array:
    """Halves combined until one lane is left; f16 and bf16 are rounded once, at the end."""
    element = dtype_of(vector)
    rest = vector.astype(np.float32) if element.is_float and element.bits < 32 else vector
    if element.is_boolean:
        kind = {"add": "or", "max": "or", "mul": "and", "min": "and"}.get(kind, kind)
    while rest.shape[1] > 1:
        half = rest.shape[1] // 2
        rest = OPS[kind].reference(rest[:, :half], rest[:, half:])
    return narrow(rest[:, 0], element)


def _any(vector: Array) -> Array:
    return np.asarray(vector.any(axis=1))


@quiet
def _fma(a: Array, b: Array, c: Array, *, exact: bool = False) -> Array:
    element = dtype_of(a)
    if element.name == "f64":
        result = np.array([*map(_fma_once, a.flat, b.flat, c.flat)], np.float64)
        return np.asarray(result.reshape(a.shape))
    product, summand = widen(a) * widen(b), widen(c)  # no bit of the product is lost
    sum = product + summand
    return narrow(_odd_sum(sum, product, summand) if element.is_float else sum, element)


@quiet
def _dot4(a: Array, b: Array, c: Array, *, left: DType, right: DType) -> Array:
    parts = [
        np.ascontiguousarray(x).view(side.numpy).reshape(*x.shape, 4).astype(np.int32)
        for x, side in ((a, left), (b, right))
    ]
    return np.asarray(c + (parts[0] * parts[1]).sum(axis=-1, dtype=np.int32))


@quiet
def _dot2(a: Array, b: Array, c: Array) -> Array:
    pairs = [
        (np.ascontiguousarray(x).view(np.uint16).reshape(*x.shape, 2).astype(np.uint32) << 16)
        .view(np.float32)
        .astype(np.float64)
        for x in (a, b)
    ]
    return np.asarray((c + (pairs[0] * pairs[1]).sum(axis=-1)).astype(np.float32))


def _halves(words: Array) -> Array:
    return np.ascontiguousarray(words).view(np.float16).reshape(*words.shape, 2)


@quiet
def _fma2(a: Array, b: Array, c: Array) -> Array:
    x, y, z = (_halves(each).astype(np.float64) for each in (a, b, c))  # the sum loses no bit there
    return np.asarray((x * y + z).astype(np.float16).view(np.int32).reshape(c.shape))


@quiet
def _sum2(words: Array, c: Array) -> Array:
    pairs = _halves(words)
    return np.asarray(c + (pairs[..., 0] + pairs[..., 1]).astype(np.float32))


def _code(words: Array, *, place: int, bits: int, is_signed: bool) -> Array:
    high = np.asarray(words).view(np.uint32) << np.uint32(32 - bits - place)
    return np.asarray((high.view(np.int32 if is_signed else np.uint32) >> (32 - bits)), np.float32)


def _table4(words: Array, *, table: tuple[int, ...]) -> Array:
    places = np.ascontiguousarray(words).view(np.uint8)
    return np.asarray(np.array(table, np.uint8)[places & 15].view(np.int32).reshape(words.shape))


def _odd_sum(sum: Array, a: Array, b: Array) -> Array:
    """a + b = sum in f64, rounded to odd: rounding to f32 is then as if it were the only one."""
    part = sum - a
    error = (a - (sum - part)) + (b - part)
    bits = sum.view(np.int64)
    inexact = (error != 0) & np.isfinite(error) & ((bits & 1) == 0)
    toward = np.where((error > 0) == (sum > 0), 1, -1)
    return np.asarray(np.where(inexact, bits + toward, bits).view(np.float64))


def _fma_once(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c if 0 in (a, b) else 0.0
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


REFERENCES: dict[str, Callable[..., Array]] = {
    "loop.add": np.add,
    "loop.sub": np.subtract,
    "loop.mul": np.multiply,
    "loop.div": OPS["div"].reference,
    "loop.rem": OPS["rem"].reference,
    "loop.min": np.minimum,
    "loop.max": np.maximum,
    "loop.broadcast": _broadcast,
    "loop.extract": _extract,
    "loop.insert": _insert,
    "loop.shuffle": _shuffle,
    "loop.pick": _pick,
    "loop.reduce": _reduce,
    "loop.any": _any,
    "loop.fma": _fma,
    "loop.dot2": _dot2,
    "loop.dot4": _dot4,
    "loop.fma2": _fma2,
    "loop.sum2": _sum2,
    "loop.code": _code,
    "loop.table4": _table4,
}

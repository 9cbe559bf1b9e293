"""Random numbers, from streams of the session: none are those that torch would draw.

Every op begins a stream of its own (`frontends/random_numbers.py`).
"""

from __future__ import annotations

from typing import Any

from ingot.compiler.frontends.emitter import shape_of, type_of
from ingot.compiler.frontends.random_numbers import Stream
from ingot.compiler.frontends.torch.lowering import Context, Scalar, lowering
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Region, ScalarType, Value
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


@lowering("aten.rand.default", "aten.rand_like.default", "aten.uniform.default")
def uniform(c: Context, _: Any, low: float = 0.0, high: float = 1.0, **__: Any) -> Value:
    ends = (c.scalar(each, c.dtype) for each in (low, high))
    return Stream(c.builder).uniform(c.shape, *ends)


@lowering("aten.randn.default", "aten.randn_like.default", "aten.normal_functional.default")
def normal(c: Context, _: Any, mean: float = 0.0, deviation: float = 1.0, **__: Any) -> Value:
    ends = (c.scalar(each, c.dtype) for each in (mean, deviation))
    return Stream(c.builder).normal(c.shape, *ends)


@lowering("aten.randint.default")
def integers_below(c: Context, high: int, *_: Any, **__: Any) -> Value:
    return _integers(c, 0, high)


@lowering("aten.randint.low", "aten.randint_like.low_dtype")
def integers(c: Context, first: Any, second: int, third: Any = None, **__: Any) -> Value:
    low, high = (second, third) if isinstance(first, Value) else (first, second)
    return _integers(c, low, high)


@lowering("aten.randint_like.default")
def integers_like(c: Context, _: Value, high: int, **__: Any) -> Value:
    return _integers(c, 0, high)


def _integers(c: Context, low: Scalar, high: Scalar) -> Value:
    ends = (c.scalar(each, _I64) for each in (low, high))
    return c.convert(Stream(c.builder).uniform(c.shape, *ends), c.dtype)


@lowering("aten.randperm.default")
def permutation(c: Context, *_: Any, **__: Any) -> Value:
    """The places of random keys of 64 bits in ascending order."""
    keys = Stream(c.builder).words(c.shape, 2)
    places = c.op("iota", dtype=_I64, shape=c.shape, axis=0)
    block = Block([ScalarType(type_of(each).dtype) for each in (*keys, places) for _ in range(2)])
    inner = Builder(block)
    a, b, less_a, less_b = block.arguments[:4]
    same = inner.value("compare", a, b, direction="eq")
    later = inner.value("and", same, inner.value("compare", less_a, less_b, direction="lt"))
    inner.yield_(inner.value("or", inner.value("compare", a, b, direction="lt"), later))
    order = c.several("sort", *keys, places, axis=0, regions=[Region([block])])[2]
    return c.convert(order, c.dtype)


@lowering("aten.bernoulli.default")
def bernoulli(c: Context, chances: Value, **__: Any) -> Value:
    return _hits(c, chances)


@lowering("aten.bernoulli.p")
def bernoulli_of_one_chance(c: Context, x: Value, p: float = 0.5, **__: Any) -> Value:
    return _hits(c, c.filled(p, "f64", shape_of(x)))


def _hits(c: Context, chances: Value) -> Value:
    """1 with these chances, else 0."""
    type = type_of(chances)
    drawn = Stream(c.builder).fractions(type.shape, type.dtype)
    limits = c.reshape(c.convert(chances, type_of(drawn).dtype), shape_of(drawn))
    return c.convert(c.reshape(c.compare("lt", drawn, limits), type.shape), c.dtype)

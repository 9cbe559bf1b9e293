"""Random numbers, from streams of the session: none are those that torch would draw.

Every op begins a stream of its own (`frontends/random_numbers.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ingot.compiler.frontends.emitter import shape_of, type_of
from ingot.compiler.frontends.matrices import Array, Scope
from ingot.compiler.frontends.random_numbers import Stream
from ingot.compiler.frontends.special import ndtri
from ingot.compiler.frontends.torch.lowering import Context, Scalar, lowering
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Region, ScalarType, Value
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")
_MOST = 1e5  # of a mean whose counts are found one by one


@lowering("aten.rand.default", "aten.rand_like.default", "aten.uniform.default")
def uniform(c: Context, _: Any, low: float = 0.0, high: float = 1.0, **__: Any) -> Value:
    ends = (c.scalar(each, c.dtype) for each in (low, high))
    return Stream(c.builder).uniform(c.shape, *ends)


@lowering("aten.randn.default", "aten.randn_like.default", "aten.normal_functional.default")
def normal(c: Context, _: Any, mean: float = 0.0, deviation: float = 1.0, **__: Any) -> Value:
    ends = (c.scalar(each, c.dtype) for each in (mean, deviation))
    return Stream(c.builder).normal(c.shape, *ends)


@lowering("aten.normal.Tensor_float", "aten.normal.float_Tensor", "aten.normal.Tensor_Tensor",
          "aten.normal.float_float")  # fmt: skip
def normal_of_each(c: Context, mean: Scalar, deviation: Scalar = 1.0, *_: Any, **__: Any) -> Value:
    """With a mean and a deviation for each element."""
    drawn = normal(c, None)
    middle, wide = (c.broadcast_to(c.scalar(each, c.dtype), c.shape) for each in (mean, deviation))
    return c.op("add", c.op("mul", drawn, wide), middle)


def _fraction(c: Context, like: Value) -> Value:
    """From 0 to below 1, in f32 at least."""
    element = type_of(like).dtype
    kind = element if element.is_float and element.bits >= 32 else dtype("f32")
    shape = shape_of(like)
    return c.reshape(Stream(c.builder).fractions(shape, kind), shape)


def _waited(c: Context, like: Value) -> Value:
    """Exponentially distributed numbers of mean 1: -log(1 - u)."""
    return c.op("neg", c.op("log1p", c.op("neg", _fraction(c, like))))


@lowering("aten.exponential.default")
def exponential(c: Context, x: Value, rate: float = 1.0, **__: Any) -> Value:
    drawn = _waited(c, x)
    return c.convert(c.op("div", drawn, rate), c.dtype)


@lowering("aten.geometric.default")
def geometric(c: Context, x: Value, p: float, **__: Any) -> Value:
    """How many trials of chance p it takes until one succeeds."""
    drawn = _waited(c, x)
    if p >= 1:
        return c.filled(1, c.dtype, c.shape)
    count = c.op("ceil", c.op("div", drawn, -math.log1p(-p)))
    return c.convert(c.op("max", count, 1), c.dtype)


@lowering("aten.cauchy.default")
def cauchy(c: Context, x: Value, median: float = 0.0, sigma: float = 1.0, **__: Any) -> Value:
    drawn = _fraction(c, x)
    angle = c.op("mul", c.op("sub", drawn, 0.5), math.pi)
    scaled = c.op("mul", c.op("tan", angle), sigma)
    return c.convert(c.op("add", scaled, median), c.dtype)


@lowering("aten.log_normal.default")
def log_normal(c: Context, x: Value, mean: float = 1.0, deviation: float = 2.0, **__: Any) -> Value:
    return c.op("exp", normal(c, x, mean, deviation))


@lowering("aten.multinomial.default")
def choices(c: Context, weights: Value, count: Any, replacement: bool = False, **__: Any) -> Value:
    """[..., n] -> i64[..., count]: places, by their weights. Without replacement they are those
    whose exponentially distributed waiting times are the least."""
    weights = c.convert(weights, "f64" if type_of(weights).dtype.bits == 64 else "f32")
    axis = type_of(weights).rank - 1
    *batch, size = shape_of(weights)
    if not replacement or count == 1:
        least = c.fill(1e-30, like=weights)
        ratio = c.op("div", weights, c.op("max", _waited(c, weights), least))
        return c.several("top_k", ratio, k=count, axis=axis, largest=True, dtype=_I64)[1]
    sums = c.op("cumulative", weights, axis=axis, kind="add")
    whole = c.sliced(sums, axis, size - 1, size)
    drawn = _fraction(c, c.full(0, type_of(weights).dtype, (*batch, count)))
    limits = c.op("mul", drawn, c.broadcast_to(whole, shape_of(drawn)))
    passed = c.compare(
        "le",
        *c.broadcast(c.reshape(sums, (*batch, 1, size)), c.reshape(limits, (*batch, count, 1))),
    )
    return c.reduce(c.convert(passed, _I64), [axis + 1], "add")


@lowering("aten.randint.default")
def integers_below(c: Context, high: int, *_: Any, **__: Any) -> Value:
    return _integers(c, 0, high)


@lowering("aten.randint.low", "aten.randint_like.low_dtype")
def integers(c: Context, first: Any, second: int, third: Any = None, **__: Any) -> Value:
    low, high = (second, third) if isinstance(first, Value) else (first, second)
    return _integers(c, low, high)


@lowering("aten.randint_like.default", "aten.randint_like.Tensor")
def integers_like(c: Context, _: Value, high: Scalar, **__: Any) -> Value:
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


@lowering("aten.bernoulli.Tensor")
def bernoulli_of_chances(c: Context, x: Value, p: Value, **__: Any) -> Value:
    return _hits(c, c.broadcast_to(p, shape_of(x)))


@lowering("aten.bernoulli.p")
def bernoulli_of_one_chance(c: Context, x: Value, p: float = 0.5, **__: Any) -> Value:
    return _hits(c, c.filled(p, "f64", shape_of(x)))


def _hits(c: Context, chances: Value) -> Value:
    """1 with these chances, else 0."""
    type = type_of(chances)
    drawn = Stream(c.builder).fractions(type.shape, type.dtype)
    limits = c.reshape(c.convert(chances, type_of(drawn).dtype), shape_of(drawn))
    return c.convert(c.reshape(c.compare("lt", drawn, limits), type.shape), c.dtype)


@lowering("aten.poisson.default")
def poisson(c: Context, rates: Value, *_: Any) -> Value:
    """Counts of what happens at these rates."""

    def first(rate: Array) -> Array:
        return -rate

    def ratio(rate: Array, count: Array) -> Array:
        return rate / (count + 1)

    return _counted(c, first, ratio, lambda rate: (rate, rate, rate.scope.like(1, rate)), rates)


@lowering("aten.binomial.default")
def binomial(c: Context, trials: Value, chances: Value, *_: Any) -> Value:
    """How many of the trials succeed, each by this chance. Of likely ones the failures count."""
    trials, chances = c.broadcast(trials, chances)
    is_likely = c.compare("gt", chances, 0.5)
    rare = c.op("select", is_likely, c.op("sub", 1, chances), chances)

    def first(trials: Array, chance: Array) -> Array:
        return trials * (-chance).each("log1p")

    def ratio(trials: Array, chance: Array, count: Array) -> Array:
        return (trials - count) * chance / ((count + 1) * (1 - chance))

    def shape(trials: Array, chance: Array) -> tuple[Array, Array, Array]:
        mean = trials * chance
        return mean, mean * (1 - chance), 1 - chance * 2

    found = _counted(c, first, ratio, shape, trials, rare)
    return c.op("select", is_likely, c.op("sub", c.convert(trials, c.dtype), found), found)


def _counted(
    c: Context, first: Any, ratio: Any, shape_of_all: Callable[..., tuple[Array, Array, Array]],
    *given: Value,
) -> Value:  # fmt: skip
    """The least count up to which the sum of chances is above a fraction that is drawn. `first` is
    the logarithm of the chance of 0, and the chance of each count `ratio` times that of the one
    before. `shape_of_all`: mean, variance, and third moment over variance. Where the mean is large,
    the count is that of a normal distribution, bent by the third moment."""
    scope, wide = Scope(c.builder), dtype("f64")
    known = [scope.real(c.convert(each, wide)) for each in given]
    shape = known[0].shape
    drawn = scope.real(c.reshape(Stream(c.builder).fractions(shape, wide), shape))
    mean, variance, skew = shape_of_all(*known)
    spread, is_large = variance.sqrt(), mean > _MOST
    most = mean + spread * 40 + 100  # beyond which only rounding of the sum leads
    chance = first(*known)

    def grows_on(count: Array, total: Array) -> Array:
        return (total <= drawn) & (count < most) & ~is_large

    def goes_on(count: Array, total: Array, chance: Array) -> Array:
        left = grows_on(count, total)
        for _ in shape:
            left = left.reduce("or", 0)
        return left

    def step(count: Array, total: Array, chance: Array) -> list[Array]:
        grows = grows_on(count, total)
        more = chance + ratio(*known, count).each("log")
        return [
            scope.where(grows, count + 1, count),
            scope.where(grows, total + more.each("exp"), total),
            scope.where(grows, more, chance),
        ]

    start = [scope.like(0, drawn), chance.each("exp"), chance]
    found = scope.repeat(start, goes_on, step)[0]
    z = ndtri(drawn)
    bent = (mean + spread * z + skew * (z * z - 1) / 6 + 0.5).each("floor")
    bent = scope.where(bent > 0, bent, 0)
    return c.convert(scope.where(is_large, bent, found).value, c.dtype)

"""Symbolic dims: arithmetic, bounds, proofs and text agree with plain integers."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.compiler.ir.dims import (
    Dim,
    bounds,
    broadcast,
    ceildiv,
    evaluate,
    floordiv,
    linear_in,
    maximum,
    minimum,
    modulo,
    parse_dim,
    product,
    prove_le,
    signs,
    substitute,
    symbol,
    symbols_of,
)
from ingot.hal.errors import CompileError

A, B = symbol("a"), symbol("b")
VALUES = [{"a": a, "b": b} for a in (0, 1, 2, 7) for b in (0, 1, 3, 12)]

leaves = st.one_of(st.integers(-4, 9), st.sampled_from([A, B]))


def grow(children: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
    pair = st.tuples(children, children)
    divisor = st.integers(1, 5)
    return st.one_of(
        pair.map(lambda p: p[0] + p[1]),
        pair.map(lambda p: p[0] - p[1]),
        pair.map(lambda p: p[0] * p[1]),
        pair.map(lambda p: minimum(*p)),
        pair.map(lambda p: maximum(*p)),
        st.tuples(children, divisor).map(lambda p: floordiv(*p)),
        st.tuples(children, divisor).map(lambda p: modulo(*p)),
    )


dims = st.recursive(leaves, grow, max_leaves=6)


@settings(max_examples=200, deadline=None)
@given(dims, dims)
def test_arithmetic_agrees_with_integers(x: Dim, y: Dim) -> None:
    for values in VALUES:
        a, b = evaluate(x, values), evaluate(y, values)
        assert evaluate(x + y, values) == a + b
        assert evaluate(x - y, values) == a - b
        assert evaluate(x * y, values) == a * b
        assert evaluate(minimum(x, y), values) == min(a, b)
        assert evaluate(maximum(x, y), values) == max(a, b)
        assert evaluate(floordiv(x, 3), values) == a // 3
        assert evaluate(modulo(x, 3), values) == a % 3
        assert evaluate(ceildiv(x, 4), values) == -(-a // 4)
        if prove_le(x, y):
            assert a <= b


@settings(max_examples=200, deadline=None)
@given(dims, dims)
def test_a_product_is_divided_by_its_factors(x: Dim, y: Dim) -> None:
    if y != 0:
        assert floordiv(x * y, y) == x
        assert modulo(x * y, y) == 0
    linear = linear_in(x, "a")
    if linear is not None:
        assert linear[0] * A + linear[1] == x
        assert "a" not in symbols_of(linear[1])
    minus, plus = signs(x)
    assert plus - minus == x


@settings(max_examples=200, deadline=None)
@given(dims)
def test_bounds_and_text_hold(x: Dim) -> None:
    assert parse_dim(str(x)) == x
    low, high = bounds(x)
    for values in VALUES:
        assert low <= evaluate(x, values) <= high
        assert evaluate(substitute(x, {"a": values["a"]}), values) == evaluate(x, values)


def test_equal_dims_are_equal_objects_values() -> None:
    assert (A + B) * 2 == B * 2 + A * 2
    assert A * B == B * A
    assert A - A == 0
    assert floordiv(A * B * 6, B * 2) == A * 3
    assert modulo(A * 4, 2) == 0
    assert product([2, A, 3, B]) == A * B * 6
    assert symbols_of(minimum(A, B + 1)) == {"a", "b"}


def test_dims_that_broadcast() -> None:
    assert broadcast(A, 1) == A
    assert broadcast(1, B) == B
    assert broadcast(A, 4) == 4
    both = broadcast(A, B)
    assert evaluate(both, {"a": 1, "b": 5}) == 5
    assert evaluate(both, {"a": 5, "b": 1}) == 5
    assert parse_dim(str(both)) == both


@pytest.mark.parametrize("text", ["", "a+", "(a", "a b", "min(a)", "a ? b", "*a"])
def test_wrong_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="dim expression"):
        parse_dim(text)


def test_a_missing_symbol_is_named() -> None:
    with pytest.raises(KeyError, match="b"):
        evaluate(A + B, {"a": 1})


@pytest.mark.parametrize(
    "grow",
    [
        lambda dim: dim * dim,
        lambda dim: floordiv(dim * dim + A, 3),
        lambda dim: dim * 7**30,
        lambda dim: (dim + A) * (dim + B),
    ],
)
def test_a_dim_that_grows_without_end_is_refused_in_time(grow: Callable[[Dim], Dim]) -> None:
    def repeat(dim: Dim) -> None:
        for _ in range(300):
            dim = grow(dim)

    with pytest.raises(CompileError, match="give some of the dims fixed sizes"):
        repeat(A + B + 1)


@pytest.mark.parametrize(
    "text",
    [
        "9" * 5000 + "*a",
        "(" * 5000 + "a" + ")" * 5000,
        "floordiv(" * 300 + "a" + ",b)" * 300,
        "floordiv(a, 0)",
        "mod(7, 0)",
        "a+" * (1 << 20),
    ],
)
def test_a_text_that_is_no_dim_is_a_value_error(text: str) -> None:
    with pytest.raises((ValueError, CompileError)):
        parse_dim(text)


def test_proofs_over_many_ends_take_no_time_without_bound() -> None:
    s = [symbol(f"s{place}") for place in range(12)]
    ends: Dim = 0
    for place in range(11):
        ends = ends + maximum(s[place], s[place + 1]) - minimum(s[place], s[place - 1])
    start = time.process_time()
    prove_le(ends, floordiv(ends, s[3]) + 5)
    assert time.process_time() - start < 2

"""Attention over keys in pages: kernels against NumPy, which gathers the pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingot.compiler.ir import Function, TensorType
from ingot.compiler.ir.dims import Dim, symbol
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype
from tests.support.entries import entry
from tests.support.every_target import Target, on_every_target
from tests.support.products import draw, f32

Array = np.ndarray[Any, Any]
PAGES, HEADS, LENGTH, WIDE, NARROW, TABLE = 9, 2, 16, 20, 12, 5


def paged(m: Dim, element: str = "f32", sinks: bool = False, **attributes: Any) -> Function:
    batch = symbol("b")
    keys = [TensorType(dtype(element), (PAGES, HEADS, LENGTH, n)) for n in (WIDE, NARROW)]
    numbers = [TensorType(dtype("i32"), shape) for shape in ((batch, TABLE), (batch, m))]
    types = [f32(batch, HEADS, m, WIDE), *keys, *numbers, *[f32(HEADS, m)] * sinks]
    return entry(types, lambda b, *x: b.op("attention_paged", *x, scale=0.2, **attributes))


def operands(b: int, m: int, element: str = "float32") -> list[Array]:
    """Rows of a sequence that ends with them; the last batch item has no keys at all."""
    random = np.random.default_rng(m)
    table = np.stack([random.permutation(PAGES)[:TABLE] for _ in range(b)])
    lengths = random.integers(m, LENGTH * TABLE + 1, b)
    ends = np.maximum(lengths[:, None] - np.arange(m)[::-1], 1)
    ends[-1] = 0
    keys = [draw(PAGES, HEADS, LENGTH, n, seed=n).astype(element) for n in (WIDE, NARROW)]
    return [draw(b, HEADS, m, WIDE), *keys, *(each.astype(np.int32) for each in (table, ends))]


BOTH = {"window": 21, "cap": 1.5}


@on_every_target
@pytest.mark.parametrize("attributes", [{}, {"window": 3}, BOTH], ids=["all", "window", "cap"])
def test_few_queries_read_keys_where_they_lie(target: Target, attributes: dict[str, Any]) -> None:
    target.check(paged(3, **attributes), operands(3, 3), one=bool(attributes), b=3)


@pytest.mark.slow
@on_every_target
def test_many_queries_read_keys_where_they_lie(target: Target) -> None:
    target.check(paged(70, **BOTH), operands(2, 70), one=True, b=2)


@on_every_target
@pytest.mark.parametrize("m", [2, pytest.param(9, marks=pytest.mark.slow)])
def test_tokens_behind_the_end_of_a_ring_stand_at_its_start(target: Target, m: int) -> None:
    q, k, v, table, _ = operands(3, m)
    ends = np.array([[70], [85], [3000]]) + np.arange(m)
    given = [q, k, v, table, ends.astype(np.int32)]
    target.check(paged(m, window=60, ring=True), given, one=True, b=3)


@on_every_target
@pytest.mark.parametrize("m", [3, pytest.param(70, marks=pytest.mark.slow)])
def test_a_sink_takes_a_part_of_the_weights(target: Target, m: int) -> None:
    function = paged(m, sinks=True, **BOTH)
    given = operands(3, m)
    sinks = draw(HEADS, m, seed=4)
    sinks[0, 0], sinks[-1, -1] = 40, -np.inf  # of all the weight, and of none
    target.check(function, [*given, sinks], one=True, b=3)


def test_sinks_are_for_heads_and_rows() -> None:
    types = [f32(1, HEADS, 2, WIDE), *[f32(3, HEADS, LENGTH, WIDE)] * 2]
    types += [TensorType(dtype("i32"), (1, n)) for n in (2, 2)] + [f32(HEADS)]
    with pytest.raises(CompileError, match=r"the sinks f32\[2\] are not for the heads and rows"):
        entry(types, lambda b, *x: b.op("attention_paged", *x, scale=0.2))


def test_a_ring_is_not_shorter_than_its_window() -> None:
    with pytest.raises(CompileError, match="a ring of 80 rows is too short for 81"):
        paged(2, window=81, ring=True)


@on_every_target
@pytest.mark.parametrize("ring", [pytest.param(False, marks=pytest.mark.slow), True])
def test_long_pages_are_read_in_blocks_that_end_with_them(target: Target, ring: bool) -> None:
    length, m = 1100, 2
    keys = [f32(2, HEADS, length, n) for n in (WIDE, NARROW)]
    numbers = [TensorType(dtype("i32"), (1, n)) for n in (2, m)]
    types, sight = [f32(1, HEADS, m, WIDE), *keys, *numbers], {"window": 1900, "ring": ring}
    function = entry(types, lambda b, *x: b.op("attention_paged", *x, scale=0.2, **sight))
    pages = [draw(2, HEADS, length, n, seed=n) for n in (WIDE, NARROW)]
    ends = [[2500, 2501]] if ring else [[2100, 2101]]
    rest = [np.array(each, np.int32) for each in ([[1, 0]], ends)]
    target.check(function, [draw(1, HEADS, m, WIDE), *pages, *rest], one=True)


@on_every_target
@pytest.mark.parametrize("m", [3, pytest.param(70, marks=pytest.mark.slow)])
def test_one_page_may_have_any_length(target: Target, m: int) -> None:
    rows = symbol("n")
    keys = [TensorType(dtype("f32"), (1, HEADS, rows, n)) for n in (WIDE, NARROW)]
    numbers = [TensorType(dtype("i32"), (1, n)) for n in (1, m)]
    types = [f32(1, HEADS, m, WIDE), *keys, *numbers]
    function = entry(types, lambda b, *x: b.op("attention_paged", *x, scale=0.2, window=60))
    pages = [draw(1, HEADS, 333, n, seed=n) for n in (WIDE, NARROW)]
    ends = (333 - np.arange(m)[::-1])[None].astype(np.int32)
    given = [draw(1, HEADS, m, WIDE), *pages, np.zeros((1, 1), np.int32), ends]
    target.check(function, given, one=True, n=333)


def test_several_pages_have_one_length() -> None:
    types = [f32(1, HEADS, 2, WIDE), *[f32(3, HEADS, symbol("n"), WIDE)] * 2]
    types += [TensorType(dtype("i32"), (1, n)) for n in (2, 2)]
    with pytest.raises(CompileError, match="the rows of a page must be a number"):
        entry(types, lambda b, *x: b.op("attention_paged", *x, scale=0.2))


@on_every_target
def test_pages_of_f16(target: Target) -> None:
    target.check(paged(1, "f16", cap=2.0), operands(3, 1, "float16"), one=True, b=3)


@on_every_target
@pytest.mark.parametrize("m", [2, pytest.param(9, marks=pytest.mark.slow)])
def test_numbers_out_of_range_are_the_nearest(target: Target, m: int) -> None:
    q, k, v, table, ends = operands(2, m)
    table[0, :2], ends[0], ends[1] = (-7, 2**30), 2**31 - 1, -5
    target.check(paged(m, window=5), [q, k, v, table, ends], one=True, b=2)

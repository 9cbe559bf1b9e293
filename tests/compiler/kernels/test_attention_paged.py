"""Attention over keys in pages: kernels against NumPy, which gathers the pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingot.compiler.ir import Function, TensorType
from ingot.compiler.ir.dims import Dim, symbol
from ingot.compiler.kernels.attention_entry import AttentionEntry
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype
from tests.support.entries import entry
from tests.support.every_target import Target, on_every_target
from tests.support.products import draw, f32

Array = np.ndarray[Any, Any]
PAGES, HEADS, LENGTH, WIDE, NARROW, TABLE = 9, 2, 16, 20, 12, 5


def paged(m: Dim, element: str = "f32", **attributes: Any) -> Function:
    batch = symbol("b")
    keys = [TensorType(dtype(element), (PAGES, HEADS, LENGTH, n)) for n in (WIDE, NARROW)]
    numbers = [TensorType(dtype("i32"), shape) for shape in ((batch, TABLE), (batch, m))]
    types = [f32(batch, HEADS, m, WIDE), *keys, *numbers]
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


def test_a_ring_is_not_shorter_than_its_window() -> None:
    with pytest.raises(CompileError, match="a ring of 80 rows is too short for 81"):
        paged(2, window=81, ring=True)


@pytest.mark.parametrize(("page", "block"), [(16, 16), (100, 100), (512, 256), (300, 4)])
def test_no_block_of_keys_is_in_two_pages(page: int, block: int) -> None:
    pages = f32(PAGES, HEADS, page, WIDE)
    numbers = [TensorType(dtype("i32"), (1, n)) for n in (2, 3)]
    types = [f32(1, HEADS, 3, WIDE), pages, pages, *numbers]
    function = entry(types, lambda b, *x: b.op("attention_paged", *x, scale=0.2))
    assert AttentionEntry(function).block(256) == block


@on_every_target
def test_pages_of_f16(target: Target) -> None:
    target.check(paged(1, "f16", cap=2.0), operands(3, 1, "float16"), one=True, b=3)


@on_every_target
@pytest.mark.parametrize("m", [2, pytest.param(9, marks=pytest.mark.slow)])
def test_numbers_out_of_range_are_the_nearest(target: Target, m: int) -> None:
    q, k, v, table, ends = operands(2, m)
    table[0, :2], ends[0], ends[1] = (-7, 2**30), 2**31 - 1, -5
    target.check(paged(m, window=5), [q, k, v, table, ends], one=True, b=2)

"""Scatters by work-groups: dimension numbers of every kind, in place and not, and faults."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.kernels.items.scatter import lower_scatter
from tests.support.entries import entry, make
from tests.support.scatters import CASES, ROWS
from tests.support.work_items import LARGE, check, needs_device, run

pytestmark = needs_device


@pytest.mark.parametrize("case", CASES)
def test_dimension_numbers(case: str) -> None:
    types, numbers, (low, high) = CASES[case]
    function = entry(
        types,
        lambda b, x, i, u: b.op("scatter", x, i, u, kind="add", **numbers),
        {"b": (0, None), "n": (0, None)},
    )
    random = np.random.default_rng(5)
    for n in (0, 1, 11):
        symbols = {"b": 10, "n": n}
        operands = [make(each.type, random, symbols) for each in function.arguments]
        operands[1] = random.integers(low, high, operands[1].shape).astype(operands[1].dtype)
        check(function, lower_scatter, operands, **symbols)


@pytest.mark.parametrize("kind", ["set", "mul", "min", "max"])
def test_kinds_with_many_updates_of_one_row(kind: str) -> None:
    function = entry(
        ["f32[700,130]", "i32[90,1]", "f32[90,130]"],
        lambda b, x, i, u: b.op("scatter", x, i, u, kind=kind, **ROWS),
    )
    random = np.random.default_rng(1)
    operands = [make(each.type, random, {}) for each in function.arguments]
    operands[1] = (random.integers(0, 9, (90, 1)) * 70).astype(np.int32)
    check(function, lower_scatter, operands, tolerance=1e-5)


def test_points_of_a_long_line_keep_their_order() -> None:
    numbers = {**ROWS, "update_window_dims": ()}
    function = entry(
        ["f32[30000]", "i32[500,1]", "f32[500]"],
        lambda b, x, i, u: b.op("scatter", x, i, u, kind="set", **numbers),
    )
    assert lower_scatter(function, LARGE).schedule.size == (1, 256, 1)
    random = np.random.default_rng(1)
    operands = [make(each.type, random, {}) for each in function.arguments]
    operands[1] = (random.integers(0, 60, (500, 1)) * 499).astype(np.int32)
    check(function, lower_scatter, operands)


@pytest.mark.parametrize("index", [5, -6, 2**40])
def test_an_index_outside_is_a_fault_that_names_it(index: int) -> None:
    function = entry(
        ["f32[b,8]", "i64[n,1]", "f32[n,8]"],
        lambda b, x, i, u: b.op("scatter", x, i, u, mode="wrap_check", **ROWS),
        {"b": (0, None), "n": (0, None)},
    )
    operands = [np.ones((5, 8), "f4"), np.array([[-5], [index]]), np.ones((2, 8), "f4")]
    kernel = lower_scatter(function, LARGE)
    assert run(kernel, operands, [np.zeros((5, 8), "f4")], b=5, n=2) == (1, index, 5)


def test_in_place_and_from_a_number() -> None:
    def body(b, i, u):
        return b.op("scatter", b.full(0, "f32", (30, 40)), i, u, kind="add", **ROWS)

    function = entry(["i32[9,1]", "f32[9,40]"], body)
    indices = np.array([[3], [29], [3], [0], [7], [8], [9], [3], [30]], np.int32)
    check(function, lower_scatter, [indices, np.ones((9, 40), np.float32)])
    plain = entry(
        ["f32[5,8]", "i32[2,1]", "f32[2,8]"], lambda b, x, i, u: b.op("scatter", x, i, u, **ROWS)
    )
    assert lower_scatter(plain, LARGE).in_place == ((0, 0),)

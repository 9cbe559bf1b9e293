"""Sorts by work-groups: stable, of any length and axis, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.kernels.items.sort import lower_sort
from tests.support.comparators import sorter
from tests.support.entries import entry
from tests.support.work_items import LARGE, SMALL, check, needs_device, run

pytestmark = needs_device


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["f32", "bf16", "i8", "i1", "u64"])
def test_every_axis_of_every_dtype(name: str, axis: int) -> None:
    function = entry([f"{name}[19,21]"], sorter(axis, [name]))
    check(function, lower_sort, targets=[LARGE])


def test_lengths_around_blocks_and_passes() -> None:
    function = entry(["i32[b]"], sorter(0, ["i32"]), {"b": (0, None)})
    assert lower_sort(function, SMALL).schedule.merges
    for size in (0, 1, 2, 3, 64, 65, 2048, 2049, 4097, 13000):
        x = np.random.default_rng(size).integers(-99, 99, size).astype(np.int32)
        check(function, lower_sort, [x], b=size)


@pytest.mark.parametrize("rows", [5, 3000])
def test_equal_keys_keep_their_order(rows: int) -> None:
    types = [f"i8[{rows},3]", f"i32[{rows},3]", f"f16[{rows},3]"]
    function = entry(types, sorter(0, ["i8", "i32", "f16"], direction="gt"))
    random = np.random.default_rng(rows)
    operands = [
        random.integers(-2, 3, (rows, 3)).astype(np.int8),
        np.arange(rows * 3, dtype=np.int32).reshape(rows, 3),
        random.standard_normal((rows, 3)).astype(np.float16),
    ]
    check(function, lower_sort, operands)


def test_short_lines_share_a_group() -> None:
    function = entry(["f32[700,10]"], sorter(1, ["f32"]))
    assert lower_sort(function, LARGE).schedule.shape.size == (8, 32, 1)
    check(function, lower_sort)


@pytest.mark.parametrize("size", [100, 9000])
def test_an_order_that_nan_breaks_still_loses_nothing(size: int) -> None:
    function = entry(["f32[n]"], sorter(0, ["f32"]), {"n": (0, None)})
    x = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    x[::7] = np.nan
    kernel = lower_sort(function, LARGE)
    result = np.zeros(size, np.float32)
    assert run(kernel, [x], [result], n=size) is None
    np.testing.assert_array_equal(np.sort(result), np.sort(x))


def test_keys_are_made_once() -> None:
    check(entry(["f32[5000]"], sorter(0, ["f32"], name="abs")), lower_sort, targets=[LARGE])

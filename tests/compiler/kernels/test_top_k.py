"""Top-k kernels: by insertion and by sorting, ties and NaN, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.kernel_text import kernel_text
from ingot.compiler.kernels.lanes.top_k import lower_top_k
from ingot.compiler.kernels.place_polls import place_polls
from ingot.hal.spec import dtype
from tests.support.entries import check, entry
from tests.support.kernel_runner import V4

ONE = ["x86-64"]


def top(k, axis=1, largest=True, index="i64"):
    return lambda b, x: b.op("top_k", x, k=k, axis=axis, largest=largest, dtype=dtype(index))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("name", ["f32", "f16", "i8", "u64", "i1"])
def test_a_few_of_every_dtype_along_both_axes(name: str, largest: bool) -> None:
    for types, axis in ((f"{name}[b,50]", 1), (f"{name}[50,b]", 0)):
        function = entry([types], top(5, axis, largest, "i32"), {"b": (0, None)})
        for size in (0, 3):
            check(function, lower_top_k, b=size, variants=None if name == "f32" else ONE)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [0, 1, 7, 100, 129, 200])
def test_ties_keep_their_order_and_nan_is_the_greatest(k: int, largest: bool) -> None:
    random = np.random.default_rng(k)
    x = random.integers(-3, 4, (4, 200)).astype(np.float32)
    x[random.random(x.shape) < 0.1] = np.nan
    x[x == 2] = np.inf
    function = entry(["f32[4,200]"], top(k, 1, largest))
    check(function, lower_top_k, [x], variants=ONE)


def test_many_are_sorted_and_few_are_inserted() -> None:
    known = {"b": (129, None)}
    assert lower_top_k(entry(["f32[2,b]"], top(128), known), V4).schedule.by == "insertion"
    function = entry(["f32[2,b]"], top(129), known)
    assert lower_top_k(function, V4).schedule.by == "sort"
    check(function, lower_top_k, b=129, variants=ONE)
    check(function, lower_top_k, b=1000, variants=ONE)


def test_to_insert_into_a_short_list_needs_no_polls() -> None:
    kernel = place_polls(lower_top_k(entry(["f32[16,10000]"], top(10)), V4), {})
    assert "poll" not in kernel_text(kernel)


@pytest.mark.parametrize("size", [0, 1, 9])
def test_a_symbolic_count(size: int) -> None:
    function = entry(["f32[3,c]"], top(symbol("c")), {"c": (0, None)})
    check(function, lower_top_k, c=size, variants=ONE)


def test_one_result_alone() -> None:
    function = entry(["f32[3,40]"], lambda b, x: top(4)(b, x)[1])
    assert len(lower_top_k(function, V4).bindings) == 2
    check(function, lower_top_k)

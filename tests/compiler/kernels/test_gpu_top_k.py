"""Top-k by work-groups: short and long lines, few and many, ties and NaN."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.items.top_k import lower_top_k
from ingot.hal.spec import dtype
from tests.support.entries import entry
from tests.support.work_items import LARGE, SMALL, check, needs_device

pytestmark = needs_device


def top(k, axis=1, largest=True, index="i64"):
    return lambda b, x: b.op("top_k", x, k=k, axis=axis, largest=largest, dtype=dtype(index))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("name", ["f32", "f16", "i8", "u64", "i1"])
def test_a_few_of_every_dtype(name: str, largest: bool) -> None:
    check(entry([f"{name}[33,50]"], top(5, 0, largest, "i32")), lower_top_k, targets=[LARGE])


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("length", [100, 5000])
@pytest.mark.parametrize("k", [0, 1, 7, 70])
def test_ties_keep_their_order_and_nan_is_the_greatest(k, length, largest) -> None:
    random = np.random.default_rng(k)
    x = random.integers(-3, 4, (3, length)).astype(np.float32)
    x[random.random(x.shape) < 0.1] = np.nan
    x[x == 2] = np.inf
    targets = [LARGE, SMALL] if k == 7 else [LARGE]
    check(entry([f"f32[3,{length}]"], top(k, 1, largest)), lower_top_k, [x], targets=targets)


def test_a_few_of_many_are_gathered() -> None:
    function = entry(["f32[2,b]"], top(40), {"b": (40, None)})
    assert lower_top_k(function, LARGE).schedule.by == "gathering"
    for size in (40, 1000, 60_000):
        check(function, lower_top_k, b=size)
    rising = np.arange(20_000, dtype=np.float32).reshape(2, -1)
    check(function, lower_top_k, [rising], b=10_000)


@pytest.mark.parametrize("size", [0, 1, 9])
def test_a_symbolic_count(size: int) -> None:
    check(entry(["f32[3,c]"], top(symbol("c")), {"c": (0, None)}), lower_top_k, c=size)


def test_one_result_alone() -> None:
    check(entry(["f32[3,40]"], lambda b, x: top(4)(b, x)[1]), lower_top_k)

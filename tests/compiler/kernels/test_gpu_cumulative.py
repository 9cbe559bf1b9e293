"""Running sums and maxima by work items, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.kernels.items.cumulative import lower_cumulative
from tests.support.entries import entry
from tests.support.work_items import LARGE, check, needs_device

pytestmark = needs_device


def cumulative(axis: int, kind: str = "add", exclusive: bool = False, reverse: bool = False):
    return lambda b, x: b.op(
        "cumulative", x, axis=axis, kind=kind, exclusive=exclusive, reverse=reverse
    )


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["add", "max"])
def test_kinds_and_directions_of_short_and_long_lines(kind, reverse, exclusive) -> None:
    function = entry(["i32[3,n]"], cumulative(1, kind, exclusive, reverse), {"n": (0, None)})
    for n in (0, 1, 3, 64, 65, 1500):
        check(function, lower_cumulative, n=n)


@pytest.mark.parametrize("name", ["bf16", "i8", "u64", "f64"])
@pytest.mark.parametrize("axis", [0, 1])
def test_dtypes(name: str, axis: int) -> None:
    check(entry([f"{name}[30,37]"], cumulative(axis)), lower_cumulative, targets=[LARGE])


def test_booleans() -> None:
    check(entry(["i1[5,70]"], cumulative(1, "or")), lower_cumulative)


@pytest.mark.parametrize(("shape", "axis"), [((2, 50, 3), 1), ((9, 50, 100), 1), ((2, 4, 33), 1)])
def test_lines_that_are_neighbours(shape, axis: int) -> None:
    function = entry([f"f32[{','.join(map(str, shape))}]"], cumulative(axis))
    check(function, lower_cumulative, tolerance=1e-5)


def test_many_lines_are_walked_by_an_item_each() -> None:
    function = entry(["f32[2,20,3000]"], cumulative(1))
    assert not lower_cumulative(function, LARGE).schedule.scanned
    check(function, lower_cumulative, targets=[LARGE])


def test_nan_stays_in_a_running_maximum() -> None:
    x = np.zeros((1, 2000), np.float32)
    x[0, 1200] = np.nan
    check(entry(["f32[1,2000]"], cumulative(1, "max")), lower_cumulative, [x])


def test_a_long_sum_of_floats_does_not_drift() -> None:
    x = np.full(200_000, 0.1, np.float32)
    check(entry(["f32[200000]"], cumulative(0)), lower_cumulative, [x], 1e-6, [LARGE])


def test_what_feeds_it_is_computed_inside() -> None:
    def body(b, x):
        cut = b.op("slice", x, start=(1,), limit=(300,))
        return cumulative(0)(b, b.op("neg", cut))

    check(entry(["f32[310]"], body), lower_cumulative)

"""Top-k kernels: by insertion, sorting and gathering, ties and NaN, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.kernel_text import kernel_text
from ingot.hal.spec import dtype
from tests.support.entries import entry
from tests.support.every_target import CPU, OPENCL, on_every_target
from tests.support.work_items import needs_device


def top(k, axis=1, largest=True, index="i64"):
    return lambda b, x: b.op("top_k", x, k=k, axis=axis, largest=largest, dtype=dtype(index))


@on_every_target
@pytest.mark.parametrize(
    ("name", "largest"),
    [("f32", True), ("f32", False), ("f16", False), ("i8", True), ("u64", False), ("i1", True)],
)
def test_a_few_of_every_dtype_along_both_axes(target, name: str, largest: bool) -> None:
    for types, axis, k in ((f"{name}[b,50]", 1, 20), (f"{name}[50,b]", 0, 5)):
        function = entry([types], top(k, axis, largest, "i32"), {"b": (0, None)})
        for size in (0, 3, 33):
            target.check(function, b=size, one=target is OPENCL or name != "f32")


@on_every_target
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    ("k", "length"),
    [
        (0, 200),
        (1, 200),
        (7, 200),
        (100, 200),
        (129, 200),
        (200, 200),
        (16, 5000),
        (7, 5000),
        (70, 5000),
    ],
)
def test_ties_keep_their_order_and_nan_is_the_greatest(target, k, length, largest) -> None:
    random = np.random.default_rng(k)
    x = random.integers(-3, 4, (4, length)).astype(np.float32)
    x[random.random(x.shape) < 0.1] = np.nan
    x[x == 2] = np.inf
    function = entry([f"f32[4,{length}]"], top(k, 1, largest))
    target.check(function, [x], one=target is CPU or k != 7)


def test_many_are_sorted_and_few_are_inserted() -> None:
    known = {"b": (129, None)}
    assert CPU.lower(entry(["f32[2,b]"], top(128), known)).schedule.by == "insertion"
    for text, k, by in (
        ("f32[2,5000]", 16, "insertion"),
        ("f32[2,5000]", 100, "threshold"),  # of which many would be inserted
        ("f32[2,50000]", 100, "insertion"),
        ("f64[2,5000]", 100, "insertion"),  # no keys
    ):
        assert CPU.lower(entry([text], top(k))).schedule.by == by
    function = entry(["f32[2,b]"], top(129), known)
    assert CPU.lower(function).schedule.by == "sort"
    CPU.check(function, b=129, one=True)
    CPU.check(function, b=1000, one=True)


@pytest.mark.parametrize(("name", "largest"), [("f32", True), ("bf16", False), ("i32", False)])
def test_what_reaches_a_threshold_is_sorted(name: str, largest: bool) -> None:
    element = dtype(name).numpy
    drawn = np.random.default_rng(3).integers(-(2**31), 2**31 - 1, (2, 4, 700))
    extremes = np.array([0, -1, -(2**31), 2**31 - 1])
    drawn[0, :, :650] = extremes[drawn[0, :, :650] & 3]
    x = drawn.astype(element)
    if dtype(name).is_float:
        x[0, :, ::9], x[0, :, 1::9], x[1, 0, ::2] = -0.0, np.nan, -np.inf
        x[0, :, 2::9] = -np.array(np.nan, element)
    down = np.ascontiguousarray(np.moveaxis(x, 2, 0).reshape(700, 8))
    text, axis, array = ("2,4,n", 2, x) if largest else ("n,8", 0, down)
    function = entry([f"{name}[{text}]"], top(150, axis, largest), {"n": (150, 1000)})
    assert CPU.lower(function).schedule.by == "threshold"
    CPU.check(function, [array], n=700)
    CPU.check(function, n=150)


def test_to_insert_into_a_short_list_needs_no_polls() -> None:
    assert "poll" not in kernel_text(CPU.lower(entry(["f32[16,10000]"], top(10))))


@needs_device
def test_a_few_of_many_are_gathered() -> None:
    function = entry(["f32[2,b]"], top(40), {"b": (40, None)})
    assert OPENCL.lower(function).schedule.by == "gathering"
    for size in (40, 1000, 60_000):
        OPENCL.check(function, b=size)
    rising = np.arange(20_000, dtype=np.float32).reshape(2, -1)
    OPENCL.check(function, [rising], b=10_000)


@on_every_target
def test_a_symbolic_count(target) -> None:
    function = entry(["f32[3,c]"], top(symbol("c")), {"c": (0, None)})
    for size in (0, 1, 9):
        target.check(function, c=size, one=target is CPU)


@on_every_target
def test_one_result_alone(target) -> None:
    function = entry(["f32[3,40]"], lambda b, x: top(4)(b, x)[1])
    assert len(target.lower(function).bindings) == 2
    target.check(function)

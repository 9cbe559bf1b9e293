"""Cumulative kernels: every axis, dtype and direction, against the interpreter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ingot.compiler.ir import walk
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.kernels.loop_attributes import Ordinal
from ingot.compiler.targets.cpu.variants import VARIANTS
from ingot.hal.spec import dtype
from tests.support.devices import best_variant
from tests.support.entries import entry
from tests.support.every_target import CPU, OPENCL, on_every_target
from tests.support.kernel_runner import run
from tests.support.work_items import needs_device


def cumulative(axis: int, kind: str = "add", exclusive: bool = False, reverse: bool = False):
    return lambda b, x: b.op(
        "cumulative", x, axis=axis, kind=kind, exclusive=exclusive, reverse=reverse
    )


@on_every_target
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", ["f32", "bf16", "i8", "u64", "i1", "f64"])
def test_every_axis_of_every_dtype(target, name: str, axis: int) -> None:
    ways = [(exclusive, reverse) for exclusive in (False, True) for reverse in (False, True)]
    way = ways[(axis + len(name)) % 4]
    body = cumulative(axis, "or" if name == "i1" else "add", *way)
    function = entry([f"{name}[3,b,37]"], body, {"b": (0, None)})
    for size in (0, 1, 5, 30):
        target.check(function, b=size, one=name != "f32")


@on_every_target
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["add", "mul", "max", "min"])
def test_kinds_and_directions_of_short_and_long_lines(target, kind, reverse, exclusive) -> None:
    function = entry(["i32[3,n]"], cumulative(1, kind, exclusive, reverse), {"n": (0, None)})
    for n in (0, 1, 3, 64, 65, 1500):
        target.check(function, n=n, one=target is CPU)
    if target is CPU:
        target.check(entry(["f32[9,75]"], cumulative(0, kind, exclusive, reverse)), one=True)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["add", "mul"])
@pytest.mark.parametrize("name", ["bf16", "f16", "f32"])
def test_sums_and_products_of_floats_are_rounded_once(name: str, kind: str, reverse: bool) -> None:
    function = entry([f"{name}[300,40]"], cumulative(0, kind, reverse=reverse))
    element = dtype(name).numpy
    drawn = np.random.default_rng(1).standard_normal((300, 40))
    x = (1 + drawn / 16 if kind == "mul" else drawn).astype(element)
    variant = best_variant()
    kernel = lower_entry(function, VARIANTS[variant].target)
    (result,) = run(kernel, [x], [np.zeros_like(x)], variant)
    step = -1 if reverse else 1
    wide = x.astype(np.float64)[::step]
    exact = (np.cumsum if kind == "add" else np.cumprod)(wide, axis=0)[::step]
    terms = np.cumsum(np.abs(wide), axis=0)[::step] if kind == "add" else np.abs(exact)
    half = np.abs(exact) * float(ml_dtypes.finfo(element).eps) / 2
    running = terms * 300 * 2.0 ** (-53 if name == "f32" else -24)
    assert np.all(np.abs(result.astype(np.float64) - exact) <= half + running)


@needs_device
@pytest.mark.parametrize(("shape", "axis"), [((2, 50, 3), 1), ((9, 50, 100), 1), ((2, 4, 33), 1)])
def test_lines_that_are_neighbours(shape, axis: int) -> None:
    function = entry([f"f32[{','.join(map(str, shape))}]"], cumulative(axis))
    OPENCL.check(function, tolerance=1e-5)


@pytest.mark.parametrize(("columns", "asked"), [(256, {0, 1}), (8, set())])
def test_lines_side_by_side_ask_for_the_next_elements(columns: int, asked: set[int]) -> None:
    kernel = CPU.lower(entry([f"f32[9,{columns}]"], cumulative(0)))
    asks = [op for op in walk(kernel.loops) if op.name == "loop.prefetch"]
    assert {Ordinal.of(op.operands[0].owner).ordinal for op in asks} == asked


@needs_device
def test_many_lines_are_walked_by_an_item_each() -> None:
    function = entry(["f32[2,20,3000]"], cumulative(1))
    assert not OPENCL.lower(function).schedule.scanned
    OPENCL.check(function, one=True)


@on_every_target
@pytest.mark.parametrize("place", [2, 1200])
def test_nan_stays_in_a_running_maximum(target, place: int) -> None:
    x = np.zeros((1, 2000), np.float32)
    x[0, place] = np.nan
    x[0, 1300] = 9
    target.check(entry(["f32[1,2000]"], cumulative(1, "max")), [x])


@on_every_target
def test_what_feeds_it_is_computed_inside(target) -> None:
    def body(b, x):
        cut = b.op("slice", x, start=(1,), limit=(300,))
        return cumulative(0)(b, b.op("neg", cut))

    function = entry(["f32[310]"], body)
    assert not target.lower(function).in_place
    target.check(function)


@on_every_target
def test_a_long_sum_of_floats_does_not_drift(target) -> None:
    x = np.full(200_000, 0.1, np.float32)
    function = entry(["f32[b]"], cumulative(0), {"b": (0, None)})
    target.check(function, [x], 1e-6 if target is OPENCL else 1e-7, one=True, b=x.size)

"""Cumulative kernels: every axis, dtype and direction, against the interpreter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ingot.compiler.kernels.lanes.cumulative import lower_cumulative
from ingot.compiler.targets.cpu.flags import VARIANTS
from ingot.hal.spec import dtype
from tests.support.devices import best_variant
from tests.support.entries import check, entry
from tests.support.kernel_runner import V4, run

ONE = ["x86-64"]


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", ["f32", "bf16", "i8", "u64", "i1", "f64"])
def test_every_axis_of_every_dtype(name: str, axis: int) -> None:
    kind = "or" if name == "i1" else "add"

    def body(b, x):
        ways = [(exclusive, reverse) for exclusive in (False, True) for reverse in (False, True)]
        exclusive, reverse = ways[(axis + len(name)) % 4]
        return b.op("cumulative", x, axis=axis, kind=kind, exclusive=exclusive, reverse=reverse)

    function = entry([f"{name}[3,b,37]"], body, {"b": (0, None)})
    for size in (0, 1, 5):
        check(function, lower_cumulative, b=size, variants=None if name == "f32" else ONE)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["add", "mul", "max", "min"])
def test_kinds_and_directions(kind: str, reverse: bool, exclusive: bool) -> None:
    def body(b, x):
        return b.op("cumulative", x, axis=0, kind=kind, exclusive=exclusive, reverse=reverse)

    check(entry(["f32[9,20]"], body), lower_cumulative, variants=ONE)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["add", "mul"])
@pytest.mark.parametrize("name", ["bf16", "f16", "f32"])
def test_sums_and_products_of_floats_are_rounded_once(name: str, kind: str, reverse: bool) -> None:
    function = entry(
        [f"{name}[300,40]"],
        lambda b, x: b.op("cumulative", x, axis=0, kind=kind, reverse=reverse),
    )
    element = dtype(name).numpy
    drawn = np.random.default_rng(1).standard_normal((300, 40))
    x = (1 + drawn / 16 if kind == "mul" else drawn).astype(element)
    variant = best_variant()
    kernel = lower_cumulative(function, VARIANTS[variant].target)
    (result,) = run(kernel, [x], [np.zeros_like(x)], variant)
    step = -1 if reverse else 1
    wide = x.astype(np.float64)[::step]
    exact = (np.cumsum if kind == "add" else np.cumprod)(wide, axis=0)[::step]
    terms = np.cumsum(np.abs(wide), axis=0)[::step] if kind == "add" else np.abs(exact)
    half = np.abs(exact) * float(ml_dtypes.finfo(element).eps) / 2
    running = terms * 300 * 2.0 ** (-53 if name == "f32" else -24)
    assert np.all(np.abs(result.astype(np.float64) - exact) <= half + running)


def test_nan_stays_in_a_running_maximum() -> None:
    function = entry(["f32[6]"], lambda b, x: b.op("cumulative", x, axis=0, kind="max"))
    check(function, lower_cumulative, [np.array([1, 2, np.nan, 3, -1, 9], np.float32)])


def test_what_feeds_it_is_computed_inside() -> None:
    def body(b, x):
        return b.op(
            "cumulative", b.op("neg", b.op("slice", x, start=(1,), limit=(8,))), axis=0, kind="add"
        )

    kernel = lower_cumulative(entry(["f32[10]"], body), V4)
    assert not kernel.in_place
    check(entry(["f32[10]"], body), lower_cumulative)


def test_a_long_sum_of_floats_does_not_drift() -> None:
    function = entry(
        ["f32[b]"], lambda b, x: b.op("cumulative", x, axis=0, kind="add"), {"b": (0, None)}
    )
    x = np.full(200_000, 0.1, np.float32)
    (got,) = run(lower_cumulative(function, V4), [x], [np.empty_like(x)], "x86-64", b=x.size)
    exact = np.cumsum(x.astype(np.float64))
    assert np.abs(got / exact - 1).max() < 1e-7

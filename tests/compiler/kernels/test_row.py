"""Row kernels: reductions with producers and consumers, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.lanes.row import lower_row
from ingot.hal.spec import dtype
from tests.support.entries import check, entry
from tests.support.kernel_runner import V4
from tests.support.rows import layer_norm, softmax, spread

F32 = dtype("f32")
S, N = symbol("s"), symbol("n")


@pytest.mark.parametrize("shape", [(3, 5, 32), (7, 37), (1, 5), (2, 1)])
def test_softmax(shape) -> None:
    check(entry([f"f32[{','.join(map(str, shape))}]"], softmax(shape)), lower_row)


def test_softmax_keeps_its_exponentials() -> None:
    schedule = lower_row(entry(["f32[12,128,128]"], softmax((12, 128, 128))), V4).schedule
    assert (schedule.passes, schedule.kept_values, schedule.together) == (2, 1, 4)
    assert schedule.kept == (1536,)


def test_softmax_of_symbolic_rows() -> None:
    function = entry(["f32[s,n]"], softmax((S, N)), {"s": (1, None), "n": (1, None)})
    for s, n in ((1, 1), (5, 16), (3, 50)):
        check(function, lower_row, s=s, n=n)


@pytest.mark.parametrize("residual", [False, True])
def test_layer_norm(residual: bool) -> None:
    types = ["f32[9,48]", "f32[48]"] + ["f32[9,48]"] * residual
    function = entry(types, layer_norm((9, 48), residual))
    check(function, lower_row, tolerance=1e-5)
    assert (0, 0) in lower_row(function, V4).in_place


@pytest.mark.parametrize("kind", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("name", ["f32", "bf16", "f16", "i32", "u8", "f64"])
def test_kinds_and_dtypes(kind: str, name: str) -> None:
    function = entry([f"{name}[4,21]"], lambda b, x: b.op("reduce", x, axes=(1,), kind=kind))
    check(function, lower_row)


@pytest.mark.parametrize("kind", ["and", "or", "xor"])
def test_bits_and_booleans(kind: str) -> None:
    for name in ("i1", "i32"):
        function = entry([f"{name}[4,21]"], lambda b, x: b.op("reduce", x, axes=(1,), kind=kind))
        check(function, lower_row)


@pytest.mark.parametrize("axes", [(1,), (1, 2), (0,), (0, 2), (0, 1, 2), (2,), (0, 1, 2, 3)])
def test_any_axes(axes: tuple[int, ...]) -> None:
    function = entry(["f32[3,4,5,22]"], lambda b, x: b.op("reduce", x, axes=axes, kind="add"))
    check(function, lower_row)


def test_global_average_pool_of_channels_last() -> None:
    def body(b, x):
        total = b.op(
            "reduce", b.op("max", x, b.full(0.0, F32, (2, 7, 7, 64))), axes=(1, 2), kind="add"
        )
        return b.op("mul", total, b.full(1 / 49, F32, (2, 64)))

    function = entry(["f32[2,7,7,64]"], body)
    check(function, lower_row)
    assert lower_row(function, V4).schedule.reduced == (49,)


def test_masked_mean_over_a_middle_axis_with_full_results() -> None:
    def body(b, x):
        top = b.op("reduce", x, axes=(1,), kind="max")
        return b.op("sub", x, b.op("broadcast", top, shape=(2, 6, 21), dimensions=(0, 2)))

    check(entry(["f32[2,6,21]"], body), lower_row)


@pytest.mark.parametrize("name", ["arg_max", "arg_min"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_positions(name: str, last: bool, axis: int) -> None:
    function = entry(
        ["f32[19,37]"], lambda b, x: b.op(name, x, axis=axis, dtype=dtype("i64"), last=last)
    )
    rng = np.random.default_rng(2)
    x = rng.integers(0, 4, (19, 37)).astype(np.float32)
    x[2, 5] = x[2, 8] = x[7, 8] = np.nan
    x[3] = -np.inf
    x[:, 4] = np.inf
    check(function, lower_row, [x])


def test_two_results_and_two_reductions() -> None:
    def body(b, x, y):
        total = b.op("reduce", b.op("mul", x, y), axes=(1,), kind="add")
        return [
            total,
            b.op("reduce", x, axes=(1,), kind="max"),
            b.op("sub", x, spread(b, total, (5, 20))),
        ]

    check(entry(["f32[5,20]", "f32[5,20]"], body), lower_row)


def test_nan_wins_and_empty_rows_give_the_identity() -> None:
    function = entry(["f32[s,n]"], lambda b, x: b.op("reduce", x, axes=(1,), kind="max"))
    x = np.zeros((3, 40), np.float32)
    x[1, 35] = np.nan
    check(function, lower_row, [x], s=3, n=40)
    check(
        entry(["f32[s,n]"], lambda b, x: b.op("reduce", x, axes=(1,), kind="add")),
        lower_row,
        s=3,
        n=0,
    )


def test_long_sums_keep_their_digits() -> None:
    def body(b, x):
        return [b.op("reduce", x, axes=(0,), kind=kind) for kind in ("add", "max")]

    x = np.full(1_000_007, 0.1, np.float32)
    x[5] = 3
    check(entry(["f32[1000007]"], body), lower_row, [x], tolerance=1e-6)


def test_kept_values_of_rows_of_several_runs_stay_in_their_scratch() -> None:
    def body(b, x):
        def over(value):
            return b.op("broadcast", value, shape=(2, 3, 4, 5), dimensions=(1,))

        count = b.full(40, "f32", (3,))
        mean = b.op("div", b.op("reduce", x, axes=(0, 2, 3), kind="add"), count)
        centered = b.op("sub", x, over(mean))
        square = b.op("mul", centered, centered)
        variance = b.op("div", b.op("reduce", square, axes=(0, 2, 3), kind="add"), count)
        return [b.op("mul", centered, over(b.op("rsqrt", variance))), mean, variance]

    check(entry(["f32[2,3,4,5]"], body), lower_row, tolerance=1e-5)

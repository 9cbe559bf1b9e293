"""Row kernels of work items, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.ir import walk
from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.items.row import lower_row
from ingot.hal.spec import dtype
from tests.support.entries import entry
from tests.support.rows import layer_norm, softmax, spread
from tests.support.work_items import LARGE, check, needs_device

pytestmark = needs_device
S, N = symbol("s"), symbol("n")


def reduce(kind: str, axes: tuple[int, ...]):
    return lambda b, x: b.op("reduce", x, axes=axes, kind=kind)


@pytest.mark.parametrize(
    ("shape", "held"),
    [((3, 5, 32), 1), ((7, 37), 1), ((1, 5), 1), ((2, 1), 1), ((2, 3000), 3), ((2, 40000), 0)],
)
def test_softmax_of_short_and_long_rows(shape, held: int) -> None:
    function = entry([f"f32[{','.join(map(str, shape))}]"], softmax(shape))
    check(function, lower_row)
    assert lower_row(function, LARGE).schedule.held == held


def test_many_rows_share_a_group() -> None:
    function = entry(["f32[3001,48]"], softmax((3001, 48)))
    check(function, lower_row, targets=[LARGE])
    assert lower_row(function, LARGE).schedule.tile[0] > 1


def test_softmax_of_symbolic_rows_in_registers_and_from_memory() -> None:
    function = entry(["f32[s,n]"], softmax((S, N)), {"s": (1, None), "n": (0, None)})
    for s, n in ((3, 0), (1, 1), (5, 16), (3, 50), (2, 3000)):
        check(function, lower_row, s=s, n=n)


def test_a_bound_of_a_symbolic_row_saves_the_second_way() -> None:
    function = entry(["f32[3,n]"], softmax((3, N)), {"n": (1, 100)})
    for n in (1, 64, 100):
        check(function, lower_row, n=n)
    anywhere = entry(["f32[3,n]"], softmax((3, N)), {"n": (1, None)})
    short, long = (list(walk(lower_row(each, LARGE).loops)) for each in (function, anywhere))
    assert len(short) < len(long)


@pytest.mark.parametrize("residual", [False, True])
def test_layer_norm(residual: bool) -> None:
    types = ["f32[9,48]", "f32[48]"] + ["f32[9,48]"] * residual
    function = entry(types, layer_norm((9, 48), residual))
    check(function, lower_row, tolerance=1e-5)
    assert (0, 0) in lower_row(function, LARGE).in_place


@pytest.mark.parametrize("kind", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("name", ["f32", "bf16", "i32", "u8", "f64"])
def test_kinds_and_dtypes(kind: str, name: str) -> None:
    check(entry([f"{name}[4,20]"], reduce(kind, (1,))), lower_row, targets=[LARGE])


@pytest.mark.parametrize("kind", ["and", "or", "xor"])
def test_bits_and_booleans(kind: str) -> None:
    for name in ("i1", "i32"):
        check(entry([f"{name}[4,21]"], reduce(kind, (1,))), lower_row, targets=[LARGE])


@pytest.mark.parametrize("axes", [(1,), (1, 2), (0,), (0, 2), (0, 1, 2), (2,), (0, 1, 2, 3)])
def test_any_axes(axes: tuple[int, ...]) -> None:
    check(entry(["f32[3,4,5,22]"], reduce("add", axes)), lower_row)


@pytest.mark.parametrize("shape", [(300, 5), (3000, 64), (8, 700)])
def test_columns(shape) -> None:
    check(entry([f"f32[{shape[0]},{shape[1]}]"], reduce("max", (0,))), lower_row)


def test_symbolic_columns() -> None:
    function = entry(["f32[s,n]"], reduce("add", (0,)), {"s": (0, None), "n": (1, None)})
    for s, n in ((0, 3), (1, 1), (70, 5), (1000, 33)):
        check(function, lower_row, s=s, n=n)


def test_a_long_sum_stays_exact() -> None:
    x = np.random.default_rng(0).random((1, 1 << 20), np.float32)
    function = entry([f"f32[1,{1 << 20}]"], reduce("add", (1,)))
    check(function, lower_row, [x], tolerance=1e-6, targets=[LARGE])


@pytest.mark.parametrize("name", ["arg_max", "arg_min"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_positions(name: str, last: bool, axis: int) -> None:
    function = entry(
        ["f32[19,37]"], lambda b, x: b.op(name, x, axis=axis, dtype=dtype("i64"), last=last)
    )
    x = np.random.default_rng(2).integers(0, 4, (19, 37)).astype(np.float32)
    x[2, 5] = x[2, 8] = x[7, 8] = np.nan
    x[3] = -np.inf
    x[:, 4] = np.inf
    check(function, lower_row, [x])


def test_two_results_and_two_reductions() -> None:
    def body(b, x, y):
        total = b.op("reduce", b.op("mul", x, y), axes=(1,), kind="add")
        top = b.op("reduce", x, axes=(1,), kind="max")
        return [total, top, b.op("sub", x, spread(b, total, (5, 20)))]

    check(entry(["f32[5,20]", "f32[5,20]"], body), lower_row)


def test_nan_wins() -> None:
    function = entry(["f32[3,n]"], reduce("max", (1,)), {"n": (0, None)})
    x = np.zeros((3, 4000), np.float32)
    x[1, 3500] = np.nan
    check(function, lower_row, [x], n=4000)
    check(function, lower_row, [x[:, 3490:3520]], n=30)

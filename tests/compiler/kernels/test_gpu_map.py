"""Map kernels of work items, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.items.map import lower_map
from ingot.hal.spec import dtype
from tests.support.entries import entry
from tests.support.work_items import LARGE, check, needs_device, run

pytestmark = needs_device
N = symbol("n")


@pytest.mark.parametrize("shape", [(50, 37), (50, 64), (7,), (2000,), (3, 5, 4)])
def test_elementwise_with_a_broadcast(shape) -> None:
    def body(b, x, y):
        return b.op("tanh", b.op("add", x, b.broadcast_to(y, shape)))

    check(entry([f"f32[{','.join(map(str, shape))}]", f"f32[{shape[-1]}]"], body), lower_map)


@pytest.mark.parametrize("name", ["f16", "bf16", "i8", "u8", "i32", "i64", "f64"])
def test_dtypes(name: str) -> None:
    check(entry([f"{name}[9,32]"] * 2, lambda b, x, y: b.op("max", x, y)), lower_map)


def test_symbolic_lengths() -> None:
    function = entry(["f32[n]"], lambda b, x: b.op("exp", x), {"n": (0, None)})
    for n in (0, 1, 5, 8, 1000, 5003):
        check(function, lower_map, n=n)
    function = entry(["f32[n,6]"], lambda b, x: b.op("neg", x), {"n": (0, None)})
    for n in (1, 77):
        check(function, lower_map, n=n)


def test_whole_tiles_and_edges_of_many_vectors_per_item() -> None:
    def body(b, x, y):
        return b.op("add", x, b.broadcast_to(y, (4099, 2048)))

    function = entry(["f32[4099,2048]", "f32[2048]"], body)
    kernel = lower_map(function, LARGE)
    assert kernel.schedule.tile[0] * kernel.schedule.tile[1] > 256 * kernel.schedule.lanes
    check(function, lower_map, targets=[LARGE])


@pytest.mark.parametrize(
    ("shape", "permutation", "turned"),
    [
        ((70, 50), (1, 0), 1),
        ((2, 33, 40), (0, 2, 1), 1),
        ((2, 9, 40, 50), (0, 2, 3, 1), 1),
        ((2, 40, 3, 50), (3, 1, 2, 0), 0),
        ((5, 6, 7), (2, 1, 0), 0),
    ],
)
def test_transposes(shape, permutation, turned: int) -> None:
    def body(b, x):
        return b.op("neg", b.op("transpose", x, permutation=permutation))

    function = entry([f"f32[{','.join(map(str, shape))}]"], body)
    check(function, lower_map)
    assert lower_map(function, LARGE).schedule.turned == turned


def test_a_transposed_operand_beside_a_straight_one_and_a_symbol() -> None:
    def body(b, x, y):
        return b.op("add", b.op("transpose", x, permutation=(1, 0)), y)

    function = entry(["f32[n,40]", "f32[40,n]"], body, {"n": (1, None)})
    for n in (1, 31, 97):
        check(function, lower_map, n=n)
    assert lower_map(function, LARGE).schedule.turned == 1


def test_pads_slices_and_concatenations() -> None:
    def body(b, x, y):
        zero = b.full(0.0, dtype("f32"), ())
        wide = b.op("pad", x, zero, low=(1, 2), high=(0, 3), interior=(0, 1))
        cut = b.op("slice", wide, start=(1, 1), limit=(9, 20), stride=(1, 2))
        return b.op("concatenate", cut, y, axis=1)

    check(entry(["f32[8,10]", "f32[8,7]"], body), lower_map)


@pytest.mark.parametrize("mode", ["clamp", "check", "wrap_check"])
def test_lookups(mode: str) -> None:
    function = entry(
        ["f32[20,33]", "i32[6,9]"], lambda b, x, i: b.op("take", x, i, axis=0, mode=mode)
    )
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, 33)).astype(np.float32)
    low = {"clamp": -9, "check": 0, "wrap_check": -20}[mode]
    high = 29 if mode == "clamp" else 20
    check(function, lower_map, [x, rng.integers(low, high, (6, 9)).astype(np.int32)])


def test_an_index_out_of_range_is_a_fault_with_and_without_barriers() -> None:
    plain = entry(
        ["f32[20,33]", "i32[5]"], lambda b, x, i: b.op("take", x, i, axis=0, mode="check")
    )
    indices = np.array([3, 4, 20, 1, 0], np.int32)
    table = np.zeros((20, 33), np.float32)
    results = [np.zeros((5, 33), np.float32)]
    assert run(lower_map(plain, LARGE), [table, indices], results) == (1, 20, 20)

    def body(b, x, i, y):
        rows = b.op("take", x, i, axis=0, mode="check")
        return b.op("add", rows, b.op("transpose", y, permutation=(1, 0)))

    turned = entry(["f32[20,33]", "i32[9]", "f32[33,9]"], body)
    kernel = lower_map(turned, LARGE)
    assert kernel.schedule.turned == 1
    indices = np.array([3, 4, -1, 1, 0, 1, 2, 3, 4], np.int32)
    operands = [table, indices, np.ones((33, 9), np.float32)]
    assert run(kernel, operands, [np.zeros((9, 33), np.float32)]) == (1, -1, 20)

"""Matrix products by work-groups, and their fallback, against the graph interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Function, TensorType, Value
from ingot.compiler.ir.dims import Dim, symbol
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.kernels.items.choose_tile import choose_tile
from ingot.compiler.kernels.kernel import TargetInfo
from ingot.hal.spec import dtype
from tests.support.products import draw, entry, f32, pack
from tests.support.work_items import LARGE, SMALL, check, needs_device

pytestmark = needs_device


def packed(m: Dim, k: int, n: int, name: str = "f32", result: str = "") -> Function:
    element = dtype(name)
    steps = max(1, 4 // element.bytes)
    types = (
        TensorType(element, (m, k)),
        TensorType(element, (-(-n // 16), -(-k // steps), 16, steps)),
    )
    return entry(lambda b, x, w: b.op("dot_packed", x, w, n=n, dtype=dtype(result or name)), *types)


def general(left: TensorType, right: TensorType, transposed: bool, result: str) -> Function:
    return entry(
        lambda b, x, y: b.op(
            "dot_general",
            x,
            y,
            lhs_batch=(0,),
            rhs_batch=(0,),
            lhs_contract=(2,),
            rhs_contract=(2 if transposed else 1,),
            dtype=dtype(result),
        ),
        left,
        right,
    )


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [
        (128, 384, 384),  # whole tiles
        (17, 33, 70),  # tails on all sides
        (300, 20, 7),  # one panel, not full
        (0, 4, 8),
        (12, 0, 8),
        (1, 520, 40),  # few rows
        (7, 33, 70),
        (3, 0, 8),
    ],
)
def test_a_group_multiplies_by_a_packed_weight(m: int, k: int, n: int) -> None:
    check(packed(m, k, n), lower_entry, [draw(m, k), pack(draw(k, n, seed=1))])


def test_large_tiles_reach_over_the_last_rows_and_columns() -> None:
    """128 x 128 and what is near: chosen where the product is large."""
    m, k, n = 2100, 20, 1300
    function = packed(m, k, n)
    large = lower_entry(function, LARGE)
    assert (large.schedule.tile.rows, large.schedule.tile.columns) == (128, 128)
    check(function, lower_entry, [draw(m, k), pack(draw(k, n, seed=1))])


def test_rows_are_known_at_the_call_and_the_epilogue_runs_on_the_tile() -> None:
    rows = symbol("m")

    def build(b: Builder, x: Value, w: Value, bias: Value, residual: Value) -> Value:
        y = b.op("add", b.op("dot_packed", x, w, n=70), b.broadcast_to(bias, (2, rows, 70)))
        y = b.op("max", y, b.full(0.0, dtype("f32"), (2, rows, 70)))
        result: Value = b.op("add", y, residual)
        return result

    types = (f32(2, rows, 20), f32(5, 20, 16, 1), f32(70), f32(2, rows, 70))
    function = entry(build, *types)
    for m in (0, 1, 7, 100):
        operands = [draw(2, m, 20), pack(draw(20, 70)), draw(70), draw(2, m, 70, seed=5)]
        check(function, lower_entry, operands, m=m)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("m", "k", "n"), [(9, 20, 33), (130, 70, 64), (1, 1, 1), (3, 1000, 17), (2, 64, 128)]
)
def test_a_group_multiplies_two_activations(transposed: bool, m: int, k: int, n: int) -> None:
    right = (3, n, k) if transposed else (3, k, n)
    function = general(f32(3, m, k), f32(*right), transposed, "f32")
    check(function, lower_entry, [draw(3, m, k), draw(*right, seed=1)])


def test_all_sizes_may_be_known_only_at_the_call() -> None:
    b, m, k, n = (symbol(name) for name in "bmkn")
    function = general(f32(b, m, k), f32(b, n, k), True, "f32")
    for sizes in ((2, 5, 3, 4), (1, 70, 33, 65), (3, 1, 0, 2), (0, 4, 4, 4)):
        values = dict(zip("bmkn", sizes, strict=True))
        left = draw(values["b"], values["m"], values["k"])
        right = draw(values["b"], values["n"], values["k"], seed=1)
        check(function, lower_entry, [left, right], **values)


@pytest.mark.parametrize(
    ("name", "rows"),
    [*((name, 21) for name in ("f16", "bf16", "f64", "i8", "u8", "i32", "i64")), ("i8", 2)],
)
def test_a_group_multiplies_every_dtype(name: str, rows: int) -> None:
    element = dtype(name)
    result = {"i8": "i32", "u8": "i32"}.get(name, name)
    integer = element.is_integer
    a, w = (np.abs(draw(*shape, seed=2)) * 20 for shape in ((rows, 21), (21, 18)))
    if name not in ("u8",):
        a, w = a - 10, w - 10
    left, right = (np.trunc(each) if integer else each / 8 for each in (a, w))
    operands: list[Any] = [left.astype(element.numpy), right.astype(element.numpy)]
    types = [TensorType(element, (1, *each.shape)) for each in operands]
    function = general(types[0], types[1], False, result)
    check(function, lower_entry, [each[None] for each in operands])
    if name not in ("i32", "i64"):
        function = packed(rows, 21, 18, name, result)
        check(function, lower_entry, [operands[0], pack(operands[1])])


def test_numbers_beyond_the_depth_never_meet_the_sums() -> None:
    """NaN and infinity behind a row or a column of the operands stay there."""
    k = symbol("k")
    function = general(f32(2, 20, k), f32(2, k, 20), False, "f32")
    left, right = draw(2, 20, 9), draw(2, 9, 20, seed=1)
    left[1, 0, 0] = np.inf
    right[1, 0, 0] = np.nan
    check(function, lower_entry, [left, right], k=9)


@pytest.mark.parametrize("target", [LARGE, SMALL], ids=["large", "small"])
def test_tiles_fit_local_memory_and_fill_the_device(target: TargetInfo) -> None:
    f32_dtype, f64 = dtype("f32"), dtype("f64")
    sizes = (1, 16, 64, 500, 4096)
    for element in (f32_dtype, f64):
        for m in sizes:
            for n in sizes:
                tile = choose_tile(target, element, m, n, 1, {})
                assert tile.down * tile.across <= target.group_size
                assert tile.local_length(element) <= target.local_memory
    whole = choose_tile(target, f32_dtype, 4096, 4096, 1, {})
    small = choose_tile(target, f32_dtype, 64, 64, 1, {})
    assert whole.rows * whole.columns > small.rows * small.columns

"""Kernels of dynamic_update_slice: clamped places, in place and not, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingot.compiler.kernels.dynamic_update_slice import lower_dynamic_update_slice
from tests.support.entries import check, entry, make, reference
from tests.support.kernel_runner import V4, VARIANTS, Loaded

ONE = ["x86-64"]


def update(b: Any, x: Any, block: Any, *starts: Any) -> Any:
    return b.op("dynamic_update_slice", x, block, *starts)


CASES: dict[str, tuple[list[str], list[tuple[int, ...]]]] = {
    "cache": (
        ["f32[b,2,100,16]", "f32[b,2,n,16]", *["i32[]"] * 4],
        [(0, 0, 0, 0), (0, 0, 50, 0), (5, -3, 200, 0)],
    ),
    "block": (["f32[9,b]", "f32[2,n]", *["i64[]"] * 2], [(0, 0), (3, 10), (8, 1000)]),
    "whole": (["bf16[b]", "bf16[b]", "u8[]"], [(0,), (1,)]),
    "narrow": (["i1[b,5]", "i1[b,2]", *["i8[]"] * 2], [(0, 0), (1, 4), (-9, 2)]),
    "static": (["f64[100,500]", "f64[10,400]", *["i64[]"] * 2], [(1, 10), (95, 1000)]),
}


@pytest.mark.parametrize("case", CASES)
def test_blocks_at_clamped_places(case: str) -> None:
    types, places = CASES[case]
    function = entry(types, update, {"b": (0, None), "n": (0, 100)})
    random = np.random.default_rng(0)
    kernel = lower_dynamic_update_slice(function, VARIANTS["x86-64"].target)
    assert kernel.in_place == ((0, 0),)
    for symbols in ({"b": 37, "n": 3}, {"b": 1, "n": 0}, {"b": 0, "n": 0}):
        operands = [make(each.type, random, symbols) for each in function.arguments]
        for place in places:
            for ordinal, start in enumerate(place):
                kind = operands[2 + ordinal].dtype
                operands[2 + ordinal] = np.array(start).astype(kind)
            variants = None if case == "block" else ONE
            check(function, lower_dynamic_update_slice, operands, variants=variants, **symbols)
            (expected,) = reference(function, operands)
            memory = operands[0].copy()
            Loaded(kernel, "x86-64")([memory, *operands[1:], memory], **symbols)
            np.testing.assert_array_equal(memory, expected)


def test_in_place_only_the_block_is_written() -> None:
    """Other elements are not even read: what lies there is no matter."""
    function = entry(["f32[64,64]", "f32[1,64]", "i32[]", "i32[]"], update)
    kernel = lower_dynamic_update_slice(function, V4)
    assert kernel.schedule.extents == (4096,)
    assert kernel.schedule.sizes == (64,)


def test_rank_zero_is_replaced() -> None:
    check(entry(["f32[]", "f32[]"], update), lower_dynamic_update_slice)


def test_a_block_made_from_the_operand_is_not_in_place() -> None:
    def body(b, x, i):
        block = b.op("slice", x, start=(0, 1), limit=(x.type.shape[0], 4))
        return update(b, x, block, i, i)

    function = entry(["f32[b,5]", "i64[]"], body, {"b": (0, None)})
    assert lower_dynamic_update_slice(function, V4).in_place == ()
    x = np.arange(30, dtype=np.float32).reshape(6, 5)
    check(function, lower_dynamic_update_slice, [x, np.array(1)], b=6)


def test_computed_operands() -> None:
    def body(b, u, i):
        block = b.op("transpose", u, permutation=(1, 0))
        return update(b, b.full(7, "f32", (10, 50)), block, b.op("neg", i), i)

    function = entry(["f32[30,3]", "i32[]"], body)
    random = np.random.default_rng(0)
    block = random.standard_normal((30, 3)).astype(np.float32)
    for start in (-4, 0, 9):
        check(function, lower_dynamic_update_slice, [block, np.array(start, np.int32)])

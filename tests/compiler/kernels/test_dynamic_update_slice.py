"""Kernels of dynamic_update_slice: clamped places, in place and not, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingot.compiler.kernels.classes import lower_entry
from tests.support.entries import entry, make, reference
from tests.support.every_target import CPU, OPENCL, on_every_target
from tests.support.kernel_runner import PLAIN, Loaded
from tests.support.work_items import needs_device


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


@on_every_target
@pytest.mark.parametrize("case", CASES)
def test_blocks_at_clamped_places(target, case: str) -> None:
    types, places = CASES[case]
    function = entry(types, update, {"b": (0, None), "n": (0, 100)})
    random = np.random.default_rng(0)
    for symbols in ({"b": 37, "n": 3}, {"b": 1, "n": 0}, {"b": 0, "n": 0}):
        operands = [make(each.type, random, symbols) for each in function.arguments]
        for place in places:
            for ordinal, start in enumerate(place):
                kind = operands[2 + ordinal].dtype
                operands[2 + ordinal] = np.array(start).astype(kind)
            target.check(function, operands, one=case != "block", **symbols)
            if target is CPU:
                in_place(function, operands, **symbols)
    assert target is CPU or max(target.lower(function).local_size) > 1


def in_place(function: Any, operands: list[Any], **symbols: int) -> None:
    """The kernel gives the same where the result takes the operand's memory."""
    kernel = lower_entry(function, PLAIN)
    assert kernel.in_place == ((0, 0),)
    (expected,) = reference(function, operands)
    memory = operands[0].copy()
    Loaded(kernel, "x86-64")([memory, *operands[1:], memory], **symbols)
    np.testing.assert_array_equal(memory, expected)


@needs_device
def test_a_large_block_is_shared_by_many_groups() -> None:
    function = entry(
        ["f32[9,b]", "f32[2,n]", *["i64[]"] * 2], update, dict.fromkeys("bn", (0, None))
    )
    operands = [np.ones((9, 5000), "f4"), np.zeros((2, 4000), "f4"), np.array(8), np.array(10)]
    OPENCL.check(function, operands, b=5000, n=4000)


def test_in_place_only_the_block_is_written() -> None:
    """Other elements are not even read: what lies there is no matter."""
    function = entry(["f32[64,64]", "f32[1,64]", "i32[]", "i32[]"], update)
    kernel = CPU.lower(function)
    assert kernel.schedule.extents == (4096,)
    assert kernel.schedule.sizes == (64,)


@on_every_target
def test_rank_zero_is_replaced(target) -> None:
    target.check(entry(["f32[]", "f32[]"], update))


@on_every_target
def test_a_block_made_from_the_operand_is_not_in_place(target) -> None:
    def body(b, x, i):
        block = b.op("slice", x, start=(0, 1), limit=(x.type.shape[0], 4))
        return update(b, x, block, i, i)

    function = entry(["f32[b,5]", "i64[]"], body, {"b": (0, None)})
    assert target.lower(function).in_place == ()
    x = np.arange(30, dtype=np.float32).reshape(6, 5)
    target.check(function, [x, np.array(1)], b=6)


@on_every_target
def test_computed_operands(target) -> None:
    def body(b, u, i):
        block = b.op("transpose", u, permutation=(1, 0))
        return update(b, b.full(7, "f32", (10, 50)), block, b.op("neg", i), i)

    function = entry(["f32[30,3]", "i32[]"], body)
    random = np.random.default_rng(0)
    block = random.standard_normal((30, 3)).astype(np.float32)
    for start in (-4, 0, 9):
        target.check(function, [block, np.array(start, np.int32)])

"""Kernels of dynamic_update_slice and suppress by work-groups, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.kernels.dynamic_update_slice import lower_dynamic_update_slice
from ingot.compiler.kernels.suppress import lower_suppress
from tests.support.entries import entry
from tests.support.work_items import LARGE, check, needs_device

pytestmark = needs_device


def update(b, x, block, *starts):
    return b.op("dynamic_update_slice", x, block, *starts)


@pytest.mark.parametrize(
    ("types", "place", "symbols"),
    [
        (["f32[b,2,100,16]", "f32[b,2,n,16]", *["i32[]"] * 4], (5, -3, 50, 0), {"b": 3, "n": 7}),
        (["f32[9,b]", "f32[2,n]", *["i64[]"] * 2], (8, 10), {"b": 5000, "n": 4000}),
        (["bf16[b]", "bf16[b]", "u8[]"], (1,), {"b": 37}),
        (["i1[b,5]", "i1[b,2]", *["i8[]"] * 2], (-9, 4), {"b": 37}),
        (["f64[100,500]", "f64[10,400]", *["i64[]"] * 2], (95, 30), {}),
    ],
)
def test_blocks_at_clamped_places(types, place, symbols) -> None:
    function = entry(types, update, dict.fromkeys(symbols, (0, None)))
    random = np.random.default_rng(0)
    operands = []
    for argument in function.arguments[:2]:
        shape = [symbols.get(str(dim), dim) for dim in argument.type.shape]
        operands.append((random.random(shape) * 2).astype(argument.type.dtype.numpy))
    for argument, start in zip(function.arguments[2:], place, strict=True):
        operands.append(np.array(start).astype(argument.type.dtype.numpy))
    check(function, lower_dynamic_update_slice, operands, **symbols)
    assert max(lower_dynamic_update_slice(function, LARGE).local_size) > 1


def test_boxes_that_overlap_are_left_out() -> None:
    function = entry(
        ["f32[3,n,4]", "i1[3,n]", "i64[]", "f32[]"],
        lambda b, *operands: b.op("suppress", *operands),
        {"n": (0, None)},
    )
    random = np.random.default_rng(0)
    for n in (0, 1, 60, 400):
        corners = random.random((3, n, 2)).astype(np.float32) * 5
        boxes = np.concatenate([corners, corners + 1], axis=2)
        candidates = random.random((3, n)) < 0.7
        operands = [boxes, candidates, np.array(50), np.array(0.2, np.float32)]
        check(function, lower_suppress, operands, n=n)

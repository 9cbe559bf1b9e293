"""Gather and dynamic_slice in map kernels: dimension numbers, modes, faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.lanes.map import lower_map
from tests.support.drawn import examples
from tests.support.entries import check, entry
from tests.support.kernel_runner import VARIANTS, IndexFault, run

ONE = ["x86-64"]
B = symbol("b")

CASES: dict[str, tuple[list[str], dict[str, Any], tuple[int, int]]] = {
    "windows": (
        ["f32[9,b,7]", "i32[n,2]"],
        {
            "offset_dims": (1, 2, 3),
            "collapsed_slice_dims": (),
            "start_index_map": (2, 0),
            "index_vector_dim": 1,
            "slice_sizes": (3, B, 2),
        },
        (-3, 12),
    ),
    "index vectors in front": (
        ["i8[9,8,b]", "i64[2,n]"],
        {
            "offset_dims": (0,),
            "collapsed_slice_dims": (0, 1),
            "start_index_map": (1, 0),
            "index_vector_dim": 0,
            "slice_sizes": (1, 1, B),
        },
        (-3, 12),
    ),
    "batches": (
        ["f16[b,20]", "u8[b,n]"],
        {
            "offset_dims": (),
            "collapsed_slice_dims": (1,),
            "operand_batching_dims": (0,),
            "start_indices_batching_dims": (0,),
            "start_index_map": (1,),
            "index_vector_dim": 2,
            "slice_sizes": (1, 1),
        },
        (0, 30),
    ),
    "elements from the end": (
        ["f32[20,b]", "i32[n,b]"],
        {
            "offset_dims": (),
            "collapsed_slice_dims": (0,),
            "operand_batching_dims": (1,),
            "start_indices_batching_dims": (1,),
            "start_index_map": (0,),
            "index_vector_dim": 2,
            "slice_sizes": (1, 1),
            "mode": "wrap_check",
        },
        (-20, 20),
    ),
}


@pytest.mark.parametrize("case", CASES)
@examples(8)
@given(n=st.integers(0, 40), size=st.integers(1, 20), seed=st.integers(0, 2**31))
def test_dimension_numbers(case: str, n: int, size: int, seed: int) -> None:
    types, numbers, (low, high) = CASES[case]
    symbols = {"b": (0, None), "n": (0, None)}
    function = entry(types, lambda b, x, i: b.op("gather", x, i, **numbers), symbols)
    random = np.random.default_rng(seed)
    shapes = [
        [{"b": size, "n": n}.get(str(d), d) for d in a.type.shape] for a in function.arguments
    ]  # type: ignore[union-attr]
    kinds = [a.type.dtype.numpy for a in function.arguments]  # type: ignore[union-attr]
    x = random.integers(-99, 99, shapes[0]).astype(kinds[0])
    indices = random.integers(low, high, shapes[1]).astype(kinds[1])
    check(function, lower_map, [x, indices], variants=ONE, b=size, n=n)


@pytest.mark.parametrize("index", [-21, 20])
def test_a_fault_has_the_index_as_it_was_given(index: int) -> None:
    types, numbers, _ = CASES["elements from the end"]
    symbols = {"b": (0, None), "n": (0, None)}
    function = entry(types, lambda b, x, i: b.op("gather", x, i, **numbers), symbols)
    indices = np.zeros((3, 4), np.int32)
    indices[2, 3] = index
    kernel = lower_map(function, VARIANTS["x86-64"].target)
    with pytest.raises(IndexFault, match=rf"\(1, {index}, 20\)"):
        run(
            kernel,
            [np.zeros((20, 4), np.float32), indices],
            [np.zeros((3, 4), np.float32)],
            "x86-64",
            b=4,
            n=3,
        )


@pytest.mark.parametrize("starts", [(0, 0), (3, 5), (-1, 99), (99, -1)])
def test_dynamic_slices_are_clamped(starts: tuple[int, int]) -> None:
    def body(b, x, y, i, j):
        part = b.op("dynamic_slice", x, i, j, sizes=(2, B))
        return b.op("add", part, b.op("broadcast", y, shape=(2, B), dimensions=(1,)))

    function = entry(["f32[5,40]", "f32[b]", "i32[]", "i64[]"], body, {"b": (0, 40)})
    x = np.arange(200, dtype=np.float32).reshape(5, 40)
    for size in (0, 1, 17, 40):
        y = np.full(size, 0.5, np.float32)
        operands = [x, y, np.array(starts[0], np.int32), np.array(starts[1])]
        check(function, lower_map, operands, variants=ONE, b=size)

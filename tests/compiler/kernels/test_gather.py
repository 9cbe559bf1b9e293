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
from tests.support.entries import check, entry, reference
from tests.support.kernel_runner import VARIANTS, IndexFault, host_variants, run

ONE = ["x86-64"]
SIDES = st.sampled_from([1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 50])
B = symbol("b")
SYMBOLS = dict.fromkeys("ahwmn", (0, None))

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


def grid(b: Any, x: Any, rows: Any, columns: Any, y: Any) -> Any:
    """Elements where drawn rows and columns meet, and the greater ones of them and y."""
    x = b.op("take", x, rows, axis=1, mode="wrap_check")
    x = b.op("take", x, columns, axis=2, mode="check")
    return b.op("or" if x.type.dtype.is_boolean else "max", x, y)


def grid_entry(kind: str) -> Any:
    types = [f"{kind}[a,h,w]", "i64[m]", "i32[n]", f"{kind}[a,m,n]"]
    return entry(types, grid, SYMBOLS)


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "u8", "i16", "i1"])
@examples(12)
@given(
    sizes=st.tuples(*[SIDES] * 5),
    order=st.sampled_from(["near", "back", "far"]),
    in_place=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_rows_and_columns(
    kind: str, sizes: tuple[int, ...], order: str, in_place: bool, seed: int
) -> None:
    a, h, w, m, n = sizes
    symbols = dict(zip("ahwmn", sizes, strict=True))
    function, random = grid_entry(kind), np.random.default_rng(seed)
    columns = random.integers(0, w, n)
    if order != "far":  # as a resize reads them
        columns = np.arange(n) * w // n
    rows = random.integers(-h, h, m)
    y = random.integers(0, 9, (a, m, n)).astype(function.arguments[0].type.dtype.numpy)  # type: ignore[union-attr]
    x = random.integers(0, 9, (a, h, w)).astype(y.dtype)
    columns = (columns[::-1] if order == "back" else columns).astype(np.int32)
    operands = [x, rows, columns, y]
    if not in_place:
        check(function, lower_map, operands, **symbols)
        return
    (expected,) = reference(function, operands)
    kernel = lower_map(function, VARIANTS[host_variants()[0]].target)
    assert kernel.in_place == ((3, 0),)
    (got,) = run(kernel, operands, [y], **symbols)
    np.testing.assert_array_equal(got, expected)


def columns_of(b: Any, x: Any, columns: Any) -> Any:
    return b.op("take", x, columns, axis=2, mode="check")


@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "u8", "i1"])
@examples(12)
@given(sizes=st.tuples(*[SIDES] * 4), is_far=st.booleans(), seed=st.integers(0, 2**31))
def test_columns_are_picked_out_of_vectors(
    kind: str, sizes: tuple[int, ...], is_far: bool, seed: int
) -> None:
    """Of what is in a row: short ones have less than a vector."""
    a, h, w, n = sizes
    function = entry([f"{kind}[a,h,w]", "i32[n]"], columns_of, SYMBOLS)
    random = np.random.default_rng(seed)
    x = random.integers(0, 9, (a, h, w))
    columns = random.integers(0, w, n) if is_far else np.arange(n) * w // n
    operands = [x.astype(function.arguments[0].type.dtype.numpy), columns.astype(np.int32)]  # type: ignore[union-attr]
    check(function, lower_map, operands, a=a, h=h, w=w, n=n)


@pytest.mark.parametrize("place", [0, 17, 39])
def test_a_column_that_lies_outside_is_told(place: int) -> None:
    function, columns = grid_entry("f32"), np.zeros(40, np.int32)
    columns[place] = 30
    y = np.zeros((2, 5, 40), np.float32)
    operands = [np.zeros((2, 4, 30), np.float32), np.zeros(5, np.int64), columns, y]
    kernel = lower_map(function, VARIANTS["x86-64"].target)
    with pytest.raises(IndexFault, match=r"\(2, 30, 30\)"):
        run(kernel, operands, [y.copy()], "x86-64", a=2, h=4, w=30, m=5, n=40)

"""Damaged numbers in modules for OpenCL: an error or some result, never a crash.

PoCL runs kernels in the process that calls it, so a kernel that leaves its memory ends the
child process of these tests. Modules have no fallback: every dispatch is the device's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Region, ScalarType, Value
from ingot.compiler.ir.dims import symbol
from ingot.hal.spec import dtype
from tests.support.compiled_programs import build
from tests.support.devices import opencl_device
from tests.support.mutations import survive

B, S, K = symbol("b"), symbol("s"), symbol("k")
I64 = dtype("i64")
SYMBOLS: dict[str, tuple[int, int | None]] = {"b": (1, None), "s": (3, None), "k": (1, None)}
URI = opencl_device()
pytestmark = pytest.mark.skipif(URI is None, reason="there is no OpenCL device")


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def moves(b: Builder, x: Value, places: Value) -> list[Value]:
    """What reads and writes by index, along lines and over all elements."""
    block = Block([ScalarType(dtype("f32"))] * 2 + [ScalarType(I64)] * 2)
    inner = Builder(block)
    inner.yield_(inner.op("compare", *block.arguments[:2], direction="lt"))
    order = b.op("iota", dtype=I64, shape=(B, S), axis=0)
    rows = b.op("reshape", places, shape=(S, 1))
    taken = b.op("take", x, places, axis=0, mode="check")
    start = b.op("reduce", places, axes=(0,), kind="max")
    return [
        b.op("slice", b.op("tanh", x), start=(0, 1), limit=(B, S), stride=(1, 2)),
        b.op("transpose", b.op("exp", x), permutation=(1, 0)),
        *b.op("top_k", b.op("neg", x), k=3, axis=1, largest=True, dtype=I64),
        *b.op("sort", x, order, regions=[Region([block])], axis=0),
        b.op("cumulative", x, axis=1, kind="add"),
        b.op("cumulative", b.op("abs", x), axis=0, kind="max", reverse=True),
        b.op(
            "scatter", x, rows, taken, kind="add", update_window_dims=(1,),
            inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1,
        ),
        b.op("dynamic_update_slice", x, b.op("slice", x, start=(0, 0), limit=(1, 3)), start, start),
        b.op("nonzero", b.op("max", x, b.op("neg", b.op("abs", x))), symbols=("n",)),
    ]  # fmt: skip


def sums(
    b: Builder, x: Value, y: Value, line: Value, image: Value, filters: Value, spread: Value
) -> list[Value]:
    """Rows, products, windows."""
    plain = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dtype": dtype("f32")}
    largest = b.op("reduce", x, axes=(1,), kind="max")
    largest = b.op("broadcast", largest, shape=(B, K), dimensions=(0,))
    return [
        b.op("dot_general", x, y, lhs_contract=(1,), rhs_contract=(0,)),
        b.op("dot_general", x, b.op("exp", x), lhs_contract=(0,), rhs_contract=(0,)),
        b.op("reduce", b.op("exp", b.op("sub", x, largest)), axes=(1,), kind="add"),
        b.op("arg_max", y, axis=0, dtype=I64),
        b.op("attention", line, line, line, scale=0.5),
        b.op("convolution", image, filters, layout="nhwc,hwio->nhwc", **plain),
        b.op("depthwise", image, spread, **plain),
        b.op("reduce_window", image, kind="max", window=(1, 2, 2, 1), strides=(1, 2, 2, 1)),
    ]


def weighted(b: Builder, x: Value, image: Value) -> list[Value]:
    """Products with constants, which are packed when the module is loaded."""
    plain = {"strides": (1, 1), "padding": ((1, 1), (1, 1)), "dtype": dtype("f32")}
    dot = b.op("dot_general", x, b.constant(numbers(64, 48)), lhs_contract=(1,), rhs_contract=(0,))
    kernel = b.constant(numbers(3, 3, 16, 32))
    return [
        b.op("max", dot, b.op("neg", dot)),
        b.op("convolution", image, kernel, layout="nhwc,hwio->nhwc", **plain),
    ]


Make = Callable[..., Sequence[Value]]
PROGRAMS: dict[str, tuple[Make, list[tuple[str, tuple[Any, ...]]], list[Any]]] = {
    "moves": (
        moves,
        [("f32", (B, S)), ("i32", (S,))],
        [numbers(5, 9), np.arange(9, dtype=np.int32) % 5],
    ),
    "sums": (
        sums,
        [
            ("f32", (B, K)),
            ("f32", (K, S)),
            ("f32", (2, S, 8)),
            ("f32", (1, S, S, 4)),
            ("f32", (3, 3, 4, B)),
            ("f32", (3, 3, 4)),
        ],
        [
            numbers(5, 7),
            numbers(7, 9),
            numbers(2, 9, 8),
            numbers(1, 9, 9, 4),
            numbers(3, 3, 4, 5),
            numbers(3, 3, 4),
        ],
    ),
    "weighted": (
        weighted,
        [("f32", (B, 64)), ("f32", (1, S, S, 16))],
        [numbers(5, 64), numbers(1, 9, 9, 16)],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_of_a_dispatch_belong_together(name: str) -> None:
    make, types, arguments = PROGRAMS[name]
    dims = {str(dim) for _, shape in types for dim in shape}
    symbols = {each: bounds for each, bounds in SYMBOLS.items() if each in dims}
    program = build(make, *types, symbols=symbols)
    module = ingot.compile(program, target="opencl", fallback=False)
    kinds = survive(bytes(module), arguments, range(150), device=str(URI))
    assert kinds["ran"] > 10
    assert kinds["DataLoss"] > 50

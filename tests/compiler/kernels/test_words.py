"""Contractions of bytes in words of four: exact, whatever instructions a variant has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import TensorType, Value, walk
from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.interpreter import run_kernel
from ingot.compiler.kernels.lanes.contraction import lower_contraction
from ingot.compiler.kernels.lanes.convolution import (
    lower_convolution,
    lower_direct_convolution,
)
from ingot.hal.spec import dtype
from tests.support.entries import entry
from tests.support.kernel_runner import VARIANTS, dot4_variants, run
from tests.support.products import pack

Array = np.ndarray[Any, Any]
SIGNS = (("u8", "i8"), ("i8", "i8"), ("u8", "u8"), ("i8", "u8"))


def extremes(name: str, *shape: int) -> Array:
    """Bytes, many of which are the least and the greatest: where instructions saturate."""
    limits = np.iinfo(dtype(name).numpy)
    numbers = np.random.default_rng(3).integers(limits.min - 90, limits.max + 91, shape)
    return np.clip(numbers, limits.min, limits.max).astype(dtype(name).numpy)


def bytes_of(name: str, *shape: Any) -> TensorType:
    return TensorType(dtype(name), shape)


@pytest.mark.parametrize("variant", dot4_variants())
@pytest.mark.parametrize(("left", "right"), SIGNS)
def test_bytes_are_multiplied_exactly(variant: str, left: str, right: str) -> None:
    m, k, n = 9, 36, 70

    def build(b: Builder, x: Value, w: Value) -> Value:
        return b.value("dot_packed", x, w, n=n, dtype=dtype("i32"))

    function = entry([bytes_of(left, m, k), bytes_of(right, 5, k // 4, 16, 4)], build)
    kernel = lower_contraction(function, VARIANTS[variant].target)
    assert any(op.name == "loop.dot4" for op in walk(kernel.loops))
    a, w = extremes(left, m, k), extremes(right, k, n)
    (got,) = run(kernel, [a, pack(w)], [np.full((m, n), -1, np.int32)], variant)
    np.testing.assert_array_equal(got, a.astype(np.int32) @ w.astype(np.int32))
    arrays = [a, pack(w), np.full((m, n), -1, np.int32)]
    assert run_kernel(kernel, arrays, {}) is None
    np.testing.assert_array_equal(arrays[-1], got)


@pytest.mark.parametrize("variant", dot4_variants()[:1])
def test_rows_may_be_known_only_at_the_call_and_begin_anywhere(variant: str) -> None:
    rows, k, n = symbol("m"), 8, 20

    def build(b: Builder, x: Value, w: Value, shift: Value) -> Value:
        sums = b.op("dot_packed", x, w, n=n, dtype=dtype("i32"))
        scaled = b.op(
            "convert", b.op("add", sums, b.broadcast_to(shift, (rows, n))), dtype=dtype("f32")
        )
        return b.value("convert", b.op("round_even", scaled), dtype=dtype("u8"))

    types = (bytes_of("u8", rows, k), bytes_of("i8", 2, 2, 16, 4), bytes_of("i32", n))
    kernel = lower_contraction(entry(types, build), VARIANTS[variant].target)
    w, shift = extremes("i8", k, n) // 16, np.arange(n, dtype=np.int32)
    for m in (0, 1, 2, 9, 30):
        memory = extremes("u8", m * k + 1)
        a = memory[1:].reshape(m, k)
        (got,) = run(kernel, [a, pack(w), shift], [np.full((m, n), 7, np.uint8)], variant, m=m)
        wanted = np.clip(a.astype(np.int32) @ w.astype(np.int32) + shift, 0, 255)
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("variant", dot4_variants())
@pytest.mark.parametrize("form", ["staged", "gathered", "direct"])
def test_pixels_of_bytes_are_multiplied_exactly(variant: str, form: str) -> None:
    channels, n = 8, 21
    height = 6 if form == "staged" else symbol("h")

    def build(b: Builder, x: Value, w: Value) -> Value:
        moves = {"window": (3, 3), "padding": ((1, 1), (1, 1)), "strides": (1, 2)}
        return b.value("conv_packed", x, w, n=n, dtype=dtype("i32"), **moves)

    lines = 9 * channels // 4
    function = entry(
        [bytes_of("u8", 2, height, 9, channels), bytes_of("i8", 2, lines, 16, 4)], build
    )
    lower = lower_direct_convolution if form == "direct" else lower_convolution
    kernel = lower(function, VARIANTS[variant].target)
    assert any(op.name == "loop.dot4" for op in walk(kernel.loops))
    x, w = extremes("u8", 2, 6, 9, channels), extremes("i8", 3, 3, channels, n)
    out = np.full((2, 6, 5, n), -1, np.int32)
    symbols = {} if form == "staged" else {"h": 6}
    (got,) = run(kernel, [x, pack(w.reshape(-1, n))], [out], variant, **symbols)
    padded = np.pad(x.astype(np.int64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    wanted = sum(
        padded[:, i : i + 6, j : j + 9 : 2][:, :, :5] @ w[i, j].astype(np.int64)
        for i in range(3)
        for j in range(3)
    )
    np.testing.assert_array_equal(got, wanted)

"""Contractions of bytes in words of four: exact, whatever instructions a variant has. Those of bf16
and f16 in words of two, where instructions multiply them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Function, TensorType, Value, walk
from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.interpreter import run_kernel
from ingot.compiler.kernels.lanes.contraction import lower_contraction
from ingot.compiler.kernels.lanes.convolution import lower_convolution
from ingot.compiler.kernels.lanes.convolution_direct import lower_direct_convolution
from ingot.compiler.kernels.lanes.depthwise import lower_depthwise
from ingot.compiler.kernels.lanes.map import lower_map
from ingot.compiler.kernels.schedule import MOST_SCRATCH
from ingot.hal.spec import dtype
from tests.support.entries import entry, reference
from tests.support.kernel_runner import (
    VARIANTS,
    dot2_variants,
    dot4_variants,
    half2_variants,
    run,
)
from tests.support.products import convolved, error_of, extremes, pack

Array = np.ndarray[Any, Any]
SIGNS = (("u8", "i8"), ("i8", "i8"), ("u8", "u8"), ("i8", "u8"))


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
    assert any(op.name in ("loop.dot4", "loop.dot_tiles") for op in walk(kernel.loops))
    a, w = extremes(left, m, k), extremes(right, k, n)
    (got,) = run(kernel, [a, pack(w)], [np.full((m, n), -1, np.int32)], variant)
    np.testing.assert_array_equal(got, a.astype(np.int32) @ w.astype(np.int32))
    arrays = [a, pack(w), np.full((m, n), -1, np.int32)]
    assert run_kernel(kernel, arrays, {}) is None
    np.testing.assert_array_equal(arrays[-1], got)


@pytest.mark.parametrize("variant", [*dot4_variants(), "x86-64"])
def test_codes_of_a_product_are_looked_up_where_they_are_made(variant: str) -> None:
    m, k, n = 9, 36, 70

    def build(b: Builder, x: Value, w: Value, table: Value) -> Value:
        total = b.value("dot_packed", x, w, n=n, dtype=dtype("i32"))
        low, high = (b.full(each, "i32", (m, n)) for each in (0, 255))
        codes = b.value("convert", b.value("clamp", low, total, high), dtype=dtype("u8"))
        return b.value("take", table, codes, axis=0, mode="clamp")

    types = [bytes_of("u8", m, k), bytes_of("i8", 5, k // 4, 16, 4), bytes_of("u8", 256)]
    function = entry(types, build)
    kernel = lower_contraction(function, VARIANTS[variant].target)
    random = np.random.default_rng(4)
    a, w = random.integers(0, 4, (m, k)), random.integers(-3, 8, (k, n))
    operands = [a.astype(np.uint8), pack(w.astype(np.int8)), random.permutation(256)]
    operands[2] = operands[2].astype(np.uint8)
    wanted = operands[2][np.clip(a @ w, 0, 255)]
    assert len(np.unique(wanted)) > 100
    (got,) = run(kernel, operands, [np.zeros((m, n), np.uint8)], variant)
    np.testing.assert_array_equal(got, wanted)
    arrays = [*operands, np.zeros((m, n), np.uint8)]
    assert run_kernel(kernel, arrays, {}) is None
    np.testing.assert_array_equal(arrays[-1], got)


FORMS = {  # axes of both sides, columns, depth
    "words": ("bmk", "bnk", 40, 32),
    "bytes": ("bmk", "bkn", 21, 13),
    "heads": ("mbk", "kbn", 21, 24),
    "turned": ("bkm", "bnk", 21, 35),
    "any depth": ("bmk", "bkn", 21, 7),
    "deep": ("bmk", "bkn", 70, 6000),
}


@pytest.mark.parametrize("variant", dot4_variants())
@pytest.mark.parametrize(("form", "signs"), [*zip(FORMS, (*SIGNS, *SIGNS[:2]), strict=True)])
def test_bytes_of_two_activations_are_multiplied_exactly(
    variant: str, form: str, signs: tuple[str, str]
) -> None:
    left, right, n, k = FORMS[form]
    sizes = {"b": 2, "m": 9, "n": n, "k": k}
    dims = {**sizes, "k": symbol("k")} if form == "any depth" else sizes

    def build(b: Builder, x: Value, y: Value) -> Value:
        return b.value(
            "dot_general", x, y, dtype=dtype("i32"),
            lhs_batch=(left.index("b"),), lhs_contract=(left.index("k"),),
            rhs_batch=(right.index("b"),), rhs_contract=(right.index("k"),),
        )  # fmt: skip

    sides = list(zip(signs, (left, right), strict=True))
    types = [bytes_of(sign, *map(dims.__getitem__, axes)) for sign, axes in sides]
    kernel = lower_contraction(entry(types, build), VARIANTS[variant].target)
    assert any(op.name in ("loop.dot4", "loop.dot_tiles") for op in walk(kernel.loops))
    a, b = (extremes(sign, *map(sizes.__getitem__, axes)) for sign, axes in sides)
    wanted = np.einsum(f"{left},{right}->bmn", a.astype(np.int32), b.astype(np.int32))
    symbols = {"k": k} if form == "any depth" else {}
    (got,) = run(kernel, [a, b], [np.full(wanted.shape, -1, np.int32)], variant, **symbols)
    np.testing.assert_array_equal(got, wanted)


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
    assert any(op.name in ("loop.dot4", "loop.dot_tiles") for op in walk(kernel.loops))
    x, w = extremes("u8", 2, 6, 9, channels), extremes("i8", 3, 3, channels, n)
    out = np.full((2, 6, 5, n), -1, np.int32)
    symbols = {} if form == "staged" else {"h": 6}
    (got,) = run(kernel, [x, pack(w.reshape(-1, n))], [out], variant, **symbols)
    np.testing.assert_array_equal(got, convolved(x, w))


WINDOWS = [  # image, window, strides, dilation, padding
    ((1, 9, 15, 36), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))),
    ((2, 8, 29, 16), (3, 3), (2, 2), (1, 1), ((0, 1), (0, 1))),
    ((1, 7, 5, 20), (5, 2), (1, 1), (2, 3), ((3, 4), (4, 0))),
    ((1, 2, 3, 16), (4, 3), (1, 1), (1, 1), ((3, 0), (2, 2))),
    ((2, 40, 16), (3,), (1,), (1,), ((1, 1),)),
]


@pytest.mark.parametrize("variant", dot4_variants())
@pytest.mark.parametrize(("case", "signs"), [*zip(WINDOWS, (*SIGNS, SIGNS[0]), strict=True)])
def test_windows_of_one_channel_are_multiplied_exactly(
    variant: str, case: Any, signs: tuple[str, str]
) -> None:
    image, window, strides, dilation, padding = case

    def build(b: Builder, x: Value, w: Value) -> Value:
        moves = {"strides": strides, "rhs_dilation": dilation, "padding": padding}
        return b.value("depthwise", x, w, dtype=dtype("i32"), **moves)

    shapes = image, (*window, image[-1])
    types = [bytes_of(sign, *shape) for sign, shape in zip(signs, shapes, strict=True)]
    function, target = entry(types, build), VARIANTS[variant].target
    kernel = lower_depthwise(function, target)
    assert (
        any(op.name in ("loop.dot4", "loop.dot_tiles") for op in walk(kernel.loops)) == target.dot4
    )
    x, w = (extremes(sign, *shape) for sign, shape in zip(signs, shapes, strict=True))
    (wanted,) = reference(function, [x, w])
    (got,) = run(kernel, [x, w], [np.full_like(wanted, -1)], variant)
    np.testing.assert_array_equal(got, wanted)
    arrays = [x, w, np.full_like(wanted, -1)]
    assert run_kernel(kernel, arrays, {}) is None
    np.testing.assert_array_equal(arrays[-1], wanted)


@pytest.mark.parametrize("variant", dot4_variants())
def test_codes_are_the_nearest_whole_numbers_within_limits(variant: str) -> None:
    whole = np.arange(-300, 300)
    special = [np.inf, -np.inf, np.nan, 3e9, -3e9, 2e10, 1e30, -0.0, 2.0**31, 2.0**32, -(2.0**31)]
    x = np.concatenate([special, whole, whole + 0.5, whole + 0.49]).astype(np.float32)
    names = ("u8", "i8", "i16", "i32")

    def build(b: Builder, x: Value) -> list[Value]:
        return [b.op("convert", b.op("round_even", x), dtype=dtype(name)) for name in names]

    function = entry([TensorType(dtype("f32"), x.shape)], build)
    wanted = reference(function, [x])
    results = [np.full_like(each, 7) for each in wanted]
    got = run(lower_map(function, VARIANTS[variant].target), [x], results, variant)
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)


BF16 = dtype("bf16")


def halves(*shape: int, seed: int = 5) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(BF16.numpy)


def check_halves(function: Function, arrays: list[Array], wanted: Array, variant: str) -> None:
    """The kernel multiplies pairs, on the machine and in the interpreter."""
    lower = lower_convolution if wanted.ndim == 4 else lower_contraction
    kernel = lower(function, VARIANTS[variant].target)
    assert any(op.name == "loop.dot2" for op in walk(kernel.loops))
    out = np.full(wanted.shape, 7, np.float32)
    (got,) = run(kernel, arrays, [out], variant)
    assert error_of(got, wanted) <= 1e-6
    assert run_kernel(kernel, [*arrays, out], {}) is None
    assert error_of(out, wanted) <= 1e-6


@pytest.mark.parametrize("variant", dot2_variants())
@pytest.mark.parametrize("n", [5, 70])
def test_pairs_of_bf16_are_multiplied(variant: str, n: int) -> None:
    m, k = 9, 34

    def build(b: Builder, x: Value, w: Value) -> Value:
        return b.value("dot_packed", x, w, n=n, dtype=dtype("f32"))

    panels = TensorType(BF16, (-(-n // 16), k // 2, 16, 2))
    a, w = halves(m, k), halves(k, n, seed=6)
    wanted = a.astype(np.float64) @ w.astype(np.float64)
    check_halves(entry([TensorType(BF16, (m, k)), panels], build), [a, pack(w)], wanted, variant)


@pytest.mark.parametrize("variant", dot2_variants())
@pytest.mark.parametrize("steps", [1, 2])
def test_pixels_of_bf16_are_multiplied_in_pairs(variant: str, steps: int) -> None:
    channels, n = 6, 21

    def build(b: Builder, x: Value, w: Value) -> Value:
        moves = {"window": (3, 3), "padding": ((1, 1), (1, 1)), "strides": (1, steps)}
        return b.value("conv_packed", x, w, n=n, dtype=dtype("f32"), **moves)

    x, w = halves(2, 6, 9, channels), halves(3, 3, channels, n, seed=6)
    panels = TensorType(BF16, (2, 9 * channels // 2, 16, 2))
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    wanted = sum(
        padded[:, i : i + 6, j : j + 9 : steps] @ w[i, j].astype(np.float64)
        for i in range(3)
        for j in range(3)
    )
    function = entry([TensorType(BF16, x.shape), panels], build)
    check_halves(function, [x, pack(w.reshape(-1, n))], np.asarray(wanted), variant)


@pytest.mark.parametrize("variant", dot2_variants())
def test_a_product_of_bf16_keeps_what_is_not_finite_and_may_drop_what_is_subnormal(
    variant: str,
) -> None:
    rows = [[np.inf, 1], [np.inf, -np.inf], [np.nan, 0], [3e38, 3e38], [1e-39, 1e-39], [1, 2]]

    def build(b: Builder, x: Value, w: Value) -> Value:
        return b.value("dot_packed", x, w, n=16, dtype=dtype("f32"))

    types = [TensorType(BF16, (len(rows), 2)), TensorType(BF16, (1, 1, 16, 2))]
    kernel = lower_contraction(entry(types, build), VARIANTS[variant].target)
    arrays = [np.array(rows, BF16.numpy), pack(np.ones((2, 16), BF16.numpy))]
    (got,) = run(kernel, arrays, [np.zeros((len(rows), 16), np.float32)], variant)
    np.testing.assert_array_equal(got[[0, 1, 2, 3, 5], 0], [np.inf, np.nan, np.nan, np.inf, 3])
    assert 0 <= got[4, 0] <= 2.1e-39


@pytest.mark.parametrize("variant", dot4_variants()[:1])
def test_a_weight_of_bf16_that_does_not_fit_scratch_is_read_as_it_lies(variant: str) -> None:
    channels, n = 512, 64

    def build(b: Builder, x: Value, w: Value) -> Value:
        moves = {"window": (3, 3), "strides": (2, 2)}
        return b.value("conv_packed", x, w, n=n, dtype=dtype("f32"), **moves)

    x, w = halves(1, 3, 3, channels), halves(3, 3, channels, n, seed=6)
    panels = TensorType(BF16, (4, 9 * channels // 2, 16, 2))
    kernel = lower_convolution(
        entry([TensorType(BF16, x.shape), panels], build), VARIANTS[variant].target
    )
    assert kernel.scratch_length <= MOST_SCRATCH
    out = np.zeros((1, 1, 1, n), np.float32)
    (got,) = run(kernel, [x, pack(w.reshape(-1, n))], [out], variant)
    wanted = x.reshape(1, -1).astype(np.float64) @ w.reshape(-1, n).astype(np.float64)
    assert error_of(got.reshape(1, n), wanted) <= 2e-6


F16 = dtype("f16")


def product_of_f16(m: int, k: int, n: int, variant: str) -> Any:
    """The kernel of a product with panels, which must multiply words."""

    def build(b: Builder, x: Value, w: Value) -> Value:
        return b.value("dot_packed", x, w, n=n, dtype=dtype("f32"))

    panels = TensorType(F16, (-(-n // 16), k // 2, 16, 2))
    function = entry([TensorType(F16, (m, k)), panels], build)
    kernel = lower_contraction(function, VARIANTS[variant].target)
    assert any(op.name == "loop.fma2" for op in walk(kernel.loops))
    return kernel


@pytest.mark.parametrize("variant", half2_variants())
@pytest.mark.parametrize(("m", "k", "n"), [(9, 34, 5), (1, 130, 70), (17, 8192, 48)])
def test_sums_of_f16_are_off_by_little_more_than_their_factors(
    variant: str, m: int, k: int, n: int
) -> None:
    rng = np.random.default_rng(k)
    a, w = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    kernel, out = product_of_f16(m, k, n, variant), np.full((m, n), 7, np.float32)
    (got,) = run(kernel, [a, pack(w)], [out], variant)
    exact = a.astype(np.float64) @ w.astype(np.float64)
    assert np.linalg.norm(got - exact) <= 1.4e-3 * np.linalg.norm(exact)
    terms = np.abs(a.astype(np.float64)) @ np.abs(w.astype(np.float64))
    assert (np.abs(got - exact) <= terms * 66 / 2048).all()
    if k < 200:
        arrays = [a, pack(w), np.full((m, n), 7, np.float32)]
        assert run_kernel(kernel, arrays, {}) is None
        np.testing.assert_allclose(arrays[-1], got, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("variant", half2_variants())
def test_a_product_of_f16_keeps_what_is_not_finite_and_what_is_small(variant: str) -> None:
    least = 2.0**-24
    rows = [
        *([np.inf, 1], [np.inf, -np.inf], [np.nan, 0], [65504, 65504]),
        *([65504, -65504], [least, least], [1, 2]),
    ]
    kernel = product_of_f16(len(rows), 2, 16, variant)
    arrays = [np.array(rows, np.float16), pack(np.ones((2, 16), np.float16))]
    (got,) = run(kernel, arrays, [np.zeros((len(rows), 16), np.float32)], variant)
    wanted = [np.inf, np.nan, np.nan, np.inf, 0, 2 * least, 3]
    np.testing.assert_array_equal(got[:, 0], np.array(wanted, np.float32))


@pytest.mark.parametrize("variant", half2_variants())
def test_pixels_of_f16_are_multiplied_in_pairs(variant: str) -> None:
    channels, n = 46, 21

    def build(b: Builder, x: Value, w: Value) -> Value:
        moves = {"window": (3, 3), "padding": ((1, 1), (1, 1)), "strides": (1, 2)}
        return b.value("conv_packed", x, w, n=n, dtype=dtype("f32"), **moves)

    rng = np.random.default_rng(3)
    shapes = (2, 6, 9, channels), (3, 3, channels, n)
    x, w = (rng.integers(-3, 4, shape).astype(np.float16) for shape in shapes)
    panels = TensorType(F16, (2, 9 * channels // 2, 16, 2))
    function = entry([TensorType(F16, x.shape), panels], build)
    kernel = lower_convolution(function, VARIANTS[variant].target)
    assert any(op.name == "loop.fma2" for op in walk(kernel.loops))
    out = np.full((2, 6, 5, n), 7, np.float32)
    (got,) = run(kernel, [x, pack(w.reshape(-1, n))], [out], variant)
    np.testing.assert_array_equal(got, convolved(x, w))  # whole numbers, exact below 2048

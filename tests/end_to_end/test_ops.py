"""Ops of every family through compiler and runtime, against the interpreter.

One module per family, with symbolic dims and many ops, then drawn shapes: zero-size ones,
ones smaller than a vector, ones with tails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Module, Value
from ingot.compiler.ir.dims import symbol
from ingot.hal import spec
from tests.support.compiled_programs import Program, build
from tests.support.devices import best_variant

F32 = spec.dtype("f32")
B, S = symbol("b"), symbol("s")
SYMBOLS: dict[str, tuple[int, int | None]] = {"b": (0, None), "s": (0, None)}
SIZES = [(0, 3), (1, 1), (2, 7), (3, 33), (5, 64)]

EXACT_UNARY = ["neg", "abs", "sign", "sqrt", "floor", "ceil", "round_even", "round_away", "trunc"]
UNARY = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "rsqrt",
    "cbrt",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
]
UNARY += ["asinh", "acosh", "atanh", "logistic", "erf"]
EXACT_BINARY = ["add", "sub", "mul", "div", "max", "min"]
INTEGER_BINARY = ["add", "sub", "mul", "div", "rem", "max", "min", "and", "or", "xor", "shift_left"]
INTEGER_BINARY += ["shift_right_arithmetic", "shift_right_logical"]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 1e-40, 88.0, -104.0, 3e38]


def compiled(module: Module) -> Program:
    """For every variant: each op's kernels compile also for CPUs that are not this machine's."""
    return Program(module, variants=None)


def floats(shape: Sequence[int], seed: int = 0, dtype: str = "f4") -> np.ndarray[Any, Any]:
    """Normal numbers with special values strewn in."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(shape) * 3
    special = random.random(shape) < 0.25
    return np.where(special, random.choice(SPECIAL, shape), values).astype(dtype)


def integers(shape: Sequence[int], dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    """Numbers over the whole range, and many small ones."""
    random = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    wide = random.integers(info.min, info.max, shape, dtype, endpoint=True)
    small = random.integers(max(info.min, -3), 70, shape).astype(dtype)
    return np.where(random.random(shape) < 0.5, wide, small).astype(dtype)


def test_exact_elementwise_f32() -> None:
    def make(b: Builder, x: Value, y: Value) -> list[Value]:
        results = [b.op(name, x) for name in EXACT_UNARY]
        results += [b.op(name, x, y) for name in EXACT_BINARY]
        results += [b.op(name, x) for name in ("is_nan", "is_inf", "is_finite")]
        less = b.op("compare", x, y, direction="lt")
        return [*results, less, b.op("select", less, x, y), b.op("clamp", y, x, y)]

    program = compiled(build(make, ("f32", (B, S)), ("f32", (B, S)), symbols=SYMBOLS))
    for size in SIZES:
        program.check(floats(size), floats(size, 1))


def test_vector_math_f32() -> None:
    def make(b: Builder, x: Value) -> list[Value]:
        return [b.op(name, x) for name in UNARY]

    program = compiled(build(make, ("f32", (B, S)), symbols=SYMBOLS))
    for size in SIZES:
        program.check(floats(size), tolerance=2e-6, atol=1e-37)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i32", "i64"])
def test_integers_wrap_and_never_trap(dtype: str) -> None:
    def make(b: Builder, x: Value, y: Value) -> list[Value]:
        results = [b.op(name, x, y) for name in INTEGER_BINARY]
        results += [b.op(name, x) for name in ("not", "popcount", "count_leading_zeros")]
        return [*results, b.op("compare", x, y, direction="ge")]

    program = compiled(build(make, (dtype, (B, S)), (dtype, (B, S)), symbols=SYMBOLS))
    numpy = {"i": "i", "u": "u"}[dtype[0]] + str(int(dtype[1:]) // 8)
    for size in SIZES:
        program.check(integers(size, numpy), integers(size, numpy, 1))


@pytest.mark.parametrize("dtype", ["i1", "i8", "u8", "i32", "i64", "f16", "bf16", "f64"])
def test_conversions_round_once_and_saturate(dtype: str) -> None:
    def make(b: Builder, x: Value) -> list[Value]:
        there = b.op("convert", x, dtype=spec.dtype(dtype))
        return [there, b.op("convert", there, dtype=F32)]

    program = compiled(build(make, ("f32", (B, S)), symbols=SYMBOLS))
    for size in SIZES:
        program.check(floats(size))


def test_data_movement() -> None:
    def make(b: Builder, x: Value, y: Value) -> list[Value]:
        zero = b.constant(0.0, "f32")
        return [
            b.op("transpose", x, permutation=(2, 0, 1)),
            b.op("reverse", x, axes=(0, 2)),
            b.op("pad", x, zero, low=(1, 0, 2), high=(0, -1, 1), interior=(0, 0, 1)),
            b.op("slice", x, start=(0, 1, 0), limit=(B, 3, 8), stride=(1, 1, 3)),
            b.op("concatenate", x, y, axis=1),
            b.op("broadcast", y, shape=(2, B, 2, 8), dimensions=(1, 2, 3)),
            b.op("neg", b.op("reshape", x, shape=(B * 3, 8))),
            b.op("iota", dtype=spec.dtype("i32"), shape=(B, 5), axis=1),
            b.op("reshape", b.op("transpose", y, permutation=(1, 0, 2)), shape=(2 * B, 8)),
        ]

    program = compiled(
        build(make, ("f32", (B, 3, 8)), ("f32", (B, 2, 8)), symbols={"b": (0, None)})
    )
    for size in (0, 1, 2, 5):
        program.check(floats((size, 3, 8)), floats((size, 2, 8), 1))


def test_take_clamps_checks_and_wraps() -> None:
    def make(b: Builder, x: Value, i: Value) -> list[Value]:
        modes = ("clamp", "check", "wrap_check")
        return [b.op("take", x, i, axis=axis, mode=mode) for axis in (0, 1) for mode in modes]

    module = build(make, ("f32", (6, 7)), ("i64", (B, 2)), symbols={"b": (0, None)})
    program = compiled(module)
    x = floats((6, 7))
    for size in (0, 1, 9):
        program.check(x, np.arange(2 * size).reshape(size, 2) % 6)
    with pytest.raises(Exception, match=r"index -?\d+"):
        program.call(x, np.array([[0, 6]]))
    program.check(x, np.zeros((1, 2), np.int64))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_products_with_epilogue(dtype: str) -> None:
    def make(b: Builder, x: Value, w: Value, bias: Value) -> list[Value]:
        dims = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (1,), "rhs_contract": (0,)}
        y = b.op("dot_general", x, w, **dims, dtype=spec.dtype(dtype))
        y = b.op("add", y, b.broadcast_to(bias, (B, 24)))
        return [b.op("max", y, b.full(0.0, dtype, (B, 24)))]

    shapes = ((B, 20), (20, 24), (24,))
    program = compiled(build(make, *((dtype, s) for s in shapes), symbols={"b": (0, None)}))
    numpy = program.reference.functions["main"].arguments[0].type.dtype.numpy  # type: ignore[union-attr]
    random = np.random.default_rng(0)
    for size in (0, 1, 4, 37):
        arrays = [random.standard_normal(s).astype(numpy) for s in ((size, 20), (20, 24), (24,))]
        eps = {"f32": 1e-6, "f16": 1e-3, "bf16": 1e-2}[dtype]
        program.check(*arrays, tolerance=eps, atol=eps * 4)


def test_constant_weights_are_packed() -> None:
    w = np.random.default_rng(1).standard_normal((70, 50)).astype("f4")

    def make(b: Builder, x: Value) -> list[Value]:
        dims = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (1,), "rhs_contract": (0,)}
        return [b.op("dot_general", x, b.constant(w), **dims, dtype=F32)]

    program = compiled(build(make, ("f32", (B, 70)), symbols={"b": (0, None)}))
    for size in (0, 1, 3, 64):
        x = np.random.default_rng(size).standard_normal((size, 70)).astype("f4")
        program.check(x, tolerance=1e-5, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_convolutions(groups: int) -> None:
    random = np.random.default_rng(groups)
    w = random.standard_normal((16, 8 // groups, 3, 3)).astype("f4")
    if groups == 8:
        w = w[:8]

    def make(b: Builder, x: Value) -> list[Value]:
        y = b.op(
            "convolution",
            *(x, b.constant(w)),
            strides=(2, 1),
            padding=((1, 1), (0, 1)),
            lhs_dilation=(1, 1),
            rhs_dilation=(1, 1),
            groups=groups,
            layout="nchw,oihw->nchw",
            dtype=F32,
        )
        return [b.op("max", y, b.full(0.0, "f32", y.type.shape))]

    program = compiled(build(make, ("f32", (B, 8, 9, 10)), symbols={"b": (0, None)}))
    for size in (0, 1, 3):
        x = random.standard_normal((size, 8, 9, 10)).astype("f4")
        program.check(x, tolerance=1e-5, atol=1e-5)


def test_broadcast_dims_that_may_be_one() -> None:
    def make(b: Builder, x: Value, y: Value) -> list[Value]:
        left, right = b.broadcast_together(x, y)
        return [b.op("add", left, right)]

    program = compiled(build(make, ("f32", (B, 4)), ("f32", (S, 4)), symbols=SYMBOLS))
    for b, s in ((1, 1), (3, 3), (1, 5), (5, 1)):
        program.check(floats((b, 4)), floats((s, 4), 1))
    with pytest.raises(Exception, match=r"2|3"):
        program.call(floats((2, 4)), floats((3, 4)))


def test_scalars_and_results_without_arguments() -> None:
    def make(b: Builder, x: Value) -> list[Value]:
        return [b.op("exp", x), b.full(2.5, "f32", (3,)), b.constant([1, 2, 3], "i64"), x]

    program = compiled(build(make, ("f32", ())))
    program.check(np.array(0.25, np.float32), tolerance=1e-6)


def test_parameters_are_packed_once_when_the_program_is_created() -> None:
    random = np.random.default_rng(3)
    w = random.standard_normal((40, 50)).astype("f4")
    bias = random.standard_normal(50).astype("f4")

    def make(b: Builder, x: Value) -> list[Value]:
        weight = b.op("parameter", scope="", key="w", dtype=F32, shape=(50, 40))
        weight = b.op("transpose", weight, permutation=(1, 0))
        dims = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (1,), "rhs_contract": (0,)}
        y = b.op("dot_general", x, weight, **dims, dtype=F32)
        named = b.op("parameter", scope="", key="bias", dtype=F32, shape=(50,))
        return [b.op("add", y, b.broadcast_to(named, (B, 50))), named]

    module = ingot.compile(
        build(make, ("f32", (B, 40)), symbols={"b": (0, None)}), variants=[best_variant()]
    )
    assert module.report.dispatches["main"] == 1
    model = ingot.load(module, parameters={"w": np.ascontiguousarray(w.T), "bias": bias})
    for size in (0, 1, 9):
        x = random.standard_normal((size, 40)).astype("f4")
        y, copied = model(x)
        np.testing.assert_allclose(y.numpy(), x @ w + bias, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(copied.numpy(), bias)
    with pytest.raises(ingot.NotFound, match="bias"):
        ingot.load(module, parameters={"w": np.ascontiguousarray(w.T)})


@pytest.mark.parametrize("axes", [(2,), (1, 2), (1,), (0,), (0, 2), (0, 1, 2)])
def test_reductions_with_what_feeds_and_uses_them(axes: tuple[int, ...]) -> None:
    shape = (B, S, 24)

    def make(b: Builder, x: Value, y: Value) -> list[Value]:
        kept = tuple(axis for axis in range(3) if axis not in axes)

        def over(value: Value, kind: str) -> Value:
            reduced = b.op("reduce", value, axes=axes, kind=kind)
            return b.op("broadcast", reduced, shape=shape, dimensions=kept)  # type: ignore[no-any-return]

        z = b.op("add", x, y)
        e = b.op("exp", b.op("sub", z, over(z, "max")))
        total = b.op("reduce", e, axes=axes, kind="add")
        softmax = b.op("div", e, b.op("broadcast", total, shape=shape, dimensions=kept))
        least = b.op("reduce", x, axes=axes, kind="min")
        results = [softmax, b.op("sqrt", total), b.op("neg", least)]
        if len(axes) == 1:
            i64 = spec.dtype("i64")
            results.append(b.op("arg_max", x, axis=axes[0], dtype=i64, last=False))
        return results

    program = compiled(build(make, ("f32", shape), ("f32", shape), symbols=SYMBOLS))
    assert program.dispatches <= 3
    random = np.random.default_rng(5)
    for b, s in ((1, 1), (2, 7), (3, 33), (5, 64)):
        x, y = (random.standard_normal((b, s, 24)).astype("f4") for _ in range(2))
        program.check(x, y, tolerance=5e-6, atol=1e-6)


def test_reductions_of_nothing_give_the_identity() -> None:
    def make(b: Builder, x: Value) -> list[Value]:
        return [b.op("reduce", x, axes=(1,), kind=kind) for kind in ("add", "mul", "max", "min")]

    program = compiled(build(make, ("f32", (B, S)), symbols=SYMBOLS))
    for size in ((3, 0), (0, 3), (0, 0), (2, 5)):
        program.check(floats(size, 2), tolerance=1e-5, atol=1e-6)

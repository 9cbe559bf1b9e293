"""Corners of ops that once gave wrong numbers, against NumPy."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import symbol
from tests.support.compiled_programs import Program, build


def normal(*shape: int) -> np.ndarray[Any, Any]:
    """Normal numbers as f32."""
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("f4")


PRODUCTS = [
    ((2, 4, 3), (3,), (2,), (0,)),
    ((3,), (3,), (0,), (0,)),
    ((5, 3), (3, 4, 7), (1,), (0,)),
    ((5, 3), (4, 7, 3), (1,), (2,)),
    ((5, 3), (4, 3, 7), (1,), (1,)),
    ((3,), (3, 2, 5), (0,), (0,)),
    ((2, 3, 4), (3, 4), (1, 2), (0, 1)),
    ((2, 3, 4), (5, 1, 3, 4), (1, 2), (2, 3)),
]


@pytest.mark.parametrize(("a", "b", "lhs", "rhs"), PRODUCTS)
def test_products_with_any_number_of_columns_dims(
    a: Sequence[int], b: Sequence[int], lhs: Sequence[int], rhs: Sequence[int]
) -> None:
    def make(builder: Builder, x: Value, y: Value) -> list[Value]:
        product = builder.op("dot_general", x, y, lhs_contract=lhs, rhs_contract=rhs)
        return [product, builder.op("neg", product)]

    program = Program(build(make, ("f32", tuple(a)), ("f32", tuple(b))))
    x, y = normal(*a), normal(*b)
    expected = np.tensordot(x, y, (lhs, rhs))
    got, negated = program.call(x, y)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(negated, -expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3, 8])
@pytest.mark.parametrize("padding", [((0, 0), (0, 1)), ((1, 1), (2, 1)), ((0, 0), (0, 0))])
def test_pooling_of_few_channels_at_the_edges(channels: int, padding: Any) -> None:
    def make(builder: Builder, x: Value) -> list[Value]:
        none = (0, 0)
        return [
            builder.op(
                "reduce_window",
                x,
                kind=kind,
                window=window,
                strides=(1, 1, 2, 2),
                padding=(none, none, *padding),
            )
            for kind, window in (("max", (1, 1, 3, 3)), ("add", (1, 1, 2, 3)))
        ]

    program = Program(build(make, ("f32", (2, channels, 8, 8))))
    program.check(normal(2, channels, 8, 8), tolerance=1e-6, atol=1e-6)


def test_ops_on_static_shapes_without_elements() -> None:
    """Kernels, memory plan and results, with empty tensors before, between and behind."""

    def make(builder: Builder, x: Value, y: Value, z: Value) -> list[Value]:
        exp = builder.op("exp", x)
        zero = builder.constant(1.5, "f32")
        kinds = ("add", "mul", "max", "min")
        convolved = builder.op("convolution", z, builder.full(1, "f32", (5, 3, 2, 2)),
                               layout="nchw,oihw->nchw")  # fmt: skip
        return [
            *(builder.op("reduce", exp, axes=axes, kind=kind)
              for kind in kinds for axes in ((1,), (0, 1, 2), (2,))),
            builder.op("neg", builder.op("transpose", exp, permutation=(2, 0, 1))),
            builder.op("pad", x, zero, low=(0, 1, 0), high=(0, 2, 0)),
            builder.op("concatenate", builder.op("reshape", x, shape=(0, 3)), y, axis=0),
            builder.op("dot_general", builder.op("reshape", x, shape=(6, 0)),
                       builder.op("reshape", x, shape=(0, 3)),
                       lhs_contract=(1,), rhs_contract=(0,)),
            builder.op("cumulative", x, axis=2, kind="add"),
            builder.op("reduce_window", x, kind="max", window=(1, 1, 2)),
            builder.op("dot_general", builder.op("reshape", exp, shape=(0, 3)), y,
                       lhs_contract=(1,), rhs_contract=(1,)),
            builder.op("max", convolved, builder.full(0, "f32", convolved.type.shape)),
            exp,
        ]  # fmt: skip

    shapes = ((2, 0, 3), (4, 3), (0, 3, 4, 4))
    program = Program(build(make, *(("f32", shape) for shape in shapes)))
    program.check(*(normal(*shape) for shape in shapes))
    assert program.dispatches <= 7


@pytest.mark.skipif(platform.machine() != "x86_64", reason="a variant of x86-64")
@pytest.mark.parametrize("variant", ["x86-64-v3", "x86-64-v2"])
def test_convolutions_with_padding_above_or_below_only(variant: str) -> None:
    if not _runs(variant):
        pytest.skip(f"this machine is no {variant}")

    def make(builder: Builder, x: Value, w: Value) -> list[Value]:
        return [
            builder.op("convolution", x, w, layout="nchw,oihw->nchw", padding=padding)
            for padding in (((1, 1), (0, 0)), ((2, 0), (0, 0)), ((0, 1), (1, 0)), ((0, 0), (0, 1)))
        ]

    shapes = ((1, 1, 7, 5), (1, 1, 3, 3))
    program = Program(build(make, *(("f32", shape) for shape in shapes)), variants=[variant])
    program.check(*(normal(*shape) for shape in shapes), tolerance=1e-5, atol=1e-6)


def _runs(variant: str) -> bool:
    """Whether this machine runs it: x86-64-v4 runs x86-64-v3, and so on."""
    found = ingot.devices()[0].description.split()[0]
    return found.startswith("x86-64") and found >= variant


@pytest.mark.parametrize(("x", "y"), [((3, 8), (24,)), ((2, 9), (3, 6)), ((5, 4), (2, 10))])
def test_reversed_dims_are_split_and_merged(x: Sequence[int], y: Sequence[int]) -> None:
    """The index of an element falls along an axis, and is divided."""
    wide = (2, *x)

    def make(builder: Builder, value: Value) -> list[Value]:
        def flip(value: Value, axes: Sequence[int]) -> Value:
            return builder.value("reverse", value, axes=axes)

        last = tuple(range(len(y)))
        repeated = builder.op("broadcast", value, shape=wide, dimensions=(1, 2))
        flat = builder.op("reshape", repeated, shape=(2 * x[0] * x[1],))
        return [
            flip(builder.op("reshape", value, shape=y), last),
            flip(builder.op("reshape", flip(value, (1,)), shape=y), (0,)),
            builder.op("reshape", flip(builder.op("exp", value), (0, 1)), shape=y),
            builder.op("slice", flip(flat, (0,)), start=(1,), limit=(flat.type.shape[0],)),
            flip(flat, (0,)),
        ]

    program = Program(build(make, ("f32", tuple(x))))
    program.check(normal(*x), tolerance=1e-6)


def test_reversed_symbolic_dims_are_split_and_merged() -> None:
    b, m = symbol("b"), symbol("m")

    def make(builder: Builder, value: Value) -> list[Value]:
        turned = builder.op("reverse", value, axes=(0, 2))
        flat = builder.op("reshape", value, shape=(4 * b * m,))
        turned_flat = builder.op("reverse", flat, axes=(0,))
        return [
            builder.op("reshape", turned, shape=(4 * b, m)),
            builder.op("reverse", builder.op("reshape", value, shape=(b, 4 * m)), axes=(1,)),
            builder.op("reshape", turned_flat, shape=(b * m, 4)),
            builder.op("reshape", turned_flat, shape=(b, m * 4)),
        ]

    symbols: dict[str, tuple[int, int | None]] = {"b": (0, None), "m": (0, None)}
    program = Program(build(make, ("f32", (b, 4, m)), symbols=symbols))
    for size in ((1, 4, 1), (2, 4, 3), (3, 4, 17), (0, 4, 2)):
        program.check(normal(*size))


def test_one_divisor_for_all_elements_rounds_as_ieee_754_asks() -> None:
    """It is a product with 1 / b, which loses signs of zeros and makes NaN of infinities."""

    def make(builder: Builder, x: Value, y: Value) -> list[Value]:
        return [builder.op("div", x, builder.broadcast_to(y, (1005,)))]

    program = Program(build(make, ("f32", (1005,)), ("f32", ())))
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -3e38, 1e38, 1e-30], "f4")
    x = np.resize(np.concatenate([special, normal(96)]), 1005)
    for y in (3.0, -3.0, 7e-3, 1e20, 1e-20, -0.1, 1e-45, 0.0, np.inf):
        (got,) = program.call(x, np.float32(y))
        with np.errstate(all="ignore"):
            expected = x / np.float32(y)
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.isnan(got), ~numbers)
        np.testing.assert_array_equal(got.view("i4")[numbers], expected.view("i4")[numbers])


@pytest.mark.parametrize(("axis", "count"), [(0, 180), (1, 10)])
def test_many_parts_that_one_kernel_computes_are_put_together(axis: int, count: int) -> None:
    def make(builder: Builder, x: Value) -> list[Value]:
        parts = [
            builder.value(
                "slice",
                builder.value("neg" if part % 2 else "abs", x),
                start=(0, 0),
                limit=(2, part % 3 + 1) if axis else (part % 3 + 1, 2),
                stride=(1, 1),
            )
            for part in range(count)
        ]
        return [builder.op("concatenate", *parts, axis=axis)]

    program = Program(build(make, ("f32", (3, 3))))
    program.check(normal(3, 3))

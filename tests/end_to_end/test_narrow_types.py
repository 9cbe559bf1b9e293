"""Ops on f8, f4, i4, u4, i2 and u2, compiled, against the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import symbol
from ingot.hal.spec import DTYPES, dtype
from tests.support.compiled_programs import Program, build

FLOATS = [name for name in DTYPES if name.startswith(("f8", "f4"))]
INTEGERS = ["i2", "i4", "u2", "u4"]
S = symbol("s")
ANY = {"s": (0, None)}


def codes(name: str) -> np.ndarray[Any, Any]:
    """Every number of a narrow dtype."""
    return np.arange(1 << dtype(name).bits, dtype=np.uint8).view(dtype(name).numpy)


def same(found: Any, wanted: Any) -> None:
    """Equal numbers; NaN equals NaN."""
    assert found.dtype == wanted.dtype
    one, other = (np.asarray(each, np.float64) for each in (found, wanted))
    np.testing.assert_array_equal(one, other)


def run(program: Program, *arrays: np.ndarray[Any, Any]) -> None:
    with np.errstate(all="ignore"):
        wanted = interpret(program.reference, "main", arrays)
    for one, other in zip(program.call(*arrays), wanted, strict=True):
        same(one, other)


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS])
def test_every_number_of_a_narrow_dtype_converts(name: str) -> None:
    wanted = ("f32", "f64", "bf16", "i32", "u8", "i1", "i4", "f8e5m2")

    def make(b: Builder, x: Value) -> list[Value]:
        return [b.op("convert", x, dtype=dtype(each)) for each in wanted if each != name]

    run(Program(build(make, (name, (S,)), symbols=ANY)), codes(name))


@pytest.mark.parametrize("source", ["f32", "f64", "f16", "i32", "i64"])
def test_conversions_to_narrow_dtypes_round_once(source: str) -> None:
    def make(b: Builder, x: Value) -> list[Value]:
        return [b.op("convert", x, dtype=dtype(each)) for each in (*FLOATS, *INTEGERS)]

    program = Program(build(make, (source, (S,)), symbols=ANY))
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    x = np.concatenate([np.arange(-600, 600), [2**31 - 1, -(2**31), 70000, -70000]])
    with np.errstate(all="ignore"):
        if source[0] == "f":
            near = [every * factor for factor in (1, 1 + 2**-12, 1 - 2**-12, 2**-6)]
            x = np.concatenate([*near, [1e30, -1e30, 1e-30, -1e-30]])
        run(program, x.astype(dtype(source).numpy))


@pytest.mark.parametrize("name", ["i4", "u4", "f8e4m3fn", "f8e5m2", "f4e2m1fn"])
def test_arithmetic_of_narrow_dtypes(name: str) -> None:
    names = ["add", "sub", "mul", "max", "min", "div"]

    def make(b: Builder, x: Value, y: Value) -> list[Value]:
        table = b.op("reshape", b.op("transpose", x, permutation=(1, 0)), shape=(S * 4,))
        return [
            *(b.op(each, x, y) for each in names),
            b.op("compare", x, y, direction="lt"),
            b.op("reduce", x, axes=(1,), kind="max"),
            b.op("concatenate", b.op("neg", x), y, axis=0),
            b.op("take", table, b.constant(np.array([0, 2]), "i64"), axis=0, mode="clamp"),
        ]

    program = Program(build(make, (name, (S, 4)), (name, (S, 4)), symbols={"s": (1, None)}))
    every = codes(name)
    rng = np.random.default_rng(0)
    finite = every[np.isfinite(every.astype(np.float32))]
    x, y = (rng.choice(finite, (300, 4)) for _ in range(2))
    y[y.astype(np.float32) == 0] = np.array(1).astype(y.dtype)
    run(program, x, y)


def test_narrow_constants_and_loops() -> None:
    def make(b: Builder, x: Value, n: Value) -> list[Value]:
        one = b.constant(np.array([1, -2, 7], dtype("i4").numpy))

        def step(inner: Builder, index: Value, before: Sequence[Value]) -> list[Value]:
            return [inner.value("add", before[0], one)]

        (total,) = counted_loop(b, n, [x], step)
        numbers = b.constant(np.array([0.3, 100000.0], np.float32))
        return [total, b.op("convert", numbers, dtype=dtype("f8e5m2"))]

    program = Program(build(make, ("i4", (3,)), ("i64", ())))
    for steps in (0, 1, 5):
        run(program, np.array([1, 2, 3]).astype(dtype("i4").numpy), np.array(steps))


def test_the_sign_of_zero_is_kept_where_there_is_one() -> None:
    def make(b: Builder, x: Value) -> list[Value]:
        return [b.op("convert", x, dtype=dtype(name)) for name in FLOATS]

    found = Program(build(make, ("f32", (2,)))).call(np.array([-0.0, 1e-9], np.float32))
    for name, each in zip(FLOATS, found, strict=True):
        kept = not name.endswith(("fnuz", "fnu"))
        assert np.signbit(each.astype(np.float64)).tolist() == [kept, False], name


@pytest.mark.parametrize("name", INTEGERS)
def test_bits_of_narrow_dtypes_are_counted_and_moved(name: str) -> None:
    def make(b: Builder, x: Value, y: Value) -> list[Value]:
        zero = b.full(0, dtype(name), (S,))
        return [
            *(b.op("popcount", x), b.op("count_leading_zeros", x)),
            *(b.op("shift_right_logical", x, y), b.op("and", x, zero)),
        ]

    every = codes(name)
    x, y = (each.reshape(-1) for each in np.meshgrid(every, every))
    run(Program(build(make, (name, (S,)), (name, (S,)), symbols=ANY)), x, y)


def test_bytes_are_reinterpreted_without_a_kernel() -> None:
    def make(b: Builder, x: Value) -> list[Value]:
        halves = b.op("reinterpret", x, dtype=dtype("i16"))
        whole = b.op("reinterpret", b.op("neg", x), dtype=dtype("f64"))
        return [halves, whole]

    program = Program(build(make, ("f32", (S, 2)), symbols=ANY))
    x = np.random.default_rng(0).standard_normal((5, 2)).astype(np.float32)
    run(program, x)
    assert program.dispatches == 1

"""Every element-wise op on every dtype, as OpenCL C, gives what the op table's reference gives.

Operands hold the greatest and least numbers, zeros of both signs, infinities and NaN. One
kernel has many ops: a device's compiler takes most of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ingot.compiler.kernels.lanes.map import lower_map
from ingot.hal.spec import dtype
from tests.support import opencl_runner
from tests.support.entries import entry, reference
from tests.support.kernel_runner import VARIANTS, run

Array = np.ndarray[Any, Any]
pytestmark = pytest.mark.skipif(
    opencl_runner.queue() is None, reason="no OpenCL device: install pocl-opencl-icd"
)
TARGET = VARIANTS["opencl-c"].target
INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
FLOATS = ["f16", "bf16", "f32", "f64"]
ALL = [*INTEGERS, *FLOATS, "i1"]
DIRECTIONS = ("eq", "ne", "lt", "le", "gt", "ge")
SIZES = [103, 1]  # vectors with a tail, and scalars
SHIFTS = ["shift_left", "shift_right_arithmetic", "shift_right_logical"]
INTEGER_OPS = ["add", "sub", "mul", "div", "rem", "pow", "max", "min", "and", "or", "xor"]
INTEGER_FUNCTIONS = ["neg", "abs", "sign", "not", "popcount", "count_leading_zeros"]
FLOAT_OPS = ["add", "sub", "mul", "div", "rem", "max", "min"]
ROUNDINGS = ["floor", "ceil", "trunc", "round_even", "round_away"]
FLOAT_FUNCTIONS = ["neg", "abs", "sign", "sqrt", "is_nan", "is_inf", "is_finite"]
SMALL_EDGES = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-7]
LARGE_EDGES = [127.5, 128, 255.9, -128.5, -129, 1e5, -1e5, 3e9, -3e9, 1e19, -1e19, 2e19, 65520]


def draw(name: str, count: int, seed: int) -> Array:
    """Half of the elements from the edges of the type, half from anywhere."""
    rng = np.random.default_rng(seed)
    type = dtype(name)
    half = count // 2
    if type.is_boolean:
        return rng.integers(0, 2, count).astype(bool)
    if type.is_integer:
        info = np.iinfo(type.numpy)
        width = type.bits
        edges = [0, 1, 2, 3, 7, info.max, info.min, info.max - 1, info.min + 1, width, width - 1]
        chosen = rng.choice(np.array(edges, type.numpy), half)
        low, high = int(info.min), int(info.max)
        rest = rng.integers(low, high, count - half, dtype=type.numpy, endpoint=True)
        some = -chosen if name[0] == "i" else chosen
        return np.concatenate([some, rest])
    with np.errstate(all="ignore"):
        edges = rng.choice(np.array([*SMALL_EDGES, *LARGE_EDGES]), half)
        return np.concatenate([edges, rng.standard_normal(count - half) * 100]).astype(type.numpy)


def check(types: list[str], body: Callable[..., Any], operands: list[Array]) -> None:
    """Equal, NaN to NaN and zeros by their sign."""
    function = entry(types, body)
    with np.errstate(all="ignore"):
        expected = reference(function, operands)
    results = [np.zeros(each.shape, each.dtype) for each in expected]
    got = run(lower_map(function, TARGET), operands, results, "opencl-c")
    for place, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
        if mine.dtype.kind not in "biu":
            mine, theirs = mine.astype(np.float64), theirs.astype(np.float64)
            signs = np.signbit(mine) == np.signbit(theirs)
            assert (signs | np.isnan(mine)).all(), f"the sign of result {place}"
        np.testing.assert_array_equal(mine, theirs, f"result {place}")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", INTEGERS)
def test_integer_ops(name: str, size: int) -> None:
    def body(b: Any, x: Any, y: Any) -> list[Any]:
        less = b.op("compare", x, y, direction="lt")
        return [
            *(b.op(op, x, y) for op in [*INTEGER_OPS, *SHIFTS]),
            *(b.op(op, x) for op in INTEGER_FUNCTIONS),
            *(b.op("compare", x, y, direction=each) for each in DIRECTIONS),
            b.op("select", less, x, y),
            b.op("clamp", x, y, b.op("add", x, y)),
        ]

    check([f"{name}[{size}]"] * 2, body, [draw(name, size, 1), draw(name, size, 2)])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FLOATS)
def test_float_ops(name: str, size: int) -> None:
    def body(b: Any, x: Any, y: Any) -> list[Any]:
        less = b.op("compare", x, y, direction="lt")
        one, two = (b.full(value, dtype(name), (size,)) for value in (1.0, 2.0))
        return [
            *(b.op(op, x, b.op("add", y, one)) for op in FLOAT_OPS),
            *(b.op(op, x) for op in [*FLOAT_FUNCTIONS, *ROUNDINGS]),
            *(b.op("compare", x, y, direction=each) for each in DIRECTIONS),
            b.op("select", less, x, y),
            b.op("clamp", one, y, two),
            b.op("max", x, one),
            b.op("min", two, x),
        ]

    check([f"{name}[{size}]"] * 2, body, [draw(name, size, 1), draw(name, size, 2)])


@pytest.mark.parametrize("size", SIZES)
def test_boolean_ops(size: int) -> None:
    def body(b: Any, x: Any, y: Any, z: Any) -> list[Any]:
        return [
            *(b.op(op, x, y) for op in ("and", "or", "xor", "max", "min")),
            *(b.op("compare", x, y, direction=each) for each in DIRECTIONS),
            b.op("not", x),
            b.op("select", x, y, z),
        ]

    check([f"i1[{size}]"] * 3, body, [draw("i1", size, seed) for seed in range(3)])


def test_masks_of_different_widths() -> None:
    names = ["i8", "f64", "i1", "f32"]

    def body(b: Any, i: Any, d: Any, m: Any, f: Any) -> list[Any]:
        less = b.op("compare", i, b.op("convert", f, dtype=dtype("i8")), direction="lt")
        some = b.op("and", less, b.op("or", m, b.op("is_nan", d)))
        return [
            b.op("select", some, d, b.op("convert", f, dtype=dtype("f64"))),
            b.op("select", b.op("is_finite", d), i, b.op("neg", i)),
            b.op("convert", b.op("xor", m, b.op("is_finite", f)), dtype=dtype("i64")),
        ]

    operands = [draw(name, 103, seed) for seed, name in enumerate(names)]
    check([f"{name}[103]" for name in names], body, operands)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ALL)
def test_conversions(name: str, size: int) -> None:
    others = [each for each in ALL if each != name]
    alike = [each for each in others if dtype(each).bits == dtype(name).bits]

    def body(b: Any, x: Any) -> list[Any]:
        return [
            *(b.op("convert", x, dtype=dtype(each)) for each in others),
            *(b.op("bitcast", x, dtype=dtype(each)) for each in alike),
        ]

    check([f"{name}[{size}]"], body, [draw(name, size, 3)])

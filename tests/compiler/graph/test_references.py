"""The references against jax, torch and exact arithmetic, with NaN, infinities and zeros."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.interpreter import padded_count
from ingot.compiler.ir import Block, Region, ScalarType
from ingot.hal.errors import OutOfRange
from ingot.hal.spec import DTYPES, dtype
from tests.support.programs import evaluate, normal, program

jax = pytest.importorskip("jax")
lax = jax.lax

SPECIAL = np.array(
    [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-40, 88, -100, 3e38, np.inf, -np.inf, np.nan],
    np.float32,
)
JAX_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": lax.neg, "abs": lax.abs, "sign": lax.sign, "exp": lax.exp, "exp2": lax.exp2,
    "expm1": lax.expm1, "log": lax.log, "log1p": lax.log1p, "sqrt": lax.sqrt, "rsqrt": lax.rsqrt,
    "cbrt": lax.cbrt, "sin": lax.sin, "cos": lax.cos, "tan": lax.tan, "asin": lax.asin,
    "acos": lax.acos, "atan": lax.atan, "sinh": lax.sinh, "cosh": lax.cosh, "tanh": lax.tanh,
    "asinh": lax.asinh, "acosh": lax.acosh, "atanh": lax.atanh, "logistic": lax.logistic,
    "erf": lax.erf, "floor": lax.floor, "ceil": lax.ceil,
    "round_even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "round_away": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "is_finite": lax.is_finite,
}  # fmt: skip


def unary(name: str) -> Callable[[Builder, Any], Any]:
    return lambda b, x: b.op(name, x)


def binary(name: str) -> Callable[[Builder, Any, Any], Any]:
    return lambda b, x, y: b.op(name, x, y)


@pytest.mark.parametrize("name", JAX_UNARY)
def test_unary_floats_agree_with_jax(name: str) -> None:
    x = np.concatenate([SPECIAL[np.abs(SPECIAL) != np.float32(1e-40)], normal(0, 50)])
    got, wanted = evaluate(unary(name), x), np.asarray(JAX_UNARY[name](x))
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-6)
    exact_zeros = wanted == 0
    assert (np.signbit(got) == np.signbit(wanted))[exact_zeros].all()


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "rem", "pow", "atan2", "max", "min"])
def test_binary_floats_agree_with_jax(name: str) -> None:
    grid = np.array([0.0, -0.0, 1, -1, 2, -3, 0.5, 7.5, np.inf, -np.inf, np.nan], np.float32)
    x, y = (np.ascontiguousarray(each.reshape(-1)) for each in np.meshgrid(grid, grid))
    got, wanted = evaluate(binary(name), x, y), np.asarray(getattr(lax, name)(x, y))
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    if name in ("max", "min"):  # IEEE 754-2019: +0 is greater than -0
        zeros = (x == 0) & (y == 0)
        chosen = np.signbit(x) & np.signbit(y) if name == "max" else np.signbit(x) | np.signbit(y)
        assert (np.signbit(got) == chosen)[zeros].all()
    else:
        assert (np.signbit(got) == np.signbit(wanted))[wanted == 0].all()


INTEGERS = [name for name, each in DTYPES.items() if each.is_integer]


def integers(name: str) -> list[int]:
    element = dtype(name)
    least = -(2 ** (element.bits - 1)) if element.kind == "i" else 0
    greatest = 2 ** (element.bits - (element.kind == "i")) - 1
    around = [0, 1, 2, 3, -1, -2, 5, least, least + 1, greatest, greatest - 1, greatest // 3]
    return sorted({each for each in around if least <= each <= greatest})


def wrapped(value: int, name: str) -> int:
    element = dtype(name)
    value %= 2**element.bits
    signed = element.kind == "i" and value >= 2 ** (element.bits - 1)
    return value - 2**element.bits if signed else value


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def shift_amount(b: int, bits: int) -> int:
    return min(b % 2**bits, bits)


EXACT: dict[str, Callable[[int, int, int], int]] = {
    "add": lambda a, b, bits: a + b,
    "sub": lambda a, b, bits: a - b,
    "mul": lambda a, b, bits: a * b,
    "div": lambda a, b, bits: -1 if b == 0 else truncated(a, b),
    "rem": lambda a, b, bits: a if b == 0 else a - truncated(a, b) * b,
    "max": lambda a, b, bits: max(a, b),
    "min": lambda a, b, bits: min(a, b),
    "and": lambda a, b, bits: a & b,
    "or": lambda a, b, bits: a | b,
    "xor": lambda a, b, bits: a ^ b,
    "shift_left": lambda a, b, bits: a << shift_amount(b, bits),
    "shift_right_logical": lambda a, b, bits: (a % 2**bits) >> shift_amount(b, bits),
    "shift_right_arithmetic": lambda a, b, bits: (
        ((a + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)) >> shift_amount(b, bits)
    ),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_exact_and_wrap(name: str) -> None:
    values = integers(name)
    pairs = [(a, b) for a in values for b in values]
    x, y = (np.array(column, object) for column in zip(*pairs, strict=True))
    arrays = [each.astype(np.int64 if name != "u64" else np.uint64) for each in (x, y)]
    a, b = (each.astype(dtype(name).numpy) for each in arrays)
    for op, exact in EXACT.items():
        got = [int(each) for each in evaluate(binary(op), a, b)]
        wanted = [wrapped(exact(p, q, dtype(name).bits), name) for p, q in pairs]
        assert got == wanted, op


@pytest.mark.parametrize("op", ["add", "mul", "xor"])
def test_integers_take_no_wider_ones_beside_them(op: str) -> None:
    x = np.arange(1 << 16).astype(np.uint8)
    evaluate(binary(op), x, x)
    tracemalloc.start()
    evaluate(binary(op), x, x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * x.nbytes


@pytest.mark.parametrize("name", ["i8", "u8", "i32", "u64", "i4"])
def test_integer_powers_and_bit_counts(name: str) -> None:
    bits = dtype(name).bits
    values = integers(name)
    x = np.array(values, np.uint64 if name == "u64" else np.int64).astype(dtype(name).numpy)
    patterns = [value % 2**bits for value in values]
    popcount = [int(each) for each in evaluate(unary("popcount"), x)]
    zeros = [int(each) for each in evaluate(unary("count_leading_zeros"), x)]
    assert popcount == [wrapped(bin(p).count("1"), name) for p in patterns]
    assert zeros == [wrapped(bits - p.bit_length(), name) for p in patterns]
    for exponent in (0, 1, 3, 5):
        y = np.full(len(values), exponent, np.int64).astype(dtype(name).numpy)
        got = [int(each) for each in evaluate(binary("pow"), x, y)]
        assert got == [wrapped(value**exponent, name) for value in values]


@pytest.mark.parametrize("name", ["i2", "i8", "i32", "i64", "u4", "u8", "u32", "u64"])
def test_conversion_to_integers_saturates(name: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1.9, -1.9, 1e30, -1e30, 127.5, 2**31, -0.0], np.float32)
    element = dtype(name)
    least = -(2 ** (element.bits - 1)) if element.kind == "i" else 0
    greatest = 2 ** (element.bits - (element.kind == "i")) - 1
    wanted = []
    for value in x.tolist():
        whole = 0 if math.isnan(value) else value
        limited = min(max(whole, least), greatest)
        wanted.append(int(limited))
    got = evaluate(lambda b, v: b.op("convert", v, dtype=element), x)
    assert [int(each) for each in got] == wanted


@pytest.mark.parametrize("name", ["f16", "bf16", "f8e4m3fn", "f8e5m2"])
@pytest.mark.parametrize("source", ["f64", "f32", "i64", "u64", "i32"])
def test_conversion_to_narrow_floats_rounds_once(name: str, source: str) -> None:
    rng = np.random.default_rng(1)
    target = dtype(name)
    if dtype(source).is_float:
        near = rng.standard_normal(200).astype(target.numpy).astype(np.float64)
        x = (near * (1 + 2.0 ** -rng.integers(3, 50, 200))).astype(dtype(source).numpy)
    else:
        x = rng.integers(0, 2**31 - 1, 200).astype(dtype(source).numpy)
        x >>= rng.integers(0, 30, 200).astype(x.dtype)
        if dtype(source).bits == 64:
            x[:50] = (x[:50] << x.dtype.type(31)) + x.dtype.type(1)
    got = evaluate(lambda b, v: b.op("convert", v, dtype=target), x)
    finite = np.isfinite(got.astype(np.float32))
    table = np.arange(2**target.bits, dtype=np.uint32).astype(f"u{target.bytes}")
    with np.errstate(invalid="ignore"):
        numbers = table.view(target.numpy).astype(np.float64)
    numbers = np.unique(numbers[np.isfinite(numbers)])
    for value, result in zip(x[finite].tolist(), got[finite].astype(np.float64), strict=True):
        exact = Fraction(value)
        place = int(np.searchsorted(numbers, float(value)))
        around = numbers[max(0, place - 2) : place + 3]
        least = min(abs(Fraction(float(each)) - exact) for each in around)
        assert abs(Fraction(float(result)) - exact) == least


def test_other_conversions() -> None:
    x = np.array([0.0, -0.0, np.nan, 0.1, -5], np.float32)
    to_bool = evaluate(lambda b, v: b.op("convert", v, dtype=dtype("i1")), x)
    assert to_bool.tolist() == [False, False, True, True, True]
    wide = np.array([-1, 300, -129, 2**40 + 7], np.int64)
    to_i8 = evaluate(lambda b, v: b.op("convert", v, dtype=dtype("i8")), wide)
    assert to_i8.tolist() == [-1, 44, 127, 7]
    flags = np.array([True, False])
    to_f16 = evaluate(lambda b, v: b.op("convert", v, dtype=dtype("f16")), flags)
    assert to_f16.tolist() == [1.0, 0.0]
    bits = evaluate(lambda b, v: b.op("bitcast", v, dtype=dtype("u32")), np.float32([1.0, -0.0]))
    assert bits.tolist() == [0x3F800000, 0x80000000]


def test_bf16_ops_compute_in_f32_and_round_once() -> None:
    x = np.array([1.0, 3.0, 0.1, 100], ml_dtypes.bfloat16)
    y = np.array([3.0, 7.0, 0.3, 0.07], ml_dtypes.bfloat16)
    exact = x.astype(np.float32) / y.astype(np.float32)
    assert evaluate(binary("div"), x, y).tobytes() == exact.astype(ml_dtypes.bfloat16).tobytes()
    many = np.full((1000,), 1.0, ml_dtypes.bfloat16)
    assert float(evaluate(lambda b, v: b.op("reduce", v, axes=(0,), kind="add"), many)) == 1000


def test_reductions_of_nothing_give_the_identity() -> None:
    empty = np.zeros((2, 0), np.float32)
    for kind, wanted in (("add", 0), ("mul", 1), ("max", -np.inf), ("min", np.inf)):
        got = evaluate(lambda b, v, k=kind: b.op("reduce", v, axes=(1,), kind=k), empty)
        assert got.tolist() == [wanted, wanted]


def test_arg_max_takes_the_first_or_last_and_nan() -> None:
    x = np.array([[1, 5, 5, 2], [np.nan, 1, np.nan, 3]], np.float32)
    for last, wanted in ((False, [1, 0]), (True, [2, 2])):
        got = evaluate(
            lambda b, v, last=last: b.op("arg_max", v, axis=1, dtype=dtype("i32"), last=last), x
        )
        assert got.tolist() == wanted


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_cumulative(reverse: bool, exclusive: bool) -> None:
    x = np.arange(1, 13, dtype=np.int32).reshape(3, 4)
    got = evaluate(
        lambda b, v: b.op(
            "cumulative", v, axis=1, kind="add", exclusive=exclusive, reverse=reverse
        ),
        x,
    )
    line = x[:, ::-1] if reverse else x
    wanted = np.cumsum(line, 1) - (line if exclusive else 0)
    assert got.tolist() == (wanted[:, ::-1] if reverse else wanted).tolist()


def test_windows_agree_with_jax() -> None:
    x = normal(2, 2, 9, 8, 3)
    padding = ((0, 0), (1, 2), (0, 1), (0, 0))
    got = evaluate(
        lambda b, v: b.op(
            "reduce_window", v, kind="max", window=(1, 3, 2, 1), strides=(1, 2, 1, 1),
            padding=padding, base_dilation=(1, 1, 2, 1), window_dilation=(1, 2, 1, 1),
        ),
        x,
    )  # fmt: skip
    wanted = lax.reduce_window(
        x, -np.inf, lax.max, (1, 3, 2, 1), (1, 2, 1, 1), padding,
        base_dilation=(1, 1, 2, 1), window_dilation=(1, 2, 1, 1),
    )  # fmt: skip
    assert got.tobytes() == np.asarray(wanted).tobytes()


def test_convolutions_agree_with_jax() -> None:
    x, w = normal(3, 2, 6, 9, 8), normal(4, 8, 3, 3, 2)
    moves = {"padding": ((1, 2), (0, 1)), "rhs_dilation": (1, 2), "lhs_dilation": (2, 1)}
    got = evaluate(
        lambda b, v, u: b.op(
            "convolution", v, u, layout="nchw,oihw->nhwc", strides=(2, 1), groups=2, **moves
        ),
        x,
        w,
    )
    wanted = lax.conv_general_dilated(
        x, w, (2, 1), feature_group_count=2, dimension_numbers=("NCHW", "OIHW", "NHWC"), **moves
    )
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_dot_general_agrees_with_jax_and_integers_are_exact() -> None:
    a, b = normal(5, 3, 4, 5, 2), normal(6, 5, 3, 6, 4)
    numbers = (((1, 2), (3, 0)), ((0,), (1,)))
    axes = {"lhs_batch": (0,), "rhs_batch": (1,), "lhs_contract": (1, 2), "rhs_contract": (3, 0)}
    np.testing.assert_allclose(
        evaluate(lambda b_, x, y: b_.op("dot_general", x, y, **axes), a, b),
        lax.dot_general(a, b, numbers),
        rtol=1e-5,
        atol=1e-5,
    )
    c = np.random.default_rng(0).integers(-128, 128, (7, 300)).astype(np.int8)
    got = evaluate(
        lambda b_, x: b_.op(
            "dot_general", x, x, lhs_contract=(1,), rhs_contract=(1,), dtype=dtype("i32")
        ),
        c,
    )
    assert got.tolist() == (c.astype(np.int64) @ c.T.astype(np.int64)).tolist()


def test_gather_agrees_with_jax() -> None:
    operand = normal(7, 5, 6, 7)
    indices = np.random.default_rng(0).integers(-2, 9, (3, 2, 2)).astype(np.int32)
    numbers = lax.GatherDimensionNumbers((1, 3), (1,), (2, 1))
    wanted = lax.gather(operand, indices, numbers, (2, 1, 3), mode="clip")
    keywords: dict[str, Any] = {
        "offset_dims": (1, 3), "collapsed_slice_dims": (1,), "start_index_map": (2, 1),
        "index_vector_dim": 2, "slice_sizes": (2, 1, 3),
    }  # fmt: skip
    got = evaluate(lambda b, x, i: b.op("gather", x, i, **keywords), operand, indices)
    assert got.tobytes() == np.asarray(wanted).tobytes()
    with pytest.raises(OutOfRange, match="is out of range: expected"):
        evaluate(lambda b, x, i: b.op("gather", x, i, mode="check", **keywords), operand, indices)


def test_gather_with_batch_dims_agrees_with_numpy() -> None:
    operand = normal(8, 4, 6, 3)
    indices = np.random.default_rng(1).integers(0, 6, (4, 5)).astype(np.int64)
    got = evaluate(
        lambda b, x, i: b.op(
            "gather", x, i, offset_dims=(2,), collapsed_slice_dims=(1,),
            operand_batching_dims=(0,), start_indices_batching_dims=(0,), start_index_map=(1,),
            index_vector_dim=2, slice_sizes=(1, 1, 3),
        ),
        operand, indices,
    )  # fmt: skip
    assert got.tobytes() == np.take_along_axis(operand, indices[..., None], 1).tobytes()


@pytest.mark.parametrize("kind", ["set", "add", "mul", "min", "max"])
def test_scatter_agrees_with_jax(kind: str) -> None:
    operand, updates = normal(9, 8, 3), normal(10, 4, 3)
    indices = np.array([[2], [7], [2] if kind != "set" else [1], [9]], np.int32)
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    function = {"set": lax.scatter, "add": lax.scatter_add, "mul": lax.scatter_mul}
    function |= {"min": lax.scatter_min, "max": lax.scatter_max}
    wanted = function[kind](operand, indices, updates, numbers, mode="drop")
    got = evaluate(
        lambda b, x, i, u: b.op(
            "scatter", x, i, u, update_window_dims=(1,), inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0,), index_vector_dim=1, kind=kind,
        ),
        operand, indices, updates,
    )  # fmt: skip
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_take_modes() -> None:
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    i = np.array([[0, -1], [3, 9]], np.int64)

    def take(mode: str) -> Callable[..., Any]:
        return lambda b, v, j: b.op("take", v, j, axis=0, mode=mode)

    assert evaluate(take("clamp"), x, i).tolist() == x[[[0, 0], [3, 3]]].tolist()
    assert evaluate(take("wrap_check"), x, i[:1]).tolist() == x[[[0, 3]]].tolist()
    for mode, bad in (("check", i[:1]), ("wrap_check", i)):
        with pytest.raises(OutOfRange, match="expected"):
            evaluate(take(mode), x, bad)


def test_dynamic_slices_clamp_their_starts() -> None:
    x = normal(11, 5, 6)
    update = normal(12, 2, 3)
    for start in ((1, 2), (-9, 9)):
        starts = [np.array(each, np.int32) for each in start]
        got = evaluate(lambda b, v, i, j: b.op("dynamic_slice", v, i, j, sizes=(2, 3)), x, *starts)
        assert got.tobytes() == np.asarray(lax.dynamic_slice(x, starts, (2, 3))).tobytes()
        got = evaluate(
            lambda b, v, u, i, j: b.op("dynamic_update_slice", v, u, i, j), x, update, *starts
        )
        assert got.tobytes() == np.asarray(lax.dynamic_update_slice(x, update, starts)).tobytes()


def test_sort_is_stable_and_takes_several_operands() -> None:
    keys = np.array([[3, 1, 3, 2], [0, 0, 5, -1]], np.int32)
    places = np.broadcast_to(np.arange(4, dtype=np.int64), (2, 4)).copy()

    def build(b: Builder, k: Any, p: Any) -> Any:
        body = Block([ScalarType(dtype(n)) for n in ("i32", "i32", "i64", "i64")])
        inner = Builder(body)
        inner.yield_(inner.op("compare", *body.arguments[:2], direction="gt"))
        return b.op("sort", k, p, axis=1, regions=[Region([body])])

    sorted_keys, order = evaluate(build, keys, places)
    assert sorted_keys.tolist() == [[3, 3, 2, 1], [5, 0, 0, -1]]
    assert order.tolist() == [[0, 2, 3, 1], [2, 0, 1, 3]]


def test_pads_grow_cut_and_spread() -> None:
    x, value = normal(13, 3, 4), np.float32(7)
    low, high, interior = (-1, 2), (3, -2), (2, 0)
    got = evaluate(
        lambda b, v, f: b.op("pad", v, f, low=low, high=high, interior=interior), x, value
    )
    wanted = lax.pad(x, value, tuple(zip(low, high, interior, strict=True)))
    assert got.tobytes() == np.asarray(wanted).tobytes()


def test_packed_contractions_equal_plain_ones() -> None:
    from ingot.compiler.graph.forms.pack_weights import pack

    for name in ("f32", "bf16", "i8"):
        a, w = normal(14, 5, 7) * 20, normal(15, 7, 19) * 20
        a, w = (each.astype(dtype(name).numpy) for each in (a, w))
        result = dtype("i32") if name == "i8" else dtype(name)
        packed = evaluate(
            lambda b, x, y, r=result: b.op("dot_packed", x, pack(y, b), n=19, dtype=r), a, w
        )
        plain = evaluate(
            lambda b, x, y, r=result: b.op(
                "dot_general", x, y, lhs_contract=(1,), rhs_contract=(0,), dtype=r
            ),
            a,
            w,
        )
        assert packed.tobytes() == plain.tobytes()


@pytest.mark.parametrize(
    ("name", "types", "attributes", "count"),
    [
        ("pad", ["f32[50,8]", "f32[]"], {"low": (6, -3), "high": (0, 0), "interior": (0, 1)},
         56 * 16),
        ("convolution", ["f32[1,2,8,8]", "f32[3,2,3,3]"],
         {"layout": "nchw,oihw->nchw", "padding": ((1, 1), (2, 2)), "dtype": dtype("f32")},
         2 * 10 * 12),
        ("reduce_window", ["f32[9,9]"], {"kind": "max", "window": (3, 3)}, 7 * 7 * 9),
        ("neg", ["f32[9]"], {}, 0),
    ],
)  # fmt: skip
def test_what_a_reference_makes_on_its_way_is_counted(
    name: str, types: list[str], attributes: dict[str, Any], count: int
) -> None:
    module = program(lambda b, *args: b.op(name, *args, **attributes), *types)
    (op,) = (each for each in module.functions["main"].block.ops if each.name == name)
    assert padded_count(op) == count

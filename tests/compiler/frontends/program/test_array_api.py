"""`ingot.ops` against the array API standard: which names there are, and what they compute."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ingot
from ingot import ops
from tests.support.array_api import Array, check, numbers, run
from tests.support.drawn import examples

# The sections of the standard (2024.12), and its extensions.
STANDARD = {
    "constants": "e inf nan newaxis pi",
    "creation": "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid "
    "ones ones_like tril triu zeros zeros_like",
    "data types": "astype can_cast finfo iinfo isdtype result_type bool int8 int16 int32 int64 "
    "uint8 uint16 uint32 uint64 float32 float64 complex64 complex128",
    "element-wise": "abs acos acosh add asin asinh atan atan2 atanh bitwise_and "
    "bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip conj "
    "copysign cos cosh divide equal exp expm1 floor floor_divide greater greater_equal hypot imag "
    "isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not "
    "logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow "
    "real reciprocal remainder round sign signbit sin sinh square sqrt subtract tan tanh trunc",
    "indexing": "take take_along_axis",
    "inspection": "__array_namespace_info__",
    "linear algebra": "matmul matrix_transpose tensordot vecdot",
    "manipulation": "broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims "
    "repeat reshape roll squeeze stack tile unstack",
    "searching": "argmax argmin count_nonzero nonzero searchsorted where",
    "sets": "unique_all unique_counts unique_inverse unique_values",
    "sorting": "argsort sort",
    "statistics": "cumulative_prod cumulative_sum max mean min prod std sum var",
    "utilities": "all any diff",
}
EXTENSIONS = {
    "linalg": "cholesky cross det diagonal eig eigh eigvals eigvalsh inv matmul matrix_norm "
    "matrix_power matrix_rank matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot "
    "trace vecdot vector_norm",
    "fft": "fft fftfreq fftn fftshift hfft ifft ifftn ifftshift ihfft irfft irfftn rfft rfftfreq "
    "rfftn",
}
PAGE = Path(__file__).resolve().parents[4] / "docs" / "programs.md"


def test_every_name_of_the_standard_exists() -> None:
    names = {name for section in STANDARD.values() for name in section.split()}
    assert names <= set(ops.__all__)
    for extension, functions in EXTENSIONS.items():
        assert set(functions.split()) <= set(vars(getattr(ops, extension)))
    with pytest.raises(AttributeError, match=r"ops\.linalg has no 'lstsq'"):
        ops.linalg.lstsq  # noqa: B018


def test_every_function_is_in_the_page_and_has_a_docstring() -> None:
    text = PAGE.read_text(encoding="utf-8")
    functions = {name: getattr(ops, name) for name in ops.__all__}
    for extension in EXTENSIONS:
        functions.update(vars(getattr(ops, extension)))
    for name, each in functions.items():
        if inspect.isfunction(each):
            assert f"`{name}" in text, f"docs/programs.md does not name {name}"
            assert each.__doc__, name
            assert each.__module__.startswith("ingot.")


# ---- what they compute, by the references of graph ops

FLOATS = ["float32", "float64"]
SIGNED = ["int8", "int32", "int64"]
UNSIGNED = ["uint8", "uint32"]


@st.composite
def arrays(draw: Any, *dtypes: str, least: int = 0, most: int = 3) -> Array:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=least, max_size=most)))
    return numbers(draw(st.sampled_from(dtypes)), shape, draw(st.integers(0, 99)))


UNARY = {
    "abs": FLOATS + SIGNED, "negative": FLOATS + SIGNED, "sign": FLOATS + SIGNED,
    "square": FLOATS + SIGNED, "ceil": FLOATS + SIGNED, "floor": FLOATS + SIGNED,
    "round": FLOATS + SIGNED, "trunc": FLOATS + SIGNED, "isnan": FLOATS + SIGNED,
    "isinf": FLOATS + SIGNED, "isfinite": FLOATS + SIGNED, "bitwise_invert": [*SIGNED, "bool"],
    "logical_not": [*FLOATS, *SIGNED, "bool"], "signbit": FLOATS, "reciprocal": FLOATS,
    "positive": FLOATS + SIGNED,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
@examples(4)
@given(data=st.data())
def test_unary(name: str, data: Any) -> None:
    x = data.draw(arrays(*UNARY[name]))
    check(lambda xp, x: getattr(xp, name)(x), x)


@pytest.mark.parametrize(
    "name",
    [
        "acos",
        "asin",
        "atan",
        "cos",
        "sin",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "exp",
        "expm1",
        "sqrt",
        "log",
        "log1p",
        "log2",
        "log10",
        "acosh",
        "atanh",
    ],
)
def test_unary_of_floats(name: str) -> None:
    x = np.linspace(-0.9, 0.9, 12, dtype=np.float32)
    x = np.abs(x) + 1 if name == "acosh" else x
    check(lambda xp, x: getattr(xp, name)(x), x.reshape(3, 4))


def test_floats_of_integers() -> None:
    check(lambda xp, x: (xp.exp(x), xp.sqrt(x), x / 4, xp.mean(x)), np.array([1, 2], np.int32))


ARITHMETIC = [*FLOATS, *SIGNED]
BINARY = {
    "add": ARITHMETIC, "subtract": ARITHMETIC, "multiply": ARITHMETIC, "divide": FLOATS,
    "maximum": ARITHMETIC, "minimum": ARITHMETIC, "atan2": FLOATS, "hypot": FLOATS,
    "logaddexp": FLOATS, "copysign": FLOATS, "equal": ARITHMETIC, "not_equal": ARITHMETIC,
    "less": ARITHMETIC, "less_equal": ARITHMETIC, "greater": ARITHMETIC,
    "greater_equal": ARITHMETIC, "bitwise_and": [*SIGNED, "bool"], "bitwise_or": [*SIGNED, "bool"],
    "bitwise_xor": [*SIGNED, "bool"], "logical_and": [*ARITHMETIC, "bool"],
    "logical_or": [*ARITHMETIC, "bool"], "logical_xor": [*ARITHMETIC, "bool"],
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
@examples(4)
@given(data=st.data())
def test_binary(name: str, data: Any) -> None:
    dtype = data.draw(st.sampled_from(BINARY[name]))
    x = data.draw(arrays(dtype))
    keep = [data.draw(st.booleans()) for _ in x.shape]
    shape = tuple(n if kept else 1 for n, kept in zip(x.shape, keep, strict=True))
    y = numbers(dtype, shape[data.draw(st.integers(0, x.ndim)) :], 7)
    check(lambda xp, a, b: getattr(xp, name)(a, b), x, y)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_division_that_rounds_down(dtype: str) -> None:
    x = numbers(dtype, (4, 6))
    y = numbers(dtype, (6,), 3)
    y[y == 0] = 2
    check(lambda xp, a, b: (xp.floor_divide(a, b), xp.remainder(a, b)), x, y)


@pytest.mark.parametrize("a", [*FLOATS, *SIGNED, *UNSIGNED, "bool", "float16"])
@pytest.mark.parametrize("b", [*SIGNED, *UNSIGNED, "float32", "float16", "bool"])
def test_promotion(a: str, b: str) -> None:
    """As NumPy promotes, but for integers and floats, which the standard leaves open."""
    found = ops.result_type(getattr(ops, a), getattr(ops, b))
    kinds = {np.dtype(each).kind for each in (a, b)}
    if "f" in kinds and kinds & set("iu"):
        wanted = next(np.dtype(each) for each in (a, b) if np.dtype(each).kind == "f")
    else:
        wanted = np.result_type(np.dtype(a), np.dtype(b))
    assert found.numpy == wanted
    assert ops.can_cast(getattr(ops, a), found)


def test_numbers_take_the_dtype_of_the_tensors() -> None:
    for dtype in ("float32", "float16", "int8", "uint8"):
        x = np.ones((2,), dtype)
        check(lambda xp, x: (x + 1, 2 * x, 3 - x, x // 2, x % 2, 0 - x, x == 1), x)
    (half,) = run(lambda x: x * 0.5, np.array([3], np.uint8))
    assert half.dtype == np.float32
    assert half == [1.5]
    with pytest.raises(ingot.CompileError, match="300 does not fit into u8"):
        run(lambda x: x + 300, np.array([3], np.uint8))


def test_nan_is_searched_behind_all_numbers() -> None:
    row, wanted = (np.array(x, np.float32) for x in ([-np.inf, 1, 2, np.nan], [np.nan, 2, np.inf]))
    for side in ("left", "right"):
        check(lambda xp, x, y, side=side: xp.searchsorted(x, y, side=side), row, wanted)


MATRIX = numbers("float32", (3, 4))
CUBE = numbers("float32", (2, 3, 4), 5)
MOVES: dict[str, Callable[..., Any]] = {
    "reshape": lambda xp, x: (xp.reshape(x, (4, 6)), xp.reshape(x, (-1,))),
    "permute": lambda xp, x: (xp.permute_dims(x, (2, 0, 1)), xp.moveaxis(x, 0, -1), x.mT),
    "flip": lambda xp, x: (xp.flip(x), xp.flip(x, axis=1), xp.flip(x, axis=(0, -1))),
    "roll": lambda xp, x: (xp.roll(x, 5), xp.roll(x, -1, axis=2), xp.roll(x, (1, 2), axis=(0, 1))),
    "expand": lambda xp, x: (xp.expand_dims(x, axis=(0, -1)), xp.squeeze(x[:1], axis=0)),
    "concat": lambda xp, x: (xp.concat([x, x], axis=1), xp.concat([x, x * 2], axis=None)),
    "stack": lambda xp, x: (xp.stack([x, -x]), xp.stack([x, x], axis=-1)),
    "repeat": lambda xp, x: (xp.repeat(x, 3), xp.repeat(x, 2, axis=1)),
    "tile": lambda xp, x: (xp.tile(x, (2, 1, 3)), xp.tile(x, (2,)), xp.tile(x, (2, 1, 1, 1))),
    "broadcast": lambda xp, x: xp.broadcast_arrays(x, x[:, :1]),
    "triangles": lambda xp, x: (xp.tril(x), xp.triu(x, k=1), xp.tril(x, k=-1)),
    "pad": lambda xp, x: (
        xp.pad(x, ((1, 0), (0, 2), (1, 1))),
        xp.pad(x, 2, mode="edge"),
        xp.pad(x, 1, constant_values=7),
    ),
    "where": lambda xp, x: (xp.where(x > 0, x, 0), xp.where(x > 0, x, -x)),
    "clip": lambda xp, x: (xp.clip(x, -1, 1), xp.clip(x, 0, None)),
    "take": lambda xp, x: xp.take(x, np.array([2, 0, -1]), axis=1),
    "take along": lambda xp, x: xp.take_along_axis(x, xp.argsort(x, axis=1), axis=1),
    "sort": lambda xp, x: (xp.sort(x, axis=0), xp.argsort(x), xp.sort(x)),
    "search": lambda xp, x: (xp.argmax(x), xp.argmin(x, axis=1), xp.argmax(x, axis=0)),
    "kept": lambda xp, x: (xp.argmax(x, axis=1, keepdims=True), xp.sum(x, axis=2, keepdims=True)),
    "sums": lambda xp, x: (xp.sum(x), xp.sum(x, axis=(0, 2)), xp.prod(x, axis=1), xp.mean(x)),
    "extremes": lambda xp, x: (xp.max(x, axis=1), xp.min(x), xp.max(x, axis=(1, 2))),
    "spread": lambda xp, x: (xp.var(x, axis=1), xp.std(x), xp.var(x, axis=(0, 1), correction=1)),
    "truth": lambda xp, x: (xp.all(x > -5), xp.any(x > 1, axis=1), xp.count_nonzero(x > 0, axis=0)),
    "cumulative": lambda xp, x: (
        xp.cumulative_sum(x, axis=1),
        xp.cumulative_prod(x, axis=2),
        xp.cumulative_sum(x, axis=0, include_initial=True),
    ),
    "diff": lambda xp, x: (xp.diff(x), xp.diff(x, axis=0), xp.diff(x, n=2)),
    "unique": lambda xp, x: [*xp.unique_all(x[:, 1] // 2), *xp.unique_counts(x // 1)],
    "unique values": lambda xp, x: [xp.sort(xp.unique_values(x)), *xp.unique_inverse(x > 0)],
    "nonzero": lambda xp, x: xp.nonzero(x > 0),
    "products": lambda xp, x: (
        xp.matmul(x, x.mT),
        xp.tensordot(x, x, axes=([0, 2], [0, 2])),
        xp.vecdot(x, x),
        x @ np.ones(4, np.float32),
    ),
}


@pytest.mark.parametrize("name", MOVES)
def test_functions_of_tensors(name: str) -> None:
    function = MOVES[name]
    check(function, CUBE)
    if name not in ("spread", "products"):
        check(function, numbers("int32", (2, 3, 4)))


def test_unique_of_nothing_and_of_nan() -> None:
    for x in (np.zeros(0, np.float32), np.array([np.nan, 1, np.nan, 1], np.float32)):
        for dims in (False, True):
            got = run(lambda x: tuple(ops.unique_all(x)), x, dims=dims)
            for one, other in zip(got, np.unique_all(x), strict=True):
                np.testing.assert_array_equal(one, other)


def test_neighbours_of_floats() -> None:
    values = np.array([0, -0.0, 1, -1, 1e-45, -1e-45, 3.4e38, np.inf, -np.inf, np.nan], np.float32)
    for dtype in (np.float32, np.float64):
        a, b = (each.astype(dtype) for each in np.meshgrid(values, values))
        (got,) = run(ops.nextafter, a, b)
        np.testing.assert_array_equal(got, np.nextafter(a, b))


def test_what_the_namespace_tells() -> None:
    info = ops.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] is ops.float32
    assert list(info.dtypes(kind="unsigned integer")) == ["uint8", "uint16", "uint32", "uint64"]
    assert info.capabilities()["data-dependent shapes"]
    assert info.devices() == [info.default_device()]
    (got,) = run(lambda x: x + ops.from_dlpack(np.ones(2, np.float32)), np.ones(2, np.float32))
    assert got.tolist() == [2, 2]


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_extremes_of_no_elements_are_the_ends_of_the_dtype(dtype: str) -> None:
    empty = np.zeros((0, 2), dtype)
    (greatest,), (least,) = run(ops.max, empty), run(ops.min, empty)
    ends = [-np.inf, np.inf] if dtype == "float32" else [np.iinfo(dtype).min, np.iinfo(dtype).max]
    assert [greatest.item(), least.item()] == ends


def test_sums_of_narrow_integers_are_wide() -> None:
    for dtype in ("int8", "uint8", "bool"):
        check(lambda xp, x: (xp.sum(x), xp.cumulative_sum(x)), numbers(dtype, (5,)))


def test_creation() -> None:
    def made(xp: Any, x: Any) -> Any:
        f32 = xp.float32
        return [
            xp.zeros((2, 3), dtype=f32), xp.ones(3, dtype=xp.int8), xp.full((2,), 7, dtype=f32),
            xp.zeros_like(x), xp.full_like(x, 3), xp.arange(5), xp.arange(2, 11, 3),
            xp.arange(5, 0, -2), xp.arange(0.0, 1.0, 0.25, dtype=f32),
            xp.linspace(0, 1, 5, dtype=f32), xp.linspace(3, 4, 4, endpoint=False, dtype=f32),
            xp.eye(3, dtype=f32), xp.eye(2, 4, k=1, dtype=f32), xp.asarray([[1, 2], [3, 4]]),
            xp.astype(x, xp.int32), *xp.meshgrid(xp.arange(3), xp.arange(2)),
            *xp.meshgrid(xp.arange(3), xp.arange(2), indexing="ij"), xp.ones_like(x, dtype=xp.bool),
        ]  # fmt: skip

    check(made, MATRIX)


KEYS: list[Any] = [
    0, -1, slice(1, None), slice(None, None, 2), slice(None, None, -1), slice(5, 0, -2), ...,
    (slice(None), 1), (..., 0), (None, 1), (slice(0, 2), None, ..., slice(-3, -1)),
    (0, slice(None), 2), (np.array([1, 0, 1]),), (slice(None), np.array([[0, 2], [1, -1]])),
    (np.array([0, 1]), slice(None), np.array([3, 0])), (np.array([0, 1]), np.array([2, 0])),
    (slice(None), np.array([True, False, True])), (0, np.array([2, 1]), slice(None, None, 3)),
    (slice(10, 20),), (slice(-10, 2),), (slice(None, None, -2), slice(-2, None)),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_indexing(key: Any) -> None:
    for dims in (False, True):
        (got,) = run(lambda x: x[key], CUBE, dims=dims)
        np.testing.assert_array_equal(got, CUBE[key])


def test_indexing_with_traced_tensors() -> None:
    places = np.array([1, 0], np.int32)
    check(lambda xp, x, i: (x[i], x[:, i], x[..., i]), CUBE, places)
    for dims in (False, True):
        (got,) = run(lambda x: x[x > 0], CUBE, dims=dims)
        np.testing.assert_array_equal(got, CUBE[CUBE > 0])


def test_sizes_compute() -> None:
    def sizes(x: Any) -> Any:
        n, m = x.shape
        assert n * m == x.size
        assert m + n - m == n
        return {
            "half": ops.asarray(n // 2), "mean": ops.sum(x) / (n * m), "rest": ops.asarray(m % 3),
            "ratio": n / m, "ones": ops.ones((n + 1, 2 * m)), "front": x[: n - 1, m // 2],
            "back": 7 - n + x[0, 0],
        }  # fmt: skip

    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    half, mean, rest, ratio, ones, front, back = run(sizes, x, dims=True)
    assert (half, rest, mean) == (2, 1, 17)
    assert ratio == np.float32(5 / 7)
    assert ones.shape == (6, 14)
    np.testing.assert_array_equal(front, x[:4, 3])
    assert back == 2


def test_quotients_that_are_rounded_down_have_the_special_values_of_the_standard() -> None:
    each = np.array([0.0, -0.0, 1, -1, 2.5, -2.5, 1e30, np.inf, -np.inf, np.nan], np.float32)
    a, b = (side.copy() for side in np.meshgrid(each, each))
    quotient, rest = run(lambda x, y: (x // y, x % y), a, b)
    with np.errstate(all="ignore"):
        wanted = np.where(np.isinf(a), a / b, a // b), a % b  # numpy has NaN for inf // 1
    for got, other in zip((quotient, rest), wanted, strict=True):
        np.testing.assert_array_equal(got, other)
        known = ~np.isnan(other)
        np.testing.assert_array_equal(np.signbit(got)[known], np.signbit(other)[known])


def test_no_axes_and_ranks_of_0() -> None:
    x = np.array([[1.5, -2], [np.inf, 0]], np.float32)
    check(lambda xp, x: (xp.var(x, axis=()), xp.std(x, axis=(), keepdims=True)), x)
    check(lambda xp, x: (xp.var(x), x[x > 0], x[x < 0], x[None][x > 0]), x[0, 0])
    check(lambda xp, x, mask: (x[mask], x[0, mask]), x, np.array(True))


def test_elements_are_repeated_by_counts() -> None:
    x, counts = np.arange(6, dtype=np.int32).reshape(2, 3), np.array([2, 0, 3])
    check(lambda xp, x, n: (xp.repeat(x, n, axis=-1), xp.repeat(x, n[:1], axis=0)), x, counts)
    check(lambda xp, x, n: xp.repeat(x, xp.concat([n, n])), x, counts)


def test_differences_between_others() -> None:
    x, end = numbers("float32", (3, 4)), numbers("float32", (3, 1), 1)
    check(lambda xp, x, y: xp.diff(x, prepend=y, append=y, n=2), x, end)
    check(lambda xp, x, y: (xp.diff(x, n=0), xp.diff(x, append=y)), x, end)
    (steps,) = run(lambda: ops.arange(10, 0, -3, dtype=ops.uint8))
    np.testing.assert_array_equal(steps, np.arange(10, 0, -3, dtype=np.uint8))
    check(lambda xp, z: xp.round(z), np.array([1.5 - 2.5j, 0.4 + 3j], np.complex64))

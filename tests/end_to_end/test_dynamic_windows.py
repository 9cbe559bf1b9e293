"""Windows and weights whose sizes only the call knows, compiled once, at drawn shapes."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import ceildiv, floordiv, maximum, symbol
from ingot.hal.errors import InvalidArgument
from ingot.hal.spec import dtype
from tests.support.compiled_programs import Program, build
from tests.support.drawn import examples

B, H, W, I, K, L, O, S, D = map(symbol, ("b", "h", "w", "i", "k", "l", "o", "s", "d"))  # noqa: E741
F32 = dtype("f32")


def products(b: Builder, x: Value, w: Value, grouped: Value) -> list[Value]:
    """Convolutions with a plain, a padded and a grouped weight of unknown sizes."""
    options = {"lhs_dilation": (1, 1), "rhs_dilation": (1, 1), "dtype": F32}
    plain = b.value(
        "convolution", x, w, strides=(1, 2), padding=((0, 0), (0, 0)), groups=1,
        layout="nhwc,hwio->nhwc", **options,
    )  # fmt: skip
    same = floordiv(K, 2)
    padded = b.value(
        "convolution", x, w, strides=(1, 1), padding=((same, same), (L, 1)), groups=1,
        layout="nhwc,hwio->nhwc", **{**options, "rhs_dilation": (1, 2)},
    )  # fmt: skip
    split = b.value(
        "convolution", b.value("transpose", x, permutation=(0, 3, 1, 2)), grouped,
        strides=(1, 1), padding=((0, 0), (0, 0)), groups=2, layout="nchw,oihw->nchw", **options,
    )  # fmt: skip
    return [plain, padded, split]


def pools(b: Builder, x: Value, steps: Value) -> list[Value]:
    """Windows of size k, of a size and step from data, with holes, and as long as the image."""
    b.op("size", steps, symbols=("s",), what="the step", low=1)

    def pool(kind: str, **attributes: object) -> Value:
        plain = {"strides": (1, 1, 1), "padding": ((0, 0),) * 3}
        ones = {"base_dilation": (1, 1, 1), "window_dilation": (1, 1, 1)}
        return b.value("reduce_window", x, kind=kind, **{**plain, **ones, **attributes})

    total = maximum((ceildiv(H, 2) - 1) * 2 + 3 - H, 0)
    same = (floordiv(total, 2), total - floordiv(total, 2))
    return [
        pool("max", window=(1, 3, 1), strides=(1, 2, 1), padding=((0, 0), same, (0, 0))),
        pool("add", window=(1, S, 1), strides=(1, S, 1), padding=((0, 0), (S, 0), (0, 0))),
        pool("max", window=(1, 2, 2), base_dilation=(1, 2, S), padding=((0, 0), (1, 1), (0, 1))),
        pool("min", window=(1, H, 1)),
        pool("add", window=(1, 2, 1), window_dilation=(1, S, 1), padding=((0, 0), (S, S), (0, 0))),
    ]  # fmt: skip


SYMBOLS = dict.fromkeys("bhwiklo", (0, None))


@cache
def convolver() -> Program:
    shapes = (B, H, W, 2 * I), (K, L, 2 * I, O), (2 * O, I, K, L)
    module = build(products, *(("f32", shape) for shape in shapes), symbols=SYMBOLS)
    return Program(module)


@cache
def pooler() -> Program:
    symbols = dict.fromkeys("bhw", (0, None))
    module = build(pools, ("f32", (B, H, W)), ("i64", ()), symbols=symbols)
    return Program(module)


def drawn(*shape: int) -> np.ndarray:
    random = np.random.default_rng(sum(shape))
    return random.integers(-4, 5, shape).astype(np.float32)


@given(*[st.integers(0, 2)] * 1, *[st.integers(1, 6)] * 2, *[st.integers(1, 3)] * 4)
@examples(25)
def test_convolutions_take_a_weight_of_any_size(
    b: int, h: int, w: int, i: int, k: int, l: int, o: int  # noqa: E741
) -> None:  # fmt: skip
    assume(k <= h and l <= w)
    convolver().check(drawn(b, h, w, 2 * i), drawn(k, l, 2 * i, o), drawn(2 * o, i, k, l))


@given(st.integers(0, 2), st.integers(2, 9), st.integers(1, 9), st.integers(1, 4))
@examples(25)
def test_windows_and_their_steps_may_be_known_to_the_call_only(
    b: int, h: int, w: int, s: int
) -> None:
    pooler().check(drawn(b, h, w), np.array(s))


def test_holes_in_an_axis_without_elements_are_refused_by_name() -> None:
    with pytest.raises(InvalidArgument, match="w is 0, expected at least 1"):
        pooler().call(drawn(1, 3, 0), np.array(1))

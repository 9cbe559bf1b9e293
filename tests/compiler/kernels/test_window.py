"""Window kernels: pooling of several shapes, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.ir.dims import symbol
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype
from tests.support.entries import entry
from tests.support.every_target import CPU, on_every_target

IMAGES = (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))


def pool(kind, window, strides, padding, dilation=None, base=None):
    ones = (1,) * len(window)

    def body(b, x):
        return b.op(
            "reduce_window",
            x,
            kind=kind,
            window=window,
            strides=strides,
            padding=padding,
            base_dilation=base or ones,
            window_dilation=dilation or ones,
        )

    return body


@on_every_target
@pytest.mark.parametrize("kind", ["max", "add"])
@pytest.mark.parametrize("channels", [3, 20])
def test_padded_pooling_of_channels_last(target, kind: str, channels: int) -> None:
    target.check(entry([f"f32[2,9,8,{channels}]"], pool(kind, *IMAGES)))


@pytest.mark.parametrize(("kind", "channels"), [("min", 3), ("min", 40), ("max", 16), ("add", 64)])
def test_channels_that_fill_vectors(kind: str, channels: int) -> None:
    CPU.check(entry([f"f32[2,9,8,{channels}]"], pool(kind, *IMAGES)))


@on_every_target
def test_dilation_channels_first_and_symbolic_batch(target) -> None:
    body = pool("max", (1, 1, 2, 3), (1, 1, 1, 2), ((0, 0), (0, 0), (0, 1), (2, 2)), (1, 1, 2, 2))
    target.check(entry(["f32[b,3,7,9]"], body, {"b": (1, None)}), b=2)


@pytest.mark.parametrize(
    ("name", "kind", "window", "strides", "padding", "dilation"),
    [
        ("f32", "max", (1, 3, 3), (1, 2, 2), (1, 1), (1, 1, 1)),
        ("f32", "add", (1, 2, 5), (1, 1, 1), (4, 0), (1, 1, 2)),
        ("f32", "add", (2, 2, 3), (1, 1, 3), (0, 2), (1, 2, 1)),
        ("f64", "min", (1, 1, 7), (1, 1, 1), (3, 6), (1, 1, 1)),
        ("f32", "max", (1, 1, 40), (1, 1, 2), (20, 19), (1, 1, 1)),
        ("f32", "max", (1, 2, 80), (1, 1, 9), (0, 1), (1, 1, 1)),  # one result of a row
        ("bf16", "add", (1, 3, 3), (1, 2, 2), (1, 1), (1, 1, 1)),
        ("i8", "max", (1, 3, 3), (1, 2, 2), (1, 1), (1, 1, 1)),
        ("u8", "min", (1, 2, 7), (1, 1, 4), (0, -2), (1, 1, 1)),  # whose frame is small
        ("i8", "max", (1, 2, 15), (1, 1, 2), (7, 7), (1, 1, 1)),
        ("u8", "max", (1, 2, 15), (1, 1, 4), (7, 7), (1, 1, 1)),
        ("i16", "min", (1, 1, 3), (1, 1, 2), (1, 1), (1, 1, 1)),
    ],
)
def test_rows_of_channels_first(name, kind, window, strides, padding, dilation) -> None:
    body = pool(kind, window, strides, ((0, 0), (1, 0), padding), dilation)
    CPU.check(entry([f"{name}[3,6,83]"], body))


def test_rows_that_are_longer_than_a_block_or_of_unknown_length() -> None:
    body = pool("max", (1, 3, 3), (1, 1, 2), ((0, 0), (1, 1), (1, 1)))
    CPU.check(entry(["f32[2,3,4500]"], body))
    function = entry(["f32[2,3,w]"], body, {"w": (3, None)})
    for width in (3, 17, 1030, 4099):
        CPU.check(function, w=width)


def test_what_lies_beside_a_row_is_not_read() -> None:
    x = np.zeros((2, 3, 40), np.float32)
    x[0, 1, 0] = x[1, 1, 39] = np.nan
    CPU.check(
        entry(["f32[2,3,40]"], pool("add", (1, 1, 3), (1, 1, 1), ((0, 0), (0, 0), (1, 1)))), [x]
    )


@on_every_target
def test_average_with_epilogue_and_flattening(target) -> None:
    def body(b, x):
        total = pool("add", (1, 2, 2, 1), (1, 2, 2, 1), ((0, 0),) * 4)(b, x)
        mean = b.op("mul", total, b.full(0.25, dtype("f32"), (1, 4, 4, 20)))
        return b.op("reshape", b.op("tanh", mean), shape=(16, 20))

    target.check(entry(["f32[1,8,8,20]"], body))


@on_every_target
@pytest.mark.parametrize("name", ["bf16", "i32", "f64"])
def test_dtypes(target, name: str) -> None:
    body = pool("add", (1, 3, 1), (1, 1, 1), ((0, 0), (1, 1), (0, 0)))
    target.check(entry([f"{name}[2,5,18]"], body), one=target is not CPU)


@on_every_target
def test_sums_along_a_line(target) -> None:
    body = pool("add", (1, 5), (1, 1), ((0, 0), (4, 0)))
    target.check(entry(["i32[2,300]"], body), one=target is CPU)


@on_every_target
def test_nan_wins(target) -> None:
    x = np.zeros((1, 4, 4, 16), np.float32)
    x[0, 1, 1, 3] = np.nan
    body = pool("max", (1, 2, 2, 1), (1, 1, 1, 1), ((0, 0),) * 4)
    target.check(entry(["f32[1,4,4,16]"], body), [x], one=target is not CPU)


@on_every_target
def test_base_dilation_is_refused(target) -> None:
    body = pool("max", (1, 2), (1, 1), ((0, 0), (0, 0)), base=(1, 2))
    function = entry([f"f32[{symbol('b')},6]"], body, {"b": (1, None)})
    with pytest.raises(CompileError, match="base dilation"):
        target.lower(function)

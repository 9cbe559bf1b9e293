"""Window kernels: pooling of several shapes, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.lanes.window import lower_window
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype
from tests.support.entries import check, entry
from tests.support.kernel_runner import V4


def pool(kind, window, strides, padding, dilation=None, base=None):
    rank = len(window)

    def body(b, x):
        return b.op(
            "reduce_window",
            x,
            kind=kind,
            window=window,
            strides=strides,
            padding=padding,
            base_dilation=base or (1,) * rank,
            window_dilation=dilation or (1,) * rank,
        )

    return body


@pytest.mark.parametrize("kind", ["max", "add", "min"])
@pytest.mark.parametrize("channels", [3, 16, 40, 64])
def test_padded_pooling_of_channels_last(kind: str, channels: int) -> None:
    body = pool(kind, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    check(entry([f"f32[2,9,8,{channels}]"], body), lower_window)


def test_dilation_channels_first_and_symbolic_batch() -> None:
    body = pool("max", (1, 1, 2, 3), (1, 1, 1, 2), ((0, 0), (0, 0), (0, 1), (2, 2)), (1, 1, 2, 2))
    check(entry(["f32[b,3,7,9]"], body, {"b": (1, None)}), lower_window, b=2)


def test_average_with_epilogue_and_flattening() -> None:
    def body(b, x):
        total = pool("add", (1, 2, 2, 1), (1, 2, 2, 1), ((0, 0),) * 4)(b, x)
        mean = b.op("mul", total, b.full(0.25, dtype("f32"), (1, 4, 4, 20)))
        return b.op("reshape", b.op("tanh", mean), shape=(16, 20))

    check(entry(["f32[1,8,8,20]"], body), lower_window)


@pytest.mark.parametrize("name", ["bf16", "i32", "f64"])
def test_dtypes(name: str) -> None:
    body = pool("add", (1, 3, 1), (1, 1, 1), ((0, 0), (1, 1), (0, 0)))
    check(entry([f"{name}[2,5,18]"], body), lower_window)


def test_nan_wins() -> None:
    x = np.zeros((1, 4, 4, 16), np.float32)
    x[0, 1, 1, 3] = np.nan
    body = pool("max", (1, 2, 2, 1), (1, 1, 1, 1), ((0, 0),) * 4)
    check(entry(["f32[1,4,4,16]"], body), lower_window, [x])


def test_base_dilation_is_refused() -> None:
    body = pool("max", (1, 2), (1, 1), ((0, 0), (0, 0)), base=(1, 2))
    function = entry([f"f32[{symbol('b')},6]"], body, {"b": (1, None)})
    with pytest.raises(CompileError, match="base dilation"):
        lower_window(function, V4)

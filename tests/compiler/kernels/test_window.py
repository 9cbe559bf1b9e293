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

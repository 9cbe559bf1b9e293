"""Convolution and depthwise kernels against the op table's references in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import TensorType, Value
from ingot.compiler.ir.dims import Dim, ceildiv, product, symbol
from ingot.compiler.kernels.lanes.convolution import lower_convolution
from ingot.compiler.kernels.lanes.depthwise import lower_depthwise
from ingot.hal.spec import dtype
from tests.support.kernel_runner import VARIANTS, host_variants, run
from tests.support.products import draw, entry, error_of, f32, pack

Array = np.ndarray[Any, Any]
Pads = tuple[tuple[int, int], ...]


def convolve(x: Array, w: Array, strides: Any, dilation: Any, padding: Pads) -> Array:
    """x [b, spatial..., c], w [window..., c, n] in float64, a window position at a time."""
    padded = np.pad(x.astype(np.float64), ((0, 0), *padding, (0, 0)))
    window = w.shape[:-2]
    sizes = [
        (padded.shape[1 + i] - (window[i] - 1) * dilation[i] - 1) // strides[i] + 1
        for i in range(len(window))
    ]
    total = np.zeros((x.shape[0], *sizes, w.shape[-1]))
    for place in np.ndindex(*window):
        cut = tuple(
            slice(p * d, p * d + (size - 1) * s + 1, s)
            for p, d, s, size in zip(place, dilation, strides, sizes, strict=True)
        )
        total += padded[(slice(None), *cut)] @ w[place].astype(np.float64)
    return total


CASES = [
    ((1, 8, 8, 16), (3, 3), 32, (1, 1), (1, 1), ((1, 1), (1, 1))),
    ((2, 15, 13, 3), (7, 7), 20, (2, 2), (1, 1), ((3, 3), (3, 3))),
    ((1, 9, 9, 8), (1, 1), 48, (2, 2), (1, 1), ((0, 0), (0, 0))),
    ((2, 13, 13, 40), (1, 1), 70, (2, 2), (1, 1), ((0, 0), (0, 0))),
    ((1, 5, 6, 4), (1, 1), 16, (1, 1), (1, 1), ((0, 0), (0, 0))),
    ((1, 10, 11, 5), (3, 2), 7, (1, 2), (2, 1), ((2, 0), (0, 1))),
    ((1, 7, 7, 70), (3, 3), 130, (1, 1), (1, 1), ((1, 1), (1, 1))),
    ((2, 9, 5), (3,), 10, (1,), (2,), ((2, 2),)),
    ((1, 4, 5, 6, 3), (2, 3, 2), 9, (1, 2, 1), (1, 1, 1), ((0, 1), (1, 1), (0, 0))),
]


@pytest.mark.parametrize("variant", host_variants())
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_conv_packed_convolves(variant: str, case: Any, dynamic: bool) -> None:
    shape, window, n, strides, dilation, padding = case
    channels = shape[-1]
    symbols = [symbol(f"d{i}") for i in range(len(shape) - 1)]
    x_shape: tuple[Dim, ...] = (*symbols, channels) if dynamic else shape
    depth = product(window) * channels
    panels = ceildiv(n, 16)

    def build(b: Builder, x: Value, w: Value, bias: Value) -> Value:
        y = b.op(
            "conv_packed", x, w, window=window, strides=strides, rhs_dilation=dilation,
            padding=padding, n=n,
        )  # fmt: skip
        result: Value = b.op("add", y, b.broadcast_to(bias, y.type.shape))
        return result

    function = entry(build, f32(*x_shape), f32(panels, depth, 16, 1), f32(n))
    kernel = lower_convolution(function, VARIANTS[variant].target)
    x, w, bias = draw(*shape), draw(*window, channels, n, seed=1), draw(n, seed=2)
    wanted = convolve(x, w, strides, dilation, padding) + bias
    out = np.full(wanted.shape, np.nan, np.float32)
    values = {f"d{i}": size for i, size in enumerate(shape[:-1])} if dynamic else {}
    (got,) = run(kernel, [x, pack(w.reshape(depth, n)), bias], [out], variant, **values)
    assert error_of(got, wanted) < 2e-6


@pytest.mark.parametrize("name", ["f16", "bf16", "i8"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("window", [3, 1], ids=["window", "strided pixels"])
def test_conv_packed_unpacks_narrow_weights(name: str, dynamic: bool, window: int) -> None:
    variant, (height, width), channels, n = host_variants()[0], (9, 8), 5, 35
    element, result = dtype(name), dtype("i32" if name == "i8" else name)
    sizes = (symbol("h"), symbol("w")) if dynamic else (height, width)
    padding = ((1, 1), (1, 0)) if window == 3 else ((0, 0), (0, 0))
    strides = (1, 1) if window == 3 else (2, 3)
    shapes = [(2, height, width, channels), (window, window, channels, n)]
    x, w = (
        (draw(*shape, seed=seed) * 20).astype(np.int8).astype(element.numpy)
        for seed, shape in enumerate(shapes)
    )
    panels = pack(w.reshape(-1, n))
    types = TensorType(element, (2, *sizes, channels)), TensorType(element, panels.shape)
    function = entry(
        lambda b, x, w: b.op(
            "conv_packed", x, w, window=(window, window), strides=strides, rhs_dilation=(1, 1),
            padding=padding, n=n, dtype=result,
        ),
        *types,
    )  # fmt: skip
    kernel = lower_convolution(function, VARIANTS[variant].target)
    wanted = convolve(x, w, strides, (1, 1), padding)
    symbols = {"h": height, "w": width} if dynamic else {}
    (got,) = run(kernel, [x, panels], [np.zeros(wanted.shape, result.numpy)], variant, **symbols)
    bound = {"f16": 1e-3, "bf16": 8e-3}.get(name, 0)
    assert error_of(got.astype(np.float64), wanted) <= bound


DEPTHWISE = [
    ((1, 14, 14, 32), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))),
    ((2, 7, 7, 20), (3, 3), (2, 2), (1, 1), ((1, 1), (1, 1))),
    ((1, 3, 2, 16), (5, 5), (1, 1), (1, 1), ((2, 2), (2, 2))),
    ((1, 12, 9, 5), (3, 2), (2, 1), (2, 3), ((2, 1), (0, 4))),
    ((2, 11, 18), (4,), (1,), (1,), ((3, 0),)),
]


@pytest.mark.parametrize("variant", host_variants())
@pytest.mark.parametrize("case", DEPTHWISE, ids=str)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_depthwise_convolves_each_channel(variant: str, case: Any, dynamic: bool) -> None:
    shape, window, strides, dilation, padding = case
    channels = shape[-1]
    symbols = [symbol(f"d{i}") for i in range(len(shape) - 1)]
    x_shape: tuple[Dim, ...] = (*symbols, channels) if dynamic else shape

    def build(b: Builder, x: Value, w: Value) -> Value:
        result: Value = b.op(
            "depthwise", x, w, strides=strides, rhs_dilation=dilation, padding=padding
        )
        return result

    function = entry(build, f32(*x_shape), f32(*window, channels))
    kernel = lower_depthwise(function, VARIANTS[variant].target)
    x, w = draw(*shape), draw(*window, channels, seed=1)
    eye = np.zeros((*window, channels, channels))
    eye[..., np.arange(channels), np.arange(channels)] = w
    wanted = convolve(x, eye, strides, dilation, padding)
    out = np.full(wanted.shape, np.nan, np.float32)
    values = {f"d{i}": size for i, size in enumerate(shape[:-1])} if dynamic else {}
    (got,) = run(kernel, [x, w], [out], variant, **values)
    assert error_of(got, wanted) < 2e-6

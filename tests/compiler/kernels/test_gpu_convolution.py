"""Convolutions by work-groups, and their fallback, against the graph interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Function, TensorType, Value
from ingot.compiler.ir.dims import Dim, ceildiv, product, symbol
from ingot.compiler.kernels.classes import lower_entry
from ingot.hal.spec import dtype
from tests.support.products import draw, entry, f32, pack
from tests.support.work_items import LARGE, SMALL, check, needs_device

pytestmark = needs_device

Array = np.ndarray[Any, Any]

CASES = [
    ((1, 8, 8, 16), (3, 3), 32, (1, 1), (1, 1), ((1, 1), (1, 1))),
    ((2, 15, 13, 3), (7, 7), 20, (2, 2), (1, 1), ((3, 3), (3, 3))),
    ((1, 9, 9, 8), (1, 1), 48, (2, 2), (1, 1), ((0, 0), (0, 0))),
    ((1, 5, 6, 4), (1, 1), 16, (1, 1), (1, 1), ((0, 0), (0, 0))),
    ((1, 10, 11, 5), (3, 2), 7, (1, 2), (2, 1), ((2, 0), (0, 1))),
    ((2, 9, 5), (3,), 10, (1,), (2,), ((2, 2),)),
    ((1, 4, 5, 6, 3), (2, 3, 2), 9, (1, 2, 1), (1, 1, 1), ((0, 1), (1, 1), (0, 0))),
    ((1, 9, 8, 2), (3, 3), 5, (1, 1), (1, 1), ((-1, 0), (0, -2))),
]


def convolution(case: Any, shape: tuple[Dim, ...], name: str = "f32") -> Function:
    sizes, window, n, strides, dilation, padding = case
    channels = sizes[-1]
    depth, panels = product(window) * channels, ceildiv(n, 16)
    element = dtype(name)
    steps = max(1, 4 // element.bytes)

    def build(b: Builder, x: Value, w: Value, bias: Value) -> Value:
        y = b.op(
            "conv_packed", x, w, window=window, strides=strides, rhs_dilation=dilation,
            padding=padding, n=n,
        )  # fmt: skip
        result: Value = b.op("add", y, b.broadcast_to(bias, y.type.shape))
        return result

    types = (
        TensorType(element, shape),
        TensorType(element, (panels, -(-depth // steps), 16, steps)),
        TensorType(element, (n,)),
    )
    return entry(build, *types)


def operands(case: Any, name: str = "f32") -> list[Array]:
    shape, window, n, *_ = case
    x, bias = draw(*shape), draw(n, seed=2)
    w = draw(product(window) * shape[-1], n, seed=1) / 8  # type: ignore[arg-type]
    element = dtype(name).numpy
    return [x.astype(element), pack(w.astype(element)), bias.astype(element)]


@pytest.mark.parametrize(
    ("case", "dynamic"),
    [*((case, False) for case in CASES), *((case, True) for case in CASES[1::2])],
    ids=str,
)
def test_a_group_convolves(case: Any, dynamic: bool) -> None:
    shape = case[0]
    symbols = [symbol(f"d{i}") for i in range(len(shape) - 1)]
    values = {f"d{i}": size for i, size in enumerate(shape[:-1])} if dynamic else {}
    function = convolution(case, (*symbols, shape[-1]) if dynamic else shape)
    check(function, lower_entry, operands(case), **values)


def test_half_images_are_summed_in_f32() -> None:
    case = CASES[0]
    check(convolution(case, case[0], "bf16"), lower_entry, operands(case, "bf16"))


def test_many_pixels_and_features_make_large_tiles() -> None:
    case = ((2, 80, 80, 3), (3, 3), 256, (1, 1), (1, 1), ((1, 1), (1, 1)))
    function = convolution(case, case[0])
    assert lower_entry(function, LARGE).schedule.tile.rows == 128
    assert lower_entry(function, SMALL).schedule.tile.columns == 64
    check(function, lower_entry, operands(case))


DEPTHWISE = [
    ((1, 14, 14, 32), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))),
    ((2, 7, 7, 20), (3, 3), (2, 2), (1, 1), ((1, 1), (1, 1))),
    ((1, 3, 2, 16), (5, 5), (1, 1), (1, 1), ((2, 2), (2, 2))),
    ((1, 12, 9, 5), (3, 2), (2, 1), (2, 3), ((2, 1), (0, 4))),
    ((2, 11, 18), (4,), (1,), (1,), ((3, 0),)),
    ((1, 300, 1, 3), (3, 1), (1, 1), (1, 1), ((1, 1), (0, 0))),
]


@pytest.mark.parametrize(
    ("case", "dynamic"),
    [*((case, False) for case in DEPTHWISE), *((case, True) for case in DEPTHWISE[1::2])],
    ids=str,
)
def test_a_group_convolves_each_channel(case: Any, dynamic: bool) -> None:
    shape, window, strides, dilation, padding = case
    channels = shape[-1]
    symbols = [symbol(f"d{i}") for i in range(len(shape) - 1)]

    def build(b: Builder, x: Value, w: Value, bias: Value) -> Value:
        y = b.op("depthwise", x, w, strides=strides, rhs_dilation=dilation, padding=padding)
        result: Value = b.op("max", y, b.broadcast_to(bias, y.type.shape))
        return result

    x_shape: tuple[Dim, ...] = (*symbols, channels) if dynamic else shape
    function = entry(build, f32(*x_shape), f32(*window, channels), f32(channels))
    values = {f"d{i}": size for i, size in enumerate(shape[:-1])} if dynamic else {}
    arrays = [draw(*shape), draw(*window, channels, seed=1), draw(channels, seed=2)]
    check(function, lower_entry, arrays, **values)


def test_groups_stay_within_what_devices_have() -> None:
    case = ((1, 300, 1, 3), (3, 1), (1, 1), (1, 1), ((1, 1), (0, 0)))
    shape, window, strides, dilation, padding = case
    function = entry(
        lambda b, x, w: b.op(
            "depthwise", x, w, strides=strides, rhs_dilation=dilation, padding=padding
        ),
        f32(*shape),
        f32(*window, 3),
    )
    size = lower_entry(function, LARGE).local_size
    assert size[2] <= 64, "NVIDIA's devices have 64 work items along the third axis"

"""Convolution and depthwise kernels against the interpreter, whose references are in float64."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Function, TensorType, Value
from ingot.compiler.ir.dims import Dim, ceildiv, product, symbol
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.kernels.lanes.taps import TapsSchedule
from ingot.compiler.kernels.schedule import WANTED_WORKGROUPS
from ingot.hal.spec import dtype
from tests.support.entries import entry
from tests.support.every_target import OPENCL, on_targets
from tests.support.kernel_runner import VARIANTS
from tests.support.products import draw, f32, pack
from tests.support.work_items import SMALL, needs_device

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
WIDE = [
    ((2, 13, 13, 40), (1, 1), 70, (2, 2), (1, 1), ((0, 0), (0, 0))),
    ((1, 7, 7, 70), (3, 3), 130, (1, 1), (1, 1), ((1, 1), (1, 1))),
]
"""More features than a tile of vectors has."""

TAPS = [
    ((2, 9, 11, 33), (3, 3), 75, (1, 1), (6, 5), ((6, 6), (5, 5))),
    ((1, 5, 4, 32), (3, 3), 20, (1, 1), (7, 4), ((7, 7), (4, 4))),
    ((1, 5, 4, 64), (3, 3), 512, (2, 1), (1, 1), ((1, 0), (0, 1))),
    ((2, 270, 34), (3,), 18, (1,), (2,), ((4, 0),)),
    ((1, 3, 2, 530, 32), (1, 2, 5), 16, (2, 1, 2), (1, 1, 1), ((0, 0), (1, 0), (3, 5))),
    ((1, 4, 5, 6, 36), (2, 3, 2), 9, (1, 2, 1), (2, 1, 1), ((1, 1), (1, 1), (0, 0))),
    ((1, 8, 9, 32), (3, 3), 5, (1, 1), (1, 1), ((-1, 2), (0, -2))),
]
"""Channels from which on windows go tap by tap."""


def convolution(case: Any, shape: tuple[Dim, ...], name: str = "f32") -> Function:
    """conv_packed and a bias."""
    sizes, window, n, strides, dilation, padding = case
    channels = sizes[-1]
    depth, panels = product(window) * channels, ceildiv(n, 16)
    element, result = dtype(name), dtype("i32" if name == "i8" else name)
    steps = max(1, 4 // element.bytes)

    def build(b: Builder, x: Value, w: Value, bias: Value) -> Value:
        y = b.op(
            "conv_packed", x, w, window=window, strides=strides, rhs_dilation=dilation,
            padding=padding, n=n, dtype=result,
        )  # fmt: skip
        sum: Value = b.op("add", y, b.broadcast_to(bias, y.type.shape))
        return sum

    types = (
        TensorType(element, shape),
        TensorType(element, (panels, -(-depth // steps), 16, steps)),
        TensorType(result, (n,)),
    )
    return entry(types, build)


def operands(case: Any, name: str = "f32") -> list[Array]:
    """Of `convolution`; whole numbers for integers."""
    shape, window, n, *_ = case
    x, bias = draw(*shape), draw(n, seed=2)
    w = draw(product(window) * shape[-1], n, seed=1) / 8  # type: ignore[arg-type]
    if dtype(name).is_integer:
        x, w, bias = x * 20, w * 160, bias * 20
    element, result = dtype(name).numpy, np.int32 if name == "i8" else dtype(name).numpy
    return [x.astype(element), pack(w.astype(element)), bias.astype(result)]


def sizes_of(shape: tuple[int, ...], dynamic: bool) -> tuple[tuple[Dim, ...], dict[str, int]]:
    """The shape with a symbol for every dim but the channels, and what they are at the call."""
    if not dynamic:
        return shape, {}
    names = [f"d{axis}" for axis in range(len(shape) - 1)]
    return (*map(symbol, names), shape[-1]), dict(zip(names, shape, strict=False))


def fixed_and_dynamic(cases: Sequence[Any], dynamic: Sequence[Any]) -> list[tuple[Any, bool]]:
    return [*((case, False) for case in cases), *((case, True) for case in dynamic)]


@on_targets(
    "case, dynamic",
    cpu=fixed_and_dynamic([*CASES, *WIDE, *TAPS], [*CASES, *WIDE]),
    opencl=fixed_and_dynamic(CASES, CASES[1::2]),
)
def test_conv_packed_convolves(target, case: Any, dynamic: bool) -> None:
    shape, values = sizes_of(case[0], dynamic)
    target.check(convolution(case, shape), operands(case), **values)


@pytest.mark.parametrize("case", TAPS)
def test_padded_windows_of_many_channels_go_tap_by_tap(case: Any) -> None:
    kernel = lower_entry(convolution(case, case[0]), VARIANTS["x86-64-v3"].target)
    assert isinstance(kernel.schedule, TapsSchedule)


@on_targets(
    "name, dynamic, window",
    cpu=itertools.product(["f16", "bf16", "i8"], [False, True], [3, 1]),
    opencl=[("bf16", False, 3), ("i8", False, 3)],
)
def test_narrow_weights_are_unpacked_and_summed_wide(
    target, name: str, dynamic: bool, window: int
) -> None:
    strides, padding = ((1, 1), ((1, 1), (1, 0))) if window == 3 else ((2, 3), ((0, 0), (0, 0)))
    case = ((2, 9, 8, 5), (window, window), 35, strides, (1, 1), padding)
    shape, values = sizes_of(case[0], dynamic)
    target.check(convolution(case, shape, name), operands(case, name), **values)


def test_few_blocks_of_rows_read_long_weights() -> None:
    """Each block of rows reads all weights, which L2 does not hold, some columns at a time."""
    for size, window, vectors in ((15, 3, 2), (28, 1, 4)):
        shape = (1, size, size, 512)
        case = (shape, (window, window), 1024, (2, 2), (1, 1), ((0, 0),) * 2)
        kernel = lower_entry(convolution(case, shape), VARIANTS["x86-64-v4"].target)
        assert kernel.schedule.block_rows == size // 2
        assert kernel.schedule.tile.vectors == vectors


def test_images_of_bytes_are_shared_among_threads() -> None:
    """However small an image is, its rows and columns are work for as many as threads wanted."""
    for size, channels, window in ((56, 64, 3), (28, 128, 3), (14, 256, 3), (14, 1024, 1)):
        shape, pad = (1, size, size, channels), window // 2
        features = channels if window > 1 else 256
        case = (shape, (window, window), features, (1, 1), (1, 1), ((pad, pad),) * 2)
        variant = VARIANTS["x86-64-v4-vnni"].target
        kernel = lower_entry(convolution(case, shape, "i8"), variant)
        grid = zip(kernel.workload, kernel.tile, strict=True)
        assert product([ceildiv(dim, tile) for dim, tile in grid]) >= WANTED_WORKGROUPS


@needs_device
@on_targets("name", cpu=[("f64",), ("i64",)], opencl=[("f64",)])
def test_elements_wider_than_words_are_multiplied_alone(target, name: str) -> None:
    target.check(convolution(CASES[4], CASES[4][0], name), operands(CASES[4], name))


def test_many_pixels_and_features_make_large_tiles() -> None:
    case = ((2, 80, 80, 3), (3, 3), 256, (1, 1), (1, 1), ((1, 1), (1, 1)))
    function = convolution(case, case[0])
    assert OPENCL.lower(function).schedule.tile.rows == 128
    assert lower_entry(function, SMALL).schedule.tile.columns == 64
    OPENCL.check(function, operands(case))


DEPTHWISE = [
    ((1, 14, 14, 32), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1))),
    ((2, 7, 7, 20), (3, 3), (2, 2), (1, 1), ((1, 1), (1, 1))),
    ((1, 3, 2, 16), (5, 5), (1, 1), (1, 1), ((2, 2), (2, 2))),
    ((1, 12, 9, 5), (3, 2), (2, 1), (2, 3), ((2, 1), (0, 4))),
    ((2, 11, 18), (4,), (1,), (1,), ((3, 0),)),
    ((2, 4, 5, 6, 3), (3, 2, 3), (1, 2, 1), (1, 1, 2), ((1, 1), (0, 1), (2, 1))),
    ((1, 300, 1, 3), (3, 1), (1, 1), (1, 1), ((1, 1), (0, 0))),
]
GROUPED = [
    ((1, 6, 9, 24), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), 4, 24),
    ((2, 9, 7, 6), (3, 2), (2, 1), (1, 2), ((1, 1), (0, 3)), 2, 12),
    ((1, 9, 36), (3,), (2,), (1,), ((2, 0),), 12, 24),
    ((1, 3, 4, 3, 8), (2, 3, 3), (1, 2, 1), (1, 1, 1), ((1, 0), (1, 1), (1, 1)), 2, 8),
    ((1, 5, 5, 6), (1, 2), (1, 1), (1, 1), ((0, 0), (0, 1)), 2, 3),
]
"""With features of a group and of the result behind."""


def depthwise(case: Any, shape: tuple[Dim, ...]) -> Function:
    """depthwise and the greater of it and a number per channel."""
    window, strides, dilation, padding, *groups = case[1:]

    def build(b: Builder, x: Value, w: Value, least: Value) -> Value:
        y = b.op("depthwise", x, w, strides=strides, rhs_dilation=dilation, padding=padding)
        result: Value = b.op("max", y, b.broadcast_to(least, y.type.shape))
        return result

    window = (*window, *(groups or shape[-1:]))
    return entry([f32(*shape), f32(*window), f32(window[-1])], build)


@on_targets(
    "case, dynamic",
    cpu=fixed_and_dynamic(DEPTHWISE, DEPTHWISE) + fixed_and_dynamic(GROUPED[:1], GROUPED[1:]),
    opencl=fixed_and_dynamic(DEPTHWISE, DEPTHWISE[1::2]) + fixed_and_dynamic(GROUPED, ()),
)
def test_depthwise_convolves_each_channel(target, case: Any, dynamic: bool) -> None:
    sizes, window, _, _, _, *groups = case
    shape, values = sizes_of(sizes, dynamic)
    window = (*window, *(groups or sizes[-1:]))
    arrays = [draw(*sizes), draw(*window, seed=1), draw(window[-1], seed=2) - 3]
    if groups:  # what is not finite stays in its group
        arrays[0].reshape(-1, sizes[-1])[3, 0] = np.inf
        arrays[0].reshape(-1, sizes[-1])[5, -1] = np.nan
    target.check(depthwise(case, shape), arrays, **values)


def test_groups_stay_within_what_devices_have() -> None:
    case = DEPTHWISE[-1]
    size = OPENCL.lower(depthwise(case, case[0])).local_size
    assert size[2] <= 64, "NVIDIA's devices have 64 work items along the third axis"

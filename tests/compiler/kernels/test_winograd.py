"""Winograd kernels against the direct convolution in float64, and their error gate."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.forms.choose_winograd import choose_winograd
from ingot.compiler.graph.forms.winograd import BY_PLACES
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Function, Module, TensorType, Value, walk
from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.kernels.kernel import Kernel
from ingot.hal.spec import dtype
from tests.support.entries import entry
from tests.support.every_target import OPENCL
from tests.support.kernel_runner import VARIANTS, host_variants, run
from tests.support.products import draw, error_of, f32
from tests.support.programs import program
from tests.support.work_items import LARGE, SMALL, needs_device

Array = np.ndarray[Any, Any]


def transformed(w: Array, places: int = 36) -> Array:
    """[3, 3, c, n] as [places, n / 16, c, 16]; with taps in front of it, their c side by side."""
    if w.ndim == 5:
        return np.concatenate([transformed(each, places) for each in w], axis=2)
    c, n = w.shape[2:]
    matrix = BY_PLACES[places].weight_matrix
    u = np.einsum("ik,jl,klcn->ijcn", matrix, matrix, w.astype(np.float64)).astype(np.float32)
    return np.ascontiguousarray(u.reshape(places, c, n // 16, 16).transpose(0, 2, 1, 3))


def direct(x: Array, w: Array, padding: Any) -> Array:
    wide = np.pad(x.astype(np.float64), ((0, 0), *padding, (0, 0)))
    if x.ndim == 5:
        count, none = wide.shape[1] - len(w) + 1, ((0, 0), (0, 0))
        frames = [
            sum(direct(wide[:, first + tap], each, none) for tap, each in enumerate(w))
            for first in range(count)
        ]
        return np.stack(frames, axis=1)  # type: ignore[arg-type]
    height, width = wide.shape[1] - 2, wide.shape[2] - 2
    parts = [
        wide[:, i : i + height, j : j + width] @ w[i, j].astype(np.float64)
        for i in range(3)
        for j in range(3)
    ]
    return np.asarray(sum(parts))


UNIT: dict[str, Any] = {
    "strides": (1, 1),
    "lhs_dilation": (1, 1),
    "rhs_dilation": (1, 1),
    "groups": 1,
    "layout": "nhwc,hwio->nhwc",
    "dtype": dtype("f32"),
}
CASES = [
    ((1, 16, 16, 32), 64, ((1, 1), (1, 1))),
    ((2, 7, 7, 48), 80, ((1, 1), (1, 1))),
    ((1, 9, 14, 32), 32, ((0, 2), (1, 0))),
    ((1, 56, 56, 64), 64, ((1, 1), (1, 1))),
]
SMALL_CASES = [
    ((1, 7, 7, 128), 192, ((1, 1), (1, 1))),  # weights that L2 does not hold
    ((2, 9, 14, 32), 48, ((0, 2), (1, 0))),
]


def convolution(shape: Any, n: int, padding: Any, name: str = "f32", places: int = 36) -> Function:
    """conv_winograd, a bias and relu on images of this shape."""

    def build(b: Builder, x: Value, u: Value, bias: Value) -> Value:
        y = b.value("conv_winograd", x, u, padding=padding, n=n)
        zero = b.full(0.0, dtype(name), y.type.shape)  # type: ignore[union-attr]
        y = b.value("add", y, b.broadcast_to(bias, y.type.shape))  # type: ignore[union-attr]
        return b.value("max", y, zero)

    x, bias = TensorType(dtype(name), shape), TensorType(dtype(name), (n,))
    return entry([x, f32(places, n // 16, shape[-1], 16), bias], build)


def lowered(
    shape: Any, n: int, padding: Any, variant: str, name: str = "f32", places: int = 36
) -> Kernel:
    return lower_entry(convolution(shape, n, padding, name, places), VARIANTS[variant].target)


def check(
    kernel: Kernel,
    shape: Any,
    n: int,
    padding: Any,
    variant: str,
    places: int = 36,
    limit: float = 2e-6,
    **symbols: int,
) -> None:
    x, w, bias = draw(*shape), draw(3, 3, shape[-1], n, seed=1), draw(n, seed=2)
    wanted = np.maximum(direct(x, w, padding) + bias, 0)
    out = np.full(wanted.shape, np.nan, np.float32)
    (got,) = run(kernel, [x, transformed(w, places), bias], [out], variant, **symbols)
    assert error_of(got, wanted) < limit


@pytest.mark.parametrize("variant", host_variants())
@pytest.mark.parametrize(("shape", "n", "padding"), CASES, ids=str)
def test_conv_winograd_convolves(variant: str, shape: Any, n: int, padding: Any) -> None:
    kernel = lowered((symbol("b"), *shape[1:]), n, padding, variant)
    check(kernel, shape, n, padding, variant, b=shape[0])


@pytest.mark.parametrize("variant", host_variants())
@pytest.mark.parametrize(("shape", "n", "padding"), SMALL_CASES, ids=str)
def test_tiles_of_two_by_two_convolve(variant: str, shape: Any, n: int, padding: Any) -> None:
    kernel = lowered((symbol("b"), *shape[1:]), n, padding, variant, places=16)
    check(kernel, shape, n, padding, variant, 16, b=shape[0])
    check(lowered(shape, n, padding, variant, places=16), shape, n, padding, variant, 16)


@pytest.mark.parametrize("variant", host_variants())
@pytest.mark.parametrize("padding", [((1, 1), (1, 1)), ((0, 2), (1, 0))], ids=str)
def test_images_may_have_any_size(variant: str, padding: Any) -> None:
    """One kernel; groups of tiles reach over images, and end within one."""
    kernel = lowered((symbol("b"), symbol("h"), symbol("w"), 32), 48, padding, variant)
    for b, h, w in ((1, 30, 17), (3, 5, 6), (1, 1, 2), (2, 9, 40), (0, 8, 8)):
        check(kernel, (b, h, w, 32), 48, padding, variant, b=b, h=h, w=w)
    few = lowered((1, symbol("h"), symbol("w"), 32), 256, padding, variant)
    assert few.tile[1] == 4  # of 16 panels: threads share them where all tiles are one block


@pytest.mark.parametrize("variant", host_variants())
def test_tiles_of_many_features_share_a_read_of_the_weights(variant: str) -> None:
    """Transformed inputs of 25 tiles have no room in scratch: features come in parts."""
    padding, limit = ((1, 1), (1, 0)), 6e-6
    one, any_size = (
        lowered((*sizes, 320), 80, padding, variant)
        for sizes in ((symbol("b"), 18, 21), tuple(map(symbol, "bhw")))
    )
    assert (one.schedule.tiles, any_size.schedule.tiles) == (25, 24)
    assert max(one.schedule.features, any_size.schedule.features) < 320
    check(one, (2, 18, 21, 320), 80, padding, variant, limit=limit, b=2)
    check(any_size, (1, 9, 50, 320), 80, padding, variant, limit=limit, b=1, h=9, w=50)


FRAMES = [
    ((2, 6, 9, 10, 32), 3, ((1, 1), (1, 1), (1, 1)), False),  # two blocks of frames
    ((2, 5, 6, 5, 32), 2, ((0, 2), (1, 1), (0, 1)), True),
    ((1, 3, 8, 8, 32), 1, ((0, 0), (1, 1), (0, 0)), False),
    ((1, 1, 8, 8, 32), 1, ((0, 1), (1, 1), (0, 0)), False),  # a frame of zeros behind the only one
]


def frames_entry(shape: Any, taps: int, padding: Any, dynamic: bool) -> Function:
    dims = tuple(map(symbol, "bdhw")) if dynamic else shape[:4]
    types = [f32(*dims, shape[-1]), f32(36, 3, taps * shape[-1], 16)]
    return entry(types, lambda b, x, u: b.op("conv_winograd", x, u, padding=padding, n=48))


@pytest.mark.parametrize("variant", host_variants())
@pytest.mark.parametrize(("shape", "taps", "padding", "dynamic"), FRAMES, ids=str)
def test_frames_under_a_window_are_summed(
    variant: str, shape: Any, taps: int, padding: Any, dynamic: bool
) -> None:
    kernel = lower_entry(frames_entry(shape, taps, padding, dynamic), VARIANTS[variant].target)
    for b, d in ((shape[0], shape[1]), (1, 1), (3, 9)) if dynamic else (shape[:2],):
        x, w = draw(b, d, *shape[2:]), draw(taps, 3, 3, shape[-1], 48, seed=1)
        wanted = direct(x, w, padding)
        out = np.full(wanted.shape, np.nan, np.float32)
        symbols = dict(zip("bdhw", x.shape, strict=False)) if dynamic else {}
        (got,) = run(kernel, [x, transformed(w)], [out], variant, **symbols)
        assert error_of(got, wanted) < 4e-6


@pytest.mark.parametrize("variant", host_variants())
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_narrow_images_are_summed_wide_and_rounded_once(variant: str, name: str) -> None:
    """Bits are those of the exact sum rounded to the dtype, but where that is nearly halfway."""
    padding, narrow = ((1, 1), (1, 1)), dtype(name).numpy
    kernel = lowered((symbol("b"), symbol("h"), symbol("w"), 48), 32, padding, variant, name)
    for b, h, w in ((1, 13, 22), (2, 6, 5)):
        x, bias = draw(b, h, w, 48).astype(narrow), np.zeros(32, narrow)
        weight = draw(3, 3, 48, 32, seed=1).astype(narrow)
        wanted = np.maximum(direct(x, weight, padding), 0)
        out = np.full(wanted.shape, np.nan, narrow)
        given = [x, transformed(weight), bias]
        (got,) = run(kernel, given, [out], variant, b=b, h=h, w=w)
        scale = np.sqrt((wanted**2).mean())
        rounding = np.abs(wanted.astype(narrow).astype(np.float64) - wanted)
        assert (np.abs(got.astype(np.float64) - wanted) <= rounding + 1e-5 * scale).all()
        assert (got == wanted.astype(narrow)).mean() > 0.98


def test_rows_that_do_not_fit_scratch_are_split() -> None:
    variant, padding = host_variants()[0], ((1, 1), (1, 1))
    kernel = lowered((1, 6, 400, 64), 32, padding, variant)
    check(kernel, (1, 6, 400, 64), 32, padding, variant)


@pytest.mark.parametrize(("places", "bound"), [(36, 3e-5), (16, 1.2e-5)])
def test_the_error_stays_near_that_of_the_direct_sum(places: int, bound: float) -> None:
    """max |d| / rms at 512 features: the direct sum in f32 has about 8e-6."""
    x, w = draw(1, 8, 8, 512), draw(3, 3, 512, 32, seed=1)
    types = f32(*x.shape), f32(places, 2, 512, 16)
    function = entry(
        types, lambda b, x, u: b.op("conv_winograd", x, u, padding=((1, 1), (1, 1)), n=32)
    )
    variant = host_variants()[0]
    kernel = lower_entry(function, VARIANTS[variant].target)
    out = np.full((1, 8, 8, 32), np.nan, np.float32)
    (got,) = run(kernel, [x, transformed(w, places)], [out], variant)
    wanted = direct(x, w, ((1, 1), (1, 1)))
    assert np.abs(got - wanted).max() / np.sqrt((wanted**2).mean()) < bound


@needs_device
@pytest.mark.parametrize(
    ("shape", "n", "padding", "dynamic", "places"),
    [
        ((1, 16, 16, 32), 64, ((1, 1), (1, 1)), False, 36),
        ((3, 7, 7, 20), 32, ((1, 1), (1, 1)), True, 36),  # tiles of several images in a group
        ((3, 7, 7, 20), 32, ((1, 1), (1, 1)), True, 16),
        ((1, 9, 14, 33), 16, ((0, 2), (1, 0)), False, 36),
    ],
)
def test_a_group_convolves_by_winograd(
    shape: Any, n: int, padding: Any, dynamic: bool, places: int
) -> None:
    images = (symbol("b") if dynamic else shape[0], *shape[1:])
    function = convolution(images, n, padding, places=places)
    for count in (shape[0], 2) if dynamic else (shape[0],):
        operands = [draw(count, *shape[1:]), transformed(draw(3, 3, shape[-1], n, seed=1), places)]
        OPENCL.check(function, [*operands, draw(n, seed=2)], one=shape[0] == 1, b=count)


@needs_device
def test_a_group_sums_the_frames_under_a_window() -> None:
    shape, taps, padding, dynamic = FRAMES[1]
    operands = [draw(*shape), transformed(draw(taps, 3, 3, shape[-1], 48, seed=1))]
    function = frames_entry(shape, taps, padding, dynamic)
    OPENCL.check(function, operands, **dict(zip("bdhw", shape, strict=False)))


def test_local_memory_suffices() -> None:
    function = convolution((1, 56, 56, 64), 64, ((1, 1), (1, 1)))
    for target in (LARGE, SMALL):
        kernel = lower_entry(function, target)
        assert kernel.local_length <= target.local_memory
        assert kernel.local_size[0] * kernel.local_size[1] <= 256


def test_the_pass_takes_what_pays_and_keeps_the_result() -> None:
    attributes: dict[str, Any] = {**UNIT, "padding": ((1, 1), (1, 1))}

    def build(builder: Builder, x: Value) -> Value:
        w = builder.constant(draw(3, 3, 32, 32, seed=1) / 16)
        y = builder.value("convolution", x, w, **attributes)
        small = builder.constant(draw(3, 3, 32, 8, seed=2) / 16)
        return builder.value("convolution", y, small, **attributes)

    module = program(build, "f32[1,12,12,32]")
    x = draw(1, 12, 12, 32)
    (wanted,) = interpret(module, "main", [x])
    names = [op.name for op in walk(choose_winograd(module))]
    assert names.count("conv_winograd") == 1
    assert names.count("convolution") == 1  # eight features: the transforms would not pay
    moved = [op.result.type.shape for op in walk(module) if op.name == "transpose"]  # type: ignore[union-attr]
    assert moved == [(9, 2, 32, 16)]  # the weights, not what is four times as large at a load
    (got,) = interpret(module, "main", [x])
    assert error_of(got, wanted) < 2e-6


def test_the_pass_takes_small_tiles_where_few_share_long_weights() -> None:
    def places(size: int, features: int, batch: int | str = 1) -> Any:
        def build(builder: Builder, x: Value) -> Value:
            w = builder.constant(draw(3, 3, features, features) / 16)
            return builder.value("convolution", x, w, **{**UNIT, "padding": ((1, 1), (1, 1))})

        module = program(build, f"f32[{batch},{size},{size},{features}]")
        taken = [op for op in walk(choose_winograd(module)) if op.name == "conv_winograd"]
        return taken[0].operands[1].type.shape[0] if taken else None  # type: ignore[union-attr]

    assert places(7, 128) == 16
    assert places(14, 128) == 16
    assert places(28, 128) == 36  # tiles enough share them
    assert places(7, 128, 16) == 36
    assert places(7, 64) == 36  # L2 holds them
    assert places(4, 128) is None
    assert places(20, 1024) == 36  # one read of them serves 64 tiles


def convolved(type: TensorType, *taps: int, **attributes: Any) -> Module:
    """A 3 x 3, of as many frames, from 32 to 32 features."""

    def build(builder: Builder, x: Value) -> Value:
        w = builder.constant((draw(*taps, 3, 3, 32, 32) / 16).astype(type.dtype.numpy))
        return builder.value("convolution", x, w, **attributes)

    return program(build, type)


def test_the_pass_takes_images_whose_size_is_known_at_the_call() -> None:
    def taken(shape: Any, padding: Any) -> bool:
        module = convolved(TensorType(dtype("f32"), shape), **{**UNIT, "padding": padding})
        return any(op.name == "conv_winograd" for op in walk(choose_winograd(module)))

    h, w = symbol("h"), symbol("w")
    assert taken((symbol("b"), h, w, 32), ((1, 1), (1, 1)))
    assert taken((1, h, 56, 32), ((1, 1), (1, 1)))
    assert not taken((1, h, 1, 32), ((1, 1), (1, 1)))  # one column of a tile's four
    assert not taken((1, h, w, 32), ((2, 2), (2, 2)))  # an image without rows would give some
    assert not taken((1, h, w, 32), ((h, 1), (1, 1)))


def test_the_pass_takes_images_with_a_depth() -> None:
    def taken(shape: Any, taps: int, **given: Any) -> bool:
        ones = dict.fromkeys(("strides", "lhs_dilation", "rhs_dilation"), (1, 1, 1))
        layout, padding = "ndhwc,dhwio->ndhwc", ((1, 1), (1, 1), (1, 1))
        attributes = {**UNIT, **ones, "layout": layout, "padding": padding, **given}
        module = convolved(f32(*shape), taps, **attributes)
        x = draw(*(2 if not isinstance(dim, int) else dim for dim in shape))
        (wanted,) = interpret(module, "main", [x])
        changed = any(op.name == "conv_winograd" for op in walk(choose_winograd(module)))
        (got,) = interpret(module, "main", [x])
        assert error_of(got, wanted) < 2e-6
        return changed

    assert taken((1, 4, 8, 8, 32), 3)
    assert taken((1, 4, 8, 8, 32), 1, padding=((0, 0), (1, 1), (1, 1)))
    assert taken((1, symbol("d"), 8, 8, 32), 3)
    assert not taken((1, symbol("d"), 8, 8, 32), 2)  # an image without frames would give some
    assert not taken((1, 3, 8, 8, 32), 3)  # few tiles share many weights
    assert not taken((1, 9, 8, 8, 32), 3, strides=(2, 1, 1))


def test_narrow_weights_are_transformed_where_many_tiles_share_them() -> None:
    def taken(shape: Any, name: str) -> bool:
        x = draw(*shape).astype(dtype(name).numpy)
        attributes = {**UNIT, "padding": ((1, 1), (1, 1)), "dtype": dtype(name)}
        module = convolved(TensorType(dtype(name), shape), **attributes)
        (wanted,) = interpret(module, "main", [x])
        changed = any(op.name == "conv_winograd" for op in walk(choose_winograd(module)))
        (got,) = interpret(module, "main", [x])
        limit = 2 * float(ml_dtypes.finfo(x.dtype).eps)
        assert error_of(got.astype(np.float64), wanted.astype(np.float64)) < limit
        return changed

    for name in ("f16", "bf16"):
        assert taken((1, 16, 16, 32), name)
        assert taken((4, 8, 8, 32), name)
        assert not taken((3, 8, 8, 32), name)
    assert not taken((1, 16, 16, 32), "f64")

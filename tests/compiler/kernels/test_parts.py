"""Products of f32 in tiles of bf16 parts, in the interpreter, and where the processor has tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.forms.pack_weights import pack, pack_parts
from ingot.compiler.graph.ops import ConvPacked, DotPacked
from ingot.compiler.ir import Function, Value, tensor_type, walk
from ingot.compiler.ir.dims import Dim, symbol
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.kernels.interpreter import run_kernel
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.kernel_text import kernel_text, parse_kernel
from ingot.compiler.kernels.lanes import contraction_parts
from ingot.compiler.kernels.level import verify_kernel
from ingot.hal.spec import dtype
from tests.support.entries import entry, reference
from tests.support.kernel_runner import VARIANTS, run, tile_variants
from tests.support.products import draw, f32

Array = np.ndarray[Any, Any]
TILES = VARIANTS["x86-64-v4-amx"].target
BOUNDS = {2: 2.0**-14, 3: 2.0**-21}
"""What is off of the sum of terms' magnitudes: what is left out, and roundings of short sums."""


def weights(w: Array, parts: int) -> tuple[Array, Array]:
    """Panels of f32, and of their parts."""

    def build(b: Builder, x: Value) -> tuple[Value, Value]:
        return pack(x, b), pack_parts(x, parts, b)

    panels, split = reference(entry([f32(*w.shape)], build), [w])
    return panels, split


def of_weight(rows: Dim, w: Array, parts: int) -> tuple[Function, list[Array]]:
    """x times a weight, plus a row for each."""
    panels, split = weights(w, parts)
    types = [f32(rows, w.shape[0]), f32(*panels.shape), replace(f32(*split.shape), dtype=HALF)]

    def build(b: Builder, *given: Value) -> Value:
        dot = DotPacked(w.shape[1], dtype("f32"), parts)
        sums = b.append("dot_packed", given[:3], (), dot).result
        return b.value("add", sums, b.broadcast_to(given[3], (rows, w.shape[1])))

    symbols = {} if isinstance(rows, int) else {"m": (1, None)}
    return entry([*types, f32(w.shape[1])], build, symbols), [panels, split]


HALF = dtype("bf16")


def check(kernel: Kernel, given: list[Array], wanted: Array, bound: Array, **symbols: int) -> None:
    """In the interpreter, unless it would take long, and on the processor."""
    verify_kernel(kernel)
    assert any(op.name == "loop.dot_parts" for op in walk(kernel.loops))
    found = []
    if max(each.size for each in given) <= 1 << 13:
        again = parse_kernel(kernel_text(kernel))
        arrays = [*given, np.zeros(wanted.shape, np.float32)]
        assert run_kernel(again, arrays, symbols) is None
        found.append(arrays[-1])
    for variant in tile_variants():
        found += run(kernel, given, [np.zeros(wanted.shape, np.float32)], variant, **symbols)
    for got in found:
        is_finite = np.isfinite(wanted)
        np.testing.assert_array_equal(got[~is_finite], wanted[~is_finite])
        off = np.abs(got[is_finite] - wanted[is_finite])
        assert (off <= bound[is_finite]).all()


CASES = [  # rows, depth, columns, parts
    (33, 20, 40, 3), (64, 96, 17, 2), (50, 33, 85, 3), (40, 1900, 70, 3), (300, 64, 70, 2),
    (64, 4000, 112, 3),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_products_of_a_weight_are_those_of_its_parts(case: Any, dynamic: bool) -> None:
    rows, depth, columns, parts = case
    w = draw(depth, columns) * 10.0 ** np.linspace(-9, 9, columns, dtype=np.float32)
    function, panels = of_weight(symbol("m") if dynamic else rows, w, parts)
    kernel = lower_entry(function, TILES)
    for count in (rows, 5) if dynamic else (rows,):
        x, added = draw(count, depth, seed=1), draw(columns, seed=2)
        wanted = x.astype(np.float64) @ w + added
        magnitudes = np.abs(x.astype(np.float64)) @ np.abs(w) + np.abs(added)
        symbols = {"m": count} if dynamic else {}
        bound = BOUNDS[parts] * magnitudes * max(1, depth / 256)
        check(kernel, [x, *panels, added], wanted, bound, **symbols)


@pytest.mark.parametrize("parts", [2, 3])
def test_what_is_not_finite_is_what_f32_gives(parts: int) -> None:
    """Also what rounds to an infinite bf16, and sums that are infinite."""
    w, x = draw(40, 48), draw(33, 40, seed=1)
    w[:, :8] = np.round(w[:, :8])  # of one part: the others are 0, which times infinity is NaN
    x[0, 3], x[1, 5], x[1, 6], x[2, 7] = np.inf, -np.inf, np.inf, np.nan
    x[3:7] = 0
    x[3, 8], x[4, 9], x[5, 4] = 3.4e38, -3.4e38, np.array(0x7F800001, "u4").view("f4")
    x[7, 3], x[8, 3] = np.array((0x7FFFFFFF, 0xFFFFFFFF), "u4").view("f4")
    w[0, 3], w[1, 5], w[2, 7], w[3, 9] = -np.inf, np.nan, 3.4e38, 3.4e38
    function, panels = of_weight(33, w, parts)
    with np.errstate(all="ignore"):
        wanted = (x.astype(np.float64) @ w).astype(np.float32).astype(np.float64)
        bound = BOUNDS[parts] * (np.abs(x.astype(np.float64)) @ np.abs(w))
    assert not np.isfinite(wanted).all()
    kernel = lower_entry(function, TILES)
    check(kernel, [x, *panels, np.zeros(48, "f4")], wanted, bound)
    loops = [op for op in walk(kernel.loops) if op.name == "loop.for"]
    products = [sum(op.name == "loop.fma" for op in loop.regions[0].block.ops) for loop in loops]
    assert max(products) >= 4 * 3  # sums are made anew by tiles of rows and panels


IMAGES = [  # image, window, strides, dilation, padding, features, parts, form
    ((1, 6, 20, 32), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), 40, 2, "staged"),
    ((2, 5, 7, 32), (3, 2), (1, 1), (2, 1), ((2, 1), (0, 1)), 70, 3, "staged"),
    ((1, 40, 13, 64), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), 130, 2, "staged"),
    ((2, 9, 12, 20), (3, 2), (2, 1), (1, 3), ((2, 1), (0, 3)), 20, 3, "gathered"),
    ((1, 14, 14, 32), (1, 1), (2, 2), (1, 1), ((0, 0), (0, 0)), 33, 2, "gathered"),
    ((2, 40, 18), (3,), (1,), (1,), ((1, 1),), 20, 2, "gathered"),
    ((2, 4, 5, 6, 32), (2, 3, 3), (1, 2, 1), (1,) * 3, ((1, 0), (1, 1), (1, 1)), 20, 2, "gathered"),
    ((1, 30, 300, 16), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), 20, 2, "gathered"),
]  # fmt: skip


def convolution(place: int, w: Array, size: Dim | None = None) -> tuple[Function, list[Array], Any]:
    """One of windows, and a row that is added; its image has the height `size`, if that is given;
    panels; and what its results are, of an image and a weight."""
    shape, window, strides, dilation, padding, n, parts, _ = IMAGES[place]
    panels, split = weights(w.reshape((-1, n)), parts)
    moves: Any = {"strides": strides, "rhs_dilation": dilation, "padding": padding}
    image = shape if size is None else (shape[0], size, *shape[2:])
    types = [f32(*image), f32(*panels.shape), replace(f32(*split.shape), dtype=HALF)]

    def build(b: Builder, *given: Value) -> Value:
        packed = ConvPacked(window=window, n=n, dtype=dtype("f32"), bf16_parts=parts, **moves)
        sums = b.append("conv_packed", given[:3], (), packed).result
        return b.value("add", sums, b.broadcast_to(given[3], tensor_type(sums).shape))

    def plain(b: Builder, x: Value, w: Value) -> Value:
        axes = "xyz"[: len(window)]
        layout = f"n{axes}c,{axes}io->n{axes}c"
        return b.value("convolution", x, w, layout=layout, dtype=dtype("f64"), **moves)

    def wanted(x: Array, w: Array) -> Array:
        types = [replace(f32(*each.shape), dtype=dtype("f64")) for each in (x, w)]
        return reference(entry(types, plain), [x.astype("f8"), w.astype("f8")])[0]

    symbols = {} if size is None else {"m": (1, None)}
    return entry([*types, f32(n)], build, symbols), [panels, split], wanted


@pytest.mark.parametrize("place", range(len(IMAGES)))
def test_convolutions_are_those_of_parts(place: int) -> None:
    shape, window, *_, n, parts, form = IMAGES[place]
    x, w, added = draw(*shape), draw(*window, shape[-1], n, seed=1), draw(n, seed=2)
    w *= 10.0 ** np.linspace(-9, 9, n, dtype=np.float32)
    function, panels, wanted = convolution(place, w)
    kernel = lower_entry(function, TILES)
    assert kernel.schedule.form == form
    assert kernel.workload == lower_entry(function, replace(TILES, tiles=False)).workload
    assert kernel.scratch_length <= contraction_parts.MOST_BEFORE_SUMS
    bound = BOUNDS[parts] * (wanted(np.abs(x), np.abs(w)) + np.abs(added))
    check(kernel, [x, *panels, added], wanted(x, w) + added, bound)


def test_sizes_of_images_may_be_known_only_at_the_call() -> None:
    shape, window, *_, n, parts, _ = IMAGES[3]
    w, added = draw(*window, shape[-1], n, seed=1), draw(n, seed=2)
    function, panels, wanted = convolution(3, w, symbol("m"))
    kernel = lower_entry(function, TILES)
    for size in (2, 9, 30):
        x = draw(shape[0], size, *shape[2:])
        bound = BOUNDS[parts] * (wanted(np.abs(x), np.abs(w)) + np.abs(added))
        check(kernel, [x, *panels, added], wanted(x, w) + added, bound, m=size)


@pytest.mark.parametrize("place", [0, 3])
def test_pixels_that_are_not_finite_reach_the_windows_that_see_them(place: int) -> None:
    shape, window, *_, n, parts, _ = IMAGES[place]
    x, w = draw(*shape), draw(*window, shape[-1], n, seed=1)
    w[..., :8] = np.round(w[..., :8])
    x[0, 2, 3, 1], x[0, 0, 0, 2], x[-1, -1, -1, 0] = np.inf, np.nan, 3.4e38
    function, panels, wanted = convolution(place, w)
    with np.errstate(all="ignore"):
        results = wanted(x, w).astype(np.float32).astype(np.float64)
        bound = BOUNDS[parts] * wanted(np.abs(x), np.abs(w))
    assert not np.isfinite(results).all()
    assert np.isfinite(results).any()
    check(lower_entry(function, TILES), [x, *panels, np.zeros(n, "f4")], results, bound)


@pytest.mark.parametrize("rows", [32, 197, symbol("m")], ids=str)
def test_a_kernel_has_no_more_scratch_than_a_device_gives(rows: Dim) -> None:
    axes: Any = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (1,), "rhs_contract": (1,)}
    symbols = {} if isinstance(rows, int) else {"m": (1, None)}
    for depth in (768, 3072, 5000, 20000):

        def build(b: Builder, *given: Value) -> Value:
            return b.value("dot_general", *given, dtype=dtype("f32"), bf16_parts=3, **axes)

        types = [f32(rows, depth), f32(1000, depth)]
        kernel = lower_entry(entry(types, build, symbols), TILES)
        assert kernel.schedule.panels > 0
        assert kernel.scratch_length <= contraction_parts.MOST_BEFORE_SUMS


@pytest.mark.parametrize("split_rows", [None, 1 << 14])
def test_products_of_two_activations_split_both(
    split_rows: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With little room in blocks of K, too."""
    if split_rows is not None:
        monkeypatch.setattr(contraction_parts, "MOST_SPLIT", split_rows)
        monkeypatch.setattr(contraction_parts, "MOST_BEFORE_SUMS", 70 << 10)
    for right, k, parts in (("bkn", 75, 3), ("bnk", 128, 2), ("bkn", 130, 3)):
        sizes = {"b": 2, "m": 49, "n": 70, "k": k}

        def build(b: Builder, x: Value, y: Value, right: str = right, parts: int = parts) -> Value:
            return b.value(
                "dot_general", x, y, dtype=dtype("f32"), bf16_parts=parts, lhs_batch=(0,),
                rhs_batch=(0,), lhs_contract=(2,), rhs_contract=(right.index("k"),),
            )  # fmt: skip

        shapes = [tuple(sizes[axis] for axis in axes) for axes in ("bmk", right)]
        a, b = (draw(*shape, seed=seed) for seed, shape in enumerate(shapes))
        kernel = lower_entry(entry([f32(*shape) for shape in shapes], build), TILES)
        wanted, magnitudes = (
            np.einsum(f"bmk,{right}->bmn", *pair)
            for pair in ((a.astype(np.float64), b), (np.abs(a).astype(np.float64), np.abs(b)))
        )
        assert (kernel.schedule.depth < k) == (split_rows is not None)
        check(kernel, [a, b], wanted, BOUNDS[parts] * magnitudes)

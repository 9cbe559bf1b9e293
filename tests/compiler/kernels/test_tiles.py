"""Products of bytes and bf16 in tiles, in the interpreter, and where the processor has tiles: the
sums of any other kernel, of bytes to the bit."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Function, Op, TensorType, Value, walk
from ingot.compiler.ir.dims import Dim, symbol
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.kernels.interpreter import run_kernel
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.kernel_text import kernel_text, parse_kernel
from ingot.compiler.kernels.level import verify_kernel
from ingot.compiler.kernels.table import Poll
from ingot.compiler.targets.cpu import c_printer
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype
from tests.support.entries import entry, reference
from tests.support.kernel_runner import POLL, VARIANTS, Loaded, build, run, tile_variants
from tests.support.products import draw, error_of, extremes, pack

Array = np.ndarray[Any, Any]
TILES = VARIANTS["x86-64-v4-amx"].target
WORDS = VARIANTS["x86-64-v4-vnni"].target
needs_tiles = pytest.mark.skipif(not tile_variants(), reason="the processor has no tiles")


def product(
    rows: Dim, depth: int, columns: int, signs: tuple[str, str] = ("u8", "i8"), more: int = 0
) -> Function:
    """Sums, and what a layer makes of them: scaled, with the codes of another so many `more` times,
    rounded to codes."""
    panels = -(-columns // 16)

    def build(b: Builder, x: Value, w: Value, scale: Value, other: Value) -> tuple[Value, Value]:
        sums = b.value("dot_packed", x, w, n=columns, dtype=dtype("i32"))
        shape = (rows, columns)
        scaled = b.value(
            "mul", b.op("convert", sums, dtype=dtype("f32")), b.broadcast_to(scale, shape)
        )
        codes = b.op("convert", other, dtype=dtype("f32"))
        added = b.value("add", scaled, codes)
        for _ in range(more):
            added = b.value("add", added, codes)
        return b.value("convert", b.op("round_even", added), dtype=dtype("u8")), sums

    types = (
        TensorType(dtype(signs[0]), (rows, depth)),
        TensorType(dtype(signs[1]), (panels, depth // 4, 16, 4)),
        TensorType(dtype("f32"), (columns,)),
        TensorType(dtype("u8"), (rows, columns)),
    )
    return entry(types, build)


def operands(
    rows: int, depth: int, columns: int, signs: tuple[str, str]
) -> tuple[list[Array], Array]:
    a, w = extremes(signs[0], rows, depth), extremes(signs[1], depth, columns)
    scale = np.linspace(1e-5, 1e-3, columns, dtype=np.float32)
    other = np.arange(rows * columns, dtype=np.uint8).reshape(rows, columns)
    return [a, pack(w), scale, other], a.astype(np.int32) @ w.astype(np.int32)


def results(rows: int, columns: int) -> list[Array]:
    return [np.full((rows, columns), 7, np.uint8), np.full((rows, columns), -1, np.int32)]


def uses_tiles(kernel: Kernel) -> bool:
    return any(op.name == "loop.dot_tiles" for op in walk(kernel.loops))


CASES = [  # rows, depth, columns
    (3, 64, 16), (4, 64, 17), (15, 96, 40), (16, 128, 32), (17, 24, 33), (31, 1600, 48),
    (32, 64, 31), (33, 44, 100), (49, 256, 15), (64, 192, 64), (70, 64, 129), (300, 64, 70),
]  # fmt: skip
SIGNS = (("u8", "i8"), ("i8", "i8"), ("u8", "u8"), ("i8", "u8"))


@pytest.mark.parametrize("place", range(len(CASES)))
def test_sums_of_tiles_are_those_of_words(place: int) -> None:
    case, signs = CASES[place], SIGNS[place % 4]
    function = product(*case, signs)
    kernel = lower_entry(function, TILES)
    verify_kernel(kernel)
    assert uses_tiles(kernel)
    given, wanted = operands(*case, signs)
    if case[0] <= 33:
        arrays = [*given, *results(case[0], case[2])]
        assert run_kernel(kernel, arrays, {}) is None
        np.testing.assert_array_equal(arrays[-1], wanted)
    for variant in tile_variants():
        got = run(kernel, given, results(case[0], case[2]), variant)
        words = lower_entry(function, WORDS)
        assert not uses_tiles(words)
        others = run(words, given, results(case[0], case[2]), "x86-64-v4-vnni")
        np.testing.assert_array_equal(got[1], wanted)
        np.testing.assert_array_equal(got[0], others[0])


@pytest.mark.parametrize(("depth", "columns"), [(64, 40), (100, 48)])
def test_rows_may_be_known_only_at_the_call(depth: int, columns: int) -> None:
    kernel = lower_entry(product(symbol("m"), depth, columns), TILES)
    assert uses_tiles(kernel)
    for rows in (0, 1, 2, 5, 16, 18, 33, 47, 259):
        given, wanted = operands(rows, depth, columns, SIGNS[0])
        arrays = [*given, *results(rows, columns)]
        if rows < 48:
            assert run_kernel(kernel, arrays, {"m": rows}) is None
            np.testing.assert_array_equal(arrays[-1], wanted)
        for variant in tile_variants():
            got = run(kernel, given, results(rows, columns), variant, m=rows)
            np.testing.assert_array_equal(got[1], wanted)


@pytest.mark.parametrize(
    ("rows", "depth", "more"),
    [(2, 64, 0), (40, 68, 0), (40, 12, 0), (40, 20, 0), (5, 28, 0), (40, 48, 2)],
)
def test_what_tiles_would_take_longer_for_stays_in_words(rows: int, depth: int, more: int) -> None:
    assert not uses_tiles(lower_entry(product(rows, depth, 32, more=more), TILES))
    assert uses_tiles(lower_entry(product(40, 64, 32, more=more), TILES))


def test_kernels_with_tiles_are_written_and_read_as_text() -> None:
    kernel = lower_entry(product(20, 64, 40), TILES)
    text = kernel_text(kernel)
    assert kernel_text(parse_kernel(text)) == text


WINDOWS = [  # image, window, strides, dilation, padding, features, form
    ((1, 6, 20, 16), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), 40, "staged"),
    ((2, 5, 14, 32), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), 33, "staged"),
    ((1, 9, 70, 4), (7, 7), (2, 2), (1, 1), ((3, 3), (3, 3)), 16, "staged"),
    ((1, 4, 18, 64), (2, 3), (1, 1), (2, 1), ((0, 0), (0, 0)), 17, "in place"),
    ((2, 28, 28, 32), (1, 1), (2, 2), (1, 1), ((0, 0), (0, 0)), 32, "in place"),
    ((1, 8, 7, 32), (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), 260, "gathered"),
    ((1, 9, 12, 16), (3, 2), (2, 1), (1, 3), ((2, 1), (0, 3)), 20, "gathered"),
    ((2, 40, 32), (3,), (1,), (1,), ((1, 1),), 20, "gathered"),
    ((1, 4, 5, 6, 16), (2, 3, 3), (1, 2, 1), (1, 1, 1), ((1, 0), (1, 1), (1, 1)), 20, "gathered"),
]


def convolution(
    place: int, signs: tuple[str, str], channels: int | None = None
) -> tuple[Function, list[Array]]:
    shape, window, strides, dilation, padding, n, _ = WINDOWS[place]
    shape = (*shape[:-1], channels or shape[-1])

    def build(b: Builder, x: Value, w: Value) -> Value:
        moves = {"window": window, "strides": strides, "rhs_dilation": dilation}
        return b.value("conv_packed", x, w, n=n, dtype=dtype("i32"), padding=padding, **moves)

    depth = int(np.prod(window)) * shape[-1]
    types = (
        TensorType(dtype(signs[0]), shape),
        TensorType(dtype(signs[1]), (-(-n // 16), depth // 4, 16, 4)),
    )
    return entry(types, build), [extremes(signs[0], *shape), pack(extremes(signs[1], depth, n))]


@pytest.mark.parametrize("place", range(len(WINDOWS)))
def test_windows_are_multiplied_in_tiles(place: int) -> None:
    function, given = convolution(place, SIGNS[place % 4])
    kernel = lower_entry(function, TILES)
    verify_kernel(kernel)
    assert kernel.schedule.form == WINDOWS[place][-1]
    (wanted,) = reference(function, given)
    arrays = [*given, np.full(wanted.shape, -1, np.int32)]
    assert run_kernel(kernel, arrays, {}) is None
    np.testing.assert_array_equal(arrays[-1], wanted)
    for variant in tile_variants():
        (got,) = run(kernel, given, [np.full(wanted.shape, -1, np.int32)], variant)
        np.testing.assert_array_equal(got, wanted)


def test_short_windows_are_not_gathered_for_tiles() -> None:
    function, _ = convolution(7, SIGNS[0], channels=16)
    assert not uses_tiles(lower_entry(function, TILES))


FORMS = [  # axes of both sides, batches, rows, columns, depth
    ("bmk", "bnk", 3, 40, 40, 32),
    ("bmk", "bkn", 1, 70, 130, 24),
    ("mbk", "kbn", 12, 33, 32, 64),
    ("bkm", "bnk", 2, 21, 21, 35),
    ("bmk", "bkn", 2, 5, 21, 61),
    ("bmk", "bkn", 1, 50, 100, 6000),
]


@pytest.mark.parametrize("place", range(len(FORMS)))
def test_two_activations_are_multiplied_in_tiles(place: int) -> None:
    left, right, batches, m, n, k = FORMS[place]
    signs, sizes = SIGNS[place % 4], {"b": batches, "m": m, "n": n, "k": k}

    def build(b: Builder, x: Value, y: Value) -> Value:
        return b.value(
            "dot_general", x, y, dtype=dtype("i32"),
            lhs_batch=(left.index("b"),), lhs_contract=(left.index("k"),),
            rhs_batch=(right.index("b"),), rhs_contract=(right.index("k"),),
        )  # fmt: skip

    shapes = [tuple(sizes[axis] for axis in axes) for axes in (left, right)]
    types = [TensorType(dtype(sign), shape) for sign, shape in zip(signs, shapes, strict=True)]
    function = entry(types, build)
    for rows in (m, symbol("m")):
        kernel = lower_entry(function if rows == m else _any_rows(types, left, build), TILES)
        verify_kernel(kernel)
        assert uses_tiles(kernel)
        a, b = (extremes(sign, *shape) for sign, shape in zip(signs, shapes, strict=True))
        wanted = np.einsum(f"{left},{right}->bmn", a.astype(np.int32), b.astype(np.int32))
        symbols = {} if rows == m else {"m": m}
        if k < 100:
            arrays = [a, b, np.full(wanted.shape, -1, np.int32)]
            assert run_kernel(kernel, arrays, symbols) is None
            np.testing.assert_array_equal(arrays[-1], wanted)
        for variant in tile_variants():
            (got,) = run(kernel, [a, b], [np.full(wanted.shape, -1, np.int32)], variant, **symbols)
            np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("depth", [20000, 24000, 1 << 20])
def test_panels_that_do_not_fit_scratch_are_none_for_tiles(depth: int) -> None:
    types = [TensorType(dtype("u8"), (40, depth)), TensorType(dtype("i8"), (200, depth))]
    axes: Any = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (1,), "rhs_contract": (1,)}
    function = entry(types, lambda b, *x: b.value("dot_general", *x, dtype=dtype("i32"), **axes))
    kernel = lower_entry(function, TILES)
    verify_kernel(kernel)
    assert not uses_tiles(kernel)


def test_a_kernel_has_no_more_scratch_than_a_device_gives() -> None:
    kernel = lower_entry(product(20, 64, 40), TILES)
    with pytest.raises(CompileError, match="has 1048577 bytes of scratch, more than 1048576"):
        verify_kernel(replace(kernel, scratch_length=(1 << 20) + 1))


def _any_rows(types: list[TensorType], left: str, build: Any) -> Function:
    """The same with as many rows on the left side as the call has."""
    shape = tuple(
        symbol("m") if axis == "m" else size
        for axis, size in zip(left, types[0].shape, strict=True)
    )
    return entry([TensorType(types[0].dtype, shape), types[1]], build)


def halves(*shape: int) -> Array:
    return draw(*shape).astype(dtype("bf16").numpy)


def of_halves(place: int | str) -> tuple[Function, list[Array]]:
    """A product of 18 rows of bf16, with a weight or not, or the convolution of a window: f32 sums,
    rounded to bf16."""
    moves: dict[str, Any]
    if place == "weight":
        x, w, op, moves = halves(18, 40), halves(40, 33), "dot_packed", {"n": 33}
    elif isinstance(place, str):
        x, w, op = halves(2, 18, 40), halves(2, 40, 33), "dot_general"
        moves = {"lhs_batch": (0,), "rhs_batch": (0,), "lhs_contract": (2,), "rhs_contract": (1,)}
    else:
        shape, window, strides, dilation, padding, n, _ = WINDOWS[place]
        x, w, op = halves(*shape), halves(int(np.prod(window)) * shape[-1], n), "conv_packed"
        moves = {"n": n, "window": window, "strides": strides, "rhs_dilation": dilation}
        moves["padding"] = padding
    panels = w if place == "activation" else pack(w)

    def build(b: Builder, *given: Value) -> tuple[Value, Value]:
        sums = b.value(op, *given, dtype=dtype("f32"), **moves)
        return sums, b.value("convert", sums, dtype=dtype("bf16"))

    types = (TensorType(dtype("bf16"), each.shape) for each in (x, panels))
    return entry(tuple(types), build), [x, panels]


@pytest.mark.parametrize("place", ["weight", "activation", 0, 3, 6])
def test_bf16_are_multiplied_in_tiles(place: int | str) -> None:
    function, given = of_halves(place)
    kernel = lower_entry(function, TILES)
    verify_kernel(kernel)
    assert uses_tiles(kernel)
    wanted = reference(function, given)
    arrays = [*given, *(np.zeros_like(each) for each in wanted)]
    assert run_kernel(kernel, arrays, {}) is None
    found = [arrays[2:]]
    for variant in tile_variants():
        found.append(run(kernel, given, [np.zeros_like(each) for each in wanted], variant))
    for sums, rounded in found:
        assert error_of(sums, wanted[0]) <= 1e-6
        np.testing.assert_array_equal(rounded, sums.astype(rounded.dtype))


def _shape(kernel: Kernel) -> Op:
    return next(op for op in walk(kernel.loops) if op.name == "loop.shape_tiles")


def test_tiles_are_shaped_once_in_front_of_their_products() -> None:
    kernel = lower_entry(product(20, 64, 40), TILES)
    shape, ops = _shape(kernel), kernel.loops.block.ops
    ops.append(ops.pop())
    ops.insert(ops.index(shape), Op(shape.name, shape.operands, (), shape.attributes))
    with pytest.raises(CompileError, match="more than once"):
        verify_kernel(kernel)
    kernel.loops.block.ops = [op for op in ops if op.name != shape.name]
    with pytest.raises(CompileError, match=r"has no .* in front of it"):
        verify_kernel(kernel)


SHORT = """
import sys
from pathlib import Path
from tests.compiler.kernels import test_tiles as t

kernel = t.lower_entry(t.product(20, 64, 40), t.TILES)
(rows, *others), _ = t.operands(20, 64, 40, t.SIGNS[0])
arrays = [rows[: int(sys.argv[2])].copy(), *others, *t.results(20, 40)]
t.Loaded(kernel, t.tile_variants()[0], path=Path(sys.argv[1]))(arrays)
"""


@needs_tiles
@pytest.mark.slow
def test_the_address_sanitizer_sees_what_tiles_read() -> None:
    kernel = lower_entry(product(20, 64, 40), TILES)
    source = c_printer.print_source([c_printer.print_kernel(kernel)])
    path = build(source, tile_variants()[0], ("-fsanitize=address",))
    ask = ["gcc", "-print-file-name=libasan.so"]
    library = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    settings = {**os.environ, "LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0"}
    for rows, said in (("20", ""), ("19", "heap-buffer-overflow")):
        command = [sys.executable, "-c", SHORT, str(path), rows]
        done = subprocess.run(
            command, env=settings, cwd=Path(__file__).parents[3], capture_output=True, text=True
        )
        assert (done.returncode == 0) == (not said), done.stderr
        assert said in done.stderr


STATE = """
unsigned long long tiles_in_use(void);
void shape_tiles_as(const void *shapes);
void read_shapes(void *out_shapes);

unsigned long long tiles_in_use(void) {
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
  return low >> 17 & 3;
}

void shape_tiles_as(const void *shapes) {
  __asm__ volatile("ldtilecfg (%0)" : : "r"(shapes) : "memory");
}

void read_shapes(void *out_shapes) {
  __asm__ volatile("sttilecfg (%0)" : : "r"(out_shapes) : "memory");
}
"""


@pytest.fixture(scope="module")
def state() -> ctypes.CDLL:
    """The tiles of this thread."""
    return ctypes.CDLL(str(build(STATE, tile_variants()[0])))


def polled(compiler: str) -> tuple[Loaded, list[Array], Array]:
    """A kernel that polls where its tiles are shaped; what it is given, and its sums."""
    kernel = lower_entry(product(64, 64, 64), TILES)
    loop = next(op for op in walk(kernel.loops) if op.name == "loop.for")
    loop.regions[0].block.ops.insert(0, Op("loop.poll", attributes=Poll(1 << 30)))
    given, wanted = operands(64, 64, 64, SIGNS[0])
    return Loaded(kernel, tile_variants()[0], compiler), given, wanted


@needs_tiles
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_kernel_lets_go_of_its_tiles_wherever_it_ends(compiler: str, state: ctypes.CDLL) -> None:
    """Threads that keep tiles save 8 KB more whenever another one runs."""
    loaded, given, wanted = polled(compiler)
    seen: list[int] = []
    loaded.poll = POLL(lambda dispatch: seen.append(state.tiles_in_use()) or int(len(seen) == 1))
    loaded([*given, *results(64, 64)])
    assert seen[0]
    assert not state.tiles_in_use()
    got = results(64, 64)
    loaded([*given, *got])
    assert not state.tiles_in_use()
    np.testing.assert_array_equal(got[1], wanted)


@needs_tiles
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_kernel_leaves_the_shapes_that_others_gave_the_tiles(
    compiler: str, state: ctypes.CDLL
) -> None:
    """As llama.cpp does, once a thread."""
    loaded, given, wanted = polled(compiler)
    shapes = bytes([1, *[0] * 15, *([48, 0] * 5), *[0] * 22, *[7] * 5, *[0] * 11])
    seen = ctypes.create_string_buffer(64)
    for stops in (1, 0):
        loaded.poll = POLL(lambda dispatch, stops=stops: stops)
        got = results(64, 64)
        state.shape_tiles_as(shapes)
        loaded([*given, *got])
        state.read_shapes(seen)
        assert seen.raw == shapes
    np.testing.assert_array_equal(got[1], wanted)
    state.shape_tiles_as(bytes(64))

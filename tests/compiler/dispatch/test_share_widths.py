"""Products with coded weights of several widths share an entry, which is told their columns."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import ingot
from ingot.compiler.dispatch.form_dispatches import form_dispatches
from ingot.compiler.dispatch.ops import Call, entries_of
from ingot.compiler.dispatch.outline import outline
from ingot.compiler.dispatch.share_widths import share_widths
from ingot.compiler.dispatch.specialize import specialize
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.passes import run_graph_passes
from ingot.compiler.ir import Block, Function, Module, Region, TensorType, Value, walk
from ingot.compiler.ir.dims import Dim, symbol
from ingot.hal.spec import dtype

F32 = dtype("f32")
K = 64


def product(b: Builder, x: Value, name: str, width: int) -> Value:
    """x[s, K] times an external weight of codes of i8 with a scale for 32 steps of K."""
    codes = b.value("parameter", scope="", key=f"{name}.codes", dtype=dtype("i8"), shape=(width, K))
    scales = b.value("parameter", scope="", key=f"{name}.scales", dtype=F32, shape=(width, K // 32))
    scales = b.value("broadcast", scales, shape=(width, K // 32, 32), dimensions=(0, 1))
    scales = b.value("reshape", scales, shape=(width, K))
    w = b.value("mul", b.value("convert", codes, dtype=F32), scales)
    return b.value("dot_general", x, w, lhs_contract=(1,), rhs_contract=(1,))


def function(name: str, rows: Dim, most: int, *widths: int) -> Function:
    block = Block([TensorType(F32, (rows, K))])
    b = Builder(block)
    (x,) = block.arguments
    b.return_(*(product(b, x, f"w{place}", width) for place, width in enumerate(widths)))
    names = [f"y{place}" for place in range(len(widths))]
    made = Function(name, Region([block]), ["x"], names)
    if not isinstance(rows, int):
        made.symbols["s"] = (1, most)
    return made


def program(rows: Dim, *widths: int) -> Module:
    module = Module()
    module.add(function("main", rows, 64, *widths))
    return module


def products(module: Module) -> list[str]:
    """The results of the entries that multiply."""
    formed = share_widths(outline(form_dispatches(run_graph_passes(module))))
    entries = [each for each in entries_of(formed) if "dot_coded" in each.name]
    return sorted(str(type) for each in entries for type in each.result_types)


def test_widths_of_whole_panels_share_an_entry() -> None:
    assert products(program(symbol("s"), 96, 288, 480)) == ["f32[s0,96*s1]"]
    assert products(program(1, 96, 288)) == ["f32[1,96*s0]"]


@pytest.mark.parametrize(
    ("rows", "widths"),
    [
        (symbol("s"), (96, 100)),  # a part of a panel
        (symbol("s"), (96, 128)),  # tiles of three and of four panels
        (symbol("s"), (32, 64)),  # one tile
        (4, (96, 288)),  # rows are cut by their count and the width
    ],
)
def test_what_stays_apart(rows: Dim, widths: tuple[int, ...]) -> None:
    assert len(products(program(rows, *widths))) == 2


def test_functions_of_other_bounds_stay_apart() -> None:
    module = program(symbol("s"), 96)
    module.add(function("other", symbol("s"), 8, 288))
    assert products(module) == ["f32[s0,288]", "f32[s0,96]"]


def test_entries_with_kernels_for_given_rows_stay_apart() -> None:
    formed = outline(form_dispatches(run_graph_passes(program(symbol("s"), 96, 288))))
    module = share_widths(specialize(formed, {"s": [1, 8]}))
    calls = [op.attributes for op in walk(module) if isinstance(op.attributes, Call)]
    assert sum(len(each.alternatives) for each in calls if "dot_coded" in each.entry) == 4


@pytest.mark.parametrize("precision", ["f32", "int8"])
@pytest.mark.parametrize("count", [1, 3, 21])
def test_widths_that_share_a_kernel_are_right(precision: str, count: int) -> None:
    widths = (96, 288, 80, 160)  # of 3, and of neither 3 nor 4 panels
    made = ingot.compile(program(symbol("s"), *widths), precision=precision)
    random = np.random.default_rng(0)
    given, expected = {}, []
    rows = random.normal(size=(count, K)).astype("f4")
    for place, width in enumerate(widths):
        codes = random.integers(-127, 128, (width, K)).astype("i1")
        scales = random.uniform(0.001, 0.01, (width, K // 32)).astype("f4")
        given |= {f"w{place}.codes": codes, f"w{place}.scales": scales}
        expected.append(rows @ (codes * np.repeat(scales, 32, axis=1)).T)
    found = ingot.load(made, parameters=given).main(rows)
    for each, other in zip(found, expected, strict=True):
        assert np.abs(each - other).max() <= (1e-4 if precision == "f32" else 0.03) * 10


def convolutions(*stages: tuple[Dim, Dim, Dim, tuple[int, ...]]) -> Module:
    """3x3 convolutions of an image x[b, features, height, width] each, one behind the other."""
    block = Block([TensorType(F32, (b, each[0], h, w)) for b, h, w, each in stages])
    b, results = Builder(block), []
    for place, (x, (_, _, _, features)) in enumerate(zip(block.arguments, stages, strict=True)):
        y: Value = x
        for step, (c, n) in enumerate(pairwise(features)):
            key = f"w{place}.{step}"
            kernel = b.value("parameter", scope="", key=key, dtype=F32, shape=(n, c, 3, 3))
            layout = {"rhs_dilation": (1, 1), "groups": 1, "layout": "nchw,oihw->nchw"}
            layout |= {"strides": (1, 1), "lhs_dilation": (1, 1), "padding": ((1, 1), (1, 1))}
            y = b.value("convolution", y, kernel, dtype=F32, **layout)
        results.append(y)
    b.return_(*results)
    names = [f"x{place}" for place in range(len(stages))]
    module = Module()
    region = Region([block])
    module.add(Function("main", region, names, [f"y{name}" for name in names]))
    return module


def transformed(module: Module) -> list[str]:
    """The results of the entries that convolve by Winograd."""
    formed = share_widths(outline(form_dispatches(run_graph_passes(module))))
    entries = [each for each in entries_of(formed) if "conv_winograd" in each.name]
    return sorted(str(type) for each in entries for type in each.result_types)


def image(height: Dim, *features: int) -> tuple[Dim, Dim, Dim, tuple[int, ...]]:
    return symbol("b"), height, symbol("w"), features


def test_convolutions_of_several_features_and_sizes_share_an_entry() -> None:
    h = symbol("h")
    halves = image(h, 96, 128, 192, 256), image((h + 1) // 2, 128, 224), image(8 * h, 112, 64)
    assert transformed(convolutions(*halves)) == ["f32[s0,s1,s2,192]", "f32[s0,s1,s2,32*s3]"]
    assert transformed(convolutions(image(20, 32, 64, 128))) == ["f32[s0,20,s1,64*s2]"]


@pytest.mark.parametrize(
    "stages",
    [
        (image(20, 32, 64), image(24, 32, 64)),  # sizes that are known
        (image(20, 64, 96, 128),),  # rows of scratch that are longer; tiles of three panels
        (image(20, 64, 32), image(20, 64, 64)),  # one tile
    ],
)
def test_convolutions_that_stay_apart(
    stages: tuple[tuple[Dim, Dim, Dim, tuple[int, ...]], ...],
) -> None:
    assert len(transformed(convolutions(*stages))) == 2


@pytest.mark.parametrize(("height", "width", "count"), [(20, 25, 1), (9, 33, 2)])
def test_convolutions_that_share_a_kernel_are_right(height: int, width: int, count: int) -> None:
    h = symbol("h")
    features = ((48, 64, 80, 128), (32, 64, 48), (240, 256, 320))  # the last ones in parts
    stages = [image(h, *features[0]), image((h + 1) // 2, *features[1]), image(h, *features[2])]
    assert len(transformed(convolutions(*stages))) < 7
    random = np.random.default_rng(0)
    heights = (height, (height + 1) // 2, height)
    given: dict[str, np.ndarray] = {}
    images, expected = [], []
    for place, (each, rows) in enumerate(zip(features, heights, strict=True)):
        images.append(random.normal(size=(count, each[0], rows, width)).astype("f4"))
        y = images[-1].astype("f8")
        for step, (c, n) in enumerate(pairwise(each)):
            w = random.normal(size=(n, c, 3, 3)).astype("f4") / np.float32(3 * c**0.5)
            given[f"w{place}.{step}"] = w
            padded = np.pad(y, ((0, 0), (0, 0), (1, 1), (1, 1)))
            windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
            y = np.einsum("bchwij,ncij->bnhw", windows, w, optimize=True)
        expected.append(y)
    found = ingot.load(ingot.compile(convolutions(*stages)), parameters=given).main(*images)
    for each, other in zip(found, expected, strict=True):
        assert np.abs(each - other).max() <= 1e-5 * np.abs(other).max()

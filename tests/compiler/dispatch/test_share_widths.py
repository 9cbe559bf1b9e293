"""Products with coded weights of several widths share an entry, which is told their columns."""

from __future__ import annotations

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

"""Attention over pages in a compiled program, on every device, against its NumPy reference."""

from __future__ import annotations

import numpy as np
import pytest

import ingot
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.references.contraction import REFERENCES
from ingot.compiler.ir import Block, Function, Module, Region, TensorType
from ingot.compiler.ir.dims import symbol
from ingot.hal.spec import dtype
from tests.support.devices import on_every_device, targets

PAGES, HEADS, LENGTH, WIDE = 6, 2, 8, 16
SIGHT = {"scale": 0.3, "window": 11, "cap": 2.0}


@pytest.fixture(scope="module")
def compiled() -> ingot.Module:
    batch, columns = symbol("b"), symbol("n")
    pages = TensorType(dtype("f16"), (PAGES, HEADS, LENGTH, WIDE))
    types = [TensorType(dtype("f32"), (batch, HEADS, 3, WIDE)), pages, pages]
    types += [TensorType(dtype("i32"), shape) for shape in ((batch, columns), (batch, 3))]
    block = Block(types)
    builder = Builder(block)
    builder.return_(builder.value("attention_paged", *block.arguments, **SIGHT))
    module = Module()
    names = ["q", "k", "v", "table", "ends"]
    module.add(Function("main", Region([block]), names, ["y"]))
    return ingot.compile(module, target=targets())


@on_every_device
def test_pages_of_unequal_texts(compiled: ingot.Module, device: str) -> None:
    random = np.random.default_rng(0)
    model = ingot.load(compiled, device=device)
    k, v = random.standard_normal((2, PAGES, HEADS, LENGTH, WIDE)).astype(np.float16)
    for batch, columns in ((1, 1), (3, 4)):
        q = random.standard_normal((batch, HEADS, 3, WIDE)).astype(np.float32)
        table = random.integers(-1, PAGES + 1, (batch, columns)).astype(np.int32)
        ends = random.integers(0, columns * LENGTH + 2, (batch, 3)).astype(np.int32)
        ends[0, 0] = 0
        expected = REFERENCES["attention_paged"](q, k, v, table, ends, **SIGHT)
        got = model(q, k, v, table, ends)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)

"""Grids of more groups along y or z than GPUs launch at once: 65535."""

from __future__ import annotations

import numpy as np

import ingot
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import symbol
from tests.support.compiled_programs import build
from tests.support.devices import opencl_device


def test_a_long_grid_is_launched_in_parts_that_know_their_place() -> None:
    def swap(b: Builder, x: Value) -> list[Value]:
        return [b.op("transpose", x, permutation=(0, 2, 1))]

    module = ingot.compile(
        build(swap, ("f32", (symbol("n"), 3, 5)), symbols={"n": (0, None)}),
        target=["cpu", "opencl"],
    )
    x = np.arange(600_000 * 15, dtype=np.float32).reshape(-1, 3, 5)
    for device in filter(None, ("cpu", opencl_device())):
        y = np.asarray(ingot.load(module, device=device)(x))
        np.testing.assert_array_equal(y, x.swapaxes(1, 2))

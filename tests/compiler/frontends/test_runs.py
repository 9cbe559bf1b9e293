"""Loops over the rows of groups, compiled."""

from __future__ import annotations

import numpy as np
import pytest

import ingot
from ingot.compiler.frontends.runs import each_run
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Function, Module, Region, TensorType, Value
from ingot.compiler.ir.dims import Dim, symbol
from ingot.hal.spec import dtype
from tests.support.devices import load_everywhere


def grouped_product() -> Module:
    """Rows [n, 4] by the matrix [4, 3] of their group, of three."""
    n = symbol("n")
    types = [
        TensorType(dtype("f32"), (n, 4)),
        TensorType(dtype("f32"), (3, 4, 3)),
        TensorType(dtype("i64"), (3,)),
    ]
    block = Block(types)
    x, weights, ends = block.arguments
    b = Builder(block)

    def product(inner: Builder, group: Value, first: Value, count: Dim) -> Value:
        rows = inner.value("dynamic_slice", x, first, inner.constant(0, "i64"), sizes=(count, 4))
        weight = inner.value("take", weights, group, axis=0)
        return inner.value("dot_general", rows, weight, lhs_contract=(1,), rhs_contract=(0,))

    made = b.full(0.0, dtype("f32"), (n, 3))
    b.return_(each_run(b, ends, made, product, str))
    module = Module()
    names = ["x", "weights", "ends"]
    module.add(Function("main", Region([block]), names, ["made"], symbols={"n": (1, 16)}))
    return module


@pytest.mark.slow
def test_each_row_meets_the_matrix_of_its_group() -> None:
    generator = np.random.default_rng(0)
    weights = generator.standard_normal((3, 4, 3), np.float32)
    for target, model in load_everywhere(grouped_product()).items():
        for ends in ([2, 2, 5], [0, 4, 4], [0, 0, 0], [3, 4, 7]):
            x = generator.standard_normal((7, 4), np.float32)
            wanted = np.zeros((7, 3), np.float32)
            for group, (first, end) in enumerate(zip([0, *ends], ends, strict=False)):
                wanted[first:end] = x[first:end] @ weights[group]
            found = model(x, weights, np.array(ends))
            np.testing.assert_allclose(found, wanted, 1e-5, 1e-5, err_msg=target)


def test_an_end_behind_the_rows_ends_the_call() -> None:
    model = load_everywhere(grouped_product())["cpu"]
    x, weights = np.ones((4, 4), np.float32), np.ones((3, 4, 3), np.float32)
    with pytest.raises(ingot.Error, match="groups or of their rows is 7, expected 1 to 4"):
        model(x, weights, np.array([1, 2, 9]))

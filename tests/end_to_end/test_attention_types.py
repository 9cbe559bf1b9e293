"""Attention that its kernel cannot hold or compute exactly stays products and a softmax."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Module, TensorType, Value
from ingot.compiler.ir.dims import Dim, symbol
from ingot.hal.spec import dtype
from tests.support.devices import load_best
from tests.support.programs import program


def module_of(name: str, features: Dim, values: Dim) -> Module:
    """softmax(q k^T) v over 9 rows, written out."""
    shapes = ((2, 9, features), (2, 9, features), (2, 9, values))
    types = [TensorType(dtype(name), shape) for shape in shapes]
    numbers = {"lhs_batch": (0,), "rhs_batch": (0,), "lhs_contract": (2,)}

    def build(b: Builder, q: Value, k: Value, v: Value) -> Value:
        scores = b.value("dot_general", q, k, **numbers, rhs_contract=(2,))
        over = {"shape": (2, 9, 9), "dimensions": (0, 1)}
        top = b.value("broadcast", b.value("reduce", scores, axes=(2,), kind="max"), **over)
        weights = b.value("exp", b.value("sub", scores, top))
        total = b.value("broadcast", b.value("reduce", weights, axes=(2,), kind="add"), **over)
        part = b.value("div", weights, total)
        return b.value("dot_general", part, v, **numbers, rhs_contract=(1,))

    symbols = {str(dim): (1, None) for dim in (features, values) if not isinstance(dim, int)}
    return program(build, *types, symbols=symbols)


@pytest.mark.parametrize(
    ("name", "features", "values", "bound"),
    [
        ("f64", 16, 16, 1e-14),
        ("f32", symbol("d"), 8, 2e-6),
        ("f32", 8, symbol("e"), 2e-6),
        ("f32", 40, 3000, 2e-6),
        ("f32", 16, 16, 2e-6),
    ],
)
def test_attention_of_any_features_is_right(
    name: str, features: Dim, values: Dim, bound: float
) -> None:
    d, e = (each if isinstance(each, int) else 12 for each in (features, values))
    generator = np.random.default_rng(0)
    q, k, v = (generator.standard_normal((2, 9, n)).astype(dtype(name).numpy) for n in (d, d, e))
    got = np.asarray(load_best(module_of(name, features, values))(q, k, v))
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights / weights.sum(-1, keepdims=True) @ v.astype(np.float64)
    assert np.abs(got - wanted).max() / np.abs(wanted).max() < bound

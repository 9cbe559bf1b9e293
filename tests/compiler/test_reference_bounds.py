"""How far a kernel may be from its reference: nothing where it is exact, else what ops may err."""

from __future__ import annotations

import numpy as np

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Function, Module, Region, TensorType
from ingot.compiler.ir.dims import symbol
from ingot.compiler.reference_bounds import Reference, evaluate_entry
from ingot.hal.spec import dtype

UNIT = 2.0**-23


def evaluate(name: str, *arrays: np.ndarray, then: str = "", **attributes: object) -> Reference:
    """Op `name` on f32[s0, ...] arguments, and op `then` on its result."""
    types = [TensorType(dtype("f32"), (symbol("s0"), *each.shape[1:])) for each in arrays]
    block = Block(types)
    builder = Builder(block)
    value = builder.value(name, *block.arguments, **attributes)
    builder.return_(builder.value(then, value) if then else value)
    module, entry = Module(), Function("entry", Region([block]), symbols={"s0": (0, None)})
    module.add(entry)
    (reference,) = evaluate_entry(module, entry, arrays, {"s0": arrays[0].shape[0]})
    return reference


def test_exact_and_correctly_rounded_ops_allow_nothing() -> None:
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    for name in ("add", "mul", "max"):
        assert evaluate(name, x, x).allowed == 0.0
    assert evaluate("reduce", x, axes=(1,), kind="max").allowed == 0.0


def test_an_element_may_be_wrong_by_some_ulp() -> None:
    x = np.linspace(-3, 3, 400, dtype=np.float32).reshape(100, 4)
    reference = evaluate("exp", x)
    ulps = np.asarray(reference.allowed) / (reference.array * UNIT)
    assert ulps.min() > 1
    assert ulps.max() < 30


def test_sums_that_cancel_may_be_wrong_by_their_terms() -> None:
    x = np.tile(np.array([1e6, -1e6], np.float32), (3, 32))
    reference = evaluate("reduce", x, axes=(1,), kind="add")
    assert np.all(reference.array == 0)
    allowed = np.asarray(reference.allowed) / (64e6 * UNIT)
    assert allowed.min() > 1
    assert allowed.max() < 100


def test_what_is_steep_may_be_wrong_by_more() -> None:
    x = np.full((1, 64), 1.2, np.float32)
    flat = evaluate("reduce", x, axes=(1,), kind="add")
    steep = evaluate("reduce", x, then="exp", axes=(1,), kind="add")
    relative = [float(np.max(each.allowed / each.array)) for each in (flat, steep)]
    assert relative[1] > 20 * relative[0]

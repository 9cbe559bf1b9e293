"""How far a kernel may be from its reference: nothing where it is exact, else what ops may err."""

from __future__ import annotations

import numpy as np

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.references.contraction import coded_weight
from ingot.compiler.ir import TensorType, Value
from ingot.compiler.ir.dims import symbol
from ingot.compiler.reference_bounds import Reference, evaluate_entry
from ingot.hal.spec import DType, dtype
from tests.support.programs import program

UNIT = 2.0**-23


def evaluate(name: str, *arrays: np.ndarray, then: str = "", **attributes: object) -> Reference:
    """Op `name` on arguments whose first dim is s0 where it is that of the first one, and op
    `then` on its result."""
    sizes = [symbol("s0") if len(each) == len(arrays[0]) else len(each) for each in arrays]
    types = [
        TensorType(DType.from_numpy(each.dtype), (size, *each.shape[1:]))
        for size, each in zip(sizes, arrays, strict=True)
    ]

    def build(builder: Builder, *values: Value) -> Value:
        value = builder.value(name, *values, **attributes)
        return builder.value(then, value) if then else value

    module = program(build, *types, symbols={"s0": (0, None)})
    entry = module.functions["main"]
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


def test_a_product_with_codes_may_be_wrong_by_what_one_with_floats_may() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (16, 64, 16, 4), np.uint8)
    scales = rng.random((16, 8, 16)).astype(np.float32) + np.float32(0.5)
    zeros = np.full((16, 8, 16), 7.5, np.float32)  # terms of both signs, none of them 0
    coding = {"n": 256, "coding": dtype("u4"), "group": 64}
    weight = coded_weight(512, codes, scales, zeros, **coding).astype(np.float32)
    x = rng.standard_normal((3, 512)).astype(np.float32)
    x[0] = 1
    sides = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (1,), "rhs_contract": (0,)}
    floats = evaluate("dot_general", x, weight, dtype=dtype("f32"), **sides)
    coded = evaluate("dot_coded", x, codes, scales, zeros, dtype=dtype("f32"), **coding)
    np.testing.assert_allclose(coded.array, floats.array, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(coded.allowed, floats.allowed, rtol=1e-2)

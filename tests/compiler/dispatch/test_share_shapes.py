"""Entries of `init` that differ in dims share one, which is told the sizes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import ingot
from ingot.compiler.dispatch.form_dispatches import form_dispatches
from ingot.compiler.dispatch.ops import Call, entries_of
from ingot.compiler.dispatch.outline import outline
from ingot.compiler.dispatch.share_shapes import share_shapes
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Function, Module, Region, TensorType, Value
from ingot.compiler.ir.dims import evaluate
from ingot.compiler.ir.types import Type
from ingot.hal.spec import dtype

F32 = dtype("f32")


def parameter(b: Builder, shape: tuple[int, ...]) -> Value:
    return b.value("parameter", scope="", key=f"w{shape}", dtype=F32, shape=shape)


def panels(b: Builder, shape: tuple[int, ...]) -> Value:
    """Columns of a weight in panels of 16, doubled."""
    n, k = shape
    x = b.value("transpose", parameter(b, shape), permutation=(1, 0))
    x = b.value("mul", x, b.full(2.0, F32, (k, n)))
    x = b.value("reshape", x, shape=(k, n // 16, 16))
    return b.value("transpose", x, permutation=(1, 0, 2))


def shared(
    build: Callable[[Builder, tuple[int, ...]], Value], *shapes: tuple[int, ...], name: str = "init"
) -> Module:
    block = Block([])
    builder = Builder(block)
    builder.return_(*(build(builder, shape) for shape in shapes))
    names = [] if name == "init" else [f"y{place}" for place in range(len(shapes))]
    module = Module()
    module.add(Function(name, Region([block]), [], names, exported=name != "init"))
    return share_shapes(outline(form_dispatches(module)))


def called_types(module: Module) -> list[tuple[int, ...]]:
    """The shapes of results that the entries give to their callers, sorted."""
    found = []
    for op in next(iter(module.functions.values())).block.ops:
        if isinstance(op.attributes, Call):
            entry = module.functions[op.attributes.entry]
            values = dict(zip(entry.symbols, op.attributes.dims, strict=True))
            (type,) = entry.result_types
            found.append(tuple(evaluate(dim, values) for dim in _tensor(type).shape))
            assert found[-1] == _tensor(op.result.type).shape
            for symbol, (low, high) in entry.symbols.items():
                assert low <= values[symbol] <= (high or math.inf)
    return sorted(found)


def _tensor(type: Type) -> TensorType:
    assert isinstance(type, TensorType)
    return type


def test_sizes_in_proportion_are_multiples_of_one_symbol() -> None:
    module = shared(panels, (64, 48), (32, 96), (160, 48))
    (entry,) = entries_of(module)
    assert [str(each) for each in entry.result_types] == ["f32[2*s0,48*s1,16]"]
    assert called_types(module) == [(2, 96, 16), (4, 48, 16), (10, 48, 16)]


def test_products_of_sizes_are_products_of_symbols() -> None:
    def folded(b: Builder, shape: tuple[int, ...]) -> Value:
        x = b.value("transpose", parameter(b, shape), permutation=(1, 0))
        x = b.value("reshape", x, shape=(math.prod(shape) // 4, 4))
        return b.value("transpose", x, permutation=(1, 0))

    module = shared(folded, (6, 20), (10, 12), (14, 28))
    (entry,) = entries_of(module)
    assert [str(each) for each in entry.result_types] == ["f32[4,2*s0*s1]"]
    assert called_types(module) == [(4, 30), (4, 30), (4, 98)]


@pytest.mark.parametrize(
    ("shapes", "name"),
    [
        (((16, 1), (32, 8)), "init"),  # a dim of 1 may be repeated
        (((16, 4), (32, 8)), "main"),  # runs more than once
    ],
)
def test_what_stays_apart(shapes: tuple[tuple[int, ...], ...], name: str) -> None:
    module = shared(panels, *shapes, name=name)
    assert [each.symbols for each in entries_of(module)] == [{}, {}]


def test_ops_that_fit_these_sizes_alone_keep_them() -> None:
    def longer(b: Builder, shape: tuple[int, ...]) -> Value:
        x = b.value("neg", parameter(b, shape))
        return b.value("concatenate", x, b.full(1.0, F32, (shape[0], 5)), axis=1)

    module = shared(longer, (4, 16), (4, 32))
    assert [each.symbols for each in entries_of(module)] == [{}, {}]


def test_weights_of_several_shapes_are_packed_right() -> None:
    random = np.random.default_rng(0)
    weights = {"a": (48, 64), "b": (64, 32), "c": (32, 128)}
    arrays = {name: random.normal(size=shape).astype("f4") for name, shape in weights.items()}
    block = Block([TensorType(F32, (3, 48))])
    b = Builder(block)
    (x,) = block.arguments
    for name, shape in weights.items():
        w = b.value("parameter", scope="", key=name, dtype=F32, shape=shape[::-1])
        x = b.value("dot_general", x, w, lhs_contract=(1,), rhs_contract=(1,))
    b.return_(x)
    module = Module()
    module.add(Function("main", Region([block]), ["x"], ["y"]))
    given = {name: np.ascontiguousarray(each.T) for name, each in arrays.items()}
    model = ingot.load(ingot.compile(module, variants=["x86-64-v3"]), parameters=given)
    rows = random.normal(size=(3, 48)).astype("f4")
    expected = rows
    for each in arrays.values():
        expected = expected @ each
    np.testing.assert_allclose(model.main(rows), expected, rtol=1e-4, atol=1e-4)

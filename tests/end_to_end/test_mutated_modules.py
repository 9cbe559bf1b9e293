"""Damaged numbers in modules with honest kernels: an error or some result, never a crash.

`make sanitized` runs this too, and there every byte outside of the bindings is forbidden.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import symbol
from ingot.hal.spec import dtype
from tests.support.compiled_programs import build
from tests.support.mutations import survive

B, S = symbol("b"), symbol("s")
ANY: tuple[int, int | None] = (0, None)


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def moves(b: Builder, x: Value, places: Value) -> list[Value]:
    part = b.op("slice", x, start=(0, 1), limit=(B, S), stride=(1, 2))
    turned = b.op("transpose", b.op("exp", x), permutation=(1, 0))
    top = b.op("top_k", b.op("neg", x), k=3, axis=1, largest=True, dtype=dtype("i64"))
    taken = b.op("take", x, places, axis=0, mode="check")
    return [b.op("tanh", part), turned, *top, taken]


def test_numbers_of_a_dispatch_belong_together() -> None:
    program = build(moves, ("f32", (B, S)), ("i32", (S,)), symbols={"b": (1, None), "s": (3, None)})
    module = ingot.compile(program, variants=None)
    arguments = [numbers(5, 9), np.arange(9, dtype=np.int32) % 5]
    kinds = survive(bytes(module), arguments, range(600))
    assert kinds["ran"] > 20
    assert kinds["DataLoss"] > 100


@pytest.mark.parametrize("rows", [8, None])
def test_static_and_symbolic_products(rows: int | None) -> None:
    size = B if rows is None else rows
    weight = numbers(64, 48)

    def make(b: Builder, x: Value) -> list[Value]:
        dot = b.op(
            "dot_general",
            x,
            b.constant(weight),
            lhs_batch=(),
            rhs_batch=(),
            lhs_contract=(1,),
            rhs_contract=(0,),
        )
        return [b.op("max", dot, b.op("neg", dot)), b.op("reduce", x, axes=(1,), kind="add")]

    module = ingot.compile(
        build(make, ("f32", (size, 64)), symbols={"b": ANY} if rows is None else {})
    )
    kinds = survive(bytes(module), [numbers(8, 64)], range(400))
    assert kinds["ran"] > 20
    assert kinds["DataLoss"] > 50

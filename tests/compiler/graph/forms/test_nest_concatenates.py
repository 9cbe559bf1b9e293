"""A concatenate of many operands becomes some of few, and gives the same."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.forms.nest_concatenates import nest_concatenates
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import TensorType
from ingot.hal.spec import dtype
from tests.support.programs import program

I32 = dtype("i32")


@pytest.mark.parametrize(
    ("count", "expected"),
    [(32, [32]), (33, [2, 32]), (64, [32, 2, 32]), (1025, [32] * 32 + [2, 32])],
)
def test_kernels_of_many_operands_are_some_of_few(count: int, expected: list[int]) -> None:
    types = [TensorType(I32, (2, 1 + place % 3)) for place in range(count)]
    module = program(lambda b, *parts: b.op("concatenate", *parts, axis=1), *types)
    eliminate_dead_code(nest_concatenates(module))
    made = [len(op.operands) for op in module.functions["main"].block.ops[:-1]]
    assert made == expected
    parts = [np.full(type.shape, place, np.int32) for place, type in enumerate(types)]
    (result,) = interpret(module, "main", parts)
    np.testing.assert_array_equal(result, np.concatenate(parts, axis=1))

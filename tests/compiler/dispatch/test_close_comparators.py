"""Comparators that use numbers from outside get copies of them."""

from __future__ import annotations

from typing import Any

import pytest

from ingot.compiler.dispatch.close_comparators import close_comparators
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Module, Region, ScalarType, Value
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype
from tests.support import programs

F32 = dtype("f32")


def program(number: str) -> Module:
    """A sort by |a - number| where the number is a constant or an argument of the function."""

    def build(b: Builder, x: Value, y: Value) -> Any:
        outside: Any = b.constant(2.0, "f32") if number == "constant" else y
        inner = Block([ScalarType(F32)] * 2)
        inside = Builder(inner)
        a, c = (inside.op("abs", inside.op("sub", each, outside)) for each in inner.arguments)
        inside.yield_(inside.op("compare", a, c, direction="lt"))
        return b.op("sort", x, regions=[Region([inner])], axis=0)

    return programs.program(build, "f32[5]", "f32[]")


def test_constants_are_copied_into_the_comparator() -> None:
    module = close_comparators(program("constant"))
    inner = module.functions["main"].block.ops[-2].regions[0].block
    known = {*inner.arguments, *(value for op in inner.ops for value in op.results)}
    assert inner.ops[0].name == "constant"
    assert all(operand in known for op in inner.ops for operand in op.operands)


def test_another_value_is_refused() -> None:
    with pytest.raises(CompileError, match="comparator uses"):
        close_comparators(program("argument"))

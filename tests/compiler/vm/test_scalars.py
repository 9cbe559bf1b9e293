"""Scalar ops in registers of the VM give what the references say, for numbers at the edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ingot.compiler.dispatch.scalar_ops import FLOAT_OPS, INTEGER_OPS
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import branches
from ingot.compiler.ir import Value
from tests.support.compiled_programs import Program, build

COUNTS = {"neg": 1, "abs": 1, "sign": 1, "not": 1, "convert": 1, "select": 2, "clamp": 3}
DIRECTIONS = ("eq", "ne", "lt", "le", "gt", "ge")
LOGICAL = ("and", "or", "xor", "not", "max", "min", "compare", "select", "convert")
FLOATS = (0.0, -0.0, 1.5, -2.75, 3e38, -1e-40, np.inf, -np.inf, np.nan)
TARGETS = {"i1", "i8", "i32", "i64", "u8", "u32", "f16", "f32", "f64"}


def numbers(name: str) -> list[Any]:
    if name == "i1":
        return [np.array(False), np.array(True)]
    dtype = np.dtype({"f": "float", "i": "int", "u": "uint"}[name[0]] + name[1:])
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return [np.array(number, dtype) for number in FLOATS]
    info = np.iinfo(dtype)
    return [np.array(n, dtype) for n in (0, 1, 2, 7, info.max, info.min, info.max - 1)]


def results_of(b: Builder, op: str, name: str, x: Sequence[Value]) -> list[Value]:
    """The op on the first operands, once for each value of its attribute."""
    if op == "compare":
        return [b.value(op, *x[:2], direction=each) for each in DIRECTIONS]
    if op == "convert":
        from ingot.hal.spec import dtype

        unlike = {"i64": {"f32", "f16"}}.get(name, set())  # rounded twice, so kernels do it
        return [b.value(op, x[0], dtype=dtype(each)) for each in sorted(TARGETS - {name} - unlike)]
    if op == "select":
        return [b.value(op, b.value("compare", *x[:2], direction="lt"), *x[:2])]
    return [b.value(op, *x[: COUNTS.get(op, 2)])]


def program_of(ops: Sequence[str], name: str) -> Program:
    """Results of the ops flow through a branch, so that they are made in registers."""

    def make(b: Builder, p: Value, *x: Value) -> list[Value]:
        def then(inner: Builder) -> list[Value]:
            return [each for op in ops for each in results_of(inner, op, name, x)]

        def otherwise(inner: Builder) -> list[Value]:
            kinds = [value.type.dtype for op in ops for value in results_of(b, op, name, x)]  # type: ignore[union-attr]
            return [inner.constant(np.zeros((), kind.numpy), kind) for kind in kinds]

        return branches(b, "if", p, [then, otherwise], iter(()))

    return Program(build(make, ("i1", ()), *[(name, ())] * 3))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["i1", "i8", "i32", "i64", "u8", "u32", "f16", "f32", "f64"])
def test_registers_compute_what_the_references_say(name: str) -> None:
    floats = name.startswith("f")
    listed = FLOAT_OPS if floats else INTEGER_OPS
    ops = sorted(op for op in listed if name != "i1" or op in LOGICAL)
    if name.startswith("u"):
        ops = [op for op in ops if op not in ("neg", "abs", "sign", "shift_right_arithmetic")]
    program = program_of(ops, name)
    assert program.dispatches == 0
    random = np.random.default_rng(0)
    values = numbers(name)
    for a in values:
        for b in values:
            low, high = sorted((a, b)) if not floats else (a, b)
            third = values[random.integers(len(values))]
            operands = (a, b, third) if floats else (low, third, high)
            program.check(np.array(True), *operands)
            program.check(np.array(True), b, a, third) if floats else None
    program.check(np.array(False), *values[:2], values[0])

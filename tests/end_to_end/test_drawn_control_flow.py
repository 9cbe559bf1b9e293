"""Drawn programs of branches, loops, rows and state against the interpreter, call by call.

A program is drawn from a seed: ops on a matrix, a row and an integer, whose results later
ops read, carry, capture, store and return in any order. What is sought is memory that is
written too early or copied too late.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import ingot
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import branches, counted_loop
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Module, TensorType, Value
from ingot.hal.spec import dtype
from tests.support.compiled_programs import build
from tests.support.devices import load_best, opencl_device
from tests.support.drawn import examples

F32, I32 = dtype("f32"), dtype("i32")
MATRIX, ROW, NUMBER = TensorType(F32, (5, 4)), TensorType(F32, (4,)), TensorType(I32)
TYPES = (MATRIX, ROW, NUMBER)
VARIABLES: dict[str, tuple[TensorType, Any]] = {
    "matrix": (MATRIX, np.float32(0.5)),
    "row": (ROW, np.arange(4, dtype=np.float32)),
    "number": (NUMBER, np.int32(1)),
}


class Drawn:
    """Draws ops into a builder; `values` are those that the next op may read."""

    def __init__(self, seed: int, b: Builder, values: Sequence[Value], depth: int) -> None:
        self.random = np.random.default_rng(seed)
        self.b = b
        self.values = list(values)
        self.depth = depth

    def draw(self, count: int) -> Drawn:
        steps = [self.compute, self.compute, self.index, self.state]
        steps += [self.loop, self.branch] if self.depth else []
        for _ in range(count):
            self.values += steps[self.random.integers(len(steps))]()
        return self

    def pick(self, type: TensorType) -> Value:
        """A value of the type, rather a late one."""
        found = [value for value in self.values if value.type == type]
        first = max(0, len(found) - 5) if self.random.random() < 0.7 else 0
        return found[self.random.integers(first, len(found))]

    def last(self, types: Sequence[TensorType]) -> list[Value]:
        return [[value for value in self.values if value.type == type][-1] for type in types]

    def types(self) -> list[TensorType]:
        return [TYPES[k] for k in self.random.integers(0, 3, self.random.integers(1, 4))]

    def number(self, value: int) -> Value:
        return self.b.constant(np.int32(value))

    def compute(self) -> list[Value]:
        b, m, r, n = self.b, self.pick(MATRIX), self.pick(ROW), self.pick(NUMBER)
        match self.random.integers(6):
            case 0:
                return [b.value("add", m, self.pick(MATRIX))]
            case 1:
                return [b.value("logistic", r)]
            case 2:
                return [b.value("reduce", m, axes=(0,), kind="max")]
            case 3:
                return [b.value("add", n, self.pick(NUMBER))]
            case 4:
                return [b.value("sub", n, self.number(self.random.integers(-3, 4)))]
        bounded = b.value("clamp", b.full(-9.0, F32, (4,)), r, b.full(9.0, F32, (4,)))
        return [b.value("convert", b.value("reduce", bounded, axes=(0,), kind="max"), dtype=I32)]

    def index(self) -> list[Value]:
        b, m, r, n = self.b, self.pick(MATRIX), self.pick(ROW), self.pick(NUMBER)
        if self.random.random() < 0.5:
            return [b.value("mul", b.value("take", m, n, axis=0, mode="clamp"), r)]
        row = b.value("reshape", r, shape=(1, 4))
        return [b.value("dynamic_update_slice", m, row, n, self.number(0))]

    def state(self) -> list[Value]:
        name = list(VARIABLES)[self.random.integers(3)]
        type = VARIABLES[name][0]
        if self.random.random() < 0.5:
            self.b.append("variable.store", (self.pick(type),), (), {"name": name})
            return []
        attributes = {"name": name, "dtype": type.dtype, "shape": type.shape}
        return [self.b.append("variable.load", (), (), attributes).result]

    def inner(self, b: Builder, seed: int, more: Sequence[Value] = ()) -> Drawn:
        drawn = Drawn(seed, b, [*self.values, *more], self.depth - 1)
        return drawn.draw(int(drawn.random.integers(1, 6)))

    def loop(self) -> list[Value]:
        types, seed = self.types(), int(self.random.integers(1 << 30))
        trips = self.number(self.random.integers(0, 4))
        if self.random.random() < 0.3:
            trips = self.b.value("clamp", self.number(0), self.pick(NUMBER), self.number(3))

        def body(b: Builder, index: Value, carried: Sequence[Value]) -> list[Value]:
            drawn = self.inner(b, seed, (index, *carried))
            return [drawn.pick(type) for type in types]

        return counted_loop(self.b, trips, [self.pick(type) for type in types], body)

    def branch(self) -> list[Value]:
        types, seeds = self.types(), [int(seed) for seed in self.random.integers(1 << 30, size=3)]

        def builds(b: Builder, seed: int) -> list[Value]:
            return self.inner(b, seed).last(types)

        bodies = [lambda b, seed=seed: builds(b, seed) for seed in seeds]
        selector = self.pick(NUMBER)
        if self.random.random() < 0.5:
            return branches(self.b, "case", selector, bodies, iter(()))
        low = self.b.value("compare", selector, self.number(1), direction="lt")
        return branches(self.b, "if", low, bodies[:2], iter(()))


def program(seed: int) -> Module:
    def make(b: Builder, *arguments: Value) -> list[Value]:
        drawn = Drawn(seed, b, arguments, 3).draw(8)
        return [*drawn.last(TYPES), drawn.pick(TYPES[seed % 3])]

    return build(make, ("f32", (5, 4)), ("f32", (4,)), ("i32", ()), variables=VARIABLES)


@examples(20, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 20))
def test_drawn_programs(seed: int) -> None:
    check(seed, load_best(program(seed)))


@pytest.mark.skipif("opencl_device() is None", reason="no OpenCL device")
@pytest.mark.parametrize("seed", range(4))
def test_drawn_programs_on_opencl(seed: int) -> None:
    module = ingot.compile(program(seed), target="opencl")
    check(seed, ingot.load(module, device=str(opencl_device())))


def check(seed: int, model: ingot.Model) -> None:
    """Three calls of the compiled program beside the interpreter."""
    reference = program(seed)
    state: dict[str, Any] = {}
    for call in range(3):
        random = np.random.default_rng(call)
        matrix = random.standard_normal((5, 4)).astype(np.float32)
        row = random.standard_normal(4).astype(np.float32)
        arguments = (matrix, row, np.array(call * 2 - 1, np.int32))
        with np.errstate(all="ignore"):
            wanted = interpret(reference, "main", arguments, state=state)
        for got, expected in zip(model(*arguments), wanted, strict=True):
            np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-5)
        for name, variable in model.state().items():
            if name in state:
                np.testing.assert_allclose(variable.numpy(), state[name], rtol=1e-4, atol=1e-5)

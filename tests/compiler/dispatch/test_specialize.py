"""Kernels for given values of dims: who runs when, that results stay, and wrong values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.dispatch.specialize import specialize
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Module, Value
from ingot.compiler.ir.dims import symbol
from ingot.compiler.ir.parser import parse
from ingot.compiler.ir.printer import to_text
from ingot.compiler.pipeline import DISPATCH_PASSES
from ingot.compiler.vm.read_module import read_module
from ingot.hal.errors import CompileError, OutOfRange
from ingot.hal.spec import dtype
from tests.support.compiled_programs import Program, build
from tests.support.devices import best_variant, load_best

B, S = symbol("b"), symbol("s")
SYMBOLS: dict[str, tuple[int, int | None]] = {"b": (1, 64), "s": (1, 512)}
WEIGHT = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)


def mixer(b: Builder, x: Value, y: Value) -> list[Value]:
    """A contraction with a residual, a softmax, a transpose, sums, a sort, a running sum."""
    shape = (B, S, 8)
    hidden = b.value("dot_general", x, b.constant(WEIGHT), lhs_contract=(2,), rhs_contract=(0,))
    hidden = b.value("add", b.value("tanh", hidden), x)
    greatest = b.value("reduce", hidden, axes=(2,), kind="max")
    shifted = b.value("sub", hidden, b.value("broadcast", greatest, shape=shape, dimensions=(0, 1)))
    powers = b.value("exp", shifted)
    total = b.value("reduce", powers, axes=(2,), kind="add")
    softmax = b.value("div", powers, b.value("broadcast", total, shape=shape, dimensions=(0, 1)))
    turned = b.value("transpose", softmax, permutation=(1, 0, 2))
    flat = b.value("reshape", turned, shape=(S, B * 8))
    scaled = b.value("mul", flat, b.value("broadcast", y, shape=(S, B * 8), dimensions=(0, 1)))
    means = b.value("reduce", hidden, axes=(1,), kind="add")
    running = b.value("cumulative", hidden, axis=1, kind="add", exclusive=False, reverse=False)
    best = b.op("top_k", hidden, axis=2, k=3, dtype=dtype("i64"))
    return [scaled, means, running, *best]


@pytest.fixture(scope="module")
def program() -> Program:
    module = build(mixer, ("f32", (B, S, 8)), ("f32", (S, 1)), symbols=SYMBOLS)
    return Program(module, specialize={"b": [1], "s": [1, 48]})


def arguments(b: int, s: int) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(b * 1000 + s)
    return [random.standard_normal(shape).astype(np.float32) for shape in ((b, s, 8), (s, 1))]


@pytest.mark.parametrize("s", [1, 2, 47, 48, 49])
@pytest.mark.parametrize("b", [1, 3])
def test_results_are_right_at_hot_and_at_other_values(program: Program, b: int, s: int) -> None:
    program.check(*arguments(b, s), tolerance=1e-4, atol=1e-5)


def test_a_call_takes_the_most_special_kernels_that_fit(program: Program) -> None:
    def kernels(b: int, s: int) -> list[str]:
        with program.model.trace() as events:
            program.model(*arguments(b, s))
        return [event.kernel for event in events if event.kernel]

    generic = kernels(3, 7)
    assert len(generic) == program.dispatches
    for b, s, suffix in ((1, 48, "_s0_1_s1_48"), (3, 48, "_s1_48"), (1, 7, "_s0_1"), (1, 1, "1_1")):
        special = kernels(b, s)
        assert len(special) == len(generic)
        assert any(name.endswith(suffix) for name in special)
        for name, base in zip(special, generic, strict=True):
            assert name.startswith(base)
            assert name != base


def test_dispatches_and_memory_are_those_without(program: Program) -> None:
    module = build(mixer, ("f32", (B, S, 8)), ("f32", (S, 1)), symbols=SYMBOLS)
    plain = ingot.compile(module, variants=[best_variant()]).report
    assert program.module.report.dispatches == plain.dispatches
    assert program.module.report.peaks == plain.peaks
    options = read_module(bytes(program.module)).metadata["options"]
    assert options["specialize"] == {"b": [1], "s": [1, 48]}


def test_kernels_in_loops_have_alternatives() -> None:
    def make(b: Builder, x: Value, n: Value) -> list[Value]:
        def body(inner: Builder, index: Value, values: Sequence[Value]) -> list[Value]:
            turned = inner.value("reverse", values[0], axes=(0,))
            return [inner.value("add", values[0], turned)]

        return counted_loop(b, n, [x], body)

    module = build(make, ("f32", (S, 3)), ("i64", ()), symbols={"s": (0, None)})
    program = Program(module, specialize={"s": [4, 5]})
    for s, n in ((0, 2), (4, 3), (5, 2), (6, 3), (4, 0)):
        x = np.arange(3 * s, dtype=np.float32).reshape(s, 3)
        program.check(x, np.array(n), tolerance=1e-5)


def test_counts_from_data_may_be_hot() -> None:
    text = """
    module {} {
      func @main(%x: f32[a] "x") -> (f32[n] "y") symbols {a in [0, 512]} {
        %0 = nonzero(%x) {symbols=["n"]} : i64[1,n]
        %1 = reshape(%0) {shape=[<n>]} : i64[n]
        %2 = take(%x, %1) {axis=0, mode="check"} : f32[n]
        %3 = exp(%2) : f32[n]
        return(%3)
      }
    }"""
    model = load_best(text, specialize={"n": [2, 3]})
    for count in range(5):
        x = np.zeros(9, np.float32)
        x[:count] = 1 + np.arange(count)
        np.testing.assert_allclose(model(x), np.exp(x[:count]), rtol=1e-6)


def test_an_index_out_of_range_is_named_in_special_kernels_too() -> None:
    def make(b: Builder, x: Value, index: Value) -> list[Value]:
        with b.at("pick"):
            return [b.value("take", x, index, axis=0, mode="check")]

    module = build(make, ("f32", (B, 4)), ("i64", (S,)), symbols=SYMBOLS)
    program = Program(module, specialize={"s": [2], "b": [4]})
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    for index in ([0, 4], [0, 1, 4]):
        with pytest.raises(OutOfRange, match=r"'pick' .*index 4 is out of range \[0, 4\)"):
            program.call(x, np.array(index))
        program.check(x, np.array(index) % 4)


def outlined() -> Module:
    module = build(mixer, ("f32", (B, S, 8)), ("f32", (S, 1)), symbols=SYMBOLS)
    for run in DISPATCH_PASSES:
        module = run(module)
    return module


def test_alternatives_are_text_that_parses_back() -> None:
    module = specialize(outlined(), {"s": [1, 48]})
    assert "alternatives=" in to_text(module)
    assert to_text(parse(to_text(module))) == to_text(module)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"t": [1]}, "the program has no dim 't'; its dims are: b, s"),
        ({"s": [0]}, "s = 0, but must be at least 1 and at most 512"),
        ({"s": [1, 513]}, "s = 513, but must be at least 1 and at most 512"),
        ({"s": [1.5]}, "s = 1.5, but must be an integer"),
        ({"s": 128}, "s = 128, but must be a list of integers"),
        ({"b": [1, 2, 3, 4], "s": [1, 2, 3]}, "would get 19 alternatives, expected at most 16"),
    ],
    ids=["name", "low", "high", "kind", "number", "many"],
)
def test_wrong_values_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        specialize(outlined(), values)

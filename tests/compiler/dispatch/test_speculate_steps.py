"""Steps queued ahead of the condition: same results for any number of steps, and only where a
step that nobody asked for does no harm."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.dispatch.speculate_steps import STEPS, speculate_steps
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir import Module, parse, verify, walk

HEAD = """
module {producer="a test"} {
  func @main(%x: f32[4] "x", %n: i32[] "n") -> (f32[4] "y", i32[] "steps") {
    %zero = constant() {value=dense<i32[] [0]>} : i32[]
    %one = constant() {value=dense<i32[] [1]>} : i32[]
    %limit = constant() {value=dense<f32[] [1]>} : f32[]
    %half = constant() {value=dense<f32[] [0.5]>} : f32[]
    %halves = broadcast(%half) {shape=[4], dimensions=[]} : f32[4]
    %y, %steps = while(%x, %zero) {symbols=[]} : f32[4], i32[] (
"""
ON_DATA = """
      {
        ^(%a: f32[4], %k: i32[]):
        %sum = reduce(%a) {axes=[0], kind="add"} : f32[]
        %above = compare(%sum, %limit) {direction="gt"} : i1[]
        %few = compare(%k, %n) {direction="lt"} : i1[]
        %go = and(%above, %few) : i1[]
        yield(%go)
      },
"""
ON_COUNTER = """
      {
        ^(%a: f32[4], %k: i32[]):
        %few = compare(%k, %n) {direction="lt"} : i1[]
        yield(%few)
      },
"""
HALVING = """
      {
        ^(%v: f32[4], %t: i32[]):
        %w = mul(%v, %halves) : f32[4]
        %u = add(%t, %one) : i32[]
        yield(%w, %u)
      })
    return(%y, %steps)
  }
}
"""
LOOKUP = """
      {
        ^(%v: f32[4], %t: i32[]):
        %i = broadcast(%t) {shape=[4], dimensions=[]} : i32[4]
        %l = take(%v, %i) {axis=0, mode="check"} : f32[4]
        %w = mul(%l, %halves) : f32[4]
        %u = add(%t, %one) : i32[]
        yield(%w, %u)
      })
    return(%y, %steps)
  }
}
"""


def steps_of(module: Module) -> int:
    """How often the loop's body multiplies."""
    (loop,) = [op for op in walk(module.functions["main"]) if op.name == "while"]
    return sum(op.name == "mul" for op in loop.regions[1].block.ops)


def test_any_number_of_steps_gives_the_same() -> None:
    module, reference = speculate_steps(parse(HEAD + ON_DATA + HALVING)), None
    verify(module, GRAPH)
    assert steps_of(module) == STEPS
    reference = parse(HEAD + ON_DATA + HALVING)
    for scale in (0, 0.2, 0.5, 1, 3, 9, 30, 1e9, np.nan):
        for most in (0, 1, STEPS - 1, STEPS, STEPS + 1, 40):
            x = np.full(4, scale, np.float32)
            arguments = [x, np.array(most, np.int32)]
            got = interpret(module, "main", arguments)
            for one, other in zip(got, interpret(reference, "main", arguments), strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(HEAD + ON_COUNTER + HALVING, id="a counter is no wait"),
        pytest.param(HEAD + ON_DATA + LOOKUP, id="a step that may fail"),
        pytest.param(
            (HEAD + ON_DATA + HALVING)
            .replace("f32[4]", "f32[4000000]")
            .replace("[4]", "[4000000]"),
            id="a long step",
        ),
    ],
)
def test_other_loops_stay_as_they_are(text: str) -> None:
    module = speculate_steps(parse(text))
    assert steps_of(module) == 1

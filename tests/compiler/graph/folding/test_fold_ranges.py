"""Ranges hold for every integer, and what they decide gives the same results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.folding.fold_ranges import fold_ranges, ranges_of
from ingot.compiler.graph.folding.simplify import simplify
from ingot.compiler.graph.ops import Take
from ingot.compiler.ir import Module, Value, walk
from ingot.compiler.ir.dims import symbol
from ingot.hal.spec import dtype
from tests.support.drawn import examples
from tests.support.programs import check_pass, program, run

BINARY = ("add", "sub", "mul", "max", "min", "rem", "div", "and")


def names(module: Module) -> list[str]:
    return [op.name for op in walk(module)]


@examples(60)
@given(st.data())
def test_drawn_values_lie_in_their_ranges(data: st.DataObject) -> None:
    """A random graph over a dim, an iota, constants and an argument, all integers of a dtype."""
    element = dtype(data.draw(st.sampled_from(["i8", "i32", "u8", "i64"])))
    size = data.draw(st.integers(1, 5))

    def draw(b: Builder, x: Value) -> list[Value]:
        least = 0 if element.kind == "u" else -9
        values = [
            x,
            b.value("iota", dtype=element, shape=(symbol("n"),), axis=0),
            b.broadcast_to(b.value("dim", value=symbol("n") + 1, dtype=element), (symbol("n"),)),
            *(b.full(data.draw(st.integers(least, 100)), element, (symbol("n"),)) for _ in "ab"),
        ]
        for _ in range(data.draw(st.integers(1, 6))):
            a, c = (data.draw(st.sampled_from(values)) for _ in "ab")
            kind = data.draw(st.sampled_from((*BINARY, "select", "neg", "clamp")))
            if kind == "select":
                direction = data.draw(st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]))
                test = b.value("compare", a, c, direction=direction)
                values += [b.value("select", test, c, a), b.value("convert", test, dtype=element)]
            elif kind == "neg" and element.kind == "i":
                values.append(b.value("neg", a))
            elif kind == "clamp":
                values.append(b.value("clamp", a, values[0], c))
            elif kind in BINARY:
                values.append(b.value(kind, a, c))
        return values

    module = program(draw, f"{element.name}[n]")
    low = 0 if element.kind == "u" else -100
    x = np.array(data.draw(st.lists(st.integers(low, 100), min_size=size, max_size=size)))
    x = x.astype(element.numpy)
    function = module.functions["main"]
    ranges = ranges_of(function)
    results = run(module, x)
    for value, result in zip(function.block.terminator.operands, results, strict=True):
        least, greatest = ranges.get(value, (-np.inf, np.inf))
        assert (result >= least).all()
        assert (result <= greatest).all()
    check_pass((fold_ranges, simplify, eliminate_dead_code), module, x)


def guarded(steps: Any, mode: str = "wrap_check") -> Any:
    """total = total + a[i < 0 ? i + 8 : i] over a counter."""

    def build(b: Builder, a: Value, *count: Value) -> Any:
        def body(b: Builder, i: Value, carried: Sequence[Value]) -> Sequence[Value]:
            index = b.value("rem", i, b.constant(8, "i32"))
            negative = b.value("compare", index, b.constant(0, "i32"), direction="lt")
            moved = b.value("add", index, b.constant(8, "i32"))
            index = b.value("select", negative, moved, index)
            element = b.value("take", a, index, axis=0, mode=mode)
            return [b.value("add", carried[0], element)]

        limit = count[0] if count else b.constant(steps, "i32")
        return counted_loop(b, limit, [b.constant(0, "f32")], body)

    return build


@pytest.mark.parametrize("steps", [5, 20, None])
def test_guards_of_indices_leave_loops(steps: int | None) -> None:
    types = ["f32[8]"] if steps else ["f32[8]", "i32[]"]
    module = program(guarded(steps), *types)
    a = np.arange(8, dtype=np.float32)
    inputs = [a] if steps else [a, np.int32(11)]
    copy = check_pass((fold_ranges, simplify, eliminate_dead_code), module, *inputs)
    assert "select" not in names(copy)
    assert [Take.of(op).mode for op in walk(copy) if op.name == "take"] == ["clamp"]
    assert ("rem" in names(copy)) is (steps != 5)


def test_an_index_that_may_be_out_of_range_stays_checked() -> None:
    def build(b: Builder, a: Value) -> Any:
        def body(b: Builder, i: Value, carried: Sequence[Value]) -> Sequence[Value]:
            return [b.value("add", carried[0], b.value("take", a, i, axis=0, mode="check"))]

        return counted_loop(b, b.constant(8, "i32"), [b.constant(0, "f32")], body)

    for size, mode in ((8, "clamp"), (7, "check")):
        module = fold_ranges(program(build, f"f32[{size}]"))
        assert [Take.of(op).mode for op in walk(module) if op.name == "take"] == [mode]

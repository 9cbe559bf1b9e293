"""Passes over branches and loops: what folds, moves and is batched; results stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.batch_invariants import batch_invariants
from ingot.compiler.graph.control.build_control import branches, counted_loop, while_loop
from ingot.compiler.graph.control.fold_control import fold_control
from ingot.compiler.graph.control.hoist_invariants import hoist_invariants
from ingot.compiler.graph.control.loops import trip_count
from ingot.compiler.graph.folding.eliminate_common_subexpressions import (
    eliminate_common_subexpressions,
)
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.folding.fold_constants import fold_constants
from ingot.compiler.graph.folding.simplify import simplify
from ingot.compiler.graph.forms.split_init import split_init
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.graph.passes import GRAPH_PASSES, run_graph_passes
from ingot.compiler.ir import Module, Op, Value, parse, to_text, verify, walk
from ingot.compiler.ir.dims import symbol
from tests.support.programs import COUNTER, TOTAL, check_pass, module_of, program

FOLD = (
    eliminate_dead_code,
    fold_constants,
    simplify,
    eliminate_common_subexpressions,
    fold_control,
    eliminate_dead_code,
)


def fresh() -> Iterator[str]:
    return (f"fresh_{number}" for number in range(99))


def ops(module: Module, name: str) -> list[Op]:
    return [op for op in walk(module) if op.name == name]


def in_loop(module: Module, name: str) -> list[Op]:
    """The ops of one name that stand in a loop's body."""
    return [op for loop in ops(module, "while") for op in walk(loop.regions[1]) if op.name == name]


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def count_of(b: Builder, number: Any) -> Value:
    if isinstance(number, int):
        return b.constant(number, "i64")
    return b.value("dim", value=number, dtype=b.constant(0, "i64").type.dtype)  # type: ignore[union-attr]


def cell(steps: Any = 5, index: Callable[[Builder, Value], Value] | None = None) -> Any:
    """h = tanh(xs[t] w + h u) over a sequence, with all h stacked."""

    def build(b: Builder, xs: Value, h: Value, w: Value, u: Value) -> Sequence[Value]:
        shape = (steps, *h.type.shape)  # type: ignore[union-attr]
        outputs = b.full(0.0, "f32", shape)

        def body(b: Builder, t: Value, carried: Sequence[Value]) -> Sequence[Value]:
            h, outputs = carried
            x = b.value("take", xs, t if index is None else index(b, t), axis=0, mode="check")
            dot = {"lhs_contract": (1,), "rhs_contract": (0,)}
            scaled = b.value("mul", w, w)
            y = b.value("dot_general", x, scaled, **dot)
            h = b.value("tanh", b.value("add", y, b.value("dot_general", h, u, **dot)))
            row = b.value("reshape", h, shape=(1, *h.type.shape))  # type: ignore[union-attr]
            zero = b.constant(0, "i64")
            outputs = b.value("dynamic_update_slice", outputs, row, t, zero, zero)
            return [h, outputs]

        return counted_loop(b, count_of(b, steps), [h, outputs], body)

    return build


CELL = ("f32[5,2,3]", "f32[2,4]", "f32[3,4]", "f32[4,4]")
CELL_INPUTS = (normal(5, 2, 3), normal(2, 4), normal(3, 4, seed=1), normal(4, 4, seed=2))


def reversed_index(b: Builder, t: Value) -> Value:
    return b.value("sub", b.constant(4, "i64"), t)


@pytest.mark.parametrize("index", [None, reversed_index])
def test_the_input_projection_is_batched_in_front_of_the_loop(index: Any) -> None:
    passes = (*FOLD, hoist_invariants, batch_invariants, eliminate_dead_code)
    module = check_pass(passes, program(cell(5, index), *CELL), *CELL_INPUTS, tolerance=1e-6)
    assert len(in_loop(module, "dot_general")) == 1
    assert not in_loop(module, "mul")
    shapes = [str(op.result.type) for op in ops(module, "dot_general")]
    assert shapes == ["f32[5,2,4]", "f32[2,4]"]


def test_batching_works_with_symbolic_dims() -> None:
    types = ("f32[t,b,3]", "f32[b,4]", *CELL[2:])
    module = program(cell(symbol("t")), *types)
    passes = (*FOLD, hoist_invariants, batch_invariants, eliminate_dead_code)
    for t, b in ((1, 1), (3, 2)):
        inputs = (normal(t, b, 3), normal(b, 4), *CELL_INPUTS[2:])
        folded = check_pass(passes, module, *inputs, tolerance=1e-6)
    assert [str(op.result.type) for op in ops(folded, "dot_general")] == ["f32[t,b,4]", "f32[b,4]"]


def test_a_sequence_that_is_hardly_read_is_not_batched() -> None:
    inputs = (normal(50, 2, 3), *CELL_INPUTS[1:])
    module = check_pass(
        (*FOLD, batch_invariants), program(cell(5), "f32[50,2,3]", *CELL[1:]), *inputs
    )
    assert len(in_loop(module, "dot_general")) == 2


@pytest.mark.parametrize("bake", [False, True])
def test_weights_of_a_loop_body_are_packed_in_init(bake: bool) -> None:
    w, u = normal(3, 70) / 8, normal(70, 70, seed=1) / 8  # too large for fold_constants

    def build(b: Builder, xs: Value, h: Value) -> Any:
        return cell()(b, xs, h, b.constant(w), b.constant(u))

    module = program(build, "f32[5,2,3]", "f32[2,70]")

    def split(module: Module) -> Module:
        return split_init(module, bake)

    passes = (*GRAPH_PASSES[:-1], split)
    copy = check_pass(passes, module, CELL_INPUTS[0], normal(2, 70), tolerance=1e-5)
    assert len(in_loop(copy, "dot_packed")) == 1
    assert not in_loop(copy, "transpose")
    assert ("init" in copy.functions) is not bake


def test_ops_that_may_fail_do_not_leave_a_loop_that_may_not_run() -> None:
    def build(b: Builder, xs: Value, n: Value, i: Value) -> Any:
        def body(b: Builder, t: Value, carried: Sequence[Value]) -> Sequence[Value]:
            row = b.value("take", xs, i, axis=0, mode="check")
            return [b.value("add", carried[0], b.value("exp", row))]

        return counted_loop(b, n, [b.full(0.0, "f32", (2,))], body)

    module = program(build, "f32[3,2]", "i32[]", "i32[]")
    for n, i in ((0, 7), (2, 1)):
        copy = check_pass((*FOLD, hoist_invariants), module, normal(3, 2), np.int32(n), np.int32(i))
        assert len(in_loop(copy, "take")) == 1
        assert len(in_loop(copy, "exp")) == 1


@pytest.mark.parametrize("asked_before", [False, True])
def test_what_asks_for_dims_leaves_a_loop_only_where_that_is_asked_anyway(
    asked_before: bool,
) -> None:
    def build(b: Builder, x: Value, like: Value, n: Value) -> Any:
        def total(b: Builder) -> Value:
            wide = b.value("reshape", x, shape=(*like.type.shape, 3))  # type: ignore[union-attr]
            return b.value("reduce", b.value("exp", wide), axes=(0, 1), kind="add")

        def body(b: Builder, t: Value, carried: Sequence[Value]) -> Sequence[Value]:
            return [b.value("add", carried[0], total(b))]

        start = total(b) if asked_before else b.full(0.0, "f32", ())
        return counted_loop(b, n, [start], body)

    module = program(build, "f32[a,6]", "f32[k]", "i32[]")
    passes = (eliminate_dead_code, hoist_invariants, batch_invariants)
    for n, k in ((0, 2), (2, 2)):
        inputs = normal(1, 6), normal(k), np.int32(n)
        copy = check_pass(passes, module, *inputs, tolerance=1e-6)
        assert len(in_loop(copy, "exp")) == (0 if asked_before else 1)


def test_a_batch_asks_for_no_dims_that_a_loop_of_no_step_would_not_ask() -> None:
    def build(b: Builder, xs: Value, like: Value, w: Value) -> Any:
        def body(b: Builder, t: Value, carried: Sequence[Value]) -> Sequence[Value]:
            x = b.value("take", xs, t, axis=0, mode="check")
            x = b.value("reshape", x, shape=(*like.type.shape, 3))  # type: ignore[union-attr]
            y = b.value("dot_general", x, w, lhs_contract=(1,), rhs_contract=(0,))
            return [b.value("add", carried[0], b.value("reduce", y, axes=(0, 1), kind="add"))]

        steps = count_of(b, symbol("t"))
        return counted_loop(b, steps, [b.full(0.0, "f32", ())], body)

    module = program(build, "f32[t,6]", "f32[k]", "f32[3,4]")
    passes = (eliminate_dead_code, batch_invariants)
    copy = check_pass(passes, module, normal(3, 6), normal(2), normal(3, 4), tolerance=1e-6)
    assert len(in_loop(copy, "dot_general")) == 1


def test_invariants_leave_nested_loops() -> None:
    def build(b: Builder, x: Value, n: Value) -> Any:
        def outer(b: Builder, i: Value, carried: Sequence[Value]) -> Sequence[Value]:
            def inner(b: Builder, j: Value, carried: Sequence[Value]) -> Sequence[Value]:
                fixed = b.value("exp", x)
                shifted = b.value("sin", b.value("convert", i, dtype=x.type.dtype))  # type: ignore[union-attr]
                shifted = b.broadcast_to(shifted, (4,))
                return [b.value("add", carried[0], b.value("mul", fixed, shifted))]

            return counted_loop(b, n, carried, inner)

        return counted_loop(b, n, [x], outer)

    module = program(build, "f32[4]", "i32[]")
    copy = check_pass((*FOLD, hoist_invariants), module, normal(4), np.int32(3))
    (outer,) = (op for op in copy.functions["main"].block.ops if op.name == "while")
    assert "exp" in [op.name for op in copy.functions["main"].block.ops]
    assert "sin" in [op.name for op in outer.regions[1].block.ops]


# Folding


def constant_if(value: bool) -> Any:
    def build(b: Builder, x: Value) -> Any:
        twice = lambda b: [b.value("concatenate", x, x, axis=0)]  # noqa: E731
        (y,) = branches(b, "if", b.constant(value), [twice, lambda b: [x]], fresh())
        return b.value("neg", y)

    return build


@pytest.mark.parametrize(("value", "shape"), [(True, "f32[2*n]"), (False, "f32[n]")])
def test_a_decided_branch_is_inlined_with_its_dims(value: bool, shape: str) -> None:
    module = program(constant_if(value), "f32[n]")
    assert str(module.functions["main"].result_types[0]) == "f32[fresh_0]"
    module = check_pass(FOLD, module, normal(3))
    assert not ops(module, "if")
    assert str(module.functions["main"].result_types[0]) == shape


def test_a_case_of_a_boolean_is_an_if() -> None:
    def build(b: Builder, x: Value, p: Value) -> Any:
        index = b.value("convert", p, dtype=b.constant(0, "i32").type.dtype)  # type: ignore[union-attr]
        builds = [lambda b: [b.value("neg", x)], lambda b: [x]]
        return branches(b, "case", index, builds, fresh())

    module = program(build, "f32[2]", "i1[]")
    for p in (False, True):
        copy = check_pass(FOLD, module, normal(2), np.bool_(p))
        assert len(ops(copy, "if")) == 1


def test_results_that_no_branch_changes_or_nobody_reads_go() -> None:
    def build(b: Builder, x: Value, p: Value) -> Any:
        builds = [
            lambda b: [b.value("neg", x), x, b.value("exp", x)],
            lambda b: [b.value("abs", x), x, b.value("log", x)],
        ]
        first, second, _ = branches(b, "if", p, builds, fresh())
        return b.value("add", first, second)

    copy = check_pass(FOLD, program(build, "f32[2]", "i1[]"), normal(2), np.True_)
    (branch,) = ops(copy, "if")
    assert len(branch.results) == 1
    assert not ops(copy, "exp")


@pytest.mark.parametrize("steps", [0, 1])
def test_a_loop_of_no_or_one_step_goes(steps: int) -> None:
    module = check_pass(
        FOLD, program(cell(1), "f32[1,2,3]", *CELL[1:]), normal(1, 2, 3), *CELL_INPUTS[1:]
    )
    assert not ops(module, "while")

    def build(b: Builder, x: Value) -> Any:
        body = lambda b, t, carried: [b.value("exp", carried[0])]  # noqa: E731
        return counted_loop(b, b.constant(steps, "i32"), [x], body)

    module = check_pass(FOLD, program(build, "f32[2]"), normal(2))
    assert not ops(module, "while")
    assert len(ops(module, "exp")) == steps


def test_values_that_need_not_be_carried_are_not() -> None:
    def build(b: Builder, x: Value, w: Value, n: Value) -> Any:
        zero, yes = b.constant(0, "i32"), b.constant(True)

        def condition(b: Builder, v: Sequence[Value]) -> Value:
            return b.value("and", v[4], b.value("compare", v[1], n, direction="lt"))

        def body(b: Builder, v: Sequence[Value]) -> Sequence[Value]:
            one = b.constant(1, "i32")
            i, j = b.value("add", v[0], one), b.value("add", v[1], one)
            dead = b.value("exp", v[5])
            taken = b.value("convert", v[0], dtype=x.type.dtype)  # type: ignore[union-attr]
            total = b.value("add", v[2], b.value("mul", v[3], b.broadcast_to(taken, (3,))))
            return [i, j, total, v[3], b.constant(True), dead]

        return while_loop(b, [zero, zero, x, w, yes, w], condition, body)[2]

    module = program(build, "f32[3]", "f32[3]", "i32[]")
    copy = check_pass(FOLD, module, normal(3), normal(3, seed=1), np.int32(4))
    copy = check_pass(FOLD, copy, normal(3), normal(3, seed=1), np.int32(4))
    (loop,) = ops(copy, "while")
    assert len(loop.operands) == 2  # a counter and the total
    assert not ops(copy, "exp")


@pytest.mark.parametrize(
    ("direction", "start", "step", "limit"),
    [("lt", 0, 1, 5), ("lt", 3, 2, 8), ("le", 0, 3, 6), ("gt", 9, -2, 0), ("ge", 4, -1, 4),
     ("ne", 0, 1, 4), ("lt", 7, 1, 5), ("gt", 0, -1, 3), ("ne", 4, -1, 0)],
)  # fmt: skip
@pytest.mark.parametrize("swapped", [False, True])
def test_the_trip_count_is_how_often_a_loop_runs(
    direction: str, start: int, step: int, limit: int, swapped: bool
) -> None:
    mirrored = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "ne": "ne"}

    def build(b: Builder) -> Any:
        def condition(b: Builder, v: Sequence[Value]) -> Value:
            bound = b.constant(limit, "i32")
            if swapped:
                return b.value("compare", bound, v[0], direction=mirrored[direction])
            return b.value("compare", v[0], bound, direction=direction)

        def body(b: Builder, v: Sequence[Value]) -> Sequence[Value]:
            one = b.constant(1, "i32")
            return [b.value("add", v[0], b.constant(step, "i32")), b.value("add", one, v[1])]

        initial = [b.constant(start, "i32"), b.constant(0, "i32")]
        return while_loop(b, initial, condition, body)[1]

    module = program(build)
    (loop,) = ops(module, "while")
    assert trip_count(loop) == int(interpret(module, "main", [])[0])


# Effects


def test_stores_stay_in_order_and_loads_are_not_merged() -> None:
    text = COUNTER.replace(
        "return(%old)",
        '%again = variable.load() {name="total", dtype=f32, shape=[2]} : f32[2]\n'
        '%unread = variable.load() {name="total", dtype=f32, shape=[2]} : f32[2]\n'
        "%sum = add(%again, %old) : f32[2]\nreturn(%sum)",
    )
    module = module_of(text, TOTAL)
    x = normal(2)
    wanted: dict[str, Any] = {}
    (before,) = interpret(module, "main", [x], state=wanted)
    run_graph_passes(module)
    verify(module, GRAPH)
    found: dict[str, Any] = {}
    (after,) = interpret(module, "main", [x], state=found)
    np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(wanted["total"], found["total"])
    assert len(ops(module, "variable.load")) == 2


def test_a_loop_that_only_stores_lives() -> None:
    store = """(%n: i32[], %x: f32[2]) -> (f32[2]) {
      %zero = constant() {value=dense<i32[] 0>} : i32[]
      %r = while(%zero) {symbols=[]} : i32[] ({
      ^(%i: i32[]):
        %c = compare(%i, %n) {direction="lt"} : i1[]
        yield(%c)
      }, {
      ^(%i: i32[]):
        %one = constant() {value=dense<i32[] 1>} : i32[]
        %old = variable.load() {name="total", dtype=f32, shape=[2]} : f32[2]
        %new = add(%old, %x) : f32[2]
        variable.store(%new) {name="total"}
        %next = add(%i, %one) : i32[]
        yield(%next)
      })
      return(%x)
    }"""
    module = run_graph_passes(module_of(store, TOTAL))
    verify(module, GRAPH)
    state: dict[str, Any] = {}
    interpret(parse(to_text(module)), "main", [np.int32(3), np.ones(2, np.float32)], state=state)
    np.testing.assert_array_equal(state["total"], [4.5, 4.5])
    assert len(in_loop(module, "variable.load")) == 1

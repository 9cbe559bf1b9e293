"""The order of dispatches: operands are made before they are read, nothing passes what stays where
it is, and of small programs the peak is the least that any order has."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Function, Module, Op, Region, TensorType, Value
from ingot.compiler.ir.dims import Dim, symbol
from ingot.compiler.stream import order_dispatches as order_file
from ingot.compiler.stream import plan_memory as plan_memory_file
from ingot.compiler.stream.homes import alias_root, byte_length
from ingot.compiler.stream.ops import Dispatch, KernelCall, PlannedFunction
from ingot.compiler.stream.order_dispatches import order_dispatches
from ingot.compiler.stream.plan_memory import plan_memory
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype
from tests.support.compiled_programs import Program, build
from tests.support.drawn import examples

F32 = dtype("f32")
B = symbol("b")


class Stream:
    """A stream function of dispatches, written by hand."""

    def __init__(self) -> None:
        self.block = Block([TensorType(F32, (16,))])
        self.argument = self.block.arguments[0]

    def dispatch(self, *operands: Value, length: Dim, in_place: bool = False) -> Value:
        pairs = ((0, 0),) if in_place else ()
        attributes = Dispatch(call=KernelCall(0, (1, 1, 1), 0, 0, ()), in_place=pairs)
        return self.append("stream.dispatch", operands, length, attributes)

    def alias(self, value: Value) -> Value:
        assert isinstance(value.type, TensorType)
        return self.append("stream.alias", [value], *value.type.shape)

    def append(
        self, name: str, operands: Sequence[Value], length: Dim, *attributes: object
    ) -> Value:
        op = Op(name, operands, [TensorType(F32, (length,))], *attributes)
        return self.block.append(op).result

    def function(self, *results: Value) -> Function:
        self.block.append(Op("return", results))
        return Function("main", Region([self.block]), symbols={"b": (1, None)})


def peak(function: Function) -> Dim:
    planned = plan_memory(Module({"main": function})).functions["main"]
    return PlannedFunction.of(planned).slab_length


def wide_first(stream: Stream, length: Dim, small: Dim) -> Value:
    """All long values are made before the first of them is read."""
    wide = [stream.dispatch(stream.argument, length=length) for _ in range(4)]
    return stream.dispatch(*[stream.dispatch(each, length=small) for each in wide], length=16)


def test_long_values_are_read_before_the_next_is_made() -> None:
    stream = Stream()
    assert peak(stream.function(wide_first(stream, 1024, 16))) == 4096 + 4 * 64


def test_sizes_may_be_symbols() -> None:
    stream = Stream()
    assert peak(stream.function(wide_first(stream, B * 256, B * 16))) == B * (1024 + 4 * 64)


@pytest.mark.slow
def test_what_is_ready_is_listed_of_the_sets_that_are_kept_alone() -> None:
    """A program with a thousand shapes has a thousand dispatches that can come first."""
    stream = Stream()
    made = [stream.dispatch(stream.argument, length=place + 1) for place in range(600)]
    function = stream.function(stream.dispatch(*made, length=1))
    tracemalloc.start()
    try:
        order_dispatches(function.block, length_of)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 3 << 19


def test_of_long_programs_fewer_sets_of_a_size_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream()
    made = [stream.dispatch(stream.argument, length=place + 1) for place in range(200)]
    function = stream.function(stream.dispatch(*made, length=1))
    looked_at: list[int] = []
    after = order_file._Run._after

    def counted(run: Any, state: Any, ordinal: int) -> Any:
        looked_at.append(ordinal)
        return after(run, state, ordinal)

    monkeypatch.setattr(order_file._Run, "_after", counted)
    order_dispatches(function.block, length_of)
    many = len(looked_at)
    looked_at.clear()
    monkeypatch.setattr(order_file, "_MOST_SETS", 8 * len(made))
    order_dispatches(function.block, length_of)
    assert len(looked_at) < many / 3


def test_what_stays_where_it_is_is_not_passed() -> None:
    stream = Stream()
    wide = [stream.dispatch(stream.argument, length=1024) for _ in range(2)]
    stream.append("scalar.read", [stream.argument], 1)
    narrow = [stream.dispatch(each, length=16) for each in wide]
    function = stream.function(stream.dispatch(*narrow, length=16))
    names = [op.name for op in function.block.ops]
    assert not order_dispatches(function.block, lambda value: int(byte_length(value)))
    assert [op.name for op in function.block.ops] == names


def test_bodies_of_loops_are_ordered_too() -> None:
    stream = Stream()
    wide_first(stream, 1024, 16)
    body = stream.block
    body.append(Op("yield", [body.ops[-1].result]))
    outer = Block([TensorType(F32, (16,))])
    loop = Op("if", outer.arguments, [TensorType(F32, (16,))], regions=[Region([body])])
    outer.append(loop)
    outer.append(Op("return", [loop.result]))
    assert order_dispatches(outer, lambda value: int(byte_length(value)))
    assert [len(op.operands) for op in body.ops] == [1] * 8 + [4, 1]
    assert body.ops[1].operands == [body.ops[0].result]


# Drawn programs.


@st.composite
def programs(draw: st.DrawFn) -> Function:
    stream = Stream()
    values = [stream.argument]
    for _ in range(draw(st.integers(2, 6))):
        operands = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
        if draw(st.booleans()):
            operands[0] = stream.alias(operands[0])
        length = draw(st.sampled_from([16, 32, 48, 160, 800]))
        values.append(stream.dispatch(*operands, length=length, in_place=draw(st.booleans())))
    results = draw(st.lists(st.sampled_from(values[1:]), min_size=1, max_size=2, unique=True))
    return stream.function(*results)


def length_of(value: Value) -> int:
    return int(byte_length(value))


def bytes_in_use(ops: Sequence[Op], returned: Sequence[Value]) -> int:
    """The most working memory that is in use while these ops run, value by value."""
    elsewhere = set(map(alias_root, returned))
    most, live = 0, set[Value]()
    for place, op in enumerate(ops):
        if op.name != "stream.dispatch":
            continue
        rest = {alias_root(value) for each in ops[place + 1 :] for value in each.operands}
        gone = live - rest
        live |= {op.result} - elsewhere
        taken = 0
        first = alias_root(op.operands[0])
        if Dispatch.of(op).in_place and op.result in live and first in gone:
            taken = length_of(first) if length_of(first) == length_of(op.result) else 0
        most = max(most, sum(map(length_of, live)) - taken)
        live &= rest
    return most


def orders(left: Sequence[Op], done: Sequence[Op] = ()) -> Iterator[list[Op]]:
    """All orders in which operands are made before they are read."""
    if not left:
        yield list(done)
    made = {op.result for op in done}
    for op in left:
        if all(not isinstance(value.owner, Op) or value in made for value in op.operands):
            yield from orders([each for each in left if each is not op], [*done, op])


@examples(60)
@given(programs())
def test_the_peak_of_small_programs_is_the_least_of_all_orders(function: Function) -> None:
    block = function.block
    *given_ops, end = block.ops
    before = bytes_in_use(given_ops, end.operands)
    changed = order_dispatches(block, length_of)
    *ops, last = block.ops
    assert last is end
    assert set(ops) == set(given_ops)
    assert len(ops) == len(given_ops)
    made = set(block.arguments)
    for op in ops:
        assert made.issuperset(op.operands)
        made.update(op.results)
    after = bytes_in_use(ops, end.operands)
    assert changed == (after < before)
    assert after == min(bytes_in_use(each, end.operands) for each in orders(given_ops))


@examples(60)
@given(programs())
def test_the_plan_is_never_longer_than_that_of_the_given_order(function: Function) -> None:
    found = peak(function)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(plan_memory_file, "order_dispatches", in_given_order)
        assert int(found) <= int(peak(function))


def in_given_order(*_: object) -> bool:
    return False


# A whole program.


def branches(builder: Builder, x: Value, w: Value) -> list[Value]:
    """Three wide products, all of them before their rows are added up."""
    dims = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (1,), "rhs_contract": (0,)}
    inputs = [builder.op(name, x) for name in ("neg", "abs", "sign")]
    wide = [builder.op("dot_general", each, w, **dims, dtype=F32) for each in inputs]
    rows = [builder.op("reduce", each, axes=(1,), kind="add") for each in wide]
    return [builder.op("add", builder.op("add", rows[0], rows[1]), rows[2])]


@pytest.mark.slow
def test_a_program_in_another_order_has_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = ("f32", (B, 16)), ("f32", (16, 1024))
    source = build(branches, *shapes, symbols={"b": (1, 64)})
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape, np.float32) for shape in ((5, 16), (16, 1024))]
    program = Program(source)
    program.check(*arrays, tolerance=1e-5)
    monkeypatch.setattr(plan_memory_file, "order_dispatches", in_given_order)
    other = Program(build(branches, *shapes, symbols={"b": (1, 64)}))
    for target in program.models:
        found = program.call(*arrays, target=target)
        assert found[0].tobytes() == other.call(*arrays, target=target)[0].tobytes()
    program.module.report.check_memory(400_000)
    with pytest.raises(CompileError, match="more than the 400"):
        other.module.report.check_memory(400_000)

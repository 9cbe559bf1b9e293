"""Memory planning: lifetimes, reuse in place, results written where the caller wants them."""

from __future__ import annotations

import time

from ingot.compiler.ir import Block, Function, Module, Op, Region, TensorType, Value
from ingot.compiler.ir.dims import Dim, symbol
from ingot.compiler.stream.ops import (
    Dispatch,
    InSlab,
    KernelCall,
    Named,
    Place,
    Placed,
    PlannedFunction,
)
from ingot.compiler.stream.plan_memory import plan_memory
from ingot.hal.spec import dtype

F32 = dtype("f32")
B = symbol("b")
SHAPE: tuple[Dim, ...] = (B, 64)


class Stream:
    """Writes a stream function by hand."""

    def __init__(self, *shapes: tuple[Dim, ...]) -> None:
        self.block = Block(TensorType(F32, shape) for shape in shapes)

    def dispatch(
        self, *operands: Value, shape: tuple[Dim, ...] = SHAPE, in_place: bool = False
    ) -> Value:
        pairs = ((0, 0),) if in_place else ()
        attributes = Dispatch(call=KernelCall(0, (1, 1, 1), 0, 0, ()), in_place=pairs)
        op = Op("stream.dispatch", operands, [TensorType(F32, shape)], attributes)
        return self.block.append(op).result

    def alias(self, value: Value, shape: tuple[Dim, ...]) -> Value:
        return self.block.append(Op("stream.alias", [value], [TensorType(F32, shape)])).result

    def plan(self, *results: Value, name: str = "main") -> Function:
        self.block.append(Op("return", results))
        module = Module()
        module.add(Function(name, Region([self.block]), symbols={"b": (1, None)}))
        return plan_memory(module).functions[name]


def places(function: Function) -> list[Place | None]:
    found = [op.attributes for op in function.block.ops]
    return [place for each in found if isinstance(each, Placed) for place in each.places]


def test_a_chain_needs_two_ranges() -> None:
    stream = Stream(SHAPE)
    value = stream.block.arguments[0]
    for _ in range(6):
        value = stream.dispatch(value)
    planned = stream.plan(stream.dispatch(value))
    assert PlannedFunction.of(planned).slab_length == B * 512
    assert places(planned)[-1] == Named("result", 0)


def test_a_kernel_that_may_writes_over_its_operand() -> None:
    stream = Stream(SHAPE)
    value = stream.dispatch(stream.block.arguments[0])
    for _ in range(6):
        value = stream.dispatch(value, in_place=True)
    planned = stream.plan(stream.dispatch(value))
    assert PlannedFunction.of(planned).slab_length == B * 256


def test_an_operand_that_is_read_later_is_not_written_over() -> None:
    stream = Stream(SHAPE)
    first = stream.dispatch(stream.block.arguments[0])
    second = stream.dispatch(first, in_place=True)
    planned = stream.plan(stream.dispatch(first, second))
    assert places(planned)[:2] == [InSlab("slab", 0), InSlab("slab", B * 256)]


def test_an_operand_that_is_passed_twice_is_not_written_over() -> None:
    stream = Stream(SHAPE)
    first = stream.dispatch(stream.block.arguments[0])
    second = stream.dispatch(first, stream.alias(first, (64, B)), in_place=True)
    planned = stream.plan(stream.dispatch(second))
    assert places(planned)[:2] == [InSlab("slab", 0), InSlab("slab", B * 256)]


def test_arguments_are_never_written_over() -> None:
    stream = Stream(SHAPE)
    planned = stream.plan(
        stream.dispatch(stream.dispatch(stream.block.arguments[0], in_place=True))
    )
    assert places(planned) == [InSlab("slab", 0), Named("result", 0)]


def test_an_alias_keeps_its_bytes_alive() -> None:
    stream = Stream(SHAPE)
    first = stream.dispatch(stream.block.arguments[0])
    view = stream.alias(first, (64, B))
    second = stream.dispatch(stream.block.arguments[0])
    planned = stream.plan(stream.dispatch(view, second))
    assert PlannedFunction.of(planned).slab_length == B * 512


def test_a_result_that_others_read_lies_in_the_callers_memory() -> None:
    stream = Stream(SHAPE)
    first = stream.dispatch(stream.block.arguments[0])
    planned = stream.plan(stream.dispatch(first, in_place=True), stream.alias(first, (64, B)))
    assert places(planned) == [Named("result", 1), Named("result", 0)]
    assert PlannedFunction.of(planned).slab_length == 0


def test_init_keeps_its_results_and_reuses_the_rest() -> None:
    stream = Stream((64,))
    argument = stream.block.arguments[0]
    kept = stream.dispatch(stream.dispatch(argument, shape=(64,)), shape=(64,))
    planned = stream.plan(kept, stream.dispatch(argument, shape=(64,)), name="init")
    assert places(planned) == [InSlab("arena", 0), InSlab("arena", 256), InSlab("arena", 0)]
    assert PlannedFunction.of(planned).slab_length == 512


def test_a_value_that_is_returned_many_times_takes_time_for_each_alone() -> None:
    stream = Stream(SHAPE)
    value = stream.dispatch(stream.block.arguments[0])
    start = time.process_time()
    planned = stream.plan(*[value] * 2000)
    assert time.process_time() - start < 5
    assert places(planned) == [Named("result", 0)] + [Named("result", k) for k in range(1, 2000)]

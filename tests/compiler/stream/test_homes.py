"""Homes of what loops carry and branches give: made in place where nobody sees it, else copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.graph.ops import Size
from ingot.compiler.ir import (
    Block,
    Function,
    Module,
    Op,
    Region,
    ScalarType,
    TensorType,
    Value,
    walk,
)
from ingot.compiler.ir.dims import symbol
from ingot.compiler.stream.ops import (
    Dispatch,
    InSlab,
    KernelCall,
    Named,
    Place,
    Placed,
    PlannedControl,
    PlannedFunction,
    PlannedRows,
)
from ingot.compiler.stream.plan_memory import plan_memory
from ingot.hal.spec import dtype

F32 = dtype("f32")
ROW = TensorType(F32, (64,))
NO_CALL = KernelCall(0, (1, 1, 1), 0, 0, ())
FLAG = ScalarType(dtype("i1"))


def dispatch(block: Block, *operands: Value, in_place: bool = True) -> Value:
    """A kernel that may write over its first operand."""
    pairs = ((0, 0),) if in_place and operands else ()
    attributes = Dispatch(call=NO_CALL, in_place=pairs)
    return block.append(Op("stream.dispatch", operands, [ROW], attributes)).result


def flag(block: Block) -> Value:
    return block.append(Op("constant", [], [FLAG])).result


def loop(
    block: Block, initial: Sequence[Value], body: Callable[[Block, list[Value]], Sequence[Value]]
) -> list[Value]:
    types = [value.type for value in initial]
    test, step = Block(types), Block(types)
    test.append(Op("yield", [flag(test)]))
    step.append(Op("yield", body(step, step.arguments)))
    op = Op("while", initial, types, PlannedControl(), [Region([test]), Region([step])])
    return block.append(op).results


def plan(block: Block, *results: Value) -> Function:
    block.append(Op("return", results))
    module = Module()
    module.add(Function("main", Region([block])))
    return plan_memory(module).functions["main"]


def count(function: Function, name: str) -> int:
    return sum(op.name == name for op in walk(function))


def places(function: Function, name: str) -> list[Place | None]:
    return [each for op in walk(function) if op.name == name for each in Placed.of(op).places]


def test_a_loop_runs_in_the_memory_of_the_result() -> None:
    block = Block()
    (result,) = loop(block, [dispatch(block)], lambda b, carried: [dispatch(b, *carried)])
    planned = plan(block, result)
    assert count(planned, "stream.copy") == 0
    assert PlannedFunction.of(planned).slab_length == 0
    assert set(places(planned, "stream.dispatch")) == {Named("result", 0)}


def test_a_chain_of_kernels_moves_into_the_home() -> None:
    block = Block()

    def body(b: Block, carried: list[Value]) -> list[Value]:
        return [dispatch(b, dispatch(b, dispatch(b, carried[0])))]

    (result,) = loop(block, [dispatch(block)], body)
    planned = plan(block, result)
    assert count(planned, "stream.copy") == 0
    assert set(places(planned, "stream.dispatch")) == {Named("result", 0)}


def test_a_kernel_that_cannot_work_in_place_has_its_result_copied() -> None:
    block = Block()

    def body(b: Block, carried: list[Value]) -> list[Value]:
        return [dispatch(b, *carried, in_place=False)]

    (result,) = loop(block, [dispatch(block)], body)
    planned = plan(block, result)
    assert places(planned, "stream.copy") == [Named("result", 0)]
    assert PlannedFunction.of(planned).slab_length == 256


def test_an_old_value_that_is_still_read_is_not_written_over() -> None:
    block = Block()

    def body(b: Block, carried: list[Value]) -> list[Value]:
        following = dispatch(b, carried[0])
        return [dispatch(b, following, carried[0], in_place=False)]

    (result,) = loop(block, [dispatch(block)], body)
    assert count(plan(block, result), "stream.copy") == 1


def test_the_next_value_waits_for_readers_of_the_old_one() -> None:
    block = Block()

    def body(b: Block, carried: list[Value]) -> list[Value]:
        following = dispatch(b, carried[0])
        return [following, dispatch(b, carried[1], carried[0])]

    results = loop(block, [dispatch(block), dispatch(block)], body)
    assert count(plan(block, *results), "stream.copy") == 0


def copies_in_a_step(planned: Function) -> int:
    (op,) = (op for op in planned.block.ops if op.name == "while")
    return sum(each.name == "stream.copy" for each in op.regions[1].block.ops)


def test_values_that_change_places_are_not_copied_in_a_step() -> None:
    block = Block()
    results = loop(block, [dispatch(block), dispatch(block)], lambda b, carried: carried[::-1])
    planned = plan(block, *results)
    assert copies_in_a_step(planned) == 0
    assert count(planned, "stream.copy") == 2  # in front


def test_a_new_value_takes_the_place_that_one_leaves() -> None:
    block = Block()
    initial = [dispatch(block), dispatch(block)]
    results = loop(block, initial, lambda b, carried: [carried[1], dispatch(b, *carried)])
    planned = plan(block, *results)
    assert copies_in_a_step(planned) == 0
    (op,) = (op for op in planned.block.ops if op.name == "while")
    assert PlannedControl.of(op).sources == (1, 0)
    assert Placed.of(op.regions[1].block.ops[0]).places == (Named("carried", 0),)


def test_a_branch_gives_an_outer_value_in_its_own_memory() -> None:
    block = Block()
    x, selector = dispatch(block), flag(block)
    kept, changed = Block(), Block()
    kept.append(Op("yield", [x]))
    changed.append(Op("yield", [dispatch(changed, x)]))
    regions = [Region([kept]), Region([changed])]
    result = block.append(Op("if", [selector], [ROW], PlannedControl(), regions)).result
    planned = plan(block, dispatch(block, result, result, in_place=False))
    assert count(planned, "stream.copy") == 0
    assert PlannedFunction.of(planned).slab_length == 256


def test_an_argument_is_copied_before_a_loop_changes_it() -> None:
    block = Block([ROW])
    (result,) = loop(block, block.arguments, lambda b, carried: [dispatch(b, *carried)])
    assert places(plan(block, result), "stream.copy") == [Named("result", 0)]


def test_nested_loops_share_one_home() -> None:
    block = Block()

    def outer(b: Block, carried: list[Value]) -> list[Value]:
        return loop(b, carried, lambda c, inner: [dispatch(c, *inner)])

    (result,) = loop(block, [dispatch(block)], outer)
    planned = plan(block, result)
    assert count(planned, "stream.copy") == 0
    assert PlannedFunction.of(planned).slab_length == 0


def test_a_branch_that_keeps_the_value_does_nothing() -> None:
    block = Block()

    def body(b: Block, carried: list[Value]) -> list[Value]:
        then, otherwise = Block(), Block()
        then.append(Op("yield", [dispatch(then, *carried)]))
        otherwise.append(Op("yield", carried))
        regions = [Region([then]), Region([otherwise])]
        return b.append(Op("if", [flag(b)], [ROW], PlannedControl(), regions)).results

    (result,) = loop(block, [dispatch(block)], body)
    assert count(plan(block, result), "stream.copy") == 0


def test_what_a_loop_captures_keeps_its_memory() -> None:
    block = Block()
    captured = dispatch(block)

    def body(b: Block, carried: list[Value]) -> list[Value]:
        temporary = dispatch(b, in_place=False)
        return [dispatch(b, *carried, captured, temporary)]

    (result,) = loop(block, [dispatch(block)], body)
    planned = plan(block, result)
    assert PlannedFunction.of(planned).slab_length == 512
    slab = [place for place in places(planned, "stream.dispatch") if isinstance(place, InSlab)]
    assert slab == [InSlab("slab", 0), InSlab("slab", 256)]


def test_an_update_writes_into_its_operand_or_a_copy() -> None:
    for reads_old in (False, True):
        block = Block()
        old, row = dispatch(block), dispatch(block)
        new = block.append(Op("update", [old, row], [ROW], PlannedRows(0))).result
        last = dispatch(block, new, old if reads_old else row, in_place=False)
        assert count(plan(block, last), "stream.copy") == int(reads_old)


def test_a_result_is_not_made_before_its_dims_are_known() -> None:
    block = Block()
    made = dispatch(block)
    count = dispatch(block)
    sizes = Size(symbols=("k",), high=9)
    block.append(Op("stream.size", [count], [], sizes))
    named = block.append(Op("stream.alias", [made], [TensorType(F32, (symbol("k"),))])).result
    planned = plan(block, named)
    ops = [op.name for op in planned.block.ops]
    assert ops.index("stream.copy") > ops.index("stream.size")
    assert Placed.of(planned.block.ops[0]).places == (InSlab("slab", 0),)

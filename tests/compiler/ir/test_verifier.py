"""The verifier finds what breaks the structure, and lists all of it."""

from __future__ import annotations

import re
import time

import pytest

from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir import (
    Block,
    Function,
    Level,
    Module,
    Op,
    Region,
    ScalarType,
    TensorType,
    parse,
    verify,
)
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype

PLAIN = Level("plain", dict.fromkeys(("if", "neg", "yield", "return")))


def refused(body: str, arguments: str = "%x: f32[2]") -> str:
    module = parse(f"module {{}} {{ func @main({arguments}) {{ {body} }} }}")
    with pytest.raises(CompileError) as caught:
        verify(module, GRAPH)
    return str(caught.value)


def test_a_right_module_passes() -> None:
    text = "module {} { func @main(%x: f32[n]) { %0 = add(%x, %x) : f32[n] return(%0) } }"
    verify(parse(text), GRAPH)


def test_unknown_ops_are_illegal() -> None:
    assert "op 'nonsense' at 'a/b': is not legal at the graph level" in refused(
        '%0 = nonsense(%x) : f32[2] loc("a/b") return(%0)'
    )


def test_result_types_follow_the_op_table() -> None:
    message = refused("%0 = add(%x, %x) : f32[3] return(%0)")
    assert "has the results (f32[3]), but the op table says (f32[2])" in message


def test_attributes_are_checked() -> None:
    message = refused("%0 = iota() {dtype=f32, shape=[2], axis=1} : f32[2] return(%0)")
    assert "axis 1 is not in 0 ... 0" in message


def test_a_block_ends_with_its_only_terminator() -> None:
    assert "without a terminator" in refused("%0 = neg(%x) : f32[2]")
    assert "stands before the end" in refused("return(%x) return(%x)")


def test_every_error_is_listed() -> None:
    message = refused("%0 = neg(%x) : f32[3] %1 = odd(%x) : f32[2] return(%1)")
    assert message.count("\n") == 2


def test_a_value_is_not_used_before_its_definition() -> None:
    module = parse(
        "module {} { func @main(%x: f32[2]) "
        "{ %0 = neg(%x) : f32[2] %1 = neg(%0) : f32[2] return(%1) } }"
    )
    ops = module.functions["main"].block.ops
    ops[0], ops[1] = ops[1], ops[0]
    with pytest.raises(CompileError, match="is not defined before it"):
        verify(module, GRAPH)


@pytest.mark.parametrize("bounds", ["[-4, 8]", "[-1, none]", "[5, 4]"])
def test_bounds_that_no_dim_has_are_refused(bounds: str) -> None:
    text = "module {} { func @main(%x: f32[n]) symbols {n in BOUNDS} { return(%x) } }"
    verify(parse(text.replace("BOUNDS", "[0, 0]")), GRAPH)
    with pytest.raises(CompileError, match=f"the dim 'n' is in {re.escape(bounds)}"):
        verify(parse(text.replace("BOUNDS", bounds)), GRAPH)


def branches(count: int) -> Module:
    """Branches behind each other, each of what the one before gives."""
    type = TensorType(dtype("f32"), (2,))
    block = Block([ScalarType(dtype("i1")), type])
    predicate, value = block.arguments
    for _ in range(count):
        first, second = Block(), Block()
        first.append(Op("neg", [value], [type]))
        first.append(Op("yield", first.ops[0].results))
        second.append(Op("yield", [value]))
        op = Op("if", [predicate], [type], regions=[Region([first]), Region([second])])
        value = block.append(op).result
    block.append(Op("return", [value]))
    return Module({"main": Function("main", Region([block]))})


def test_a_value_of_a_branch_is_not_used_outside_of_it() -> None:
    module = branches(2)
    verify(module, PLAIN)
    first, second, last = module.functions["main"].block.ops
    inner = first.regions[0].block.ops[0].result
    first.regions[1].block.terminator.operands = [inner]
    last.operands = [inner]
    second.regions[1].block.terminator.operands = [first.result]
    with pytest.raises(CompileError) as caught:
        verify(module, PLAIN)
    assert str(caught.value).count("is not defined before it") == 2


def test_branches_are_verified_in_time_in_proportion_to_their_count() -> None:
    def seconds(count: int) -> float:
        module, times = branches(count), []
        for _ in range(3):
            start = time.process_time()
            verify(module, PLAIN)
            times.append(time.process_time() - start)
        return min(times)

    assert seconds(8000) < 24 * seconds(1000)

"""The verifier finds what breaks the structure, and lists all of it."""

from __future__ import annotations

import re

import pytest

from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir import parse, verify
from ingot.hal.errors import CompileError


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

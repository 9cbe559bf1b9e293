"""Ops whose result dims depend on data, in the interpreter and through the passes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hypothesis_numpy

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.folding.eliminate_common_subexpressions import (
    eliminate_common_subexpressions,
)
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.forms.expand_nonzero import expand_nonzero
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir import Module, Value, verify, walk
from ingot.compiler.ir.dims import symbol
from ingot.compiler.ir.parser import parse
from ingot.compiler.ir.printer import to_text
from ingot.hal.errors import CompileError, InvalidArgument
from ingot.hal.spec import dtype
from tests.support.drawn import examples
from tests.support.programs import program

I64 = dtype("i64")


def places(b: Builder, x: Value) -> Value:
    return b.value("nonzero", x, symbols=("n",))


def count_up(b: Builder, x: Value) -> Value:
    b.op("size", x, symbols=("n",), what="the count", high=100)
    return b.value("iota", dtype=I64, shape=(symbol("n"),), axis=0)


MATRICES = hypothesis_numpy.arrays(
    np.float32,
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    elements=st.sampled_from([0.0, -0.0, 1.0, float("nan")]),
)


@given(MATRICES)
@examples(40)
def test_nonzero_counts_and_fills_what_numpy_finds(x: np.ndarray) -> None:
    module = program(places, "f32[a,b]")
    verify(module, GRAPH)
    (found,) = interpret(module, "main", [x])
    np.testing.assert_array_equal(found, np.stack(np.nonzero(x)))
    expand_nonzero(module)
    verify(module, GRAPH)
    assert "nonzero" not in {op.name for op in walk(module)}
    (again,) = interpret(module, "main", [x])
    np.testing.assert_array_equal(again, found)


def test_a_size_is_the_dim_of_what_follows() -> None:
    module = program(count_up, "i64[]")
    (found,) = interpret(parse(to_text(module)), "main", [np.array(5)])
    np.testing.assert_array_equal(found, np.arange(5))


@pytest.mark.parametrize("number", [-1, 101])
def test_a_size_outside_of_its_bounds_is_an_error(number: int) -> None:
    with pytest.raises(InvalidArgument, match=f"the count is {number}, expected 0 to 100"):
        interpret(program(count_up, "i64[]"), "main", [np.array(number)])


def test_a_size_lives_as_long_as_its_symbol_is_used() -> None:
    def unused(b: Builder, x: Value) -> Value:
        count_up(b, x)
        return b.value("neg", x)

    def names(module: Module) -> list[str]:
        return [op.name for op in walk(eliminate_dead_code(module))]

    assert names(program(count_up, "i64[]")) == ["size", "iota", "return"]
    assert names(program(unused, "i64[]")) == ["neg", "return"]


def test_a_size_that_must_be_one_number_is_a_check_that_stays() -> None:
    def build(b: Builder, x: Value) -> Value:
        b.op("size", x, symbols=("n",), low=3, high=3)
        return b.value("neg", x)

    module = eliminate_dead_code(program(build, "i64[]"))
    with pytest.raises(InvalidArgument, match="a size is 4, expected 3 to 3"):
        interpret(module, "main", [np.array(4)])


def test_sizes_of_one_value_with_two_names_stay_apart() -> None:
    def build(b: Builder, x: Value) -> Value:
        b.op("size", x, symbols=("n",))
        b.op("size", x, symbols=("m",))
        shape = (symbol("n"), symbol("m"))
        return b.value("iota", dtype=I64, shape=shape, axis=0)

    module = eliminate_common_subexpressions(program(build, "i64[]"))
    verify(module, GRAPH)
    assert sum(op.name == "size" for op in walk(module)) == 2


def test_a_symbol_is_defined_once() -> None:
    def build(b: Builder, x: Value) -> Value:
        b.op("size", x, symbols=("n",))
        return count_up(b, x)

    with pytest.raises(CompileError, match="defines the symbol 'n' again"):
        verify(program(build, "i64[]"), GRAPH)


def test_a_reshape_to_symbols_from_data_is_left_to_the_call() -> None:
    def build(b: Builder, x: Value, n: Value) -> Value:
        b.op("size", n, symbols=("n",))
        return b.value("reshape", x, shape=(symbol("n"), 2))

    verify(program(build, "f32[a,6]", "i64[]"), GRAPH)


RELATED = """module {} {
  func @main(%x: f32[a], %y: f32[b]) -> (f32[a]) symbols {a in [0, none], b in [0, none]} {
    assert() {kind="le", a=<b>, b=<a>} loc("shorter")
    assert() {kind="equal", a=<mod(a, 2)>, b=0}
    return(%x)
  }
}
"""


def test_an_assertion_is_kept_and_ends_the_call() -> None:
    module = eliminate_common_subexpressions(eliminate_dead_code(parse(RELATED)))
    verify(module, GRAPH)
    assert to_text(parse(to_text(module))) == to_text(module)
    for a, b, message in ((4, 2, ""), (4, 5, "'shorter': 5 is not at most 4"), (3, 0, "1 is not")):
        arguments = [np.zeros(a, np.float32), np.zeros(b, np.float32)]
        if message:
            with pytest.raises(InvalidArgument, match=message):
                interpret(module, "main", arguments)
        else:
            interpret(module, "main", arguments)


def test_dims_of_arguments_are_solved_for_their_symbols() -> None:
    module = parse(
        "module {} {\n func @main(%x: f32[2*a+1], %y: f32[a+b]) -> (f32[a+b]) "
        "symbols {a in [0, none], b in [0, none]} {\n return(%y)\n }\n}"
    )
    interpret(module, "main", [np.zeros(5, np.float32), np.zeros(9, np.float32)])
    with pytest.raises(InvalidArgument, match=r"dim 0 .'2[*]a[+]1'. is 4, expected 3"):
        interpret(module, "main", [np.zeros(4, np.float32), np.zeros(9, np.float32)])

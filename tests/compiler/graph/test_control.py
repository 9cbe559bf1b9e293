"""Branches, loops and variables: text form, rules, verifier and interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.graph.interpreter import interpret
from ingot.hal.errors import CompileError
from tests.support.programs import COUNTER, TOTAL, module_of

SUM_TO = """(%n: i32[], %x: f32[4]) -> (i32[], f32[4]) {
  %zero = constant() {value=dense<i32[] 0>} : i32[]
  %one = constant() {value=dense<i32[] 1>} : i32[]
  %a, %b = while(%zero, %x) {symbols=[]} : i32[], f32[4] ({
  ^(%i: i32[], %s: f32[4]):
    %c = compare(%i, %n) {direction="lt"} : i1[]
    yield(%c)
  }, {
  ^(%i: i32[], %s: f32[4]):
    %next = add(%i, %one) : i32[]
    %t = add(%s, %x) : f32[4]
    yield(%next, %t)
  })
  return(%a, %b)
}"""


@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_loop_carries_values_and_captures_others(count: int) -> None:
    x = np.arange(4, dtype=np.float32)
    steps, total = interpret(module_of(SUM_TO), "main", [np.int32(count), x])
    assert steps == count
    np.testing.assert_array_equal(total, x * (count + 1))


def branch(then: str, other: str, result: str, symbols: str) -> str:
    return f"""(%p: i1[], %x: f32[2,n]) -> ({result}) {{
  %r = if(%p) {{symbols={symbols}}} : {result} ({{
  ^():
    {then}
  }}, {{
  ^():
    {other}
  }})
  %s = neg(%r) : {result}
  %d = dim() {{value=<m>, dtype=i64}} : i64[]
  return(%s)
}}"""


SAME = "%a = neg(%x) : f32[2,n]\nyield(%a)"
TWICE = "%b = concatenate(%x, %x) {axis=1} : f32[2,2*n]\nyield(%b)"


def test_branches_that_differ_in_a_dim_give_a_fresh_symbol() -> None:
    module = module_of(branch(SAME, TWICE, "f32[2,m]", '["m"]'))
    x = np.ones((2, 3), np.float32)
    assert interpret(module, "main", [np.True_, x])[0].shape == (2, 3)
    assert interpret(module, "main", [np.False_, x])[0].shape == (2, 6)


@pytest.mark.parametrize(
    ("other", "result", "symbols", "message"),
    [
        (TWICE, "f32[2,n]", "[]", "1 dims differ between the branches, but 0 symbols"),
        (SAME, "f32[2,m]", '["m"]', "0 dims differ"),
        ("%b = convert(%x) {dtype=f16} : f16[2,n]\nyield(%b)", "f32[2,n]", "[]", "not in rank or"),
        ("%b = reshape(%x) {shape=[<2*n>]} : f32[2*n]\nyield(%b)", "f32[2,n]", "[]", "not in rank"),
        ("yield()", "f32[2,n]", "[]", "branch 1 yields 0 values, but branch 0 yields 1"),
    ],
)
def test_branches_must_agree(other: str, result: str, symbols: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        module_of(branch(SAME.replace("%a", "%q"), other, result, symbols))


def test_an_index_out_of_range_takes_the_last_branch() -> None:
    branches = "}, {\n".join(
        f"^():\n%c{n} = constant() {{value=dense<i32[] {n}>}} : i32[]\nyield(%c{n})\n"
        for n in range(3)
    )
    module = module_of(
        f"(%i: i32[]) -> (i32[]) {{\n%r = case(%i) {{symbols=[]}} : i32[] ({{\n{branches}}})\n"
        "return(%r)\n}"
    )
    got = [int(interpret(module, "main", [np.int32(i)])[0]) for i in (-1, 0, 1, 2, 3)]
    assert got == [2, 0, 1, 2, 2]


GROW = """(%k: i32[]) -> (f32[n]) {
  %zero = constant() {value=dense<i32[] 0>} : i32[]
  %one = constant() {value=dense<i32[] 1>} : i32[]
  %empty = constant() {value=dense<f32[0] 0.0>} : f32[0]
  %a, %b = while(%zero, %empty) {symbols=["n"]} : i32[], f32[n] ({
  ^(%i: i32[], %s: f32[n]):
    %c = compare(%i, %k) {direction="lt"} : i1[]
    yield(%c)
  }, {
  ^(%i: i32[], %s: f32[n]):
    %next = add(%i, %one) : i32[]
    %d = dim() {value=<n>, dtype=f32} : f32[]
    %e = reshape(%d) {shape=[1]} : f32[1]
    %t = concatenate(%s, %e) {axis=0} : f32[n+1]
    yield(%next, %t)
  })
  return(%b)
}""".replace(
    "%d = dim() {value=<n>, dtype=f32} : f32[]",
    "%j = dim() {value=<n>, dtype=i32} : i32[]\n%d = convert(%j) {dtype=f32} : f32[]",
)


def test_a_carried_dim_can_grow() -> None:
    module = module_of(GROW)
    (result,) = interpret(module, "main", [np.int32(4)])
    np.testing.assert_array_equal(result, np.arange(4, dtype=np.float32))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("yield(%next, %t)", "yield(%next, %next)", "carried value 1 is f32.4., but is yielded as"),
        ("yield(%next, %t)", "yield(%next)", "carries 2 values, but 1 are given"),
        ("yield(%c)", "yield(%i)", "must yield one i1"),
        ("while(%zero, %x)", "while(%zero, %n)", "starts as i32"),
        ("symbols=[]", 'symbols=["q"]', "symbol 'q' is no dim of a carried value"),
    ],
)
def test_a_wrong_loop_is_refused(old: str, new: str, message: str) -> None:
    assert old in SUM_TO
    with pytest.raises(CompileError, match=message):
        module_of(SUM_TO.replace(old, new))


def test_a_variable_keeps_what_was_stored() -> None:
    module = module_of(COUNTER, TOTAL)
    state: dict[str, np.ndarray] = {}  # type: ignore[type-arg]
    x = np.array([1, 2], np.float32)
    results = [interpret(module, "main", [x], state=state)[0] for _ in range(3)]
    np.testing.assert_array_equal(results, [[1.5, 1.5], [2.5, 3.5], [3.5, 5.5]])
    np.testing.assert_array_equal(state["total"], [4.5, 7.5])


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("", "names the variable '@total'; the variables are: none"),
        ("variable @total: f32[3] = dense<f32[] 0.0>", r"has the type f32\[2\], expected f32\[3\]"),
        ("variable @total: f32[2] = dense<f32[3] 0.0>", r"but starts as f32\[3\]"),
        ("variable @total: f32[2,n] = dense<f32[] 0.0>", "all dims but the first are static"),
    ],
)
def test_variables_are_verified(head: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        module_of(COUNTER, head)

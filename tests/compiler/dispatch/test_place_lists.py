"""Slots of lists: changed in place where nobody reads the old list, else copied."""

from __future__ import annotations

from ingot.compiler.dispatch.place_lists import place_lists
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.ir import parse, verify, walk

HEAD = "module {} { func @main(%x: f32[n,4], %p: i1[], %k: i64[]) -> (f32[m,4]) {"
EMPTY = "%e = list.empty() {dtype=f32, shape=[-1,4]} : list<f32[?,4]>"
END = '%y = list.get(%l) {index=0, shape=[<m>,4], symbols=["m"]} : f32[m,4] return(%y) } }'


def slot_ops(text: str) -> list[str]:
    """The slot ops of a function with this body, which makes the list %l."""
    module = parse(HEAD + EMPTY + text + END)
    verify(module, GRAPH)
    ops = [op for op in walk(place_lists(module)) if op.name.startswith("slot.")]
    return [op.name.removeprefix("slot.") for op in ops]


def insert(result: str, source: str) -> str:
    return f"%{result} = list.insert(%{source}, %x) {{index=0}} : list<f32[?,4]>\n"


def test_a_list_is_changed_in_place() -> None:
    assert slot_ops(insert("a", "e") + insert("l", "a")) == ["clear", "insert", "insert", "get"]


def test_a_list_that_is_still_read_is_copied() -> None:
    text = insert("a", "e") + insert("b", "a") + insert("l", "a")
    assert slot_ops(text) == ["clear", "insert", "copy", "insert", "insert", "get"]


def branch(then: str, otherwise: str) -> str:
    return (
        f"%l = if(%p) {{symbols=[]}} : list<f32[?,4]> ({{ ^(): {then} yield(%t) }}, "
        f"{{ ^(): {otherwise} yield(%o) }})\n"
    )


def test_branches_change_a_list_that_nobody_else_reads() -> None:
    text = insert("a", "e") + branch(insert("t", "a"), insert("o", "a") + insert("u", "o"))
    assert "copy" not in slot_ops(insert("a", "e") + branch(insert("t", "a"), insert("o", "a")))
    assert slot_ops(text).count("copy") == 1  # %o is given, %u needs another one


def loop(body: str, given: str) -> str:
    return (
        "%zero = constant() {value=dense<i64[] 0>} : i64[]\n"
        "%i, %l, %q = while(%zero, %s, %t) {symbols=[]} : i64[], list<f32[?,4]>, list<f32[?,4]> "
        "({ ^(%j: i64[], %b: list<f32[?,4]>, %c: list<f32[?,4]>):\n"
        '%g = compare(%j, %k) {direction="lt"} : i1[] yield(%g) }, '
        "{ ^(%h: i64[], %d: list<f32[?,4]>, %f: list<f32[?,4]>):\n"
        f"%one = constant() {{value=dense<i64[] 1>}} : i64[] %next = add(%h, %one) : i64[] {body} "
        f"yield(%next, {given}) }})\n"
    )


START = insert("s", "e") + "%t = list.of(%x) {shape=[-1,4]} : list<f32[?,4]>\n"


def test_what_a_loop_carries_stays_in_its_slots() -> None:
    ops = slot_ops(START + loop(insert("v", "d") + insert("w", "f"), "%v, %w"))
    assert ops == ["clear", "insert", "set", "insert", "insert", "get"]


def test_carried_lists_change_places_without_copies() -> None:
    ops = slot_ops(START + loop("", "%f, %d"))
    assert ops == ["clear", "insert", "set", "swap", "get"]


def test_a_list_that_is_given_twice_is_copied_once() -> None:
    ops = slot_ops(START + loop(insert("v", "d"), "%v, %v"))
    assert (ops.count("copy"), ops.count("insert")) == (1, 2)


def test_a_list_that_a_loop_captures_is_not_changed_by_it() -> None:
    ops = slot_ops(START + insert("z", "s") + loop(insert("v", "z"), "%v, %f"))
    assert ops.count("copy") == 2  # %s, which %z comes from, and %z in every step


def test_a_list_that_begins_anew_in_every_step_keeps_its_slot() -> None:
    anew = "%v = list.of(%x) {shape=[-1,4]} : list<f32[?,4]>"
    assert slot_ops(START + loop(anew, "%v, %f")) == ["clear", "insert", "set", "set", "get"]

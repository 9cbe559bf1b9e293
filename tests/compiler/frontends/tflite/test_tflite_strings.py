"""Strings and hash tables in TFLite models: at the edge, in branches and loops, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert")

from ingot.compiler.read_source import read_source
from ingot.hal.errors import CompileError
from tests.support.devices import load_best
from tests.support.tflite_cases.strings import WORDS
from tests.support.tflite_models import Array, Graph, Model, check, one_op

IDS = np.array([40, -1, 7, 1 << 40], np.int64)
_KINDS = {"U": {"keyDtype": 5, "valueDtype": 4}, "i": {"keyDtype": 4, "valueDtype": 5}}


def table(g: Graph, keys: Array, number: int = 3) -> int:
    place = g.tensor("resource", (1,))
    options = _KINDS[keys.dtype.kind]
    g.op("HASHTABLE", [], [place], "HashtableOptions", tableId=number, **options)
    return place


def lookups() -> Model:
    """Words to numbers and numbers to words, by tables that are filled once, and their sizes."""
    model = Model()
    g, init = model.main, model.graph("init")
    for number, keys, values in ((1, WORDS[:4], IDS), (2, IDS, WORDS[1:5])):
        place = table(init, keys, number)
        init.op("HASHTABLE_IMPORT", [place, init.constant(keys), init.constant(values)], [])
    init.ends([], [])
    g.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=1)
    words, ids = g.tensor("str", (-1,), name="words"), g.tensor("int64", (2, 2), name="ids")
    found = g.tensor("int64", (-1,), name="found")
    texts = g.tensor("str", (2, 2), name="texts")
    first, second = table(g, WORDS, 1), table(g, IDS, 2)
    g.op("HASHTABLE_FIND", [first, words, g.constant(np.array([-5], np.int64))], [found])
    g.op("HASHTABLE_FIND", [second, ids, g.constant(np.array(["none"]))], [texts])
    count = g.tensor("int64", (1,), name="count")
    g.op("HASHTABLE_SIZE", [second], [count])
    g.ends([words, ids], [found, texts, count])
    return model


ASKED = np.array(["grün", "gr", "", "red", "no such word", "grün "])
NUMBERS = np.array([[7, 8], [1 << 40, -1]], np.int64)


def test_hash_tables_give_what_they_were_filled_with() -> None:
    check(bytes(lookups()), [ASKED, NUMBERS], [ASKED[::-1], NUMBERS.T], codes=0)
    check(bytes(lookups()), [ASKED[:2], NUMBERS], codes=0)


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        (np.array(["a", "b", "a", ""]), np.array([1, 2, 3, 4])),
        (np.array([5, 5, 6]), np.array(["x", "y", ""])),
        (np.array([], "U1"), np.array([], np.int64)),
        (np.array([], np.int64), np.array([], "U1")),
    ],
)
def test_of_equal_keys_the_first_one_counts_and_tables_may_be_empty(
    keys: Array, values: Array
) -> None:
    model = Model()
    g, init, default = model.main, model.graph("init"), np.array([-5])
    place = table(init, keys)
    init.op("HASHTABLE_IMPORT", [place, init.constant(keys), init.constant(values)], [])
    init.ends([], [])
    g.op("CALL_ONCE", [], [], "CallOnceOptions", initSubgraphIndex=1)
    types, asked = ("str", "int64"), np.array(["a", "", "b", "zz"])
    if keys.dtype.kind == "i":
        types, asked, default = ("int64", "str"), np.array([5, 6, 0]), np.array(["none"])
    x, found, count = g.tensor(types[0], (-1,)), g.tensor(types[1], (-1,)), g.tensor("int64", (1,))
    filled = table(g, keys)
    g.op("HASHTABLE_FIND", [filled, x, g.constant(default)], [found])
    g.op("HASHTABLE_SIZE", [filled], [count])
    g.ends([x], [found, count])
    check(bytes(model), [asked], codes=0)


@pytest.mark.slow
def test_strings_are_passed_and_given_by_a_compiled_model() -> None:
    model = load_best(bytes(lookups()))
    found, texts, count = model.main(ASKED.tolist(), NUMBERS)
    assert np.asarray(found).tolist() == [7, -5, -1, 40, -5, -5]
    assert texts.tolist() == [["blue", "none"], ["a word of more than eight bytes", "grün"]]
    assert np.asarray(count).tolist() == [4]


def test_the_name_of_the_bytes_is_taken() -> None:
    model = Model()
    g = model.main
    texts, numbers = g.tensor("str", (2,), name="x"), g.tensor("int64", (2,), name="x.utf8")
    doubled = g.tensor("int64", (2,))
    g.op("ADD", [numbers, numbers], [doubled], "AddOptions")
    g.ends([texts, numbers], [doubled])
    with pytest.raises(CompileError, match=r"argument 'x' is .* 'x\.utf8', .* rename it"):
        read_source(bytes(model))


def test_strings_go_through_branches_and_loops() -> None:
    model = Model()
    g = model.main
    flag, x = g.tensor("bool", (1,)), g.tensor("str", (3,))
    for name in ("then", "else"):
        inner = model.graph(name)
        given, made = inner.tensor("str", (3,)), inner.tensor("str", (3,))
        constant = inner.constant(np.array(["yes"] * 3 if name == "then" else ["no", "", "no!"]))
        place = inner.constant(np.array([2, 0, 1], np.int32))
        source = given if name == "then" else constant
        inner.op("GATHER", [source, place], [made], "GatherOptions")
        inner.ends([given], [made])
    chosen = g.tensor("str", (3,))
    g.op("IF", [flag, x], [chosen], "IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=2)
    g.ends([flag, x], [chosen])
    calls = [[np.array([each]), WORDS[2:5]] for each in (True, False)]
    check(bytes(model), *calls)


def test_a_loop_moves_strings() -> None:
    model = Model()
    g, test, step = model.main, model.graph("test"), model.graph("step")
    kinds = (("int32", (1,)), ("str", (3,)))
    (count, words), (left, _), (now, texts) = (
        [each.tensor(*k) for k in kinds] for each in (g, test, step)
    )
    more = test.tensor("bool", (1,))
    test.op("GREATER", [left, test.constant(np.zeros(1, np.int32))], [more], "GreaterOptions")
    test.ends([left, _], [more])
    less, turned = step.tensor("int32", (1,)), step.tensor("str", (3,))
    step.op("SUB", [now, step.constant(np.ones(1, np.int32))], [less], "SubOptions")
    place = step.constant(np.array([2, 0, 1], np.int32))
    step.op("GATHER", [texts, place], [turned], "GatherOptions")
    step.ends([now, texts], [less, turned])
    last, result = g.tensor("int32", (1,)), g.tensor("str", (3,))
    options = {"condSubgraphIndex": 1, "bodySubgraphIndex": 2}
    g.op("WHILE", [count, words], [last, result], "WhileOptions", **options)
    g.ends([count, words], [last, result])
    calls = [[np.array([each], np.int32), WORDS[2:5]] for each in (0, 1, 2)]
    check(bytes(model), *calls)


def test_what_is_not_taken_of_strings_is_named() -> None:
    model, _ = one_op("NEG", [WORDS], [("str", (6,))])
    with pytest.raises(CompileError, match="it takes strings, for which the op is not supported"):
        read_source(model)
    model = Model()
    g = model.main
    place, found = table(g, WORDS), g.tensor("int64", (1,))
    g.op("HASHTABLE_SIZE", [place], [found])
    g.ends([], [found])
    with pytest.raises(CompileError, match="the table is read before anything fills it"):
        read_source(bytes(model))


@pytest.mark.parametrize(
    ("place", "number"), [(0, 7), (0, 1 << 30), (4, 99), (8, -1), (12, 1 << 30)]
)
def test_damaged_constants_of_strings_are_refused(place: int, number: int) -> None:
    model, _ = one_op("RESHAPE", [WORDS, np.array([6], np.int32)], [("str", (6,))], "", (0, 1))
    head = np.array([6, *np.cumsum([32, *(len(x.encode()) for x in WORDS)])], "<i4").tobytes()
    assert model.count(head) == 1
    damaged = bytearray(head)
    damaged[place : place + 4] = np.array([number], "<i4").tobytes()
    with pytest.raises(CompileError, match="tensor 't0' is damaged"):
        read_source(model.replace(head, bytes(damaged)))

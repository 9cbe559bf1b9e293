"""Sequences and optionals as arguments and results: every kind, on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import parse, to_text
from ingot.compiler.vm.read_module import read_module
from ingot.hal.errors import CompileError, InvalidArgument
from ingot.inspection import describe_module
from tests.support.devices import load_everywhere
from tests.support.mutations import survive

ECHO = """
module {producer="a test"} {
  func @main(%xs: sequence<f32[?,2]> "xs", %y: optional<f32[3]> "y", %zs: optional_sequence<i64[*]> "zs")
      -> (sequence<f32[?,2]> "a", optional<f32[3]> "b", optional_sequence<i64[*]> "c", i64[] "d") {
    %0 = list.argument(%xs) {symbols=[]} : list<f32[?,2]>
    %1 = list.argument(%y) {symbols=["p"]} : list<f32[3]>
    %2 = list.argument(%zs) {symbols=["q"]} : list<i64[*]>
    list.length(%0) {symbols=["n"]}
    %3 = dim() {value=<10*n+p>, dtype=i64} : i64[]
    %4 = list.result(%0) {kind="sequence", given=1} : sequence<f32[?,2]>
    %5 = list.result(%1) {kind="optional", given=<p>} : optional<f32[3]>
    %6 = list.result(%2) {kind="optional_sequence", given=<q>} : optional_sequence<i64[*]>
    return(%4, %5, %6, %3)
  }
}
"""  # noqa: E501
SIGNATURE = (
    "main(xs: sequence(f32[?,2]), y: optional(f32[3]), zs: optional(sequence(i64[*]))) -> "
    "(a: sequence(f32[?,2]), b: optional(f32[3]), c: optional(sequence(i64[*])), d: i64[])"
)
XS = [np.full((n, 2), n, np.float32) for n in (2, 0, 1)]
Y = np.arange(3, dtype=np.float32)
ZS = [np.arange(4), np.arange(1)]


@pytest.fixture(scope="module")
def models() -> dict[str, ingot.Model]:
    return load_everywhere(parse(ECHO))


def plain(value: Any) -> Any:
    """Arrays as nested lists, so that they compare; empty ones with their shape."""
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return None if value is None else (np.asarray(value).shape, np.asarray(value).tolist())


CASES: tuple[tuple[Any, Any, Any], ...] = (
    (XS, Y, ZS),
    (tuple(XS[:1]), None, None),
    ([], None, []),
)


@pytest.mark.parametrize("arguments", CASES)
def test_what_is_passed_comes_back(models: dict[str, ingot.Model], arguments: Any) -> None:
    xs, y, zs = arguments
    interpreted = interpret(parse(ECHO), "main", [tuple(xs), y, zs if zs is None else tuple(zs)])
    wanted = plain([list(xs), y, zs, np.int64(10 * len(xs) + (y is not None))])
    assert plain(interpreted) == wanted
    for model in models.values():
        assert str(model.signature) == SIGNATURE
        results = model(xs, y, zs)
        assert plain(results) == wanted
        again = model.fork().call(xs=results[0], y=results[1], zs=results[2], as_dict=True)
        assert plain(list(again.values())) == wanted


def test_lists_of_numbers_and_of_other_layouts_are_taken(models: dict[str, ingot.Model]) -> None:
    turned = np.arange(6, dtype=np.float32).reshape(2, 3).T
    for model in models.values():
        a, b, c, _ = model([[[1, 2], [3, 4]], turned], [1, 2, 3], [5, [6]][:1])
        assert plain(a) == plain([np.float32([[1, 2], [3, 4]]), turned])
        assert plain(b) == plain(np.float32([1, 2, 3]))
        assert plain(c) == plain([np.int64(5)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None, None, None), "argument 0 'xs': is NoneType, but must be a list or tuple of arrays"),
        ((XS[0], None, None), "argument 0 'xs': is ndarray, but must be a list or tuple of arrays"),
        ((3, None, None), "argument 0 'xs': is int, but must be a list or tuple of arrays"),
        (([XS[0], XS[0].astype("f8")], None, None), "element 1 of argument 0 'xs': dtype is f64"),
        (([XS[0], XS[0][0]], None, None), "element 1 of argument 0 'xs' has rank 1, expected 2"),
        (([XS[0], np.ones((1, 3), "f4")], None, None), "element 1 of argument 0 'xs': dim 1 is 3"),
        (([XS[0], [XS[0]]], None, None), "element 1 of argument 0 'xs': is a list of arrays"),
        (([XS[0], None], None, None), "element 1 of argument 0 'xs': is None, but must be an"),
        (([XS[0], "text"], None, None), "element 1 of argument 0 'xs': is str, but must be an"),
        ((XS, [1, 2], None), "argument 1 'y': dim 0 is 2, expected 3"),
        ((XS, [Y], None), "argument 1 'y': is a list of arrays, but must be one array"),
        ((XS, Y, Y), "argument 2 'zs': is ndarray, but must be a list or tuple of arrays or None"),
        ((XS, Y, [ZS[0], np.ones((1, 1), int)]), "element 1 of argument 2 'zs' has rank 2"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(
    models: dict[str, ingot.Model], arguments: Any, message: str
) -> None:
    for model in models.values():
        with pytest.raises(InvalidArgument) as refused:
            model(*arguments)
        assert message in str(refused.value)
        assert plain(model(*CASES[0])[:2]) == plain(CASES[0][:2])  # the session goes on


def test_a_list_that_its_elements_change_is_taken_as_it_was(models: dict[str, ingot.Model]) -> None:
    class Changing:
        """Makes the list longer, or empties it, as it is read."""

        def __array__(self, *_: Any, **__: Any) -> Any:
            if len(grown) < 100:
                grown.append(self)
            emptied.clear()
            return XS[2]

    grown: list[Any] = []
    emptied: list[Any] = []
    for model in models.values():
        grown[:], emptied[:] = [Changing()], [Changing(), XS[0]]
        assert plain(model(grown, None, None)[0]) == plain([XS[2]])
        grown[:], emptied[:] = [], [Changing(), XS[0]]
        assert plain(model(emptied, None, None)[0]) == plain([XS[2], XS[0]])


def test_out_takes_tensors_only(models: dict[str, ingot.Model]) -> None:
    for model in models.values():
        number = np.zeros((), np.int64)
        model(XS, None, None, out=(None, None, None, number))
        assert number == 30
        with pytest.raises(InvalidArgument, match="result 1 'b': is no tensor"):
            model.call(XS, Y, None, out={"b": Y.copy()})


def test_a_trace_shows_the_copies_of_elements(models: dict[str, ingot.Model]) -> None:
    with models["cpu"].trace() as events:
        models["cpu"](XS, None, None)
    assert [event.length for event in events if event.kernel == "copy"] == [
        16,
        8,
        24,
    ]  # none is empty


def test_the_text_the_file_and_its_description_say_the_kinds(tmp_path: Any) -> None:
    program = parse(ECHO)
    assert to_text(parse(to_text(program))) == to_text(program)
    path = tmp_path / "echo.ingot"
    module = ingot.compile(program)
    module.save(path)
    (function,) = read_module(path.read_bytes()).functions
    kinds = [(value.kind, value.any_rank) for value in function.arguments]
    assert kinds == [("sequence", False), ("optional", False), ("optional_sequence", True)]
    text = describe_module(str(path), code=True, verify=True)
    assert SIGNATURE in text
    assert "list.argument 2, 2" in text
    assert int.from_bytes(path.read_bytes()[8:12], "little") >= 2  # older runtimes refuse it


def test_damaged_modules_with_sequences_do_not_crash() -> None:
    kinds = survive(bytes(ingot.compile(parse(ECHO))), CASES[0], range(300))
    assert kinds["ran"] > 20
    assert kinds["DataLoss"] > 50


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("list.insert(%0, %xs) {index=0} : list<f32[?,2]>", "an element must be a tensor"),
        ("list.erase(%xs) {index=0} : list<f32[?,2]>", "operand 0 must be a list"),
        ("list.argument(%0) {symbols=[]} : list<f32[?,2]>", "operand 0 must be an argument"),
        ("list.get(%2) {index=0, shape=[2], symbols=[]} : i64[2]", "is no element of list<i64[*]>"),
    ],
)
def test_ops_that_take_something_else_are_refused(wrong: str, message: str) -> None:
    place = "    %4 = list.result"
    with pytest.raises(CompileError) as refused:
        ingot.compile(parse(ECHO.replace(place, f"    %9 = {wrong}\n{place}", 1)))
    assert message in str(refused.value)

"""Several modules in one program: calls by name, one state, exchanges, and what does not fit."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import ops
from tests.support.assembler import total_module
from tests.support.devices import on_every_device, targets

X = np.arange(6, dtype=np.float32)


STEP = "(f32[n]) -> (f32[n])"


def _library(factor: float) -> Any:
    @ingot.program(ingot.spec("f32[n]"))
    def step(x: Any) -> Any:
        return {"y": x * factor}

    @ingot.program(ingot.spec("f32[n]"), ingot.spec("i64[]"))
    def large(x: Any, least: Any) -> Any:
        return {"y": x[x > ops.astype(least, "f32")]}

    return ingot.compile({"step": step, "large": large}, target=targets())


def _net(name: str = "lib") -> Any:
    @ingot.program(ingot.spec("f32[n]"))
    def main(x: Any) -> Any:
        doubled = ops.native(f"{name}.step", STEP, x + 1)
        return ops.native(f"{name}.large", "(f32[n], i64[]) -> (f32[k])", doubled, 6) - 1

    return ingot.compile(main, target=targets())


def _counter() -> Any:
    return total_module()  # main(x: i64[]) -> (y: i64[]) with the state total: i64[] = 100


@on_every_device
def test_modules_call_each_other(device: str) -> None:
    model = ingot.load({"net": _net(), "lib": _library(2)}, device=device)
    for _ in range(2):
        np.testing.assert_array_equal(model(X), [7, 9, 11])
    np.testing.assert_array_equal(model.functions["lib.step"](X), 2 * X)
    assert list(model.functions) == ["net.main", "lib.step", "lib.large"]
    assert str(model.functions["lib.step"].signature) == "lib.step(x: f32[n]) -> (y: f32[n])"


def test_the_application_may_stand_in_for_a_module() -> None:
    natives = {"lib.step": lambda x: 3 * x}
    model = ingot.load({"net": _net(), "lib": _library(2)}, natives=natives)
    np.testing.assert_array_equal(model(X), [8, 11, 14, 17])


def test_modules_with_the_same_functions_are_told_apart() -> None:
    model = ingot.load({"first": _counter(), "second": _counter()})
    assert int(model.functions["first.main"](5)) == 105
    assert int(model.functions["second.main"](7)) == 107
    assert [str(each) for each in model.variables[::2]] == [
        "first.total: i64[]",
        "second.total: i64[]",
    ]
    state = model.state()
    assert [int(state[f"{name}.total"]) for name in ("first", "second")] == [105, 107]
    model.load_state({**state, "first.total": np.int64(1)})
    assert int(model.functions["first.main"](1)) == 2
    with pytest.raises(
        ingot.NotFound, match=r"several modules have a function called main.*first\.main, second"
    ):
        model(1)


def test_a_module_is_exchanged_and_the_others_stay() -> None:
    model = ingot.load({"net": _net(), "lib": _library(2), "count": _counter()})
    model.functions["count.main"](5)
    other = model.exchange("lib", _library(5))
    np.testing.assert_array_equal(other.functions["net.main"](X), 5 * (X[1:] + 1) - 1)
    np.testing.assert_array_equal(model.functions["net.main"](X), [7, 9, 11])
    assert int(other.functions["count.main"](1)) == 106
    assert int(model.exchange("count", _counter()).functions["count.main"](1)) == 101
    with pytest.raises(ingot.NotFound, match="no module called 'lob'; the modules are: net, lib"):
        model.exchange("lob", _library(1))
    with pytest.raises(ingot.NotFound, match=r"'lib\.step' .*, 'lib\.large' "):
        model.exchange("lib", _counter())


def test_several_modules_are_pickled(tmp_path: Path) -> None:
    path = tmp_path / "lib.ingot"
    _library(2).save(path)
    model = pickle.loads(pickle.dumps(ingot.load({"net": _net(), "lib": path})))
    np.testing.assert_array_equal(model(X), [7, 9, 11])


def test_what_does_not_fit_is_said_when_modules_are_loaded() -> None:
    with pytest.raises(ingot.NotFound, match=r"2 native functions are missing: 'lib\.step' "):
        ingot.load({"net": _net(), "other": _library(2)})
    with pytest.raises(ingot.InvalidArgument, match=r"given as \(i64\[\]\) -> \(i64\[\]\)"):
        ingot.load({"net": ingot.compile(_calls("count.main")), "count": _counter()})
    with pytest.raises(ingot.InvalidArgument, match="call each other in a circle"):
        ingot.load({"a": ingot.compile(_calls("b.main")), "b": ingot.compile(_calls("a.main"))})
    for modules in ({}, {"no name": _counter()}, {"": _counter()}):
        with pytest.raises(ingot.InvalidArgument, match=r"dict of modules is empty|identifier"):
            ingot.load(modules)


@on_every_device
def test_a_function_that_is_missing_has_a_substitute(device: str) -> None:
    @ingot.program(ingot.spec("f32[n]"))
    def main(x: Any) -> Any:
        y = ops.native("lib.step", STEP, x, otherwise=lambda x: x * 10)
        kept = ops.native(
            "acme.kept",
            "(f32[n]) -> (f32[k])",
            y,
            least=3,
            otherwise=lambda y, least: y[y > 20 + least],
        )
        return y, kept

    net = ingot.compile(main, target=targets())
    natives = {"acme.kept": lambda y, least: y[y > least]}
    alone = ingot.load(net, device=device)(X)
    np.testing.assert_array_equal(alone[0], 10 * X)
    np.testing.assert_array_equal(alone[1], [30, 40, 50])
    given = ingot.load(net, natives=natives, device=device)(X)
    np.testing.assert_array_equal(given[1], 10 * X[1:])
    linked = ingot.load({"net": net, "lib": _library(2)}, natives=natives, device=device)(X)
    np.testing.assert_array_equal(linked[0], 2 * X)
    np.testing.assert_array_equal(linked[1], [4, 6, 8, 10])
    wrong = ingot.compile(
        ingot.trace(
            lambda x: ops.native("lib.main", STEP, x, otherwise=lambda x: x), ingot.spec("f32[n]")
        ),
        target=targets(),
    )
    with pytest.raises(ingot.InvalidArgument, match=r"'lib\.main' \(f32\[n\]\) -> .*given as"):
        ingot.load({"net": wrong, "lib": _counter()})
    with pytest.raises(ingot.CompileError, match="asks whether there is one"):
        ingot.trace(lambda x: ops.native("?lib.step", STEP, x), ingot.spec("f32[n]"))
    both = ingot.trace(
        lambda x: (
            ops.native("lib.step", STEP, x, otherwise=ops.abs) + ops.native("lib.step", STEP, x)
        ),
        ingot.spec("f32[n]"),
    )
    with pytest.raises(ingot.NotFound, match=r"1 native function is missing: 'lib\.step'"):
        ingot.load(ingot.compile(both, target=targets()), device=device)


def test_older_modules_than_needed_are_refused() -> None:
    def library(factor: int, **options: Any) -> Any:
        return ingot.compile(
            {"step": ingot.trace(lambda x: x * factor, ingot.spec("f32[n]"))}, **options
        )

    net = ingot.compile(_calls("lib.step"), requires={"lib": 2})
    model = ingot.load({"net": net, "lib": library(3, version=2)})
    np.testing.assert_array_equal(model(X), 3 * X)
    for older in (library(2, version=1), library(2)):
        with pytest.raises(ingot.Incompatible, match=r"'net' needs version 2 of the module 'lib'"):
            model.exchange("lib", older)
    np.testing.assert_array_equal(model.exchange("lib", library(4, version=7))(X), 4 * X)
    for wrong in ({"version": -1}, {"version": "2"}, {"requires": {"lib": 1 << 32}}):
        with pytest.raises(ingot.CompileError, match="expected a whole number"):
            library(2, **wrong)
    with pytest.raises(ingot.CompileError, match="write the name of a module"):
        library(2, requires={"": 2})


def _calls(name: str) -> Any:
    return ingot.trace(lambda x: ops.native(name, STEP, x), ingot.spec("f32[n]"))


def test_functions_of_modules_take_no_keywords() -> None:
    net = ingot.trace(lambda x: ops.native("lib.step", STEP, x, factor=2), ingot.spec("f32[n]"))
    model = ingot.load({"net": ingot.compile(net), "lib": _library(2)})
    with pytest.raises(ingot.InvalidArgument, match=r'is called with \{"factor": 2\}, but'):
        model(X)

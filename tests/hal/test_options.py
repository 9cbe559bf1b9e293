"""Options of a wrong type: one of Ingot's errors, which names the option, what was given and what
is expected, for every function that people call."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.hal.errors import Error, InvalidArgument
from ingot.hal.options import check_options, shown


class Unshown:
    def __repr__(self) -> str:
        raise RuntimeError

    def __bool__(self) -> bool:
        raise RuntimeError


WRONG = (object(), {1: 2}, [None], np.zeros(2), np.array("x"), b"x", 1.5, Unshown(), iter([1]))
SOURCE = 'module {} { func @main(%x: f32[3] "x") -> (f32[3] "y") { return(%x) } }'


def takes(
    flag: bool = False,
    count: int | None = None,
    share: float = 0.5,
    path: str | os.PathLike[str] = "",
    names: str | Sequence[str] = (),
    sizes: Mapping[str, Sequence[int]] | None = None,
    told: Callable[[str], None] | None = None,
    anything: Any = None,
) -> None: ...


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("flag", "no", "flag is 'no', expected True or False"),
        ("flag", 2, "flag is 2, expected True or False"),
        ("count", "3", "count is '3', expected a whole number or None"),
        ("count", True, "count is True, expected a whole number or None"),
        ("share", None, "share is None, expected a number"),
        ("path", 3, "path is 3, expected a string or a path"),
        ("names", 3, "names is 3, expected a string or a list of strings"),
        ("names", ["a", 1], "names is ['a', 1], expected a string or a list of strings"),
        ("names", np.array(3), "names is array(3), expected a string or a list of strings"),
        ("sizes", {"s": 3}, "expected a dict from strings to lists of whole numbers or None"),
        ("told", 3, "told is 3, expected a function or None"),
    ],
)
def test_what_does_not_fit_is_said(option: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidArgument) as error:
        check_options(takes, {option: value}, InvalidArgument)
    assert message in str(error.value)


def test_what_fits_passes() -> None:
    fits: dict[str, tuple[Any, ...]] = {
        "flag": (True, np.True_, 0, 1),
        "count": (3, np.int64(3), None),
        "share": (1, 0.5, np.float32(0.5)),
        "path": ("x", Path("x")),
        "names": ("x", ["x"], ("x",), {"x"}, {"x": 1}.keys(), np.array(["x"])),
        "sizes": ({"s": [1, 2]}, {"s": range(3)}, {"s": np.arange(3)}, {}, None),
        "told": (print, None),
        "anything": WRONG,
    }
    for option, values in fits.items():
        for value in values:
            check_options(takes, {option: value}, InvalidArgument)


def test_any_value_is_shown() -> None:
    assert "Unshown" in shown(Unshown())
    assert len(shown("x" * 1000)) < 100


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "compile": (ingot.compile, (SOURCE,)),
    "quantize": (ingot.quantize, (SOURCE,)),
    "bundle": (ingot.bundle, (SOURCE, "out")),
    "explore": (ingot.explore, ("module", "page")),
    "LanguageModel": (ingot.LanguageModel, ("model.gguf",)),
    "LanguageBatch": (ingot.LanguageBatch, ("model.gguf",)),
    "generate": (ingot.generate, ("model.gguf", "text")),
    "load": (ingot.load, (b"",)),
}
ANY = {"data", "lora", "dynamic_shapes", "example_inputs", "options", "sampling"}


def misfit(function: Any, name: str, value: Any) -> str | None:
    """What is said of a value that does not fit the annotation."""
    try:
        check_options(function, {name: value}, Error)
    except Error as error:
        return re.escape(str(error))
    return None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_options_of_a_wrong_type_are_named(name: str, tmp_path: Path) -> None:
    function, given = FUNCTIONS[name]
    known = [
        each for each in inspect.signature(function).parameters.values() if each.name not in ANY
    ]
    for option in known[len(given) :]:
        for value in WRONG:
            # and nothing else, whatever of all this is taken
            with pytest.raises(Error, match=misfit(function, option.name, value)):
                function(*given, **{option.name: value})
    for place, value in enumerate(given):
        if not isinstance(value, bytes):
            with pytest.raises(Error, match="is <object object" if place else None):
                function(*given[:place], object(), *given[place + 1 :])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ingot.quantize(SOURCE, capacity="3"), "capacity is '3', expected a whole number"),
        (lambda: ingot.spec(3), "3 is no type of a tensor"),  # type: ignore[arg-type]
        (lambda: ingot.spec("f32[n]", n=3), r"the range of 'n' is 3, expected"),  # type: ignore[arg-type]
        (lambda: ingot.trace(3), "3 is no function of tensors"),  # type: ignore[arg-type]
        (lambda: ingot.program(int), "<class 'int'> is no function of tensors"),
        (lambda: ingot.lowering(3, "x"), "domain is 3, expected a string"),  # type: ignore[arg-type]
        (lambda: ingot.read_call(3), "path is 3, expected a string or a path"),  # type: ignore[arg-type]
        (lambda: ingot.compile(SOURCE, dump_ir="a\0b"), "cannot write the IR"),
    ],
)
def test_other_functions_say_what_they_expect(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(Error, match=message):
        make()


def test_values_that_cannot_be_shown_are_named_by_their_class() -> None:
    with pytest.raises(Error, match="target is a int, expected"):
        ingot.compile(SOURCE, target=10**5000)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="return"):
        ingot.load(SOURCE, **{"return": 1})  # type: ignore[arg-type]


def test_messages_with_names_of_any_bytes_can_be_written() -> None:
    name = b"blk.\xff".decode("utf-8", "surrogateescape")
    assert str(Error(f"no '{name}'")).encode() == rb"no 'blk.\udcff'"


def test_one_name_of_variants_may_stand_without_a_list() -> None:
    module = ingot.compile(SOURCE, variants="x86-64", target="cpu")
    assert np.asarray(ingot.load(module)(np.ones(3, np.float32))).tolist() == [1, 1, 1]

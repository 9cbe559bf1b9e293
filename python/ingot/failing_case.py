"""One dispatch that gives something wrong, as a program of its own with what it read."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ingot.checked_run import CheckedRun
from ingot.compiler import ir
from ingot.compiler.checking import Dispatch
from ingot.compiler.graph.interpreter import bind_symbols
from ingot.compiler.graph.symbols import substitute_symbols
from ingot.compiler.ir.attributes import NO_ATTRIBUTES
from ingot.hal.errors import InvalidArgument
from ingot.hal.whole_file import write_arrays

__all__ = ["write_case"]


def write_case(folder: str, run: CheckedRun, dispatch: Dispatch) -> str:
    """Writes `case.ir`, the program, `inputs.npz`, what it read, and `expected.npz`, what the
    references make of that. Gives the command that checks it.

    InvalidArgument: the folder cannot be written.
    """
    operands = [run.arrays[value] for value in dispatch.operands]
    expected = [each.array for each in run.references(dispatch)]
    function = _function(dispatch, operands, dispatch.symbols(run.symbols))
    module = ir.Module()
    module.add(function)
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / "case.ir").write_text(ir.to_text(module), encoding="utf-8")
        _save(place / "inputs.npz", function.argument_names, operands)
        _save(place / "expected.npz", function.result_names, expected)
    except OSError as error:
        raise InvalidArgument(f"cannot write the case to '{folder}': {error.strerror}") from None
    inputs = shlex.quote(f"@{place / 'inputs.npz'}")
    return f"ingot check {shlex.quote(str(place / 'case.ir'))} --input {inputs}"


def _function(dispatch: Dispatch, operands: Sequence[Any], sizes: Mapping[str, int]) -> ir.Function:
    """The entry as `main`, with its symbols as far as the shapes of arguments tell them."""
    entry = dispatch.entry
    function = replace(
        entry,
        name="main",
        exported=True,
        body=ir.clone_region(entry.body, {}),
        attributes=NO_ATTRIBUTES,
        argument_names=[f"x{place}" for place in range(len(entry.arguments))],
        result_names=[f"y{place}" for place in range(len(dispatch.results))],
    )
    try:
        known = bind_symbols(function, operands)
    except InvalidArgument:
        known = {}
    if known.keys() < sizes.keys():
        substitute_symbols(function, sizes)
        function.symbols = {}
    return function


def _save(path: Path, names: Sequence[str], arrays: Sequence[Any]) -> None:
    write_arrays(path, dict(zip(names, arrays, strict=True)))

"""The bytecode of a module as text, driven by the operand letters of `spec/op.def`.

One instruction a line: its word offset, results, name, operands; source layers stand as
comments above the first instruction that belongs to them, and labels where branches lead.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator

from ingot.compiler.ir.dims import Dim
from ingot.compiler.vm.contents import (
    FunctionContents,
    ModuleContents,
    ValueContents,
    VariableContents,
)
from ingot.compiler.vm.read_module import read_text
from ingot.hal.errors import DataLoss
from ingot.hal.spec import opcode_of_code
from ingot.hal.value_kind import kind_text

__all__ = ["disassemble", "function_code", "signature_text"]

_TARGET = re.compile(r"->(\d+)")


def disassemble(contents: ModuleContents) -> str:
    """All functions of a module as text. DataLoss: the code is no valid instruction stream."""
    variables = [
        f"variable {ordinal} {_value_text(variable)}\n"
        for ordinal, variable in enumerate(contents.variables)
    ]
    functions = [_function_text(contents, function) for function in contents.functions]
    return "\n".join(["".join(variables)] * bool(variables) + functions)


def signature_text(function: FunctionContents, dim_text: Callable[[Dim], str] = str) -> str:
    """`main(x: f32[b,4]) -> (y: f32[b])`, with the text of every dim that `dim_text` gives."""
    arguments, results = (
        ", ".join(_value_text(value, dim_text) for value in values)
        for values in (function.arguments, function.results)
    )
    return f"{function.name}({arguments}) -> ({results})"


def _value_text(
    value: ValueContents | VariableContents, dim_text: Callable[[Dim], str] = str
) -> str:
    dims = ["?" if dim is None else dim_text(dim) for dim in value.shape]
    if isinstance(value, VariableContents):
        return f"{value.name}: {value.dtype.name}[{','.join(dims)}]"
    element = f"{value.dtype.name}[{'*' if value.any_rank else ','.join(dims)}]"
    return f"{value.name}: {kind_text(value.kind, element)}"


def function_code(contents: ModuleContents, function: FunctionContents) -> dict[int, str]:
    """The text of the instruction that starts at each word, with words where branches lead.
    DataLoss: the code is no valid instruction stream."""
    entries = [entry.name for each in contents.executables for entry in each.entries]
    words = struct.unpack(f"<{len(function.code.words) // 2}H", function.code.words)
    return dict(_instructions(words, contents.strings, entries))


def _function_text(contents: ModuleContents, function: FunctionContents) -> str:
    registers = f"{function.i64_count} i64, {function.f64_count} f64, {function.ref_count} ref"
    lines = [f"func {signature_text(function)} target {function.target} registers {registers}"]
    layers = {location.word: location for location in function.code.locations}
    instructions = function_code(contents, function)
    labels = _labels(instructions.values())
    for at, text in instructions.items():
        if at in labels:
            lines.append(f"{labels[at]}:")
        location = layers.get(at)
        if location is not None and (location.layer or location.op):
            lines.append(f"  # {location.layer} ({location.op})")
        if text.startswith("branch"):
            text = _TARGET.sub(lambda match: f"->{labels[int(match[1])]}", text)
        lines.append(f"  {at:5}  {text}")
    return "\n".join(lines) + "\n"


def _instructions(
    words: tuple[int, ...], strings: bytes, entries: list[str]
) -> Iterator[tuple[int, str]]:
    """Words where instructions start, with their texts."""
    at = 0
    while at < len(words):
        text, length = _instruction(words, at, strings, entries)
        yield at, text
        at += length


def _labels(texts: Iterable[str]) -> dict[int, str]:
    """Names of the words that branches lead to, in the order of the code."""
    branches = (text for text in texts if text.startswith("branch"))
    targets = {int(word) for text in branches for word in _TARGET.findall(text)}
    return {word: f"label{ordinal}" for ordinal, word in enumerate(sorted(targets))}


def _instruction(
    words: tuple[int, ...], at: int, strings: bytes, entries: list[str]
) -> tuple[str, int]:
    """The text of the instruction at word `at`, and its length in words."""
    code = opcode_of_code(words[at])
    if code is None:
        raise DataLoss(f"word {at} of the code is {words[at]:#06x}, which is no instruction")
    rest = iter(words[at + 1 :])
    used = 1

    def take() -> int:
        nonlocal used
        used += 1
        try:
            return next(rest)
        except StopIteration:
            raise DataLoss(f"instruction '{code.name}' at word {at} is cut off") from None

    results: list[str] = []
    operands: list[str] = []
    for kind in code.operand_kinds:
        target = results if kind[0].isupper() else operands
        target.append(_operand(kind, take, strings))
    if code.name == "dispatch" and int(operands[0]) < len(entries):
        operands[0] = f"@{entries[int(operands[0])]}"
    left = f"{', '.join(results)} = " if results else ""
    return f"{left}{code.name} {', '.join(operands)}".rstrip(), used


def _operand(kind: str, take: Callable[[], int], strings: bytes) -> str:
    letter = kind[0].lower()
    if kind.endswith("*"):
        return f"[{', '.join(_operand(kind[0], take, strings) for _ in range(take()))}]"
    if letter == "b":
        return f"bindings[{', '.join(_bindings(take))}]"
    if letter in "kx":
        data = struct.pack("<4H", *(take() for _ in range(4)))
        return str(struct.unpack("<q" if letter == "k" else "<d", data)[0])
    if letter in "st":
        low, high = take(), take()
        number = low | high << 16
        return repr(read_text(strings, number)) if letter == "s" else f"->{number}"
    number = take()
    return str(number) if letter == "n" else f"{ {'i': 'i', 'f': 'f', 'o': 'r'}[letter] }{number}"


def _bindings(take: Callable[[], int]) -> Iterator[str]:
    for _ in range(take()):
        reference, offset, length = take(), take(), take()
        yield f"r{reference}+i{offset}:i{length}"

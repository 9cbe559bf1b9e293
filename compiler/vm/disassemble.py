"""The bytecode of a module as text, driven by the operand letters of `spec/op.def`.

One instruction a line: its word offset, results, name, operands; source layers stand above the
first instruction that belongs to them, and labels where branches lead. `read_assembly.py` reads
functions back.
"""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from ingot.compiler.ir.dims import Dim
from ingot.compiler.vm.contents import (
    FunctionContents,
    ModuleContents,
    NativeContents,
    ValueContents,
    VariableContents,
)
from ingot.compiler.vm.read_module import read_text
from ingot.hal.errors import DataLoss
from ingot.hal.spec import opcode_of_code
from ingot.hal.value_kind import kind_text

__all__ = [
    "disassemble",
    "function_code",
    "function_text",
    "kernel_operands",
    "name_text",
    "native_operands",
    "native_text",
    "quoted_dim",
    "signature_text",
    "value_text",
]

_TARGET = re.compile(r"->(\d+)")
_PLAIN_NAME = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
_PLAIN_FLOAT = re.compile(r"[\d.e+-]+|-?inf")  # floats whose text tells all of them


def disassemble(contents: ModuleContents) -> str:
    """All functions of a module as text. DataLoss: the code is no valid instruction stream."""
    variables = [
        f"variable {ordinal} {value_text(variable, quoted_dim)}\n"
        for ordinal, variable in enumerate(contents.variables)
    ]
    natives = [f"{native_text(native)}\n" for native in contents.natives]
    functions = [function_text(contents, function) for function in contents.functions]
    tables = ["".join(each) for each in (variables, natives) if each]
    return "\n".join([*tables, *functions])


def name_text(name: str) -> str:
    """A name as it is, or in quotes: it may be any text."""
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name)


def quoted_dim(dim: Dim) -> str:
    """A size or symbol as it is, a formula in quotes."""
    text = str(dim)
    return text if text.isdecimal() else name_text(text)


def signature_text(function: FunctionContents, dim_text: Callable[[Dim], str] = str) -> str:
    """`main(x: f32[b,4]) -> (y: f32[b])`, with the text of every dim that `dim_text` gives."""
    arguments, results = (
        ", ".join(value_text(value, dim_text) for value in values)
        for values in (function.arguments, function.results)
    )
    return f"{name_text(function.name)}({arguments}) -> ({results})"


def value_text(
    value: ValueContents | VariableContents, dim_text: Callable[[Dim], str] = str
) -> str:
    """`x: f32[b,4]`"""
    dims = ["?" if dim is None else dim_text(dim) for dim in value.shape]
    name = name_text(value.name)
    if isinstance(value, VariableContents):
        return f"{name}: {value.dtype.name}[{','.join(dims)}]"
    if value.reference:
        return f"{name}: &{value.reference}"
    element = f"{value.dtype.name}[{'*' if value.any_rank else ','.join(dims)}]"
    return f"{name}: {kind_text(value.kind, element)}"


def native_text(native: NativeContents) -> str:
    """`native acme.scale "(f32[n]) -> (f32[n])"`, perhaps with `optional` behind it."""
    optional = " optional" if native.optional else ""
    return f"native {name_text(native.name)} {json.dumps(native.signature)}{optional}"


def native_operands(contents: ModuleContents) -> list[str]:
    """What instructions call each native function: `@name`, or its number."""
    return [
        f"@{native.name}" if _PLAIN_NAME.fullmatch(native.name) else str(number)
        for number, native in enumerate(contents.natives)
    ]


def kernel_operands(contents: ModuleContents, target: str) -> list[str]:
    """What instructions of a target call each kernel: `@name`, or its number where that name is
    another one's too, or of another target."""
    named = [
        (executable.target, entry.name)
        for executable in contents.executables
        for entry in executable.entries
    ]
    counts = Counter(named)
    return [
        f"@{pair[1]}"
        if pair[0] == target and counts[pair] == 1 and _PLAIN_NAME.fullmatch(pair[1])
        else str(number)
        for number, pair in enumerate(named)
    ]


def function_code(contents: ModuleContents, function: FunctionContents) -> dict[int, str]:
    """The text of the instruction that starts at each word, with words where branches lead.
    DataLoss: the code is no valid instruction stream."""
    called = {
        "dispatch": kernel_operands(contents, function.target),
        "native.call": native_operands(contents),
    }
    words = struct.unpack(f"<{len(function.code.words) // 2}H", function.code.words)
    return dict(_instructions(words, contents.strings, called))


def function_text(contents: ModuleContents, function: FunctionContents) -> str:
    """The lines of one function. DataLoss: the code is no valid instruction stream."""
    registers = f"{function.i64_count} i64, {function.f64_count} f64, {function.ref_count} ref"
    kind = " exported" * function.exported + " init" * function.init
    signature = signature_text(function, quoted_dim)
    target = name_text(function.target)
    lines = [f"func {signature} target {target} registers {registers}{kind}"]
    if function.doc:
        lines.append(f"  doc {json.dumps(function.doc)}")
    for place, value in enumerate((*function.arguments, *function.results)):
        if value.doc:
            lines.append(f"  doc {place} {json.dumps(value.doc)}")
    locations = list(reversed(function.code.locations))
    instructions = function_code(contents, function)
    labels = _labels(instructions.values())
    for at, text in instructions.items():
        if at in labels:
            lines.append(f"  {labels[at]}:")
        while locations and locations[-1].word <= at:
            location = locations.pop()
            lines.append(f"  layer {json.dumps(location.layer)}, {json.dumps(location.op)}")
        if text.startswith("branch"):
            text = _TARGET.sub(lambda match: f"->{labels[int(match[1])]}", text)
        lines.append(f"  {at:5}  {text}")
    return "\n".join(lines) + "\n"


def _instructions(
    words: tuple[int, ...], strings: bytes, called: Mapping[str, list[str]]
) -> Iterator[tuple[int, str]]:
    """Words where instructions start, with their texts."""
    at = 0
    while at < len(words):
        text, length = _instruction(words, at, strings, called)
        yield at, text
        at += length


def _labels(texts: Iterable[str]) -> dict[int, str]:
    """Names of the words that branches lead to, in the order of the code."""
    branches = (text for text in texts if text.startswith("branch"))
    targets = {int(word) for text in branches for word in _TARGET.findall(text)}
    return {word: f"label{ordinal}" for ordinal, word in enumerate(sorted(targets))}


def _instruction(
    words: tuple[int, ...], at: int, strings: bytes, called: Mapping[str, list[str]]
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
    names = called.get(code.name, ())
    if names and int(operands[0]) < len(names):
        operands[0] = names[int(operands[0])]
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
        return str(struct.unpack("<q", data)[0]) if letter == "k" else _float_text(data)
    if letter in "st":
        low, high = take(), take()
        number = low | high << 16
        return json.dumps(read_text(strings, number)) if letter == "s" else f"->{number}"
    number = take()
    return str(number) if letter == "n" else f"{ {'i': 'i', 'f': 'f', 'o': 'r'}[letter] }{number}"


def _float_text(data: bytes) -> str:
    """The number, or the bits of one that is none."""
    text = repr(struct.unpack("<d", data)[0])
    return text if _PLAIN_FLOAT.fullmatch(text) else f"{struct.unpack('<Q', data)[0]:#x}"


def _bindings(take: Callable[[], int]) -> Iterator[str]:
    for _ in range(take()):
        reference, offset, length = take(), take(), take()
        yield f"r{reference}+i{offset}:i{length}"

"""The instructions of a function, from text to words, driven by the operand letters of
`spec/op.def`."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence

from ingot.compiler.vm.assembly_line import U16, U64, Line
from ingot.compiler.vm.contents import Code, Location
from ingot.compiler.vm.strings import StringTable
from ingot.hal.spec import OPCODES

__all__ = ["assemble_function"]

_FILES = {"i": "i", "f": "f", "o": "r"}  # of registers, by operand letter


def assemble_function(
    head: Line,
    lines: Sequence[Line],
    strings: StringTable,
    called: Mapping[str, Mapping[str, int]],
) -> Code:
    """The code in `lines`, below `head`; its texts are added to `strings`. `called` are, by
    instruction, the operands that name kernels and native functions."""
    code = _Code(strings, called)
    for line in lines:
        code.line(line)
    code.resolve()
    if not code.words:
        head.fail("the function has no instructions")
    return Code(struct.pack(f"<{len(code.words)}H", *code.words), tuple(code.locations))


class _Code:
    def __init__(self, strings: StringTable, called: Mapping[str, Mapping[str, int]]) -> None:
        self.strings = strings
        self.called = called
        self.words: list[int] = []
        self.locations: list[Location] = []
        self.labels: dict[str, int] = {}
        self.targets: list[tuple[int, str, Line]] = []  # words to fill in

    def line(self, line: Line) -> None:
        if line.is_string:
            line.fail("expected an instruction, a label or a layer")
        if line.is_number:
            line.token()  # where the instruction stood when the text was made
        if line.take("layer"):
            layer = line.string()
            line.expect(",")
            operations = line.end_with(line.string())
            self.locations.append(Location(len(self.words), layer, operations))
            return
        first = [line.word()]
        if line.take(":"):
            line.end()
            if first[0] in self.labels:
                line.fail(f"there are two labels {first[0]!r}")
            self.labels[first[0]] = len(self.words)
            return
        while line.take(","):
            first.append(line.word())
        results = first if line.take("=") else []
        name = line.word() if results else first[0]
        if name not in OPCODES or (not results and len(first) > 1):
            line.fail(f"there is no instruction {name!r}; docs/vm.md tells where they are listed")
        self._instruction(line, name, results)

    def _instruction(self, line: Line, name: str, results: list[str]) -> None:
        operation = OPCODES[name]
        self.words.append(operation.code)
        wanted = [kind for kind in operation.operand_kinds if kind[0].isupper()]
        if len(results) != len(wanted):
            line.fail(f"{name} writes {len(wanted)} registers, but there are {len(results)}")
        left = iter(results)
        is_first = True
        for kind in operation.operand_kinds:
            if kind[0].isupper():
                self.words.append(_register(line, kind, next(left)))
                continue
            if not is_first:
                line.expect(",")
            is_first = False
            self._operand(line, kind, name)
        line.end()

    def _operand(self, line: Line, kind: str, name: str) -> None:
        letter = kind[0]
        if kind.endswith("*"):
            self._list(line, lambda: self._operand(line, letter, name))
        elif letter == "b":
            line.expect("bindings")
            self._list(line, lambda: self._binding(line))
        elif letter in "kx":
            bits = _integer(line) if letter == "k" else _float(line)
            self.words += struct.unpack("<4H", bits)
        elif letter == "s":
            self._pair(self.strings.offset(line.string()))
        elif letter == "t":
            line.expect("->")
            self.targets.append((len(self.words), line.word(), line))
            self._pair(0)
        elif letter == "n":
            self.words.append(self._number(line, name))
        else:
            self.words.append(_register(line, letter, line.word()))

    def _number(self, line: Line, name: str) -> int:
        if name not in self.called or line.is_number:
            return line.number(0, U16)
        token = line.token()
        if token not in self.called[name]:
            what = "kernel" if name == "dispatch" else "native function"
            line.fail(f"there is no {what} {token!r} of that name alone for the function's target")
        return self.called[name][token]

    def _binding(self, line: Line) -> None:
        for kind, end in (("o", "+"), ("i", ":"), ("i", "")):
            self.words.append(_register(line, kind, line.word()))
            if end:
                line.expect(end)

    def _list(self, line: Line, read: Callable[[], None]) -> None:
        """A count word, and as many items as there are in brackets."""
        start = len(self.words)
        self.words.append(0)
        line.expect("[")
        while not line.take("]"):
            if self.words[start]:
                line.expect(",")
            if self.words[start] == U16:
                line.fail(f"a list has at most {U16} items")
            read()
            self.words[start] += 1

    def _pair(self, number: int) -> None:
        self.words += (number & U16, number >> 16)

    def resolve(self) -> None:
        """Fills in where branches lead."""
        for word, label, line in self.targets:
            if label not in self.labels:
                line.fail(f"there is no label {label!r} in the function")
            target = self.labels[label]
            self.words[word : word + 2] = target & U16, target >> 16


def _register(line: Line, kind: str, name: str) -> int:
    file = _FILES[kind[0].lower()]
    digits = name[1:]
    if not name.startswith(file) or not digits.isdecimal() or len(digits) > 5 or int(digits) > U16:
        line.fail(f"expected a register such as {file}0, got {name!r}")
    return int(digits)


def _integer(line: Line) -> bytes:
    return struct.pack("<q", line.number(-(1 << 63), (1 << 63) - 1))


def _float(line: Line) -> bytes:
    token = line.token()
    if token.startswith("0x") and len(token) <= 18:
        return struct.pack("<Q", int(token, 16) & U64)
    try:
        number = float(token)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        line.fail(f"expected a number, or its bits such as 0x7ff8000000000000, got {token!r}")
    return struct.pack("<d", number)

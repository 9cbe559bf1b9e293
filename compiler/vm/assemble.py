"""Makes bytecode from vm ops, driven by the operand letters of `spec/op.def`."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Mapping
from itertools import islice
from sys import byteorder
from typing import Any

from ingot.compiler.ir import Function, Op, Value
from ingot.compiler.vm.code import Instruction
from ingot.compiler.vm.contents import Code, Location
from ingot.compiler.vm.strings import StringTable
from ingot.hal.errors import CompileError
from ingot.hal.spec import opcode

__all__ = ["assemble"]

_WORD = 0xFFFF
_ASSIGNMENTS = {"assign.i64": "move.i64", "assign.f64": "move.f64"}


def assemble(function: Function, registers: Mapping[Value, int], strings: StringTable) -> Code:
    """The code of `function`; its texts are added to `strings`."""
    words = array("H")
    locations: list[Location] = []
    starts: list[int] = []
    targets: list[tuple[int, int]] = []  # (word, block ordinal) to fill in
    for block in function.body.blocks:
        starts.append(len(words))
        for op in block.ops:
            operations = Instruction.of(op).operations
            if not locations or (locations[-1].layer, locations[-1].op) != (
                op.location,
                operations,
            ):
                locations.append(Location(len(words), op.location, operations))
            _write(op, registers, strings, words, targets)
    for word, ordinal in targets:
        words[word], words[word + 1] = starts[ordinal] & _WORD, starts[ordinal] >> 16
    if byteorder == "big":
        words.byteswap()
    return Code(words.tobytes(), tuple(locations))


def _write(
    op: Op,
    registers: Mapping[Value, int],
    strings: StringTable,
    words: array[int],
    targets: list[tuple[int, int]],
) -> None:
    if op.name in _ASSIGNMENTS:
        target, value = (registers[each] for each in op.operands)
        if target != value:
            words.extend((opcode(_ASSIGNMENTS[op.name]).code, target, value))
        return
    code = opcode(op.name)
    operands, results = iter(op.operands), iter(op.results)
    immediates: Iterator[Any] = iter(Instruction.of(op).immediates)
    blocks = iter(Instruction.of(op).targets)
    counts: Iterator[Any] = iter(Instruction.of(op).counts)
    words.append(code.code)
    for kind in code.operand_kinds:
        letter = kind[0]
        if letter == "n":
            words.append(next(immediates))
        elif letter in "kx":
            words.extend(_immediate("<q" if letter == "k" else "<d", next(immediates)))
        elif letter == "s":
            offset = strings.offset(next(immediates))
            words.extend((offset & _WORD, offset >> 16))
        else:
            count = 1
            if letter == "b" or kind.endswith("*"):
                count = next(counts)
                words.append(count)
            if letter == "t":
                for _ in range(count):
                    targets.append((len(words), next(blocks)))
                    words.extend((0, 0))
                continue
            source = results if letter.isupper() else operands
            length = count * (3 if letter == "b" else 1)
            values = list(islice(source, length))
            if len(values) != length:
                raise ValueError(f"instruction '{op.name}' has too few operands: {op.operands}")
            words.extend(registers[value] for value in values)
    left = [*operands, *results, *immediates, *blocks, *counts]
    if left:
        raise ValueError(f"instruction '{op.name}' has {len(left)} operands too many: {left}")


def _immediate(format: str, number: int | float) -> tuple[int, ...]:
    """The four words of a number. CompileError: it has more bits."""
    try:
        return struct.unpack("<4H", struct.pack(format, number))
    except struct.error:
        raise CompileError(
            f"a size of the program is computed with the number {number:.6g}, which has more than "
            "63 bits: give its pads, strides, dilations and dims smaller values"
        ) from None

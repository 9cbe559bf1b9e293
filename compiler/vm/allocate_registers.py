"""Gives every value of a vm function a register of its file: i64, f64 or reference.

A linear scan over the code: a register is free again after the last use of its value. What
is made in front of a loop and used inside it lives to the loop's end, since the next step
uses it again. A result never takes the register of an operand of the same instruction, so that
an instruction may write one result before it has read all operands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingot.compiler.ir import Function, Op, RefType, ScalarType, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.vm.code import Instruction
from ingot.hal.errors import Unsupported

__all__ = ["MAX_REGISTERS", "Registers", "allocate_registers"]

MAX_REGISTERS = 1 << 16
_FILES = ("i64", "f64", "ref")


@dataclass(frozen=True)
class Registers:
    """The register of each value, and how many each file needs."""

    of: dict[Value, int]
    i64_count: int
    f64_count: int
    ref_count: int


def allocate_registers(function: Function) -> Registers:
    """Registers for all values of `function`. Unsupported if a file has too few."""
    ops = [op for block in function.body.blocks for op in block.ops]
    last_use = _last_uses(ops, _loops(function))
    assigned: dict[Value, int] = {}
    free: dict[str, list[int]] = {file: [] for file in _FILES}
    count = dict.fromkeys(_FILES, 0)
    ends: dict[int, list[Value]] = {}
    for value, place in last_use.items():
        ends.setdefault(place, []).append(value)
    for place, op in enumerate(ops):
        for result in op.results:
            file = _file(result)
            if free[file]:
                assigned[result] = free[file].pop()
            else:
                assigned[result] = count[file]
                count[file] += 1
            if result not in last_use:
                ends.setdefault(place, []).append(result)
        for value in ends.get(place, ()):
            free[_file(value)].append(assigned[value])
    for file in _FILES:
        if count[file] > MAX_REGISTERS:
            raise Unsupported(
                f"function '{function.name}' needs {count[file]} {file} registers, at most "
                f"{MAX_REGISTERS} exist: split the program into several functions"
            )
    return Registers(assigned, count["i64"], count["f64"], count["ref"])


@dataclass(frozen=True)
class _Loop:
    """The places [start, end] between a block and a branch back to it."""

    start: int
    end: int
    around: _Loop | None


def _loops(function: Function) -> dict[int, _Loop]:
    """Per place of the code the innermost loop around it."""
    starts: list[int] = []
    found: dict[int, int] = {}  # end by start
    place = 0
    for block in function.body.blocks:
        starts.append(place)
        for op in block.ops:
            for ordinal in Instruction.of(op).targets:
                if ordinal < len(starts):
                    found[starts[ordinal]] = place
            place += 1
    loops: dict[int, _Loop] = {}
    for start, end in sorted(found.items(), key=lambda loop: loop[0] - loop[1]):
        loop = _Loop(start, end, loops.get(start))
        loops.update(dict.fromkeys(range(start, end + 1), loop))
    return loops


def _last_uses(ops: Sequence[Op], loops: Mapping[int, _Loop]) -> dict[Value, int]:
    made = {result: place for place, op in enumerate(ops) for result in op.results}
    last: dict[Value, int] = {}
    for place, op in enumerate(ops):
        for operand in op.operands:
            end, loop = place, loops.get(place)
            while loop is not None and made[operand] < loop.start:
                end, loop = loop.end, loop.around
            last[operand] = max(end, last.get(operand, 0))
    return last


def _file(value: Value) -> str:
    if isinstance(value.type, RefType):
        return "ref"
    assert isinstance(value.type, ScalarType), value
    return value.type.dtype.name

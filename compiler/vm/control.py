"""Branches and loops as blocks of code.

A loop is tested at its top: the condition's code, then the body, then the branch back. What
it carries in registers is assigned there at the end of a step; tensors have their homes
already; those that change places are where a register says, and are copied out of there
behind the loop. Whatever does not change in a loop is computed in front of it, in the block of the
scope around, which stays open while the inner code is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from ingot.compiler.ir import Block, Op, ScalarType, Value
from ingot.compiler.stream.ops import Place, PlannedControl, Start
from ingot.compiler.vm.check_layers import LayerChecks
from ingot.compiler.vm.code import CodeBuilder

__all__ = ["Bytes", "write_control", "write_first_that_holds"]


class Bytes(NamedTuple):
    """Where a value lies, in registers: a reference to a buffer and a byte offset."""

    reference: Value
    offset: Value


class Converter(Protocol):
    """What converts the ops of bodies, and knows where values are."""

    code: CodeBuilder
    places: dict[Value, Bytes]
    scalars: dict[Value, Value]
    checks: LayerChecks
    carried: dict[int, Bytes]  # where values that change places lie in this step

    def place(self, place: Place) -> Bytes: ...
    def length(self, value: Value) -> Value: ...
    def op(self, op: Op) -> None: ...
    def places_of(self, op: Op) -> list[Bytes | None]: ...


def write_control(op: Op, converter: Converter) -> None:
    """The code of an `if`, `case` or `while`."""
    if op.name == "while":
        _loop(op, converter)
    else:
        _branch(op, converter)


def write_first_that_holds(
    conditions: Sequence[Value], bodies: Sequence[Callable[[], None]], code: CodeBuilder
) -> None:
    """The code of the first body whose condition holds, or of the last, which has none."""
    blocks, end = [Block() for _ in bodies], Block()
    tests = [code.block, *(Block() for _ in conditions[1:])]
    for test in tests[1:]:
        code.place(test)
    with code.open(tests[0]):
        for write, block in zip(bodies, blocks, strict=True):
            with code.scope(block):
                write()
                code.branch(end)
        if not conditions:
            code.branch(blocks[0])
        for place, condition in enumerate(conditions):
            with code.open(tests[place]):
                code.branch_if(condition, blocks[place], (*tests, blocks[-1])[place + 1])
    code.place(end)


def _write_numbered(number: Value, bodies: Sequence[Callable[[], None]], code: CodeBuilder) -> None:
    """The code of the body of that number, or of the last."""
    blocks, end = [Block() for _ in bodies], Block()
    for write, block in zip(bodies, blocks, strict=True):
        with code.scope(block):
            write()
            code.branch(end)
    code.branch_table(number, blocks)
    code.place(end)


def _loop(op: Op, converter: Converter) -> None:
    code, scalars = converter.code, converter.scalars
    condition, body = (region.block for region in op.regions)
    places = converter.places_of(op)
    registers: dict[int, Value] = {}
    starts = PlannedControl.of(op).starts
    moving = {ordinal: start for ordinal, start in enumerate(starts) if start is not None}
    for ordinal, first in moving.items():
        reference, start = converter.place(first.place)
        moved = converter.carried[first.number] = Bytes(reference, code.move(start))
        arguments = (block.arguments[ordinal] for block in (condition, body))
        converter.places.update(dict.fromkeys(arguments, moved))
    for ordinal, (operand, result) in enumerate(zip(op.operands, op.results, strict=True)):
        values = (result, condition.arguments[ordinal], body.arguments[ordinal])
        place = places[ordinal]
        if ordinal in moving:
            continue
        if place is not None:
            converter.places.update(dict.fromkeys(values, place))
        else:
            registers[ordinal] = code.move(scalars[operand])
            scalars.update(dict.fromkeys(values, registers[ordinal]))
    head, step, end = Block(), Block(), Block()
    with code.scope(head):
        _write(op, 0, converter)
        code.branch_if(scalars[condition.terminator.operands[0]], step, end)
        code.place(step)
        _write(op, 1, converter)
        following = body.terminator.operands
        targets = list(registers.values())
        _assign(code, targets, [scalars[following[ordinal]] for ordinal in registers])
        _change_places(op, moving, converter)
        code.branch(head)
    code.place(end)
    for ordinal, first in moving.items():
        target, length = places[ordinal], converter.length(op.results[ordinal])
        assert target is not None
        code.op("copy", *converter.carried[first.number], *target, length)
        converter.places[op.results[ordinal]] = target


def _change_places(op: Op, moving: Mapping[int, Start], converter: Converter) -> None:
    """Let every carried value that moves lie where its next one is."""
    sources = PlannedControl.of(op).sources
    offsets = {at: converter.carried[start.number].offset for at, start in moving.items()}
    following = [offsets[source] for at in moving if (source := sources[at]) is not None]
    _assign(converter.code, list(offsets.values()), following)


def _write(op: Op, place: int, converter: Converter) -> None:
    """The checks and ops of body number `place`."""
    checks = PlannedControl.of(op).checks
    if checks:
        converter.checks.add(checks[place])
    for inner in op.regions[place].block.ops:
        converter.op(inner)


def _assign(code: CodeBuilder, targets: Sequence[Value], sources: Sequence[Value]) -> None:
    """Give all targets their next values at once, as it were."""
    changing = {
        target for target, source in zip(targets, sources, strict=True) if target is not source
    }
    kept = {source: code.move(source) for source in sources if source in changing}
    for target, source in zip(targets, sources, strict=True):
        if target is not source:
            code.assign(target, kept.get(source, source))


def _branch(op: Op, converter: Converter) -> None:
    code, scalars = converter.code, converter.scalars
    targets: dict[int, Value] = {}
    for ordinal, (result, place) in enumerate(
        zip(op.results, converter.places_of(op), strict=True)
    ):
        if place is not None:
            converter.places[result] = place
        else:
            is_float = result.typed(ScalarType).dtype.is_float
            zero = code.float_constant(0.0) if is_float else code.constant(0)
            targets[ordinal] = scalars[result] = code.move(zero)

    def write(number: int) -> None:
        _write(op, number, converter)
        yielded = op.regions[number].block.terminator.operands
        _assign(code, list(targets.values()), [scalars[yielded[k]] for k in targets])

    bodies = [partial(write, number) for number in range(len(op.regions))]
    selector = scalars[op.operands[0]]
    if op.name == "case":
        _write_numbered(selector, bodies, code)
    else:
        write_first_that_holds([selector], bodies, code)

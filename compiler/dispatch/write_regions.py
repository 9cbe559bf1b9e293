"""Writes a function anew once its groups are formed: one `dispatch.region` per group.

Ops that are no kernel's - branches, loops, reads of sizes and variables, scalars of the
VM - stand alone between the regions, with the regions of their bodies inside. Leaves and
aliases stand where they are first needed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ingot.compiler.dispatch.group import (
    INDEX_OPS,
    MAXIMUM_BINDINGS,
    ORDERED,
    Group,
    is_elementwise,
    is_scalar_constant,
)
from ingot.compiler.ir import Block, Function, Op, Region, Value, clone_op
from ingot.hal.errors import CompileError

if TYPE_CHECKING:
    from ingot.compiler.dispatch.form_dispatches import Former

__all__ = ["captured_values", "write_function"]


def write_function(function: Function, former: Former) -> Function:
    """The function with the groups of `former` as regions."""
    block = _Writer(former, None).write()
    return replace(function, body=Region([block]))


def captured_values(former: Former) -> list[Value]:
    """What the groups of a body read from memory that is made outside of it."""
    found: dict[Value, None] = {}
    for group in former.groups:
        found.update(dict.fromkeys(_outside(group, former)))
    found.update(dict.fromkeys(former.block.terminator.operands))
    return [value for value in found if not former.is_inner(value)]


def _outside(group: Group, former: Former) -> list[Value]:
    """What the members of a group read from memory, each value once."""
    inside = {result for op in group.members for result in op.results}
    found = dict.fromkeys(
        operand
        for op in group.members
        for operand in op.operands
        if operand not in inside and not is_inner_constant(op, operand)
    )
    for op in group.members:
        for body in former.bodies.get(op, ()):
            found.update(dict.fromkeys(captured_values(body)))
    return list(found)


class _Writer:
    """Writes one block; `outer` writes the block around it."""

    def __init__(self, former: Former, outer: _Writer | None) -> None:
        self.former = former
        self.outer = outer
        old = former.block
        self.block = Block(argument.type for argument in old.arguments)
        self.values = dict(zip(old.arguments, self.block.arguments, strict=True))
        for argument, new in self.values.items():
            new.name = argument.name

    def write(self) -> Block:
        terminator = self.former.block.terminator
        self._expose(terminator.operands)
        for group in self.former.groups:
            self._expose(_outside(group, self.former))
        for group in self.former.groups:
            if group.kind == "alone":
                self._alone(group)
            elif group.exposed:
                self._region(group)
        operands = [self._memory(value) for value in terminator.operands]
        self.block.append(Op(terminator.name, operands, location=terminator.location))
        return self.block

    def _expose(self, values: list[Value]) -> None:
        for value in values:
            base = self.former.base(value)
            assert base is not None, f"{value} of {value.owner} lies in no memory"
            if base in self.former.group_of:
                self.former.group_of[base].exposed[base] = None

    def _find(self, value: Value) -> Value | None:
        found = self.values.get(value)
        return self.outer._find(value) if found is None and self.outer is not None else found

    def _memory(self, value: Value) -> Value:
        """The new value outside of regions, with the leaf or alias that makes it."""
        found = self._find(value)
        if found is not None:
            return found
        op = value.op
        operands = {operand: self._memory(operand) for operand in op.operands}
        new = self.block.append(clone_op(op, operands))
        self.values[value] = new.results[op.results.index(value)]
        return self.values[value]

    def _alone(self, group: Group) -> None:
        """An op of its own, with its bodies."""
        (op,) = group.members
        operands = [self._memory(operand) for operand in op.operands]
        bodies = [_Writer(body, self).write() for body in self.former.bodies.get(op, ())]
        types = [result.type for result in op.results]
        regions = [Region([block]) for block in bodies]
        new = self.block.append(Op(op.name, operands, types, op.attributes, regions, op.location))
        for old, result in zip(op.results, new.results, strict=True):
            result.name = old.name
            self.values[old] = result

    def _region(self, group: Group) -> None:
        body = _Body(group)
        for value in group.exposed:
            body.add(value)
        bindings = len(body.arguments) + len(group.exposed)
        if bindings > MAXIMUM_BINDINGS:
            raise CompileError(
                f"layer '{_locations(group)}' needs {bindings} buffers in one kernel, at most "
                f"{MAXIMUM_BINDINGS} are possible: split the operation in the source model"
            )
        operands = [self._memory(value) for value in body.arguments]
        inner = Block(value.type for value in operands)
        values = dict(zip(body.arguments, inner.arguments, strict=True))
        for op in body.ops:
            inner.append(clone_op(op, values))
        inner.append(Op("yield", [values[value] for value in group.exposed]))
        region = Op(
            "dispatch.region",
            operands,
            [value.type for value in group.exposed],
            regions=[Region([inner])],
            location=_locations(group),
        )
        self.block.append(region)
        self.values.update(zip(group.exposed, region.results, strict=True))


class _Body:
    """The ops of a region and what it reads, in the order in which the results need them.

    That order, and not the one of the program, makes equal kernels of different layers equal.
    """

    def __init__(self, group: Group) -> None:
        self.members = group.members
        self.ops: list[Op] = []
        self.arguments: list[Value] = []
        self._known: set[Value] = set()

    def add(self, value: Value, reader: Op | None = None) -> None:
        """Add what computes `value` for `reader`, or the argument that holds it."""
        if value in self._known:
            return
        op = value.owner
        inside = isinstance(op, Op) and (
            op in self.members or (reader is not None and is_inner_constant(reader, value))
        )
        if not inside:
            self._known.add(value)
            self.arguments.append(value)
            return
        assert isinstance(op, Op)
        for operand in op.operands:
            self.add(operand, op)
        self.ops.append(op)
        self._known.update(op.results)


def is_inner_constant(reader: Op, operand: Value) -> bool:
    """Whether `reader` gets the constant as a number in its code, not from memory."""
    inside = is_elementwise(reader) or reader.name in INDEX_OPS or reader.name in ORDERED
    return inside and is_scalar_constant(operand)


def _locations(group: Group) -> str:
    """The source layers of the ops that a group was formed for."""
    names = [
        op.location
        for op in group.members
        if op.location and any(result in group.owned for result in op.results)
    ]
    return ", ".join(dict.fromkeys(names))

"""Writes vm ops into blocks: one call per instruction, result types from the op table.

Code of branches and loops stands in scopes. What is computed in a scope is known in the
scopes inside; the block of an outer scope stays open while an inner one is written, so
that constants and sizes can be put where they are computed once, in front of a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field, replace

from ingot.compiler.ir import Block, Op, RefType, ScalarType, Type, Value
from ingot.compiler.ir.attributes import LEFT_OUT, Attributes, Ints, declare
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.spec import OPCODES, dtype, opcode

__all__ = ["F64", "I64", "REF", "CodeBuilder", "Instruction"]

I64 = ScalarType(dtype("i64"))
F64 = ScalarType(dtype("f64"))
_LONGEST_MESSAGE = 1000  # characters: a module may have 4095 bytes
REF = RefType()
_RESULT_TYPES: dict[str, Type] = {"I": I64, "F": F64, "O": REF}


@dataclass(frozen=True)
class Instruction(Attributes):
    """What a vm op has beside registers: immediates, counts and the ordinals of the blocks it may
    go to, each in the order of the operand letters; and the source operations that it does."""

    immediates: tuple[int | float | str, ...] = field(default=(), metadata=LEFT_OUT)
    counts: Ints = field(default=(), metadata=LEFT_OUT)
    targets: Ints = field(default=(), metadata=LEFT_OUT)
    operations: str = field(default="", metadata=LEFT_OUT)


declare(Instruction, *OPCODES, "assign.i64", "assign.f64")


@dataclass(eq=False)
class _Scope:
    """The block that the scope writes into, and what it computed, by key."""

    block: Block
    known: dict[Hashable, Value | tuple[Value, ...]] = field(default_factory=dict)


class CodeBuilder:
    """Appends instructions to the block of the innermost scope; constants are shared.

    `location` is given to the ops that follow.
    """

    def __init__(self, block: Block) -> None:
        self.blocks = [block]
        self.location = ""
        self.operations = ""  # the source operations at `location`
        self._scopes = [_Scope(block)]
        self._branches: list[tuple[Op, tuple[Block, ...]]] = []

    # Scopes and blocks.

    @property
    def level(self) -> int:
        """How many scopes are around the innermost one."""
        return len(self._scopes) - 1

    @property
    def block(self) -> Block:
        """The block that gets the next instruction."""
        return self._scopes[-1].block

    @contextmanager
    def scope(self, block: Block) -> Iterator[None]:
        """Inside, instructions go to `block`, which comes next in the code."""
        self.blocks.append(block)
        self._scopes.append(_Scope(block))
        try:
            yield
        finally:
            self._scopes.pop()

    def place(self, block: Block) -> None:
        """Go on with `block`, which comes next in the code."""
        self.blocks.append(block)
        self._scopes[-1].block = block

    @contextmanager
    def open(self, block: Block) -> Iterator[None]:
        """Inside, instructions of the innermost scope go to `block`, placed before."""
        scope = self._scopes[-1]
        before, scope.block = scope.block, block
        try:
            yield
        finally:
            scope.block = before

    @contextmanager
    def at_level(self, level: int) -> Iterator[None]:
        """Inside, instructions go to the open block of an outer scope."""
        inner = self._scopes[level + 1 :]
        del self._scopes[level + 1 :]
        try:
            yield
        finally:
            self._scopes.extend(inner)

    def once(
        self,
        key: Hashable,
        level: int,
        make: Callable[[], Value | tuple[Value, ...]],
    ) -> Value | tuple[Value, ...]:
        """What `make` computed in this scope or one around it, else computed at `level`."""
        for scope in self._scopes:
            if key in scope.known:
                return scope.known[key]
        with self.at_level(level):
            made = make()
        self._scopes[level].known[key] = made
        return made

    def branch(self, target: Block) -> None:
        """Go on at `target`."""
        self._branches.append((self._append("branch", ()), (target,)))

    def branch_if(self, condition: Value, then: Block, otherwise: Block) -> None:
        """Go on at `then` if the condition is not 0, else at `otherwise`."""
        self._branches.append((self._append("branch.if", (condition,)), (then, otherwise)))

    def branch_table(self, number: Value, targets: Sequence[Block]) -> None:
        """Go on at the target of that number, at the last one if there is none."""
        op = self._append("branch.table", (number,), counts=(len(targets),))
        self._branches.append((op, tuple(targets)))

    def finish(self) -> list[Block]:
        """All blocks in the order of the code, with the targets of branches filled in."""
        ordinals = {block: ordinal for ordinal, block in enumerate(self.blocks)}
        for op, targets in self._branches:
            op.attributes = replace(
                Instruction.of(op), targets=tuple(ordinals[target] for target in targets)
            )
        return self.blocks

    # Instructions.

    def op(
        self,
        name: str,
        *operands: Value,
        immediates: tuple[int | float | str, ...] = (),
        counts: tuple[int, ...] = (),
    ) -> list[Value]:
        """Append the instruction `name`; its results, in the order of the operand letters."""
        letters = opcode(name).operands
        types = [_RESULT_TYPES[letter] for letter in letters if letter in _RESULT_TYPES]
        return self._append(name, operands, types, immediates, counts).results

    def _append(
        self,
        name: str,
        operands: tuple[Value, ...],
        types: list[Type] | None = None,
        immediates: tuple[int | float | str, ...] = (),
        counts: tuple[int, ...] = (),
    ) -> Op:
        attributes = Instruction(immediates, counts, operations=self.operations)
        op = Op(name, operands, types or (), attributes, location=self.location)
        return self.block.append(op)

    def assign(self, target: Value, source: Value) -> None:
        """Write `source` into the register of `target`, which lives on with a new value."""
        self._append(f"assign.{'f64' if source.type == F64 else 'i64'}", (target, source))

    def move(self, source: Value) -> Value:
        """A register of its own with the value of `source`."""
        return self.op("move.f64" if source.type == F64 else "move.i64", source)[0]

    def constant(self, number: int) -> Value:
        """The register that holds `number`."""
        return self._constant("const.i64", number, number)

    def float_constant(self, number: float) -> Value:
        """The f64 register that holds `number`."""
        return self._constant("const.f64", number.hex(), number)

    def _constant(self, name: str, key: Hashable, number: int | float) -> Value:
        made = self.once((name, key), 0, lambda: self.op(name, immediates=(number,))[0])
        assert isinstance(made, Value)
        return made

    def check(self, condition: Value, status_code: int, message: str, *values: Value) -> None:
        """Fail the call with `message`, each {} replaced by a value, unless `condition`. A
        message that is longer than modules may have loses its end."""
        if len(message) > _LONGEST_MESSAGE:
            message = message[:_LONGEST_MESSAGE] + "..."
            values = values[: message.count("{}")]
        self.op(
            "assert",
            condition,
            *values,
            immediates=(status_code, message),
            counts=(len(values),),
        )

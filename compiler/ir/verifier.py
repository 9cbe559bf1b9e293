"""Checks that a module is well formed: SSA order, terminators, types, and a level's ops.

A `Level` is the set of ops that are legal there, each with a check of its own (the graph
level checks types against the op table). The verifier knows structure only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ingot.compiler.ir.core import Block, Function, Module, Op, Region, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.errors import CompileError

__all__ = ["Level", "verify"]

TERMINATORS = frozenset({"return", "yield"})


@dataclass(frozen=True)
class Level:
    """A level's legal ops by name. A check raises ValueError with what is wrong, or is None."""

    name: str
    ops: Mapping[str, Callable[[Op], None] | None]
    terminators: frozenset[str] = TERMINATORS
    check_module: Callable[[Module], Iterable[str]] | None = None  # gives what is wrong


def verify(module: Module, level: Level) -> None:
    """Raise CompileError that lists everything that is wrong with the module at `level`."""
    errors: list[str] = []
    for name, function in module.functions.items():
        if name != function.name:
            errors.append(f"function '{function.name}' is filed under the name '{name}'")
        _Verifier(function, level, errors).run()
    if level.check_module is not None:
        errors.extend(level.check_module(module))
    if errors:
        raise CompileError(f"the module is no valid {level.name} IR:\n  " + "\n  ".join(errors))


class _Verifier:
    def __init__(self, function: Function, level: Level, errors: list[str]) -> None:
        self.function = function
        self.level = level
        self.errors = errors

    def error(self, op: Op, message: str) -> None:
        place = f" at '{op.location}'" if op.location else ""
        self.errors.append(f"'@{self.function.name}': op '{op.name}'{place}: {message}")

    def run(self) -> None:
        function = self.function
        if not function.body.blocks:
            self.errors.append(f"'@{function.name}' has no block")
            return
        for what, names, count in (
            ("argument", function.argument_names, len(function.arguments)),
            ("result", function.result_names, None),
        ):
            if len(set(names)) != len(names):
                self.errors.append(f"'@{function.name}' has two {what}s of one name: {names}")
            if count is not None and names and len(names) != count:
                self.errors.append(
                    f"'@{function.name}' has {count} {what}s, but {len(names)} {what} names"
                )
        self.region(function.body, set())

    def region(self, region: Region, visible: set[Value]) -> None:
        own: list[Value] = []  # what is visible in it alone
        for block in region.blocks:
            self.see(block.arguments, visible, own)
            self.block(block, visible, own)
        visible.difference_update(own)

    @staticmethod
    def see(values: Sequence[Value], visible: set[Value], own: list[Value]) -> None:
        own += (value for value in values if value not in visible)
        visible.update(values)

    def block(self, block: Block, visible: set[Value], own: list[Value]) -> None:
        if not block.ops or block.ops[-1].name not in self.level.terminators:
            self.errors.append(f"'@{self.function.name}' has a block without a terminator")
        for argument in block.arguments:
            if argument.owner is not block:
                self.errors.append(f"argument {argument!r} does not know its block")
        for place, op in enumerate(block.ops):
            if op.name in self.level.terminators and place != len(block.ops) - 1:
                self.error(op, "stands before the end of its block")
            self.op(op, visible)
            self.see(op.results, visible, own)

    def op(self, op: Op, visible: set[Value]) -> None:
        for place, operand in enumerate(op.operands):
            if operand not in visible:
                self.error(op, f"operand {place} ({operand!r}) is not defined before it")
        for result in op.results:
            if result.owner is not op:
                self.error(op, f"result {result!r} does not know its op")
        if op.name not in self.level.ops:
            self.error(op, f"is not legal at the {self.level.name} level")
            return
        check = self.level.ops[op.name]
        if check is not None:
            try:
                check(op)
            except ValueError as error:
                self.error(op, str(error))
        for region in op.regions:
            self.region(region, visible)

"""The structure of printed C: names, blocks, loops, branches, assignments.

`CStructure` knows nothing of what an op computes; the printers of C and of OpenCL C derive
from it and say how types, expressions and the statements on memory look.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from ingot.compiler.ir import Block, Function, MemoryType, Op, Value
from ingot.hal.spec import DType

__all__ = ["CStructure", "register_bits"]

_NOWHERE = Block()  # the owner of a name that stands for no op


def register_bits(element: DType) -> int:
    """Bits of a lane of `element` in a register."""
    return 32 if element.is_half else element.bits


class CStructure(ABC):
    """Prints the body of one kernel or function, one variable per value."""

    statements: ClassVar[dict[str, str]]  # op name to the method that prints it as statements

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self.mask_bits: dict[Value, int] = {}  # lane width of vectors of i1
        self.depth = 1

    @abstractmethod
    def _type(self, value: Value) -> str:
        """The type of a variable for the value."""

    @abstractmethod
    def _mask(self, value: Value, bits: int) -> str:
        """A vector of i1 with lanes of `bits`."""

    @abstractmethod
    def _expression(self, op: Op) -> str:
        """The value of an op."""

    def _loop_hint(self, op: Op) -> str | None:
        """A line in front of a loop."""
        return None

    def _function(self, function: Function) -> tuple[str, str]:
        """The head of a function of its arguments, from its type to the closing parenthesis, and
        its body."""
        arguments = [
            f"{self._type(argument)} {self._new_name(argument)}" for argument in function.arguments
        ]
        self._block(function.block)
        (result,) = function.block.terminator.operands
        self._line(f"return {self._name(result)};")
        head = f"{self._type(result)} {function.name}({', '.join(arguments)})"
        return head, "\n".join(self.lines)

    def _condition(self, value: Value) -> str:
        """What a branch asks."""
        return self._name(value)

    def _line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def _block(self, block: Block) -> None:
        for op in block.ops:
            if op.name in ("yield", "return"):
                continue
            statement = self.statements.get(op.name)
            if statement is not None:
                getattr(self, statement)(op)
            else:
                self._define(op.result, self._expression(op))

    def _new_name(self, value: Value) -> str:
        self.names[value] = f"v{len(self.names)}"
        return self.names[value]

    def _define(self, value: Value, expression: str) -> None:
        qualifier = "" if isinstance(value.type, MemoryType) else "const "
        text = self._type(value)
        self._line(f"{qualifier}{text} {self._new_name(value)} = {expression};")

    def _name(self, value: Value) -> str:
        return self.names[value]

    def _like(self, value: Value, target: Value) -> str:
        """`value` as it is assigned to `target`, which has the same type."""
        if target in self.mask_bits:
            return self._mask(value, self.mask_bits[target])
        return self._name(value)

    def _for(self, op: Op) -> None:
        self._declare_carried(op)
        lower, upper, step = map(self._name, op.operands[:3])
        index = op.regions[0].block.arguments[0]
        name, type = self._new_name(index), self._type(index)
        self._loop(op, f"for ({type} {name} = {lower}; {name} < {upper}; {name} += {step}) {{", "}")

    def _declare_carried(self, op: Op) -> None:
        carried = op.regions[0].block.arguments[1:]
        for argument, initial, result in zip(carried, op.operands[3:], op.results, strict=True):
            declared = self._type(argument)
            self._line(f"{declared} {self._new_name(argument)} = {self._like(initial, argument)};")
            self.names[result] = self.names[argument]
            if argument in self.mask_bits:
                self.mask_bits[result] = self.mask_bits[argument]

    def _loop(self, op: Op, head: str, tail: str) -> None:
        """A loop's body between two lines."""
        hint, body = self._loop_hint(op), op.regions[0].block
        if hint is not None:
            self._line(hint)
        self._line(head)
        self.depth += 1
        self._block(body)
        self._assign(body.arguments[1:], body.terminator.operands)
        self.depth -= 1
        self._line(tail)

    def _assign(self, targets: list[Value], values: list[Value]) -> None:
        """All at once: a value that is itself a target is read first."""
        texts = []
        for target, value in zip(targets, values, strict=True):
            text = self._like(value, target)
            if value in targets and value is not target:
                copy = f"v{len(self.names)}"
                self.names[Value(value.type, _NOWHERE)] = copy
                self._line(f"const {self._type(target)} {copy} = {text};")
                text = copy
            texts.append(text)
        for target, text in zip(targets, texts, strict=True):
            if text != self._name(target):
                self._line(f"{self._name(target)} = {text};")

    def _if(self, op: Op) -> None:
        for result in op.results:
            self._line(f"{self._type(result)} {self._new_name(result)};")
        self._line(f"if ({self._condition(op.operands[0])}) {{")
        for place, region in enumerate(op.regions):
            if place == 1:
                if len(region.block.ops) == 1 and not op.results:
                    break
                self._line("} else {")
            self.depth += 1
            self._block(region.block)
            for result, value in zip(op.results, region.block.terminator.operands, strict=True):
                self._line(f"{self._name(result)} = {self._like(value, result)};")
            self.depth -= 1
        self._line("}")

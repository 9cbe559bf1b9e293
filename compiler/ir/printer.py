"""IR of any level as text that `parser.py` reads back; `docs/ir.md` describes the form.

Printing never fails and never looks at what an op means. Values without a name are
numbered per function; a name that is taken gets a number at its end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from ingot.compiler.ir.attributes import Record, shown
from ingot.compiler.ir.core import Attribute, Block, Function, Literal, Module, Op, Region, Value
from ingot.compiler.ir.dims import Expr
from ingot.compiler.ir.literals import literal_text
from ingot.compiler.ir.types import (
    IndexType,
    ListType,
    MemoryType,
    PassedType,
    RefType,
    ScalarType,
    TensorType,
    Type,
    VectorType,
)
from ingot.hal.spec import DType

__all__ = ["attribute_text", "to_text"]

_TYPES = (
    TensorType,
    ListType,
    PassedType,
    ScalarType,
    VectorType,
    MemoryType,
    IndexType,
    RefType,
)
_BARE = re.compile(r"[A-Za-z_][\w.$-]*\Z")
_ODD = re.compile(r"[^\w.$-]")


def to_text(root: Module | Function | Op, elide: bool = False) -> str:
    """The text of a module, function or op. `elide` leaves out large constants' elements.

    Elided text is for reading: the parser refuses it.
    """
    printer = _Printer(elide)
    if isinstance(root, Module):
        printer.module(root)
    elif isinstance(root, Function):
        printer.function(root, "")
    else:
        printer.op(root, "")
    return "\n".join(printer.lines) + "\n"


def attribute_text(value: Attribute, elide: bool = False) -> str:
    """One attribute as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value is None:
        return "none"
    if isinstance(value, Record):
        return f"{{{', '.join(f'{k}={attribute_text(v, elide)}' for k, v in shown(value))}}}"
    if isinstance(value, tuple):
        return f"[{', '.join(attribute_text(item, elide) for item in value)}]"
    if isinstance(value, DType):
        return value.name
    if isinstance(value, Expr):
        return f"<{value}>"
    if isinstance(value, Literal):
        return literal_text(value, elide)
    if isinstance(value, _TYPES):
        return f"!{value}"
    raise TypeError(f"attribute {value!r} has no text form")


class _Printer:
    def __init__(self, elide: bool) -> None:
        self.elide = elide
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self.taken: set[str] = set()
        self.counter = 0
        self.type_texts: dict[Type, str] = {}

    def name(self, value: Value) -> str:
        """The value's name, chosen when it is first met."""
        known = self.names.get(value)
        if known is not None:
            return known
        if value.name:
            wanted = _ODD.sub("_", value.name)
            if not _BARE.match(wanted):
                wanted = f"_{wanted}"
            name, count = wanted, 0
            while name in self.taken:
                count += 1
                name = f"{wanted}_{count}"
        else:
            name = str(self.counter)
            self.counter += 1
        self.taken.add(name)
        self.names[value] = name
        return name

    def type(self, type: Type) -> str:
        text = self.type_texts.get(type)
        if text is None:
            text = self.type_texts[type] = str(type)
        return text

    def attributes(self, attributes: Iterable[tuple[str, Attribute]]) -> str:
        pairs = (f"{name}={attribute_text(each, self.elide)}" for name, each in attributes)
        return f"{{{', '.join(pairs)}}}"

    def module(self, module: Module) -> None:
        self.lines.append(f"module {self.attributes(module.attributes.items())} {{")
        for name, variable in module.variables.items():
            initial = attribute_text(variable.initial, self.elide)
            self.lines.append(f"  variable @{name}: {self.type(variable.type)} = {initial}")
        for function in module.functions.values():
            self.function(function, "  ")
        self.lines.append("}")

    def function(self, function: Function, indent: str) -> None:
        self.names, self.taken, self.counter = {}, set(), 0
        blocks = function.body.blocks
        arguments = self.parameters(blocks[0].arguments, function.argument_names)
        kind = "func" if function.exported else "func private"
        head = f"{indent}{kind} @{function.name}({arguments})"
        results = self.results(function)
        if results is not None:
            head += f" -> ({results})"
        if function.symbols:
            ranges = (
                f"{name} in [{low}, {'none' if high is None else high}]"
                for name, (low, high) in function.symbols.items()
            )
            head += f" symbols {{{', '.join(ranges)}}}"
        if function.docs:
            pairs = (f"{json.dumps(n)}: {json.dumps(t)}" for n, t in function.docs.items())
            head += f" docs {{{', '.join(pairs)}}}"
        attributes = shown(function.attributes)
        if attributes:
            head += f" attributes {self.attributes(attributes)}"
        self.lines.append(head + " {")
        self.ops(blocks[0], indent + "  ")
        for block in blocks[1:]:
            self.block(block, indent)
        self.lines.append(f"{indent}}}")

    def parameters(self, values: Iterable[Value], names: list[str]) -> str:
        parts = [f"%{self.name(value)}: {self.type(value.type)}" for value in values]
        for place, name in enumerate(names[: len(parts)]):
            parts[place] += f" {json.dumps(name, ensure_ascii=False)}"
        return ", ".join(parts)

    def results(self, function: Function) -> str | None:
        """The types of what the function returns; None if no block ends with `return`."""
        for block in function.body.blocks:
            if block.ops and block.ops[-1].name == "return":
                parts = [self.type(value.type) for value in block.ops[-1].operands]
                for place, name in enumerate(function.result_names[: len(parts)]):
                    parts[place] += f" {json.dumps(name, ensure_ascii=False)}"
                return ", ".join(parts)
        return None

    def block(self, block: Block, indent: str) -> None:
        self.lines.append(f"{indent}^({self.parameters(block.arguments, [])}):")
        self.ops(block, indent + "  ")

    def ops(self, block: Block, indent: str) -> None:
        for op in block.ops:
            self.op(op, indent)

    def op(self, op: Op, indent: str) -> None:
        text = f"{op.name}({', '.join([f'%{self.name(operand)}' for operand in op.operands])})"
        attributes = shown(op.attributes)
        if attributes:
            text += f" {self.attributes(attributes)}"
        if op.results:
            names = ", ".join([f"%{self.name(result)}" for result in op.results])
            types = ", ".join([self.type(result.type) for result in op.results])
            text = f"{names} = {text} : {types}"
        location = f" loc({json.dumps(op.location, ensure_ascii=False)})" if op.location else ""
        if not op.regions:
            self.lines.append(f"{indent}{text}{location}")
            return
        self.lines.append(f"{indent}{text} ({{")
        for place, region in enumerate(op.regions):
            if place:
                self.lines.append(f"{indent}}}, {{")
            self.region(region, indent)
        self.lines.append(f"{indent}}}){location}")

    def region(self, region: Region, indent: str) -> None:
        for block in region.blocks:
            self.block(block, indent)

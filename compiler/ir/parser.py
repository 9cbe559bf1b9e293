"""Reads the text form of the IR back: `parse(to_text(module))` prints the same text.

One regular expression cuts the text into tokens; the rest is recursive descent. It checks
that values are defined before they are used, once; what an op means is the verifier's
business. Errors are CompileError with line and column.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from typing import Any

import numpy as np

from ingot.compiler.ir.attributes import Attributes, RuleError, attributes_of
from ingot.compiler.ir.core import (
    Attribute,
    Block,
    Function,
    Literal,
    Module,
    Op,
    Region,
    Value,
    Variable,
)
from ingot.compiler.ir.dim_text import parse_dim
from ingot.compiler.ir.literals import literal_from_bytes, literal_from_numbers
from ingot.compiler.ir.types import (
    IndexType,
    ListType,
    MemoryType,
    PassedType,
    ReferenceType,
    RefType,
    ScalarType,
    TensorType,
    Type,
    VectorType,
)
from ingot.hal.errors import CompileError
from ingot.hal.spec import DTYPES

__all__ = ["parse", "parse_function", "parse_type"]

_TOKEN = re.compile(
    r"""\s*(?://[^\n]*(?:\n|\Z)\s*)*(
      "(?:[^"\\]|\\.)*"                      # string
    | [%@][\w.$-]+                           # value, function
    | dense<
    | (?:vector|memory)<\w+>
    | (?:list|sequence|optional|optional_sequence)<\w+\[(?:[\d,?]*|\*)\]>
    | [A-Za-z_]\w*\[[^\]\[]*\]               # tensor type
    | &[\w.]+                               # type of a reference
    | <[^<>]*>                               # dim
    | -?(?:inf|nan)\b
    | -?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?
    | [A-Za-z_][\w.]*
    | ->
    | \.\.\.
    | [{}()\[\],:=^!>]
    )""",
    re.VERBOSE,
)

_WORDS: dict[str, Type] = {"ref": RefType(), "index": IndexType()}
_GREATEST_SPLAT = 1 << 24  # elements of a literal that its text does not give one by one
_GREATEST_DIGITS = 25  # more than any number of 64 bits has


def parse(text: str) -> Module:
    """Read a module. Raises CompileError with the place of what is wrong."""
    parser = _Parser(text)
    module = parser.module()
    parser.end()
    return module


def parse_function(text: str) -> Function:
    """Read one function. Raises CompileError with the place of what is wrong."""
    parser = _Parser(text)
    function = parser.function()
    parser.end()
    return function


def parse_type(text: str) -> Type:
    """Read a type such as `f32[n,4]`. Raises CompileError if it is none."""
    parser = _Parser(text)
    type = parser.type()
    parser.end()
    return type


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        self.starts: list[int] = []
        self.at = 0
        self.values: dict[str, Value] = {}
        self.types: dict[str, Type] = {}
        self.tokenize()

    def tokenize(self) -> None:
        position, end = 0, len(self.text.rstrip())
        match = _TOKEN.match
        while position < end:
            found = match(self.text, position)
            if found is None:
                if not self.text[position:].strip() or self.only_comments(position):
                    break
                self.starts.append(position)
                raise self.error(f"unreadable text {self.text[position : position + 20]!r}")
            self.tokens.append(found.group(1))
            self.starts.append(found.start(1))
            position = found.end()
        self.starts.append(end)
        self.tokens.append("")

    def only_comments(self, position: int) -> bool:
        lines = self.text[position:].strip().splitlines()
        return all(line.strip().startswith("//") or not line.strip() for line in lines)

    def error(self, message: str) -> CompileError:
        start = self.starts[min(self.at, len(self.starts) - 1)]
        line = self.text.count("\n", 0, start) + 1
        column = start - self.text.rfind("\n", 0, start)
        return CompileError(f"IR text, line {line}, column {column}: {message}")

    # Tokens

    def peek(self) -> str:
        return self.tokens[self.at]

    def next(self) -> str:
        token = self.tokens[self.at]
        if not token:
            raise self.error("the text ends here, but more was expected")
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        if self.tokens[self.at] == token:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.error(f"expected {token!r}, got {self.peek() or 'the end'!r}")

    def end(self) -> None:
        if self.peek():
            raise self.error(f"expected the end, got {self.peek()!r}")

    def string(self) -> str:
        if not self.peek().startswith('"'):
            raise self.error(f"expected a string, got {self.peek() or 'the end'!r}")
        token = self.next()
        try:
            return str(json.loads(token, strict=False))
        except ValueError:
            self.at -= 1
            raise self.error(f"string {token[:40]} has a wrong escape") from None

    def identifier(self) -> str:
        token = self.peek()
        if not (token[:1].isalpha() or token[:1] == "_") or token.endswith(("]", ">", "<")):
            raise self.error(f"expected a name, got {token or 'the end'!r}")
        return self.next()

    def reference(self, prefix: str) -> str:
        if not self.peek().startswith(prefix):
            raise self.error(f"expected a name with {prefix!r}, got {self.peek() or 'the end'!r}")
        return self.next()[1:]

    def integer(self) -> int:
        token = self.peek()
        if not token.lstrip("-").isdigit():
            raise self.error(f"expected an integer, got {token or 'the end'!r}")
        return self.whole()

    # Types and attributes

    def type(self) -> Type:
        token = self.next()
        known = self.types.get(token)
        if known is None:
            self.at -= 1
            known = self.types[token] = self.read_type(token)
            self.at += 1
        return known

    def read_type(self, token: str) -> Type:
        if token in _WORDS:
            return _WORDS[token]
        if token in DTYPES:
            return ScalarType(DTYPES[token])
        if token.startswith("&"):
            return ReferenceType(name=token[1:])
        if token.endswith("]>"):
            kind, _, element = token.partition("<")
            list = self.read_list_type(element.removesuffix(">"))
            return list if kind == "list" else PassedType(kind, list)
        head, bracket, inner = token.partition("[")
        if bracket and head in DTYPES and inner.endswith("]"):
            try:
                dims = tuple(parse_dim(part) for part in _split(inner[:-1]))
            except ValueError as error:
                raise self.error(str(error)) from None
            return TensorType(DTYPES[head], dims)
        head, bracket, inner = token.partition("<")
        inner = inner.rstrip(">")
        if head == "memory" and inner in DTYPES:
            return MemoryType(DTYPES[inner])
        lanes, _, element = inner.partition("x")
        if head == "vector" and lanes.isdigit() and element in DTYPES:
            return VectorType(DTYPES[element], int(lanes))
        raise self.error(f"expected a type, got {token!r}")

    def read_list_type(self, token: str) -> ListType:
        """`f32[?,4]` as the type of a list's elements."""
        head, _, inner = token.removesuffix("]").partition("[")
        if inner == "*" and head in DTYPES:
            return ListType(DTYPES[head], any_rank=True)
        dims = _split(inner)
        if head not in DTYPES or not all(dim == "?" or dim.isdigit() for dim in dims):
            raise self.error(f"expected a type, got {token!r}")
        return ListType(DTYPES[head], tuple(None if dim == "?" else int(dim) for dim in dims))

    def attribute(self) -> Any:
        token = self.peek()
        first = token[:1]
        if first == '"':
            return self.string()
        if first.isdigit() or first == "-" or token in ("inf", "nan"):
            return self.number()
        if token == "[":
            return self.items()
        if token == "{":
            return self.attributes()
        if token == "dense<":
            return self.literal()
        if first == "<":
            self.at += 1
            try:
                return parse_dim(token[1:-1])
            except ValueError as error:
                self.at -= 1
                raise self.error(str(error)) from None
        if self.accept("!"):
            return self.type()
        constants: dict[str, Attribute] = {"true": True, "false": False, "none": None}
        if token in constants:
            self.at += 1
            return constants[token]
        if token in DTYPES:
            self.at += 1
            return DTYPES[token]
        raise self.error(f"expected an attribute, got {token or 'the end'!r}")

    def number(self) -> int | float:
        if self.peek().lstrip("-").isdigit():
            return self.whole()
        return float(self.next())

    def whole(self) -> int:
        if len(self.peek()) > _GREATEST_DIGITS:
            raise self.error(f"a number of {len(self.peek())} digits, at most 64 bits are possible")
        return int(self.next())

    def items(self) -> tuple[Attribute, ...]:
        self.expect("[")
        items: list[Attribute] = []
        while not self.accept("]"):
            if items:
                self.expect(",")
            items.append(self.attribute())
        return tuple(items)

    def literal(self) -> Literal:
        self.expect("dense<")
        type = self.type()
        if not isinstance(type, TensorType):
            raise self.error(f"a literal has a tensor type, not {type}")
        shape = tuple(dim for dim in type.shape if isinstance(dim, int))
        if len(shape) != type.rank:
            raise self.error(f"a literal has a static shape, not {type}")
        if self.peek() == "...":
            raise self.error("the elements of this literal were elided when it was printed")
        try:
            if self.peek().startswith('"'):
                data = base64.b64decode(self.next()[1:-1], validate=True)
                result = literal_from_bytes(data, shape, type.dtype)
            elif self.peek() == "[":
                result = literal_from_numbers(list(self.items()), shape, type.dtype)
            else:
                if math.prod(shape) > _GREATEST_SPLAT:
                    raise ValueError(
                        f"one number is repeated at most {_GREATEST_SPLAT} times; use a broadcast"
                    )
                one = literal_from_numbers([self.attribute()], (), type.dtype)
                result = Literal(np.broadcast_to(one.array, shape), type.dtype)
        except (ValueError, OverflowError, TypeError, binascii.Error) as error:
            raise self.error(f"literal of type {type}: {error}") from None
        self.expect(">")
        return result

    def attributes(self) -> dict[str, Attribute]:
        self.expect("{")
        attributes: dict[str, Attribute] = {}
        while not self.accept("}"):
            if attributes:
                self.expect(",")
            name = self.identifier()
            if name in attributes:
                raise self.error(f"attribute '{name}' is given twice")
            self.expect("=")
            attributes[name] = self.attribute()
        return attributes

    # Modules, functions, ops

    def module(self) -> Module:
        self.expect("module")
        module = Module(attributes=self.attributes())
        self.expect("{")
        while self.accept("variable"):
            self.variable(module)
        while not self.accept("}"):
            function = self.function()
            if function.name in module.functions:
                raise self.error(f"function '@{function.name}' is defined twice")
            module.add(function)
        return module

    def variable(self, module: Module) -> None:
        name = self.reference("@")
        if name in module.variables:
            raise self.error(f"variable '@{name}' is defined twice")
        self.expect(":")
        type = self.type()
        if not isinstance(type, TensorType):
            raise self.error(f"a variable has a tensor type, not {type}")
        self.expect("=")
        module.variables[name] = Variable(type, self.literal())

    def function(self) -> Function:
        self.values = {}
        self.expect("func")
        exported = not self.accept("private")
        name = self.reference("@")
        block, argument_names = self.block_arguments()
        function = Function(name, Region([block]), argument_names, exported=exported)
        declared = self.function_results(function) if self.accept("->") else None
        if self.accept("symbols"):
            function.symbols = self.symbols()
        if self.accept("docs"):
            function.docs = self.docs()
        if self.accept("attributes"):
            function.attributes = self.typed_attributes("func", f"function '@{name}'", [])
        self.expect("{")
        self.ops(block)
        self.blocks(function.body)
        self.expect("}")
        if declared is not None:
            self.check_results(function, declared)
        return function

    def function_results(self, function: Function) -> list[Type]:
        self.expect("(")
        types: list[Type] = []
        while not self.accept(")"):
            if types:
                self.expect(",")
            types.append(self.type())
            if self.peek().startswith('"'):
                function.result_names.append(self.string())
        return types

    def check_results(self, function: Function, declared: list[Type]) -> None:
        for block in function.body.blocks:
            if block.ops and block.ops[-1].name == "return":
                returned = [value.type for value in block.ops[-1].operands]
                if returned != declared:
                    given, wanted = (", ".join(map(str, each)) for each in (returned, declared))
                    raise self.error(
                        f"'@{function.name}' returns ({given}), but declares ({wanted})"
                    )

    def symbols(self) -> dict[str, tuple[int, int | None]]:
        self.expect("{")
        symbols: dict[str, tuple[int, int | None]] = {}
        while not self.accept("}"):
            if symbols:
                self.expect(",")
            name = self.identifier()
            self.expect("in")
            self.expect("[")
            low = self.integer()
            self.expect(",")
            symbols[name] = (low, None if self.accept("none") else self.integer())
            self.expect("]")
        return symbols

    def docs(self) -> dict[str, str]:
        self.expect("{")
        docs: dict[str, str] = {}
        while not self.accept("}"):
            if docs:
                self.expect(",")
            name = self.string()
            self.expect(":")
            docs[name] = self.string()
        return docs

    def define(self, name: str, value: Value) -> None:
        if name in self.values:
            raise self.error(f"value %{name} is defined twice")
        if not name.isdigit():
            value.name = name
        self.values[name] = value

    def block_arguments(self) -> tuple[Block, list[str]]:
        self.expect("(")
        names: list[str] = []
        types: list[Type] = []
        labels: list[str] = []
        while not self.accept(")"):
            if names:
                self.expect(",")
            names.append(self.reference("%"))
            self.expect(":")
            types.append(self.type())
            if self.peek().startswith('"'):
                labels.append(self.string())
        block = Block(types)
        for name, value in zip(names, block.arguments, strict=True):
            self.define(name, value)
        return block, labels

    def blocks(self, region: Region) -> None:
        while self.accept("^"):
            block, _ = self.block_arguments()
            self.expect(":")
            region.blocks.append(block)
            self.ops(block)

    def ops(self, block: Block) -> None:
        while self.peek() not in ("}", "^", ""):
            block.append(self.op())

    def op(self) -> Op:
        names: list[str] = []
        if self.peek().startswith("%"):
            names.append(self.next()[1:])
            while self.accept(","):
                names.append(self.reference("%"))
            self.expect("=")
        name = self.identifier()
        operands = self.operands()
        types = [value.type for value in operands]
        attributes = self.typed_attributes(name, f"op '{name}'", types)
        types = []
        if names:
            self.expect(":")
            types.append(self.type())
            while self.accept(","):
                types.append(self.type())
            if len(types) != len(names):
                raise self.error(f"op '{name}' has {len(names)} results, but {len(types)} types")
        regions = self.regions() if self.peek() == "(" else []
        location = ""
        if self.accept("loc"):
            self.expect("(")
            location = self.string()
            self.expect(")")
        op = Op(name, operands, types, attributes, regions, location)
        for each, result in zip(names, op.results, strict=True):
            self.define(each, result)
        return op

    def typed_attributes(self, name: str, what: str, operands: list[Type]) -> Attributes:
        start = self.at
        given = self.attributes() if self.peek() == "{" else {}
        try:
            return attributes_of(name, given, operands)
        except RuleError as error:
            self.at = start
            raise self.error(f"{what}: {error}") from None

    def operands(self) -> list[Value]:
        self.expect("(")
        operands: list[Value] = []
        while not self.accept(")"):
            if operands:
                self.expect(",")
            name = self.reference("%")
            if name not in self.values:
                self.at -= 1
                raise self.error(f"value %{name} is used before it is defined")
            operands.append(self.values[name])
        return operands

    def regions(self) -> list[Region]:
        self.expect("(")
        regions: list[Region] = []
        while not self.accept(")"):
            if regions:
                self.expect(",")
            self.expect("{")
            region, outside = Region(), dict(self.values)
            self.blocks(region)
            self.values = outside  # names inside mean nothing outside
            self.expect("}")
            regions.append(region)
        return regions


def _split(text: str) -> list[str]:
    """Cut at the commas that stand in no parentheses; [] for blank text."""
    parts: list[str] = []
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]] if text.strip() else []

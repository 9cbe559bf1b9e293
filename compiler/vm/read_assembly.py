"""Reads the text that `write_assembly.py` describes. Its words are those of `spec/op.def`.

Only the form is checked here: what a module may say is the business of the verifier, which
looks at every module when it is loaded. Errors are CompileError with the number of the line.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dim_text import parse_dim
from ingot.compiler.ir.dims import Dim
from ingot.compiler.stream.data import Bytes, Constants, Parameter
from ingot.compiler.vm.assembly_code import assemble_function
from ingot.compiler.vm.assembly_line import U32, U64, Line, refuse
from ingot.compiler.vm.build_module import native_contents
from ingot.compiler.vm.contents import (
    Entry,
    Executable,
    FunctionContents,
    ModuleContents,
    NativeContents,
    ValueContents,
    VariableContents,
    Variant,
)
from ingot.compiler.vm.disassemble import kernel_operands, native_operands
from ingot.compiler.vm.strings import StringTable
from ingot.hal.errors import InvalidArgument
from ingot.hal.spec import DTYPES, DType
from ingot.hal.value_kind import PASSED_KINDS

__all__ = ["read_assembly"]

_Row = TypeVar("_Row")
_STATEMENTS = (
    "metadata",
    "parameter",
    "variable",
    "native",
    "version",
    "executable",
    "func",
    "constants",
    "object",
    "debug",
)
_LONGEST_RANK = 32
_GREATEST_SIZE = (1 << 63) - 1


@dataclass(frozen=True)
class _Statement:
    """A line at the left edge, and the indented ones behind it."""

    head: Line
    body: list[Line]


def read_assembly(text: str, name: str, known: Mapping[str, Bytes] | None = None) -> ModuleContents:
    """The module that `text` describes; `name` is the file's, for messages. `known` are the bytes
    that a hash may stand for. CompileError: the line that is wrong, and how."""
    statements = list(_statements(text, name))
    if not statements or not statements[0].head.take("module"):
        place = statements[0].head if statements else Line(name, 1, "")
        place.fail("expected 'module globals COUNT', with which the text of a module begins")
    by_kind: dict[str, list[_Statement]] = {each: [] for each in _STATEMENTS}
    for statement in statements[1:]:
        kind = statement.head.word()
        if kind not in by_kind:
            statement.head.fail(f"expected one of {', '.join(_STATEMENTS)}, got {kind!r}")
        by_kind[kind].append(statement)
    for kind in ("metadata", "constants", "debug"):
        if len(by_kind[kind]) > 1:
            by_kind[kind][1].head.fail(f"there are two {kind!r}, but a module has one")
    return _Reader(statements[0], by_kind, known or {}).module()


def _statements(text: str, name: str) -> Iterator[_Statement]:
    statement: _Statement | None = None
    for number, source in enumerate(text.split("\n"), 1):
        line = Line(name, number, source)
        if line.is_empty:
            continue
        if not source[0].isspace():
            if statement is not None:
                yield statement
            statement = _Statement(line, [])
        elif statement is None:
            line.fail("it is indented, but nothing stands above that it could belong to")
        else:
            statement.body.append(line)
    if statement is not None:
        yield statement


class _Reader:
    def __init__(
        self,
        first: _Statement,
        statements: Mapping[str, list[_Statement]],
        known: Mapping[str, Bytes],
    ) -> None:
        self.first = first
        self.statements = statements
        self.known = known

    def module(self) -> ModuleContents:
        self.first.head.expect("globals")
        global_count = self.first.head.end_with(self.first.head.number(0, U32))
        refuse(self.first.body)
        tables = ModuleContents(
            (),
            b"",
            Constants.of(self._bytes("constants")),
            tuple(map(self._parameter, self.statements["parameter"])),
            self._executables(),
            global_count,
            self._metadata(),
            tuple(map(self._variable, self.statements["variable"])),
            bytes(self._bytes("debug")),
            tuple(map(self._native, self.statements["native"])),
            tuple(map(_version, self.statements["version"])),
        )
        strings = StringTable()
        called: dict[str, dict[str, Mapping[str, int]]] = {}
        functions = tuple(
            self._function(each, tables, strings, called) for each in self.statements["func"]
        )
        return replace(tables, functions=functions, strings=bytes(strings))

    def _metadata(self) -> dict[str, Any]:
        for statement in self.statements["metadata"]:
            refuse(statement.body)
            line = statement.head
            try:
                found = json.loads(line.token())
            except (RecursionError, ValueError) as error:
                line.fail(f"metadata is an object of JSON, in one line: {error}")
            if not isinstance(found, dict):
                line.fail("metadata is an object of JSON")
            return line.end_with(found)
        return {}

    def _parameter(self, statement: _Statement) -> Parameter:
        refuse(statement.body)
        line = statement.head
        scope = line.name()
        name, dtype, shape = line.name(), *_static_tensor(line)
        return line.end_with(Parameter(scope, name, dtype, shape))

    def _variable(self, statement: _Statement) -> VariableContents:
        line = statement.head
        name, dtype, shape = line.name(), *_static_tensor(line, 1)
        line.expect("initial")
        offset = line.number(0, U64)
        line.expect(",")
        length = line.end_with(line.number(0, U64))
        docs = _docs(statement.body, 0)
        return VariableContents(name, dtype, shape, offset, length, docs.get(-1, ""))

    def _native(self, statement: _Statement) -> NativeContents:
        refuse(statement.body)
        line = statement.head
        name, signature = line.name(), line.string()
        optional = line.end_with(line.take("optional"))
        try:
            return native_contents(name, signature, optional)
        except InvalidArgument as error:
            line.fail(str(error))

    # Executables.

    def _executables(self) -> tuple[Executable, ...]:
        objects = list(self.statements["object"])
        found = tuple(self._executable(each, objects) for each in self.statements["executable"])
        if objects:
            objects[0].head.fail("there are more objects than variants")
        return found

    def _executable(self, statement: _Statement, objects: list[_Statement]) -> Executable:
        line = statement.head
        name = line.name()
        line.expect("target")
        target = line.end_with(line.name())
        entries: list[Entry] = []
        variants: list[Variant] = []
        for each in statement.body:
            if each.take("kernel"):
                entries.append(_entry(each))
            elif each.take("variant"):
                variants.append(self._variant(each, objects))
            elif entries and not variants and each.is_string:
                more = entries[-1].region + each.end_with(each.string())
                entries[-1] = replace(entries[-1], region=more)
            else:
                each.fail("expected a kernel, behind it its graph as strings, or a variant")
        return Executable(name, target, tuple(entries), tuple(variants))

    def _variant(self, line: Line, objects: list[_Statement]) -> Variant:
        name = line.name()
        line.expect("format")
        form = line.name()
        line.expect("features")
        features = line.end_with(line.number(0, U64))
        if not objects:
            line.fail("there is no object for it: every variant has one, in their order")
        return Variant(name, form, features, self._blob(objects.pop(0)))

    # Bytes.

    def _bytes(self, kind: str) -> Bytes:
        for statement in self.statements[kind]:
            return self._blob(statement)
        return b""

    def _blob(self, statement: _Statement) -> Bytes:
        statement.head.end()
        pieces: list[Bytes] = []
        for line in statement.body:
            if line.take("sha256"):
                pieces.append(self._known(line, line.end_with(line.string())))
            elif line.take("base64"):
                text = line.end_with(line.string())
                try:
                    pieces.append(base64.b64decode(text, validate=True))
                except ValueError as error:
                    line.fail(f"this is no base64: {error}")
            else:
                line.fail("expected base64 or sha256 and a string")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _known(self, line: Line, hash: str) -> Bytes:
        if not self.known:
            line.fail(
                "the bytes with this hash are those of the module that the text was made of: name "
                "it with --from, or make the text with `ingot dis -o`"
            )
        if hash not in self.known:
            line.fail("the module that --from names has no bytes with this hash")
        return self.known[hash]

    # Functions.

    def _function(
        self,
        statement: _Statement,
        tables: ModuleContents,
        strings: StringTable,
        called: dict[str, dict[str, Mapping[str, int]]],
    ) -> FunctionContents:
        line = statement.head
        name = line.name()
        arguments = _list(line, _value)
        line.expect("->")
        results = _list(line, _value)
        line.expect("target")
        target = line.name()
        i64_count, f64_count, ref_count = _registers(line)
        exported, init = line.take("exported"), line.take("init")
        line.end()
        values = [*arguments, *results]
        count = 0
        while count < len(statement.body) and statement.body[count].is_next("doc"):
            count += 1
        docs = _docs(statement.body[:count], len(values))
        values = [replace(each, doc=docs.get(at, "")) for at, each in enumerate(values)]
        if target not in called:
            called[target] = {
                "dispatch": _ordinals(kernel_operands(tables, target)),
                "native.call": _ordinals(native_operands(tables)),
            }
        code = assemble_function(line, statement.body[count:], strings, called[target])
        split = len(arguments)
        ends = tuple(values[:split]), tuple(values[split:])
        return FunctionContents(
            name,
            target,
            code,
            i64_count,
            f64_count,
            ref_count,
            *ends,
            exported,
            init,
            docs.get(-1, ""),
        )


def _ordinals(operands: Sequence[str]) -> dict[str, int]:
    return {text: number for number, text in enumerate(operands)}


def _version(statement: _Statement) -> tuple[str, int]:
    refuse(statement.body)
    name = statement.head.string()
    return name, statement.head.end_with(statement.head.number(0, U32))


def _entry(line: Line) -> Entry:
    name = line.name()
    line.expect("bindings")
    bindings = line.number(0, U32)
    line.expect("constants")
    constants = line.number(0, U32)
    line.expect("written")
    written = line.number(0, U64)
    line.expect("layer")
    return Entry(name, line.end_with(line.string()), bindings, constants, written)


def _registers(line: Line) -> Iterator[int]:
    """How many a function has of each kind."""
    line.expect("registers")
    for kind in ("i64", "f64", "ref"):
        if kind != "i64":
            line.expect(",")
        yield line.number(0, U32)
        line.expect(kind)


def _docs(lines: list[Line], count: int) -> dict[int, str]:
    """What is said of values by their place, of the whole at -1."""
    docs: dict[int, str] = {}
    for line in lines:
        line.expect("doc")
        place = -1 if line.is_string else line.number(0, count - 1)
        if place in docs:
            line.fail("this has a doc already")
        docs[place] = line.end_with(line.string())
    return docs


def _list(line: Line, read: Callable[[Line], _Row]) -> list[_Row]:
    rows: list[_Row] = []
    line.expect("(")
    while not line.take(")"):
        if rows:
            line.expect(",")
        rows.append(read(line))
    return rows


def _value(line: Line) -> ValueContents:
    name = line.name()
    line.expect(":")
    if line.take("&"):
        return ValueContents(name, DTYPES["i64"], (), "", "reference", reference=line.word())
    kind = ""
    for part in ("optional", "sequence"):
        if line.take(part):
            line.expect("(")
            kind += f"_{part}" if kind else part
    dtype, shape = _tensor(line, kind != "")
    for _ in kind.split("_") if kind else ():
        line.expect(")")
    assert not kind or kind in PASSED_KINDS
    any_rank = shape is None
    return ValueContents(name, dtype, shape or (), "", kind or "tensor", any_rank)


def _static_tensor(line: Line, open_dims: int = 0) -> tuple[DType, tuple[Any, ...]]:
    line.expect(":")
    dtype, shape = _tensor(line, False)
    if shape is None or not all(isinstance(each, int) for each in shape[open_dims:]):
        line.fail("the dims of parameters are numbers, and those of variables but the first")
    return dtype, shape


def _tensor(line: Line, is_element: bool) -> tuple[DType, tuple[Dim | None, ...] | None]:
    """dtype and dims; no dims of elements of any rank."""
    name = line.word()
    if name not in DTYPES:
        line.fail(f"unknown dtype {name!r}; the dtypes are: {', '.join(DTYPES)}")
    line.expect("[")
    if is_element and line.take("*"):
        line.expect("]")
        return DTYPES[name], None
    dims: list[Dim | None] = []
    while not line.take("]"):
        if dims:
            line.expect(",")
        if len(dims) == _LONGEST_RANK:
            line.fail(f"a tensor has at most {_LONGEST_RANK} dims")
        dims.append(None if is_element and line.take("?") else _dim(line, is_element))
    return DTYPES[name], tuple(dims)


def _dim(line: Line, is_element: bool) -> Dim:
    if line.is_number:
        return line.number(0, _GREATEST_SIZE)
    if is_element:
        line.fail("a dim of an element is a number, or ? where elements may differ")
    text = line.name()
    try:
        dim = parse_dim(text)
    except ValueError as error:
        line.fail(str(error))
    if isinstance(dim, int) and not 0 <= dim <= _GREATEST_SIZE:
        line.fail(f"a size is from 0 to {_GREATEST_SIZE}, got {dim}")
    return dim

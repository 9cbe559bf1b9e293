"""Read a StableHLO portable artifact: MLIR bytecode that holds VHLO ops.

An artifact is a list of sections: strings, dialects and op names, the attribute and type
tables, op properties, and the ops. Attributes and types are decoded when first used and
once; constants share the artifact's memory. No MLIR library is needed. What the entries
mean stands in `attributes.py`, the result in `program.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ingot.compiler.frontends.stablehlo.reading.attribute_names import attribute_names
from ingot.compiler.frontends.stablehlo.reading.attributes import (
    Location,
    read_attribute,
    read_type,
)
from ingot.compiler.frontends.stablehlo.reading.cursor import Cursor, decode
from ingot.compiler.frontends.stablehlo.reading.program import (
    FunctionType,
    SourceBlock,
    SourceFunction,
    SourceOp,
    SourceProgram,
    SourceType,
    SourceValue,
)
from ingot.hal.errors import CompileError, Incompatible

__all__ = ["read_artifact"]

_MAGIC = b"ML\xefR"
_NEWEST_FORMAT = 6
_STRINGS, _DIALECTS, _ENTRIES, _ENTRY_SIZES, _OPS, _VERSIONS, _PROPERTIES = 0, 1, 2, 3, 4, 7, 8
_REQUIRED = {
    _STRINGS: "strings",
    _DIALECTS: "dialects",
    _ENTRIES: "attributes",
    _ENTRY_SIZES: "attribute sizes",
    _OPS: "ops",
}
_GREATEST_DEPTH = 200
_LARGEST_ATTRIBUTE = 1 << 24  # entries and letters in one, those in these included
_LARGEST_TYPE = 1 << 16
_NAMED_PER_BYTE = 16  # entries in types of operands and results, for each byte of the artifact


def read_artifact(data: bytes | bytearray | memoryview) -> SourceProgram:
    """The program in a portable artifact, or in `jax.export.Exported.serialize()`.

    Constants share the memory of `data`. Raises CompileError for bytes that are no artifact,
    Incompatible for a newer format, DataLoss for a truncated or corrupted artifact.
    """
    return _Reader(_locate(memoryview(data).cast("B"))).read()


def _locate(data: memoryview) -> memoryview:
    """The artifact in `data`: all of it, or what a serialized jax export carries."""
    if bytes(data[:4]) == _MAGIC:
        return data
    head = bytes(data[:64])
    is_export = b"StableHLO" in bytes(data[: 1 << 20])
    found = re.search(re.escape(_MAGIC), data) if is_export else None
    start = found.start() if found else -1
    if start >= 4:  # a flatbuffer vector: the length stands before the data
        length = int.from_bytes(data[start - 4 : start], "little")
        return data[start : start + length]
    raise CompileError(
        f"the source is no StableHLO portable artifact: it starts with {head[:4]!r}, expected "
        f"{_MAGIC!r}; use jax.export.export(jax.jit(f))(*args).mlir_module_serialized"
    )


@dataclass
class _Entry:
    """One row of the attribute or type table; `value` is set once it is decoded."""

    dialect: str
    is_binary: bool
    cursor: Cursor
    value: Any = None
    size: int = 1  # entries in it and itself, and the letters of texts
    is_decoded: bool = False
    is_open: bool = False


class _Scope:
    """The values that the ops of a region see, by number.

    A region's values are numbered from the end of all values of the regions around it,
    those that are still to come included.
    """

    def __init__(self) -> None:
        self.values: list[SourceValue | None] = []
        self.next = 0

    def define(self, cursor: Cursor, values: list[SourceValue]) -> None:
        end = self.next + len(values)
        if end > len(self.values):
            raise cursor.fail(f"value {end - 1} does not exist, there are {len(self.values)}")
        self.values[self.next : end] = values
        self.next = end


class _Reader:
    """The state of reading one artifact; it serves as `Tables` for the entries."""

    def __init__(self, data: memoryview) -> None:
        file = Cursor(data, "header")
        file.span(4)
        self.format = file.unsigned()
        self.producer = file.text()
        self._check_versions()
        self.sections: dict[int, Cursor] = {}
        while not file.at_end:
            number, section = file.section()
            self.sections[number] = section
        for number, name in _REQUIRED.items():
            if number not in self.sections:
                raise file.fail(f"the section of {name} is missing")
            self.sections[number].what = name
        self.depth = 0
        self.inside = 0  # entries in what was named so far by the entry that is being decoded
        self.sizes: dict[int, int] = {}  # of types that consist of others, by identity
        self.named = 0  # entries in the types of operands and results so far
        self.most_named = _LARGEST_TYPE + _NAMED_PER_BYTE * len(data)

    def read(self) -> SourceProgram:
        self.strings = self._read_strings(self.sections[_STRINGS])
        self.dialects: list[str] = []
        self.op_names: list[tuple[str, str]] = []
        self._read_dialects(self.sections[_DIALECTS])
        self.attributes: list[_Entry] = []
        self.types: list[_Entry] = []
        self._read_entry_sizes(self.sections[_ENTRY_SIZES], self.sections[_ENTRIES])
        self.properties = self._read_properties()
        block = self._read_block(self.sections[_OPS], _Scope())
        return self._program(block)

    def _check_versions(self) -> None:
        match = re.fullmatch(r"StableHLO_v(\d+)\.(\d+)\.(\d+)", self.producer)
        if match is None:
            raise CompileError(
                f"the source is MLIR bytecode by {self.producer!r}, expected a StableHLO portable "
                "artifact; use stablehlo.serialize_portable_artifact_str or jax.export"
            )
        self.version = self.producer.removeprefix("StableHLO_v")
        if self.format > _NEWEST_FORMAT or int(match[1]) > 1:
            raise Incompatible(
                f"the artifact is StableHLO {self.version} in bytecode format {self.format}; this "
                f"version reads StableHLO 0.9 to 1.x in formats up to {_NEWEST_FORMAT}; export "
                "for an older version, or update Ingot"
            )

    # Tables

    @staticmethod
    def _read_strings(cursor: Cursor) -> list[str]:
        lengths = cursor.list_of(cursor.unsigned)[::-1]
        return [decode(cursor.span(length)[:-1]) for length in lengths]

    def _read_dialects(self, cursor: Cursor) -> None:
        for _ in range(cursor.count()):
            number, has_version = cursor.unsigned(), False
            if self.format >= 1:
                number, has_version = number >> 1, bool(number & 1)
            self.dialects.append(self._row(cursor, self.strings, number, "string"))
            if has_version:
                cursor.section()
        if self.format >= 4:
            cursor.unsigned()  # the number of op names, only a hint
        while not cursor.at_end:
            dialect = self._row(cursor, self.dialects, cursor.unsigned(), "dialect")
            for _ in range(cursor.count()):
                number = cursor.flagged()[0] if self.format >= 5 else cursor.unsigned()
                self.op_names.append((dialect, self._row(cursor, self.strings, number, "string")))

    def _read_entry_sizes(self, sizes: Cursor, entries: Cursor) -> None:
        for table in ((self.attributes, sizes.unsigned()), (self.types, sizes.unsigned())):
            rows, count = table
            while len(rows) < count:
                dialect = self._row(sizes, self.dialects, sizes.unsigned(), "dialect")
                for _ in range(sizes.count()):
                    length, is_binary = sizes.flagged()
                    rows.append(_Entry(dialect, is_binary, entries.inside(length, "attributes")))

    def _read_properties(self) -> list[Cursor]:
        cursor = self.sections.get(_PROPERTIES)
        if cursor is None:
            return []
        cursor.what = "op properties"
        return list(cursor.list_of(cursor.blob))

    @staticmethod
    def _row(cursor: Cursor, rows: list[Any], number: int, what: str) -> Any:
        if number >= len(rows):
            raise cursor.fail(f"{what} {number} does not exist, there are {len(rows)}")
        return rows[number]

    def string(self, cursor: Cursor) -> str:
        text: str = self._row(cursor, self.strings, cursor.unsigned(), "string")
        return text

    def attribute(self, cursor: Cursor) -> Any:
        return self._entry(cursor, self.attributes, cursor.unsigned(), "attribute")

    def type(self, cursor: Cursor) -> SourceType:
        return self._type(cursor, cursor.unsigned())

    def _type(self, cursor: Cursor, number: int) -> SourceType:
        type: SourceType = self._entry(cursor, self.types, number, "type")
        return type

    def _value_type(self, cursor: Cursor) -> SourceType:
        return self._count_named(cursor, self.type(cursor))

    def _count_named(self, cursor: Cursor, type: SourceType) -> SourceType:
        """The type of an operand or result, whose entries are gone through each time."""
        self.named += self.sizes.get(id(type), 1)
        if self.named > self.most_named:
            raise cursor.fail("tuples of values have too many values in them")
        return type

    def _entry(self, cursor: Cursor, rows: list[_Entry], number: int, what: str) -> Any:
        entry: _Entry = self._row(cursor, rows, number, what)
        if not entry.is_decoded:
            if entry.is_open or self.depth > _GREATEST_DEPTH:
                raise cursor.fail(f"{what} {number} contains itself or is nested too deep")
            self._decode(entry, rows is self.types)
            if not entry.cursor.at_end:
                raise entry.cursor.fail(f"{what} {number} goes on after its end")
        self.inside += entry.size
        return entry.value

    def _decode(self, entry: _Entry, is_type: bool) -> None:
        """Few bytes may hold an entry that names another one twice, which names the next one
        twice, and so on: how much that is has a limit."""
        around, self.inside = self.inside, 1
        entry.is_open, self.depth = True, self.depth + 1
        if not entry.is_binary:
            entry.value = entry.cursor.text()
        elif is_type:
            entry.value = read_type(entry.dialect, entry.cursor, self)
        else:
            entry.value = read_attribute(entry.dialect, entry.cursor, self)
        self.inside += len(entry.value) if isinstance(entry.value, str) else 0
        if self.inside > (_LARGEST_TYPE if is_type else _LARGEST_ATTRIBUTE):
            raise entry.cursor.fail("what others consist of is there too many times")
        entry.size, self.inside = self.inside, around
        if is_type and entry.size > 1:
            self.sizes[id(entry.value)] = entry.size
        entry.is_decoded, self.depth = True, self.depth - 1

    # Ops

    def _read_block(self, cursor: Cursor, scope: _Scope) -> SourceBlock:
        block = SourceBlock()
        op_count, has_arguments = cursor.flagged()
        if has_arguments:
            for _ in range(cursor.count()):
                block.arguments.append(self._read_argument(cursor))
            scope.define(cursor, block.arguments)
            if self.format >= 3 and cursor.byte():
                self._skip_use_orders(cursor, len(block.arguments))
        for _ in range(op_count):
            block.ops.append(self._read_op(cursor, scope))
        return block

    def _read_argument(self, cursor: Cursor) -> SourceValue:
        if self.format < 4:
            return SourceValue(self._value_type(cursor), None, self._location(cursor))
        number, has_location = cursor.flagged()
        location = self._location(cursor) if has_location else ""
        return SourceValue(self._count_named(cursor, self._type(cursor, number)), None, location)

    def _location(self, cursor: Cursor) -> str:
        place = self.attribute(cursor)
        return place.text if isinstance(place, Location) else ""

    def _read_op(self, cursor: Cursor, scope: _Scope) -> SourceOp:
        dialect, name = self._row(cursor, self.op_names, cursor.unsigned(), "op name")
        parts = cursor.byte()
        op = _named_op(dialect, name, self._location(cursor))
        if parts & 1:
            self._read_dictionary(cursor, op)
        if parts & 64:
            self._read_op_properties(cursor, op, name)
        if parts & 2:
            types = cursor.list_of(lambda: self._value_type(cursor))
            op.results = [SourceValue(type, op) for type in types]
        if parts & 4:
            op.operands = list(cursor.list_of(lambda: self._operand(cursor, scope)))
        if parts & 8:
            raise cursor.fail(f"op '{name}' branches to another block, which StableHLO forbids")
        if self.format >= 3 and parts & 32:
            self._skip_use_orders(cursor, len(op.results))
        scope.define(cursor, op.results)
        if parts & 16:
            self._read_regions(cursor, op, scope)
        return op

    def _read_dictionary(self, cursor: Cursor, op: SourceOp) -> None:
        attributes = self.attribute(cursor)
        if not isinstance(attributes, dict):
            raise cursor.fail(f"the attributes of op '{op.name}' are no dictionary")
        op.attributes.update(attributes)

    def _read_op_properties(self, cursor: Cursor, op: SourceOp, name: str) -> None:
        shared = self._row(cursor, self.properties, cursor.unsigned(), "property list")
        values = Cursor(shared.data, shared.what, shared.base)
        if op.dialect == "builtin":
            for key in ("sym_name", "sym_visibility"):
                number, is_set = values.flagged()
                if is_set:
                    op.attributes[key] = self._entry(values, self.attributes, number, "attribute")
            return
        for key in attribute_names(name):
            op.attributes[key] = self.attribute(values)
        op.undecoded = not values.at_end

    def _operand(self, cursor: Cursor, scope: _Scope) -> SourceValue:
        value: SourceValue | None = self._row(cursor, scope.values, cursor.unsigned(), "value")
        if value is None:
            raise cursor.fail("an op uses a value before it is defined")
        self._count_named(cursor, value.type)
        return value

    def _skip_use_orders(self, cursor: Cursor, value_count: int) -> None:
        """Skip the order of uses in memory, which means nothing to us."""
        for _ in range(cursor.count() if value_count > 1 else 1):
            if value_count > 1:
                cursor.unsigned()
            for _ in range(cursor.flagged()[0]):
                cursor.unsigned()

    def _read_regions(self, cursor: Cursor, op: SourceOp, scope: _Scope) -> None:
        region_count, is_isolated = cursor.flagged()
        self.depth += 1
        if self.depth > _GREATEST_DEPTH:
            raise cursor.fail(f"op '{op.name}' is nested too deep")
        body = cursor
        if is_isolated:
            scope = _Scope()
            if self.format >= 2:
                _, body = cursor.section()
                body.what = "ops"
        for _ in range(region_count):
            op.regions.append(self._read_region(body, scope))
        self.depth -= 1

    def _read_region(self, cursor: Cursor, scope: _Scope) -> list[SourceBlock]:
        block_count = cursor.count()
        if block_count == 0:
            return []
        outer_next, outer_end = scope.next, len(scope.values)
        scope.values.extend([None] * cursor.count())
        scope.next = outer_end
        blocks = [self._read_block(cursor, scope) for _ in range(block_count)]
        del scope.values[outer_end:]
        scope.next = outer_next
        return blocks

    # The result

    def _program(self, top: SourceBlock) -> SourceProgram:
        cursor = self.sections[_OPS]
        if len(top.ops) != 1 or top.ops[0].name != "module" or len(top.ops[0].regions) != 1:
            raise cursor.fail("the artifact holds no module")
        module = top.ops[0]
        program = SourceProgram(self.version, str(module.attributes.get("sym_name", "")), {})
        program.attributes = module.attributes
        for block in module.regions[0]:
            for op in block.ops:
                if op.name == "func" and op.regions != [[]]:  # else a declaration
                    function = self._function(cursor, op)
                    program.functions[function.name] = function
        return program

    @staticmethod
    def _function(cursor: Cursor, op: SourceOp) -> SourceFunction:
        type = op.attributes.get("function_type")
        if not isinstance(type, FunctionType) or len(op.regions) != 1 or len(op.regions[0]) != 1:
            raise cursor.fail("a function has no type, or a body of several blocks")
        body = op.regions[0][0]
        if len(body.arguments) != len(type.inputs) or not body.ops:
            raise cursor.fail("a function does not fit its type")
        return SourceFunction(
            str(op.attributes.get("sym_name", "")),
            op.attributes.get("sym_visibility") != "private",
            body,
            _dictionaries(op.attributes.get("arg_attrs"), len(type.inputs)),
            _dictionaries(op.attributes.get("res_attrs"), len(type.results)),
            list(type.results),
        )


def _named_op(dialect: str, name: str, location: str) -> SourceOp:
    """An op from a name such as "dot_general_v2"."""
    match = re.fullmatch(r"(.+)_v(\d+)", name)
    if match is None or dialect != "vhlo":
        return SourceOp(name, 1, dialect, location)
    return SourceOp(match[1], int(match[2]), dialect, location)


def _dictionaries(attributes: Any, count: int) -> list[dict[str, Any]]:
    rows = list(attributes) if isinstance(attributes, tuple) else []
    rows = [row if isinstance(row, dict) else {} for row in rows]
    return rows + [{} for _ in range(count - len(rows))]

"""Reads a module file back into its contents, for `ingot inspect` and the tests.

The runtime has its own reader in C, which checks more: this one checks what it needs to
say clearly that a file is damaged.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

from ingot.compiler.ir.dim_text import parse_dim
from ingot.compiler.ir.dims import Dim
from ingot.compiler.stream.data import Bytes, Constants, Parameter
from ingot.compiler.vm.contents import (
    Code,
    Entry,
    Executable,
    FunctionContents,
    Location,
    ModuleContents,
    NativeContents,
    ValueContents,
    VariableContents,
    Variant,
)
from ingot.compiler.vm.sections import table_sections
from ingot.hal import spec
from ingot.hal.errors import DataLoss, Incompatible
from ingot.hal.lz4 import continued_mark, decompress, variant_mark
from ingot.hal.value_kind import kind_of_code

__all__ = ["read_dim", "read_module", "read_text"]


def read_module(data: bytes | memoryview, *, verify: bool = True) -> ModuleContents:
    """The contents of a module file. DataLoss: damaged. Incompatible: another version.

    `verify=False` skips the crc of the constants.
    """
    reader = _Reader(memoryview(data).cast("B"), verify)
    functions = tuple(reader.function(row) for row in reader.rows("FUNCTIONS", "function"))
    return ModuleContents(
        functions,
        bytes(reader.section("STRINGS")),
        Constants.of(reader.section("CONSTANTS")),
        tuple(reader.parameter(row) for row in reader.rows("PARAMETERS", "parameter")),
        tuple(reader.executable(row) for row in reader.rows("EXECUTABLES", "executable")),
        reader.global_count,
        json.loads(bytes(reader.section("METADATA")) or b"{}"),
        tuple(reader.variable(row) for row in reader.rows("VARIABLES", "variable")),
        bytes(reader.section("DEBUG")),
        tuple(reader.native(row) for row in reader.rows("NATIVES", "native")),
        tuple(
            (reader.text(row["name"]), row["number"]) for row in reader.rows("VERSIONS", "version")
        ),
    )


class _Reader:
    def __init__(self, data: memoryview, verify: bool) -> None:
        self.data = data
        self.layout = spec.layout()
        self.sections = self._read_sections(verify)
        self.strings = self.section("STRINGS")
        self.values = self.rows("VALUES", "value")
        self.dims = self.rows("DIMS", "dim")
        self.entries = self.rows("ENTRIES", "entry")
        self.variants = self.rows("VARIANTS", "variant")
        self.locations = self.rows("LOCATIONS", "location")
        packed = self.section("COMPRESSED_REGIONS")
        self.regions = decompress(packed) if packed else self.section("REGIONS")

    def _read_sections(self, verify: bool) -> dict[int, memoryview]:
        constants = self.layout.constants
        header_length = self.layout.size("ingot_layout_header_t")
        magic = constants["INGOT_MODULE_MAGIC"]
        if len(self.data) < header_length or bytes(self.data[: len(magic)]) != magic:
            raise DataLoss("this is no Ingot module: the file does not begin with its mark")
        header = self.layout.unpack("ingot_layout_header_t", self.data[:header_length])[0]
        least = constants["INGOT_MODULE_VERSION_MAJOR_OF_TENSORS"]
        greatest = constants["INGOT_MODULE_VERSION_MAJOR"]
        if not least <= header["version_major"] <= greatest:
            raise Incompatible(
                f"the module has format version {header['version_major']}, this Ingot reads "
                f"versions {least} to {greatest}: compile the model again"
            )
        if header["file_length"] != len(self.data):
            raise DataLoss(
                f"the module file has {len(self.data)} bytes, expected {header['file_length']}: "
                "it is truncated or was changed"
            )
        self.global_count = header["global_count"]
        end = header_length + header["section_count"] * self.layout.size("ingot_layout_section_t")
        front = self.layout.pack("ingot_layout_header_t", [{**header, "crc": 0}])
        _check_crc("header", front + bytes(self.data[header_length:end]), header["crc"])
        found: dict[int, memoryview] = {}
        for row in self.layout.unpack("ingot_layout_section_t", self.data[header_length:end]):
            section = self.data[row["offset"] : row["offset"] + row["length"]]
            if verify or row["kind"] != constants["INGOT_SECTION_CONSTANTS"]:
                _check_crc(f"section {row['kind']}", section, row["crc"])
            found[row["kind"]] = section
        tables = found.get(constants["INGOT_SECTION_COMPRESSED_TABLES"])
        return found if tables is None else found | dict(table_sections(tables))

    def section(self, name: str) -> memoryview:
        kind = self.layout.constants[f"INGOT_SECTION_{name}"]
        return self.sections.get(kind, memoryview(b""))

    def rows(self, name: str, struct: str) -> list[dict[str, Any]]:
        return self.layout.unpack(f"ingot_layout_{struct}_t", self.section(name))

    def text(self, offset: int) -> str:
        return read_text(self.strings, offset)

    def shape(self, row: dict[str, Any]) -> tuple[Any, ...]:
        dims = self.dims[row["first_dim"] : row["first_dim"] + row["rank"]]
        return tuple(
            dim["size"] if dim["size"] >= 0 else read_dim(self.text(dim["text"])) for dim in dims
        )

    def element_shape(self, row: dict[str, Any]) -> tuple[int | None, ...]:
        dims = self.dims[row["first_dim"] : row["first_dim"] + row["rank"]]
        return tuple(dim["size"] if dim["size"] >= 0 else None for dim in dims)

    def value(self, row: dict[str, Any]) -> ValueContents:
        dtype = spec.dtype_of_code(row["dtype"])
        texts = self.text(row["name"]), self.text(row["doc"])
        kind, any_rank = kind_of_code(row["kind"])
        if kind == "reference":
            type = self.text(self.dims[row["first_dim"]]["text"])
            return ValueContents(texts[0], dtype, (), texts[1], kind, reference=type)
        shape = self.shape(row) if kind == "tensor" else self.element_shape(row)
        return ValueContents(texts[0], dtype, shape, texts[1], kind, any_rank)

    def variable(self, row: dict[str, Any]) -> VariableContents:
        dtype, span = spec.dtype_of_code(row["dtype"]), (row["offset"], row["length"])
        texts = self.text(row["name"]), self.text(row["doc"])
        return VariableContents(texts[0], dtype, self.shape(row), *span, texts[1])

    def native(self, row: dict[str, Any]) -> NativeContents:
        first, split = row["first_value"], row["first_value"] + row["argument_count"]
        values = tuple(map(self.value, self.values[first : split + row["result_count"]]))
        return NativeContents(
            self.text(row["name"]),
            self.text(row["signature"]),
            values[: row["argument_count"]],
            values[row["argument_count"] :],
            row["decided"],
            bool(row["flags"]),
        )

    def parameter(self, row: dict[str, Any]) -> Parameter:
        dtype = spec.dtype_of_code(row["dtype"])
        return Parameter(self.text(row["scope"]), self.text(row["key"]), dtype, self.shape(row))

    def location(self, word: int) -> int:
        """The ordinal of the first location at or behind a word of code."""
        return bisect_left(self.locations, word, key=itemgetter("word"))

    def function(self, row: dict[str, Any]) -> FunctionContents:
        constants = self.layout.constants
        start, length = row["code_offset"], row["code_length"]
        first, split = row["first_value"], row["first_value"] + row["argument_count"]
        values = self.values[first : split + row["result_count"]]
        signature = [self.value(value) for value in values]
        locations = tuple(
            Location(each["word"] - start, self.text(each["layer"]), self.text(each["op"]))
            for each in self.locations[self.location(start) : self.location(start + length)]
        )
        return FunctionContents(
            self.text(row["name"]),
            self.text(row["target"]),
            Code(bytes(self.section("CODE")[2 * start : 2 * (start + length)]), locations),
            row["i64_count"],
            row["f64_count"],
            row["ref_count"],
            tuple(signature[: row["argument_count"]]),
            tuple(signature[row["argument_count"] :]),
            bool(row["flags"] & constants["INGOT_FUNCTION_EXPORTED"]),
            bool(row["flags"] & constants["INGOT_FUNCTION_INIT"]),
            self.text(row["doc"]),
        )

    def executable(self, row: dict[str, Any]) -> Executable:
        regions, objects = self.regions, self.section("OBJECTS")
        first, first_variant = row["first_entry"], row["first_variant"]
        entries = tuple(
            Entry(
                self.text(each["name"]),
                self.text(each["layer"]),
                each["binding_count"],
                each["constant_count"],
                each["written"],
                _decoded(
                    regions[each["region_offset"] : each["region_offset"] + each["region_length"]]
                ),
            )
            for each in self.entries[first : first + row["entry_count"]]
        )
        rows = self.variants[first_variant : first_variant + row["variant_count"]]
        variants = tuple(self.variants_of(rows, objects))
        return Executable(self.text(row["name"]), self.text(row["target"]), entries, variants)

    def variants_of(self, rows: Iterable[dict[str, Any]], objects: memoryview) -> Iterator[Variant]:
        before = b""  # what a block may repeat
        for row in rows:
            data: Bytes = objects[row["offset"] : row["offset"] + row["length"]]
            format = self.text(row["format"])
            if format.startswith(continued_mark()):
                data, format = decompress(data, before), format.removeprefix(continued_mark())
                before += data
            elif format.startswith(variant_mark()):
                before = data = decompress(data)
                format = format.removeprefix(variant_mark())
            else:
                before = bytes(data)
            yield Variant(self.text(row["name"]), format, row["features"], data)


def read_text(strings: bytes | memoryview, offset: int) -> str:
    """The NUL-terminated text at `offset`. DataLoss: there is none, or it is no UTF-8."""
    data = bytes(strings[offset : offset + 256])
    if 0 not in data:
        data = bytes(strings[offset:])
    end = data.find(b"\0")
    if end < 0:
        raise DataLoss(f"string offset {offset} leaves the string section")
    return _decoded(data[:end])


def _decoded(data: bytes | memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise DataLoss(f"the module has a text that is no UTF-8: {error.reason}") from None


def read_dim(text: str) -> Dim:
    """The dim that a module has as this text. DataLoss: it is none."""
    try:
        return parse_dim(text)
    except ValueError as error:
        raise DataLoss(f"the module has a size that is none: {error}") from None


def _check_crc(what: str, data: bytes | memoryview, crc: int) -> None:
    if zlib.crc32(data) != crc:
        raise DataLoss(f"the {what} of the module file is damaged: its checksum is wrong")

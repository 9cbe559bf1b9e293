"""Writes a module file: the sections of `module_layout.h`, in the order of their kinds.

The structs come from the C header through `hal.spec.layout`. The same contents give the
same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ingot.compiler.ir import Literal
from ingot.compiler.ir.dims import Dim
from ingot.compiler.stream.data import Bytes, Constants
from ingot.compiler.vm.contents import (
    FunctionContents,
    ModuleContents,
    NativeContents,
    ValueContents,
    Variant,
)
from ingot.compiler.vm.sections import (
    Section,
    compressed_tables,
    module_file,
    section_kind,
    table_sections,
)
from ingot.compiler.vm.strings import encoded
from ingot.hal import spec
from ingot.hal.freed_memory import return_freed_memory
from ingot.hal.lz4 import MOST_BEFORE, compress, continued_mark, variant_mark
from ingot.hal.module_bytes import ModuleBytes
from ingot.hal.value_kind import code_of_kind

__all__ = ["module_bytes", "strip_module", "write_module"]

Rows = list[dict[str, Any]]


def write_module(contents: ModuleContents, compresses_tables: bool = True) -> bytes:
    """The bytes of the module file. Who reads it in place has no use for compressed tables."""
    return bytes(module_bytes(contents, compresses_tables))


def module_bytes(contents: ModuleContents, compresses_tables: bool = True) -> ModuleBytes:
    """The same, where they are loaded without a copy."""
    tables = _Tables(contents)
    sections = tables.sections()
    packed = compressed_tables(sections) if compresses_tables else None
    header = {
        **_version(contents, tables, packed is not None),
        "global_count": contents.global_count,
    }
    return module_file(packed or sections, header)


def _version(
    contents: ModuleContents, tables: _Tables, has_compressed_tables: bool
) -> dict[str, Any]:
    """The least version that can say what the file holds."""
    values = [each for one in contents.functions for each in (*one.arguments, *one.results)]
    values += [each for one in contents.natives for each in (*one.arguments, *one.results)]
    kinds = {each.kind for each in values}
    major, minor = "_OF_PLAIN_TABLES", "_OF_LISTS"
    if has_compressed_tables or tables.is_continued:
        major = minor = ""
    elif tables.is_compressed:
        minor = "_OF_COMPRESSED_CODE"
    elif "reference" in kinds:
        minor = "_OF_REFERENCES"
    elif contents.natives:
        minor = "_OF_NATIVES"
    elif not kinds - {"tensor"}:
        major = minor = "_OF_TENSORS"
    constants = spec.layout().constants
    return {
        "version_major": constants[f"INGOT_MODULE_VERSION_MAJOR{major}"],
        "version_minor": constants[f"INGOT_MODULE_VERSION_MINOR{minor}"],
    }


def strip_module(data: bytes) -> bytes:
    """The module file without what only tools read: its debug section, and the graph text of its
    kernels. It is one that `read_module` reads."""
    layout = spec.layout()
    start = layout.size("ingot_layout_header_t")
    header = layout.unpack("ingot_layout_header_t", data[:start])[0]
    end = start + header["section_count"] * layout.size("ingot_layout_section_t")
    rows = layout.unpack("ingot_layout_section_t", data[start:end])
    found: dict[int, Bytes] = {
        row["kind"]: data[row["offset"] : row["offset"] + row["length"]] for row in rows
    }
    tables = found.pop(section_kind("COMPRESSED_TABLES"), None)
    found |= {} if tables is None else dict(table_sections(tables))
    for name in ("DEBUG", "REGIONS", "COMPRESSED_REGIONS"):
        found.pop(section_kind(name), None)
    kind = section_kind("ENTRIES")
    if kind in found:
        bare = {"region_offset": 0, "region_length": 0}
        entries = layout.unpack("ingot_layout_entry_t", found[kind])
        found[kind] = layout.pack("ingot_layout_entry_t", [{**each, **bare} for each in entries])
    sections = [Section(each, len(found[each]), [found[each]]) for each in sorted(found)]
    packed = None if tables is None else compressed_tables(sections)
    kept = ("version_major", "version_minor", "global_count")
    return bytes(module_file(packed or sections, {name: header[name] for name in kept}))


class _Tables:
    """The rows of all sections, which refer to each other by ordinal and offset."""

    def __init__(self, contents: ModuleContents) -> None:
        self.contents = contents
        self.strings = bytearray(contents.strings or b"\0")
        self.offsets: dict[str, int] = {"": 0}
        self.values: Rows = []
        self.dims: Rows = []
        self.code: list[Bytes] = []
        self.code_words = 0
        self.locations: Rows = []
        self.entries: Rows = []
        self.variants: Rows = []
        self.objects: list[Bytes] = []
        self.objects_length = 0
        self.regions = bytearray()
        self.region_offsets: dict[bytes, int] = {}
        self.is_compressed = False  # whether something of the file is
        self.is_continued = False  # whether an object repeats others

    def sections(self) -> list[Section]:
        """In the order of their kinds; empty ones are left out."""
        contents = self.contents
        functions = [self._function(function) for function in contents.functions]
        parameters = [
            {
                "scope": self._string(parameter.scope),
                "key": self._string(parameter.key),
                "first_dim": self._add_dims(parameter.shape),
                "rank": len(parameter.shape),
                "dtype": parameter.dtype.code,
            }
            for parameter in contents.parameters
        ]
        variables = [
            {
                "name": self._string(variable.name),
                "doc": self._string(variable.doc),
                "first_dim": self._add_dims(variable.shape),
                "rank": len(variable.shape),
                "dtype": variable.dtype.code,
                "offset": variable.offset,
                "length": variable.length,
            }
            for variable in contents.variables
        ]
        executables = self._executables()
        natives = [self._native(native) for native in contents.natives]
        tables = [
            ("FUNCTIONS", "ingot_layout_function_t", functions),
            ("VALUES", "ingot_layout_value_t", self.values),
            ("DIMS", "ingot_layout_dim_t", self.dims),
            ("PARAMETERS", "ingot_layout_parameter_t", parameters),
            ("EXECUTABLES", "ingot_layout_executable_t", executables),
            ("ENTRIES", "ingot_layout_entry_t", self.entries),
            ("VARIANTS", "ingot_layout_variant_t", self.variants),
            ("LOCATIONS", "ingot_layout_location_t", self.locations),
            ("VARIABLES", "ingot_layout_variable_t", variables),
            ("NATIVES", "ingot_layout_native_t", natives),
            ("VERSIONS", "ingot_layout_version_t", self._versions()),
        ]
        layout = spec.layout()
        pieces: dict[str, Sequence[Bytes]] = {
            name: [layout.pack(struct, rows)] for name, struct, rows in tables
        }
        metadata = json.dumps(contents.metadata, sort_keys=True, separators=(",", ":"))
        pieces |= {
            "STRINGS": [bytes(self.strings)],
            "CODE": self.code,
            "OBJECTS": self.objects,
            **self._texts(),
            "METADATA": [metadata.encode("utf-8")],
            "DEBUG": [contents.debug],
        }
        sections = [Section.of(name, sum(map(len, each)), each) for name, each in pieces.items()]
        constants = contents.constants
        sections.append(Section.of("CONSTANTS", constants.length, _constant_pieces(constants)))
        return sorted((each for each in sections if each.length), key=lambda each: each.kind)

    def _texts(self) -> dict[str, Sequence[Bytes]]:
        """The sections of graph text, of which one is empty."""
        texts = bytes(self.regions)
        packed = self._compressed(texts)
        return {"REGIONS": [b"" if packed else texts], "COMPRESSED_REGIONS": [packed or b""]}

    def _compressed(self, data: Bytes) -> bytes | None:
        """The bytes as `compress` makes them; None: they stay as they are."""
        made = compress(data)
        self.is_compressed |= made is not None
        return made

    def _string(self, text: str) -> int:
        if text not in self.offsets:
            self.offsets[text] = len(self.strings)
            self.strings += encoded(text) + b"\0"
        return self.offsets[text]

    def _add_dims(self, shape: Iterable[Dim | str | None]) -> int:
        first = len(self.dims)
        self.dims += [
            {
                "size": dim if isinstance(dim, int) else -1,
                "text": self._string("?" if dim is None else str(dim)),
            }
            for dim in shape
        ]
        return first

    def _add_value(self, value: ValueContents) -> None:
        self.values.append(
            {
                "name": self._string(value.name),
                "doc": self._string(value.doc),
                "first_dim": self._add_dims((value.reference,) if value.reference else value.shape),
                "rank": len(value.shape),
                "kind": code_of_kind(value.kind, value.any_rank),
                "dtype": value.dtype.code,
            }
        )

    def _function(self, function: FunctionContents) -> dict[str, Any]:
        constants = spec.layout().constants
        first_value = len(self.values)
        for value in (*function.arguments, *function.results):
            self._add_value(value)
        code_offset = self.code_words
        words = len(function.code.words) // 2
        self.code.append(function.code.words)
        self.code_words += words
        self.locations += [
            {
                "word": code_offset + location.word,
                "layer": self._string(location.layer),
                "op": self._string(location.op),
            }
            for location in function.code.locations
        ]
        return {
            "name": self._string(function.name),
            "doc": self._string(function.doc),
            "target": self._string(function.target),
            "flags": constants["INGOT_FUNCTION_EXPORTED"] * function.exported
            | constants["INGOT_FUNCTION_INIT"] * function.init,
            "first_value": first_value,
            "argument_count": len(function.arguments),
            "result_count": len(function.results),
            "i64_count": function.i64_count,
            "f64_count": function.f64_count,
            "ref_count": function.ref_count,
            "code_offset": code_offset,
            "code_length": words,
        }

    def _native(self, native: NativeContents) -> dict[str, Any]:
        first_value = len(self.values)
        for value in (*native.arguments, *native.results):
            self._add_value(value)
        return {
            "name": self._string(native.name),
            "signature": self._string(native.signature),
            "first_value": first_value,
            "argument_count": len(native.arguments),
            "result_count": len(native.results),
            "flags": int(native.optional),
            "decided": native.decided,
        }

    def _versions(self) -> Rows:
        return [{"name": self._string(each), "number": n} for each, n in self.contents.versions]

    def _executables(self) -> Rows:
        alignment = spec.layout().constants["INGOT_MODULE_ALIGNMENT"]
        rows: Rows = []
        for executable in self.contents.executables:
            rows.append(
                {
                    "name": self._string(executable.name),
                    "target": self._string(executable.target),
                    "first_variant": len(self.variants),
                    "variant_count": len(executable.variants),
                    "first_entry": len(self.entries),
                    "entry_count": len(executable.entries),
                }
            )
            for entry in executable.entries:
                region = encoded(entry.region)
                if region not in self.region_offsets:  # targets have many in common
                    self.region_offsets[region] = len(self.regions) if region else 0
                    self.regions += region
                self.entries.append(
                    {
                        "name": self._string(entry.name),
                        "layer": self._string(entry.layer),
                        "binding_count": entry.binding_count,
                        "constant_count": entry.constant_count,
                        "written": entry.written,
                        "region_offset": self.region_offsets[region],
                        "region_length": len(region),
                    }
                )
            for variant, prefix, data in self._objects(executable.variants):
                padding = _round_up(self.objects_length, alignment) - self.objects_length
                self.objects += [bytes(padding), data]
                self.variants.append(
                    {
                        "format": self._string(prefix + variant.format),
                        "name": self._string(variant.name),
                        "features": variant.features,
                        "offset": self.objects_length + padding,
                        "length": len(data),
                    }
                )
                self.objects_length += padding + len(data)
        return rows

    def _objects(self, variants: Iterable[Variant]) -> Iterator[tuple[Variant, str, Bytes]]:
        """Each with its mark and what stands in the file. A block repeats the objects in front of
        it where it gets a fifteenth shorter, as long as it reaches them all."""
        before, last = b"", ""
        for variant in variants:
            fresh, continued = self._compressed(variant.object), None
            if before and len(before) <= MOST_BEFORE and last == variant.format:
                continued = compress(variant.object, before)
            least = len(variant.object if fresh is None else fresh)
            if continued is not None and len(continued) * 15 < least * 14:
                self.is_continued = True
                before += bytes(variant.object)
                yield variant, continued_mark(), continued
                continue
            before, last = bytes(variant.object), variant.format
            yield variant, variant_mark() if fresh else "", fresh or variant.object


def _constant_pieces(constants: Constants) -> Iterable[Bytes]:
    position = 0
    for chunk in constants.chunks:
        yield bytes(chunk.offset - position)
        yield from chunk.parts()
        if isinstance(chunk.data, Literal):  # which was large, and made here
            return_freed_memory()
        position = chunk.offset + chunk.length
    yield bytes(constants.length - position)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple

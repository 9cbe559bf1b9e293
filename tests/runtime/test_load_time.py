"""Load takes time in proportion to the file, whatever its tables and its code say.

Every kind of module here is absurd in one way, and made eight times larger: what is quadratic
takes 64 times as long. Whether the module is taken or refused does not matter.
"""

from __future__ import annotations

import contextlib
import json
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest

import ingot
from ingot.hal.spec import layout, opcode

Tables = dict[str, Any]
RETURN = [opcode("return").code, 0, 0, 0]
STRUCTS = {
    "FUNCTIONS": "ingot_layout_function_t",
    "VALUES": "ingot_layout_value_t",
    "DIMS": "ingot_layout_dim_t",
    "PARAMETERS": "ingot_layout_parameter_t",
    "EXECUTABLES": "ingot_layout_executable_t",
    "ENTRIES": "ingot_layout_entry_t",
    "VARIANTS": "ingot_layout_variant_t",
    "LOCATIONS": "ingot_layout_location_t",
    "VARIABLES": "ingot_layout_variable_t",
}


def module(tables: Tables) -> bytes:
    """A module file of these rows, by section; code is a list of words, the rest bytes."""
    known = layout()
    pieces = {"STRINGS": b"\0cpu\0", "METADATA": json.dumps({}).encode(), **tables}
    rows, parts = [], []
    kinds = {known.constants[f"INGOT_SECTION_{name}"]: name for name in pieces}
    front_length = known.size("ingot_layout_header_t")
    front_length += len(kinds) * known.size("ingot_layout_section_t")
    position = front_length
    for kind, name in sorted(kinds.items()):
        data = pieces[name]
        if name in STRUCTS:
            data = known.pack(STRUCTS[name], data)
        elif name == "CODE":
            data = struct.pack(f"<{len(data)}H", *data)
        start = -(-position // 64) * 64
        parts.append(bytes(start - position) + data)
        rows.append({"kind": kind, "crc": zlib.crc32(data), "offset": start, "length": len(data)})
        position = start + len(data)
    header = {
        "magic": list(known.constants["INGOT_MODULE_MAGIC"]),
        "version_major": known.constants["INGOT_MODULE_VERSION_MAJOR"],
        "file_length": position,
        "section_count": len(rows),
    }
    table = known.pack("ingot_layout_section_t", rows)
    crc = zlib.crc32(known.pack("ingot_layout_header_t", [header]) + table)
    return known.pack("ingot_layout_header_t", [{**header, "crc": crc}]) + table + b"".join(parts)


def exported(**fields: int) -> dict[str, int]:
    return {"target": 1, "flags": 1, **fields}


def names(count: int) -> tuple[bytes, list[int]]:
    """A long string, and offsets of many of its ends: names that differ in their lengths."""
    text = b"\0cpu\0" + b"x" * (8 * count) + b"\0"
    return text, [5 + 8 * place for place in range(count)]


def short_names(count: int) -> tuple[bytes, list[int]]:
    text = b"\0cpu\0" + b"".join(b"%06d\0" % place for place in range(count))
    return text, [5 + 7 * place for place in range(count)]


def shared_code(count: int) -> Tables:
    code = [*[opcode("const.i64").code, 0, 0, 0, 0, 0] * count, *RETURN]
    strings, offsets = short_names(count)
    rows = [exported(name=each, i64_count=1, code_length=len(code)) for each in offsets]
    return {"STRINGS": strings, "CODE": code, "FUNCTIONS": rows}


def shared_values(count: int) -> Tables:
    values = [{"dtype": 1}] * count
    strings, offsets = short_names(count)
    rows = [
        exported(name=each, argument_count=count, code_offset=4 * place, code_length=4)
        for place, each in enumerate(offsets)
    ]
    return {"STRINGS": strings, "CODE": RETURN * count, "VALUES": values, "FUNCTIONS": rows}


def many_functions(count: int) -> Tables:
    strings, offsets = short_names(count)
    rows = [
        exported(
            name=each,
            i64_count=65536,
            f64_count=65536,
            ref_count=65536,
            code_offset=4 * place,
            code_length=4,
        )
        for place, each in enumerate(offsets)
    ]
    return {"STRINGS": strings, "CODE": RETURN * count, "FUNCTIONS": rows}


def long_names(count: int) -> Tables:
    strings, offsets = names(count)
    rows = [
        exported(name=each, code_offset=4 * place, code_length=4)
        for place, each in enumerate(offsets)
    ]
    return {"STRINGS": strings, "CODE": RETURN * count, "FUNCTIONS": rows}


def _one(code: list[int], **fields: int) -> Tables:
    return {"CODE": code, "FUNCTIONS": [exported(code_length=len(code), **fields)]}


def labels(registers: int) -> Callable[[int], Tables]:
    def make(count: int) -> Tables:
        code: list[int] = []
        for _ in range(count):  # to the next instruction, each
            code += [opcode("branch").code, *divmod(len(code) + 3, 1 << 16)[::-1]]
        return _one([*code, *RETURN], i64_count=registers, f64_count=registers)

    return make


def branches_back(count: int) -> Tables:
    code = [opcode("const.i64").code, 0, 0, 0, 0, 0]
    for _ in range(count):
        after = len(code) + 6
        code += [opcode("branch.if").code, 0, 6, 0, *divmod(after, 1 << 16)[::-1]]
    return _one([*code, *RETURN], i64_count=4000)


def returns_of_results(count: int) -> Tables:
    code: list[int] = []
    for place in range(count):
        code += [opcode("result.buffer").code, 0, 0, place, 0]
    code += RETURN * count
    tables = _one(code, result_count=count, i64_count=1, ref_count=1)
    return {**tables, "VALUES": [{"dtype": 1}] * count}


def dispatches_to_a_long_target(count: int) -> Tables:
    strings = b"\0" + (b"x" * count + b"\0") * 2
    code = [opcode("const.i64").code, 0, 0, 0, 0, 0]
    code += [opcode("dispatch").code, 0, 0, 0, 0, 0, 0, 0, 0] * count
    function = {"target": 1, "flags": 1, "i64_count": 1, "code_length": len(code) + len(RETURN)}
    return {
        "STRINGS": strings,
        "CODE": [*code, *RETURN],
        "FUNCTIONS": [function],
        "EXECUTABLES": [{"target": 2 + count, "entry_count": 1}],
        "ENTRIES": [{}],
    }


def long_message(count: int) -> Tables:
    code = [opcode("const.i64").code, 0, 0, 0, 0, 0]
    code += [opcode("assert").code, 0, 3, 5, 0, 0] * count
    return {"STRINGS": b"\0cpu\0" + b"x" * (8 * count) + b"\0"} | _one(
        [*code, *RETURN], i64_count=1
    )


def parameters(count: int) -> Tables:
    strings, offsets = names(count)
    rows = [{"key": each, "dtype": 1} for each in offsets]
    return {"STRINGS": strings, "PARAMETERS": rows}


def variables(count: int) -> Tables:
    strings, offsets = names(count)
    rows = [{"name": each, "dtype": 1} for each in offsets]
    return {"STRINGS": strings, "VARIABLES": rows}


def shared_variants(count: int) -> Tables:
    executables = [{"target": 1, "variant_count": count}] * count
    return {"EXECUTABLES": executables, "VARIANTS": [{}] * count}


def shared_entries(count: int) -> Tables:
    executables = [{"target": 1, "entry_count": count}] * count
    return {"EXECUTABLES": executables, "ENTRIES": [{}] * count}


def shared_objects(count: int) -> Tables:
    executables = [
        {"target": 1, "first_variant": place, "variant_count": 1} for place in range(count)
    ]
    variants = [{"format": 5, "length": 64 * count}] * count
    strings = b"\0cpu\0elf-x86_64\0"
    return {"STRINGS": strings, "EXECUTABLES": executables, "VARIANTS": variants} | {
        "OBJECTS": bytes(64 * count)
    }


def locations(count: int) -> Tables:
    return _one([*[opcode("const.i64").code, 0, 0, 0, 0, 0] * count, *RETURN], i64_count=1) | {
        "LOCATIONS": [{"word": place} for place in range(count)]
    }


def lists(count: int) -> Tables:
    code: list[int] = []
    for place in range(count):
        code += [opcode("list.clear").code, place]
    return _one([*code, *RETURN])


KINDS: dict[str, tuple[Callable[[int], Tables], int]] = {
    "shared code": (shared_code, 300),
    "shared values": (shared_values, 300),
    "many functions": (many_functions, 300),
    "long names": (long_names, 300),
    "labels": (labels(8), 3000),
    "labels over many registers": (labels(65000), 1000),
    "branches back": (branches_back, 1500),
    "returns of results": (returns_of_results, 1500),
    "dispatches to a long target": (dispatches_to_a_long_target, 1000),
    "long message": (long_message, 1000),
    "parameters": (parameters, 500),
    "variables": (variables, 500),
    "shared variants": (shared_variants, 500),
    "shared entries": (shared_entries, 500),
    "shared objects": (shared_objects, 300),
    "locations": (locations, 3000),
    "lists": (lists, 3000),
}


def seconds(data: bytes) -> float:
    """CPU time of a load, of three the shortest."""
    times = []
    for _ in range(3):
        start = time.process_time()
        with contextlib.suppress(ingot.Error):
            ingot.load(data, threads=1).close()
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize("kind", KINDS)
def test_load_is_linear(kind: str) -> None:
    make, count = KINDS[kind]
    small, large = module(make(count)), module(make(8 * count))
    seconds(small)
    assert seconds(large) < 24 * (seconds(small) + 0.0005)

"""Damaged modules with right checksums: what bytecode and tables may be brought to say.

`mutate` changes a few numbers of one section and repairs the checksums, so that nothing but
the verifier and the checks of a call stand between the numbers and native code, which stays
as it is. `survive` loads and calls such modules in a child process: a fork of this one, or a
new one where a driver does not outlive forks.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

import ingot
from ingot.compiler.vm.read_module import read_module
from ingot.compiler.vm.write_module import write_module
from ingot.hal.spec import layout

__all__ = ["mutate", "sections_of", "survive", "with_checksums", "with_plain_tables"]

_KEPT = (
    *("INGOT_SECTION_OBJECTS", "INGOT_SECTION_METADATA", "INGOT_SECTION_REGIONS"),
    "INGOT_SECTION_COMPRESSED_REGIONS",
)
_TABLES = "INGOT_SECTION_COMPRESSED_TABLES"
_WORDS = (0, 1, 2, 3, 4, 8, 16, 64, 255, 0x7FFF, 0x8000, 0xFFFF)


def mutate(data: bytes, seed: int) -> bytes:
    """The module with some numbers changed, mostly of its code; or some of its tables, compressed
    as they are."""
    draw = random.Random(seed)
    known = layout()
    if draw.random() < 0.8:
        data = with_plain_tables(data)
    sections = sections_of(data)
    kinds = [each["kind"] for each in sections]
    code = known.constants[_TABLES if known.constants[_TABLES] in kinds else "INGOT_SECTION_CODE"]
    kept = {known.constants[name] for name in _KEPT}
    kinds = [each["kind"] for each in sections if each["kind"] not in kept and each["length"]]
    result = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        kind = code if draw.random() < 0.6 else draw.choice(kinds)
        section = next(each for each in sections if each["kind"] == kind)
        _change(result, section["offset"], section["length"], draw)
    return with_checksums(result)


def _change(data: bytearray, start: int, length: int, draw: random.Random) -> None:
    """Change a u16, or a number of 4 or 8 bytes, on its boundary."""
    width, form = draw.choice(((2, "<H"), (2, "<H"), (4, "<I"), (8, "<Q")))
    if length < width:
        width, form = 1, "<B"
    step = min(width, 2)
    place = start + draw.randrange((length - width) // step + 1) * step
    (old,) = struct.unpack_from(form, data, place)
    chosen = draw.randrange(5)
    other = start + draw.randrange((length - width) // step + 1) * step
    new = (
        old + draw.choice((-2, -1, 1, 2)),
        draw.choice(_WORDS) * draw.choice((1, 1, -1)),
        old ^ 1 << draw.randrange(8 * width),
        struct.unpack_from(form, data, other)[0],
        draw.randrange(40),
    )[chosen]
    struct.pack_into(form, data, place, new % (1 << 8 * width))


@lru_cache(maxsize=4)
def with_plain_tables(data: bytes) -> bytes:
    """The module file with its tables as they are used."""
    return write_module(read_module(data), compresses_tables=False)


def sections_of(data: bytes | bytearray) -> list[dict[str, Any]]:
    """The rows of the section table."""
    known = layout()
    data = bytes(data)
    size = known.size("ingot_layout_header_t")
    (header,) = known.unpack("ingot_layout_header_t", data[:size])
    count = header["section_count"]
    length = count * known.size("ingot_layout_section_t")
    return known.unpack("ingot_layout_section_t", data[size : size + length])


def with_checksums(data: bytearray) -> bytes:
    """The module with right checksums of what stands in it."""
    known = layout()
    size = known.size("ingot_layout_header_t")
    sections = sections_of(bytes(data))
    for each in sections:
        each["crc"] = zlib.crc32(data[each["offset"] : each["offset"] + each["length"]])
    table = known.pack("ingot_layout_section_t", sections)
    data[size : size + len(table)] = table
    (header,) = known.unpack("ingot_layout_header_t", bytes(data[:size]))
    header = {**header, "crc": 0, "magic": list(header["magic"])}
    front = known.pack("ingot_layout_header_t", [header]) + table
    data[:size] = known.pack("ingot_layout_header_t", [{**header, "crc": zlib.crc32(front)}])
    return bytes(data)


def survive(
    data: bytes, arguments: Sequence[Any], seeds: range, device: str = "cpu://?threads=1"
) -> dict[str, int]:
    """Load and call the module in all its mutations in a child process; how they ended, by
    kind. AssertionError names the seed that killed it."""
    context = get_context("fork" if device.startswith("cpu:") else "spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_run_all, args=(sender, data, arguments, seeds, device))
    child.start()
    sender.close()
    kinds: list[str] = []
    seed = None
    try:
        while True:
            seed = receiver.recv()
            kinds.append(receiver.recv())
    except EOFError:
        child.join()
    assert child.exitcode == 0, f"exit code {child.exitcode} at seed {seed} after {len(kinds)} runs"
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


def _run_all(
    sender: Connection, data: bytes, arguments: Sequence[Any], seeds: range, device: str
) -> None:
    for seed in seeds:
        sender.send(seed)
        sender.send(_run(mutate(data, seed), arguments, device))


def _run(data: bytes, arguments: Sequence[Any], device: str) -> str:
    """ "ran", or the kind of error; anything but an error of Ingot is raised."""
    function: Callable[..., Any]
    try:
        with ingot.load(data, device=device, memory_limit=1 << 30) as model:
            function = model.functions["main"].call if "main" in model.functions else model.call
            results = function(*arguments, timeout=0.5)
            for each in results if isinstance(results, tuple) else (results,):
                for array in each if isinstance(each, list) else (each,):
                    np.asarray(array)  # every byte is there
    except ingot.Error as error:
        return type(error).__name__
    return "ran"

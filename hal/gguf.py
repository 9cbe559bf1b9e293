"""GGUF files: metadata and tensors of a language model, read where they lie in a mapped file.

A file is data from anywhere: every length, offset and type is checked before it is used. What a
model's program is, and how blocks are decoded, is the compiler's (`compiler/frontends/gguf`).
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ingot.hal.errors import DataLoss, Unsupported
from ingot.hal.whole_file import open_regular

__all__ = ["BLOCK_TYPES", "MAGIC", "BlockType", "Gguf", "GgufTensor"]

MAGIC = b"GGUF"

_MAX_RANK = 4
_MAX_NAME = 1 << 16  # bytes of a key or of a tensor's name
_SHOWN = 100  # characters of one in a message
_MAX_DEPTH = 4  # of arrays in arrays


@dataclass(frozen=True)
class BlockType:
    """How elements along the innermost dim of a tensor lie: `count` of them in `length` bytes."""

    name: str
    count: int
    length: int


_BLOCK_ROWS = (
    (0, "F32", 1, 4), (1, "F16", 1, 2), (2, "Q4_0", 32, 18), (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22), (7, "Q5_1", 32, 24), (8, "Q8_0", 32, 34), (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84), (11, "Q3_K", 256, 110), (12, "Q4_K", 256, 144), (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210), (15, "Q8_K", 256, 292), (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74), (18, "IQ3_XXS", 256, 98), (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18), (21, "IQ3_S", 256, 110), (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136), (24, "I8", 1, 1), (25, "I16", 1, 2), (26, "I32", 1, 4),
    (27, "I64", 1, 8), (28, "F64", 1, 8), (29, "IQ1_M", 256, 56), (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54), (35, "TQ2_0", 256, 66), (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
)  # fmt: skip
BLOCK_TYPES = {code: BlockType(name, count, length) for code, name, count, length in _BLOCK_ROWS}
"""The types of tensors, by the number that a file has for them."""

_SCALARS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?",
    10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class GgufTensor:
    """A tensor: `shape` is that of its elements, the innermost dim last; `data` its bytes."""

    name: str
    type: BlockType
    shape: tuple[int, ...]
    data: Any  # u8 array in the mapped file

    @property
    def rows(self) -> Any:
        """What stands for it as a parameter: f32 or f16 elements of its shape, or the bytes of
        each row, u8[..., bytes]; bf16 are u16."""
        plain = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}.get(self.type.name)
        if plain is not None:
            return self.data.view(plain).reshape(self.shape)
        return self.data.reshape(*self.shape[:-1], -1)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of `rows`."""
        return tuple(self.rows.shape)


class Gguf:
    """An open file. `metadata` holds numbers, texts, NumPy arrays and lists of texts by key,
    `tensors` the tensors by name; both stay valid as long as someone has one of them.

    Raises as `open_regular`. DataLoss: it is damaged, and where. Unsupported: a later version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with open_regular(path) as file:
            try:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:  # the latter of an empty file
                raise DataLoss(f"'{path}' cannot be read as a GGUF file: {error}") from None
        reader = _Reader(mapped, str(path))
        self.metadata: Mapping[str, Any] = MappingProxyType(reader.metadata)
        self.tensors: Mapping[str, GgufTensor] = MappingProxyType(reader.tensors)
        self.head = reader.data[: reader.at]  # all but the tensors' elements

    @property
    def title(self) -> str:
        """What messages call the file."""
        return f"GGUF file '{self.path}'"

    def name_of(self, name: str) -> str:
        """The file's own name of a tensor."""
        return name

    def parameters(self) -> dict[str, Any]:
        """The tensors as arrays under their names, for `parameters=` of a program."""
        return {name: tensor.rows for name, tensor in self.tensors.items()}


class _Reader:
    """Walks over header, metadata and infos of tensors."""

    def __init__(self, mapped: mmap.mmap, path: str) -> None:
        self.mapped, self.data, self.path, self.at = mapped, memoryview(mapped), path, 0
        data = self.data
        if len(data) < 24 or data[:4] != MAGIC:
            raise self.damaged("it is too short for a header, or does not begin with GGUF")
        (version,) = struct.unpack_from("<I", data, 4)
        if version not in (2, 3):
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            what = "of a big-endian machine" if swapped in (2, 3) else f"version {version}"
            raise Unsupported(f"GGUF file '{path}': {what}; versions 2 and 3 can be read")
        tensor_count, pair_count = struct.unpack_from("<QQ", data, 8)
        self.at = 24
        self.metadata: dict[str, Any] = {}
        for _ in range(self.counted(pair_count, 13, "pairs of metadata")):
            self.read_pair()
        infos = [
            self.read_info()
            for _ in range(self.counted(tensor_count, 24, "tensors"))
        ]  # fmt: skip
        self.tensors: dict[str, GgufTensor] = {}
        self.place_tensors(infos)

    def damaged(self, what: str) -> DataLoss:
        return DataLoss(f"GGUF file '{self.path}' is damaged or cut off: {what}")

    def counted(self, count: int, least: int, what: str) -> int:
        """The count of things that take at least so many bytes each."""
        if count * least > len(self.data) - self.at:
            raise self.damaged(f"{count} {what} at byte {self.at} do not fit into the file")
        return count

    def number(self, form: str, what: str) -> int:
        length = struct.calcsize(form)
        if self.at + length > len(self.data):
            raise self.damaged(f"it ends at byte {len(self.data)} in {what}")
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += length
        return int(value)

    def string(self, what: str, limit: int | None = None) -> str:
        length = self.counted(self.number("<Q", what), 1, f"bytes of {what}")
        if limit is not None and length > limit:
            raise self.damaged(f"{what} has {length} bytes, at most {limit} are allowed")
        raw = bytes(self.data[self.at : self.at + length])
        self.at += length
        return raw.decode("utf-8", errors="surrogateescape")

    def strings(self, items: range, what: str) -> list[str]:
        """As `string` reads each, in a fifteenth of the time: tokenizers have hundred thousands."""
        mapped, end, found, length_at = self.mapped, len(self.mapped), [], _LENGTH.unpack_from
        for _ in items:
            start = self.at + 8
            stop = start + length_at(mapped, self.at)[0] if start <= end else start
            if stop > end:
                self.string(what)  # tells what is damaged
            found.append(mapped[start:stop].decode("utf-8", "surrogateescape"))
            self.at = stop
        return found

    def read_pair(self) -> None:
        key = self.string("a key", _MAX_NAME)
        shown = key[:_SHOWN]
        type = self.number("<I", f"the type of '{shown}'")
        if key in self.metadata:
            raise self.damaged(f"the key '{shown}' comes twice")
        self.metadata[key] = self.read_value(type, f"the value of '{shown}'", 0)

    def read_value(self, type: int, what: str, depth: int) -> Any:
        if type == _STRING:
            return self.string(what)
        if type == _ARRAY and depth < _MAX_DEPTH:
            inner = self.number("<I", what)
            count = self.number("<Q", what)
            if inner in _SCALARS:
                return self.read_array(inner, count, what)
            least = 8 if inner == _STRING else 12
            items = range(self.counted(count, least, f"items of {what}"))
            if inner == _STRING:
                return self.strings(items, what)
            return [self.read_value(inner, what, depth + 1) for _ in items]
        if type not in _SCALARS:
            raise self.damaged(f"{what} has the unknown type {type}")
        return self.read_array(type, 1, what)[0].item()

    def read_array(self, type: int, count: int, what: str) -> Any:
        form = np.dtype(_SCALARS[type])
        self.counted(count, form.itemsize, f"items of {what}")
        array = np.frombuffer(self.data, form if type != 7 else np.uint8, count, self.at)
        self.at += count * form.itemsize
        return array if type != 7 else array != 0

    def read_info(self) -> tuple[str, BlockType, tuple[int, ...], int]:
        name = self.string("the name of a tensor", _MAX_NAME)
        what = f"tensor '{name[:_SHOWN]}'"
        rank = self.number("<I", what)
        if not 1 <= rank <= _MAX_RANK:
            raise self.damaged(f"{what} has the rank {rank}, expected 1 to {_MAX_RANK}")
        shape = tuple(self.number("<Q", what) for _ in range(rank))[::-1]
        code = self.number("<I", what)
        offset = self.number("<Q", what)
        type = BLOCK_TYPES.get(code)
        if type is None:
            raise Unsupported(f"GGUF file '{self.path}': {what} has the unknown type {code}")
        return name, type, shape, offset

    def place_tensors(self, infos: list[tuple[str, BlockType, tuple[int, ...], int]]) -> None:
        """Check where tensors lie, and make views of them."""
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self.damaged(f"its alignment is {alignment!r}, expected a power of two")
        start = -(-self.at // alignment) * alignment
        for name, type, shape, offset in infos:
            if name in self.tensors:
                raise self.damaged(f"tensor '{name}' comes twice")
            if shape[-1] % type.count:
                raise self.damaged(
                    f"tensor '{name}' has rows of {shape[-1]} elements, but {type.name} has blocks "
                    f"of {type.count}"
                )
            length = prod(shape) // type.count * type.length
            if offset % alignment:
                raise self.damaged(f"tensor '{name}' has the unaligned offset {offset}")
            if 0 in shape or start + offset + length > len(self.data):
                raise self.damaged(
                    f"tensor '{name}' of {length} bytes at {start + offset} leaves the file, which "
                    f"has {len(self.data)}"
                )
            data = np.frombuffer(self.data, np.uint8, length, start + offset)
            self.tensors[name] = GgufTensor(name, type, shape, data)

"""Folders of a language model as Hugging Face's libraries write them: `config.json` and weights in
safetensors files, read where they lie in the mapped files.

A folder is data from anywhere: every name, length, offset and dtype is checked before it is used.
"""

from __future__ import annotations

import json
import mmap
import os
import re
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ingot.hal.errors import DataLoss, NotFound
from ingot.hal.gguf import BLOCK_TYPES, BlockType, GgufTensor
from ingot.hal.whole_file import at_once

__all__ = ["INDEX", "Checkpoint", "ExpertTensors", "files_of_index", "read_json", "read_tensors"]

INDEX = "model.safetensors.index.json"
"""The file of a folder that says which tensor lies in which safetensors file."""

_MAX_HEADER = 100 << 20  # bytes, as in the format's description
_MAX_JSON = 64 << 20
_BY_NAME = {each.name: each for each in BLOCK_TYPES.values()}
_FLOATS = {name: _BY_NAME[name] for name in ("F32", "F16", "BF16")}
_BYTES = ("I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0")
_CODED = {name: BlockType(name, 1, 1) for name in _BYTES}
_CODED |= {name: _BY_NAME[name] for name in ("I32", "I64")}
_EXPERT = re.compile(r"(.*\.experts\.)(\d{1,4})(\..*)")


class ExpertTensors(GgufTensor):
    """Equal tensors of the experts of a layer, `data`, which stand for one with a further axis in
    front; its name has * for their number."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        return (self.shape[0], *self.data[0].row_shape)

    @property
    def rows(self) -> Any:
        """A copy of all, one behind another."""
        return np.stack([each.rows for each in self.data])


class Checkpoint:
    """An open folder. `config` is what config.json holds; `tensors` has those of F32, F16 and BF16
    by name, of experts once for all under a name with * for their number, `coded` those of bytes
    and integers, as weights that are quantised have, and `others` the dtypes of the rest. What is
    mapped stays valid as long as someone has one of the tensors.

    NotFound: no such folder, or it lacks a file. DataLoss: a file is damaged, and where.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config = read_json(self.path / "config.json")
        self.others: dict[str, str] = {}
        found: dict[str, GgufTensor] = {}
        for file in self._files():
            for name, tensor in read_tensors(file, with_codes=True):
                if name in found or name in self.others:
                    raise DataLoss(f"tensor '{name}' comes twice in '{self.path}'")
                if isinstance(tensor, str):
                    self.others[name] = tensor
                else:
                    found[name] = tensor
        tensors: dict[str, GgufTensor] = {}
        coded: dict[str, GgufTensor] = {}
        for name, each in _joined(found).items():
            (tensors if each.type.name in _FLOATS else coded)[name] = each
        self.tensors: Mapping[str, GgufTensor] = MappingProxyType(tensors)
        self.coded: Mapping[str, GgufTensor] = MappingProxyType(coded)

    def parameters(self) -> Mapping[str, Any]:
        """The tensors as arrays under their names, for `parameters=` of a program."""
        return _Arrays({**self.tensors, **self.coded})

    def _files(self) -> list[Path]:
        index = self.path / INDEX
        if index.is_file():
            return files_of_index(index)
        files = sorted(self.path.glob("*.safetensors"))
        if not files:
            raise NotFound(f"'{self.path}' has no .safetensors file with the model's weights")
        return files


class _Arrays(Mapping[str, Any]):
    """The arrays of tensors. Those of experts are put together each time that they are asked for,
    so that only one such copy is there at a time."""

    def __init__(self, tensors: Mapping[str, GgufTensor]) -> None:
        self.tensors = tensors

    def __getitem__(self, name: str) -> Any:
        return self.tensors[name].rows

    def __contains__(self, name: object) -> bool:
        return name in self.tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)


def files_of_index(index: Path) -> list[Path]:
    """The files that an index of safetensors files names. NotFound: it cannot be read. DataLoss: it
    is damaged, or names a file that is not beside it."""
    files = read_json(index).get("weight_map")
    names = list(files.values()) if isinstance(files, dict) else [None]
    if not all(map(_is_beside, names)):
        raise DataLoss(f"'{index}' has no map of tensors to files beside it")
    return [index.parent / name for name in sorted(set(map(str, names)))]


def _is_beside(name: Any) -> bool:
    return isinstance(name, str) and name not in ("", "..") and Path(name).name == name


def read_tensors(file: Path, with_codes: bool = False) -> Iterator[tuple[str, GgufTensor | str]]:
    """The tensors of a safetensors file by name, or the dtype of one that is no float of 16 or 32
    bits and, `with_codes`, no bytes and integers either. NotFound: it cannot be read. DataLoss: it
    is damaged."""
    try:
        with open(file, "rb", opener=at_once) as stream:
            data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise NotFound(f"'{file}' cannot be read as a safetensors file: {error}") from None
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, _MAX_HEADER):
        raise DataLoss(f"'{file}' is damaged or cut off: its header does not fit")
    header = _parse(bytes(data[8 : 8 + length]), file)
    header.pop("__metadata__", None)
    types = {**_FLOATS, **_CODED} if with_codes else _FLOATS
    for name, info in header.items():
        yield name, _tensor(name, info, types, data[8 + length :], file)


def read_json(path: Path) -> dict[str, Any]:
    """The object that a file holds. NotFound: it cannot be read. DataLoss: it holds another
    thing."""
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_JSON + 1)
    except OSError as error:
        raise NotFound(f"'{path}' cannot be read: {error.strerror}") from None
    if len(text) > _MAX_JSON:
        raise DataLoss(f"'{path}' is longer than {_MAX_JSON} bytes")
    return _parse(text, path)


def _parse(text: bytes, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataLoss(f"'{path}' is damaged: it holds no JSON ({error})") from None
    if not isinstance(value, dict):
        raise DataLoss(f"'{path}' is damaged: it holds no JSON object")
    return value


def _tensor(
    name: str, info: Any, types: Mapping[str, BlockType], data: memoryview, file: Path
) -> GgufTensor | str:
    """The tensor, or its dtype where that is none of `types`."""
    try:
        dtype, shape, (start, end) = str(info["dtype"]), info["shape"], info["data_offsets"]
        shape = tuple(shape) or (1,)
        is_whole = all(type(each) is int and each >= 0 for each in (*shape, start, end))
    except (KeyError, TypeError, ValueError):
        is_whole = False
    if not is_whole or start > end or end > len(data):
        raise DataLoss(f"'{file}' is damaged or cut off: tensor '{name}' does not lie in it")
    if dtype not in types:
        return dtype
    kind = types[dtype]
    if prod(shape) * kind.length != end - start:
        raise DataLoss(
            f"'{file}' is damaged: tensor '{name}' has {end - start} bytes, but {dtype} of the "
            f"shape {list(shape)} has {prod(shape) * kind.length}"
        )
    bytes = np.frombuffer(data, np.uint8, end - start, start)
    return GgufTensor(name, kind, shape, bytes)


def _joined(tensors: Mapping[str, GgufTensor]) -> dict[str, GgufTensor]:
    """The tensors, those of experts 0, 1, ... as one where they are equal."""
    result: dict[str, GgufTensor] = dict(tensors)
    experts: dict[str, dict[int, GgufTensor]] = {}
    for name, tensor in tensors.items():
        if match := _EXPERT.fullmatch(name):
            experts.setdefault(f"{match[1]}*{match[3]}", {})[int(match[2])] = tensor
    for name, parts in experts.items():
        ordered = [parts[number] for number in range(len(parts)) if number in parts]
        kinds = {(each.type, each.shape) for each in ordered}
        if len(ordered) < len(parts) or len(kinds) > 1:
            continue
        for each in ordered:
            del result[each.name]
        ((type, shape),) = kinds
        result[name] = ExpertTensors(name, type, (len(ordered), *shape), ordered)
    return result

"""Reads the archive that `torch.export.save` writes: a zip of JSON, of raw tensors, and of pickles
of tensors that are kept as others, such as codes and scales.

The archive may come from anybody: pickles are read as data (`pickles.py`), and all that it says of
sizes and places is checked. Members are stored as they are, so none is larger than the file.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ingot.compiler.frontends.kept_file import LARGE, Kept, KeptBytes, KeptFile
from ingot.compiler.frontends.torch.members import WRONG, Members
from ingot.compiler.frontends.torch.pickles import PickledTensor, Wrapper, read_pickle
from ingot.compiler.ir import Later, Literal
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.literals import literal_from_bytes
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType, dtype
from ingot.hal.whole_file import open_regular

__all__ = ["CODES", "DTYPES", "MAJOR", "Archive", "Place", "element_type"]

# Schema of torch.export: what its numbers of dtypes mean. 9 is a complex number of two halves.
DTYPES = {
    1: "u8", 2: "i8", 3: "i16", 4: "i32", 5: "i64", 6: "f16", 7: "f32", 8: "f64",
    10: "c64", 11: "c128", 12: "i1", 13: "bf16", 28: "u16", 29: "f8e4m3fn", 30: "f8e5m2",
    34: "u32", 35: "u64",
}  # fmt: skip
MAJOR = 8  # of the schema that is read
_AGAIN = "save it again with torch.export.save of torch 2.8 or newer"
_MOST_REPEATED = 1 << 30  # bytes of a tensor whose strides repeat what is stored
_OTHER_NAMES = {"bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
CODES = {_OTHER_NAMES.get(name) or dtype(name).numpy.name: code for code, name in DTYPES.items()}
"""The numbers of dtypes by torch's names of them."""


def element_type(code: Any) -> DType:
    """The dtype of a number of the schema. CompileError: it has no counterpart."""
    if code not in DTYPES:
        raise CompileError(f"the dtype with torch's number {code} has no counterpart: use another")
    return dtype(DTYPES[code])


class Place(NamedTuple):
    """A tensor in its memory: strides, and where its first element begins and its last one ends, in
    bytes. One without elements has no strides, and is nowhere."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    end: int

    def is_dense(self, axes: Sequence[int]) -> bool:
        """Whether its elements lie one after the other, along these axes, the outermost first."""
        length = self.dtype.bytes
        for axis in reversed(axes):
            if self.shape[axis] != 1 and self.strides[axis] != length:
                return False
            length *= self.shape[axis]
        return True


class Archive:
    """`program` is the JSON of the one program; `tensor` gives weights and constants by name."""

    def __init__(self, source: Path | bytes) -> None:
        self.what = f"'{source}'" if isinstance(source, Path) else "the PyTorch program"
        try:
            whole = zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source)
            self._kept = _kept(source, self.what, whole)
            self._members = Members(whole, self._kept, self._damaged)
        except WRONG as error:
            raise self._damaged(str(error)) from None
        names = self._members.names
        models = [name for name in names if "/models/" in name and name.endswith(".json")]
        if len(models) != 1:
            raise CompileError(self._why_no_program(names, models))
        self._root = models[0].partition("/models/")[0]
        self._stem = models[0].rpartition("/")[2].removesuffix(".json")
        self._check_order(self._members, self._root)
        self.program = self._json(models[0])
        version = self._entry(self._entry(self.program, "schema_version"), "major", int)
        if version != MAJOR:
            raise CompileError(
                f"{self.what} has version {version} of torch's schema, expected {MAJOR}: {_AGAIN}"
            )
        self._weights = self._table("weights")
        self._constants = self._table("constants")
        self._places: dict[tuple[bool, str], Place] = {}
        self._wrappers: dict[tuple[bool, str], tuple[Wrapper, Members]] = {}
        self._spans: dict[tuple[bool, str], tuple[int, int]] = {}  # of what pickles hold

    def opened(self) -> AbstractContextManager[None]:
        """Tensors that are read within are read of a file that is opened once."""
        return self._kept.opened()

    def tensor(self, name: str, is_constant: bool) -> Literal:
        """A weight, buffer or constant; a large one is read again when it is used. CompileError: it
        is not there, or not whole."""
        return self.elements(name, is_constant, self.place(name, is_constant))

    def elements(self, name: str, is_constant: bool, place: Place) -> Literal:
        """As `tensor`, of what lies at `place` in the memory in which the tensor lies."""
        file, start, length = self._storage(name, is_constant)
        count = math.prod(place.shape) * place.dtype.bytes
        if place.end > length:
            raise self._damaged(f"tensor '{name}' has {length} bytes, expected {place.end}")
        if count > max(length, _MOST_REPEATED):
            shape = list(place.shape)
            raise self._damaged(f"tensor '{name}' has the shape {shape}, but {length} bytes")
        first, last = start + place.start, start + place.end
        if place.is_dense(range(len(place.shape))):
            return file.literal(first, place.shape, place.dtype)
        stored = _Strided(file, first, last, place.dtype, place.shape, place.strides)
        return Literal(stored if count > LARGE else np.array(stored.make()), place.dtype)

    def place(self, name: str, is_constant: bool) -> Place:
        """Its type, without its data, and where that lies. CompileError: it is not there."""
        key = is_constant, name
        if key not in self._places:
            self._places[key] = self._place(name, self._meta(name, is_constant))
        return self._places[key]

    def memory(self, name: str, is_constant: bool) -> object:
        """What tells the memory that it lies in, which others may lie in, too."""
        return is_constant, self._table_of(is_constant)[name]["path_name"]

    def _place(self, name: str, meta: Any) -> Place:
        element = element_type(meta["dtype"])
        shape = tuple(int(each["as_int"]) for each in meta["sizes"])
        if min(shape, default=0) < 0 or math.prod(shape) > 1 << 48:
            raise self._damaged(f"tensor '{name}' has the shape {list(shape)}")
        if 0 in shape:
            return Place(element, shape, (0,) * len(shape), 0, 0)
        strides = tuple(int(each["as_int"]) * element.bytes for each in meta["strides"])
        start = int(meta["storage_offset"]["as_int"]) * element.bytes
        if min((start, *strides)) < 0:
            raise self._damaged(f"tensor '{name}' has negative strides")
        last = start + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        return Place(element, shape, strides, start, last + element.bytes)

    def fingerprint(self, name: str, is_constant: bool) -> str:
        """What tells the tensor from another one."""
        literal = self.tensor(name, is_constant)
        digest = hashlib.blake2b(np.ascontiguousarray(literal.array).tobytes(), digest_size=16)
        return f"{literal.dtype}{list(literal.shape)} {digest.hexdigest()}"

    def is_wrapper(self, name: str, is_constant: bool) -> bool:
        """Whether the tensor is kept as others, of which `part` gives the names. CompileError: it
        is a pickle that cannot be read."""
        key = is_constant, name
        entry = self._table_of(is_constant).get(name)
        if key not in self._wrappers and isinstance(entry, dict) and entry.get("use_pickle"):
            self._read_pickle(key)
        return key in self._wrappers

    def part(self, name: str, attribute: str, is_constant: bool) -> str:
        """The name of a tensor that is an attribute of a wrapper. CompileError: it has none."""
        wrapper, members = self._wrappers[is_constant, name]
        found, full = wrapper.attributes.get(attribute), f"{name}.{attribute}"
        if not isinstance(found, (Wrapper, PickledTensor)):
            raise self._damaged(f"tensor '{name}' is kept without a tensor '{attribute}'")
        if full in self._table_of(is_constant) and (is_constant, full) not in self._spans:
            raise self._damaged(f"it has two tensors '{full}'")
        self._add((is_constant, full), found, members)
        return full

    def _read_pickle(self, key: tuple[bool, str]) -> None:
        member = self._member(key[1], key[0])
        members = self._members.inner(member)
        roots = [each for each in members.names if each.endswith("/data.pkl")]
        if len(roots) != 1:
            raise self._damaged(f"'{member}' has {len(roots)} pickles, expected one")
        self._check_order(members, roots[0].removesuffix("/data.pkl"))
        try:
            found = read_pickle(members.read(roots[0]))
        except ValueError as error:
            raise CompileError(
                f"tensor '{key[1]}' of {self.what} is a pickle that cannot be read: {error}; save "
                "what the exported program's run_decompositions() gives"
            ) from None
        self._add(key, found, members)

    def _add(self, key: tuple[bool, str], found: Wrapper | PickledTensor, members: Members) -> None:
        """Take what a pickle holds for a tensor of the archive."""
        if isinstance(found, Wrapper):
            self._wrappers[key] = found, members
            return
        if found.dtype not in CODES:
            raise CompileError(
                f"tensor '{key[1]}' of {self.what} has the dtype {found.dtype[:40]!r}, which has "
                "no counterpart: use another"
            )
        root = next(name for name in members.names if name.endswith("/data.pkl"))
        self._spans[key] = members.span(f"{root.removesuffix('.pkl')}/{found.key}")
        self._table_of(key[0])[key[1]] = {
            "path_name": str(self._spans[key]),
            "tensor_meta": {
                "dtype": CODES[found.dtype],
                "sizes": [{"as_int": size} for size in found.sizes],
                "strides": [{"as_int": stride} for stride in found.strides],
                "storage_offset": {"as_int": found.offset},
            },
        }

    def _storage(self, name: str, is_constant: bool) -> tuple[Kept, int, int]:
        """Where the bytes lie in which the tensor is, and others may be, and how many they are."""
        if (is_constant, name) in self._spans:
            return self._kept, *self._spans[is_constant, name]
        if self._table_of(is_constant)[name].get("use_pickle"):
            raise CompileError(f"tensor '{name}' of {self.what} is kept as others: read these")
        return self._kept, *self._members.span(self._member(name, is_constant))

    def _member(self, name: str, is_constant: bool) -> str:
        folder = "constants" if is_constant else "weights"
        return f"{self._root}/data/{folder}/{self._table_of(is_constant)[name]['path_name']}"

    def _table_of(self, is_constant: bool) -> dict[str, Any]:
        return self._constants if is_constant else self._weights

    def _meta(self, name: str, is_constant: bool) -> Any:
        table = self._table_of(is_constant)
        if name not in table:
            raise self._damaged(f"it has no data of the tensor '{name}'")
        meta = self._entry(table[name], "tensor_meta")
        if meta.get("layout") not in (None, 7):
            raise CompileError(f"tensor '{name}' of {self.what} is not strided: make it dense")
        return meta

    def _table(self, folder: str) -> dict[str, Any]:
        path = f"{self._root}/data/{folder}/{self._stem}_{folder}_config.json"
        if path not in self._members.names:
            return {}
        config: dict[str, Any] = self._entry(self._json(path), "config")
        return config

    def _entry(self, entries: Any, key: str, kind: type = dict) -> Any:
        if not isinstance(entries, dict) or not isinstance(entries.get(key), kind):
            raise self._damaged(f"'{key}' is missing")
        return entries[key]

    def _json(self, name: str) -> Any:
        try:
            return json.loads(self._members.read(name))
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"'{name}' is no JSON that can be read: {error}") from None

    def _check_order(self, members: Members, root: str) -> None:
        order = f"{root}/byteorder"
        if order in members.names and members.read(order).strip() != b"little":
            raise CompileError(f"{self.what} was saved on a big-endian machine: {_AGAIN}")

    def _damaged(self, text: str) -> CompileError:
        return CompileError(f"{self.what} is no whole archive of torch.export: {text}; {_AGAIN}")

    def _why_no_program(self, names: list[str], models: list[str]) -> str:
        if len(models) > 1:
            return f"{self.what} holds {len(models)} programs: save each in a file of its own"
        if any(name.endswith("serialized_exported_program.json") for name in names):
            old = "all its weights are one pickle"
            return f"{self.what} was saved by a torch before 2.8: {old}; {_AGAIN}"
        if any(name.endswith("data.pkl") for name in names):
            return (
                f"{self.what} holds pickled weights or TorchScript and no program of torch.export: "
                "export the model with torch.export.export and save that with torch.export.save"
            )
        return f"{self.what} holds no program of torch.export: {_AGAIN}"


def _kept(source: Path | bytes, name: str, archive: zipfile.ZipFile) -> Kept:
    if isinstance(source, bytes):
        return KeptBytes(source)
    kept = KeptFile(partial(open_regular, source.absolute()), name)
    kept.check(archive.fp)
    return kept


@dataclass(frozen=True)
class _Strided(Later):
    """Elements at strides in bytes from `start` on, of which the last ends at `end`."""

    file: Kept
    start: int
    end: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def make(self) -> np.ndarray[Any, Any]:
        element = self.dtype.numpy if self.dtype.is_numpy else np.dtype(f"u{self.dtype.bytes}")
        data = self.file.read(self.start, self.end - self.start)
        array: np.ndarray[Any, Any] = np.ndarray(self.shape, element, data, 0, self.strides)
        if self.dtype.is_numpy:
            return array
        data = np.ascontiguousarray(array).reshape(-1).view("u1")
        return literal_from_bytes(data.data, self.shape, self.dtype).array

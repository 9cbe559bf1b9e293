"""LoraAdapter: parameters that runs add to their inputs, and the file that has them.

The file is a flatbuffer of two kinds of tables, each of four fields of 4 bytes: the adapter
(version of the format, of the adapter, of the model; parameters) and a parameter (name, dims, the
number of its dtype in ONNX, bytes).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ingot.hal.errors import CompileError, Error
from ingot.hal.whole_file import write_whole
from ingot.onnxruntime.types import numpy_dtype
from ingot.onnxruntime.values import OrtValue

__all__ = ["AdapterFormat", "LoraAdapter"]

_IDENTIFIER, _VERSION = b"TORT", 1
_FIELDS = struct.pack("<6H", 12, 20, 4, 8, 12, 16)  # lengths of this and of a table, then places
_LONGEST = 1 << 31  # bytes of a flatbuffer


class LoraAdapter:
    """Parameters by the names of inputs; none until `Load`."""

    def __init__(self) -> None:
        self.parameters: dict[str, OrtValue] = {}

    def Load(self, path: str | os.PathLike[str]) -> None:  # noqa: N802 - onnxruntime's name
        """Those of a file. RuntimeError: it cannot be read, or is damaged."""
        self.parameters = AdapterFormat.read_adapter(path).get_parameters()


class AdapterFormat:
    """What a file of an adapter says, to be read or written."""

    def __init__(self) -> None:
        self._adapter_version = self._model_version = 0
        self._parameters: dict[str, OrtValue] = {}

    @staticmethod
    def read_adapter(file_path: str | os.PathLike[str]) -> AdapterFormat:
        """RuntimeError: the file cannot be read, or is damaged."""
        path = Path(file_path)
        try:
            return _read(path.read_bytes(), f"the adapter '{path}'")
        except (OSError, ValueError) as error:  # ValueError: what no path can be
            raise RuntimeError(f"the adapter '{path}' cannot be read: {error}") from None
        except CompileError as error:
            raise RuntimeError(str(error)) from None

    def export_adapter(self, file_path: str | os.PathLike[str]) -> None:
        """A file that exists is replaced in one step. RuntimeError: the file cannot be written, or
        would be too long."""
        data = _written(self._adapter_version, self._model_version, self._parameters)
        try:
            write_whole(file_path, lambda file: file.write(data))
        except (Error, OSError, ValueError) as error:
            raise RuntimeError(f"the adapter '{file_path}' cannot be written: {error}") from None

    def get_format_version(self) -> int:
        return _VERSION

    def set_adapter_version(self, adapter_version: int) -> None:
        self._adapter_version = adapter_version

    def get_adapter_version(self) -> int:
        return self._adapter_version

    def set_model_version(self, model_version: int) -> None:
        self._model_version = model_version

    def get_model_version(self) -> int:
        return self._model_version

    def set_parameters(self, params: Mapping[str, OrtValue]) -> None:
        wrong = [name for name, value in params.items() if not isinstance(value, OrtValue)]
        if wrong:
            raise TypeError(f"the parameter {wrong[0]!r} is no OrtValue")
        self._parameters = dict(params)

    def get_parameters(self) -> dict[str, OrtValue]:
        return dict(self._parameters)


def _read(data: bytes, what: str) -> AdapterFormat:
    """CompileError: the bytes are no adapter."""
    from ingot.compiler.frontends.tflite.flatbuffer import Flatbuffer

    buffer = Flatbuffer(memoryview(data), what)
    if data[4:8] != _IDENTIFIER:
        raise buffer.damaged("it does not begin as an adapter")
    table = buffer.root()
    version = table.number(0, "i")
    if version != _VERSION:
        raise CompileError(f"{what} has version {version} of its format, expected {_VERSION}")
    found = AdapterFormat()
    found.set_adapter_version(table.number(1, "i"))
    found.set_model_version(table.number(2, "i"))
    found.set_parameters(dict(_parameter(each, buffer) for each in table.tables(3)))
    return found


def _parameter(table: Any, buffer: Any) -> tuple[str, OrtValue]:
    name, dims, code = table.text(0), table.listed(1, "q"), table.number(2, "i")
    data = table.numbers(3, "B")
    try:
        dtype = numpy_dtype(code)
    except KeyError:
        raise buffer.damaged(f"the parameter {name!r:.60} has the unknown dtype {code}") from None
    if min(dims, default=0) < 0 or prod(dims) * dtype.itemsize != len(data):
        raise buffer.damaged(
            f"the parameter {name!r:.60} is {dtype}{dims!s:.60}, but has {len(data)} bytes"
        )
    return name, OrtValue(np.array(data).view(dtype).reshape(dims))


class _Writer:
    """Offsets lead to what is appended behind them."""

    def __init__(self) -> None:
        self.data = bytearray(struct.pack("<I4s", 8 + len(_FIELDS), _IDENTIFIER) + _FIELDS)

    def table(self, *fields: int) -> int:
        """Where the first of its fields lies, the others 4 bytes on each."""
        self._align(4)
        self.data += struct.pack("<5i", len(self.data) - 8, *fields)
        return len(self.data) - 16

    def vector(self, field: int, count: int, data: bytes) -> int:
        """A vector that `field` leads to; where its elements begin, at a multiple of 8."""
        self._align(8, 4)
        self.point(field)
        start = len(self.data) + 4
        self.data += struct.pack("<I", count) + data
        return start

    def point(self, field: int) -> None:
        """Let `field` lead to what is appended next."""
        struct.pack_into("<I", self.data, field, len(self.data) - field)

    def _align(self, length: int, rest: int = 0) -> None:
        self.data += bytes((rest - len(self.data)) % length)


def _written(adapter_version: int, model_version: int, parameters: Mapping[str, OrtValue]) -> bytes:
    arrays = {name: value.numpy() for name, value in parameters.items()}
    if sum(each.nbytes for each in arrays.values()) >= _LONGEST:
        raise RuntimeError("the parameters have 2 GiB or more, which no file of an adapter takes")
    writer = _Writer()
    root = writer.table(_VERSION, adapter_version, model_version, 0)
    places = writer.vector(root + 12, len(arrays), bytes(4 * len(arrays)))
    for place, (name, array) in enumerate(arrays.items()):
        table = writer.table(0, 0, parameters[name].element_type(), 0)
        struct.pack_into("<I", writer.data, places + 4 * place, table - 4 - places - 4 * place)
        text = name.encode()
        writer.vector(table, len(text), text + b"\0")
        writer.vector(table + 4, array.ndim, np.array(array.shape, "<i8").tobytes())
        writer.vector(table + 12, array.nbytes, array.tobytes())
    return bytes(writer.data)

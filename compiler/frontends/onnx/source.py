"""From what the caller passes (path, bytes or proto) to a ModelProto and its folder.

External data stays on disk: `external.py` reads it when an initializer is used. This file does
not look inside the graph; `check.py` does.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Union

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.errors import CompileError, NotFound

__all__ = ["ModelSource", "Source", "read_source"]

ModelSource = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, onnx.ModelProto]


@dataclass(frozen=True)
class Source:
    """A parsed model; its external data lies below one of the `folders`, if any is known."""

    model: onnx.ModelProto
    folders: tuple[Path, ...]
    name: str


def read_source(source: ModelSource) -> Source:
    """Parses the model. NotFound: no such file; CompileError: not an ONNX model."""
    if isinstance(source, onnx.ModelProto):
        return Source(source, (), "the ModelProto")
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Source(_parse(bytes(source), "the bytes"), (), "the bytes")
    path = Path(source)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"there is no file '{path}': pass the path of an .onnx file") from None
    except OSError as error:
        raise NotFound(f"cannot read '{path}': {error.strerror}") from error
    folders = dict.fromkeys([path.absolute().parent, path.resolve().parent])
    return Source(_parse(data, f"'{path}'"), tuple(folders), f"'{path}'")


def _parse(data: bytes, name: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise CompileError(
            f"{name} is no ONNX model, {len(data)} bytes do not parse ({error}): "
            "pass a file that torch.onnx.export or another exporter wrote"
        ) from error
    if not model.HasField("graph") or not model.opset_import:
        raise CompileError(
            f"{name} is no ONNX model: {len(data)} bytes hold no graph with an opset; "
            "pass a file that torch.onnx.export or another exporter wrote"
        )
    return model

"""From what the caller passes (path, bytes or proto) to a ModelProto and its files.

The data of large tensors stays where it is, in the model's file (`cut.py`) or beside it
(`external.py`), and is read when it is used. This file does not look inside the graph; `check.py`
does.
"""

from __future__ import annotations

import os
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Union

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from ingot.compiler.frontends.kept_file import KeptBytes, KeptFile
from ingot.compiler.frontends.onnx.cut import Cut
from ingot.compiler.frontends.onnx.external import Files
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.errors import CompileError
from ingot.hal.whole_file import open_regular

__all__ = ["ModelSource", "Source", "read_source"]

ModelSource = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview, onnx.ModelProto]


@dataclass(frozen=True)
class Source:
    """A parsed model; the data of its tensors lies in `files`, if not in itself."""

    model: onnx.ModelProto
    files: Files
    name: str


def read_source(source: ModelSource) -> Source:
    """Parses the model. CompileError: not an ONNX model; else raises as `open_regular`."""
    if isinstance(source, onnx.ModelProto):
        return Source(source, Files(), "the ModelProto")
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
        cut = Cut(KeptBytes(data))
        return Source(_parse(cut, BytesIO(data), "the bytes"), Files(cut), "the bytes")
    path, name = Path(source), f"'{source}'"
    with open_regular(path) as file:
        kept = KeptFile(partial(open_regular, path.absolute()), name)
        cut = Cut(kept)
        model = _parse(cut, file, name)
        kept.check(file)
    folders = dict.fromkeys([path.absolute().parent, path.resolve().parent])
    return Source(model, Files(cut, tuple(folders)), name)


def _parse(cut: Cut, stream: BinaryIO, name: str) -> onnx.ModelProto:
    length = cut.file.length
    try:
        model = cut.parse(stream)
    except DecodeError as error:
        raise CompileError(
            f"{name} is no ONNX model, {length} bytes do not parse ({error}): "
            "pass a file that torch.onnx.export or another exporter wrote"
        ) from error
    if not model.HasField("graph") or not model.opset_import:
        raise CompileError(
            f"{name} is no ONNX model: {length} bytes hold no graph with an opset; "
            "pass a file that torch.onnx.export or another exporter wrote"
        )
    return model

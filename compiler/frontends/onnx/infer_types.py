"""The types that ONNX's own inference gives to the values of a model: for surveys only.

It crashes on some models, so it runs in a process of its own; without it less is known.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from math import prod

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

__all__ = ["infer_types"]

_SECONDS = 60
_LONGEST_CONSTANT = 1024  # bytes; of larger ones the shape is enough
# The folder that a user is in may hold anything, also a file called onnx.py.
_PROGRAM = """
import sys
sys.path = [folder for folder in sys.path if folder]
import onnx
model = onnx.ModelProto.FromString(sys.stdin.buffer.read())
sys.stdout.buffer.write(onnx.shape_inference.infer_shapes(model).SerializeToString())
"""


def infer_types(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """By name of a value of the main graph what the model and the inference say of it."""
    slim = onnx.ModelProto()
    slim.CopyFrom(model)
    for tensor in slim.graph.initializer:
        if max(tensor.ByteSize(), prod(tensor.dims)) > _LONGEST_CONSTANT:
            shape, kind, name = list(tensor.dims), tensor.data_type, tensor.name
            tensor.Clear()
            tensor.dims.extend(shape)
            tensor.data_type, tensor.name = kind, name
    with suppress(OSError, ValueError, DecodeError, subprocess.SubprocessError):
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            input=slim.SerializeToString(),
            capture_output=True,
            timeout=_SECONDS,
            check=True,
        )
        slim = onnx.ModelProto.FromString(done.stdout)
    graph = slim.graph
    return {value.name: value for value in (*graph.value_info, *graph.output, *graph.input)}

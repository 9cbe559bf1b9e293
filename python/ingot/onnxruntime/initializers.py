"""A model with initializers that the program gives, and the ONNX file that it asks for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ingot.onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

__all__ = ["overridable", "with_arguments", "with_initializers", "write_model"]

_GREATEST_FILE = 1 << 31  # bytes of a protobuf


def overridable(proto: Any) -> list[Any]:
    """The graph inputs that initializers are the defaults of."""
    names = {each.name for each in proto.graph.initializer} if proto.ir_version > 3 else set()
    return [each for each in proto.graph.input if each.name in names]


def with_initializers(source: Path | bytes, values: Mapping[str, Any]) -> Path | bytes:
    """The model with these arrays for its initializers of their names; others are not looked at.
    InvalidArgument: a dtype or shape is another."""
    if not values:
        return source
    from onnx import helper, numpy_helper

    proto = _whole(source)
    for tensor in proto.graph.initializer:
        if tensor.name in values:
            array = np.asarray(values[tensor.name])
            wanted = helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
            if (array.dtype, array.shape) != wanted:
                raise InvalidArgument(
                    f"Initializer {tensor.name} is {array.dtype}{list(array.shape)}, expected "
                    f"{wanted[0]}{list(wanted[1])}"
                )
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    data: bytes = proto.SerializeToString()
    return data


def with_arguments(source: Path | bytes, names: Collection[str]) -> bytes:
    """The model whose inputs of these names have no defaults."""
    proto = _whole(source)
    kept = [each for each in proto.graph.initializer if each.name not in names]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    data: bytes = proto.SerializeToString()
    return data


def write_model(source: Path | bytes, path: Path) -> None:
    """The model as one file, with its data in another one where they are too long for that."""
    if isinstance(source, bytes):
        path.write_bytes(source)
        return
    import onnx

    proto = _whole(source)
    if proto.ByteSize() < _GREATEST_FILE:
        path.write_bytes(proto.SerializeToString())
    else:
        onnx.save(proto, path, save_as_external_data=True, location=f"{path.name}.data")


def _whole(source: Path | bytes) -> Any:
    """The ModelProto with its external data."""
    import onnx

    return onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(source)

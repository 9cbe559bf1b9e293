"""ONNX tensors and element types as Ingot literals and dtypes.

Data that a model keeps in files beside it is read when its values are used (`external.py`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from ingot.compiler.frontends.kept_file import Kept
from ingot.compiler.frontends.onnx.cut import Place
from ingot.compiler.frontends.onnx.external import Files
from ingot.compiler.ir import Literal
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType, dtype

__all__ = ["array_of", "dtype_of", "element_type_name", "is_external", "literal_of", "texts_of"]

_ELEMENT_TYPES: Mapping[int, str] = MappingProxyType(
    {
        onnx.TensorProto.BOOL: "i1",
        onnx.TensorProto.INT2: "i2",
        onnx.TensorProto.INT4: "i4",
        onnx.TensorProto.INT8: "i8",
        onnx.TensorProto.INT16: "i16",
        onnx.TensorProto.INT32: "i32",
        onnx.TensorProto.INT64: "i64",
        onnx.TensorProto.UINT2: "u2",
        onnx.TensorProto.UINT4: "u4",
        onnx.TensorProto.UINT8: "u8",
        onnx.TensorProto.UINT16: "u16",
        onnx.TensorProto.UINT32: "u32",
        onnx.TensorProto.UINT64: "u64",
        onnx.TensorProto.FLOAT16: "f16",
        onnx.TensorProto.BFLOAT16: "bf16",
        onnx.TensorProto.FLOAT: "f32",
        onnx.TensorProto.DOUBLE: "f64",
        onnx.TensorProto.FLOAT8E4M3FN: "f8e4m3fn",
        onnx.TensorProto.FLOAT8E4M3FNUZ: "f8e4m3fnuz",
        onnx.TensorProto.FLOAT8E5M2: "f8e5m2",
        onnx.TensorProto.FLOAT8E5M2FNUZ: "f8e5m2fnuz",
        onnx.TensorProto.FLOAT8E8M0: "f8e8m0fnu",
        onnx.TensorProto.FLOAT4E2M1: "f4e2m1fn",
    }
)


def dtype_of(element_type: int) -> DType | None:
    """The dtype of an ONNX element type; None if Ingot cannot compute with it."""
    name = _ELEMENT_TYPES.get(element_type)
    return None if name is None else dtype(name)


def element_type_name(element_type: int) -> str:
    """The element type in ONNX's words, such as "STRING"."""
    try:
        return str(onnx.TensorProto.DataType.Name(element_type))
    except ValueError:
        return f"element type {element_type}"


def is_external(tensor: onnx.TensorProto) -> bool:
    """True if the data lies in a file beside the model."""
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def literal_of(tensor: onnx.TensorProto, files: Files) -> Literal:
    """The tensor's values; many are read when they are used. CompileError: data missing, too
    short, or of no supported type."""
    element = dtype_of(tensor.data_type)
    if element is None:
        raise CompileError(
            f"tensor '{tensor.name}' has element type {element_type_name(tensor.data_type)}, "
            "which has no counterpart; use a numeric type"
        )
    shape = _shape_of(tensor)
    place = _place_of(tensor, shape, element, files)
    if place is None or not _is_plain(element):
        return Literal(array_of(tensor, files), element)
    return place.file.literal(place.offset, shape, element)


def texts_of(tensor: onnx.TensorProto) -> list[str]:
    """The elements of a tensor of strings, in order. CompileError: they are not UTF-8, or not as
    many as its shape says."""
    try:
        texts = [bytes(each).decode("utf-8") for each in tensor.string_data]
    except UnicodeDecodeError as error:
        raise CompileError(f"tensor '{tensor.name}' has strings that are not UTF-8") from error
    if len(texts) != math.prod(tensor.dims) or min(tensor.dims, default=0) < 0:
        raise CompileError(
            f"tensor '{tensor.name}' of shape {list(tensor.dims)} has {len(texts)} strings"
        )
    return texts


def array_of(tensor: onnx.TensorProto, files: Files) -> np.ndarray[Any, Any]:
    """The tensor's values as an array of its shape; read if they lie in a file."""
    shape = _shape_of(tensor)
    element = dtype_of(tensor.data_type)
    assert element is not None, "the caller checks the element type"
    place = _place_of(tensor, shape, element, files)
    if place is not None:
        raw = place.file.read(place.offset, place.length)
        if element.is_boolean:
            return np.asarray(raw != 0).reshape(shape)
        if element.bits >= 8:
            array = raw.view(element.numpy).reshape(shape)  # the file is little-endian
            return array if sys.byteorder == "little" else array.byteswap()
        inline = onnx.TensorProto()
        inline.CopyFrom(tensor)
        inline.ClearField("data_location")
        inline.raw_data = raw.tobytes()
        return np.asarray(onnx.numpy_helper.to_array(inline))
    try:
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    except ValueError as error:
        raise CompileError(f"tensor '{tensor.name}' has bad data: {error}") from error


def _stored_length(shape: tuple[int, ...], element: DType) -> int:
    """Bytes of a tensor in a file: a boolean takes one, narrower numbers are packed."""
    bits = 8 if element.is_boolean else element.bits
    return (math.prod(shape) * bits + 7) // 8


class _RawData(Kept):
    """What stands in the tensor itself, of which protobuf gives a copy."""

    def __init__(self, tensor: onnx.TensorProto) -> None:
        self.tensor = tensor

    def read(self, offset: int, length: int) -> np.ndarray[Any, Any]:
        return np.frombuffer(self.tensor.raw_data, np.uint8, length, offset)


def _shape_of(tensor: onnx.TensorProto) -> tuple[int, ...]:
    shape = tuple(tensor.dims)
    if any(dim < 0 for dim in shape):
        raise CompileError(f"tensor '{tensor.name}' has a negative dim in its shape {shape}")
    return shape


def _is_plain(element: DType) -> bool:
    """Whether a literal has the elements as files have them."""
    return not element.is_boolean and element.bits >= 8 and sys.byteorder == "little"


def _place_of(
    tensor: onnx.TensorProto, shape: tuple[int, ...], element: DType, files: Files
) -> Place | None:
    """Where the tensor's bytes lie, as many as it needs; None if it has numbers instead."""
    if is_external(tensor):
        return _external_place(tensor, shape, element, files)
    if not tensor.HasField("raw_data"):
        return None
    data = tensor.raw_data
    place = files.own.place(data) if files.own is not None else None
    place = place or Place(_RawData(tensor), 0, len(data))
    expected = _stored_length(shape, element)
    if place.length != expected:
        raise CompileError(
            f"tensor '{tensor.name}' has {place.length} bytes of data, but "
            f"{element.name}{list(shape)} needs {expected}: the file is damaged"
        )
    return place


def _external_place(
    tensor: onnx.TensorProto, shape: tuple[int, ...], element: DType, files: Files
) -> Place:
    """Where the bytes of an external tensor lie in its file."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    what = f"initializer '{tensor.name}' keeps its data in the file '{location}'"
    advice = 'pass parameters="external" to supply weights when the module is loaded'
    if not files.folders:
        raise CompileError(
            f"{what}, but the model was not given as a path, so its folder is not known: "
            f"pass the path of the .onnx file, or {advice}"
        )
    expected = _stored_length(shape, element)
    try:
        offset, length = int(entries.get("offset", "0")), int(entries.get("length", expected))
    except ValueError as error:
        raise CompileError(f"{what} with a bad offset or length: {error}") from error
    if offset < 0:
        raise CompileError(f"{what} with a bad offset or length: {offset} is less than 0")
    if length != expected:
        raise CompileError(
            f"{what}, {length} bytes of it, but {element.name}{list(shape)} needs {expected}: the "
            "model is damaged"
        )
    try:
        return files.place(location, offset, length)
    except CompileError as error:
        raise CompileError(f"{what}, {error}; or {advice}") from None

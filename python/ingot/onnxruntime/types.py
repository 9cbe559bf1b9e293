"""What onnxruntime calls the types of inputs and outputs, and dtypes by their ONNX numbers."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ingot.hal.spec import dtype

__all__ = [
    "ModelMetadata",
    "NamedNumber",
    "NodeArg",
    "dtype_of_text",
    "numpy_dtype",
    "of_proto",
    "onnx_code",
    "type_text",
]


class NamedNumber(enum.IntEnum):
    """Numbers that are written as onnxruntime writes them: class and name."""

    __str__ = enum.Enum.__str__


# Names in the type strings of onnxruntime by Ingot's, with the numbers of TensorProto.DataType.
_NAMES = {
    "f32": ("float", 1),
    "u8": ("uint8", 2),
    "i8": ("int8", 3),
    "u16": ("uint16", 4),
    "i16": ("int16", 5),
    "i32": ("int32", 6),
    "i64": ("int64", 7),
    "i1": ("bool", 9),
    "f16": ("float16", 10),
    "f64": ("double", 11),
    "u32": ("uint32", 12),
    "u64": ("uint64", 13),
    "c64": ("complex64", 14),
    "c128": ("complex128", 15),
    "bf16": ("bfloat16", 16),
    "f8e4m3fn": ("float8e4m3fn", 17),
    "f8e4m3fnuz": ("float8e4m3fnuz", 18),
    "f8e5m2": ("float8e5m2", 19),
    "f8e5m2fnuz": ("float8e5m2fnuz", 20),
    "u4": ("uint4", 21),
    "i4": ("int4", 22),
}
_STRING = 8
_TEXTS = {code: name for name, code in _NAMES.values()} | {_STRING: "string"}
_DTYPES = {code: name for name, (_, code) in _NAMES.items()}
_CODES = {dtype(name).numpy_name: code for name, (_, code) in _NAMES.items()}


@dataclass(frozen=True)
class NodeArg:
    """An input or output. A dim is a number, a name, or None."""

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class ModelMetadata:
    """What the model says of itself."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)


def numpy_dtype(element: Any) -> np.dtype[Any]:
    """A dtype by its ONNX number, or anything that NumPy takes for one."""
    given: Any = element
    if element == _STRING:
        given = object
    elif isinstance(element, int):
        given = dtype(_DTYPES[element]).numpy
    found: np.dtype[Any] = np.dtype(given)
    return found


def onnx_code(numpy: np.dtype[Any]) -> int:
    """The ONNX number of a dtype."""
    return _STRING if numpy.kind in "OUS" else _CODES[numpy.name]


def type_text(code: int) -> str:
    """tensor(float) and its like, by the ONNX number of the elements."""
    return f"tensor({_TEXTS.get(code, 'undefined')})"


def dtype_of_text(text: str) -> np.dtype[Any]:
    """The dtype of tensor(float) and its like."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return numpy_dtype(next(code for code, known in _TEXTS.items() if known == name))


def of_proto(proto: Any) -> tuple[str, list[int | str | None] | None]:
    """The text and the shape of a TypeProto; None where it notes no shape."""
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(proto, kind)
        text = kind.removesuffix("tensor_type") + type_text(tensor.elem_type)
        return text, _dims(tensor.shape.dim) if tensor.HasField("shape") else None
    if kind == "sequence_type":
        return f"seq({of_proto(proto.sequence_type.elem_type)[0]})", []
    if kind == "optional_type":
        inner, shape = of_proto(proto.optional_type.elem_type)
        return f"optional({inner})", shape
    if kind == "map_type":
        key = _TEXTS.get(proto.map_type.key_type, "undefined")
        return f"map({key},{of_proto(proto.map_type.value_type)[0]})", []
    return "undefined", []


def _dims(dims: Sequence[Any]) -> list[int | str | None]:
    return [
        (int(each.dim_value) if each.dim_value >= 0 else None)
        if each.HasField("dim_value")
        else str(each.dim_param) or None
        for each in dims
    ]

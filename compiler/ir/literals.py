"""The text of constant tensors: `dense<f32[2] [1.0, 2.0]>`, or base64 for large ones.

Every bit survives: a tensor whose elements have no exact short text (NaN with a payload,
f8, complex) is written as base64 too. One value instead of a list means all elements.
"""

from __future__ import annotations

import base64
from math import prod
from typing import Any

import numpy as np

from ingot.compiler.ir.core import Literal
from ingot.hal.errors import Unsupported
from ingot.hal.spec import DType

__all__ = ["literal_from_bytes", "literal_from_numbers", "literal_text"]

_LISTED = 16
"""The most elements that are written as a list of numbers."""

_BITS: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype("<u2"),
    4: np.dtype("<u4"),
    8: np.dtype("<u8"),
}


def literal_text(literal: Literal, elide: bool = False) -> str:
    """The text of a literal; with `elide`, `...` for the elements of a large one."""
    head = f"{literal.dtype.name}[{','.join(map(str, literal.shape))}]"
    if literal.splat is not None:
        numbers = _numbers(literal.splat.array.reshape(-1), literal.dtype)
        if numbers is not None:
            return f"dense<{head} {numbers[0]}>"
    if literal.size <= _LISTED:
        numbers = _numbers(literal.array.reshape(-1), literal.dtype)
        if numbers is not None:
            return f"dense<{head} [{', '.join(numbers)}]>"
    if elide:
        return f"dense<{head} ...>"
    array = literal.array
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return f'dense<{head} "{base64.b64encode(array.tobytes()).decode()}">'


def _numbers(flat: np.ndarray[Any, Any], dtype: DType) -> list[str] | None:
    """Texts of the elements, or None if they have none that is exact."""
    if dtype.is_boolean:
        return ["true" if item else "false" for item in flat.tolist()]
    if dtype.is_integer:
        return [str(int(item)) for item in flat.tolist()]
    if not dtype.fraction:
        return None
    floats = _floats(flat, dtype)
    texts = [_float_text(item) for item in floats]
    back = literal_from_numbers([float(text) for text in texts], (len(texts),), dtype)
    return texts if back.array.tobytes() == flat.tobytes() else None


def _floats(flat: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    if dtype.name != "bf16":
        return flat.view(np.dtype(dtype.numpy_name))
    return (flat.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _float_text(item: np.floating[Any]) -> str:
    text = str(item)  # the shortest that gives this number in its own width
    return text if any(letter in text for letter in ".en") else f"{text}.0"


def literal_from_numbers(numbers: list[Any], shape: tuple[int, ...], dtype: DType) -> Literal:
    """A literal from its elements in order. ValueError: a wrong count or range."""
    count = int(np.prod(shape, dtype=np.int64))
    if len(numbers) != count:
        raise ValueError(f"expected {count} elements, got {len(numbers)}")
    if dtype.name == "bf16":
        bits = np.asarray(numbers, np.float32).reshape(-1).view(np.uint32)
        carrier = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)  # to even
    elif dtype.bits < 8 and dtype.is_integer:
        carrier = np.asarray(numbers, np.int8 if dtype.kind == "i" else np.uint8)
    else:
        carrier = np.asarray(numbers, np.dtype(dtype.numpy_name))
    return _from_carrier(np.ascontiguousarray(carrier).reshape(shape), dtype)


def literal_from_bytes(data: bytes | memoryview, shape: tuple[int, ...], dtype: DType) -> Literal:
    """A literal from the bytes of its elements, little-endian. ValueError: a wrong length."""
    expected = prod(shape) * dtype.bytes
    if len(data) != expected:
        raise ValueError(f"expected {expected} bytes, got {len(data)}")
    return _from_carrier(np.frombuffer(data, _carrier(dtype)).reshape(shape), dtype)


def _carrier(dtype: DType) -> np.dtype[Any]:
    if dtype.is_integer and dtype.bits < 8:
        return np.dtype(np.int8 if dtype.kind == "i" else np.uint8)
    try:
        return dtype.numpy
    except Unsupported:
        return _BITS[dtype.bytes]


def _from_carrier(array: np.ndarray[Any, Any], dtype: DType) -> Literal:
    """A literal of the NumPy dtype where there is one, else of the carrier's."""
    try:
        target = dtype.numpy
    except Unsupported:
        return Literal(array, dtype)
    if array.dtype == target:
        return Literal(array, dtype)
    if dtype.is_integer and dtype.bits < 8:
        return Literal(array.astype(target), dtype)
    return Literal(array.view(target), dtype)

"""Decode the types and attributes of the VHLO and builtin dialects.

One small function per code of the format, in a table. An entry of the file's attribute
table becomes a plain Python value (see `program.py`); locations become text. What refers to
another entry asks the `Tables` protocol for it. The codes are those of VhloBytecode.cpp
(StableHLO) and BuiltinDialectBytecode (MLIR) and never change.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ingot.compiler.frontends.stablehlo.reading.cursor import Cursor
from ingot.compiler.frontends.stablehlo.reading.program import (
    Constant,
    FunctionType,
    NoneType,
    OtherType,
    QuantizedType,
    SourceType,
    TensorType,
    TupleType,
)
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.errors import Unsupported
from ingot.hal.spec import DTYPES

__all__ = ["Location", "Tables", "read_attribute", "read_type"]

_DYNAMIC = -(1 << 60)  # a dim below this is known only at the call
_WIDEST = (1 << 24) - 1  # bits of an integer of MLIR
_LONGEST_NAME = 64  # of the type of an element


class Tables(Protocol):
    """The tables of an artifact that entries refer to, each by a number at the cursor."""

    def string(self, cursor: Cursor) -> str: ...
    def attribute(self, cursor: Cursor) -> Any: ...
    def type(self, cursor: Cursor) -> SourceType: ...


@dataclass(frozen=True)
class Location:
    """Where an op comes from: `name` is a layer, `file` a line of code, or "" for none."""

    name: str = ""
    file: str = ""

    @property
    def text(self) -> str:
        return self.name or self.file


_ELEMENTS = {
    0: "i1",
    2: "bf16",
    3: "f16",
    4: "f32",
    5: "f64",
    6: "f8e4m3fn",
    7: "f8e5m2",
    9: "index",
    10: "i4",
    11: "i8",
    12: "i16",
    13: "i32",
    14: "i64",
    15: "u4",
    16: "u8",
    17: "u16",
    18: "u32",
    19: "u64",
    22: "token",
    26: "witness",
    27: "f8e4m3fnuz",
    28: "f8e5m2fnuz",
    29: "f8e4m3b11fnuz",
    31: "i2",
    32: "u2",
    34: "tf32",
    35: "f8e4m3",
    36: "f8e3m4",
    37: "f4e2m1fn",
    38: "f6e2m3fn",
    39: "f6e3m2fn",
    40: "f8e8m0fnu",
}
_WIDTHS = {"index": 64, "tf32": 19, "f6e2m3fn": 6, "f6e3m2fn": 6}
_DIRECTIONS = ("EQ", "NE", "GE", "GT", "LE", "LT")
_COMPARISONS = ("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")
_API_VERSIONS = (
    "UNSPECIFIED",
    "ORIGINAL",
    "STATUS_RETURNING",
    "STATUS_RETURNING_UNIFIED",
    "TYPED_FFI",
)
_TRANSPOSES = ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")


def read_type(dialect: str, cursor: Cursor, tables: Tables) -> SourceType:
    """One entry of the type table."""
    code = cursor.unsigned()
    if dialect == "builtin":
        return _builtin_type(code, cursor, tables)
    if dialect != "vhlo":
        return OtherType(f"!{dialect}.type")
    if code in _ELEMENTS:
        return OtherType(_ELEMENTS[code])
    match code:
        case 1:
            width = {"f32": "c64", "f64": "c128"}
            element = _element(cursor, tables)
            return OtherType(width.get(element, f"complex<{element}>"))
        case 8:
            inputs = cursor.list_of(lambda: tables.type(cursor))
            return FunctionType(inputs, cursor.list_of(lambda: tables.type(cursor)))
        case 20:
            return _tensor_type(cursor, tables, None)
        case 21:
            return _tensor_type(cursor, tables, tables.attribute(cursor))
        case 23:
            return TupleType(cursor.list_of(lambda: tables.type(cursor)))
        case 24 | 30:
            return _quantized_type(cursor, tables, per_axis=code == 30)
        case 25:
            return OtherType(f"{_element(cursor, tables)}[*]")
        case 33:
            return NoneType()
        case 41:
            return OtherType(f"buffer<{_tensor_type(cursor, tables, None)}>")
    return _skip_type(cursor, f"!vhlo.type_{code}")


def _element(cursor: Cursor, tables: Tables) -> str:
    """The name of a type that elements of tensors can have."""
    return _name(cursor, tables.type(cursor))


def _name(cursor: Cursor, type: SourceType) -> str:
    if not isinstance(type, OtherType) or len(type.name) > _LONGEST_NAME:
        raise cursor.fail("elements have a type that elements cannot have")
    return type.name


def _tensor_type(cursor: Cursor, tables: Tables, encoding: Any) -> TensorType:
    shape = tuple(None if dim <= _DYNAMIC else dim for dim in cursor.list_of(cursor.signed))
    if any(dim is not None and dim < 0 for dim in shape):
        raise cursor.fail(f"a tensor type has a negative dim in {shape}")
    limits: tuple[int | None, ...] = ()
    if isinstance(encoding, _Bounds):
        limits = tuple(None if limit <= _DYNAMIC else limit for limit in encoding.limits)
    element = tables.type(cursor)
    if isinstance(element, QuantizedType):
        return TensorType(element.storage, shape, limits, element)
    return TensorType(_name(cursor, element), shape, limits)


def _quantized_type(cursor: Cursor, tables: Tables, *, per_axis: bool) -> QuantizedType:
    """Flag 1 says that the storage is signed."""
    is_signed = cursor.unsigned() & 1
    storage, expressed = _element(cursor, tables), _element(cursor, tables)
    axis: int | None = None
    if per_axis:
        axis, low, high = cursor.unsigned(), cursor.signed(), cursor.signed()
        bits = cursor.list_of(lambda: _bits(cursor, 64))
        zeros = cursor.list_of(cursor.signed)
    else:
        bits, zeros = (_bits(cursor, 64),), (cursor.signed(),)
        low, high = cursor.signed(), cursor.signed()
    scales = tuple(np.array(bits, np.uint64).view(np.float64).tolist())
    is_whole = len(scales) == len(zeros) and low < high
    if not is_whole or not all(scale > 0 and math.isfinite(scale) for scale in scales):
        raise cursor.fail(
            f"a quantised type has scales {scales[:4]}, zero points {zeros[:4]}, axis {axis} and "
            f"integers from {low} to {high}"
        )
    storage = f"{'i' if is_signed else 'u'}{storage.lstrip('iu')}"
    return QuantizedType(storage, expressed, scales, tuple(zeros), low, high, axis)


def _builtin_type(code: int, cursor: Cursor, tables: Tables) -> SourceType:
    match code:
        case 0:
            coded = cursor.unsigned()
            width, prefix = coded >> 2, "u" if coded & 3 == 2 else "i"
            return OtherType(f"{prefix}{width}")
        case 1:
            return OtherType("index")
        case 3 | 4 | 5 | 6:
            return OtherType(("bf16", "f16", "f32", "f64")[code - 3])
        case 12:
            return NoneType()
        case 13:
            return _tensor_type(cursor, tables, None)
    return _skip_type(cursor, f"builtin type {code}")


def _skip_type(cursor: Cursor, name: str) -> OtherType:
    cursor.span(cursor.end - cursor.offset)
    return OtherType(name)


@dataclass(frozen=True)
class _Bounds:
    """The encoding of a tensor type: the greatest value of each dim, in file order."""

    limits: tuple[int, ...]


@dataclass(frozen=True)
class UnknownAttribute:
    """An attribute that this reader does not know; nothing that it lowers needs one."""

    name: str


Reader = Callable[[Cursor, Tables], Any]


def read_attribute(dialect: str, cursor: Cursor, tables: Tables) -> Any:
    """One entry of the attribute table."""
    code = cursor.unsigned()
    table = {"vhlo": _VHLO, "builtin": _BUILTIN}.get(dialect, {})
    reader = table.get(code)
    if reader is None:
        cursor.span(cursor.end - cursor.offset)
        return UnknownAttribute(f"{dialect} attribute {code}")
    return reader(cursor, tables)


def _enumeration(names: tuple[str, ...]) -> Reader:
    def read(cursor: Cursor, tables: Tables) -> str:
        value = cursor.unsigned()
        return names[value] if value < len(names) else str(value)

    return read


def _array(cursor: Cursor, tables: Tables) -> tuple[Any, ...]:
    return cursor.list_of(lambda: tables.attribute(cursor))


def _boolean(cursor: Cursor, tables: Tables) -> bool:
    return bool(cursor.unsigned())


def _dictionary(cursor: Cursor, tables: Tables) -> dict[str, Any]:
    return dict(cursor.list_of(lambda: (_text(cursor, tables), tables.attribute(cursor))))


def _text(cursor: Cursor, tables: Tables) -> str:
    """An attribute that is a string."""
    text = tables.attribute(cursor)
    if not isinstance(text, str):
        raise cursor.fail("a name is no string")
    return text


def _string(cursor: Cursor, tables: Tables) -> str:
    return tables.string(cursor)


def _typed_string(cursor: Cursor, tables: Tables) -> str:
    text = tables.string(cursor)
    tables.type(cursor)
    return text


def _type(cursor: Cursor, tables: Tables) -> SourceType:
    return tables.type(cursor)


def _unit(cursor: Cursor, tables: Tables) -> bool:
    return True


def _bits(cursor: Cursor, width: int) -> int:
    """The bits of a number of known width: a byte, or a zigzag integer."""
    if width <= 8:
        return cursor.byte()
    return cursor.signed() & ((1 << width) - 1)


def _width(cursor: Cursor, element: str) -> int:
    """Bits of an element type by name. Unsupported: a type such as i7."""
    if element in DTYPES:
        return DTYPES[element].bits
    if element in _WIDTHS:
        return _WIDTHS[element]
    if element[0] in "iu" and element[1:].isdigit() and 0 < int(element[1:]) <= _WIDEST:
        return int(element[1:])
    raise cursor.fail(f"a number has the type {element!r}")


def _integer(cursor: Cursor, tables: Tables) -> int:
    element = _element(cursor, tables)
    width = _width(cursor, element)
    value = _bits(cursor, width)
    signed = element[0] == "i" and element != "i1"
    return value - (1 << width) if signed and value >> (width - 1) & 1 else value


def _float(cursor: Cursor, tables: Tables) -> float:
    element = _element(cursor, tables)
    width = _width(cursor, element)
    bits = _bits(cursor, width)
    if element not in DTYPES:
        return math.nan
    size = DTYPES[element].bytes
    return float(_elements(memoryview(bits.to_bytes(size, "little")), element)[0])


def _alias(cursor: Cursor, tables: Tables) -> dict[str, Any]:
    outputs = cursor.list_of(cursor.signed)
    operand = cursor.signed()
    indices = cursor.list_of(cursor.signed)
    return {"output_indices": outputs, "operand": operand, "operand_indices": indices}


def _bounds(cursor: Cursor, tables: Tables) -> _Bounds:
    return _Bounds(cursor.list_of(cursor.signed))


def _accuracy(cursor: Cursor, tables: Tables) -> dict[str, Any]:
    absolute, relative = _bits(cursor, 64), _bits(cursor, 64)
    ulps = cursor.signed()
    values = np.array([absolute, relative], np.uint64).view(np.float64).tolist()
    return {"atol": values[0], "rtol": values[1], "ulps": ulps, "mode": tables.attribute(cursor)}


def _tensor(cursor: Cursor, tables: Tables) -> Constant:
    type = tables.type(cursor)
    if not isinstance(type, TensorType) or None in type.shape:
        raise cursor.fail(f"a constant has the type {type}")
    shape = tuple(dim for dim in type.shape if dim is not None)
    data = cursor.span(cursor.unsigned())
    count = math.prod(shape)
    dtype = DTYPES.get(type.element)
    if dtype is None:  # an element type that Ingot lacks: the scan reports the op
        return Constant(np.zeros(shape[:0], np.uint8), type.element)
    if dtype.is_boolean and len(data) == (count + 7) // 8 and len(data) != count:
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=count, bitorder="little")
        return Constant(bits.view(np.bool_).reshape(shape), type.element)
    if len(data) == dtype.bytes and count != 1:
        if count >= 1 << 60:
            raise cursor.fail(f"a constant has {count} elements")
        element = _elements(data, type.element)
        return Constant(np.broadcast_to(element.reshape(()), shape), type.element, True)
    if len(data) != count * dtype.bytes:
        raise cursor.fail(
            f"a constant of type {type} has {len(data)} bytes, not {count * dtype.bytes}"
        )
    return Constant(_elements(data, type.element).reshape(shape), type.element)


def _elements(data: memoryview, element: str) -> np.ndarray[Any, Any]:
    """The elements of `data`, shared where NumPy's layout is the file's."""
    dtype = DTYPES[element]
    if dtype.is_boolean:
        truths: np.ndarray[Any, Any] = np.frombuffer(data, np.uint8) != 0
        return truths
    try:
        numpy_dtype = dtype.numpy
    except Unsupported:
        numpy_dtype = np.dtype(f"uint{8 * dtype.bytes}")
    if dtype.bits < 8 and dtype.is_integer:
        low = np.frombuffer(data, np.uint8) & ((1 << dtype.bits) - 1)
        if dtype.kind == "i":
            sign = 1 << (dtype.bits - 1)
            low = (low ^ sign).view(np.int8) - np.int8(sign)
        narrow: np.ndarray[Any, Any] = low.astype(numpy_dtype)
        return narrow
    return np.frombuffer(data, numpy_dtype)


def _call_site(cursor: Cursor, tables: Tables) -> Location:
    callee, caller = tables.attribute(cursor), tables.attribute(cursor)
    both = [place for place in (callee, caller) if isinstance(place, Location)]
    return _first(both)


def _file(cursor: Cursor, tables: Tables) -> Location:
    name = _text(cursor, tables)
    return Location(file=f"{name}:{cursor.unsigned()}:{cursor.unsigned()}")


def _file_range(cursor: Cursor, tables: Tables) -> Location:
    name = _text(cursor, tables)
    numbers = cursor.list_of(cursor.unsigned)
    return Location(file=":".join([name, *map(str, numbers[:2])]))


def _fused(cursor: Cursor, tables: Tables) -> Location:
    places = cursor.list_of(lambda: tables.attribute(cursor))
    return _first([place for place in places if isinstance(place, Location)])


def _fused_with_metadata(cursor: Cursor, tables: Tables) -> Location:
    place = _fused(cursor, tables)
    tables.attribute(cursor)
    return place


def _named(cursor: Cursor, tables: Tables) -> Location:
    name = _text(cursor, tables)
    child = tables.attribute(cursor)
    return Location(name, child.file if isinstance(child, Location) else "")


def _first(places: list[Location]) -> Location:
    """The first name and the first file of several locations."""
    name = next((place.name for place in places if place.name), "")
    return Location(name, next((place.file for place in places if place.file), ""))


_VHLO: dict[int, Reader] = {
    1: _array,
    2: _boolean,
    3: _enumeration(_DIRECTIONS),
    4: _enumeration(_COMPARISONS),
    5: _enumeration(_API_VERSIONS),
    6: _dictionary,
    7: _enumeration(("FFT", "IFFT", "RFFT", "IRFFT")),
    8: _float,
    9: _integer,
    10: _alias,
    11: _enumeration(("DEFAULT", "HIGH", "HIGHEST")),
    12: _enumeration(("DEFAULT", "THREE_FRY", "PHILOX")),
    13: _enumeration(("INVALID", "UNIFORM", "NORMAL")),
    14: _string,
    15: _tensor,
    16: _enumeration(_TRANSPOSES),
    17: _type,
    18: _bounds,
    19: _enumeration(("DEFAULT", "HIGHEST", "TOLERANCE")),
    20: _accuracy,
}
_BUILTIN: dict[int, Reader] = {
    0: _array,
    1: _dictionary,
    2: _string,
    3: _typed_string,
    4: lambda cursor, tables: tables.attribute(cursor),
    6: _type,
    7: _unit,
    8: _integer,
    9: _float,
    10: _call_site,
    11: _file,
    12: _fused,
    13: _fused_with_metadata,
    14: _named,
    15: lambda cursor, tables: Location(),
    22: _file_range,
}

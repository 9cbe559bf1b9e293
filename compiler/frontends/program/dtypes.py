"""Dtypes of programs: their names, promotion by the array API standard, and what a dtype holds.

Beside the standard's rules: booleans promote to any dtype, integers to the floats that they meet.
The default dtypes are f32 and i64.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.errors import CompileError, Error
from ingot.hal.spec import DTYPES, DType, dtype

__all__ = [
    "NAMES",
    "FloatInfo",
    "IntegerInfo",
    "can_cast",
    "complex_dtype",
    "default_float",
    "default_int",
    "element_type",
    "finfo",
    "iinfo",
    "isdtype",
    "promoted",
    "real_dtype",
    "result_type",
]

NAMES = {
    "bool": "i1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "complex64": "c64",
    "complex128": "c128",
}
"""Dtypes by their names in the array API standard."""

_KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}


def default_float() -> DType:
    return dtype("f32")


def default_int() -> DType:
    return dtype("i64")


def element_type(given: Any) -> DType:
    """A dtype by any of its names ("f32", "float32"), or a dtype of NumPy. CompileError."""
    if isinstance(given, DType):
        return given
    if isinstance(given, str) and (given in NAMES or given in DTYPES):
        return dtype(NAMES.get(given, given))
    try:
        return DType.from_numpy(given)
    except (Error, TypeError):
        raise CompileError(f"{given!r} is no dtype; the dtypes are: {', '.join(NAMES)}") from None


def real_dtype(element: DType) -> DType:
    """Of the parts of a complex dtype; another dtype itself."""
    return dtype(f"f{element.bits // 2}") if element.is_complex else element


def complex_dtype(element: DType) -> DType:
    """That whose parts hold the numbers of a dtype."""
    return promoted(element, dtype("c64"))


def promoted(a: DType, b: DType) -> DType:
    """The least dtype that holds both. CompileError: there is none."""
    if a is b:
        return a
    if a.is_complex or b.is_complex:
        return dtype("c128" if {a.name, b.name} & {"f64", "c128"} else "c64")
    if a.kind > b.kind:
        a, b = b, a  # kinds in the order b f i u
    if a.is_boolean:
        return b
    if a.is_float:
        if not b.is_float:
            return a
        if min(a.bits, b.bits) >= 16:
            return dtype("f32") if a.bits == b.bits else max(a, b, key=lambda each: each.bits)
    elif min(a.bits, b.bits) >= 8:
        if a.kind == b.kind:
            return max(a, b, key=lambda each: each.bits)
        bits = max(a.bits, 2 * b.bits)
        if bits <= 64:
            return dtype(f"i{bits}")
    raise CompileError(f"no dtype holds both {a} and {b}: convert one with ops.astype")


def result_type(*given: Any) -> DType:
    """The dtype that arrays and dtypes promote to."""
    return reduce(promoted, [element_type(getattr(each, "dtype", each)) for each in given])


def can_cast(from_: Any, to: Any) -> bool:
    """Whether `to` holds what promotion makes of both."""
    target = element_type(to)
    try:
        return promoted(element_type(getattr(from_, "dtype", from_)), target) is target
    except CompileError:
        return False


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a dtype, a name such as "integral", or a tuple of these."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, each) for each in kind)
    if isinstance(kind, str) and kind in _KINDS and kind != "bool":
        return element_type(dtype).kind in _KINDS[kind]
    return element_type(dtype) is element_type(kind)


@dataclass(frozen=True)
class FloatInfo:
    """The limits of a floating-point dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntegerInfo:
    """The limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def finfo(type: Any) -> FloatInfo:
    """The limits of a dtype, or of the parts of a complex one, or of those of a tensor.

    CompileError: it holds no floats."""
    element = real_dtype(element_type(getattr(type, "dtype", type)))
    if not element.is_float or not element.fraction:
        raise CompileError(f"{element} is no float of 16 bits or more")
    low = 2.0 ** (1 - element.bias)
    eps = 2.0**-element.fraction
    high = (2 - eps) * 2.0**element.bias
    return FloatInfo(element.bits, eps, high, -high, low, element)


def iinfo(type: Any) -> IntegerInfo:
    """The limits of a dtype, or of that of a tensor. CompileError: it is no integer."""
    element = element_type(getattr(type, "dtype", type))
    if not element.is_integer:
        raise CompileError(f"{element} is no integer")
    least, greatest = element.limits
    return IntegerInfo(element.bits, greatest, least, element)

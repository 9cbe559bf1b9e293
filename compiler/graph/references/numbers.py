"""How numbers of every dtype convert, round and widen: the arithmetic under the references.

Narrow floats compute in float32 or float64 and round once at the end; sub-byte integers
compute in int64 and wrap. Nothing here knows tensors or ops.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from ingot.hal.spec import DType

__all__ = ["Array", "convert", "dtype_of", "is_standard", "narrow", "quiet", "wide", "widen"]

Array = np.ndarray[Any, Any]
_Function = TypeVar("_Function", bound=Callable[..., Any])


def quiet(function: _Function) -> _Function:
    """`function` without NumPy's warnings about overflow, division by zero and NaN."""

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments, **keywords)

    return cast("_Function", call)


def dtype_of(x: Array) -> DType:
    """The element type of an array."""
    return DType.from_numpy(x.dtype)


def is_standard(dtype: np.dtype[Any]) -> bool:
    """Whether it is of NumPy itself."""
    return dtype.isbuiltin == 1


def wide(dtype: DType) -> np.dtype[Any]:
    """The dtype in which sums and functions of `dtype` are computed without visible rounding."""
    if dtype.is_complex:
        return np.dtype(np.complex128)
    if dtype.is_float:
        return np.dtype(np.float64)
    if dtype.is_boolean:
        return np.dtype(np.bool_)
    return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)


def widen(x: Array) -> Array:
    """x in its wide dtype; exact."""
    x = np.asarray(x)
    if not is_standard(x.dtype) and dtype_of(x).is_float:
        x = x.astype(np.float32)
    target = wide(dtype_of(x))
    if not is_standard(x.dtype):  # ml_dtypes integers
        x = x.astype(np.int8 if target.kind == "i" else np.uint8)
    return x.astype(target)


def _odd_float32(x: Array) -> Array:
    """float64 to float32, rounded to odd: a later rounding to fewer bits is then exact."""
    near = x.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.int32) if near.shape else near.reshape(1).view(np.int32).reshape(())
    even = (bits & 1) == 0
    inexact = (back != x) & np.isfinite(x) & even
    toward = np.where(np.abs(back) < np.abs(x), 1, -1).astype(np.int32)
    moved = np.where(inexact, bits + toward, bits).astype(np.int32)
    result: Array = moved.view(np.float32)
    return result


def _odd_float64(x: Array) -> Array:
    """64-bit integers to float64, rounded to odd."""
    sticky = (x & 0x7FF) != 0
    truncated = ((x >> 11) | sticky.astype(x.dtype)) << 11
    small = (x < 2**53) & (x > -(2**53)) if x.dtype.kind == "i" else x < 2**53
    return np.where(small, x, truncated).astype(np.float64)


@quiet
def narrow(x: Array, dtype: DType) -> Array:
    """The wide value x in `dtype`: floats rounded once through float32, integers wrapped.

    This is the rounding of an op of f16, bf16 or f8: it computes in f32 and rounds that.
    """
    x = np.asarray(x)
    if dtype.is_float and dtype.bits < 32 and x.dtype == np.float64:
        x = x.astype(np.float32)
    if dtype.is_integer and dtype.bits < 8:
        return _wrap(x, dtype)
    return x.astype(dtype.numpy)


def _wrap(x: Array, dtype: DType) -> Array:
    """Integers modulo 2^bits, in the sub-byte `dtype`."""
    low = (x.astype(np.int64) if x.dtype.kind != "u" else x) & ((1 << dtype.bits) - 1)
    low = low.astype(np.int8)
    if dtype.kind == "i":
        sign = 1 << (dtype.bits - 1)
        low = (low ^ sign) - sign
    return low.astype(dtype.numpy)


@quiet
def convert(x: Array, dtype: DType) -> Array:
    """x in `dtype` by the rules of the op `convert`."""
    x = np.asarray(x)
    source = dtype_of(x)
    if source is dtype:
        return x
    if dtype.is_boolean:
        return np.asarray(widen(x) != 0)
    if source.is_complex and not dtype.is_complex:
        x, source = x.real, dtype_of(x.real)
    if dtype.is_integer:
        return _to_integer(x, source, dtype)
    if dtype.bits < 32 and dtype.is_float:
        return _to_narrow_float(x, source, dtype)
    if not is_standard(x.dtype):
        x = widen(x)
    return x.astype(dtype.numpy)


def _to_integer(x: Array, source: DType, dtype: DType) -> Array:
    if not source.is_float:
        x = x if is_standard(x.dtype) and dtype.bits >= 8 else widen(x)
        return _wrap(x, dtype) if dtype.bits < 8 else x.astype(dtype.numpy)
    value = np.trunc(widen(x))
    value = np.where(np.isnan(value), 0.0, value)
    bits = dtype.bits - (dtype.kind == "i")
    least, greatest = (-(2**bits) if dtype.kind == "i" else 0), 2**bits - 1
    inside = np.where((value >= 2.0**bits) | (value < least), 0.0, value)
    holder = np.dtype(np.int64 if dtype.kind == "i" else np.uint64)
    whole = inside.astype(holder)
    whole = np.where(value >= 2.0**bits, holder.type(greatest), whole)
    whole = np.where(value < least, holder.type(least), whole)
    return _wrap(whole, dtype) if dtype.bits < 8 else whole.astype(dtype.numpy)


def _to_narrow_float(x: Array, source: DType, dtype: DType) -> Array:
    value = x
    if not source.is_float:
        whole = widen(x)
        value = whole.astype(np.float64) if source.bits <= 32 else _odd_float64(whole)
    if value.dtype == np.float64:
        value = _odd_float32(value)
    elif not is_standard(value.dtype):
        value = value.astype(np.float32)
    return value.astype(np.float32).astype(dtype.numpy)

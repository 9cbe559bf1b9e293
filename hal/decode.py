"""Elements that plain NumPy lacks (bf16, f8, f4, i4 ...), from their bits to numbers.

`Array.astype` uses it, so that results of such dtypes can be read without ml_dtypes. The
other direction, rounding numbers to such dtypes, is left to ml_dtypes.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ingot.hal.spec import DType

__all__ = ["decode", "storage_dtype"]

_FLOAT_NAME = re.compile(r"f\d+e(?P<exponent>\d)m(?P<mantissa>\d)(?:b(?P<bias>\d+))?(?P<flags>\w*)")


def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype that holds one element's bits: `dtype.numpy` if NumPy has it."""
    if dtype.name == "bf16":
        return np.dtype(np.uint16)
    if dtype.bytes == 1 and not dtype.is_boolean:
        return np.dtype(np.uint8)
    return dtype.numpy


def decode(storage: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """The values of an array of element bits (`storage_dtype`), as f32 or integers."""
    if dtype.name == "bf16":
        return (storage.astype(np.uint32) << 16).view(np.float32)
    if dtype.is_float and dtype.bytes == 1:
        values: npt.NDArray[Any] = _float_table(dtype)[storage]
        return values
    if dtype.is_integer and dtype.bytes == 1:
        unused = 8 - dtype.bits
        signed = storage.view(np.int8) if dtype.kind == "i" else storage
        shifted: npt.NDArray[Any] = (signed << unused) >> unused
        return shifted
    return storage


@cache
def _float_table(dtype: DType) -> npt.NDArray[np.float32]:
    """f32[256]: the value of each byte, with the bits above the dtype's ignored.

    The letters behind the format say what is missing from IEEE 754: `fn` infinities, `uz`
    negative zero (its bits are the only NaN), `u` the sign (and with it zero).
    """
    match = _FLOAT_NAME.fullmatch(dtype.name)
    if match is None:
        raise AssertionError(f"{dtype} is not named after its format")
    exponent_bits, mantissa_bits = int(match["exponent"]), int(match["mantissa"])
    flags = match["flags"]
    sign_bit = 1 << (exponent_bits + mantissa_bits)
    bias = int(match["bias"] or (1 << (exponent_bits - 1)) - (flags != "fnuz"))

    bits = np.arange(256) & ((1 << dtype.bits) - 1)
    magnitude = bits & (sign_bit - 1)
    exponent = magnitude >> mantissa_bits
    mantissa = (magnitude & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    is_normal = (exponent > 0) | (flags == "fnu")
    values = np.ldexp(mantissa + is_normal, np.where(is_normal, exponent, 1) - bias)
    if flags == "":
        special = exponent == (1 << exponent_bits) - 1
        values[special] = np.where(mantissa[special] == 0, np.inf, np.nan)
    elif flags == "fnuz":
        values[bits == sign_bit] = np.nan
    elif dtype.bits == 8:
        values[magnitude == sign_bit - 1] = np.nan
    signed: npt.NDArray[Any] = np.where(bits & sign_bit, -values, values)
    return signed.astype(np.float32)

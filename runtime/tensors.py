"""From what a caller passes to the bytes of a tensor: the rules for arguments.

An array (NumPy, or whatever speaks DLPack) must have the exact dtype; its layout, byte
order and alignment do not matter, a copy is made where they do not fit. Python scalars
and lists have no dtype of their own and take the expected one, if that loses no kind.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ingot.hal import dlpack
from ingot.hal.array import Array
from ingot.hal.errors import Error, InvalidArgument, OutOfMemory
from ingot.hal.masks import unmasked
from ingot.hal.spec import DType

__all__ = ["bits_of_input", "bits_of_output", "bits_of_parameter", "wrong_dtype"]

_KIND_RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
_KIND_NAME = {
    "b": "a boolean",
    "i": "an integer",
    "u": "an integer",
    "f": "a float",
    "c": "complex",
}


def bits_of_input(value: Any, dtype: DType, what: str) -> npt.NDArray[Any]:
    """The elements of an argument, dense: the caller's own memory where that fits.

    `what` names the argument in messages. InvalidArgument: it cannot be taken as `dtype`.
    OutOfMemory: it is not dense, and there is no memory for a copy.
    """
    bits, found = _bits(value, dtype, what)
    if found is not dtype:
        raise InvalidArgument(wrong_dtype(what, found, dtype))
    return _dense(bits, what)


def bits_of_parameter(value: Any, what: str) -> tuple[npt.NDArray[Any], DType]:
    """The elements of a parameter, dense, and their dtype. InvalidArgument: no array."""
    bits, found = _bits(value, None, what)
    return _dense(bits, what), found


def bits_of_output(value: Any, dtype: DType, what: str) -> npt.NDArray[Any]:
    """The memory that a result is written to: the caller's own, so it must fit as it is.

    InvalidArgument: it has another dtype, or is not a writable dense array.
    """
    if not isinstance(value, np.ndarray) and not hasattr(value, "__dlpack__"):
        raise InvalidArgument(
            f"{what}: is {type(value).__name__}, but must be an array that can be written to"
        )
    bits, found = _bits(value, dtype, what)
    if found is not dtype:
        raise InvalidArgument(wrong_dtype(what, found, dtype))
    if not bits.flags.writeable:
        raise InvalidArgument(f"{what}: is read-only; pass a writable array")
    if not _is_dense(bits):
        raise InvalidArgument(
            f"{what}: must be C-contiguous, aligned and in native byte order; "
            "pass a plain new array"
        )
    return bits


def _bits(value: Any, dtype: DType | None, what: str) -> tuple[npt.NDArray[Any], DType]:
    """The elements of any value, and their dtype; `dtype` is that of scalars and lists."""
    if isinstance(value, Array) and not value.is_host:
        value = value.numpy()
    if isinstance(value, (np.ndarray, np.generic)):
        try:
            array = unmasked(value)
            if dtype is not None and _is_saved(array, dtype):
                return array.view(f"u{array.itemsize}"), dtype
            return array, DType.from_numpy(array.dtype)
        except InvalidArgument as error:
            raise InvalidArgument(f"{what}: {error}") from None
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        try:
            return dlpack.import_array(value)
        except InvalidArgument as error:
            raise InvalidArgument(f"{what}: {error}") from None
    if hasattr(value, "__array__") or dtype is None:
        return _bits(_as_array(value, what), dtype, what)
    return _plain(value, dtype, what), dtype


def _is_saved(array: npt.NDArray[Any], dtype: DType) -> bool:
    """Whether an array holds elements that NumPy lacks as mere bytes, as files have them."""
    is_bytes = array.dtype.kind == "V" and array.dtype.names is None
    return is_bytes and not dtype.is_numpy and array.itemsize == dtype.bytes


def _as_array(value: Any, what: str) -> npt.NDArray[Any]:
    try:
        return unmasked(value)
    except InvalidArgument as error:
        raise InvalidArgument(f"{what}: {error}") from None
    except Exception as error:
        raise InvalidArgument(f"{what}: {type(value).__name__} is no array: {error}") from error


def _plain(value: Any, dtype: DType, what: str) -> npt.NDArray[Any]:
    """A Python scalar or nested list as elements of `dtype`."""
    raw = _as_array(value, what)
    kind = raw.dtype.kind if raw.size else dtype.kind
    if kind not in _KIND_RANK:
        raise InvalidArgument(
            f"{what}: is {type(value).__name__}, but must be an array, or numbers for {dtype}"
        )
    if _KIND_RANK[kind] > _KIND_RANK[dtype.kind]:
        raise InvalidArgument(
            f"{what}: is {_KIND_NAME[kind]}, which {dtype} cannot hold; "
            "convert it yourself if that is meant"
        )
    try:
        with np.errstate(over="ignore"):
            return np.array(value, dtype.numpy)
    except OverflowError as error:
        raise InvalidArgument(f"{what}: out of the range of {dtype}: {error}") from None
    except Error as error:
        raise type(error)(f"{what}: {error}") from None


def _is_dense(bits: npt.NDArray[Any]) -> bool:
    flags = bits.flags
    return bool(flags.c_contiguous and flags.aligned and bits.dtype.isnative)


def _dense(bits: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    if _is_dense(bits):
        return bits
    try:
        return np.array(bits, bits.dtype.newbyteorder("="), order="C", copy=True)
    except MemoryError:
        raise OutOfMemory(
            f"{what}: is not contiguous, and a copy of it takes {bits.nbytes} bytes, "
            "for which there is no memory; pass a smaller or a contiguous array"
        ) from None


def wrong_dtype(what: str, found: DType, expected: DType) -> str:
    """The message for an array of another dtype than must be."""
    return (
        f"{what}: dtype is {found}, but must be {expected}; "
        f'convert it with .astype("{expected.numpy_name}")'
    )

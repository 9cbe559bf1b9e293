"""DLPack: tensors of other libraries as NumPy arrays of element bits or OpenCL memory, and the way
back.

No copy is made in either direction. NumPy's own DLPack functions do not serve, because
they refuse bf16 and f8.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ingot.hal.decode import storage_dtype
from ingot.hal.errors import Error, InvalidArgument, OutOfMemory
from ingot.hal.native import ffi, lib
from ingot.hal.spec import DTYPES, DType

__all__ = ["CPU", "OPENCL", "OpenclTensor", "export_capsule", "import_array", "import_opencl"]

CPU = (lib.INGOT_DLPACK_CPU, 0)
OPENCL = (lib.INGOT_DLPACK_OPENCL, 0)


def _function(name: str, result: Any, *arguments: Any) -> Any:
    """A function of Python; one of `ctypes.pythonapi` itself has the types that anybody gave it."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_TEXT, _ADDRESS, _OBJECT = ctypes.c_char_p, ctypes.c_void_p, ctypes.py_object
_capsule_pointer = _function("PyCapsule_GetPointer", _ADDRESS, _OBJECT, _TEXT)
_capsule_is_valid = _function("PyCapsule_IsValid", ctypes.c_int, _OBJECT, _TEXT)
_capsule_new = _function("PyCapsule_New", _OBJECT, _ADDRESS, _ADDRESS, _ADDRESS)

_NAMES = {
    versioned: ffi.string(lib.ingot_dlpack_capsule_name(versioned)) for versioned in (True, False)
}


def _bits(dtype: DType) -> int:
    return 8 if dtype.is_boolean else dtype.bits


_DTYPE_OF_CODE = {(each.dlpack, _bits(each)): each for each in DTYPES.values()}


class _Memory:
    """Memory that a capsule keeps alive, as NumPy's array interface."""

    def __init__(self, interface: dict[str, Any], capsule: object) -> None:
        self.__array_interface__ = interface
        self._capsule = capsule


def import_array(value: Any) -> tuple[npt.NDArray[Any], DType]:
    """The bits of a tensor that speaks DLPack, without a copy, and its element type.

    InvalidArgument: it is not in CPU memory, or of a dtype that Ingot lacks, or its library
    refuses to hand it out.
    """
    device = _device_of(value)
    if device[0] != CPU[0]:
        raise InvalidArgument(
            f"the tensor is on DLPack device {device}, but must be in CPU memory; move it there"
        )
    return _array_of_capsule(_capsule_of(value))


@dataclass(frozen=True)
class OpenclTensor:
    """A dense tensor of another library in OpenCL memory, which `capsule` keeps alive."""

    memory: int  # the cl_mem
    offset: int
    dtype: DType
    shape: tuple[int, ...]
    capsule: object


def import_opencl(value: Any) -> OpenclTensor | None:
    """A tensor that speaks DLPack and is in OpenCL memory; None for others. Raises as
    `import_array`, and InvalidArgument for one that is not dense."""
    if _device_of(value)[0] != OPENCL[0]:
        return None
    capsule = _capsule_of(value)
    tensor, dtype, _ = _tensor_of_capsule(capsule)
    shape = tuple(ffi.unpack(tensor.dims, tensor.rank)) if tensor.rank else ()
    strides = ffi.unpack(tensor.strides, tensor.rank) if tensor.strides and tensor.rank else None
    dense = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    if strides is not None and 0 not in shape and strides != dense:
        raise InvalidArgument("the tensor is not dense; pass a row-major copy")
    return OpenclTensor(
        int(ffi.cast("uintptr_t", tensor.data)), tensor.offset, dtype, shape, capsule
    )


@contextmanager
def _read() -> Iterator[None]:
    """What the library of a tensor raises, whatever it is, says that the tensor cannot be read."""
    try:
        yield
    except (Error, MemoryError):
        raise
    except Exception as error:
        raise InvalidArgument(f"the tensor cannot be read: {error}") from error


def _device_of(value: Any) -> tuple[int, int]:
    with _read():
        device = value.__dlpack_device__()
    try:
        kind, number = map(int, device)
    except (TypeError, ValueError):
        raise InvalidArgument(
            f"__dlpack_device__ gave {device!r:.60}, expected two integers"
        ) from None
    return kind, number


def _capsule_of(value: Any) -> object:
    is_neg = getattr(value, "is_neg", None)
    with _read():
        if callable(is_neg) and is_neg():  # of which torch hands out memory without the sign
            raise InvalidArgument("the tensor is a negative view; pass its .resolve_neg()")
        try:
            return value.__dlpack__(max_version=(lib.INGOT_DLPACK_MAJOR, 0))
        except TypeError:  # a producer of before DLPack 1.0
            return value.__dlpack__()


def _tensor_of_capsule(capsule: object) -> tuple[Any, DType, bool]:
    """The C tensor, its dtype, and whether it must not be changed."""
    is_read_only = False
    if _capsule_is_valid(capsule, _NAMES[True]):
        address = _capsule_pointer(capsule, _NAMES[True])
        managed = ffi.cast("ingot_dlpack_versioned_t *", address)
        if managed.major != lib.INGOT_DLPACK_MAJOR:
            raise InvalidArgument(
                f"the tensor comes as DLPack {managed.major}.{managed.minor}, "
                f"but version {lib.INGOT_DLPACK_MAJOR} was asked for"
            )
        is_read_only = bool(managed.flags & lib.INGOT_DLPACK_READ_ONLY)
    elif not _capsule_is_valid(capsule, _NAMES[False]):
        raise InvalidArgument(f"__dlpack__ gave {capsule!r:.60}, expected a capsule not yet taken")
    else:
        address = _capsule_pointer(capsule, _NAMES[False])
        managed = ffi.cast("ingot_dlpack_managed_t *", address)
    tensor = managed.tensor
    dtype = _DTYPE_OF_CODE.get((tensor.dtype_code, tensor.dtype_bits))
    if dtype is None or tensor.dtype_lanes != 1 or (dtype.bits < 8 and not dtype.is_boolean):
        raise InvalidArgument(
            f"the tensor's DLPack dtype (code {tensor.dtype_code}, {tensor.dtype_bits} bits, "
            f"{tensor.dtype_lanes} lanes) is none that Ingot reads; convert it first"
        )
    return tensor, dtype, is_read_only


def _array_of_capsule(capsule: object) -> tuple[npt.NDArray[Any], DType]:
    tensor, dtype, is_read_only = _tensor_of_capsule(capsule)
    storage = storage_dtype(dtype)
    shape = tuple(ffi.unpack(tensor.dims, tensor.rank)) if tensor.rank else ()
    if 0 in shape:
        return np.empty(shape, storage), dtype
    if not tensor.data:
        raise InvalidArgument("the tensor has no memory: its library only knows its shape")
    strides = None
    if tensor.strides and tensor.rank:
        strides = tuple(each * dtype.bytes for each in ffi.unpack(tensor.strides, tensor.rank))
    interface = {
        "version": 3,
        "typestr": storage.str,
        "shape": shape,
        "strides": strides,
        "data": (int(ffi.cast("uintptr_t", tensor.data)) + tensor.offset, is_read_only),
    }
    with _read():
        return np.asarray(_Memory(interface, capsule)), dtype


def export_capsule(
    view: Any,
    device: tuple[int, int],
    dtype: DType,
    max_version: tuple[int, int] | None,
    is_copy: bool,
) -> object:
    """A DLPack capsule over a C buffer view on a DLPack device, which it keeps alive.

    BufferError: DLPack packs elements narrower than a byte, buffers do not.
    """
    if dtype.bits < 8 and not dtype.is_boolean:
        raise BufferError(f"{dtype} cannot be exchanged by DLPack; convert it with .astype first")
    versioned = max_version is not None and max_version[0] >= lib.INGOT_DLPACK_MAJOR
    if versioned:
        flags = lib.INGOT_DLPACK_COPIED if is_copy else 0
        managed = lib.ingot_dlpack_export_versioned(
            view, device[0], dtype.dlpack, _bits(dtype), flags
        )
    else:
        managed = lib.ingot_dlpack_export(view, device[0], dtype.dlpack, _bits(dtype))
    if not managed:
        raise OutOfMemory("no memory for a DLPack tensor")
    return _capsule_new(
        int(ffi.cast("uintptr_t", managed)),
        int(ffi.cast("uintptr_t", lib.ingot_dlpack_capsule_name(versioned))),
        int(ffi.cast("uintptr_t", lib.ingot_dlpack_capsule_destructor())),
    )

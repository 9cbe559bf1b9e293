"""`Array`: a tensor in a device buffer, as calls return it.

It owns its bytes and computes nothing: for arithmetic take `numpy()`. NumPy and memoryviews get
the bytes themselves where they lie in this process's memory, DLPack wherever they are. Copies are
values: those of `copy` on the same device, what `pickle` brings back on the CPU.
"""

from __future__ import annotations

import ctypes
import operator
import sys
from functools import partial
from importlib import import_module
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ingot.hal import dlpack
from ingot.hal.decode import decode, storage_dtype
from ingot.hal.device import Device, open_device
from ingot.hal.errors import FailedPrecondition, InvalidArgument, Unsupported
from ingot.hal.masks import unmasked
from ingot.hal.native import check, ffi, lib
from ingot.hal.reference import Reference, reference_of_view
from ingot.hal.spec import DType, dtype_of_code
from ingot.hal.spec import dtype as dtype_called

__all__ = ["Array", "array_of_view", "empty_array", "values_of_view"]

_layout = lib.ingot_buffer_view_layout
_release = lib.ingot_buffer_view_release
_retain, _unmap = lib.ingot_buffer_view_retain, lib.ingot_python_unmap
_map, _ACCESS = lib.ingot_buffer_map, lib.INGOT_MAP_READ | lib.INGOT_MAP_WRITE
_gc, _unpack = ffi.gc, ffi.unpack
_null, _POINTER = ffi.NULL, ffi.typeof("void **")
_new = object.__new__


def _buffer_type() -> Any:
    """What gives classes with `__buffer__` the buffer protocol."""
    if sys.version_info >= (3, 12):
        return object
    address = int(ffi.cast("uintptr_t", ffi.addressof(lib, "ingot_python_buffer_type")))
    return ctypes.PYFUNCTYPE(ctypes.py_object)(address)()  # with the interpreter's lock


_Buffer: Any = _buffer_type()


class Array(_Buffer):  # type: ignore[misc]
    """A dense tensor on a device."""

    __slots__ = ("__weakref__", "_device", "_view")

    _view: Any  # a C buffer view that is freed with the last user of this very object
    _device: Device

    def __init__(self, *_: object, **__: object) -> None:
        raise TypeError("arrays come from calls and from ingot.Array.from_numpy(values, device)")

    def __getattr__(self, name: str) -> Any:
        if name in Array.__slots__:
            raise FailedPrecondition(
                "the array was never made; take ingot.Array.from_numpy(values)"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __copy__(self) -> Array:
        return self._copy_to(self._device)

    def __deepcopy__(self, _memo: object) -> Array:
        return self._copy_to(self._device)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.dtype.name, self._storage(storage_dtype(self.dtype)))

    @staticmethod
    def from_numpy(array: npt.ArrayLike, device: Device | str = "cpu") -> Array:
        """A copy of `array` on a device, given as one of `ingot.devices()` or by its URI."""
        values = unmasked(array)
        dtype = DType.from_numpy(values.dtype)
        return _array_of_bits(values, dtype, open_device(device))

    @property
    def shape(self) -> tuple[int, ...]:
        return _dims(_layout(self._view))

    @property
    def dtype(self) -> DType:
        return dtype_of_code(_layout(self._view).dtype)

    @property
    def device(self) -> str:
        """The URI of the device that holds the bytes."""
        return self._device.uri

    @property
    def is_host(self) -> bool:
        """Whether the bytes lie in this process's memory, so that `numpy()` copies nothing."""
        return self._device.is_host

    def numpy(self) -> npt.NDArray[Any]:
        """The same bytes as a NumPy array, which keeps them alive; of another device than the
        CPU a copy.

        Unsupported: the dtype needs ml_dtypes, which is not installed.
        """
        return self._storage(self.dtype.numpy)

    def astype(self, dtype: str | DType | npt.DTypeLike) -> Array:
        """A copy with another element type, by its name or NumPy's dtype. Unsupported: it needs
        ml_dtypes."""
        target = dtype_called(dtype) if isinstance(dtype, (str, DType)) else DType.from_numpy(dtype)
        with np.errstate(all="ignore"):
            values = self._values().astype(target.numpy)
        return _array_of_bits(values, target, self._device)

    def to_pyopencl(self, queue: Any = None) -> Any:
        """The same memory as a pyopencl.array.Array, whose operations go to `queue`.

        InvalidArgument: the array is not on an OpenCL device. FailedPrecondition: pyopencl is
        not installed.
        """
        return import_module("ingot.hal.opencl").array_to_pyopencl(self, queue)

    def item(self) -> Any:
        """The only element, as a Python scalar. InvalidArgument: there are more or none."""
        values = self._values()
        if values.size != 1:
            raise InvalidArgument(f"an array of shape {self.shape} is not one scalar")
        return values.item()

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        array = self.numpy()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(f"{self.dtype} cannot become {np.dtype(dtype)} without a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CPU if self.is_host else dlpack.OPENCL

    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        own = self.__dlpack_device__()
        target = own if dl_device is None else dl_device
        if stream is not None or target not in (own, dlpack.CPU):
            raise BufferError(
                f"an ingot.Array goes to its own device, {own}, or to CPU memory: no stream, "
                "no other device"
            )
        if target != own and copy is False:
            raise BufferError(f"the array is on {self.device}: there is no way without a copy")
        source = self
        if copy or target != own:
            source = self._copy_to(self._device if target == own else open_device())
        is_copy = source is not self
        return dlpack.export_capsule(source._view, target, self.dtype, max_version, is_copy)

    def __buffer__(self, _flags: int) -> memoryview:
        if not self.is_host:
            raise BufferError(
                f"the array is on {self.device}, not in this process's memory; take .numpy(), "
                "which copies it"
            )
        try:
            return memoryview(self.numpy())  # type: ignore[arg-type]
        except (Unsupported, ValueError):  # ml_dtypes is missing, or its dtype is unknown to Python
            raise BufferError(
                f"{self.dtype} is no format of Python's buffers; take .numpy()"
            ) from None

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("an array of rank 0 has no length")
        return shape[0]

    def __getitem__(self, key: Any) -> Any:
        return self.numpy()[key]

    def __bool__(self) -> bool:
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise TypeError(f"only an integer can be an index, not {self.dtype}")
        return int(self.item())

    def __repr__(self) -> str:
        body = np.array2string(self._values(), separator=", ", prefix="Array(", threshold=100)
        return f"Array({body}, dtype={self.dtype}, shape={self.shape}, device={self.device!r})"

    def _map(self) -> Any:
        """The first byte in this process's memory; the pointer keeps the bytes alive."""
        view = self._view
        layout = _layout(view)
        out = ffi.new(_POINTER)
        check(_map(layout.buffer, layout.offset, layout.length, _ACCESS, out))
        # A reference of its own: in a dead cycle the view may be freed before the pointer.
        _retain(view)
        return _gc(out[0], partial(_unmap, view))

    def _storage(self, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """The bytes as an array of elements of `dtype`, which has the element's length."""
        layout = _layout(self._view)
        shape = _dims(layout)
        if layout.length == 0:
            return np.empty(shape, dtype)
        if not self.is_host:
            bits = np.empty(layout.length, np.uint8)
            data = ffi.from_buffer(bits)
            check(lib.ingot_buffer_read(layout.buffer, layout.offset, data, layout.length))
            return bits.view(dtype).reshape(shape)
        found: npt.NDArray[Any] = np.ndarray(shape, dtype, ffi.buffer(self._map(), layout.length))
        return found

    def _copy_to(self, device: Device) -> Array:
        return _array_of_bits(self._storage(storage_dtype(self.dtype)), self.dtype, device)

    def _values(self) -> npt.NDArray[Any]:
        """The elements as numbers that NumPy knows: bf16 and narrower floats as f32."""
        dtype = self.dtype
        return decode(self._storage(storage_dtype(dtype)), dtype)


def _dims(layout: Any) -> tuple[int, ...]:
    return tuple(_unpack(layout.dims, layout.rank)) if layout.rank else ()


_keep = operator.is_
"""Frees a view that its owner keeps, which are the arguments: nothing is done, as the owner goes
with this call; and in C, where no signal can raise, as it would be lost."""


def array_of_view(views: Any, ordinal: int, device: Device) -> Array:
    """The array of a C buffer view; takes the reference to it out of `views`."""
    array = _new(Array)
    view = views[ordinal]
    views[ordinal] = _null  # from here to the next line's end no signal can raise
    array._view = _gc(view, _release)
    array._device = device
    return array


def values_of_view(
    views: Any, ordinal: int, device: Device, type: str = ""
) -> Array | list[Array] | Reference | None:
    """What a call gives for a sequence, an optional or a reference of that type; takes the counted
    reference to the view as `array_of_view`."""
    view = views[ordinal]
    if not view:
        return None
    if type:
        views[ordinal] = _null  # as above
        return reference_of_view(_gc(view, _release), type, device)
    if _layout(view).buffer:
        return array_of_view(views, ordinal, device)
    views[ordinal] = _null  # as above: a signal may raise when a call has returned
    passed = _gc(view, _release)
    arrays = []
    for place in range(lib.ingot_buffer_view_count(passed)):
        array = _new(Array)
        # The list keeps its elements: a reference of their own could be lost to a signal.
        array._view = _gc(lib.ingot_buffer_view_element(passed, place), partial(_keep, passed))
        array._device = device
        arrays.append(array)
    return arrays


def _restore(dtype: str, bits: npt.NDArray[Any]) -> Array:
    """What `pickle` calls."""
    return _array_of_bits(bits, dtype_called(dtype), open_device())


def _array_of_bits(bits: npt.NDArray[Any], dtype: DType, device: Device) -> Array:
    """A new array with the elements of `bits`, in native byte order and row-major."""
    bits = np.asarray(bits, bits.dtype.newbyteorder("="), order="C")
    array = empty_array(dtype, bits.shape, device)
    if bits.size:
        buffer, data = _layout(array._view).buffer, ffi.from_buffer(bits.reshape(-1).view(np.uint8))
        check(lib.ingot_buffer_write(buffer, 0, data, len(data)))
    return array


def empty_array(dtype: DType, shape: tuple[int, ...], device: Device) -> Array:
    """A new array of arbitrary content. OutOfMemory: there is no room for it."""
    buffer_out, view_out = ffi.new("ingot_buffer_t **"), ffi.new("ingot_buffer_view_t **")
    check(lib.ingot_buffer_create(device.handle.pointer, prod(shape) * dtype.bytes, buffer_out))
    buffer = ffi.gc(buffer_out[0], lib.ingot_buffer_release)
    check(lib.ingot_buffer_view_create(buffer, 0, dtype.code, len(shape), shape, view_out))
    return array_of_view(view_out, 0, device)

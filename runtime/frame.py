"""The arguments and results of one call, as C takes them.

A frame is made once per function and used again, so that a call with shapes as the last
time sets one pointer per argument. It serves one call at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ingot.hal.array import Array
from ingot.hal.device import Device
from ingot.hal.errors import InvalidArgument
from ingot.hal.native import ffi, lib
from ingot.hal.spec import DType
from ingot.runtime.limits import set_limits
from ingot.runtime.signature import Signature
from ingot.runtime.tensors import bits_of_input, bits_of_output, wrong_dtype

__all__ = ["Frame", "bytes_of"]

_from_buffer = ffi.from_buffer
_ndarray = np.ndarray


class _Slot:
    """One argument or result: what fits, and the C struct to fill."""

    __slots__ = ("dtype", "numpy", "shape", "tensor", "what")

    def __init__(self, what: str, dtype: DType, tensor: Any) -> None:
        self.what = what
        self.dtype = dtype
        self.tensor = tensor
        # The NumPy dtype of arguments that need no conversion: one object per dtype.
        self.numpy = dtype.numpy if dtype.is_numpy else None
        self.shape: tuple[int, ...] | None = None  # of the data in `tensor`; None: no data
        tensor.dtype = dtype.code

    def set_data(self, data: Any, shape: tuple[int, ...]) -> None:
        """Points the slot at dense bytes, which the caller keeps until the call is over."""
        if shape != self.shape:
            self.shape = None  # until all is set: a signal may raise in between
            if len(shape) > lib.INGOT_MAX_RANK:
                raise InvalidArgument(
                    f"{self.what}: rank is {len(shape)}, but can be {lib.INGOT_MAX_RANK} at most"
                )
            tensor = self.tensor
            tensor.view = ffi.NULL
            tensor.rank = len(shape)
            tensor.dims[0 : len(shape)] = shape
            tensor.length = len(data)
            self.shape = shape
        self.tensor.data = data

    def set_view(self, view: Any) -> None:
        self.shape = None
        self.tensor.view = view
        self.tensor.data = ffi.NULL

    def clear(self) -> None:
        self.set_view(ffi.NULL)


class Frame:
    """Slots for a function's arguments and results."""

    __slots__ = ("_arguments", "_device", "_keep", "_results", "has_output", "pointer", "views")

    def __init__(self, session: Any, device: Device, function: int, signature: Signature) -> None:
        argument_count = len(signature.arguments)
        values = signature.arguments + signature.results
        tensors = ffi.new("ingot_python_tensor_t[]", len(values))
        self.views = ffi.new("ingot_buffer_view_t *[]", len(values))
        self.pointer = ffi.new("ingot_python_frame_t *")
        self.pointer.session = session
        self.pointer.device = device.handle.pointer
        self._device = device
        self.pointer.function = function
        self.pointer.argument_count = argument_count
        self.pointer.tensors = tensors
        self.pointer.views = self.views
        self.pointer.result_count = len(signature.results)  # last: `__del__` may come any time
        set_limits(self.pointer.options, None, None)
        self.has_output = False
        self._keep = tensors
        slots = []
        for ordinal, value in enumerate(values):
            result = ordinal - argument_count
            what = f"argument {ordinal}" if result < 0 else f"result {result}"
            name = f"{what} '{value.name}'" if value.name else what
            slots.append(_Slot(name, value.dtype, tensors + ordinal))
        self._arguments = slots[:argument_count]
        self._results = slots[argument_count:]

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # A default, as in Handle. The last call's results are here if a signal came first.
        if not is_finalizing() and hasattr(self, "pointer"):
            lib.ingot_python_drop_results(self.pointer)

    def set_arguments(self, values: Sequence[Any]) -> list[Any]:
        """Fills the argument slots; what it returns must live until the call is over."""
        keep = []
        for slot, value in zip(self._arguments, values):  # noqa: B905  as many: the caller knows
            if type(value) is _ndarray and value.dtype is slot.numpy and value.flags.aligned:
                try:
                    data = _from_buffer(value)
                except ValueError:  # not C-contiguous
                    data = _from_buffer(bits_of_input(value, slot.dtype, slot.what))
                if value.shape == slot.shape:
                    slot.tensor.data = data
                else:
                    slot.set_data(data, value.shape)
            elif type(value) is Array and value.dtype is slot.dtype:
                data = value
                slot.set_view(value._view)
            elif (array := self._in_place(value, slot)) is not None:
                data = array
                slot.set_view(array._view)
            else:
                bits = bits_of_input(value, slot.dtype, slot.what)
                data = _from_buffer(bytes_of(bits))
                slot.set_data(data, bits.shape)
            keep.append(data)
        return keep

    def _in_place(self, value: Any, slot: _Slot) -> Array | None:
        """What lies in memory of the model's device under another library's name."""
        if not type(value).__module__.startswith("pyopencl"):
            return None
        from ingot.hal.opencl import array_from_pyopencl, is_pyopencl_array

        if not is_pyopencl_array(value) or self._device.is_host:
            return None
        array = array_from_pyopencl(value, self._device, slot.what)
        if array.dtype is not slot.dtype:
            raise InvalidArgument(wrong_dtype(slot.what, array.dtype, slot.dtype))
        return array

    def set_outputs(self, values: Sequence[Any]) -> list[Any]:
        """Fills the result slots, with None where a result is to be made; what it returns
        must live until the call is over."""
        keep = []
        used = False
        self.has_output = True  # until every slot is known to be clear: a signal may raise
        for slot, value in zip(self._results, values):  # noqa: B905  as many: the caller knows
            if value is None:
                slot.clear()
                continue
            used = True
            if type(value) is Array and value.dtype is slot.dtype:
                data = value
                slot.set_view(value._view)
            elif type(value) is _ndarray and value.dtype is slot.numpy and value.flags.carray:
                data = _from_buffer(value, require_writable=True)
                if value.shape == slot.shape:
                    slot.tensor.data = data
                else:
                    slot.set_data(data, value.shape)
            elif (array := self._in_place(value, slot)) is not None:
                data = array
                slot.set_view(array._view)
            else:
                bits = bits_of_output(value, slot.dtype, slot.what)
                data = _from_buffer(bytes_of(bits), require_writable=True)
                slot.set_data(data, bits.shape)
            keep.append(data)
        self.has_output = used
        return keep


def bytes_of(bits: Any) -> Any:
    """The same memory as an array that can be exported: dtypes of ml_dtypes cannot."""
    return bits if bits.dtype.isbuiltin == 1 else bits.reshape(-1).view(np.uint8)

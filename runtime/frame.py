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
from ingot.hal.native import Uncopied, check, ffi, lib
from ingot.hal.reference import Reference
from ingot.runtime.limits import set_limits
from ingot.runtime.signature import Signature, Value
from ingot.runtime.tensors import bits_of_input, bits_of_output, wrong_dtype

__all__ = ["Frame", "bytes_of"]

_from_buffer = ffi.from_buffer
_ndarray = np.ndarray


class _Slot:
    """One argument or result: what fits, and the C struct to fill."""

    __slots__ = ("dtype", "kind", "numpy", "reference", "shape", "tensor", "what")

    def __init__(self, what: str, value: Value, tensor: Any) -> None:
        dtype = value.dtype
        self.what = what
        self.dtype = dtype
        self.kind = value.kind
        self.reference = value.reference
        self.tensor = tensor
        # The NumPy dtype of arguments that need no conversion: one object per dtype.
        self.numpy = dtype.numpy if dtype.is_numpy and value.kind == "tensor" else None
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


class Frame(Uncopied):
    """Slots for a function's arguments and results."""

    __slots__ = (
        "_arguments",
        "_device",
        "_keep",
        "_results",
        "awaits_events",
        "has_limits",
        "has_output",
        "pointer",
        "submission",
        "views",
    )

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
        self.has_limits = False  # of a submitted call
        self.awaits_events = True  # of arrays of pyopencl; else the call waits for some
        self._keep = tensors
        self.submission: Any = None  # the C struct of a submitted call, from the first one on
        slots = []
        for ordinal, value in enumerate(values):
            result = ordinal - argument_count
            what = f"argument {ordinal}" if result < 0 else f"result {result}"
            name = f"{what} '{value.name}'" if value.name else what
            slots.append(_Slot(name, value, tensors + ordinal))
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
            elif slot.kind != "tensor":
                data = self._set_passed(value, slot)
            elif type(value) is Array and value.dtype is slot.dtype:
                data = value
                slot.set_view(value._view)
            elif (array := self._in_place(value, slot, slot.what)) is not None:
                data = array
                slot.set_view(array._view)
            else:
                bits = bits_of_input(value, slot.dtype, slot.what)
                data = _from_buffer(bytes_of(bits))
                slot.set_data(data, bits.shape)
            keep.append(data)
        return keep

    def _set_passed(self, value: Any, slot: _Slot) -> Any:
        """Fills the slot of what is no tensor; what it returns must live as `keep`."""
        if slot.kind == "reference":
            if not isinstance(value, Reference):
                raise InvalidArgument(
                    f"{slot.what}: is {type(value).__name__}, but must be an "
                    f"ingot.Reference({slot.reference!r}, ...)"
                )
            view = value.view(self._device)
            slot.set_view(view)
            return view
        if value is None and slot.kind != "sequence":
            slot.clear()
            return None
        if slot.kind == "optional":
            view, data = self._element(value, slot, slot.what)
            slot.set_view(view)
            return view, data
        if not isinstance(value, (list, tuple)):
            raise InvalidArgument(
                f"{slot.what}: is {type(value).__name__}, but must be a list or tuple of arrays"
                + " or None" * (slot.kind == "optional_sequence")
            )
        parts = [
            self._element(each, slot, f"element {place} of {slot.what}")
            for place, each in enumerate(tuple(value))  # what converts one may change the list
        ]
        elements = ffi.new("ingot_buffer_view_t *[]", [view for view, _ in parts])
        out = ffi.new("ingot_buffer_view_t **")
        check(lib.ingot_buffer_view_create_list(self.pointer.device, elements, len(parts), out))
        passed = ffi.gc(out[0], lib.ingot_buffer_view_release)
        slot.set_view(passed)
        return passed, parts

    def _element(self, value: Any, slot: _Slot, what: str) -> tuple[Any, Any]:
        """A view of one array, and the memory that it looks at."""
        if isinstance(value, (list, tuple)) and any(map(_is_array, value)):
            raise InvalidArgument(f"{what}: is a list of arrays, but must be one array")
        if value is None:
            raise InvalidArgument(f"{what}: is None, but must be an array")
        array = value if type(value) is Array else self._in_place(value, slot, what)
        if array is not None and array.dtype is slot.dtype and array.device == self._device.uri:
            return array._view, array
        bits = bits_of_input(value, slot.dtype, what)
        if bits.ndim > lib.INGOT_MAX_RANK:
            raise InvalidArgument(
                f"{what}: rank is {bits.ndim}, but can be {lib.INGOT_MAX_RANK} at most"
            )
        data, out = _from_buffer(bytes_of(bits)), ffi.new("ingot_buffer_view_t **")
        memory = (data, len(data), slot.dtype.code, bits.ndim, bits.shape)
        release = (ffi.NULL, ffi.NULL)
        check(lib.ingot_buffer_view_wrap(self.pointer.device, *memory, *release, out))
        return ffi.gc(out[0], lib.ingot_buffer_view_release), data

    def _in_place(self, value: Any, slot: _Slot, what: str) -> Array | None:
        """What lies in memory of the model's device under another library's name."""
        if self._device.is_host or type(value) is _ndarray:
            return None
        from ingot.hal.opencl import array_from_dlpack, array_from_pyopencl, is_pyopencl_array

        if is_pyopencl_array(value):
            array: Array | None = array_from_pyopencl(value, self._device, what, self.awaits_events)
        elif hasattr(value, "__dlpack_device__"):
            array = array_from_dlpack(value, self._device, what)
        else:
            return None
        if array is None:
            return None
        if array.dtype is not slot.dtype:
            raise InvalidArgument(wrong_dtype(what, array.dtype, slot.dtype))
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
            if slot.kind != "tensor":
                raise InvalidArgument(
                    f"{slot.what}: is no tensor, and for others calls make memory themselves; "
                    "leave it None in out="
                )
            if type(value) is Array and value.dtype is slot.dtype:
                data = value
                slot.set_view(value._view)
            elif type(value) is _ndarray and value.dtype is slot.numpy and value.flags.carray:
                data = _from_buffer(value, require_writable=True)
                if value.shape == slot.shape:
                    slot.tensor.data = data
                else:
                    slot.set_data(data, value.shape)
            elif (array := self._in_place(value, slot, slot.what)) is not None:
                data = array
                slot.set_view(array._view)
            else:
                bits = bits_of_output(value, slot.dtype, slot.what)
                data = _from_buffer(bytes_of(bits), require_writable=True)
                slot.set_data(data, bits.shape)
            keep.append(data)
        self.has_output = used
        return keep


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") or hasattr(value, "__dlpack__")


def bytes_of(bits: Any) -> Any:
    """The same memory as an array that can be exported: dtypes of ml_dtypes cannot."""
    return bits if bits.dtype.isbuiltin == 1 else bits.reshape(-1).view(np.uint8)

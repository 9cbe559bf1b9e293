"""OrtValue, and the binding of inputs and outputs to memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from ingot.hal.array import Array
from ingot.onnxruntime.sparse import SparseTensor
from ingot.onnxruntime.types import numpy_dtype, onnx_code, type_text

if TYPE_CHECKING:
    from ingot.onnxruntime.session import InferenceSession

__all__ = ["IOBinding", "OrtValue", "copy_tensors"]


class OrtValue:
    """A tensor in the memory of the host, or of the device that made it."""

    def __init__(self, value: Any, device: str = "cpu") -> None:
        self._value = value  # np.ndarray, Array, a list of these, or None
        self._device = device

    @staticmethod
    def ortvalue_from_numpy(
        numpy_obj: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """The array itself; on another device than the CPU a copy."""
        array = np.asarray(numpy_obj)
        uri = _uri(device_type, device_id)
        return OrtValue(array if uri == "cpu" else Array.from_numpy(array, uri), device_type)

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: Any, onnx_element_type: int) -> OrtValue:
        """The bytes of the array as elements of an ONNX type."""
        return OrtValue(np.asarray(data).view(numpy_dtype(onnx_element_type)))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """A tensor of zeros."""
        zeros = np.zeros(tuple(shape), numpy_dtype(element_type))
        return OrtValue.ortvalue_from_numpy(zeros, device_type, device_id)

    @staticmethod
    def from_dlpack(data: Any) -> OrtValue:
        """A tensor of another library, without a copy where it lies in the host's memory."""
        return OrtValue(np.from_dlpack(data))

    @staticmethod
    def ort_value_from_sparse_tensor(sparse_tensor: SparseTensor) -> OrtValue:
        return OrtValue(sparse_tensor)

    def as_sparse_tensor(self) -> SparseTensor:
        """RuntimeError: it is none."""
        if not isinstance(self._value, SparseTensor):
            raise RuntimeError(f"the value is {type(self._value).__name__}, not a SparseTensor")
        return self._value

    def tensor_size_in_bytes(self) -> int:
        return (
            int(np.prod(self.shape(), dtype=np.int64)) * numpy_dtype(self.element_type()).itemsize
        )

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements: of the host's memory without a copy."""
        value = self._value
        return value.numpy() if isinstance(value, Array) else np.asarray(value)

    def shape(self) -> list[int]:
        value = self._value
        return value.dense_shape() if isinstance(value, SparseTensor) else list(value.shape)

    def data_type(self) -> str:
        """tensor(float) and its like."""
        prefix = "sparse_" if self.is_sparse_tensor() else ""
        return prefix + type_text(self.element_type())

    def element_type(self) -> int:
        """The number of the dtype in ONNX."""
        value = self._value
        dtype = value.values().dtype if isinstance(value, SparseTensor) else value.dtype
        return onnx_code(dtype if isinstance(dtype, np.dtype) else dtype.numpy)

    def device_name(self) -> str:
        return self._device

    def data_ptr(self) -> int:
        """The address of the first element, of a tensor in the host's memory."""
        return int(self.numpy().ctypes.data)

    def is_tensor(self) -> bool:
        return isinstance(self._value, (np.ndarray, Array))

    def is_tensor_sequence(self) -> bool:
        return isinstance(self._value, (list, tuple))

    def is_sparse_tensor(self) -> bool:
        return isinstance(self._value, SparseTensor)

    def has_value(self) -> bool:
        return self._value is not None

    def update_inplace(self, data: Any) -> None:
        """Other elements of the same dtype and shape, of an array or another OrtValue."""
        array = np.asarray(data)
        if list(array.shape) != self.shape() or onnx_code(array.dtype) != self.element_type():
            raise RuntimeError("The input OrtValue and the array differ in dtype or shape")
        if isinstance(self._value, Array) and not self._value.is_host:
            self._value = Array.from_numpy(array, self._value.device)
        else:
            self.numpy()[...] = array

    def take(self, value: Any) -> None:
        """Be the elements of `value`, which stay on their device. RuntimeError: they differ in
        dtype or shape."""
        same = isinstance(value, Array) and isinstance(self._value, Array)
        if same and (value.device, value.dtype, value.shape) == (
            self._value.device, self._value.dtype, self._value.shape
        ):  # fmt: skip
            self._value = value
        else:
            self.update_inplace(np.asarray(value))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        return self._value.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        found: tuple[int, int] = self._value.__dlpack_device__()
        return found


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """The elements of each tensor into the memory of another one."""
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)


def _uri(device_type: str, device_id: int) -> str:
    """The URI of a device as programs for onnxruntime name it: all GPUs are OpenCL's."""
    return "cpu" if device_type.lower().startswith("cpu") else f"opencl://{device_id}"


class IOBinding:
    """Inputs and outputs that stay bound from run to run."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, OrtValue | None] = {}  # None: the run makes it
        self._devices: dict[str, str] = {}  # of outputs that runs make
        self._made: dict[str, OrtValue] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        self._inputs[self._known(name, self._session.get_inputs())] = np.asarray(arr_on_cpu)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        self._inputs[self._known(name, self._session.get_inputs())] = ortvalue._value

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any,
        shape: Sequence[int], buffer_ptr: int,
    ) -> None:  # fmt: skip
        """Memory of the host at an address, which must live as long as it is bound."""
        array = _at_address(buffer_ptr, element_type, shape, device_type)
        self._inputs[self._known(name, self._session.get_inputs())] = array

    def bind_output(
        self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: Any = None,
        shape: Sequence[int] | None = None, buffer_ptr: int | None = None,
    ) -> None:  # fmt: skip
        """An output that runs make, or write to memory of the host at an address."""
        self._known(name, self._session.get_outputs())
        value = None
        if buffer_ptr:
            array = _at_address(buffer_ptr, element_type, shape or (), device_type)
            value = OrtValue(array)
        self._outputs[name] = value
        self._devices[name] = device_type

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Runs write to the memory of `ortvalue`."""
        self._outputs[self._known(name, self._session.get_outputs())] = ortvalue

    def synchronize_inputs(self) -> None:
        """Nothing is left to wait for: bindings copy at once."""

    def synchronize_outputs(self) -> None:
        """Nothing is left to wait for: a run has ended when it returns."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order of their bindings."""
        return [self._made[name] for name in self._outputs if name in self._made]

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[np.ndarray[Any, Any]]:
        """The outputs of the last run as arrays."""
        return [np.array(each.numpy()) for each in self.get_outputs()]

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()
        self._made.clear()

    def get_inputs(self) -> dict[str, Any]:
        return self._inputs

    @staticmethod
    def _known(name: str, among: Sequence[Any]) -> str:
        if name not in [each.name for each in among]:
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")
        return name

    def run(self, run_options: Any = None) -> None:
        """As `InferenceSession.run_with_iobinding`."""
        names = list(self._outputs)
        if not names:
            raise RuntimeError("Error in execution: At least one output should be requested.")
        found = self._session._run(names, self._inputs, run_options, self._bound())
        for name, value in zip(names, found, strict=True):
            bound = self._outputs[name]
            self._made[name] = self._new(name, value) if bound is None else bound
            if bound is not None and bound._value is not value:
                bound.take(value)

    def _new(self, name: str, value: Any) -> OrtValue:
        """An output that a run made, on the device that it was bound to."""
        device = self._devices[name]
        if _uri(device, 0) == "cpu" and isinstance(value, Array) and not value.is_host:
            value = value.numpy()
        return OrtValue(value, device)

    def _bound(self) -> dict[str, Any]:
        """The memory that outputs are written to, where no input lies in it."""
        inputs = [each for each in self._inputs.values() if isinstance(each, np.ndarray)]
        found = {}
        for name, value in self._outputs.items():
            if value is not None:
                memory = value._value
                array = memory if isinstance(memory, np.ndarray) else None
                shared = array is None or any(np.may_share_memory(array, each) for each in inputs)
                shared = shared or any(memory is each for each in self._inputs.values())
                if not shared:
                    found[name] = memory
        return found


def _at_address(
    address: int, element_type: Any, shape: Sequence[int], device_type: str
) -> np.ndarray[Any, Any]:
    """The memory at an address as an array. RuntimeError: it is of a device, or none."""
    if not device_type.lower().startswith("cpu"):
        raise RuntimeError(
            f"memory of a device ({device_type}) has no address here: bind an OrtValue"
        )
    dtype = numpy_dtype(element_type)
    length = prod(map(index, shape)) * dtype.itemsize
    if min(shape, default=0) < 0 or (length and not address):
        raise RuntimeError(f"there is no memory of shape {list(shape)} at {address:#x}")
    memory: Any = (ctypes.c_char * length).from_address(index(address))
    array: np.ndarray[Any, Any] = np.ndarray(tuple(shape), dtype, memory)
    return array

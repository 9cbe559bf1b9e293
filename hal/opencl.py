"""OpenCL devices of this machine, and objects of pyopencl as objects of Ingot and back.

The OpenCL library is the system's, or else the one that comes with pyopencl. pyopencl itself is
imported only where its objects are made; those that are passed in are told by their module.
"""

from __future__ import annotations

import ctypes
import importlib.util
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from ingot.hal import dlpack
from ingot.hal.array import Array, array_of_view
from ingot.hal.device import Device, instance
from ingot.hal.errors import FailedPrecondition, InvalidArgument
from ingot.hal.native import Handle, check, ffi, lib
from ingot.hal.spec import DType

__all__ = [
    "array_from_dlpack",
    "array_from_pyopencl",
    "array_to_pyopencl",
    "is_pyopencl_array",
    "wrap_device",
]

_wrapped: WeakValueDictionary[tuple[int, int], Device] = WeakValueDictionary()


# Devices.


def wrap_device(value: Any) -> Device | None:
    """The device of a pyopencl context or command queue; None for anything else.

    One object gives one device, as long as it is in use. InvalidArgument: the queue is not in
    order.
    """
    if not type(value).__module__.startswith("pyopencl"):
        return None
    is_queue = hasattr(value, "context") and hasattr(value, "finish")
    context, queue = (value.context if is_queue else value), (value if is_queue else None)
    if not hasattr(context, "int_ptr") or not hasattr(context, "devices"):
        raise InvalidArgument(
            f"device is a pyopencl {type(value).__name__}, but must be a Context or a CommandQueue"
        )
    key = (context.int_ptr, queue.int_ptr if queue is not None else 0)
    device = _wrapped.get(key)
    if device is None:
        device = _wrapped[key] = _new_device(context, queue)
    return device


def _new_device(context: Any, queue: Any) -> Device:
    library = _pyopencl_library()
    options = f"library={library}" if library else ""
    out = ffi.new("ingot_device_t **")
    handles = [_pointer(each.int_ptr if each is not None else 0) for each in (context, queue)]
    check(lib.ingot_opencl_device_wrap(instance().pointer, options.encode(), *handles, out))
    of_context = queue.device if queue is not None else context.devices[0]
    handle = Handle(out[0], lib.ingot_device_release, instance())
    return Device(f"opencl://{of_context.name.strip()}", handle, is_borrowed=True)


def _pointer(number: int) -> Any:
    return ffi.cast("void *", number)


@cache
def _pyopencl_library() -> str:
    """The OpenCL library in pyopencl's own folder; "" if it has none there."""
    found = importlib.util.find_spec("pyopencl")
    if found is None or found.origin is None:
        return ""
    package = Path(found.origin).parent
    for folder in (package / ".libs", package.with_name("pyopencl.libs")):
        for path in sorted(folder.glob("libOpenCL*")):
            return str(path)
    return ""


@cache
def find_library() -> None:
    """Names pyopencl's library to the instance where the system has none; once, before any
    device is listed or opened."""
    for name in ("libOpenCL.so.1", "libOpenCL.so"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return
    library = _pyopencl_library()
    if library:
        check(lib.ingot_opencl_set_library(instance().pointer, library.encode()))


# Arrays.


def is_pyopencl_array(value: Any) -> bool:
    """Whether it is a pyopencl.array.Array."""
    return type(value).__module__ == "pyopencl.array" and hasattr(value, "base_data")


def array_from_pyopencl(value: Any, device: Device, what: str, awaits: bool = True) -> Array:
    """The tensor of a pyopencl array, which it keeps alive, without a copy.

    Calls of a device made from a queue run behind the application's work there. All other work
    of the array's queue, and what the array waits for, has ended when this returns, if `awaits`.
    InvalidArgument: it is not dense, or of another context than the device.
    """
    if not value.flags.c_contiguous:
        raise InvalidArgument(f"{what}: must be C-contiguous; pass a dense copy, such as x.copy()")
    dtype = DType.from_numpy(value.dtype)
    context, _ = _handles(device)
    if value.context.int_ptr != context:
        raise InvalidArgument(
            f"{what}: is in another OpenCL context than the model on {device.uri!r}; load the "
            "model with device= that context or a queue of it, or pass x.get()"
        )
    if awaits:
        _wait_for(value, context, device)
    memory, length = _pointer(value.base_data.int_ptr), value.nbytes
    buffer_out, view_out = ffi.new("ingot_buffer_t **"), ffi.new("ingot_buffer_view_t **")
    arguments = (memory, value.offset, length, ffi.NULL, ffi.NULL, buffer_out)
    check(lib.ingot_opencl_buffer_wrap_memory(device.handle.pointer, *arguments))
    buffer = ffi.gc(buffer_out[0], lib.ingot_buffer_release)
    shape = tuple(value.shape)
    check(lib.ingot_buffer_view_create(buffer, 0, dtype.code, len(shape), shape, view_out))
    return array_of_view(view_out, 0, device)


def array_from_dlpack(value: Any, device: Device, what: str) -> Array | None:
    """The tensor of another library in OpenCL memory, without a copy; None for other memory. It
    lives as long as the array. InvalidArgument: it is not dense, or of another context than the
    device."""
    try:
        tensor = dlpack.import_opencl(value)
        if tensor is None:
            return None
        buffer_out, view_out = ffi.new("ingot_buffer_t **"), ffi.new("ingot_buffer_view_t **")
        length = prod(tensor.shape) * tensor.dtype.bytes
        arguments = (_pointer(tensor.memory), tensor.offset, length, ffi.NULL, ffi.NULL, buffer_out)
        check(lib.ingot_opencl_buffer_wrap_memory(device.handle.pointer, *arguments))
    except InvalidArgument as error:
        raise InvalidArgument(f"{what}: {error}") from None
    buffer = ffi.gc(buffer_out[0], lib.ingot_buffer_release)
    shape = tensor.shape
    check(lib.ingot_buffer_view_create(buffer, 0, tensor.dtype.code, len(shape), shape, view_out))
    array = array_of_view(view_out, 0, device)
    view = array._view
    ffi.gc(view, None)
    array._view = ffi.gc(view, partial(_release_view, tensor.capsule))
    return array


def _release_view(_capsule: object, view: Any) -> None:
    lib.ingot_buffer_view_release(view)


def _wait_for(value: Any, context: int, device: Device) -> None:
    """Waits for the application's work on an array, unless calls of the device run behind it."""
    queue = value.queue
    if queue is not None and _wrapped.get((context, queue.int_ptr)) is device:
        return
    value.finish()
    if queue is not None:
        queue.finish()  # kernels of the application's own are not among the array's events


def array_to_pyopencl(array: Array, queue: Any) -> Any:
    """The same memory as a pyopencl array; `queue` is that of its operations, or None.

    FailedPrecondition: pyopencl is not installed. InvalidArgument: the array is not in the
    memory of an OpenCL device, or of a dtype that NumPy lacks.
    """
    try:
        import pyopencl
        import pyopencl.array
    except ImportError as error:
        raise FailedPrecondition(
            f"to_pyopencl() needs pyopencl; install it with `pip install ingot[opencl]` ({error})"
        ) from None
    memory, offset = ffi.new("void **"), ffi.new("size_t *")
    layout = lib.ingot_buffer_view_layout(array._view)
    check(lib.ingot_opencl_buffer_handle(layout.buffer, memory, offset))
    context, own_queue = _handles(array._device)
    if queue is None:
        queue = pyopencl.CommandQueue.from_int_ptr(own_queue, retain=True)
    elif queue.context.int_ptr != context:
        raise InvalidArgument(
            "to_pyopencl(queue): the queue is in another OpenCL context than the array"
        )
    data = pyopencl.Buffer.from_int_ptr(int(ffi.cast("intptr_t", memory[0])), retain=True)
    start = offset[0] + layout.offset
    return pyopencl.array.Array(queue, array.shape, array.dtype.numpy, data=data, offset=start)


# Events.


def fence_of_event(event: Any, device: Device) -> Any:
    """A C fence that reaches 1 when a pyopencl event is complete. InvalidArgument: it is of another
    context than the device."""
    out = ffi.new("ingot_fence_t **")
    pointer = device.handle.pointer
    check(lib.ingot_opencl_fence_from_event(pointer, _pointer(event.int_ptr), out))
    return ffi.gc(out[0], lib.ingot_fence_release)


def event_of_fence(fence: Any, value: int, device: Device) -> Any:
    """A pyopencl event that is complete when a C fence reaches the value. FailedPrecondition:
    pyopencl is not installed."""
    try:
        import pyopencl
    except ImportError as error:
        raise FailedPrecondition(
            f"events of OpenCL need pyopencl; install it with `pip install ingot[opencl]` ({error})"
        ) from None
    out = ffi.new("void **")
    check(lib.ingot_opencl_event_from_fence(device.handle.pointer, fence, value, out))
    return pyopencl.Event.from_int_ptr(int(ffi.cast("intptr_t", out[0])), retain=False)


def _handles(device: Device) -> tuple[int, int]:
    """The device's context and queue. InvalidArgument: it is no OpenCL device."""
    context, queue = ffi.new("void **"), ffi.new("void **")
    pointer = device.handle.pointer
    check(lib.ingot_opencl_device_handles(pointer, context, ffi.NULL, queue))
    return int(ffi.cast("intptr_t", context[0])), int(ffi.cast("intptr_t", queue[0]))

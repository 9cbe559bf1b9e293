"""Native functions in Python: what compiled code calls of the application.

C calls `_call` on the thread of the model's call, which then holds the interpreter's lock. A
function gets its arguments as NumPy arrays over the bytes of the call, read-only, and gives arrays,
which are checked and copied to where the results lie.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
from _ctypes import CFuncPtr
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import get_ident
from typing import Any
from weakref import ref

import numpy as np

from ingot.hal.array import Array
from ingot.hal.device import Device
from ingot.hal.errors import Cancelled, Error, FailedPrecondition, InvalidArgument
from ingot.hal.native import ffi, keep_error, lib, raised, status_of, text
from ingot.hal.reference import Reference, is_address, object_at
from ingot.hal.spec import dtype_of_code
from ingot.hal.whole_file import c_text
from ingot.runtime.frame import bytes_of
from ingot.runtime.tensors import bits_of_input

__all__ = ["Natives", "after_fork", "is_in_native", "should_stop"]

_running: dict[int, list[Any]] = {}
"""By thread, the C calls of the native functions that it is in."""
_lost: set[int] = set()
"""The thread of a child that ends when it leaves its native function."""


def should_stop() -> bool:
    """Whether the call that a native function belongs to is cancelled or out of time: one that
    takes long asks now and then, and returns early. FailedPrecondition: not inside of one."""
    calls = _running.get(get_ident())
    if not calls:
        raise FailedPrecondition("ingot.should_stop() is for native functions, inside of a call")
    return bool(lib.ingot_native_should_stop(calls[-1]))


def is_in_native() -> bool:
    """Whether this thread is inside of a native function."""
    return get_ident() in _running


def after_fork() -> None:
    """In a child: what one does that a native function forked on a thread of the runtime. That is
    its only thread, and has nobody to return to."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    if frame.f_code is _call.__code__:
        _lost.add(get_ident())


def _end_process(error: BaseException | None) -> None:
    """What the end of a thread of Python's would do, where it is the last one."""
    status = 0
    if isinstance(error, SystemExit):
        status = error.code if isinstance(error.code, int) else error.code is not None
    elif error is not None:
        sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # closed, or a pipe that nobody reads
            stream.flush()
    os._exit(status)


class Natives:
    """The C table of native functions, and what it points into."""

    def __init__(self, own: Mapping[str, Any], given: Any, device: Device) -> None:
        """`given` comes before the module's `own`: a mapping, or pairs of name and function."""
        given = {} if given is None else given
        if not isinstance(given, (Mapping, tuple)):
            raise InvalidArgument(
                f"natives is {type(given).__name__}, but must be a dict of functions by name"
            )
        functions = {**own, **dict(given)}
        self._keep: list[Any] = []
        self.count = len(functions)
        self.table = ffi.new("ingot_native_t[]", self.count)
        for row, (name, function) in zip(self.table, functions.items(), strict=True):
            self._set(row, name, function, device)

    def _set(self, row: Any, name: str, function: Any, device: Device) -> None:
        if not isinstance(name, str) or not callable(function):
            raise InvalidArgument(
                f"natives[{name!r}] is {type(function).__name__}, but natives must be functions "
                "by name"
            )
        row.name = self._kept(ffi.new("char[]", c_text("native function", name)))
        if isinstance(function, CFuncPtr):
            address = ctypes.cast(self._kept(function), ctypes.c_void_p).value
            row.call = ffi.cast("ingot_native_function_t", address)
            return
        row.user = self._kept(ffi.new_handle(self._kept(_Native(name, function, device))))
        row.call = lib.ingot_python_native

    def _kept(self, value: Any) -> Any:
        self._keep.append(value)
        return value


class _Native:
    """A Python function with its name."""

    def __init__(self, name: str, function: Callable[..., Any], device: Device) -> None:
        self.name = name
        self._function = function
        self._device = device

    def __call__(self, call: Any) -> Any:
        """The status of a call."""
        memory: list[Any] = []  # of arguments, which goes with the last array over it
        try:
            self._give(call, self._results(call, memory))
            _check_kept(memory)
        except _Raised as error:
            raised[get_ident()] = error.cause
            return status_of(InvalidArgument, f"{type(error.cause).__name__}: {error.cause}")
        except Error as error:
            return status_of(type(error), str(error))
        return ffi.NULL

    def _results(self, call: Any, memory: list[Any]) -> Any:
        """What the function gives."""
        arguments = (call.arguments + place for place in range(call.argument_count))
        values = [
            _array(tensor, memory) if tensor.dtype else object_at(tensor.data)
            for tensor in arguments
        ]
        details = text(call.attributes)
        try:
            return self._function(*values, **(json.loads(details) if details else {}))
        except BaseException as error:
            raise _Raised(error) from error

    def _give(self, call: Any, given: Any) -> None:
        """Checks what the function gave, and copies it to where the results lie."""
        results = given if isinstance(given, tuple) else () if given is None else (given,)
        if len(results) != call.result_count:
            raise InvalidArgument(f"gave {len(results)} results, expected {call.result_count}")
        for place, value in enumerate(results):
            tensor = call.results + place
            if not tensor.dtype:
                self._give_reference(call, tensor, value, place)
                continue
            dtype, what = dtype_of_code(tensor.dtype), f"result {place}"
            shape = tuple(ffi.unpack(tensor.dims, tensor.rank)) if tensor.rank else ()
            bits = value
            if type(value) is not np.ndarray or value.dtype is not dtype.numpy:
                bits = bits_of_input(value, dtype, what)
            elif not value.flags.c_contiguous:
                bits = np.ascontiguousarray(value)
            if bits.shape != shape and not _fits(bits.shape, shape):
                wanted = ["?" if size < 0 else size for size in shape]
                raise InvalidArgument(
                    f"{what} has the shape {list(bits.shape)}, expected "
                    f"[{', '.join(map(str, wanted))}]"
                )
            if -1 in shape:
                array = Array.from_numpy(bits.view(dtype.numpy), self._device)
                lib.ingot_buffer_view_retain(array._view)
                tensor.view = array._view
            elif tensor.length:
                ffi.memmove(tensor.data, ffi.from_buffer(bytes_of(bits)), tensor.length)

    def _give_reference(self, call: Any, tensor: Any, value: Any, place: int) -> None:
        type = text(tensor.type)
        if value is None:
            raise InvalidArgument(f"result {place} is None, expected an object for &{type}")
        view = None if isinstance(value, Reference) else _passed_view(call, type, value)
        if view is None:
            made = value if isinstance(value, Reference) else Reference(type, value)
            view = made.view(self._device)
        lib.ingot_buffer_view_retain(view)
        tensor.view = view


def _passed_view(call: Any, type: str, value: Any) -> Any:
    """The argument that a function in C has made, of which `value` is the address: it goes on as
    what it is, not as an object of Python's. None without one."""
    for place in range(call.argument_count):
        tensor = call.arguments + place
        if not tensor.dtype and text(tensor.type) == type and is_address(tensor.data, value):
            return tensor.view
    return None


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether the shape is the wanted one, where -1 is any size."""
    pairs = zip(wanted, shape, strict=False)
    return len(shape) == len(wanted) and all(size in (-1, got) for size, got in pairs)


class _Raised(Exception):
    """What the function raised, which the call of the model raises."""

    def __init__(self, cause: BaseException) -> None:
        self.cause = cause


def _check_kept(memory: list[Any]) -> None:
    """FailedPrecondition: an array over bytes of the call is still there."""
    if any(each() is not None for each in memory):
        gc.collect()
    for place, each in enumerate(memory):
        if each() is not None:
            raise FailedPrecondition(
                f"argument {place} is kept beyond the call, which its bytes are not; keep a copy"
            )


def _array(tensor: Any, memory: list[Any]) -> Any:
    """An argument as an array that cannot be written to; a weak reference to its bytes goes into
    `memory`."""
    dtype = dtype_of_code(tensor.dtype).numpy
    shape = ffi.unpack(tensor.dims, tensor.rank) if tensor.rank else ()
    data = ffi.buffer(tensor.data if tensor.length else ffi.new("char[1]"), tensor.length)
    memory.append(ref(data))
    return np.frombuffer(memoryview(data).toreadonly(), np.uint8).view(dtype).reshape(shape)


@ffi.def_extern(name="ingot_python_native")  # type: ignore[untyped-decorator]
def _call(handle: Any, call: Any) -> Any:
    native: _Native = ffi.from_handle(handle)
    calls = _running.setdefault(get_ident(), [])
    calls.append(call)
    try:
        return native(call)
    except BaseException as error:  # of a signal's handler
        keep_error(None, error, None)
        return status_of(Cancelled, f"{type(error).__name__}: {error}")
    finally:
        calls.pop()
        if not calls:
            _running.pop(get_ident(), None)
            if get_ident() in _lost:
                _end_process(raised.get(get_ident()))

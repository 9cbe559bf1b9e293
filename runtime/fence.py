"""Fences: counters that order submitted calls, threads and the work of OpenCL queues."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ingot.hal.device import Device, instance, open_device
from ingot.hal.errors import Cancelled, DeadlineExceeded, Error, InvalidArgument
from ingot.hal.native import Handle, Uncopied, check, ffi, lib, status_of

__all__ = ["Fence", "fence_values", "is_event"]

_SLICE = 50_000_000  # nanoseconds that a wait does not hear signals
_LARGEST = 2**64 - 1


class Fence(Uncopied):
    """A value that only grows, from `value` on; or a failure. When the last of its users has gone,
    those who still wait for it get Cancelled."""

    __slots__ = ("__weakref__", "_handle")

    def __init__(self, value: int = 0) -> None:
        out = ffi.new("ingot_fence_t **")
        check(lib.ingot_fence_create(instance().pointer, _checked(value), out))
        self._handle = Handle(out[0], lib.ingot_fence_release, instance())

    @property
    def value(self) -> int:
        """The value at present. Raises the failure of a fence that has failed."""
        out = ffi.new("uint64_t *")
        check(lib.ingot_fence_query(self._handle.pointer, out))
        return int(out[0])

    def signal(self, value: int) -> None:
        """Sets a larger value: everyone who waits for it or less goes on. InvalidArgument: it is
        not larger. Raises the failure of a fence that has failed."""
        check(lib.ingot_fence_signal(self._handle.pointer, _checked(value)))

    def fail(self, error: str | BaseException) -> None:
        """All who wait for a value that was not reached get an error with this text, of the class
        of `error` if that is one of Ingot's, else Cancelled."""
        kind = type(error) if isinstance(error, Error) else Cancelled
        lib.ingot_fence_fail(self._handle.pointer, status_of(kind, str(error)))

    def wait(self, value: int, timeout: float | None = None) -> None:
        """Returns when the fence has reached `value`. DeadlineExceeded: it has not within
        `timeout` seconds. Raises the failure of a fence that fails before."""
        if timeout is not None and not isinstance(timeout, (int, float)):
            raise InvalidArgument(f"timeout is {timeout!r}, but must be seconds")
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            rest = _SLICE if end is None else min(_SLICE, max(0, end - time.monotonic()) * 1e9)
            try:
                arguments = (self._handle.pointer, _checked(value), int(rest))
                return check(lib.ingot_fence_wait(*arguments))
            except DeadlineExceeded:
                _ = self.value  # it may be the failure
                if end is not None and not time.monotonic() < end:
                    raise

    def to_pyopencl(self, value: int, device: Any) -> Any:
        """A pyopencl event that is complete when the fence reaches `value`, in error when it
        fails: for `wait_for=` of pyopencl. `device` is that of a model, or a context."""
        opened = open_device(device)
        event_of_fence = import_module("ingot.hal.opencl").event_of_fence
        return event_of_fence(self._handle.pointer, _checked(value), opened)

    def __repr__(self) -> str:
        try:
            return f"<Fence at {self.value}>"
        except Error as error:
            return f"<Fence that has failed: {error}>"


def _checked(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise InvalidArgument(
            f"the value of a fence is {value!r}, but must be an integer from 0 on"
        )
    return value


def fence_values(what: str, fences: Sequence[Any], device: Device) -> tuple[Any, list[Any]]:
    """Pairs (fence, value) as C takes them, and what has to live as long; an event of pyopencl is a
    fence that reaches 1. InvalidArgument: they are something else; `what` names them."""
    if not fences:
        return ffi.NULL, []
    values = []
    for each in fences:
        if is_event(each):
            values.append((import_module("ingot.hal.opencl").fence_of_event(each, device), 1))
            continue
        fence, value = each if isinstance(each, tuple) and len(each) == 2 else (each, None)
        if not isinstance(fence, Fence) or value is None:
            raise InvalidArgument(
                f"{what} has {each!r}, but must be pairs of an ingot.Fence and a value"
            )
        values.append((fence._handle.pointer, _checked(value)))
    return ffi.new("ingot_fence_value_t[]", values), values


def is_event(value: Any) -> bool:
    """Whether it is an event of pyopencl."""
    pyopencl = sys.modules.get("pyopencl")
    return pyopencl is not None and isinstance(value, pyopencl.Event)

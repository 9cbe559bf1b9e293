"""`Reference`: an object of the application that programs pass on without looking inside."""

from __future__ import annotations

import re
from typing import Any

from ingot.hal.device import Device
from ingot.hal.errors import FailedPrecondition, InvalidArgument
from ingot.hal.native import Uncopied, check, ffi, lib

__all__ = ["Reference", "is_address", "object_at", "reference_of_view"]

_NAME = re.compile(r"[A-Za-z_][\w.]*", re.ASCII)
_held: dict[int, Any] = {}
"""By address, the handles of the objects that references of C hold."""


class Reference(Uncopied):
    """An object as programs take it: `model(ingot.Reference("acme.tokenizer", tokenizer), text)`.

    Its type is a name, which `&acme.tokenizer` in signatures asks for; native functions get the
    object itself. The object is released when nobody has the reference, and no call uses it. One
    that a function in C has made has its address, a number, as its object.

    InvalidArgument: the type is no name.
    """

    __slots__ = ("_last", "_type", "_value")

    def __init__(self, type: str, object: Any) -> None:
        if not isinstance(type, str) or not _NAME.fullmatch(type):
            raise InvalidArgument(
                f"the type of a reference is {type!r}, expected a name, such as 'acme.tokenizer'"
            )
        self._type = type
        self._value = object
        self._last: tuple[Any, Device] | None = None  # its view on the device that had it last

    @property
    def type(self) -> str:
        return self._type

    @property
    def object(self) -> Any:
        return self._value

    def __repr__(self) -> str:
        return f"<reference &{self._type}: {self._value!r}>"

    def view(self, device: Device) -> Any:
        """The C view on a device, which lives as long as what it gives."""
        last = self._last  # of one moment: threads may use it on several devices
        if last is None or last[1] is not device:
            self._last = last = self._new_view(last, device), device
        return last[0]

    def _new_view(self, last: tuple[Any, Device] | None, device: Device) -> Any:
        if last is not None and _object_of(last[0], self._type) not in _held:
            raise FailedPrecondition(
                f"a reference &{self._type} that a function in C made is for its own device, "
                f"{last[1].uri}, not for {device.uri}"
            )
        handle, out = ffi.new_handle(self._value), ffi.new("ingot_buffer_view_t **")
        name, address = self._type.encode(), int(ffi.cast("uintptr_t", handle))
        release = lib.ingot_python_release
        _held[address] = handle
        try:
            check(
                lib.ingot_reference_create(
                    device.handle.pointer, name, handle, release, ffi.NULL, out
                )
            )
        except BaseException:
            del _held[address]
            raise
        return ffi.gc(out[0], lib.ingot_buffer_view_release)


def object_at(address: Any) -> Any:
    """The object of a C reference: what Python put there, else the address."""
    number = int(ffi.cast("uintptr_t", address))
    return ffi.from_handle(_held[number]) if number in _held else number


def is_address(address: Any, value: Any) -> bool:
    """Whether `value` is what `object_at` gives for an object of C."""
    number = int(ffi.cast("uintptr_t", address))
    return type(value) is int and value == number and number not in _held


def reference_of_view(view: Any, type: str, device: Device) -> Reference:
    """What a C view is, which is released with it."""
    out = ffi.new("void **")
    check(lib.ingot_reference_object(view, type.encode(), out))
    reference = Reference(type, object_at(out[0]))
    reference._last = view, device
    return reference


def _object_of(view: Any, type: str) -> int:
    out = ffi.new("void **")
    check(lib.ingot_reference_object(view, type.encode(), out))
    return int(ffi.cast("uintptr_t", out[0]))


@ffi.def_extern(name="ingot_python_release")  # type: ignore[untyped-decorator]
def _release(_user: Any, object: Any) -> None:
    _held.pop(int(ffi.cast("uintptr_t", object)), None)

"""The compiled extension, and its statuses as exceptions.

Only this file imports `_ingot`; whoever needs C takes `ffi`, `lib` and `check` from here.
The extension is the C layer: it lies in `runtime/`, but imports nothing of Python.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

from ingot.hal.errors import FailedPrecondition, error_class

__all__ = ["Handle", "check", "ffi", "lib", "text"]

try:
    _ingot: Any = import_module("ingot.runtime._ingot")
except ImportError as error:
    raise FailedPrecondition(
        f"the compiled extension of ingot cannot be loaded ({error}); in a source tree run "
        "`make develop`, else install ingot again"
    ) from error

ffi: Any = _ingot.ffi
lib: Any = _ingot.lib

_free = lib.ingot_status_free


def check(status: Any) -> None:
    """Raises the exception of a status, and frees it; does nothing for success."""
    if status:
        code = lib.ingot_status_code(status)
        message = text(lib.ingot_status_message(status))
        _free(status)
        raise error_class(code)(message)


def text(characters: Any) -> str:
    """A C string; "" for NULL. Bytes that are no UTF-8 are shown as escapes."""
    return ffi.string(characters).decode("utf-8", "backslashreplace") if characters else ""


class Handle:
    """Owns one reference to a C object, and keeps alive what the object points into.

    `pointer` is NULL after `release`, which may be called more than once.
    """

    __slots__ = ("_keep", "_release", "pointer")

    def __init__(self, pointer: Any, release: Any, *keep: object) -> None:
        self.pointer = pointer
        self._release = release
        self._keep: tuple[object, ...] = keep

    def release(self) -> None:
        pointer, self.pointer = self.pointer, ffi.NULL
        if pointer:
            self._release(pointer)
        self._keep = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "objects of the runtime can be neither pickled nor copied; keep the module file and "
            "load it again, or fork() the model"
        )

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # A default, since the names of this module are gone when the last handles are.
        if not is_finalizing():
            self.release()

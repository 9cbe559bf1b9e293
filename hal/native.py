"""The compiled extension, and its statuses as exceptions.

Only this file imports `_ingot`; whoever needs C takes `ffi`, `lib` and `check` from here.
It is made of the C runtime and of `hal/extension`, and imports nothing of Python.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from threading import get_ident
from typing import Any

from ingot.hal.errors import Error, FailedPrecondition, error_class

__all__ = [
    "Handle",
    "Uncopied",
    "check",
    "ffi",
    "keep_error",
    "lib",
    "raise_kept",
    "raised",
    "status_of",
    "text",
]

try:
    _ingot: Any = import_module("ingot.hal._ingot")
except ImportError as error:
    raise FailedPrecondition(
        f"the compiled extension of ingot cannot be loaded ({error}); in a source tree run "
        "`make develop`, else install ingot again"
    ) from error

ffi: Any = _ingot.ffi
lib: Any = _ingot.lib

_free = lib.ingot_status_free


# By thread: what was raised while C ran Python inside a call of that thread.
raised: dict[int, BaseException] = {}


def keep_error(_kind: object, error: BaseException, _traceback: object) -> None:
    """For Python that C calls: what it raises is raised when the call of C is over."""
    raised[get_ident()] = error


def raise_kept(message: str = "") -> None:
    """Raises what was raised inside the last call of this thread; nothing if nothing was. The
    status' message is noted in it, for it says where that was."""
    error = raised.pop(get_ident(), None)
    if error is None:
        return
    if message and sys.version_info >= (3, 11):
        error.add_note(message)
    raise error


def check(status: Any) -> None:
    """Raises the exception of a status, and frees it; does nothing for success."""
    if status:
        code = lib.ingot_status_code(status)
        message = text(lib.ingot_status_message(status))
        _free(status)
        if raised:
            raise_kept(message)
        raise error_class(code)(message)


def status_of(kind: type[Error], message: str) -> Any:
    """A new status for C; an error without a code is an internal one."""
    encoded = message.encode("utf-8", "backslashreplace").replace(b"\0", b"\\0")
    return lib.ingot_status_make(kind.code or 0, encoded)


def text(characters: Any) -> str:
    """A C string; "" for NULL. Bytes that are no UTF-8 are shown as escapes."""
    return ffi.string(characters).decode("utf-8", "backslashreplace") if characters else ""


class Uncopied:
    """What can be neither copied nor pickled."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "objects of the runtime can be neither pickled nor copied; keep the module file and "
            "load it again, or fork() the model"
        )


class Handle(Uncopied):
    """Owns one reference to a C object, and keeps alive what the object points into."""

    __slots__ = ("_keep", "_pointer", "_release")

    def __init__(self, pointer: Any, release: Any, *keep: object) -> None:
        self._pointer = pointer
        self._release = release
        self._keep: tuple[object, ...] = keep

    @property
    def pointer(self) -> Any:
        """The C object. FailedPrecondition: it was released, as happens to what is garbage."""
        if not self._pointer:
            raise FailedPrecondition("the object is freed already; load or open it again")
        return self._pointer

    def release(self) -> None:
        """Drops the reference; may be called more than once."""
        pointer, self._pointer = self._pointer, ffi.NULL
        if pointer:
            self._release(pointer)
        self._keep = ()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # A default, since the names of this module are gone when the last handles are.
        if not is_finalizing():
            self.release()

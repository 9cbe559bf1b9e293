"""The exceptions of Ingot: one class per status code of the C runtime, and CompileError.

The codes stand in `spec/status.def`; a class takes the code of the row with its name.
"""

from __future__ import annotations

from typing import ClassVar

from ingot.hal import header

__all__ = [
    "Cancelled",
    "CompileError",
    "DataLoss",
    "DeadlineExceeded",
    "DeviceLost",
    "Error",
    "FailedPrecondition",
    "Incompatible",
    "Internal",
    "InvalidArgument",
    "NotFound",
    "OutOfMemory",
    "OutOfRange",
    "PermissionDenied",
    "Unsupported",
    "error_class",
]

_CODES = {name: code for code, _, name in header.table("status")}
_CLASSES: dict[int, type[Error]] = {}


class Error(Exception):
    """Whatever Ingot raises on purpose. `code` is the status code, or None without one."""

    code: ClassVar[int | None] = None

    def __init__(self, *details: object) -> None:
        """Names in messages may come from files of any bytes: what UTF-8 lacks is escaped."""
        super().__init__(*map(_encodable, details))

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        code = _CODES.get(cls.__name__)
        if isinstance(code, int) and code not in _CLASSES:
            cls.code = code
            _CLASSES[code] = cls


def _encodable(detail: object) -> object:
    if not isinstance(detail, str):
        return detail
    return detail.encode("utf-8", "backslashreplace").decode()


class CompileError(Error):
    """The source program cannot be compiled; the message lists every reason."""


class InvalidArgument(Error):
    """An argument has the wrong count, name, dtype, rank, shape or value."""


class NotFound(Error):
    """A file, function, parameter or device does not exist."""


class OutOfRange(Error):
    """An index or a size left its bounds while the program ran."""


class OutOfMemory(Error):
    """Memory ran out; the call had no effect."""


class FailedPrecondition(Error):
    """The object is in the wrong state, such as a model that is closed or busy."""


class Incompatible(Error):
    """The module was made for another version of Ingot, or for another kind of device."""


class DataLoss(Error):
    """A file is truncated or corrupted."""


class Unsupported(Error):
    """What was asked for is valid but not supported."""


class PermissionDenied(Error):
    """The operating system refused access."""


class DeadlineExceeded(Error):
    """A time or step limit was reached."""


class Cancelled(Error):
    """The call was cancelled."""


class DeviceLost(Error):
    """The device stopped working; load the model again."""


class Internal(Error):
    """Ingot broke one of its own rules: please report it."""


def error_class(code: int) -> type[Error]:
    """The exception class of a status code; `Error` for a code that this version lacks."""
    return _CLASSES.get(code, Error)

"""Files that are written whole or not at all, and read without waiting."""

from __future__ import annotations

import errno
import os
import stat
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from secrets import token_hex
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np

from ingot.hal.errors import (
    DataLoss,
    Error,
    InvalidArgument,
    NotFound,
    OutOfMemory,
    PermissionDenied,
)

__all__ = [
    "READ_AT_ONCE",
    "at_once",
    "c_output",
    "c_text",
    "data_loss",
    "open_regular",
    "read_arrays",
    "write_arrays",
    "write_whole",
]

READ_AT_ONCE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
"""For os.open: a pipe does not wait for a writer, where the system has such pipes."""

_ARRAYS = (b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06")
"""What .npy and .npz files begin with; NumPy takes any other for a pickle."""
_DEFLATED = 1032
"""Bytes that one byte of a deflated entry stands for, at most."""
_OF_THE_SYSTEM = frozenset(
    getattr(errno, name)
    for name in ("EIO", "ENOMEM", "ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EMFILE", "ENFILE")
)
"""Errors that no bytes of a file cause."""


def write_whole(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Make a file of what `write` puts into a stream; one that exists is replaced in one step,
    also behind a link, and keeps its mode. When this returns the file is on the disk.

    NotFound, PermissionDenied, InvalidArgument or OSError: it cannot be written; what was
    there is there still.
    """
    target = Path(os.path.realpath(os.fsdecode(c_text("path", path))))
    try:
        _write(target, write)
    except FileNotFoundError:
        raise NotFound(f"cannot write '{target}': there is no folder '{target.parent}'") from None
    except PermissionError:
        raise PermissionDenied(
            f"cannot write '{target}': the folder '{target.parent}' may not be written to"
        ) from None
    except OSError as error:
        error.filename = error.filename or str(target)  # which writing does not tell
        raise


def _write(target: Path, write: Callable[[BinaryIO], object]) -> None:
    before = target.stat().st_mode if target.exists() else None
    if before is not None and stat.S_ISCHR(before):  # such as /dev/null
        with target.open("wb") as file:
            write(file)
        return
    if before is not None and not stat.S_ISREG(before):
        raise InvalidArgument(f"cannot write '{target}': it is there, and no regular file")
    temporary = target.with_name(f".{token_hex(8)}.ingot")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        with open(os.open(temporary, flags, 0o666), "wb") as file:
            if before is not None:
                os.chmod(temporary, stat.S_IMODE(before))
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    with suppress(OSError):  # the file is there; a folder may refuse to be read, or to be synced
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def c_output(what: str, path: str | os.PathLike[str]) -> bytes:
    """As `c_text`, the path of a file that C will write. InvalidArgument: it is a pipe, for whose
    reader the opening would wait."""
    name = c_text(what, path)
    with suppress(OSError):  # which the one that opens it reports
        if stat.S_ISFIFO(os.stat(name).st_mode):
            raise InvalidArgument(f"{what}={os.fsdecode(name)} cannot be written: it is a pipe")
    return name


def at_once(path: str, _flags: int) -> int:
    """`opener=` of `open` for READ_AT_ONCE, which closes what turns out to be a folder."""
    return os.open(path, READ_AT_ONCE)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """A file opened for reading. NotFound: there is none. InvalidArgument: it is no regular
    file, or the path is none. PermissionDenied, OSError: it cannot be read."""
    name = os.fsdecode(c_text("path", path))
    try:
        file = open(name, "rb", opener=at_once)  # noqa: SIM115
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no file '{name}'") from None
    except IsADirectoryError:
        raise InvalidArgument(f"'{name}' is a folder, expected a file") from None
    except PermissionError:
        raise PermissionDenied(f"'{name}' may not be read") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InvalidArgument(f"'{name}' is no regular file")
    return file


def read_arrays(path: str | os.PathLike[str]) -> Any:
    """What a .npy file holds, or all of a .npz file by name. DataLoss: it is neither. Else
    raises as `open_regular`."""
    with open_regular(path) as file, data_loss(file, "cannot be read as arrays: {}"):
        if not file.read(6).startswith(_ARRAYS):
            raise DataLoss(f"'{file.name}' is no .npy or .npz file")
        file.seek(0)
        loaded = np.load(file, allow_pickle=False)
        return loaded if isinstance(loaded, np.ndarray) else dict(loaded)


@contextmanager
def data_loss(file: BinaryIO, what: str) -> Iterator[None]:
    """Around the reading of arrays, or of an archive. DataLoss: NumPy or zipfile found something
    wrong, which `what` says. OutOfMemory: the arrays do not fit. OSError: it is of the system."""
    try:
        yield
    except Error:
        raise
    except Exception as error:
        length = os.fstat(file.fileno()).st_size
        made = prod(getattr(error, "shape", ()))  # of NumPy, which had no memory for it
        if isinstance(error, MemoryError) and made <= length * _DEFLATED:
            raise OutOfMemory(
                f"memory is too short for what '{file.name}' holds: {error}"
            ) from None
        if isinstance(error, OSError) and error.errno in _OF_THE_SYSTEM:
            raise
        raise DataLoss(f"'{file.name}' {what.format(error)}") from None


def write_arrays(path: str | os.PathLike[str], arrays: Any) -> None:
    """Make a .npy file of an array, or a .npz file of arrays by name, whatever their names are.
    Raises as `write_whole`; pipes are written, too."""
    if os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode):
        with open(path, "wb") as file:
            _write_arrays(file, arrays)
    else:
        write_whole(path, lambda file: _write_arrays(file, arrays))


def _write_arrays(file: Any, arrays: Any) -> None:
    if isinstance(arrays, Mapping):
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    _write_arrays(entry, array)
    else:
        # NumPy writes into what has a descriptor by itself, and does not tell what was wrong
        stream: Any = SimpleNamespace(write=file.write)
        np.lib.format.write_array(stream, np.asarray(arrays), allow_pickle=False)


def c_text(what: str, value: str | bytes | os.PathLike[str]) -> bytes:
    """A path or name as C takes it. InvalidArgument: C would see its beginning only, or it is
    none."""
    try:
        name = os.fsdecode(value)
    except TypeError:
        raise InvalidArgument(f"{what} is {value!r:.60}, expected a string or a path") from None
    try:
        data = os.fsencode(name)
    except UnicodeEncodeError:
        data = b"\0"
    if b"\0" in data:
        raise InvalidArgument(f"{what} {name!r} has a character that no {what} can have")
    return data

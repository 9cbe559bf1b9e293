"""Reads the files in which a model keeps data beside itself.

They lie below the model's folder, links included: a model names files, and one from somebody else
must not name those of the user. The path is resolved, held against the folder, and then opened
folder by folder without following links, so that nobody can change it in between, where the system
can do that (Windows cannot). A model that is itself a link, as in a cache of downloads, has two
folders: where it is named and where it is.

The data is read, not mapped: a mapped file that is cut meanwhile kills the process.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from ingot.hal.errors import CompileError
from ingot.hal.whole_file import READ_AT_ONCE

__all__ = ["read_external"]


def read_external(
    folders: Sequence[Path], location: str, offset: int, length: int
) -> np.ndarray[Any, Any]:
    """`length` bytes at `offset` of the file `location` below one of the folders.

    CompileError: it is not there, not below a folder, no file, or too short; the message goes on
    from the name of the file.
    """
    try:
        with FileIO("data", opener=lambda *_: _open(folders, location)) as file:
            return _read(file, offset, length)
    except OSError as error:
        raise CompileError(f"which cannot be read: {error.strerror}") from None


def _read(file: FileIO, offset: int, length: int) -> np.ndarray[Any, Any]:
    facts = os.fstat(file.fileno())
    if not stat.S_ISREG(facts.st_mode):
        raise CompileError("which is no regular file: put the data itself there")
    end = offset + length
    if offset < 0 or length < 0 or end > facts.st_size:
        raise CompileError(
            f"at bytes {offset} to {end}, but the file has {facts.st_size} bytes: it is "
            "truncated, copy it again"
        )
    data = np.empty(length, np.uint8)
    file.seek(offset)
    done = 0
    while done < length:
        count = file.readinto(data.data[done:])
        if not count:
            raise CompileError("which was cut while it was read: wait until it is complete")
        done += count
    return data


def _open(folders: Sequence[Path], location: str) -> int:
    """The descriptor of the file."""
    path = PurePosixPath(location)
    if not path.name or path.is_absolute() or ".." in path.parts or "\0" in location:
        raise CompileError("which is not a path below the model's folder")
    roots = [Path(os.path.realpath(folder)) for folder in folders]
    for folder in folders:
        real = Path(os.path.realpath(folder / path))
        if not os.path.lexists(real):
            continue
        for root in roots:
            if real.is_relative_to(root):
                return _open_below(root, real.relative_to(root).parts)
        raise CompileError(
            f"which is a link out of the model's folder, to '{real}': put the data itself there"
        )
    raise CompileError(f"which is not in '{folders[0]}': put it there")


def _open_below(root: Path, parts: Sequence[str]) -> int:
    """The descriptor of a file below a folder. OSError: some part of the path is a link."""
    if os.open not in os.supports_dir_fd:
        return os.open(root.joinpath(*parts), READ_AT_ONCE)
    flags = os.O_RDONLY | os.O_CLOEXEC
    folder = os.open(root, flags | os.O_DIRECTORY)
    for part in parts[:-1]:
        try:
            inner = os.open(part, flags | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    try:
        return os.open(parts[-1], flags | os.O_NOFOLLOW | READ_AT_ONCE, dir_fd=folder)
    finally:
        os.close(folder)

"""Reads the files in which a model keeps data beside itself.

They lie below the model's folder, links included: a model names files, and one from somebody else
must not name those of the user. The path is resolved, held against the folder, and then opened
folder by folder without following links, so that nobody can change it in between, where the system
can do that (Windows cannot). A model that is itself a link, as in a cache of downloads, has two
folders: where it is named and where it is.

The data is read when it is used (`KeptFile`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field
from io import FileIO
from pathlib import Path, PurePosixPath

from ingot.compiler.frontends.kept_file import KeptFile
from ingot.compiler.frontends.onnx.cut import Cut, Place
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.errors import CompileError
from ingot.hal.whole_file import READ_AT_ONCE

__all__ = ["Files"]


@dataclass(frozen=True)
class Files:
    """Where data of a model lies: in its own file or bytes, of which there are none for a
    ModelProto, and below one of the `folders`, if any is known."""

    own: Cut | None = None
    folders: tuple[Path, ...] = ()
    opened: dict[str, KeptFile] = field(default_factory=dict)

    def place(self, location: str, offset: int, length: int) -> Place:
        """`length` bytes at `offset` of the file `location` below one of the folders.

        CompileError: it is not there, not below a folder, no file, or too short; the message goes
        on from the name of the file.
        """
        try:
            if location not in self.opened:
                self.opened[location] = KeptFile(
                    lambda: FileIO("data", opener=lambda *_: _open(self.folders, location)),
                    f"the file '{location}'",
                )
        except OSError as error:
            raise CompileError(f"which cannot be read: {error.strerror}") from None
        file, end = self.opened[location], offset + length
        if offset < 0 or length < 0 or end > file.length:
            raise CompileError(
                f"at bytes {offset} to {end}, but the file has {file.length} bytes: it is "
                "truncated, copy it again"
            )
        return Place(file, offset, length)


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

"""A compiled module: its bytes, and a report of what the compiler made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ingot.compiler.report import Report
from ingot.hal.module_bytes import ModuleBytes
from ingot.hal.whole_file import write_whole

__all__ = ["Module"]


class Module:
    """A compiled program. `bytes(module)` is the module file; `save` writes it. `natives` are the
    Python functions that were declared with `ingot.Native(..., function=f)`; the file has only
    their names. `contents` are the bytes, where `ingot.load` uses them without a copy."""

    def __init__(
        self,
        data: bytes | ModuleBytes,
        report: Report,
        natives: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.contents = data if isinstance(data, ModuleBytes) else ModuleBytes(data)
        self.report = report
        self.natives = dict(natives or {})

    def __bytes__(self) -> bytes:
        return bytes(self.contents)

    def __len__(self) -> int:
        return len(self.contents)

    def __repr__(self) -> str:
        return f"<ingot module, {len(self)} bytes>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the module file; a file that exists is replaced in one step, also behind a link.
        When this returns the file is on the disk.

        NotFound, PermissionDenied, InvalidArgument or OSError: it cannot be written.
        """
        write_whole(path, lambda file: file.write(self.contents.view))

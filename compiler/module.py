"""A compiled module: its bytes, and a report of what the compiler made."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ingot.hal.errors import NotFound, PermissionDenied

__all__ = ["Module", "Report"]


@dataclass(frozen=True)
class Report:
    """What a module holds, and where the time of compiling went.

    `peaks` is, per function, the bytes of working memory as a formula over its symbols;
    `dispatches` the kernels that one call queues.
    """

    dispatches: Mapping[str, int]
    peaks: Mapping[str, str]
    kernel_count: int
    constant_length: int  # bytes
    object_lengths: Mapping[str, int]  # bytes of native code per variant
    seconds: Mapping[str, float] = field(default_factory=dict)  # per pass

    def __str__(self) -> str:
        lines = [
            f"{name}: {count} dispatches, {self.peaks[name]} bytes of working memory"
            for name, count in self.dispatches.items()
        ]
        objects = ", ".join(f"{name} {size / 1e3:.1f} KB" for name, size in self._objects())
        lines.append(f"{self.kernel_count} kernels ({objects})")
        lines.append(f"{self.constant_length / 1e3:.1f} KB of constants")
        lines += [f"{name}: {seconds:.3f} s" for name, seconds in self.seconds.items()]
        return "\n".join(lines)

    def _objects(self) -> list[tuple[str, int]]:
        return list(self.object_lengths.items())


class Module:
    """A compiled program. `bytes(module)` is the module file; `save` writes it."""

    def __init__(self, data: bytes, report: Report) -> None:
        self._data = data
        self.report = report

    def __bytes__(self) -> bytes:
        return self._data

    def __len__(self) -> int:
        return len(self._data)

    def __repr__(self) -> str:
        return f"<ingot module, {len(self._data)} bytes>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the module file; a file that exists is replaced in one step.

        NotFound, PermissionDenied or OSError: it cannot be written.
        """
        target = Path(path)
        try:
            self._save(target)
        except FileNotFoundError:
            raise NotFound(
                f"cannot write '{target}': there is no folder '{target.parent}'"
            ) from None
        except PermissionError:
            raise PermissionDenied(
                f"cannot write '{target}': the folder '{target.parent}' may not be written to"
            ) from None

    def _save(self, target: Path) -> None:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(self._data)
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current

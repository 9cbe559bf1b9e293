"""A compiled module: its bytes, and a report of what the compiler made."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ingot.hal.whole_file import write_whole

__all__ = ["Module", "Report", "TargetReport"]


@dataclass(frozen=True)
class TargetReport:
    """What a module holds for one target.

    `peaks` is, per function, the bytes of working memory as a formula over its symbols;
    `dispatches` the kernels that one call queues. `host` are the kernels that run on the
    host although the target is another device, with the reason of each.
    """

    dispatches: Mapping[str, int]
    peaks: Mapping[str, str]
    kernel_count: int
    object_lengths: Mapping[str, int]  # bytes of kernel code per variant
    host: Mapping[str, str] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """The same for people."""
        for name, count in self.dispatches.items():
            dispatches = f"{count} dispatch{'' if count == 1 else 'es'}"
            yield f"{name}: {dispatches}, {self.peaks[name]} bytes of working memory"
        sizes = self.object_lengths.items()
        objects = ", ".join(f"{name} {size / 1e3:.1f} KB" for name, size in sizes)
        yield f"{self.kernel_count} kernel{'' if self.kernel_count == 1 else 's'} ({objects})"
        yield from self.host_lines()

    def host_lines(self) -> Iterator[str]:
        """Which kernels run on the host, and why."""
        if self.host:
            yield f"{len(self.host)} of {self.kernel_count} kernels run on the host:"
        for name, reason in self.host.items():
            yield f"  {name}: {reason}"


@dataclass(frozen=True)
class Report:
    """What a module holds, and where the time of compiling went. The properties are those of
    the first target."""

    targets: Mapping[str, TargetReport]
    constant_length: int  # bytes
    seconds: Mapping[str, float] = field(default_factory=dict)  # per pass

    @property
    def _first(self) -> TargetReport:
        return next(iter(self.targets.values()))

    @property
    def dispatches(self) -> Mapping[str, int]:
        return self._first.dispatches

    @property
    def peaks(self) -> Mapping[str, str]:
        return self._first.peaks

    @property
    def kernel_count(self) -> int:
        return self._first.kernel_count

    @property
    def object_lengths(self) -> Mapping[str, int]:
        return self._first.object_lengths

    def __str__(self) -> str:
        lines: list[str] = []
        for name, target in self.targets.items():
            lines += [f"target {name}", *(f"  {line}" for line in target.lines())]
        lines.append(f"{self.constant_length / 1e3:.1f} KB of constants")
        return "\n".join([*lines, *self._slow_steps()])

    def _slow_steps(self) -> Iterator[str]:
        """The steps that took a hundredth of the time or more, and the rest in one line."""
        total = sum(self.seconds.values())
        slow = {name: each for name, each in self.seconds.items() if each >= total / 100}
        for name, seconds in slow.items():
            yield f"{name}: {seconds:.2f} s"
        if rest := len(self.seconds) - len(slow):
            yield f"{rest} other steps: {total - sum(slow.values()):.2f} s"


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
        """Write the module file; a file that exists is replaced in one step, also behind a link.
        When this returns the file is on the disk.

        NotFound, PermissionDenied, InvalidArgument or OSError: it cannot be written.
        """
        write_whole(path, lambda file: file.write(self._data))

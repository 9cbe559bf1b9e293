"""What a session's kernels and copies did: names, source layers, times, one event each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ingot.hal.native import check, ffi, lib, text

__all__ = ["TraceEvent", "collect_trace"]


@dataclass(frozen=True)
class TraceEvent:
    """One kernel, copy or fill. Times are nanoseconds of the monotonic clock."""

    kernel: str  # or "copy", "fill"
    layer: str  # the source layers it computes, "" if unknown
    begin: int
    end: int
    length: int  # bytes that it writes; of kernels an estimate of those it touches


@contextmanager
def collect_trace(session: Any) -> Iterator[list[TraceEvent]]:
    """Events of the C session's calls inside the `with` block, in order."""
    events: list[TraceEvent] = []
    handle = ffi.new_handle(events)
    check(lib.ingot_session_set_trace(session, lib.ingot_python_trace, handle))
    try:
        yield events
    finally:
        check(lib.ingot_session_set_trace(session, ffi.NULL, ffi.NULL))


@ffi.def_extern(name="ingot_python_trace")  # type: ignore[untyped-decorator]
def _record(user: Any, event: Any) -> None:
    names = text(event.kernel), text(event.layer)
    ffi.from_handle(user).append(TraceEvent(*names, event.begin, event.end, event.length))

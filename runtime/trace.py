"""What a session's kernels and copies did: names, source layers, times, one event each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ingot.hal.native import ffi, keep_error, text

__all__ = ["TraceEvent"]


@dataclass(frozen=True)
class TraceEvent:
    """One kernel, copy or fill. Times are nanoseconds of the monotonic clock."""

    kernel: str  # or "copy", "fill"
    layer: str  # the source layers it computes, "" if unknown
    begin: int
    end: int
    length: int  # bytes that it writes; of kernels an estimate of those it touches


@ffi.def_extern(name="ingot_python_trace", onerror=keep_error)  # type: ignore[untyped-decorator]
def _record(user: Any, event: Any) -> None:
    """Adds the event to each of the lists that `user`, a handle, stands for."""
    names = text(event.kernel), text(event.layer)
    made = TraceEvent(*names, event.begin, event.end, event.length)
    for events in ffi.from_handle(user):
        events.append(made)

"""What a session's calls did: `model.trace`, and the file of INGOT_TRACE.

C keeps the events (`record.c`), so that tracing costs a call little; they become Python's when
somebody looks.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, overload
from weakref import WeakSet

from ingot.hal.errors import InvalidArgument, OutOfMemory
from ingot.hal.native import Uncopied, ffi, lib, text
from ingot.hal.whole_file import c_output

if TYPE_CHECKING:
    from ingot.runtime.session import Session

__all__ = ["Recorder", "Trace", "TraceEvent"]


@dataclass(frozen=True)
class TraceEvent:
    """One kernel, copy or fill. Times are nanoseconds of the monotonic clock."""

    kernel: str  # or "copy", "fill"
    layer: str  # the source layers it computes, "" if unknown
    begin: int
    end: int
    length: int  # bytes that it writes; of kernels an estimate of those it touches


class Recorder:
    """Where C puts the events of a session. It keeps them as long as it lives."""

    __slots__ = ("__weakref__", "pointer")

    def __init__(self) -> None:
        recorder = ffi.new("ingot_python_recorder_t *")
        self.pointer = ffi.gc(recorder, lib.ingot_python_recorder_free)
        self.pointer.timeline = _program_timeline() or ffi.NULL
        _recorders.add(self)

    @property
    def function(self) -> Any:
        """What C calls, with `pointer`."""
        return ffi.addressof(lib, "ingot_python_record")


class Trace(Uncopied, Sequence[TraceEvent]):
    """`with model.trace() as trace: model(x)`: the kernels, copies and fills of every call
    meanwhile, as a sequence; `save` writes all of it as a timeline."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._program = session.program  # which has the names of events
        self._recorder: Recorder | None = None
        self._first = 0
        self._end: int | None = None  # it goes on
        self._read = 0  # records that are in `_events`
        self._events: list[TraceEvent] = []
        self._calls: list[int] = []  # per call that has ended, how many events there were

    def __enter__(self) -> Trace:
        if self._recorder is None:
            try:
                recorder = self._session.begin_trace(id(self))
                self._first = self._read = recorder.pointer.count
                self._recorder = recorder
            except BaseException:  # a signal too
                self._session.end_trace(id(self))
                raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._recorder is not None and self._end is None:
            self._end = self._recorder.pointer.count
            self._session.end_trace(id(self))

    def __del__(self) -> None:
        if getattr(self, "_recorder", None) is not None:
            self.__exit__()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file that Perfetto (ui.perfetto.dev) and chrome://tracing open: calls, kernels
        by layer, copies, waits, what a device did in its own times, memory. OSError: it cannot be
        written. InvalidArgument: it is a pipe."""
        with self._session.lock:
            end = self._last()
            recorder = ffi.NULL if self._recorder is None else self._recorder.pointer
            error = lib.ingot_python_recorder_save(
                recorder, self._first, end, c_output("path", path)
            )
        if error:
            raise OSError(error, os.strerror(error), os.fspath(path))

    def calls(self) -> list[list[TraceEvent]]:
        """The events of each call that has ended."""
        self._settle()
        starts = [0, *self._calls]
        return [self._events[a:b] for a, b in zip(starts, self._calls, strict=False)]

    def _last(self) -> int:
        """The end of what it has recorded so far. OutOfMemory: not all that happened is there."""
        if self._recorder is None:
            return 0
        pointer = self._recorder.pointer
        if pointer.is_full:
            raise OutOfMemory(
                f"the trace has no memory for more than {pointer.count} events: trace fewer calls"
            )
        return int(pointer.count if self._end is None else self._end)

    def _settle(self) -> list[TraceEvent]:
        """The events so far."""
        with self._session.lock:  # else a call of another thread may move the records
            for place in range(self._read, self._last()):
                assert self._recorder is not None
                event = self._recorder.pointer.records[place].event
                if event.kind == lib.INGOT_TRACE_CALL:
                    self._calls.append(len(self._events))
                elif event.kind != lib.INGOT_TRACE_WAIT:
                    names = text(event.kernel), text(event.layer)
                    self._events.append(TraceEvent(*names, event.begin, event.end, event.length))
                self._read = place + 1
        return self._events

    @overload
    def __getitem__(self, place: int) -> TraceEvent: ...
    @overload
    def __getitem__(self, place: slice) -> list[TraceEvent]: ...
    def __getitem__(self, place: int | slice) -> TraceEvent | list[TraceEvent]:
        return self._settle()[place]

    def __len__(self) -> int:
        return len(self._settle())

    def __iter__(self) -> Iterator[TraceEvent]:
        return iter(list(self._settle()))

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, (Trace, list)) else NotImplemented

    def __repr__(self) -> str:
        return f"<trace of {len(self)} kernels and copies>"


# The file of INGOT_TRACE: all calls of the process, to its end.

_recorders: WeakSet[Recorder] = WeakSet()


@lru_cache(maxsize=1)
def _program_timeline() -> Any:
    """The C timeline that the environment asks for, or None."""
    path = os.environ.get("INGOT_TRACE", "").replace("%p", str(os.getpid()))
    if not path:
        return None
    error = ffi.new("int *")
    try:
        timeline = lib.ingot_python_timeline_open(c_output("INGOT_TRACE", path), error)
    except InvalidArgument as refused:
        logging.getLogger("ingot").warning("%s", refused)
        return None
    if not timeline:
        reason = os.strerror(error[0])
        logging.getLogger("ingot").warning("INGOT_TRACE=%s cannot be written: %s", path, reason)
        return None

    def finish() -> None:
        if _program_timeline() is not None and not lib.ingot_python_timeline_flush(timeline, True):
            logging.getLogger("ingot").warning("INGOT_TRACE=%s: the disk is full", path)

    def flush() -> None:
        lib.ingot_python_timeline_flush(timeline, False)

    atexit.register(finish)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=flush, after_in_child=_forget_timeline)
    return timeline


def _forget_timeline() -> None:
    """In a child: the file is the parent's."""
    os.environ.pop("INGOT_TRACE", None)
    _program_timeline.cache_clear()
    for recorder in list(_recorders):
        recorder.pointer.timeline = ffi.NULL

"""A C session as Python uses it: from any thread, closed at any time, and across os.fork.

Python may run in the middle of every use of the session: signal handlers, finalizers, the log,
`__array__` of arguments. So a use holds the lock, which one thread may take several times; whoever
comes from within a call is refused by C; and only a close from outside of all uses frees at once.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from ingot.hal.device import Device
from ingot.hal.errors import DeadlineExceeded, FailedPrecondition
from ingot.hal.native import Uncopied, check, ffi, lib
from ingot.runtime import natives
from ingot.runtime.limits import LONGEST, set_limits
from ingot.runtime.program import Program
from ingot.runtime.recording import environment_recording
from ingot.runtime.submission import check_wait, forget_submissions, wait_until_idle, why_not_wait
from ingot.runtime.trace import Recorder

__all__ = ["Session"]

_CLOSED = "the model is closed; load it again"
_FORKED = (
    "another thread was using the model when the process forked, and its state is lost: take "
    "model.fork(state=False) in the child"
)
_ALL_CALLS = 2**64 - 1  # INGOT_ALL_CALLS
_sessions: WeakSet[Session] = WeakSet()


class Session(Uncopied):
    """A C session and the lock that makes callers wait for each other; `origin`: whose state it
    goes on from."""

    __slots__ = (
        "__weakref__",
        "_freeing",
        "_recorder",
        "_traces",
        "closed",
        "device",
        "lock",
        "pending",
        "pointer",
        "program",
        "recording",
    )

    def __init__(self, program: Program, origin: Session | None = None) -> None:
        self.closed = ""  # why it cannot be used, if so
        self.lock: Any = threading.RLock()
        self._freeing: Any = threading.RLock()  # what frees the session, and who looks at it
        self.pointer = ffi.NULL
        self.program = program
        self.device: Device = program.device
        self._recorder: Recorder | None = None  # that C knows
        self._traces: set[int] = set()  # ids of those that want events
        self.recording = environment_recording()  # what waits for a call to record
        self.pending: set[Any] = set()  # submitted calls that have not ended
        out = ffi.new("ingot_session_t **")
        if origin is None:
            options = ffi.new("ingot_session_options_t *", {"shares_slab": program.shares_slab})
            check(lib.ingot_session_create(program.pointer, options, out))
        else:
            with origin.use() as pointer:
                check(lib.ingot_session_fork(pointer, out))
        self.pointer = out[0]
        _sessions.add(self)
        if os.environ.get("INGOT_TRACE"):
            recorder = Recorder()
            if recorder.pointer.timeline:
                function, user = recorder.function, recorder.pointer
                check(lib.ingot_session_set_trace(self.pointer, function, user))
                self._recorder = recorder

    @contextmanager
    def use(self) -> Iterator[Any]:
        """The C session, while no other thread uses it."""
        check_wait(self.pending)
        with self.lock:
            if self.closed:
                raise FailedPrecondition(self.closed)
            if self.pending:
                wait_until_idle(self.pending)
            yield self.pointer

    def submit(self, *submission: Any) -> None:
        """Queues a call, at once: also while others use the session."""
        with self._freeing:
            if self.closed:
                raise FailedPrecondition(self.closed)
            check(lib.ingot_python_submit(*submission))

    def call_behind(self, frame: Any, status: Any) -> Any:
        """Makes a call again that C has refused because submitted ones have to end first."""
        while status and self.pending and lib.ingot_status_code(status) == FailedPrecondition.code:
            lib.ingot_status_free(status)
            wait_until_idle(self.pending)
            status = lib.ingot_python_call(frame)
        return status

    def call_in_time(self, frame: Any, max_steps: int | None, timeout: float) -> Any:
        """The status of a call that has `timeout` seconds, with those of waiting for its turn."""
        check_wait(self.pending)
        lock, end = self.lock, time.monotonic() + min(timeout, LONGEST)
        is_inside = lock._is_owned()  # of a call, from which C refuses another
        try:
            if not is_inside:
                lock.acquire(timeout=min(timeout, threading.TIMEOUT_MAX))
            if lock._is_owned() and self.pending:
                wait_until_idle(self.pending, end - time.monotonic())
            rest = end - time.monotonic()
            if rest <= 0 or not lock._is_owned():
                raise DeadlineExceeded(
                    "calls of other threads, and those that were submitted, took longer than the "
                    f"call's timeout of {timeout} s"
                )
            set_limits(frame.options, max_steps, rest)
            with self.use():
                return self.call_behind(frame, lib.ingot_python_call(frame))
        finally:  # also where a signal raised just behind `acquire`
            if not is_inside and lock._is_owned():
                lock.release()

    def cancel(self, number: int = 0) -> bool:
        """Ends a submitted call by its number; 0: the one that is running."""
        with self._freeing:
            return bool(self.pointer and lib.ingot_session_cancel(self.pointer, number))

    def close(self) -> None:
        self.closed = self.closed or _CLOSED
        self.cancel(_ALL_CALLS)
        # Inside a use, or where someone with the lock may wait for this thread, `__del__` frees.
        if not self.lock._is_owned() and not (self.pending and why_not_wait()):
            with self.lock:
                self._free()

    def _free(self) -> None:
        with self._freeing:
            pointer, self.pointer = self.pointer, ffi.NULL
            if pointer:
                lib.ingot_session_release(pointer)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # Other finalizers of the same garbage may still come and call.
        self.closed = self.closed or _CLOSED
        if not is_finalizing():
            self._free()

    # Traces.

    def begin_trace(self, trace: int) -> Recorder:
        """What records from now on, until `end_trace` of the same trace."""
        with self.use() as pointer:
            recorder = self._recorder or Recorder()
            check(lib.ingot_session_set_trace(pointer, recorder.function, recorder.pointer))
            self._recorder = recorder
            self._traces.add(trace)
            recorder.pointer.keeps = True
            return recorder

    def end_trace(self, trace: int) -> None:
        self._traces.discard(trace)
        with self.lock:
            recorder = self._recorder
            if self._traces or recorder is None:
                return
            recorder.pointer.keeps = False
            if self.pointer:
                self._replace_recorder(recorder)

    def _replace_recorder(self, old: Recorder) -> None:
        """Lets go of what a trace has kept; the file of INGOT_TRACE goes on."""
        new = Recorder() if old.pointer.timeline else None
        function = new.function if new else ffi.NULL
        user = new.pointer if new else ffi.NULL
        status = lib.ingot_session_set_trace(self.pointer, function, user)
        if not status:
            self._recorder = new
        # Refused inside a call, where a finalizer may run; then C still has the old one.
        lib.ingot_status_free(status)

    # Forks of the process.

    def check_forkable(self) -> None:
        if self.closed and self.closed is not _FORKED:
            raise FailedPrecondition(self.closed)

    def after_fork(self) -> None:
        """In the child: what another thread of the parent was using is lost, with its lock."""
        self._freeing = threading.RLock()
        if self.pending:
            self.pending = set()
            self.closed = self.closed or _FORKED
            self.pointer = ffi.NULL
        if self.lock._is_owned():
            return
        if not self.lock.acquire(blocking=False):
            self.lock = threading.RLock()
            self.closed = self.closed or _FORKED
            self.pointer = ffi.NULL  # not freed: it may be half changed
            return
        self.lock.release()


def _after_fork() -> None:
    natives.after_fork()
    forget_submissions()
    for session in list(_sessions):
        session.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

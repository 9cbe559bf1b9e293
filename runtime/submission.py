"""Calls that do not wait: `Submission`, the future of one.

Threads of the runtime make the calls without the interpreter and leave them in a list; one thread
of Python's, which starts with the first submission, reads it and completes the futures. So a call
that has ended never keeps the next one waiting for the interpreter's lock.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any

from ingot.hal.device import instance
from ingot.hal.errors import FailedPrecondition
from ingot.hal.native import check, ffi, keep_error, lib, raised
from ingot.runtime.fence import fence_values
from ingot.runtime.frame import Frame

if TYPE_CHECKING:
    from ingot.runtime.session import Session

__all__ = ["Submission", "forget_submissions", "submit", "wait_until_idle"]


class Submission(Future[Any]):
    """A submitted call. It is pending until it has ended, running or not: `cancel` keeps it from
    beginning, or ends it."""

    def __init__(self, session: Session, frame: Frame, keep: list[Any]) -> None:
        super().__init__()
        self.pointer = ffi.new("ingot_python_submission_t *")
        self.pointer.frame = frame.pointer
        self.error: BaseException | None = None  # that Python raised inside the call
        self._session = session
        self._frame = frame
        self._keep = keep
        self._take: Callable[[], Any]
        self._release: Callable[[], object]

    def cancel(self) -> bool:
        """Whether it has not ended. Arguments and `out=` are in use until `done` futures say
        that it has: `concurrent.futures.wait` waits for that."""
        if not super().cancel():
            return False
        self._session.cancel(self.pointer.number)
        return True

    def end(self) -> None:
        """Completes the future of a call that has ended."""
        result, error = None, self.error
        try:
            status, self.pointer.status = self.pointer.status, ffi.NULL
            if error is not None:
                lib.ingot_status_free(status)
            else:
                check(status)
                result = self._take()
        except BaseException as raised_now:
            error = raised_now
        self._release()
        self._keep = []
        self._session.pending.discard(self)
        if not self.set_running_or_notify_cancel():
            return
        if error is None:
            self.set_result(result)
        else:
            self.set_exception(error)


def submit(
    session: Session,
    frame: Frame,
    keep: list[Any],
    take: Callable[[], Any],
    release: Callable[[], object],
    wait_for: Iterable[Any],
    signal: Iterable[Any],
) -> Submission:
    """Queues the call of a frame. When it has ended, `take` gives its results, and `release` may
    use the frame for the next call."""
    waits, _waited = fence_values("wait_for=", wait_for)  # until C has taken them
    signals, _signalled = fence_values("signal=", signal)
    submission = Submission(session, frame, keep)
    submission._take, submission._release = take, release
    submission.pointer.ended = _reader().ended
    _submissions[submission.pointer] = submission
    session.pending.add(submission)
    try:
        counted = (waits, len(waits), signals, len(signals))
        session.submit(submission.pointer, counted)
    except BaseException:
        _submissions.pop(submission.pointer, None)
        session.pending.discard(submission)
        raise
    return submission


# All that have not ended, by their C structs.
_submissions: dict[Any, Submission] = {}


@ffi.def_extern(name="ingot_python_failed", onerror=keep_error)  # type: ignore[untyped-decorator]
def _failed(pointer: Any) -> None:
    """On the thread that made the call: what Python raised there belongs to it."""
    error = raised.pop(threading.get_ident(), None)
    if error is not None:
        _submissions[pointer].error = error


class _Reader:
    """The thread that completes futures."""

    def __init__(self) -> None:
        out = ffi.new("ingot_fence_t **")
        check(lib.ingot_fence_create(instance().pointer, 0, out))  # it lives as long as the process
        self.ended = ffi.new("ingot_python_ended_t *")
        self.ended.fence = out[0]
        self.ending = threading.Lock()  # held while futures are completed, and callbacks called
        self.thread = threading.Thread(target=self._read, name="ingot-futures", daemon=True)
        self.thread.start()

    def _read(self) -> None:
        while True:
            pointer = lib.ingot_python_take_ended(self.ended)
            with self.ending:
                ended = []
                while pointer:
                    ended.append(_submissions.pop(pointer))
                    pointer = pointer.next
                while ended:
                    ended.pop().end()


_readers: list[_Reader] = []  # one, unless two threads make the first submission at once


def _reader() -> _Reader:
    if not _readers:
        _readers.append(_Reader())
        atexit.register(_wait_for_all)
    return _readers[0]


def _wait_for_all() -> None:
    """At the end of the program, as that of executors does."""
    while True:
        wait(list(_submissions.values()))
        for reader in _readers:
            reader.ending.acquire()  # the last callbacks have returned; it stays so
        if not _submissions:
            return
        for reader in _readers:
            reader.ending.release()


def wait_until_idle(pending: set[Any], timeout: float | None = None) -> None:
    """Returns when submitted calls of one model have ended, or after the time.
    FailedPrecondition: this thread would wait for itself."""
    if any(reader.thread is threading.current_thread() for reader in _readers):
        raise FailedPrecondition(
            "a callback of a future cannot wait for calls that were submitted to the same model; "
            "submit the call too, or make it in another thread"
        )
    wait(list(pending), timeout)


def forget_submissions() -> None:
    """In a child of the process: its parent's calls do not end here."""
    _submissions.clear()
    _readers.clear()

"""Calls that do not wait: `Submission`, the future of one.

Threads of the runtime make the calls without the interpreter and leave them in a list, from which
futures are completed: by a thread that waits for one's result, unless it is the main thread, where
a signal may raise anywhere, else by a thread of their own, which starts with the first submission.
So a call that has ended never keeps the next one waiting for the interpreter's lock.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any

from ingot.hal.device import instance
from ingot.hal.errors import FailedPrecondition, OutOfMemory
from ingot.hal.native import Uncopied, check, ffi, keep_error, lib, raised
from ingot.runtime.fence import fence_values
from ingot.runtime.frame import Frame
from ingot.runtime.natives import is_in_native

if TYPE_CHECKING:
    from ingot.runtime.function import Function
    from ingot.runtime.session import Session

__all__ = ["Submission", "check_wait", "forget_submissions", "wait_until_idle", "why_not_wait"]

_FOREVER = -1
_SLICE = 50_000_000  # nanoseconds that a wait does not hear signals


class Submission(Uncopied, Future[Any]):
    """A submitted call. It is pending until it has ended, running or not: `cancel` keeps it from
    beginning, or ends it."""

    def __init__(
        self,
        function: Function,
        session: Session,
        frame: Frame,
        keep: list[Any],
        outputs: Any,
        ended: Callable[[Any, BaseException | None], None] | None,
    ) -> None:
        """`ended` gets the result or the error before anyone who waits."""
        super().__init__()
        self.error: BaseException | None = None  # that Python raised inside the call
        self.is_queued = False  # C has it: the frame is in use until `end`
        self._function = function
        self._session = session
        self._frame = frame
        self._keep = keep
        self._outputs = outputs
        self._ended = ended
        self._reader = _reader()

    def submit(self, wait_for: Sequence[Any], signal: Sequence[Any]) -> None:
        """Queues the call; see `Function.submit`."""
        waits, waited = fence_values("wait_for=", wait_for, self._session.device)
        signals, signalled = fence_values("signal=", signal, self._session.device)
        pointer = self._frame.submission
        if pointer is None:
            pointer = self._frame.submission = ffi.new("ingot_python_submission_t *")
            pointer.frame = self._frame.pointer
        pointer.ended = self._reader.ended
        pointer.number = 0
        pending = self._session.pending
        try:
            _submissions[pointer] = self
            pending.add(self)
            self._session.submit(pointer, waits, len(waited), signals, len(signalled))
        except BaseException:
            self.is_queued = pointer.number != 0  # a signal raised behind C
            if not self.is_queued:
                _submissions.pop(pointer, None)
                pending.discard(self)
            raise
        self.is_queued = True
        self._number = pointer.number

    def cancel(self) -> bool:
        """Whether it has not ended. Its arguments and `out=` are in use until it has:
        `concurrent.futures.wait` waits for that."""
        if not super().cancel():
            return False
        self._session.cancel(self._number)
        return True

    def result(self, timeout: float | None = None) -> Any:
        return super().result(timeout if self.done() else self._lead(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return super().exception(timeout if self.done() else self._lead(timeout))

    def _lead(self, timeout: float | None) -> float | None:
        """Completes futures until this one is; gives what is left of the time."""
        thread = threading.get_ident()
        if thread == threading.main_thread().ident or thread in _completing:
            return timeout
        end = None if timeout is None else time.monotonic() + timeout
        while not self.done():
            rest = _SLICE if end is None else min(_SLICE, (end - time.monotonic()) * 1e9)
            if rest <= 0:
                break
            self._reader.complete(True, int(rest))
        return None if end is None else max(0.0, end - time.monotonic())

    def lose(self) -> None:
        """Fails in a child of the process, where other threads, with the locks that they held, and
        who waits on them are no more."""
        self._condition = threading.Condition()
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []
        if not self.done():
            self.set_exception(
                FailedPrecondition(
                    "the call was submitted before the process forked, and ends in the parent "
                    "alone; submit it here, to model.fork(state=False)"
                )
            )

    def end(self, pointer: Any) -> None:
        """Completes the future of a call that has ended."""
        result, error = None, self.error
        status, pointer.status = pointer.status, ffi.NULL
        try:
            if error is not None:
                lib.ingot_status_free(status)
            else:
                check(status)
                result = self._function.take(self._frame, self._outputs)
        except BaseException as found:
            error = found
        self._function.release(self._frame)
        self._keep = []
        self._session.pending.discard(self)
        if self._ended is not None:
            self._ended(result, error)
        if not self.set_running_or_notify_cancel():
            return
        if error is None:
            self.set_result(result)
        else:
            self.set_exception(error)


# All that have not ended, by their C structs, and the threads that complete futures just now.
_submissions: dict[Any, Submission] = {}
_completing: set[int] = set()


@ffi.def_extern(name="ingot_python_failed", onerror=keep_error)  # type: ignore[untyped-decorator]
def _failed(pointer: Any) -> None:
    """On the thread that made the call: what Python raised there belongs to it."""
    error = raised.pop(threading.get_ident(), None)
    if error is not None:
        _submissions[pointer].error = error


class _Reader:
    """The list of what has ended, and a thread that empties it."""

    def __init__(self) -> None:
        self.is_lost = False  # its process is another one
        out = ffi.new("ingot_fence_t *[2]")  # they live as long as the process
        self.ended = ffi.new("ingot_python_ended_t *")
        for place in range(2):
            check(lib.ingot_fence_create(instance().pointer, 0, out + place))
            self.ended.fences[place] = out[place]
        self.thread = threading.Thread(target=self._read, name="ingot-futures", daemon=True)
        try:
            self.thread.start()
        except RuntimeError as error:
            raise OutOfMemory(f"the system starts no thread for futures: {error}") from None

    def _read(self) -> None:
        while not self.is_lost:
            self.complete(False, _FOREVER)

    def complete(self, leads: bool, timeout: int) -> None:
        """Waits until something has ended, and completes its futures."""
        pointer = lib.ingot_python_take_ended(self.ended, leads, timeout)
        if not pointer:
            return
        ended, thread = [], threading.get_ident()
        while pointer:
            ended.append(pointer)
            pointer = pointer.next
        _completing.add(thread)
        try:
            while ended and not self.is_lost:
                pointer = ended.pop()
                _submissions.pop(pointer).end(pointer)
        finally:
            _completing.discard(thread)


_readers: list[_Reader] = []  # one, unless two threads make the first submission at once


def _reader() -> _Reader:
    if not _readers:
        _readers.append(_Reader())
        atexit.register(_wait_for_all)
    return _readers[0]


def _wait_for_all() -> None:
    """At the end of the program, as that of executors does; callbacks have returned too."""
    while _submissions or _completing:
        wait(list(_submissions.values()), 1)
        time.sleep(0.001)


def why_not_wait() -> str:
    """Why this thread would perhaps wait for itself if it waited for submitted calls, or for
    someone who waits for them; "" if it would not."""
    if threading.get_ident() in _completing:
        return (
            "a callback of a future cannot wait for calls that were submitted to the same model; "
            "submit the call too, or make it in another thread"
        )
    if is_in_native():
        return (
            "a native function cannot wait for calls that were submitted to a model, for it may be "
            "one of those; call another model of the same module: model.fork()"
        )
    return ""


def check_wait(pending: set[Any]) -> None:
    """FailedPrecondition: some are pending, and this thread must not wait; see `why_not_wait`."""
    if pending and (reason := why_not_wait()):
        raise FailedPrecondition(reason)


def wait_until_idle(pending: set[Any], timeout: float | None = None) -> None:
    """Returns when submitted calls of one model have ended, or after the time. Raises as
    `check_wait`."""
    check_wait(pending)
    wait(list(pending), timeout)


def forget_submissions() -> None:
    """In a child of the process: its parent's calls do not end here, so that their futures fail."""
    for each in _readers:
        each.is_lost = True
    for submission in _submissions.values():
        submission.lose()
    _submissions.clear()
    _completing.clear()
    _readers.clear()

"""Calls that stop at instructions, for debuggers: `ingot run --break`.

C looks at every instruction and calls Python only where it is to stop, so that a call runs fast
up to there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ingot.hal.errors import OutOfRange
from ingot.hal.native import check, ffi, keep_error, lib, text

if TYPE_CHECKING:
    from ingot.runtime.session import Session

__all__ = ["Debugger", "Stop"]


class Stop:
    """A call before the instruction at `word` of its function; only while it is looked at."""

    def __init__(self, pointer: Any, count: int) -> None:
        self._pointer = pointer
        self.count = count  # of instructions that the call has come to, with this one
        self.word = int(pointer.word)
        self.layer = text(pointer.layer)
        self.operations = text(pointer.operations)
        self.counts = {"i": pointer.i64_count, "f": pointer.f64_count, "r": pointer.buffer_count}

    def number(self, kind: str, register: int) -> int | float:
        """What is in a register of kind "i" or "f"; 0 before it is written."""
        self._check(kind, register)
        found: int | float = (self._pointer.i64 if kind == "i" else self._pointer.f64)[register]
        return found

    def length(self, register: int) -> int | None:
        """The bytes of the buffer in a reference register; None: there is none yet."""
        self._check("r", register)
        buffer = self._pointer.buffers[register]
        return lib.ingot_buffer_length(buffer) if buffer else None

    def read(self, register: int, offset: int, length: int) -> bytes:
        """Bytes of that buffer, behind the work that was queued before. OutOfRange: it is shorter,
        or there is none."""
        total = self.length(register)
        if total is None or not 0 <= offset <= offset + length <= total:
            raise OutOfRange(f"bytes {offset} to {offset + length} of {total or 'no'} bytes")
        data = bytearray(length)
        memory = ffi.from_buffer(data, require_writable=True)
        check(lib.ingot_buffer_read(self._pointer.buffers[register], offset, memory, length))
        return bytes(data)

    def _check(self, kind: str, register: int) -> None:
        if not 0 <= register < self.counts[kind]:
            raise OutOfRange(f"register {kind}{register}, the function has {self.counts[kind]}")


class Debugger:
    """`with Debugger(...): model(x)`: calls `stopped` at the words in `stops`, and everywhere
    while `steps`; where that gives False the call ends with Cancelled. The function that is called
    has `length` words."""

    def __init__(self, session: Session, length: int, stopped: Callable[[Stop], bool]) -> None:
        self._session = session
        self._stopped = stopped
        self._stops = ffi.new("uint8_t[]", length)
        self._handle = ffi.new_handle(self)
        self._pointer = ffi.new("ingot_python_debugger_t *")
        self._pointer.stops = self._stops
        self._pointer.user = self._handle

    def set_stop(self, word: int, is_on: bool = True) -> None:
        self._stops[word] = is_on

    @property
    def steps(self) -> bool:
        return bool(self._pointer.steps)

    @steps.setter
    def steps(self, steps: bool) -> None:
        self._pointer.steps = steps

    def __enter__(self) -> Debugger:
        function = ffi.addressof(lib, "ingot_python_debug")
        with self._session.use() as session:
            check(lib.ingot_session_set_debug(session, function, self._pointer))
        return self

    def __exit__(self, *error: object) -> None:
        with self._session.use() as session:
            check(lib.ingot_session_set_debug(session, ffi.NULL, ffi.NULL))

    def stop(self, pointer: Any) -> bool:
        return self._stopped(Stop(pointer, self._pointer.count))


@ffi.def_extern(name="ingot_python_stopped", onerror=keep_error, error=False)  # type: ignore[untyped-decorator]
def _stopped(handle: Any, pointer: Any) -> bool:
    debugger: Debugger = ffi.from_handle(handle)
    return debugger.stop(pointer)

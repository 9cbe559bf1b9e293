"""What ends a call before its end: limits of steps and time, and signals.

Python runs signal handlers on the main thread only, and not while that is in C. So C asks every
few milliseconds of a call there whether it is to go on; what a handler raises ends the call.
"""

from __future__ import annotations

from threading import get_ident
from typing import Any

from ingot.hal.errors import InvalidArgument
from ingot.hal.native import ffi, keep_error, lib, raised

__all__ = ["LONGEST", "set_limits"]

_LARGEST = 2**63 - 1
LONGEST = _LARGEST // 10**9  # seconds


def set_limits(options: Any, max_steps: int | None, timeout: float | None) -> None:
    """Sets the limits in C options; None: no limit. InvalidArgument: they are no limits."""
    if max_steps is not None and (not isinstance(max_steps, int) or max_steps < 1):
        raise InvalidArgument(f"max_steps is {max_steps!r}, but must be an integer above 0")
    if timeout is not None and (not isinstance(timeout, (int, float)) or not timeout > 0):
        raise InvalidArgument(f"timeout is {timeout!r}, but must be seconds above 0")
    options.max_steps = min(max_steps or 0, _LARGEST)
    nanoseconds = float(min(timeout or 0, LONGEST)) * 1e9  # also of infinity
    options.timeout = min(max(int(nanoseconds), int(timeout is not None)), _LARGEST)
    options.should_stop = lib.ingot_python_should_stop


@ffi.def_extern(name="ingot_python_handle_signals", onerror=keep_error, error=True)  # type: ignore[untyped-decorator]
def _handle_signals() -> bool:
    # Handlers of signals that have come run when Python enters this function, or have before.
    return get_ident() in raised

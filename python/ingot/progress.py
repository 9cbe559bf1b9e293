"""A line on the terminal that shows that long work goes on: which step, for how long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from ingot.hal.printable import printable

__all__ = ["show_progress"]

_INTERVAL = 0.2  # seconds between updates; shorter work shows nothing


@contextmanager
def show_progress(what: str) -> Iterator[Callable[[str], None]]:
    """Shows `what`, the step and the seconds on standard error, if that is a terminal.

    Gives the function to call with the name of every step.
    """
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    begin = time.monotonic()
    is_done = threading.Event()
    step_now = ""

    def set_step(step: str) -> None:
        nonlocal step_now
        step_now = step

    def show() -> None:
        while not is_done.wait(_INTERVAL):
            line = f"{what}: {step_now} ({time.monotonic() - begin:.1f} s)"
            print(f"\r\033[K{printable(line)}", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=show, daemon=True)
    has_thread = False
    with suppress(RuntimeError):  # the system starts no more of them
        thread.start()
        has_thread = True
    try:
        yield set_step
    finally:
        is_done.set()
        if has_thread:
            thread.join()
        print("\r\033[K", end="", file=sys.stderr, flush=True)

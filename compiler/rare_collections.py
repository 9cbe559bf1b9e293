"""Lets Python look for garbage in cycles less often for a while.

Ops and values refer to each other, and most of them live as long as the compiler works: looking
through all of them again and again takes half of its time. What dies is found nevertheless, later.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

__all__ = ["rare_collections"]

_OBJECTS = 100_000
"""How many new objects make a collection due."""

_lock = Lock()
_before: list[tuple[int, int, int]] = []  # the thresholds, once per block that runs


@contextmanager
def rare_collections() -> Iterator[None]:
    """Blocks of several threads may overlap: the last one puts the threshold back."""
    with _lock:
        _before.append(_before[0] if _before else gc.get_threshold())
        first, *others = _before[0]
        gc.set_threshold(first and max(first, _OBJECTS), *others)
    try:
        yield
    finally:
        with _lock:
            thresholds = _before.pop()
            if not _before:
                gc.set_threshold(*thresholds)

"""Gives the memory of arrays that are gone back to the system.

glibc keeps what was freed between blocks that are still in use, up to twice the largest one:
weights, of which passes look at one after the other.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

__all__ = ["return_freed_memory"]


def return_freed_memory() -> None:
    """Takes some tenths of a millisecond; nothing where the C library has no such function."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library; no symbols; Windows
        return None

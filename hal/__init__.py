"""Devices, arrays, and the facts that Python shares with the C runtime.

`hal.spec`, `hal.header` and `hal.errors` need no compiled extension, so the compiler may
import them; `hal.array` and `hal.device` are the Python face of the C runtime.
"""

from __future__ import annotations

__all__: list[str] = []

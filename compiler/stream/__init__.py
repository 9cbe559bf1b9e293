"""The stream level: kernels and copies in queue order, over byte ranges of buffers."""

from __future__ import annotations

__all__: list[str] = []

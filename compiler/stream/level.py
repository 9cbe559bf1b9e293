"""The stream level for the verifier: work in queue order on ranges of buffers."""

from __future__ import annotations

from ingot.compiler.dispatch.level import CALLER_OPS
from ingot.compiler.dispatch.scalar_ops import FLOAT_OPS, INTEGER_OPS
from ingot.compiler.ir import Level

__all__ = ["STREAM"]

_STREAM = ("constant", "parameter", "global", "alias", "dispatch", "copy", "size")

STREAM = Level(
    "stream",
    dict.fromkeys([*CALLER_OPS, *INTEGER_OPS, *FLOAT_OPS, *(f"stream.{each}" for each in _STREAM)]),
)
"""Leaves, aliases, dispatches and copies; control flow and numbers as at the dispatch level."""

"""The stream level for the verifier: work in queue order on ranges of buffers."""

from __future__ import annotations

from ingot.compiler.dispatch.level import CALLER_OPS
from ingot.compiler.dispatch.scalar_ops import FLOAT_OPS, INTEGER_OPS
from ingot.compiler.ir import Level
from ingot.compiler.stream.ops import STREAM_OPS

__all__ = ["STREAM"]

STREAM = Level(
    "stream",
    dict.fromkeys([*CALLER_OPS, *INTEGER_OPS, *FLOAT_OPS, *STREAM_OPS]),
)
"""Leaves, aliases, dispatches and copies; control flow and numbers as at the dispatch level."""

"""Which tokens a text has: for each token the place where it first stands, so that a shorter length
tells which there were."""

from __future__ import annotations

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__ = ["NOWHERE", "seen", "without"]

NOWHERE = (1 << 31) - 1
"""Where a token first stands that is not there."""

_PLACE = dtype("i32")


def seen(b: Builder, first: Value, length: Value) -> Value:
    """Whether tokens that first stand at these places are among so many, i1[vocabulary]."""
    length = b.value("convert", length, dtype=_PLACE)
    length = b.broadcast_to(length, tensor_type(first).shape)
    return b.value("compare", first, length, direction="lt")


def without(b: Builder, first: Value, length: Value) -> Value:
    """The places where tokens first stand, when there are only so many."""
    nowhere = b.full(NOWHERE, _PLACE, tensor_type(first).shape)
    return b.value("select", seen(b, first, length), first, nowhere)

"""What an op does besides computing its results: reading or writing state, checking, failing.

Passes that delete, merge or move ops ask here. An op with regions has the effects of the
ops inside.
"""

from __future__ import annotations

from ingot.compiler.graph.ops import OPS, NativeCall, Size
from ingot.compiler.ir import Op, walk

__all__ = ["can_fail", "effects_of", "has_effect", "is_check", "is_pure"]


_FAILING = frozenset(
    {"size", "assert", "list.insert", "list.erase", "list.get", "native_call", "kernel_call"}
)


def has_effect(op: Op) -> bool:
    """Whether the op itself reads or writes state."""
    return _effect(op) != ""


def _effect(op: Op) -> str:
    if op.name == "native_call":
        return "write" if NativeCall.of(op).effects else ""
    row = OPS.get(op.name)
    return row.effect if row is not None else ""


def effects_of(op: Op) -> set[str]:
    """What the op and the ops in its regions do: "read" or "write" state, "check", or nothing."""
    found: set[str] = set()
    for each in walk(op) if op.regions else (op,):
        if effect := _effect(each):
            found.add(effect)
        if is_check(each):
            found.add("check")
    return found


def is_check(op: Op) -> bool:
    """Whether the op is there to fail, not for the sake of a symbol: a size with one choice too."""
    if op.name == "size":
        return Size.of(op).low == Size.of(op).high
    return op.name == "assert"


def is_pure(op: Op) -> bool:
    """Whether the op only computes its results."""
    return not effects_of(op)


def can_fail(op: Op) -> bool:
    """Whether the op may end the call with an error, so that it must not run unasked."""
    return any(
        each.name in _FAILING or getattr(each.attributes, "mode", "").endswith("check")
        for each in (walk(op) if op.regions else (op,))
    )

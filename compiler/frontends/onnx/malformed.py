"""What a model that breaks the standard does to its import, as a message.

Lowerings rely on the ranks, counts and dims that the standard gives their ops, and check what
a valid model may hold but Ingot cannot compile. What else goes wrong in them is caught here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ingot.compiler.frontends.onnx.node import UnsupportedNode, unsupported

__all__ = ["MALFORMED", "bounded", "well_formed"]

MALFORMED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What Python and the onnx package raise where something is missing or of another kind."""

_GREATEST_COUNT = 1 << 24


@contextmanager
def well_formed() -> Iterator[None]:
    """UnsupportedNode in place of what a node raises that is not as its op's schema wants it."""
    try:
        yield
    except MALFORMED as error:
        raise UnsupportedNode(
            f"its inputs or attributes are not what the op takes ({type(error).__name__}: "
            f"{error}): check ranks, dims and attributes against the ONNX standard"
        ) from error


def bounded(count: int, what: str, most: int = _GREATEST_COUNT) -> int:
    """A count of elements that are made here. UnsupportedNode: there would be too many."""
    unsupported(not 0 <= count <= most, f"{what} is {count}, expected 0 to {most}: fix the model")
    return count

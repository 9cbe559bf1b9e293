"""What each graph op means, as NumPy code: one function per op, found by the op's name.

A reference takes arrays (of ml_dtypes for bf16, f8 and sub-byte types) and the op's
attributes with all dims as integers, and returns an array or a tuple of arrays. These
functions define the language: the interpreter, constant folding, baking, and the tests of
every level below use them. They are exact rather than fast; `sort` gets its comparator
as a Python callable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ingot.compiler.graph.references import (
    boxes,
    contraction,
    control,
    elementwise,
    indexed,
    leaves,
    lists,
    natives,
    reduction,
    shape,
    sizing,
)
from ingot.hal.errors import CompileError

__all__ = ["reference_of"]

_FAMILIES = (
    leaves,
    elementwise,
    shape,
    indexed,
    reduction,
    contraction,
    control,
    sizing,
    boxes,
    lists,
    natives,
)


def reference_of(name: str) -> Callable[..., Any]:
    """The reference of an op. Raises CompileError if it has none (terminators, leaves)."""
    for family in _FAMILIES:
        function: Callable[..., Any] | None = family.REFERENCES.get(name)
        if function is not None:
            return function
    raise CompileError(f"op '{name}' has no NumPy reference")

"""The IR that all levels share: values, ops, types, symbolic dims, text form, verifier."""

from __future__ import annotations

from ingot.compiler.ir import core, dims, types
from ingot.compiler.ir.core import *  # noqa: F403
from ingot.compiler.ir.parser import parse, parse_function, parse_type
from ingot.compiler.ir.printer import attribute_text, to_text
from ingot.compiler.ir.types import *  # noqa: F403
from ingot.compiler.ir.verifier import Level, verify

__all__ = [
    *core.__all__,
    *types.__all__,
    "Level",
    "attribute_text",
    "dims",
    "parse",
    "parse_function",
    "parse_type",
    "to_text",
    "verify",
]

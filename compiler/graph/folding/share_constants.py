"""Makes equal constants of several functions one, so that a module stores shared weights once.

Within a function `eliminate_common_subexpressions` does that; here equal arrays of different
functions become the same array, which is what later levels compare large constants by.
"""

from __future__ import annotations

import hashlib

from ingot.compiler.graph.ops import Constant
from ingot.compiler.ir import Literal, Module, walk

__all__ = ["share_constants"]


def share_constants(module: Module) -> Module:
    """Share the constants of all functions; returns the module."""
    if len(module.functions) < 2:
        return module
    known: dict[object, Literal] = {}
    for op in walk(module):
        if op.name == "constant":
            literal = Constant.of(op).value
            digest = hashlib.blake2b(literal.array.reshape(-1).view("u1").data).digest()
            key = (literal.dtype.name, literal.shape, digest)
            op.attributes = Constant(known.setdefault(key, literal))
    return module

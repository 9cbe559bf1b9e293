"""`ingot.compile`: the compiler, and the runtime's verifier on what it made.

The compiler itself needs no compiled extension; here, where both are at hand, no module leaves
that `ingot.load` would refuse.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from ingot import compiler
from ingot.compiler import Module
from ingot.hal.errors import DataLoss, Internal
from ingot.runtime.program import load_module

__all__ = ["compile"]


@wraps(compiler.compile)
def compile(source: Any, **options: Any) -> Module:
    module = compiler.compile(source, **options)
    try:
        load_module(module, verify=False).release()
    except DataLoss as error:
        raise Internal(
            f"the compiler made a module that does not load: {error}; please report it"
        ) from None
    return module

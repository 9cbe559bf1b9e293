"""The functions that run once, when a program is made: `init`, and one for each further scope of
parameters, `init.1`, `init.2`, ... No source can name a function so."""

from __future__ import annotations

from collections.abc import Iterator

from ingot.compiler.ir import Function, Module

__all__ = ["INIT", "init_functions", "is_init"]

INIT = "init"


def is_init(name: str) -> bool:
    """Whether the function of this name is one of them."""
    return name == INIT or name.startswith(f"{INIT}.")


def init_functions(module: Module) -> Iterator[Function]:
    """All of a module, in the order of the globals that they make."""
    return (each for each in module.functions.values() if is_init(each.name))

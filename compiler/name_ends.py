"""Names for arguments and results of functions whose text names none."""

from __future__ import annotations

from ingot.compiler.ir import Module

__all__ = ["name_ends"]


def name_ends(module: Module) -> None:
    """Give them the names argument0, ... and result0, ..."""
    for function in module.functions.values():
        if not function.body.blocks or not function.block.ops:
            continue  # which the verifier refuses
        if not function.argument_names:
            function.argument_names = [f"argument{n}" for n in range(len(function.arguments))]
        if not function.result_names:
            count = len(function.block.terminator.operands)
            function.result_names = [f"result{n}" for n in range(count)]

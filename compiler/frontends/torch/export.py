"""What is in memory, an exported program or a module, as the archive that torch.export saves."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ingot.compiler.frontends.torch.lowering import LOWERINGS
from ingot.hal.errors import CompileError

__all__ = ["exported_bytes", "kept_decompositions"]


def exported_bytes(
    source: Any, example_inputs: Sequence[Any] | None = None, dynamic_shapes: Any = None
) -> bytes:
    """The archive of the program, which is exported first if it is a module.

    In-place writes become functional; ops that have a lowering of their own stay whole. What torch
    cannot decompose is taken as it was exported. CompileError: torch cannot export or save it.
    """
    import torch

    if isinstance(source, torch.nn.Module):
        source = _exported(torch, source, example_inputs, dynamic_shapes)
    elif example_inputs is not None or dynamic_shapes is not None:
        raise CompileError(
            "example_inputs and dynamic_shapes are for a torch.nn.Module: an exported program "
            "has its own"
        )
    table = kept_decompositions(torch.export.default_decompositions())
    data = io.BytesIO()
    try:
        with suppress(RuntimeError):  # such as a loop that gives what it was given
            source = source.run_decompositions(table)
        torch.export.save(source, data)
    except Exception as error:
        raise CompileError(
            f"torch cannot save the exported program ({type(error).__name__}: {error}): save it "
            "with torch.export.save to see why"
        ) from error
    return data.getvalue()


def kept_decompositions(table: Any) -> Any:
    """A table of decompositions without those of ops that have a lowering of their own."""
    for op in list(table.keys()):
        if str(op) in LOWERINGS and not _writes_or_aliases(op):
            table.pop(op)
    return table


def _exported(torch: Any, module: Any, example_inputs: Any, dynamic_shapes: Any) -> Any:
    if example_inputs is None:
        raise CompileError(
            "a torch.nn.Module needs example inputs to be exported: "
            "ingot.compile(module, example_inputs=(x,))"
        )
    inputs = tuple(example_inputs) if isinstance(example_inputs, (list, tuple)) else None
    if inputs is None:
        raise CompileError(
            f"example_inputs is a {type(example_inputs).__name__}, expected the tuple of arguments"
        )
    try:
        return torch.export.export(module, inputs, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        raise CompileError(
            f"torch.export.export refuses the module ({type(error).__name__}): {error}"
        ) from error


def _writes_or_aliases(op: Any) -> bool:
    """Whether its schema has a (a!) or (a), which cannot be kept whole."""
    return re.search(r"\([a-z*](!?)( ?-> ?\*)?\)", str(getattr(op, "_schema", ""))) is not None

"""What another engine has for a tensor of a source program, beside what was imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from ingot.compiler import ir
from ingot.compiler.graph.interpreter import interpret

__all__ = ["PeerTensor", "interpret_from"]

_Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class PeerTensor:
    """A tensor: `expected` by the engine; `own` by the interpreter from what the engine has for
    all tensors before it, `whole` from the arguments."""

    name: str
    expected: _Array
    own: _Array
    whole: _Array


def interpret_from(
    module: ir.Module,
    arguments: Sequence[Any],
    weights: Mapping[str, _Array],
    replaced: Mapping[str, _Array],
) -> dict[str, _Array]:
    """What the interpreter makes of every result of the module, where those in `replaced` go on
    as they are there, if they have the right type."""
    function = module.functions["main"]
    names: dict[ir.Value, list[str]] = {}
    for name, value in zip(function.result_names, function.block.terminator.operands, strict=True):
        names.setdefault(value, []).append(name)
    made: dict[str, _Array] = {}

    def listen(value: ir.Value, array: Any) -> Any:
        for name in names.get(value, ()):
            made[name] = array
            other = replaced.get(name)
            if other is not None and (other.shape, other.dtype) == (array.shape, array.dtype):
                array = other
        return array

    results = interpret(module, "main", arguments, weights, listener=listen)
    return dict(zip(function.result_names, results, strict=True)) | made

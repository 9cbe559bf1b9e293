"""Gives dims that depend on data the names that the model's outputs declare for them.

Nodes name such dims after their own outputs. Where a graph output says `dim_param`, callers
know that name, so the symbol gets it, unless it means something else already.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from ingot.compiler.graph.symbols import inner_symbols, rename_symbols
from ingot.compiler.ir import Function, TensorType
from ingot.compiler.ir.dims import Dim, Expr, symbol, symbols_of

__all__ = ["name_sizes"]


def name_sizes(function: Function, outputs: Mapping[str, onnx.ValueInfoProto]) -> None:
    """Rename symbols that ops of the function define to what its results, by name, declare."""
    fresh = inner_symbols(function)
    taken = {*fresh, *function.symbols}
    names: dict[str, str] = {}
    for name, type in zip(function.result_names, function.result_types, strict=True):
        if not isinstance(type, TensorType) or name not in outputs:
            continue
        declared = outputs[name].type.tensor_type.shape.dim
        for dim, wanted in zip(type.shape, declared, strict=False):
            old, new = _symbol_name(dim), wanted.dim_param
            if old in fresh and old not in names and new.isidentifier() and new not in taken:
                names[old] = new
                taken.add(new)
    rename_symbols(function, names)


def _symbol_name(dim: Dim) -> str:
    """The symbol that the dim is, "" if it is no plain symbol."""
    names = symbols_of(dim) if isinstance(dim, Expr) else set()
    name = next(iter(names), "")
    return name if len(names) == 1 and dim == symbol(name) else ""

"""Splits `nonzero` into two steps that kernels can do: count, then fill.

The count becomes a size on the host, which the second kernel's result has as its dim. Both
kernels work on fixed runs of elements, so the order never depends on the threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops import defined_symbols
from ingot.compiler.graph.rewriter import rewrite
from ingot.compiler.ir import Module, Op, Value
from ingot.compiler.ir.dims import product, symbol
from ingot.hal.spec import dtype

__all__ = ["expand_nonzero"]


def expand_nonzero(module: Module) -> Module:
    """Expand every `nonzero` of the module; returns the module."""
    for function in module.functions.values():
        rewrite(function.block, _expand)
    return module


def _expand(op: Op, builder: Builder) -> Sequence[Value] | None:
    if op.name != "nonzero":
        return None
    (x,) = op.operands
    (name,) = defined_symbols(op)
    if not tensor_type(x).dtype.is_boolean:
        x = builder.value("convert", x, dtype=dtype("i1"))
    counts = builder.value("count_true", x)
    total = builder.value("reduce", counts, axes=(0,), kind="add")
    greatest = product(tensor_type(x).shape)
    what = "the count of places that are not 0"
    builder.append("size", (total,), (), {"symbols": (name,), "high": greatest, "what": what})
    return [builder.value("locate_true", x, counts, size=symbol(name))]

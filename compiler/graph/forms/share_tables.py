"""Looks rows of a table up in the panels that a product reads, where both are of one weight.

A model whose logits are products with its table of embeddings has that weight in two layouts, rows
and panels, and the file, or the memory, holds it twice. A row of the table is a column of the
panels, of which 16 stand beside each other: a lookup reads it there. Comes right behind
`pack_weights`, so that the panels made here are the same value as those of the product.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.forms.pack_weights import pack
from ingot.compiler.graph.forms.panel_rows import PanelRows
from ingot.compiler.graph.ops import Take, Transpose
from ingot.compiler.graph.rewriter import defined_by, rewrite, tensor_ops, weights_of
from ingot.compiler.ir import Function, Module, Op, Value
from ingot.compiler.ir.dims import known_dim

__all__ = ["share_tables"]

_LEAST = 1 << 20
"""Bytes of a table for which it is worth it."""


def share_tables(module: Module) -> Module:
    """Rewrite lookups of tables that are multiplied too; returns the module."""
    eliminate_dead_code(module)  # what packing has left would count as a use
    for function in module.functions.values():
        tables = _tables(function)

        def rule(op: Op, builder: Builder, tables: set[Value] = tables) -> Sequence[Value] | None:
            if not _is_lookup(op) or op.operands[0] not in tables:
                return None
            return [_looked_up(op, builder)]

        if tables:
            rewrite(function.block, rule)
    return module


def _is_lookup(op: Op) -> bool:
    return op.name == "take" and Take.of(op).axis == 0


def _tables(function: Function) -> set[Value]:
    """Weights that are read by lookups of rows and by a product with their columns only."""
    weights = weights_of(function)
    ops = list(tensor_ops(function.block))
    products = [_table_of(op.operands[1]) for op in ops if op.name == "dot_packed"]
    found = {table for table in products if table is not None and table in weights}
    others = {each for op in ops if not _is_lookup(op) and op.name != "transpose"
              for each in op.operands}  # fmt: skip
    looked_up = {op.operands[0] for op in ops if _is_lookup(op)}
    return {each for each in found & looked_up - others if _length(each) >= _LEAST}


def _length(table: Value) -> int:
    type = tensor_type(table)
    rows, columns = map(known_dim, type.shape)
    return rows * columns * type.dtype.bytes


def _table_of(panels: Value) -> Value | None:
    """The matrix whose rows are the columns of these panels, as `pack` makes them."""
    value: Value = panels
    for names in (("transpose",), ("reshape",)):
        op = defined_by(value, *names)
        if op is None:
            return None
        value = op.operands[0]
    padded = defined_by(value, "pad")
    turned = defined_by(value if padded is None else padded.operands[0], "transpose")
    if turned is None or Transpose.of(turned).permutation != (1, 0):
        return None
    return turned.operands[0]


def _looked_up(op: Op, builder: Builder) -> Value:
    """Rows [..., k] of the table, from its panels [ceil(n/16), ceil(k/s), 16, s]."""
    table = op.operands[0]
    panels = pack(builder.value("transpose", table, permutation=(1, 0)), builder)
    rows = PanelRows(op, builder)
    return rows.first(rows.of(panels), known_dim(tensor_type(table).shape[1]))

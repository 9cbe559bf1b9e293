"""Lets products with weights of one coding and several widths share a kernel.

Layers multiply the same rows with matrices that differ in how many columns they have: queries, keys
and values, or both inner matrices of a network. Kernels of coded weights are long, and another one
costs a C compiler more than a number costs a loop over panels: columns become multiples of a
symbol. Only widths that are whole panels, and get the same tile, share one.
"""

from __future__ import annotations

from ingot.compiler.dispatch.share_shapes import shared_entries
from ingot.compiler.graph.ops import PANEL, DotCoded
from ingot.compiler.ir import Function, Module, tensor_type
from ingot.compiler.ir.dims import product

__all__ = ["share_widths"]

_WIDEST = 4
"""Panels of a tile, at most; what divides their count by 3 and 4 decides."""


def share_widths(module: Module) -> Module:
    """Make entries of coded products that differ in their width alone one entry; returns the
    module."""
    return shared_entries(module, _kind)


def _kind(entry: Function) -> object:
    """What products that may share an entry have in common; None: it is none of them."""
    roots = [op for op in entry.block.ops if isinstance(op.attributes, DotCoded)]
    if len(roots) != 1 or any(op.regions for op in entry.block.ops):
        return None
    n, rows = DotCoded.of(roots[0]).n, tensor_type(roots[0].operands[0]).shape
    if not isinstance(n, int) or n % PANEL or n <= _WIDEST * PANEL:
        return None
    if isinstance(count := product(rows[:-1]), int) and count != 1:
        return None  # widths have a say in how rows are cut, where their count is known
    panels = n // PANEL
    return rows, panels % 3 == 0, panels % 4 == 0

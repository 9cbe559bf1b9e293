"""Lets products with weights of one coding, and convolutions by Winograd, of several widths share
a kernel.

Layers multiply the same rows with matrices that differ in how many columns they have: queries, keys
and values, or both inner matrices of a network; and 3x3 convolutions of a network differ in their
features alone. Such kernels are long, and another one costs a C compiler more than a number costs a
loop over panels or features: these become multiples of a symbol. Only widths that are whole panels,
and get the same tile, share one.
"""

from __future__ import annotations

from ingot.compiler.dispatch.share_shapes import shared_entries
from ingot.compiler.graph.ops import PANEL, ConvWinograd, DotCoded
from ingot.compiler.ir import Function, Module, Op, tensor_type
from ingot.compiler.ir.attributes import Attributes
from ingot.compiler.ir.dims import product

__all__ = ["share_widths"]

_WIDEST = 4
"""Panels of a tile, at most; what divides their count by 3 and 4 decides."""

_FEATURES = 64, 224
"""Of convolutions by Winograd that share a kernel: up to the first, up to the second, or more. Rows
in scratch are as long as the most; beyond the second, features come in parts."""


def share_widths(module: Module) -> Module:
    """Make entries of coded products, and of convolutions, that differ in their width alone one
    entry; returns the module."""
    return shared_entries(shared_entries(module, _coded), _transformed, of_any_size=True)


def _root(entry: Function, kind: type[Attributes]) -> Op | None:
    """The one op of this kind in an entry without inner regions."""
    roots = [op for op in entry.block.ops if isinstance(op.attributes, kind)]
    return roots[0] if len(roots) == 1 and not any(op.regions for op in entry.block.ops) else None


def _coded(entry: Function) -> object:
    """What products that may share an entry have in common; None: it is none of them."""
    root = _root(entry, DotCoded)
    if root is None:
        return None
    n, rows = DotCoded.of(root).n, tensor_type(root.operands[0]).shape
    if not isinstance(n, int) or n % PANEL or n <= _WIDEST * PANEL:
        return None
    if isinstance(count := product(rows[:-1]), int) and count != 1:
        return None  # widths have a say in how rows are cut, where their count is known
    panels = n // PANEL
    return rows, panels % 3 == 0, panels % 4 == 0


def _transformed(entry: Function) -> object:
    """What convolutions of images that may share an entry have in common; None: it is none."""
    root = _root(entry, ConvWinograd)
    if root is None:
        return None
    n, (x, u) = ConvWinograd.of(root).n, (tensor_type(each).shape for each in root.operands)
    features = x[-1]
    if len(x) != 4 or not isinstance(n, int) or not isinstance(features, int):
        return None
    if n < 3 * PANEL:
        return None
    room = sum(features > most for most in _FEATURES)
    return x[:-1], u[0], room, n % (3 * PANEL) == 0

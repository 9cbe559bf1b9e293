"""Columns of a right side that is no panels, a depth step of some at a time: what workgroups make
panels of."""

from __future__ import annotations

from ingot.compiler.ir import Value
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.product import Product
from ingot.compiler.kernels.register_tile import PANEL
from ingot.compiler.kernels.words import unit_of, word_of

__all__ = ["Columns"]


class Columns:
    """Of the right side of a product, which is binding `ordinal`. `whole`: the product of elements,
    where `p` is one of words."""

    def __init__(self, b: LoopBuilder, p: Product, whole: Product, ordinal: int) -> None:
        self.b, self.p, self.whole, self.ordinal = b, p, whole, ordinal

    def step(self, step: Index, base: Index, column: Index, lanes: int) -> Value:
        """Columns column, column + 1, ... of one depth step of the matrix that begins at `base`;
        beyond the last any value."""
        b, right = self.b, self.p.right
        if self.p is not self.whole and right.dtype is self.whole.right.dtype:
            return self._words(step, base, column, lanes)
        memory = b.binding(self.ordinal, right.dtype)
        at = b.add(base, b.mul(step, b.dim(right.depth_stride)))
        return self._lanes(memory, at, column, lanes)

    def _words(self, step: Index, base: Index, column: Index, lanes: int) -> Value:
        """The same of parts, which words of several depth steps are made of."""
        depth, right = self.whole.depth, self.whole.right
        memory = self.b.binding(self.ordinal, unit_of(right.dtype))

        def line(k: Index) -> Value:
            at = self.b.add(base, self.b.mul(k, self.b.dim(right.depth_stride)))
            return self._lanes(memory, at, column, lanes)

        return word_of(self.b, step, depth, right.dtype, line)

    def _lanes(self, memory: Value, base: Index, column: Index, lanes: int) -> Value:
        b, stride, columns = self.b, self.p.right.stride, self.p.columns
        exact = isinstance(columns, int) and columns % PANEL == 0
        left = b.sub(b.dim(columns), column)
        if stride == 1:
            live = None if exact else b.max(b.min(left, lanes), 0)
            return b.load(memory, b.add(base, column), lanes, live)
        lane = b.op("add", b.lanes(lanes), b.value(column))
        if not exact:
            lane = b.op("min", lane, b.value(b.sub(b.dim(columns), 1)))
        at = b.op("mul", lane, b.value(b.dim(stride)))
        return b.gather(memory, b.op("add", at, b.value(base)))

"""How matrices are cut: into panels of columns, so that most of the work is products."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.frontends.matrices.arrays import Array, Scope
from ingot.compiler.ir import dims
from ingot.compiler.ir.dims import Dim

__all__ = ["Panels"]

_WIDTH = 32
_WHOLE = 64  # columns that are one panel


class Panels:
    """Panels of equal width that cover `count` columns, or more: what is behind the matrix is
    padded. Where the count is not known there is one."""

    def __init__(self, count: Dim) -> None:
        whole = not isinstance(count, int) or count <= _WHOLE
        self.width: Dim = count if whole else _WIDTH
        self.count = 1 if whole else dims.ceildiv(count, _WIDTH)
        self.covered = self.width * self.count

    def each(
        self,
        scope: Scope,
        initial: Sequence[Array],
        body: Callable[..., Sequence[Array]],
        *,
        backward: bool = False,
    ) -> list[Array]:
        """`body(start, *carried)` for the first column of each panel, from the left or right."""
        if self.count == 1:
            return list(body(scope.index(0), *initial))

        def step(index: Array, *carried: Array) -> Sequence[Array]:
            place = self.count - 1 - index if backward else index
            return body(place * self.width, *carried)

        return scope.loop(self.count, initial, step)

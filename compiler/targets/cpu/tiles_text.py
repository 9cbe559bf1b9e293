"""Products in tiles as C: calls of kernel_tiles.h."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.kernels.table import DotTiles

__all__ = ["dot_tiles"]


def dot_tiles(dot: DotTiles, names: Sequence[str]) -> str:
    """The call that is a `loop.dot_tiles` of operands with these names."""
    sides = (
        f"(ingot_tile_side){{(const char *)({memory} + {at}), 4 * {pitch}, 4 * {step}}}"
        for memory, at, pitch, step in ((*names[:3], names[4]), names[5:9])
    )
    shape = ("tile_height", "tile_words", str(dot.panels), str(64 * dot.width))
    arguments = ", ".join([*sides, f"(char *){names[9]}", *names[10:], f"4 * {names[3]}", *shape])
    return f"dot_tiles_{dot.left.name}_{dot.right.name}({arguments})"

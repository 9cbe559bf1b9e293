"""Products in tiles as C: calls of kernel_tiles.h and kernel_parts.h."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.ir import Op
from ingot.compiler.kernels.table import DotParts, DotTiles, MultiplyTile, Tile, Tiles

__all__ = ["TILE_OPS", "tile_call"]

TILE_OPS = ("shape_tiles", "dot_tiles", "dot_parts", "multiply_tile", "store_tile")


def tile_call(op: Op, names: Sequence[str]) -> tuple[str, set[str]]:
    """An op of tiles, whose operands have these names, as C; and the parts of headers that this
    needs."""
    match op.name:
        case "loop.shape_tiles":
            return f"INGOT_SHAPE_TILES({names[0]}, {Tiles.of(op).words})", {"tiles"}
        case "loop.dot_tiles":
            dot = DotTiles.of(op)
            return _dot_tiles(dot, names), {"tiles", f"{dot.left.name}{dot.right.name}"}
        case "loop.dot_parts":
            return _dot_parts(DotParts.of(op), names), {"tiles", "parts"}
        case "loop.multiply_tile":
            given = MultiplyTile.of(op)
            left, left_at, pitch, right, right_at, words = names
            sides = f"{left} + {left_at}, 4 * {pitch}, {right} + {right_at}, {words}, tile_words"
            bytes = given.left.name, given.right.name
            call = f"multiply_tile_{'_'.join(bytes)}({sides}, {given.tile})"
            return call, {"tiles", "".join(bytes)}
    return f"store_tile({names[0]}, {Tile.of(op).tile})", {"tiles"}


def _side(memory: str, at: str, pitch: str, step: str) -> str:
    return f"(ingot_tile_side){{(const char *)({memory} + {at}), 4 * {pitch}, 4 * {step}}}"


def _dot_parts(dot: DotParts, names: Sequence[str]) -> str:
    sides = _side(*names[:4]), _side(*names[5:9])
    memory, at, *counts = names[9:]
    shape = "tile_words", str(dot.panels), str(64 * dot.width), str(int(dot.adds)), str(dot.parts)
    arguments = [*sides, f"4 * {names[4]}", f"(char *)({memory} + {at})", *counts, *shape]
    return f"dot_parts({', '.join(arguments)})"


def _dot_tiles(dot: DotTiles, names: Sequence[str]) -> str:
    sides = _side(*(*names[:3], names[4])), _side(*names[5:9])
    shape = ("tile_height", "tile_words", str(dot.panels), str(64 * dot.width))
    arguments = ", ".join([*sides, f"(char *){names[9]}", *names[10:], f"4 * {names[3]}", *shape])
    return f"dot_tiles_{dot.left.name}_{dot.right.name}({arguments})"

"""A packed weight as a source of tiles: one 32-bit lane holds the steps of a column.

For 4 byte elements and wider an access is one element; of narrower ones it brings all
K-steps of a line at once, and they are told apart on the way into local memory.
"""

from __future__ import annotations

from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, ceildiv
from ingot.compiler.kernels.items.group_tile import Source, load_where
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.panel import shift_out
from ingot.compiler.kernels.register_tile import PANEL
from ingot.hal.spec import DType, dtype

__all__ = ["panel_source"]

I32 = dtype("i32")


def panel_source(
    builder: LoopBuilder,
    binding: tuple[int, DType],
    element: DType,
    depth: Dim,
    panel: Index,
    bound: Dim | None,
) -> Source:
    """The columns from `panel` on as lines. `binding`: ordinal and dtype of the weight;
    `depth`: all of K; panels from `bound` on repeat the last one (None: there are none)."""
    b = builder
    ordinal, stored = binding
    steps = max(1, 4 // stored.bytes)
    raw = stored if steps == 1 else I32
    memory = b.binding(ordinal, raw)
    length = b.mul(b.dim(ceildiv(depth, steps)), PANEL)

    def prepare(line: Index, offset: int) -> tuple[Index, Index]:
        number, more = b.add(panel, b.div(line, PANEL)), offset // PANEL
        if bound is not None:
            number, more = b.min(b.add(number, more), b.sub(b.dim(bound), 1)), 0
        return b.add(b.mul(number, length), b.rem(line, PANEL)), b.mul(more, length)

    def fetch(line: tuple[Index, Index], step: Index, offset: int, live: Value | None) -> Value:
        at = b.add(line[0], b.mul(b.div(step, steps), PANEL))
        at = b.add(at, b.add(line[1], offset // steps * PANEL))
        return load_where(b, live, memory, at, raw)

    def unpack(value: Value) -> list[Value]:
        if steps == 1:
            return [b.convert(value, element)]
        parts = [shift_out(b, value, step, stored) for step in range(steps)]
        return [b.convert(part, element) for part in parts]

    return Source("panels", prepare, fetch, unpack, steps)

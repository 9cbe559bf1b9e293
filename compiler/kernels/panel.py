"""Reading a packed weight: one vector of columns at one step of K.

A panel holds 16 columns in lines of `s` K-steps, s = 4 / itemsize: [K / s, 16, s]. For 4
byte elements and wider a line is one step and a plain load. Narrower ones are loaded as
the 32-bit lane that all their steps share, and the wanted step is shifted out of it, so
that any K and any start inside a line work.
"""

from __future__ import annotations

from collections.abc import Callable

from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, ceildiv
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.register_tile import PANEL, TileShape
from ingot.hal.spec import DType, dtype

__all__ = ["panel_lines", "shift_out"]

I32 = dtype("i32")


def panel_lines(
    builder: LoopBuilder,
    binding: tuple[int, DType],
    element: DType,
    depth: Dim,
    panel: Index,
    tile: TileShape,
    start: Index = 0,
) -> Callable[[Index, int], Value]:
    """A reader of vector v at step start + k, as `element`, from panel `panel` on.

    `binding`: ordinal and dtype of the weight; `depth`: all of K.
    """
    ordinal, stored = binding
    steps = max(1, 4 // stored.bytes)
    memory = builder.binding(ordinal, stored if steps == 1 else I32)
    per_panel = PANEL // tile.lanes
    length = builder.mul(builder.dim(ceildiv(depth, steps)), PANEL)
    bases = [builder.mul(builder.add(panel, j), length) for j in range(tile.panels)]

    def line(k: Index, vector: int) -> Value:
        step = builder.add(start, k)
        at = builder.add(bases[vector // per_panel], builder.mul(builder.div(step, steps), PANEL))
        at = builder.add(at, vector % per_panel * tile.lanes)
        value = builder.load(memory, at, tile.lanes)
        if steps > 1:
            value = shift_out(builder, value, builder.rem(step, steps), stored)
        return builder.convert(value, element)

    return line


def shift_out(builder: LoopBuilder, lane: Value, step: Index, stored: DType) -> Value:
    """Step `step` of a 32-bit lane."""
    bits = stored.bytes * 8
    up = builder.sub(32 - bits, builder.mul(step, bits))
    high = builder.op("shift_left", lane, builder.convert(builder.value(up), I32))
    down = builder.constant(32 - bits, I32)
    if stored.name == "bf16":
        return builder.op("bitcast", high, dtype=dtype("f32"))
    signed = stored.kind == "i"
    shift = "shift_right_arithmetic" if signed else "shift_right_logical"
    low = builder.op(shift, high, down)
    if stored.is_float:
        half = builder.convert(low, dtype("u16"))
        return builder.op("bitcast", half, dtype=stored)
    return low

"""Lowerings of map, and of reductions and windows whose region is no known combination.

Such a reduction is a loop: each step combines one row of the elements with what the rows
before it gave, in order. `reduction.py` and `window.py` have the known ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.stablehlo import bodies
from ingot.compiler.frontends.stablehlo.lift import (
    cast,
    check_body,
    elements_of,
    lift,
    paired,
)
from ingot.compiler.frontends.stablehlo.lowering import Context, Lowered, ints, lowering
from ingot.compiler.frontends.stablehlo.reading.program import SourceBlock, SourceOp
from ingot.compiler.frontends.windows import Windows
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim

__all__ = ["fold_rows", "fold_running", "fold_windows"]


@lowering("map", check=check_body)
def map_(context: Context, op: SourceOp) -> list[Lowered]:
    block = bodies.body_of(op)
    assert block is not None
    xs = context.same_shape(op, context.flat_operands(op))
    return paired(op.results, lift(context, context.builder, block, xs, tensor_type(xs[0]).shape))


def _operands(
    context: Context, op: SourceOp, block: SourceBlock
) -> tuple[list[Value], list[Value]]:
    """The tensors and their init values, in the dtypes that the region takes. Operands behind
    them are sizes."""
    wanted = elements_of(block.arguments)
    values, count = context.flat_operands(op)[: len(wanted)], len(wanted) // 2
    xs = [*context.same_shape(op, values[:count]), *values[count:]]
    converted = [cast(context.builder, x, each) for x, each in zip(xs, wanted, strict=True)]
    return converted[:count], converted[count:]


def fold_rows(context: Context, op: SourceOp) -> list[Lowered]:
    """A reduce by any region: the elements of the reduced axes in row-major order."""
    block, axes, builder = bodies.body_of(op), ints(op.attributes["dimensions"]), context.builder
    assert block is not None
    xs, starts = _operands(context, op, block)
    shape = tensor_type(xs[0]).shape
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    rest = tuple(shape[axis] for axis in kept)
    count = dims.product(shape[axis] for axis in sorted(axes))
    initial = [builder.broadcast_to(start, rest) for start in starts]
    if count == 0:
        return paired(op.results, initial)
    order = (*sorted(axes), *kept)
    rows = [
        builder.value(
            "reshape", builder.value("transpose", x, permutation=order), shape=(count, *rest)
        )
        for x in xs
    ]

    def step(inner: Builder, index: Value, before: Sequence[Value]) -> Sequence[Value]:
        row = [inner.value("take", each, index, axis=0, mode="clamp") for each in rows]
        return lift(context, inner, block, [*before, *row], rest)

    return paired(op.results, counted_loop(builder, builder.number(count, "i64"), initial, step))


def fold_windows(
    context: Context,
    op: SourceOp,
    block: SourceBlock,
    sizes: Sequence[Dim],
    strides: Sequence[Dim],
    dilations: tuple[Sequence[Dim], Sequence[Dim]],
    padding: Sequence[tuple[Dim, Dim]],
) -> list[Lowered]:
    """A reduce_window by any region; `dilations` are those of the base and of the window."""
    builder = context.builder
    xs, starts = _operands(context, op, block)
    base, dilation = dilations
    low, high = (tuple(pair[side] for pair in padding) for side in (0, 1))
    interior = tuple(step - 1 for step in base)
    padded = [
        builder.value("pad", x, start, low=low, high=high, interior=interior)
        for x, start in zip(xs, starts, strict=True)
    ]
    windows = Windows(sizes, strides, dilation, tensor_type(padded[0]).shape)
    initial = [builder.broadcast_to(start, windows.places) for start in starts]
    if 0 in windows.places:
        return paired(op.results, initial)

    def step(inner: Builder, index: Value, before: Sequence[Value]) -> Sequence[Value]:
        taken = [windows.elements(inner, x, index) for x in padded]
        return lift(context, inner, block, [*before, *taken], windows.places)

    return paired(
        op.results, counted_loop(builder, builder.number(windows.count, "i64"), initial, step)
    )


def fold_running(
    context: Context, op: SourceOp, block: SourceBlock, axis: int, *, reverse: bool
) -> list[Lowered]:
    """What any region makes of all elements before each one along the axis, and of itself; with
    `reverse` of itself and all behind it. The region is associative, as windows take it."""
    builder = context.builder
    xs, starts = _operands(context, op, block)
    shape = tensor_type(xs[0]).shape
    order = [axis, *(each for each in range(len(shape)) if each != axis)]
    rest = tuple(shape[each] for each in order[1:])
    rows = [builder.value("transpose", x, permutation=tuple(order)) for x in xs]
    initial = [builder.broadcast_to(start, rest) for start in starts]
    results = [builder.full(0, tensor_type(each).dtype, (shape[axis], *rest)) for each in xs]
    last = builder.number(shape[axis] - 1, "i64")

    def step(inner: Builder, index: Value, before: Sequence[Value]) -> Sequence[Value]:
        made, running = before[: len(xs)], before[len(xs) :]
        place = inner.value("sub", last, index) if reverse else index
        row = [inner.value("take", each, place, axis=0, mode="clamp") for each in rows]
        pair = [*row, *running] if reverse else [*running, *row]
        running = lift(context, inner, block, pair, rest)
        starts_at = [place, *(inner.constant(0, "i64") for _ in rest)]
        return [
            *(
                inner.value(
                    "dynamic_update_slice",
                    whole,
                    inner.value("reshape", each, shape=(1, *rest)),
                    *starts_at,
                )
                for whole, each in zip(made, running, strict=True)
            ),
            *running,
        ]

    count = builder.number(shape[axis], "i64")
    found = counted_loop(builder, count, [*results, *initial], step)[: len(xs)]
    back = tuple(order.index(each) for each in range(len(shape)))
    return paired(op.results, [builder.value("transpose", x, permutation=back) for x in found])

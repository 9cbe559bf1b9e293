"""Blocks laid over each other and summed: what taking windows of an image apart is undone by."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.emitter import Emitter, shape_of, type_of
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim, known_dim
from ingot.hal.spec import dtype

__all__ = ["lay_blocks"]


def lay_blocks(
    node: Emitter,
    split: Value,
    block: Sequence[Dim],
    image: Sequence[Dim],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> Value:
    """[b, c, taps, places...] -> [b, c, image...]; a block has as many taps as elements. `pads`
    are those in front of the axes, with any others behind them."""
    if not all(isinstance(size, int) for size in block):
        return _lay_all(node, split, block, image, strides, dilations, pads)
    batch, channels, taps, *places = shape_of(split)
    result: Value | None = None
    for tap in range(known_dim(taps)):
        one = node.reshape(node.sliced(split, 2, tap, tap + 1), (batch, channels, *places))
        laid = _lay(node, one, _offsets(tap, block, dilations), image, strides, pads)  # type: ignore[arg-type]
        result = laid if result is None else node.op("add", result, laid)
    assert result is not None
    return result


def _lay_all(
    node: Emitter,
    x: Value,
    block: Sequence[Dim],
    image: Sequence[Dim],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> Value:
    """[b, c, taps, places...] of blocks whose sizes only the call knows: [b, c, image...]."""
    batch, channels, _, *places = shape_of(x)
    shape = (*block, *places)
    count = len(block)
    index, fits = node.full(0, "i64", shape), node.full(True, "i1", shape)
    for axis, size in enumerate(image):
        tap, place = (
            node.op("iota", dtype=dtype("i64"), shape=shape, axis=each)
            for each in (axis, count + axis)
        )
        at = node.op(
            "add",
            node.op("mul", tap, dilations[axis]),
            node.op("mul", place, strides[axis]),
        )
        at = node.op("sub", at, pads[axis])
        end = node.broadcast_to(node.size(size), shape)
        inside = node.compare("ge", at, 0)
        fits = node.op("and", fits, node.op("and", inside, node.compare("lt", at, end)))
        index = node.op("add", node.op("mul", index, end), at)
    index = node.op("select", fits, index, -1)  # which `skip` leaves out
    total, number = dims.product(image), dims.product(shape)
    result = node.op(
        "scatter",
        node.full(0, type_of(x).dtype, (batch, channels, total)),
        node.reshape(index, (number, 1)),
        node.reshape(x, (batch, channels, number)),
        update_window_dims=(0, 1),
        inserted_window_dims=(2,),
        scatter_dims_to_operand_dims=(2,),
        index_vector_dim=1,
        kind="add",
        mode="skip",
    )
    return node.reshape(result, (batch, channels, *image))


def _offsets(tap: int, block: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Where element number `tap` of a block lies in it, per axis."""
    offsets: list[int] = []
    for size, step in zip(reversed(block), reversed(dilations), strict=True):
        tap, place = divmod(tap, size)
        offsets.insert(0, place * step)
    return offsets


def _lay(
    node: Emitter,
    x: Value,
    offsets: Sequence[int],
    image: Sequence[Dim],
    strides: Sequence[int],
    pads: Sequence[int],
) -> Value:
    """[b, c, places...] spread by the strides from an offset on: [b, c, image...]."""
    low = [offset - pad for offset, pad in zip(offsets, pads, strict=False)]
    reach = [(dim - 1) * step + 1 for dim, step in zip(shape_of(x)[2:], strides, strict=True)]
    high = [size - first - length for size, first, length in zip(image, low, reach, strict=True)]
    between = (0, 0, *(step - 1 for step in strides))
    return node.padded(x, (0, 0, *low), (0, 0, *high), interior=between)

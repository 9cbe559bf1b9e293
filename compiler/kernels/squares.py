"""Squares of vectors, transposed in registers, and the axes along which they lie."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.ir import Value
from ingot.compiler.kernels.kernel import register_bytes
from ingot.compiler.kernels.loop import LoopBuilder, dtype_of
from ingot.compiler.kernels.schedule import Merged, loads_of
from ingot.compiler.kernels.trace import Node

__all__ = ["along_operand", "transpose", "walked_axes"]

_LEAST_SIDE = 8  # of an axis that is moved to be walked in blocks

_WOVEN = 16
"""Bytes of vectors of which machines weave two by one instruction."""

_L2_BYTES = 1 << 21
_SETS = 2048  # bytes: lines of the cache that lie multiples of it apart crowd each other out


def along_operand(rows: int, columns: int, bytes: int) -> bool:
    """Whether squares of a matrix that is turned to `rows` of `columns` follow each other along the
    operand's rows, so that lines behind the first are on their way, and not along the result's.

    Where both do not fit L2 and the operand's rows are as long or longer: with AVX-512 it takes .7
    of the time for 1000 x 1000 f32, .8 for 12544 rows of 64; 1.1 for 64 of 12544, and 1.2 for 300 x
    300, which fit.
    """
    pitch = columns * bytes
    return rows >= columns and pitch % _SETS != 0 and 2 * rows * pitch > _L2_BYTES


def transpose(b: LoopBuilder, rows: Sequence[Value]) -> list[Value]:
    """A square of vectors, transposed: lane i of result j is lane j of rows[i]."""
    count = len(rows)
    if count * register_bytes(dtype_of(rows[0])) <= _WOVEN:
        return _weave(b, list(rows))
    square = list(rows)
    step = count // 2
    while step:
        lanes = range(count)
        low = [j if not j & step else count + j - step for j in lanes]
        high = [j + step if not j & step else count + j for j in lanes]
        for i in range(count):
            if not i & step:
                first, second = square[i], square[i + step]
                square[i] = b.shuffle(first, second, low)
                square[i + step] = b.shuffle(first, second, high)
        step //= 2
    return square


def _weave(b: LoopBuilder, square: list[Value]) -> list[Value]:
    """Each round weaves rows with those half a square below: it turns the bits of a row's number
    and of a lane's on by one, through each other."""
    half = len(square) // 2
    low = [lane // 2 + lane % 2 * 2 * half for lane in range(2 * half)]
    high = [lane + half for lane in low]
    for _ in range(half.bit_length()):
        pairs = zip(square[:half], square[half:], strict=True)
        square = [b.shuffle(*pair, lanes) for pair in pairs for lanes in (low, high)]
    return square


def walked_axes(axes: Sequence[Merged], roots: Sequence[Node]) -> list[Merged]:
    """The axes, one along which an operand is contiguous moved to the last but one if the last axis
    takes steps in that operand: channels last to first where the rows of pixels lie apart."""
    inner = axes[-1]
    for load in loads_of(roots):
        if load.index.coefficient(inner.axis) in (0, 1):
            continue
        for each in axes[:-2]:
            long = not isinstance(each.extent, int) or each.extent >= _LEAST_SIDE
            if long and load.index.coefficient(each.axis) == 1:
                return [*(other for other in axes[:-1] if other is not each), each, inner]
    return list(axes)

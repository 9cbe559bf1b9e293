"""Contractions of bytes, four steps of K at a time, and of bf16 and f16, two at a time: both sides
as 32-bit words for `loop.dot4`, `loop.dot2` and `loop.fma2`.

A panel of an i8 or u8 weight has words as its lines: 16 columns of four steps; one of halves has
two steps. The other side has words where its rows, or the channels of its pixels, are multiples of
that, as `graph/forms/pack_weights.py` makes them. So to schedules this is a contraction of i32 with
a fourth or half of the steps, whose multiply-add is another one. Matrices whose words do not lie so
stay parts, of which a step is four or two: schedules put them together in scratch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ingot.compiler.ir import TensorType, Value
from ingot.compiler.ir.dims import Dim, ceildiv, floordiv, modulo
from ingot.compiler.kernels.kernel import TargetInfo
from ingot.compiler.kernels.loop import Index, LoopBuilder, lanes_of
from ingot.compiler.kernels.product import Operand, Product
from ingot.hal.spec import DType, dtype

__all__ = [
    "BYTES_OF_WORD",
    "Parts",
    "copy_words",
    "parts_of",
    "product_in_words",
    "tensor_in_words",
    "unit_of",
    "word_of",
]

BYTES_OF_WORD = 4

Parts = tuple[DType, DType]
"""What the words of the left and the right side hold: i8 or u8, or both bf16 or f16."""

_I32 = dtype("i32")

_COPIED = 16
"""Bytes that are copied at once."""


def parts_of(a: DType, b: DType, result: DType, target: TargetInfo) -> Parts | None:
    """Those of a contraction whose sums are i32, or f32 where the target has instructions for
    bf16 or f16; None if its operands are neither."""
    if a is b and a.is_half:
        has_words = target.dot2 if a.name == "bf16" else target.half2
        return (a, b) if has_words and result.is_float and result.bits <= 32 else None
    if any(not each.is_integer or each.bits != 8 for each in (a, b)):
        return None
    return (a, b) if result.is_integer and result.bits <= 32 else None


def product_in_words(p: Product, target: TargetInfo) -> tuple[Product, Parts] | None:
    """The product as one of words; None if its operands do not lie so. Of two activations, a side
    that stays parts has a depth stride of a word's, and its last word of bytes may not be whole."""
    parts = parts_of(p.left.dtype, p.right.dtype, p.dtype, target)
    if parts is None or p.depth == 0:
        return None
    steps = BYTES_OF_WORD // p.left.dtype.bytes
    depth = ceildiv(p.depth, steps)
    if not p.right.packed and (steps == BYTES_OF_WORD or modulo(p.depth, steps) == 0):
        left, right = (_operand_in_words(each, p.depth, steps) for each in (p.left, p.right))
        return replace(p, depth=depth, left=left, right=right), parts
    if not p.right.packed or not isinstance(p.depth, int) or p.depth % steps:
        return None
    left = replace(p.left, dtype=_I32, stride=depth)
    return replace(p, depth=depth, left=left, right=replace(p.right, dtype=_I32)), parts


def _operand_in_words(x: Operand, depth: Dim, steps: int) -> Operand:
    """A side that is no panels, as words if these lie one after another."""
    lengths = (depth, x.stride, *x.batch_strides)
    if x.depth_stride != 1 or any(modulo(each, steps) != 0 for each in lengths):
        return replace(x, depth_stride=x.depth_stride * steps)
    stride, *batch = (floordiv(each, steps) for each in lengths[1:])
    return replace(x, dtype=_I32, stride=stride, batch_strides=tuple(batch))


def tensor_in_words(type: TensorType) -> TensorType | None:
    """A tensor of bytes or halves as words along its last dim; None if that does not hold whole
    ones."""
    last, steps = type.shape[-1], BYTES_OF_WORD // type.dtype.bytes
    if not isinstance(last, int) or last % steps or not last:
        return None
    return TensorType(_I32, (*type.shape[:-1], last // steps))


def unit_of(part: DType) -> DType:
    """The integer that a part is read as."""
    return dtype(f"u{part.bits}")


def copy_words(
    b: LoopBuilder,
    p: Product,
    rows: tuple[Value, Sequence[Index]],
    words: tuple[Index, Index],
    at: int,
    pitch: int,
    first: Index = 0,
) -> Value:
    """Words [start, start + count) of rows of the left side of a product in scratch at `at`, a row
    each `pitch` words, the first from word `first` on. `rows`: memory of units, and where word
    `start` of each row begins. Zeros follow the last step."""
    (a, bases), (start, count), stride = rows, words, p.left.depth_stride
    steps, most = BYTES_OF_WORD // p.left.dtype.bytes, _COPIED // p.left.dtype.bytes
    memory, lanes = b.scratch(at, unit_of(p.left.dtype)), most if stride == 1 else 1
    left = b.sub(b.dim(p.depth), b.mul(start, steps))
    with b.for_(0, b.mul(count, steps), lanes) as loop:
        live = b.max(b.min(b.sub(left, loop.index), lanes), 0)
        for i, base in enumerate(bases):
            place = b.add(base, b.mul(loop.index, b.dim(stride)))
            value = b.load(a, place, most, live)
            to = b.add(b.add(i * pitch * steps, b.mul(first, steps)), loop.index)
            b.store(memory, to, value, None if lanes > 1 else 1)
    return b.scratch(at, _I32)


def word_of(
    b: LoopBuilder, step: Index, depth: Dim, part: DType, line: Callable[[Index], Value]
) -> Value:
    """Lanes of the words that begin at 4 `step` of bytes, 2 `step` of halves; `line(k)` gives the
    units of step k. Bytes behind the last step are any: they meet zeros."""
    word: Value | None = None
    steps = BYTES_OF_WORD // part.bytes
    for place in range(steps):
        k = b.add(b.mul(step, steps), place)
        if modulo(depth, steps) != 0:
            k = b.min(k, b.sub(b.dim(depth), 1))
        bits = b.convert(line(k), _I32)
        shift = b.constant(part.bits * place, _I32, lanes_of(bits))
        bits = b.op("shift_left", bits, shift)
        word = bits if word is None else b.op("or", word, bits)
    assert word is not None
    return word

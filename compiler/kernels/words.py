"""Contractions of bytes, four steps of K at a time, and of bf16, two at a time: both sides as
32-bit words for `loop.dot4` and `loop.dot2`.

A panel of an i8 or u8 weight has words as its lines: 16 columns of four steps; one of bf16 has two
steps. The other side has words where its rows, or the channels of its pixels, are multiples of
that, as `graph/forms/pack_weights.py` makes them. So to schedules this is a contraction of i32 with
a fourth or half of the steps, whose multiply-add is another one.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.compiler.ir import TensorType
from ingot.compiler.kernels.kernel import TargetInfo
from ingot.compiler.kernels.product import Product
from ingot.hal.spec import DType, dtype

__all__ = ["BYTES_OF_WORD", "Parts", "parts_of", "product_in_words", "tensor_in_words"]

BYTES_OF_WORD = 4

Parts = tuple[DType, DType]
"""What the words of the left and the right side hold: i8 or u8, or both bf16."""

_I32 = dtype("i32")


def parts_of(a: DType, b: DType, result: DType, target: TargetInfo) -> Parts | None:
    """Those of a contraction whose sums are i32, or f32 where the target has an instruction for
    bf16; None if its operands are neither."""
    if a.name == b.name == "bf16":
        return (a, b) if target.dot2 and result.is_float and result.bits <= 32 else None
    if any(not each.is_integer or each.bits != 8 for each in (a, b)):
        return None
    return (a, b) if result.is_integer and result.bits <= 32 else None


def product_in_words(p: Product, target: TargetInfo) -> tuple[Product, Parts] | None:
    """The product as one of words; None if its operands do not lie so."""
    parts = parts_of(p.left.dtype, p.right.dtype, p.dtype, target)
    if parts is None or not p.right.packed or not isinstance(p.depth, int):
        return None
    steps = BYTES_OF_WORD // p.left.dtype.bytes
    if p.depth % steps or not p.depth:
        return None
    depth = p.depth // steps
    left = replace(p.left, dtype=_I32, stride=depth)
    return replace(p, depth=depth, left=left, right=replace(p.right, dtype=_I32)), parts


def tensor_in_words(type: TensorType) -> TensorType | None:
    """A tensor of bytes or bf16 as words along its last dim; None if that does not hold whole
    ones."""
    last, steps = type.shape[-1], BYTES_OF_WORD // type.dtype.bytes
    if not isinstance(last, int) or last % steps or not last:
        return None
    return TensorType(_I32, (*type.shape[:-1], last // steps))

"""Contractions of bytes, four steps of K at a time: both sides as 32-bit words for `loop.dot4`.

A panel of an i8 or u8 weight has words as its lines: 16 columns of four steps. The other side
has words where its rows, or the channels of its pixels, are multiples of four, as
`graph/forms/pack_weights.py` makes them. So to schedules this is a contraction of i32 with a
fourth of the steps, whose multiply-add is another one.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.compiler.ir import TensorType
from ingot.compiler.kernels.product import Product
from ingot.hal.spec import DType, dtype

__all__ = ["BYTES_OF_WORD", "Signs", "product_in_words", "signs_of", "tensor_in_words"]

BYTES_OF_WORD = 4

Signs = tuple[DType, DType]
"""What the bytes of the left and the right side are: i8 or u8."""

_I32 = dtype("i32")


def signs_of(a: DType, b: DType, result: DType) -> Signs | None:
    """Those of a contraction whose sums are i32; None if its operands are no bytes."""
    if any(not each.is_integer or each.bits != 8 for each in (a, b)):
        return None
    return (a, b) if result.is_integer and result.bits <= 32 else None


def product_in_words(p: Product) -> tuple[Product, Signs] | None:
    """The product as one of words; None if its operands do not lie so."""
    signs = signs_of(p.left.dtype, p.right.dtype, p.dtype)
    if signs is None or not p.right.packed or not isinstance(p.depth, int):
        return None
    if p.depth % BYTES_OF_WORD or not p.depth:
        return None
    depth = p.depth // BYTES_OF_WORD
    left = replace(p.left, dtype=_I32, stride=depth)
    return replace(p, depth=depth, left=left, right=replace(p.right, dtype=_I32)), signs


def tensor_in_words(type: TensorType) -> TensorType | None:
    """A tensor of bytes as words along its last dim; None if that does not hold whole ones."""
    last = type.shape[-1]
    if not isinstance(last, int) or last % BYTES_OF_WORD or not last:
        return None
    return TensorType(_I32, (*type.shape[:-1], last // BYTES_OF_WORD))

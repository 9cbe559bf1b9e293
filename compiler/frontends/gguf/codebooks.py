"""Blocks of GGUF files whose codes are places in codebooks: a byte or more says 4 or 8 numbers at
once, others their signs.

`codebooks.json` holds the books, which are part of the format: rows of codes of 2 or 3 bits, in
bytes of two. A row is looked up by `init`; what it gives, with a sign in the bit above, are codes
of 3 or 4 bits that stand for the numbers of a table, and is kept in panels as that.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ingot.compiler.frontends.gguf.fields import Blocks
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__ = ["CODEBOOK_BLOCKS"]

_SEVENS = (0, 7, 14, 21)
_EIGHT = tuple(range(8))
_IQ2 = (8, 25, 43, 0, -8, -25, -43, 0)
_IQ3_XXS = (4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62)
_IQ3_S = (1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15)
_IQ1 = (-7, 1, 9, 0, -9, -1, 7, 0)
"""Eight times -1, 0 and 1, and 1 more or, where the bit above is set, less."""


@cache
def _book(name: str) -> Any:
    """The codebook of a type, u8[rows, 4 or 8]."""
    books = json.loads(Path(__file__).with_name("codebooks.json").read_text())
    bytes = np.frombuffer(b64decode(books[name]), np.uint8)
    codes = np.stack([bytes & 15, bytes >> 4], axis=1)
    return codes.reshape(-1, 4 if name.startswith("IQ3") else 8)


def _row(x: Blocks, name: str, places: Value) -> Value:
    """Rows of a codebook: u8[..., 4 or 8]."""
    places = x.b.value("convert", places, dtype=dtype("i32"))
    return x.b.value("take", x.b.constant(_book(name)), places, axis=0, mode="clamp")


def _wide(x: Blocks, low: Value, high: Value) -> Value:
    """high << 8 | low, as u16."""
    low, high = (x.b.value("convert", each, dtype=dtype("u16")) for each in (low, high))
    return x.joined(low, high, 8)


def _signs(x: Blocks, sevens: Value) -> Value:
    """The signs of eight numbers by seven of them, u8[..., 8]: an even count of them is set."""
    odd = sevens
    for down in (4, 2, 1):
        odd = x.b.value("xor", odd, x.apply("shift_right_logical", odd, down))
    return x.places(x.joined(sevens, x.apply("and", odd, 1), 7), _EIGHT, 1)


def _signed(
    x: Blocks, rows: Value, signs: Value, bits: int, scales: Value, numbers: tuple[int, ...]
) -> Value:
    """The numbers of rows of codes with signs, in as many groups as there are scales."""
    groups = tensor_type(scales).shape[-1]
    assert isinstance(groups, int)
    codes, signs = (x.ends(each, groups, 256 // groups) for each in (rows, signs))
    return x.looked_up(x.joined(codes, signs, bits), scales, numbers)


def _odd(x: Blocks, scales: Value, factor: Value) -> Value:
    """(2 * scales + 1) * factor."""
    return x.times(x.apply("add", x.apply("shift_left", scales, 1), 1), factor)


def _iq2_xxs(x: Blocks) -> Value:
    factor, pairs = x.apply("mul", x.half(), 0.125), x.take(8, 8)
    rows = _row(x, "IQ2_XXS", x.part(pairs, 0, 4))
    word = x.whole(x.part(pairs, 4, 8), "u32")
    scales = _odd(x, x.ends(x.places(word, (28,), 4), 8), factor)
    return _signed(x, rows, _signs(x, x.places(word, _SEVENS, 7)), 2, scales, _IQ2)


def _iq2_xs(x: Blocks) -> Value:
    factor, words = x.apply("mul", x.half(), 0.125), x.whole(x.take(32, 2), "u16")
    rows = _row(x, "IQ2_XS", x.apply("and", words, 511))
    signs = _signs(x, x.ends(x.places(words, (9,), 7), 32))
    return _signed(x, rows, signs, 2, _odd(x, x.stream(x.take(8), 4), factor), _IQ2)


def _iq2_s(x: Blocks) -> Value:
    factor, low, signs = x.apply("mul", x.half(), 0.125), x.take(32), x.take(32)
    rows = _row(x, "IQ2_S", _wide(x, low, x.stream(x.take(8), 2)))
    scales = _odd(x, x.stream(x.take(8), 4), factor)
    return _signed(x, rows, x.places(signs, _EIGHT, 1), 2, scales, _IQ2)


def _iq3_xxs(x: Blocks) -> Value:
    factor, rows = x.apply("mul", x.half(), 0.25), _row(x, "IQ3_XXS", x.take(64))
    word = x.whole(x.take(8, 4), "u32")
    scales = _odd(x, x.ends(x.places(word, (28,), 4), 8), factor)
    return _signed(x, rows, _signs(x, x.places(word, _SEVENS, 7)), 3, scales, _IQ3_XXS)


def _iq3_s(x: Blocks) -> Value:
    factor, low = x.half(), x.take(64)
    high = x.ends(x.places(x.take(8), _EIGHT, 1), 64)
    rows, signs = _row(x, "IQ3_S", _wide(x, low, high)), x.places(x.take(32), _EIGHT, 1)
    return _signed(x, rows, signs, 3, _odd(x, x.stream(x.take(4), 4), factor), _IQ3_S)


def _repeated(x: Value, b: Blocks, count: int) -> Value:
    """Each element so often, on a further axis."""
    shape = tensor_type(x).shape
    return b.b.value("broadcast", x, shape=(*shape, count), dimensions=tuple(range(len(shape))))


def _iq1_s(x: Blocks) -> Value:
    factor, low = x.apply("mul", x.half(), 0.125), x.take(32)
    words = x.whole(x.take(8, 2), "u16")
    rows = _row(x, "IQ1", _wide(x, low, x.ends(x.places(words, (0, 3, 6, 9), 3), 32)))
    deltas = _repeated(x.ends(x.places(words, (15,), 1), 8), x, 32)
    scales = _odd(x, x.ends(x.places(words, (12,), 3), 8), factor)
    return _signed(x, rows, deltas, 2, scales, _IQ1)


def _iq1_m(x: Blocks) -> Value:
    """The bits of its factor are the upper ones of four words of scales."""
    low, halves, words = x.take(32), x.stream(x.take(16), 4), x.whole(x.take(4, 2), "u16")
    bits = None
    for place in range(4):
        part = x.part(x.apply("and", words, 0xF000), place, place + 1)
        part = x.apply("shift_right_logical", part, 12 - 4 * place)
        bits = part if bits is None else x.b.value("or", bits, part)
    assert bits is not None
    factor = x.reshape(x.float(x.b.value("bitcast", bits, dtype=dtype("f16"))), x.outer)
    rows = _row(x, "IQ1", _wide(x, low, x.apply("and", halves, 7)))
    deltas = _repeated(x.apply("shift_right_logical", halves, 3), x, 8)
    scales = x.ends(x.places(words, (0, 3, 6, 9), 3), 16)
    return _signed(x, rows, deltas, 2, _odd(x, scales, x.apply("mul", factor, 0.125)), _IQ1)


CODEBOOK_BLOCKS: Mapping[str, Callable[[Blocks], Value]] = {
    "IQ2_XXS": _iq2_xxs,
    "IQ2_XS": _iq2_xs,
    "IQ2_S": _iq2_s,
    "IQ3_XXS": _iq3_xxs,
    "IQ3_S": _iq3_s,
    "IQ1_S": _iq1_s,
    "IQ1_M": _iq1_m,
}

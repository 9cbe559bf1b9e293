"""Upper and lower case of UTF-8, character by character, as far as these keep their length."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of
from ingot.compiler.ir import Value

__all__ = ["change_case", "in_case"]

_BLOCK = 64  # characters whose changes are looked up at once
_END = 0x20000  # no character from here on has a case
_REFUSED = 1 << 24  # the change of one whose length changes


def in_case(text: str, action: str) -> str:
    """A text as `change_case` makes it."""
    return "".join(map(_upper if action == "UPPER" else _lower, text))


def _upper(character: str) -> str:
    made = character.upper()
    return made if len(made) == 1 else character


def _lower(character: str) -> str:
    return character.lower()


@cache
def _changes(action: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """By block of characters the number of its row in a table [rows, _BLOCK] of what is added."""
    changes = np.zeros(_END, np.int32)
    for code in range(_END):
        character = chr(code)
        made = in_case(character, action) if not 0xD800 <= code < 0xE000 else character
        if made != character:
            same = len(made) == 1 and len(made.encode()) == len(character.encode())
            changes[code] = ord(made) - code if same else _REFUSED
    rows, numbers = np.unique(changes.reshape(-1, _BLOCK), axis=0, return_inverse=True)
    return numbers.reshape(-1), rows


def change_case(node: Node, data: Value, action: str) -> Value:
    """u8[n] in upper or lower case. What is no UTF-8 stays; the call refuses characters that would
    have another length."""
    parts, back = _characters(node, data)
    lengths = np.repeat(np.arange(4), [0xC0, 0x20, 0x10, 0x10])
    more = _looked_up(node, lengths, parts[0])  # bytes behind the first one
    code = node.op("and", parts[0], _looked_up(node, (0x7F, 0x1F, 0x0F, 0x07), more))
    for offset in (1, 2, 3):
        longer = node.op("mul", code, 64)
        longer = node.op("or", longer, _masked(node, parts[offset], 63))
        reaches = node.compare("ge", more, offset)
        code = node.op("select", reaches, longer, code)
    change = _change_of(node, code, action)
    fits = node.compare("ne", change, _REFUSED)
    every = node.convert(node.reduce(fits, [0], "and"), "i64")
    node.require(every, 1, "whether characters of strings whose case changes keep their length")
    zero = node.fill(0, like=code)
    after = node.op("sub", more, back)
    bits = node.op("mul", node.op("max", after, zero), 6)
    made = node.op("shift_right_logical", node.op("add", code, change), bits)
    first = node.op("or", made, _looked_up(node, (0, 0xC0, 0xE0, 0xF0), more))
    later = node.op("or", _masked(node, made, 63), 0x80)
    byte = node.op("select", node.compare("eq", back, zero), first, later)
    is_changed = node.op("and", node.compare("ge", after, zero), node.compare("ne", change, zero))
    return node.op("select", is_changed, node.convert(byte, "u8"), data)


def _characters(node: Node, data: Value) -> tuple[list[Value], Value]:
    """The four bytes from the beginning of the character that each byte is of, and how many bytes
    back that is: i32[n], all."""
    wide = node.convert(data, "i32")
    (count,) = shape_of(data)
    wide = node.padded(wide, (3,), (3,))
    inside = node.compare("eq", _masked(node, wide, 0xC0), 0x80)
    inside = node.convert(inside, "i32")
    run = back = node.sliced(inside, 0, 3, count + 3)
    for offset in (2, 1):
        run = node.op("mul", run, node.sliced(inside, 0, offset, count + offset))
        back = node.op("add", back, run)
    place = node.op("iota", dtype=type_of(back).dtype, shape=(count,), axis=0)
    begin = node.op("sub", place, back)
    return [
        node.op("take", wide, node.op("add", begin, 3 + k), axis=0, mode="clamp") for k in range(4)
    ], back


def _change_of(node: Node, code: Value, action: str) -> Value:
    numbers, rows = _changes(action)
    code = node.op("clamp", 0, code, _END - 1)
    row = _looked_up(node, numbers, node.op("div", code, _BLOCK))
    entry = node.op("mul", row, _BLOCK)
    entry = node.op("or", entry, _masked(node, code, _BLOCK - 1))
    return _looked_up(node, rows.reshape(-1), entry)


def _masked(node: Node, x: Value, bits: int) -> Value:
    return node.op("and", x, bits)


def _looked_up(node: Node, table: Sequence[int] | np.ndarray[Any, Any], place: Value) -> Value:
    return node.op("take", node.constant(table, "i32"), place, axis=0, mode="clamp")

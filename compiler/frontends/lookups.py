"""Places of numbers, rows of numbers and strings among those that are known when a program is
compiled: by bisection, so many are no dearer than a few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot.compiler.frontends.emitter import Emitter, shape_of, type_of
from ingot.compiler.frontends.strings import Strings, matches, word_parts
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__ = ["find_rows", "find_texts", "first_of"]

Array = np.ndarray[Any, Any]
Found = tuple[Value, Value]
"""Places i64[...], of any kind where there is none, and whether there is one, i1[...]."""

_FEW = 32  # words that are compared one by one


def find_texts(node: Emitter, x: Strings, words: Sequence[str]) -> Found:
    """Which word each string is, byte by byte. Of equal words the first counts."""
    if len(words) <= _FEW:
        return first_of(node, matches(node, x, words))
    given, known = word_parts(node, x, words)
    lengths = np.array([len(word.encode("utf-8")) for word in words], np.int64)
    columns = [node.op("take", given, node.size(at), axis=len(shape_of(x.starts)), mode="clamp")
               for at in range(known.shape[1])]  # fmt: skip
    return find_rows(node, [*columns, x.lengths], [*known.T, lengths])


def first_of(node: Emitter, hits: Value) -> Found:
    """Where the first hit of i1[..., n] is, and whether there is one."""
    last = len(shape_of(hits)) - 1
    place = node.op("arg_max", node.convert(hits, "u8"), axis=last, dtype=dtype("i64"))
    return place, node.reduce(hits, [last], "or")


def find_rows(node: Emitter, columns: Sequence[Value], known: Sequence[Array]) -> Found:
    """Which row each one is; `known` are the columns of the table, of which there is a row. Of
    equal rows the first counts. Row by row so far is a number, and goes on as a pair with the next
    column."""
    rows = known[0].size
    place, found, codes = None, None, np.zeros(rows, np.int64)
    for x, column in zip(columns, known, strict=True):
        keys, inverse = np.unique(column, return_inverse=True)
        at, is_key = _bisected(node, x, keys)
        found = is_key if found is None else node.op("and", found, is_key)
        if place is None:
            place, codes = at, inverse
            continue
        pairs, codes = np.unique(codes * len(keys) + inverse, return_inverse=True)
        pair = node.op("add", node.op("mul", place, len(keys)), at)
        place, is_pair = _bisected(node, pair, pairs)
        found = node.op("and", found, is_pair)
    assert place is not None
    assert found is not None
    _, firsts = np.unique(codes, return_index=True)
    return node.op("take", node.constant(firsts, "i64"), place, axis=0, mode="clamp"), found


def _bisected(node: Emitter, x: Value, keys: Array) -> Found:
    """Among sorted keys, each once: how many are not above x, less one."""
    steps = int(keys.size).bit_length()
    table = np.append(keys, np.full(2**steps - 1 - keys.size, keys[-1], keys.dtype))
    padded = node.constant(table, type_of(x).dtype)
    count = node.full(0, "i64", shape_of(x))
    for step in reversed(range(steps)):
        probe = node.op("add", count, 2**step)
        before = node.op("sub", probe, 1)
        key = node.op("take", padded, before, axis=0, mode="clamp")
        count = node.op("select", node.compare("le", key, x), probe, count)
    last = node.op("sub", count, 1)
    place = node.op("clamp", 0, last, keys.size - 1)
    return place, node.compare("eq", node.op("take", padded, place, axis=0, mode="clamp"), x)

"""Strings: at the edge of a program as bytes and ends, inside as views (docs/design/0016)."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np

from ingot.compiler.frontends.emitter import Emitter, shape_of, type_of
from ingot.compiler.frontends.indexed import scatter_rows
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype

__all__ = [
    "SUFFIX",
    "DefineSize",
    "Strings",
    "are_equal",
    "constant_strings",
    "doc_of_bytes",
    "from_ends",
    "in_a_row",
    "join_data",
    "longest",
    "matches",
    "move",
    "move_strings",
    "not_empty",
    "pack",
    "packed",
    "padded_bytes",
    "put_at",
    "refuse_taken",
    "spread",
    "take_strings",
    "tensor_shape",
    "word_parts",
]

SUFFIX = ".utf8"
"""Of the name of an argument or result that holds the bytes of the one before it."""

_WORD = 8  # bytes that are compared at once


@dataclass(frozen=True)
class Strings:
    """A tensor of texts: where each begins in the bytes `data`, u8[n], and how many are its own,
    both i64 in the tensor's shape. Texts may share bytes."""

    starts: Value
    lengths: Value
    data: Value

    def __str__(self) -> str:
        return str(self.starts.type).replace("i64", "string", 1)


DefineSize = Callable[[Value, str], Dim]
"""A number of rank 0 as a dim; the text names it in an error."""


def doc_of_bytes(name: str) -> str:
    """By which callers know that an argument or result holds the bytes of another."""
    return f"UTF-8 of '{name}'"


def refuse_taken(name: str, names: Container[str], what: str) -> None:
    """CompileError: no name is left for the bytes of what is of strings and has this name."""
    if f"{name}{SUFFIX}" in names:
        raise CompileError(
            f"{what} '{name}' is of strings, whose bytes are called '{name}{SUFFIX}', as another "
            f"{what} is: rename it"
        )


def constant_strings(node: Emitter, texts: Sequence[str], shape: Sequence[int]) -> Strings:
    encoded = [text.encode("utf-8") for text in texts]
    lengths = np.array([len(each) for each in encoded], np.int64)
    starts = np.cumsum(lengths) - lengths
    return Strings(
        node.constant(starts.reshape(shape), "i64"),
        node.constant(lengths.reshape(shape), "i64"),
        node.constant(np.frombuffer(b"".join(encoded), np.uint8), "u8"),
    )


def from_ends(node: Emitter, ends: Value, data: Value) -> Strings:
    """Strings whose bytes stand one behind another, as callers pass them. Ends that go back, or
    lead behind the bytes, become those of empty strings, or of the last bytes."""
    row = node.flat(ends)
    zero, most = node.constant([0], "i64"), node.size(shape_of(data)[0])
    limits = (node.broadcast_to(each, shape_of(row)) for each in (node.size(0), most))
    low, high = limits
    row = node.op("clamp", low, row, high)
    count = shape_of(row)[0]
    before = node.op("concatenate", zero, row, axis=0)
    before = node.sliced(before, 0, 0, count)
    lengths = node.op("max", node.op("sub", row, before), 0)
    shape = shape_of(ends)
    return Strings(node.reshape(before, shape), node.reshape(lengths, shape), data)


def take_strings(node: Emitter, table: Strings, places: Value) -> Strings:
    """Elements of a table of rank 1."""
    starts, lengths = (
        node.op("take", each, places, axis=0, mode="clamp")
        for each in (table.starts, table.lengths)
    )
    return Strings(starts, lengths, table.data)


def join_data(node: Emitter, tables: Sequence[Strings]) -> list[Strings]:
    """The same strings over one array of bytes."""
    if all(each.data is tables[0].data for each in tables):
        return list(tables)
    data = node.op("concatenate", *(each.data for each in tables), axis=0)
    joined, offset = [], node.size(0)
    for each in tables:
        shift = node.broadcast_to(offset, shape_of(each.starts))
        joined.append(Strings(node.op("add", each.starts, shift), each.lengths, data))
        offset = node.op("add", offset, node.size(shape_of(each.data)[0]))
    return joined


def move_strings(
    node: Emitter, given: Sequence[Any], apply: Callable[[Sequence[Any]], Any]
) -> list[Strings]:
    """What an op that only moves elements makes of strings among its inputs; `apply` is the op of
    numbers, and gives one value or several."""
    tables = [each for each in given if isinstance(each, Strings)]
    joined = iter(join_data(node, tables))
    moved = [next(joined) if isinstance(each, Strings) else each for each in given]
    data = next(each.data for each in moved if isinstance(each, Strings))
    parts: list[list[Value]] = []
    for part in ("starts", "lengths"):
        made = apply([getattr(x, part) if isinstance(x, Strings) else x for x in moved])
        made = made if isinstance(made, (list, tuple)) else [made]
        parts.append([each for each in made if isinstance(each, Value)])
    return [Strings(starts, lengths, data) for starts, lengths in zip(*parts, strict=True)]


def tensor_shape(x: Value | Strings) -> tuple[Dim, ...]:
    return shape_of(x.lengths if isinstance(x, Strings) else x)


def move(x: Value | Strings, apply: Callable[[Value], Value]) -> Value | Strings:
    """As `move_strings`, of one tensor, which may be of numbers."""
    if isinstance(x, Value):
        return apply(x)
    return Strings(apply(x.starts), apply(x.lengths), x.data)


def spread(node: Emitter, *given: Strings) -> list[Strings]:
    """All in their common shape."""
    common = node.common_shape(*(shape_of(each.starts) for each in given))
    return [
        Strings(
            node.broadcast_to(each.starts, common),
            node.broadcast_to(each.lengths, common),
            each.data,
        )
        for each in given
    ]


def are_equal(node: Emitter, a: Strings, b: Strings, define_size: DefineSize) -> Value:
    """i1 in the common shape: byte by byte, as far as the longest one of `a` reaches."""
    a, b = spread(node, a, b)
    longest_a = longest(node, node.flat(a.lengths))
    width = define_size(longest_a, "the length of the longest string")
    same = node.compare("eq", *(padded_bytes(node, each, width) for each in (a, b)))
    whole = node.reduce(same, [len(shape_of(same)) - 1], "and")
    return node.op("and", whole, node.compare("eq", a.lengths, b.lengths))


def pack(node: Emitter, x: Strings, define_size: DefineSize) -> tuple[Value, Value]:
    """Where each string ends, in the shape of x, and the bytes of all, one behind another."""
    lengths = node.flat(x.lengths)
    ends = node.op("cumulative", lengths, axis=0, kind="add")
    total = define_size(node.reduce(lengths, [0], "add"), "the count of bytes of strings")
    marks = put_at(node, total, ends, node.fill(1, like=ends))
    owner = node.op("cumulative", marks, axis=0, kind="add")  # of each byte, the string it is in
    begins = node.op("sub", node.flat(x.starts), node.op("sub", ends, lengths))
    shift = node.op("take", not_empty(node, begins), owner, axis=0, mode="clamp")
    place = node.op("iota", dtype=dtype("i64"), shape=(total,), axis=0)
    place = node.op("add", place, shift)
    data = node.op("take", not_empty(node, x.data), place, axis=0, mode="clamp")
    return node.reshape(ends, shape_of(x.lengths)), data


def packed(node: Emitter, x: Strings, define_size: DefineSize) -> Strings:
    """The same over bytes of their own, which stand one behind another."""
    ends, data = pack(node, x, define_size)
    return Strings(node.op("sub", ends, x.lengths), x.lengths, data)


def in_a_row(node: Emitter, lengths: Value, data: Value) -> Strings:
    """Strings of these lengths, whose bytes stand one behind another."""
    ends = node.op("cumulative", node.flat(lengths), axis=0, kind="add")
    starts = node.op("sub", node.reshape(ends, shape_of(lengths)), lengths)
    return Strings(starts, lengths, data)


def put_at(node: Emitter, count: Dim, places: Value, values: Value) -> Value:
    """[count]: sums of the values [n] at places [n]; those outside are left out."""
    return scatter_rows(node, node.full(0, type_of(values).dtype, (count,)), places, values, "add")


def longest(node: Emitter, lengths: Value) -> Value:
    """The greatest of the lengths [n]; of none it is 0."""
    return node.op("max", node.reduce(lengths, [0], "max"), node.size(0))


def not_empty(node: Emitter, row: Value) -> Value:
    """With a zero behind it, since nothing can be taken of nothing."""
    return node.op("concatenate", row, node.constant([0], type_of(row).dtype), axis=0)


def padded_bytes(node: Emitter, x: Strings, width: Dim) -> Value:
    """u8[..., width]: the first bytes of each string, with zeros behind its end."""
    shape = (*shape_of(x.starts), width)
    rank = len(shape) - 1
    place = node.op("iota", dtype=dtype("i64"), shape=shape, axis=rank)
    starts, lengths = (
        node.op("broadcast", each, shape=shape, dimensions=tuple(range(rank)))
        for each in (x.starts, x.lengths)
    )
    found = node.op(
        "take", not_empty(node, x.data), node.op("add", starts, place), axis=0, mode="clamp"
    )
    return node.op("select", node.compare("lt", place, lengths), found, 0)


def word_parts(
    node: Emitter, x: Strings, words: Sequence[str]
) -> tuple[Value, np.ndarray[Any, np.dtype[np.uint64]]]:
    """u64[..., parts] of the strings and u64[words, parts]: bytes by eights, zeros behind
    the end, as many as the longest word has; at least one part."""
    encoded = [word.encode("utf-8") for word in words]
    count = -(-max(map(len, encoded), default=1) // _WORD) or 1
    table = np.zeros((len(words), count * _WORD), np.uint8)
    for row, word in enumerate(encoded):
        table[row, : len(word)] = np.frombuffer(word, np.uint8)
    bytes = padded_bytes(node, x, count * _WORD)
    parts = node.reshape(bytes, (*shape_of(x.starts), count, _WORD))
    return node.op("reinterpret", parts, dtype=dtype("u64")), table.view("<u8")


def matches(node: Emitter, x: Strings, words: Sequence[str]) -> Value:
    """i1[..., words]: which word each string is, byte by byte. Of equal words the first counts."""
    given, known = word_parts(node, x, words)
    rank, count = len(shape_of(x.starts)), known.shape[1]
    shape = (*shape_of(x.starts), len(words), count)
    given = node.op("broadcast", given, shape=shape, dimensions=(*range(rank), rank + 1))
    table = node.broadcast_to(node.constant(known, "u64"), shape)
    same = node.reduce(node.compare("eq", given, table), [rank + 1], "and")
    lengths = node.op("broadcast", x.lengths, shape=shape[:-1], dimensions=tuple(range(rank)))
    wanted = node.constant([len(word.encode("utf-8")) for word in words], "i64")
    hits = node.op("and", same, node.compare("eq", lengths, node.broadcast_to(wanted, shape[:-1])))
    first = np.array([words.index(word) == place for place, word in enumerate(words)])
    if first.all():
        return hits
    return node.op("and", hits, node.broadcast_to(node.constant(first, "i1"), shape[:-1]))

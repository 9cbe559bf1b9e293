"""Ops that read the bytes of strings one by one: RegexFullMatch, StringSplit, Cast."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnx import TensorProto

from ingot.compiler.frontends.automata import compile_pattern
from ingot.compiler.frontends.onnx.lowerings.matching import (
    Marks,
    apart,
    counted,
    gathered,
    ranked,
    runs,
)
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.onnx.numerals import (
    INFINITY,
    INTEGER,
    NAN,
    NUMBER,
    as_float,
    as_integer,
    read_decimals,
    write_numbers,
)
from ingot.compiler.frontends.onnx.registry import STRINGS, lowering
from ingot.compiler.frontends.onnx.tensors import dtype_of, element_type_name
from ingot.compiler.frontends.strings import Strings, longest, not_empty, padded_bytes
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []


@lowering("RegexFullMatch", domain=STRINGS)
def regex_full_match(node: Node) -> Value:
    """What is no UTF-8 does not match."""
    x = node.strings(0)
    if x is None or not node.has("pattern"):
        raise UnsupportedNode("its pattern is missing: fix the model")
    return node.reshape(_match(node, x, node.text("pattern", "")), shape_of(x.starts))


def _match(node: Node, x: Strings, pattern: str) -> Value:
    """i1[n]: whether the strings match. An automaton takes a byte of each one per step."""
    automaton = compile_pattern(pattern)
    width = automaton.following.shape[1]
    following = node.constant(automaton.following.reshape(-1), "u16")
    classes = node.constant(automaton.classes, "u16")
    starts, lengths, data = node.flat(x.starts), node.flat(x.lengths), not_empty(node, x.data)

    def step(builder: Builder, index: Value, carried: Sequence[Value]) -> list[Value]:
        inner, state = node.within(builder), carried[0]
        place = inner.broadcast_to(index, shape_of(starts))
        byte = inner.op("take", data, inner.op("add", starts, place), axis=0, mode="clamp")
        kind = inner.op("take", classes, inner.convert(byte, "i32"), axis=0, mode="clamp")
        row = inner.op("mul", state, width)
        entry = inner.op("add", row, inner.convert(kind, "i32"))
        reached = inner.op("take", following, entry, axis=0, mode="clamp")
        goes_on = inner.compare("lt", place, lengths)
        return [inner.op("select", goes_on, inner.convert(reached, "i32"), state)]

    first = node.full(1, "i32", shape_of(starts))
    (state,) = counted_loop(node.builder, longest(node, lengths), [first], step)
    accepts = node.constant(automaton.accepts[:, 0] != 0, "i1")
    return node.op("take", accepts, state, axis=0, mode="clamp")


_INTEGERS = frozenset(["i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"])
_FLOATS = {"f16": "f32", "bf16": "f32", "f32": "f32", "f64": "f64"}
"""What strings are read as: onnxruntime rounds to f32 before it rounds to 16 bits."""


@lowering("Cast", "CastLike", domain=STRINGS)
def cast_strings(node: Node) -> Value | Strings:
    """Decimals as the nearest number; the call refuses what is none of the type."""
    like, x = node.structure(1), node.strings(0)
    if x is None:
        return write_numbers(node, node.input(0))
    if isinstance(like, Strings) or node.integer("to", 0) == TensorProto.STRING:
        return x
    target = dtype_of(node.integer("to", 0)) if like is None else type_of(node.input(1)).dtype
    if target is None or target.name not in _INTEGERS | _FLOATS.keys():
        wanted = target or element_type_name(node.integer("to", 0))
        raise UnsupportedNode(
            f"casts strings to {wanted}: use integers of 8 to 64 bits or floats of 16 to 64"
        )
    decimals = read_decimals(node, x)
    if not target.is_float:
        found, known = as_integer(decimals, dtype("i64") if target.is_boolean else target)
        valid, result = _match(node, x, INTEGER), found.value
        if target.is_boolean:
            result = node.compare("ne", result, 0)
    else:
        infinite, none = _match(node, x, INFINITY), _match(node, x, NAN)
        read = dtype(_FLOATS[target.name])
        found, known = as_float(decimals, read, infinite)
        result = node.op("select", none, node.full(math.nan, read, shape_of(none)), found.value)
        result = node.convert(result, target)
        valid = node.op("or", node.op("or", infinite, none), _match(node, x, NUMBER))
    valid = node.op("and", valid, known.value)
    every = node.convert(node.reduce(valid, [0], "and"), "i64")
    node.require(every, 1, f"whether all strings are numbers of {target}, of which digits tell one")
    return node.reshape(result, shape_of(x.starts))


_BLANKS = ((0x09, 0x0D), (0x1C, 0x20))  # of ASCII, as str.split() has them


@lowering("StringSplit", domain=STRINGS)
def string_split(node: Node) -> tuple[Strings, Value]:
    """[...] -> [..., pieces], with empty strings behind the last piece; and how many each has.

    Pieces are marked on bytes[strings, longest]: where each begins and ends, and its place.
    """
    x = node.strings(0)
    assert x is not None
    rows = Strings(node.flat(x.starts), node.flat(x.lengths), x.data)
    width = node.count(longest(node, rows.lengths), "the length of the longest string")
    delimiter, most = node.text("delimiter", "").encode(), node.integer("maxsplit", -1)
    if delimiter:
        pieces = _between_delimiters(node, rows, width, delimiter, most)
    else:
        pieces = _between_blanks(node, rows, width, most)
    greatest = node.count(longest(node, pieces.counts), "the count of pieces")
    begins, ends = (gathered(node, marks, greatest) for marks in (pieces.begins, pieces.ends))
    wide = node.op("broadcast", rows.starts, shape=shape_of(begins), dimensions=(0,))
    shape = shape_of(x.starts)
    starts, lengths = (
        node.reshape(each, (*shape, greatest))
        for each in (node.op("add", wide, begins), node.op("sub", ends, begins))
    )
    return Strings(starts, lengths, x.data), node.reshape(pieces.counts, shape)


@dataclass(frozen=True)
class _Pieces:
    """Where the pieces begin (at 0 without a mark), where they end, and how many they are."""

    begins: Sequence[Marks]
    ends: Sequence[Marks]
    counts: Value


def _between_delimiters(
    node: Node, rows: Strings, width: Dim, delimiter: bytes, most: int
) -> _Pieces:
    size = len(delimiter)
    data = padded_bytes(node, rows, width + size - 1)
    shape = (shape_of(rows.starts)[0], width)
    place = node.op("iota", dtype=dtype("i64"), shape=shape, axis=1)
    behind = node.op("add", place, size)
    lengths = node.op("broadcast", rows.lengths, shape=shape, dimensions=(0,))
    hits = node.compare("le", behind, lengths)
    for index, byte in enumerate(delimiter):
        given = node.sliced(data, 1, index, width + index)
        hits = node.op("and", hits, node.compare("eq", given, byte))
    if any(delimiter.startswith(delimiter[first:]) for first in range(1, size)):
        sizes = node.op("select", hits, node.fill(size, like=place), node.fill(0, like=place))
        hits, _ = apart(node, sizes)
    before = ranked(node, hits)
    if most >= 0:
        hits = node.op("and", hits, node.compare("lt", before, most))
    splits = counted(node, hits)
    rank = node.op("add", before, 1)
    every = node.full(1, "i1", shape_of(splits))
    return _Pieces(
        [Marks(hits, rank, behind)],
        [Marks(hits, before, place), _last(node, every, splits, rows.lengths)],
        node.op("add", splits, 1),
    )


def _last(node: Node, marked: Value, place: Value, lengths: Value) -> Marks:
    """One mark per string: the piece at the place goes on to its end."""
    shape = (*shape_of(lengths), 1)
    return Marks(*(node.reshape(each, shape) for each in (marked, place, lengths)))


def _between_blanks(node: Node, rows: Strings, width: Dim, most: int) -> _Pieces:
    data = padded_bytes(node, rows, width)
    shape = shape_of(data)
    place = node.op("iota", dtype=dtype("i64"), shape=shape, axis=1)
    lengths = node.op("broadcast", rows.lengths, shape=shape, dimensions=(0,))
    solid = node.compare("lt", place, lengths)
    for low, high in _BLANKS:
        offset = node.op("sub", data, low)
        solid = node.op("and", solid, node.compare("gt", offset, high - low))
    begins, ends = runs(node, solid, place)
    if most < 0:
        return _Pieces([begins], [ends], counted(node, begins.marked))
    last = node.fill(most, like=place)
    first_ones = node.op("and", begins.marked, node.compare("le", begins.place, last))
    begins = Marks(first_ones, begins.place, begins.value)
    ends_inside = node.op("and", ends.marked, node.compare("lt", ends.place, last))
    counts = counted(node, first_ones)
    final = node.fill(most, like=counts)
    rest = _last(node, node.compare("gt", counts, final), final, rows.lengths)
    return _Pieces([begins], [Marks(ends_inside, ends.place, ends.value), rest], counts)

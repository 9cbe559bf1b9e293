"""com.microsoft.Tokenizer: strings as rows of the parts that patterns find or leave."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.automata import compile_pattern
from ingot.compiler.frontends.onnx.lowerings.matching import (
    Marks,
    apart,
    counted,
    gathered,
    longest_matches,
    ranked,
    runs,
)
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.frontends.strings import (
    Strings,
    constant_strings,
    join_data,
    longest,
    padded_bytes,
    take_strings,
)
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim

__all__: list[str] = []

_CHARACTER = r"(?s:.)"


@lowering("Tokenizer", domain=MICROSOFT)
def tokenizer(node: Node) -> Strings:
    """[...] -> [..., tokens], with the pad value behind the last token of a row; with `mark` in
    front of that and of the first one U+0003 and U+0002. No tokens at all make [..., 0]."""
    x, least = node.strings(0), node.integer("mincharnum", 0)
    unsupported(x is None, "its input is no tensor of strings: fix the model")
    assert x is not None
    unsupported(least < 1, f"its mincharnum is {least}: expected 1 or more")
    rows = Strings(node.flat(x.starts), node.flat(x.lengths), x.data)
    width = node.count(longest(node, rows.lengths), "the length of the longest string")
    data = padded_bytes(node, rows, width)
    place = node.op("iota", dtype=type_of(rows.lengths).dtype, shape=shape_of(data), axis=1)
    lengths = node.op("broadcast", rows.lengths, shape=shape_of(data), dimensions=(0,))
    begins, ends = _tokens(node, data, node.compare("lt", place, lengths), place)
    if least > 1:
        begins, ends = _long_ones(node, data, begins, ends, least)
    return _framed(node, rows, begins, ends, shape_of(x.starts))


def _tokens(node: Node, data: Value, inside: Value, place: Value) -> tuple[Marks, Marks]:
    """Where tokens begin and end."""
    pattern, separators = node.text("tokenexp", ""), node.texts("separators") or []
    unsupported(
        bool(pattern) == bool(separators),
        "it has tokenexp and separators, or neither: fix the model",
    )
    if separators == [""] or pattern == ".":
        pattern = _CHARACTER
    if pattern:
        sizes = longest_matches(node, data, inside, compile_pattern(pattern))
        starts, _ = apart(node, sizes)
        rank = ranked(node, starts)
        return Marks(starts, rank, place), Marks(starts, rank, node.op("add", place, sizes))
    for each in separators:
        automaton = compile_pattern(each)
        empty = bool(automaton.accepts[automaton.begins].any())
        unsupported(empty, f"its separator '{each}' may match no character: make it match one")
        _, covered = apart(node, longest_matches(node, data, inside, automaton))
        inside = node.op("and", inside, node.op("not", covered))
    return runs(node, inside, place)


def _long_ones(
    node: Node, data: Value, begins: Marks, ends: Marks, least: int
) -> tuple[Marks, Marks]:
    """The tokens of at least so many characters."""
    high = node.op("and", data, 0xC0)
    heads = node.convert(node.compare("ne", high, 0x80), "i64")
    heads = node.op("cumulative", heads, axis=1, kind="add")
    heads = node.padded(heads, (0, 1), (0, 0))
    most = node.count(longest(node, counted(node, begins.marked)), "the count of tokens")
    first, last = (gathered(node, [each], most) for each in (begins, ends))
    read = (node.gather_along(heads, each, 1, "clamp") for each in (last, first))
    characters = node.op("sub", *read)
    kept = node.compare("ge", characters, least)
    rank = ranked(node, kept)
    return Marks(kept, rank, first), Marks(kept, rank, last)


def _framed(node: Node, rows: Strings, begins: Marks, ends: Marks, shape: Sequence[Dim]) -> Strings:
    """[..., columns]: with marks and pad values."""
    counts = counted(node, begins.marked)
    most = node.count(longest(node, counts), "the count of tokens")
    texts = [node.text("pad_value", ""), "\x02", "\x03"]
    rows, constants = join_data(node, [rows, constant_strings(node, texts, (3,))])
    mark = int(bool(node.integer("mark", 0)))
    columns = most + 2 * mark * dims.minimum(most, 1)
    first = node.fill(0, like=counts)
    closing = node.op("add", counts, 1)
    edges = []
    for marks, after in ((begins, 0), (ends, 1)):
        start = node.op("broadcast", rows.starts, shape=shape_of(marks.value), dimensions=(0,))
        place = node.op("add", marks.place, mark)
        put = [Marks(marks.marked, place, node.op("add", start, marks.value))]
        for text, column in ((1, first), (2, closing)) if mark else ():
            begin = take_strings(node, constants, node.fill(text, like=column)).starts
            value = node.op("add", begin, after)
            every = node.full(1, "i1", shape_of(column))
            put.append(Marks(*(node.reshape(x, (*shape_of(x), 1)) for x in (every, column, value))))
        edges.append(gathered(node, put, columns))
    column = node.op("iota", dtype=type_of(counts).dtype, shape=shape_of(edges[0]), axis=1)
    used = node.op("add", counts, 2 * mark)
    used = node.op("broadcast", used, shape=shape_of(column), dimensions=(0,))
    is_used = node.compare("lt", column, used)
    filling = take_strings(node, constants, node.fill(0, like=column))
    begin, end = edges
    starts = node.op("select", is_used, begin, filling.starts)
    lengths = node.op("select", is_used, node.op("sub", end, begin), filling.lengths)
    wide = (*shape, columns)
    return Strings(node.reshape(starts, wide), node.reshape(lengths, wide), rows.data)

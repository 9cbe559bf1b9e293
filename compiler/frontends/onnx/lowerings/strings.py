"""Ops on strings. Those that only move elements move where each begins and its length."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.frontends.lookups import find_texts
from ingot.compiler.frontends.onnx.lowerings.letter_case import change_case, in_case
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import CLASSIC, STRINGS, find_lowering, lowering
from ingot.compiler.frontends.strings import (
    Strings,
    are_equal,
    join_data,
    matches,
    move_strings,
    pack,
    spread,
)
from ingot.compiler.ir import Value, dims

__all__: list[str] = []

_MOVES = {
    "": (
        *("Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity"),
        *("Reshape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where"),
    ),
    CLASSIC: ("ArrayFeatureExtractor",),
}


def _moved(name: str, domain: str) -> Callable[[Node], tuple[Strings, ...]]:
    def lower(node: Node) -> tuple[Strings, ...]:
        of_numbers = find_lowering(domain, name, node.opset)
        assert of_numbers is not None

        def apply(given: Sequence[Value | None]) -> object:
            inner = node.revised(node.opset)
            inner.inputs = list(given)
            return of_numbers(inner)

        return tuple(move_strings(node, node.inputs, apply))

    return lower


for _domain, _names in _MOVES.items():
    for _name in _names:
        lowering(_name, domain=STRINGS)(_moved(_name, _domain))


@lowering("Shape", "Size", domain=STRINGS)
def shape(node: Node) -> Value:
    strings = node.strings(0)
    assert strings is not None
    of_numbers = find_lowering("", node.proto.op_type, node.opset)
    assert of_numbers is not None
    made = of_numbers(node.with_input(0, strings.lengths))
    assert isinstance(made, Value)
    return made


def _pair(node: Node) -> tuple[Strings, Strings]:
    a, b = node.strings(0), node.strings(1)
    if a is None or b is None:
        raise UnsupportedNode("it takes strings and numbers: fix the model")
    return a, b


@lowering("Equal", domain=STRINGS)
def equal(node: Node) -> Value:
    a, b = _pair(node)
    return are_equal(node, a, b, node.count)


@lowering("StringConcat", domain=STRINGS)
def string_concat(node: Node) -> Strings:
    a, b = join_data(node, spread(node, *_pair(node)))
    shape, rank = shape_of(a.starts), type_of(a.starts).rank
    starts, lengths = (
        node.op("concatenate", *(node.reshape(x, (*shape, 1)) for x in both), axis=rank)
        for both in ((a.starts, b.starts), (a.lengths, b.lengths))
    )
    ends, data = pack(node, Strings(starts, lengths, a.data), node.count)
    total = node.reduce(lengths, [rank], "add")
    last = node.sliced(ends, rank, 1, 2)
    return Strings(node.op("sub", node.reshape(last, shape), total), total, data)


@lowering("StringNormalizer", domain=STRINGS)
def string_normalizer(node: Node) -> Strings:
    """[n] or [1, n] without stop words, in upper or lower case; one empty string of nothing."""
    x = node.strings(0)
    assert x is not None
    action = node.text("case_change_action", "NONE")
    unsupported(action not in ("NONE", "LOWER", "UPPER"), f"its case_change_action is {action}")
    own = shape_of(x.starts)
    unsupported(
        len(own) not in (1, 2) or (len(own) == 2 and own[0] != 1),
        f"its input is {x}: use rank 1, or one row",
    )
    stops = node.texts("stopwords") or []
    sensitive = bool(node.integer("is_case_sensitive", 0))
    changed = x if action == "NONE" else _changed(node, x, action)
    if not stops:
        return changed
    compared = x
    if not sensitive:
        compared, stops = _changed(node, x, "LOWER"), [in_case(word, "LOWER") for word in stops]
    row = Strings(node.flat(compared.starts), node.flat(compared.lengths), compared.data)
    stopped = node.reduce(matches(node, row, list(dict.fromkeys(stops))), [1], "or")
    places = node.nonzero(node.op("not", stopped), f"{node.proto.output[0]}_count")
    count = shape_of(places)[1]
    places = node.reshape(places, (count,))
    kept = dims.maximum(count, 1)
    columns = []
    for each in (changed.starts, changed.lengths):
        taken = node.op("take", node.flat(each), places, axis=0, mode="check")
        taken = node.op("concatenate", taken, node.constant([0], "i64"), axis=0)
        taken = node.sliced(taken, 0, 0, kept)
        columns.append(node.reshape(taken, (*own[:-1], kept)))
    starts, lengths = columns
    return Strings(starts, lengths, changed.data)


def _changed(node: Node, x: Strings, action: str) -> Strings:
    return Strings(x.starts, x.lengths, change_case(node, x.data, action))


@lowering("TfIdfVectorizer", domain=STRINGS)
def count_ngrams(node: Node) -> Value:
    """Words as their places among those of the pool, and then as numbers."""
    x = node.strings(0)
    pool = node.texts("pool_strings")
    if x is None or not pool:
        raise UnsupportedNode("its pool_strings are missing: fix the model")
    words = list(dict.fromkeys(pool))
    place, known = find_texts(node, x, words)
    inner = node.with_input(0, node.op("select", known, place, -1))
    inner = inner.revised(node.opset)
    inner.set_attribute("pool_int64s", [words.index(word) for word in pool])
    of_numbers = find_lowering("", "TfIdfVectorizer", node.opset)
    assert of_numbers is not None
    made = of_numbers(inner)
    assert isinstance(made, Value)
    return made

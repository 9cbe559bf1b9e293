"""TfIdfVectorizer over integers: how often each n-gram of a list occurs in a sequence."""

from __future__ import annotations

import numpy as np

from ingot.compiler.frontends.onnx.malformed import bounded
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__: list[str] = []


@lowering("TfIdfVectorizer", since=9)
def count_ngrams(node: Node) -> Value:
    """i64[n] or [b, n] -> f32[..., columns]."""
    x = node.input(0)
    pool = node.integers("pool_int64s")
    if pool is None or not type_of(x).dtype.is_integer:
        raise UnsupportedNode("n-grams of strings are not supported: map words to integers first")
    unsupported(type_of(x).rank not in (1, 2), f"its input is {x.type}: use rank 1 or 2")
    shortest, longest = node.integer("min_gram_length", 1), node.integer("max_gram_length", 1)
    starts, columns = node.integers("ngram_counts") or (), node.integers("ngram_indexes") or ()
    unsupported(not columns, "its ngram_indexes are missing: fix the model")
    width = bounded(max(columns) + 1, "the count of columns")
    bounded(width * len(columns), "the count of columns times that of n-grams")
    rows = x if type_of(x).rank == 2 else node.reshape(x, (1, *shape_of(x)))
    total = node.full(0, "f32", (shape_of(rows)[0], width))
    first = 0
    for size in range(1, len(starts) + 1):
        end = starts[size] if size < len(starts) else len(pool)
        grams = np.array(pool[starts[size - 1] : end], np.int64).reshape(-1, size)
        places = columns[first : first + len(grams)]
        first += len(grams)
        if len(grams) and shortest <= size <= longest:
            counts = _occurrences(node, rows, grams)
            total = node.op("add", total, _spread(node, counts, places, width))
    result = _weigh(node, total, columns)
    return result if type_of(x).rank == 2 else node.reshape(result, (width,))


def _occurrences(
    node: Node, rows: Value, grams: np.ndarray[tuple[int, ...], np.dtype[np.int64]]
) -> Value:
    """How often each n-gram occurs in each row, with up to max_skip_count left out between."""
    batch, length = shape_of(rows)
    if not isinstance(length, int):
        raise UnsupportedNode(f"a sequence of symbolic length {length}: fix the length")
    number, size = grams.shape
    skips = node.integer("max_skip_count", 0) if size > 1 else 0
    rows = node.convert(rows, "i64")
    result = node.full(0, "f32", (batch, number))
    for step in range(1, skips + 2):
        starts = length - (size - 1) * step
        if starts < 1:
            break
        equal: Value | None = None
        for place in range(size):
            cut = node.op(
                "slice", rows, start=(0, place * step), limit=(batch, place * step + starts)
            )
            shape = (batch, number, starts)
            cut = node.op("broadcast", cut, shape=shape, dimensions=(0, 2))
            wanted = node.constant(grams[:, place], dtype("i64"))
            wanted = node.op("broadcast", wanted, shape=shape, dimensions=(1,))
            same = node.compare("eq", cut, wanted)
            equal = same if equal is None else node.op("and", equal, same)
        assert equal is not None
        found = node.reduce(node.convert(equal, "f32"), [2], "add")
        result = node.op("add", result, found)
    return result


def _spread(node: Node, counts: Value, places: tuple[int, ...], width: int) -> Value:
    """Counts [b, grams] in the columns that the grams have: [b, width]."""
    matrix = np.zeros((len(places), width), np.float32)
    matrix[np.arange(len(places)), places] = 1
    return node.op(
        "dot_general",
        counts,
        node.constant(matrix, "f32"),
        lhs_contract=(1,),
        rhs_contract=(0,),
        dtype=dtype("f32"),
    )


def _weigh(node: Node, counts: Value, columns: tuple[int, ...]) -> Value:
    """Counts as they are (TF), as 0 or 1 (IDF), times weights unless the mode is TF."""
    mode = node.text("mode", "TF")
    unsupported(mode not in ("TF", "IDF", "TFIDF"), f"mode '{mode}' is not known")
    if mode == "IDF":
        counts = node.convert(node.compare("gt", counts, node.fill(0, like=counts)), "f32")
    weights = node.numbers("weights")
    if mode == "TF" or weights is None:
        return counts
    factors = np.zeros(max(columns) + 1, np.float32)
    factors[list(columns)] = weights
    return node.op(
        "mul", counts, node.broadcast_to(node.constant(factors, "f32"), shape_of(counts))
    )

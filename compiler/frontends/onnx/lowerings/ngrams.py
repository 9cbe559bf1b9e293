"""TfIdfVectorizer over integers: how often each n-gram of a list occurs in a sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.compiler.frontends.lookups import find_rows
from ingot.compiler.frontends.onnx.malformed import bounded
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.frontends.strings import put_at
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []

_GREATEST_SKIP = 256  # for each there is code of its own


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
    rows = x if type_of(x).rank == 2 else node.reshape(x, (1, *shape_of(x)))
    rows = node.convert(rows, "i64")
    batch = shape_of(rows)[0]
    total = node.full(0, "f32", (batch * width,))
    first = 0
    for size in range(1, len(starts) + 1):
        end = starts[size] if size < len(starts) else len(pool)
        grams = np.array(pool[starts[size - 1] : end], np.int64).reshape(-1, size)
        places = columns[first : first + len(grams)]
        first += len(grams)
        if len(grams) and shortest <= size <= longest:
            for step in range(1, (_skips(node, shape_of(rows)[1]) if size > 1 else 0) + 2):
                total = node.op("add", total, _occurrences(node, rows, grams, step, places, width))
    result = _weigh(node, node.reshape(total, (batch, width)), columns)
    return result if type_of(x).rank == 2 else node.reshape(result, (width,))


def _skips(node: Node, length: Dim) -> int:
    """How many elements may be left out between two of an n-gram."""
    most = node.integer("max_skip_count", 0)
    most = min(most, length) if isinstance(length, int) else most
    return bounded(most, "max_skip_count", _GREATEST_SKIP)


def _occurrences(
    node: Node,
    rows: Value,
    grams: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
    step: int,
    places: Sequence[int],
    width: int,
) -> Value:
    """f32[batch * width]: how often each n-gram occurs in each row, in its column. Between its
    elements, `step` - 1 others are left out."""
    batch, length = shape_of(rows)
    size = grams.shape[1]
    high = (0, (size - 1) * step)  # so that each element begins one; those cut off are no n-grams
    wide = node.padded(rows, (0, 0), high)
    given = [node.sliced(wide, 1, at * step, length + at * step) for at in range(size)]
    place, found = find_rows(node, given, list(grams.T))
    at = node.op("iota", dtype=dtype("i64"), shape=(batch, length), axis=1)
    last = node.broadcast_to(node.size(length - high[1]), (batch, length))
    found = node.op("and", found, node.compare("lt", at, last))
    column = node.op("take", node.constant(list(places), "i64"), place, axis=0, mode="clamp")
    row = node.op("iota", dtype=dtype("i64"), shape=(batch, length), axis=0)
    target = node.op("add", node.op("mul", row, width), column)
    target = node.op("select", found, target, -1)
    ones = node.full(1, "f32", (batch * length,))
    return put_at(node, batch * width, node.flat(target), ones)


def _weigh(node: Node, counts: Value, columns: tuple[int, ...]) -> Value:
    """Counts as they are (TF), as 0 or 1 (IDF), times weights unless the mode is TF."""
    mode = node.text("mode", "TF")
    unsupported(mode not in ("TF", "IDF", "TFIDF"), f"mode '{mode}' is not known")
    if mode == "IDF":
        counts = node.convert(node.compare("gt", counts, 0), "f32")
    weights = node.numbers("weights")
    if mode == "TF" or weights is None:
        return counts
    factors = np.zeros(max(columns) + 1, np.float32)
    factors[list(columns)] = weights
    return node.op(
        "mul", counts, node.broadcast_to(node.constant(factors, "f32"), shape_of(counts))
    )

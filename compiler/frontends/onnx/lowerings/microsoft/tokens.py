"""Ops of `com.microsoft` on tokens."""

from __future__ import annotations

import math

from ingot.compiler.frontends.indexed import scatter_elements
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.ir import Value, dims
from ingot.hal.spec import dtype

__all__ = ["block_repeats"]

_LONGEST = 64  # tokens in a run: each is some ops


@lowering("NGramRepeatBlock", domain=MICROSOFT)
def ngram_repeat_block(node: Node) -> Value:
    return block_repeats(node, node.input(0), node.input(1), node.integer("ngram_size", 0))


def block_repeats(
    node: Node, tokens: Value, scores: Value, size: int, least: float = -math.inf
) -> Value:
    """Scores [batch, vocabulary] with the least one for a token that would end a run of `size`
    that is in tokens [batch, sequence] already."""
    wrong = f"it looks for runs of {size} tokens (ngram_size), expected 1 to {_LONGEST}"
    unsupported(not 1 <= size <= _LONGEST, wrong)
    batch, length = shape_of(tokens)
    count = dims.maximum(length - size + 1, 0)
    starts = node.op("iota", dtype=dtype("i64"), shape=(count,), axis=0)
    repeats = node.full(True, "i1", (batch, count))

    def run(place: int) -> Value:
        at = node.op("add", starts, place)
        return node.op("take", tokens, at, axis=1, mode="clamp")

    for place in range(size - 1):
        last = node.op("take", tokens, node.size(length - size + 1 + place), axis=1, mode="clamp")
        last = node.broadcast_to(node.reshape(last, (batch, 1)), (batch, count))
        repeats = node.op("and", repeats, node.compare("eq", run(place), last))
    blocked, free = (node.full(x, "f32", (batch, count)) for x in (least, math.inf))
    limits = node.op("select", repeats, blocked, free)
    return scatter_elements(node, scores, 1, run(size - 1), limits, "min", "skip")


@lowering("BifurcationDetector", domain=MICROSOFT)
def bifurcation(node: Node) -> tuple[Value, Value]:
    """The tokens so far with as many predicted ones as the source has, too, and one more; and
    where the source goes on behind the only place in it that has the last tokens, or -1."""
    source, tokens, predicted = node.input(0), node.input(1), node.optional(3)
    if predicted is not None:
        start = node.count(node.reshape(node.input(2), ()), "prev_suffix_match_idx")
        rest = node.sliced(source, -1, start, shape_of(source)[0])
        predicted = node.agree(predicted, (shape_of(rest)[0] + 1,))
        same = node.compare("eq", node.sliced(predicted, -1, 0, shape_of(rest)[0]), rest)
        run = node.op("cumulative", node.convert(same, "i64"), axis=0, kind="min")
        taken = node.count(node.reduce(run, [0], "add"), "how many predicted tokens fit")
        tokens = node.op("concatenate", tokens, node.sliced(predicted, -1, 0, taken + 1), axis=0)
    least, most = node.integer("min_ngram_size", 1), node.integer("max_ngram_size", 3)
    unsupported(
        not 1 <= least <= most <= _LONGEST,
        f"its runs have {least} to {most} tokens, expected 1 to {_LONGEST}",
    )
    found = node.constant(-1, "i64")
    goes_on = node.constant(True, "i1")
    for size in range(least, most + 1):
        places, count = _ends_of_run(node, source, tokens, size)
        is_only = node.compare("eq", count, node.constant(1, "i64"))
        found = node.op("select", node.op("and", goes_on, is_only), places, found)
        more = node.compare("gt", count, node.constant(1, "i64"))
        goes_on = node.op("and", goes_on, more)
    return tokens, node.reshape(node.convert(found, type_of(source).dtype), (1,))


def _ends_of_run(node: Node, source: Value, tokens: Value, size: int) -> tuple[Value, Value]:
    """The sum of the ends of all places of the last `size` tokens, and how many there are."""
    length, last = shape_of(source)[0], shape_of(tokens)[0]
    count = dims.maximum(length - size + 1, 0)
    place = node.op("iota", dtype=dtype("i64"), shape=(count,), axis=0)
    fits = node.compare("ge", node.size(last), node.constant(size, "i64"))
    hit = node.broadcast_to(fits, (count,))
    for each in range(size):
        at = node.op("add", place, each)
        found = node.op("take", source, at, axis=0, mode="clamp")
        wanted = node.op("take", tokens, node.size(last - size + each), axis=0, mode="clamp")
        same = node.compare("eq", found, node.broadcast_to(wanted, (count,)))
        hit = node.op("and", hit, same)
    hits = node.convert(hit, "i64")
    ends = node.op("mul", hits, node.op("add", place, size))
    return node.reduce(ends, [0], "add"), node.reduce(hits, [0], "add")

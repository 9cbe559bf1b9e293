"""What changes the scores of next tokens, and how one is drawn of them."""

from __future__ import annotations

import numpy as np

from ingot.compiler.frontends.indexed import scatter_elements
from ingot.compiler.frontends.onnx.lowerings.microsoft.generation.request import Request
from ingot.compiler.frontends.onnx.lowerings.microsoft.tokens import block_repeats
from ingot.compiler.frontends.onnx.lowerings.random_numbers import classes_at
from ingot.compiler.frontends.onnx.node import Node, shape_of
from ingot.compiler.frontends.onnx.registry import lower_as
from ingot.compiler.frontends.random_numbers import threefry
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["LEAST", "Nucleus", "Scores"]

LEAST = float(np.finfo(np.float32).min)
"""The score of a token that must not come."""


class Scores:
    """The rules of a request, for `width` rows of each text of the batch."""

    def __init__(self, request: Request, width: Dim = 1) -> None:
        self._request = request
        self._width = width
        self._penalty = request.scalar("repetition_penalty", "f32")
        self._least_length = request.scalar("min_length", "i64")
        self._vocabulary = request.optional("vocab_mask")
        self._first = request.optional("prefix_vocab_mask")
        self._present = request.optional("presence_mask")

    def processed(self, node: Node, scores: Value, tokens: Value, is_first: bool) -> Value:
        """f32[rows, vocabulary] for the next token of texts i32[rows, n]."""
        request = self._request
        if self._penalty is not None:
            scores = self._penalized(node, scores, tokens)
        if ngram := request.node.integer("no_repeat_ngram_size", 0):
            scores = block_repeats(node, tokens, scores, ngram, LEAST)
        if self._vocabulary is not None:
            scores = _allowed(node, scores, self._vocabulary)
        if self._first is not None and is_first:
            scores = _allowed(node, scores, node.repeated(self._first, 0, self._width))
        if self._least_length is not None:
            scores = self._not_yet_ended(node, scores, node.size(shape_of(tokens)[1]))
        heat = request.node.number("temperature", 1.0)
        if heat not in (0.0, 1.0):
            scores = node.op("div", scores, heat)
        if self._present is not None:
            factor = node.fill(request.node.number("presence_penalty", 0.0), like=scores)
            present = node.convert(self._present, "f32")
            scores = node.op("sub", scores, node.op("mul", present, factor))
        return scores

    def _penalized(self, node: Node, scores: Value, tokens: Value) -> Value:
        """Scores of tokens of the text are divided by the penalty, and multiplied below zero."""
        assert self._penalty is not None
        shape = shape_of(scores)
        marks = node.full(1, "i32", shape_of(tokens))
        seen = scatter_elements(node, node.full(0, "i32", shape), 1, tokens, marks, "max", "skip")
        factor = node.broadcast_to(self._penalty, shape)
        is_negative = node.compare("lt", scores, 0)
        multiplied, divided = (node.op(each, scores, factor) for each in ("mul", "div"))
        penalized = node.op("select", is_negative, multiplied, divided)
        return node.op("select", node.convert(seen, "i1"), penalized, scores)

    def _not_yet_ended(self, node: Node, scores: Value, length: Value) -> Value:
        """No end before min_length."""
        assert self._least_length is not None
        shape = shape_of(scores)
        token = node.op("iota", dtype=dtype("i32"), shape=shape, axis=1)
        is_end = node.compare("eq", token, self._request.eos)
        is_short = node.broadcast_to(node.compare("lt", length, self._least_length), shape)
        blocked = node.op("and", is_end, is_short)
        return node.op("select", blocked, LEAST, scores)


def _allowed(node: Node, scores: Value, mask: Value) -> Value:
    """The scores where the mask is not 0."""
    mask = node.broadcast_to(node.convert(mask, "i1"), shape_of(scores))
    return node.op("select", mask, scores, LEAST)


class Nucleus:
    """Tokens drawn of the most likely ones that make up `top_p` of the probability.

    The same seed gives the same tokens. `custom` sorts from the greatest down and keeps the token
    with which the sum passes top_p; else tokens go from the least up while their sum does not
    pass 1 - top_p, and min_tokens_to_keep stay.
    """

    def __init__(self, request: Request) -> None:
        self._node = request.node
        self._seed = request.scalar("seed", "u32") or request.node.constant(0, "u32")

    def drawn(self, node: Node, scores: Value, step: Value) -> Value:
        """i32[batch] by f32[batch, vocabulary]."""
        batch, count = shape_of(scores)
        share = self._node.number("top_p", 0.0)
        is_custom = bool(self._node.integer("custom", 0))
        scores, tokens = node.several(
            "top_k", scores, k=count, axis=1, largest=True, dtype=dtype("i32")
        )
        if not is_custom:
            scores, tokens = (node.op("reverse", each, axes=(1,)) for each in (scores, tokens))
        likely = lower_as(node, "Softmax", [scores], {"axis": 1})
        sums = node.op("cumulative", likely, axis=1, kind="add", exclusive=is_custom)
        if is_custom:
            kept = node.compare("le", sums, share)
        else:
            place = node.op("iota", dtype=dtype("i64"), shape=(batch, count), axis=1)
            stay = node.size(count - max(self._node.integer("min_tokens_to_keep", 0), 1))
            stays = node.compare("ge", place, node.broadcast_to(stay, (batch, count)))
            kept = node.compare("gt", sums, np.float32(1) - np.float32(share))
            kept = node.op("or", kept, stays)
        least = node.fill(self._node.number("filter_value", -1e20), like=scores)
        place = classes_at(
            node, node.op("select", kept, scores, least), self._fractions(node, batch, step)
        )
        return node.reshape(node.gather_along(tokens, place, 1, "clamp"), (batch,))

    def _fractions(self, node: Node, batch: Dim, step: Value) -> Value:
        """f32[batch, 1] in [0, 1), by the seed, the step and the place in the batch."""
        row = node.op("iota", dtype=dtype("u32"), shape=(batch,), axis=0)
        key = self._seed, node.convert(step, "u32")
        word, _ = threefry(node.builder, key, (row, node.fill(0, like=row)))
        word = node.op("shift_right_logical", word, 8)
        fraction = node.convert(word, "f32")
        fraction = node.op("mul", fraction, 2.0**-24)
        return node.reshape(fraction, (batch, 1))

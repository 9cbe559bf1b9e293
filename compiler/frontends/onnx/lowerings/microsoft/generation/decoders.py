"""The bodies of a generation: a decoder alone, or one that reads what an encoder made.

Both take their inputs by the names that onnxruntime gives them; all others are caches, in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import onnx

from ingot.compiler.frontends.onnx.lowerings.microsoft.generation.request import Request
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.tensors import dtype_of
from ingot.compiler.ir import TensorType, Value
from ingot.compiler.ir.dims import Dim

__all__ = ["Decoder", "decoder_of"]

_IMPOSSIBLE = ("beam_width", "num_beams", "cache_indirection")


class Decoder(Protocol):
    """Makes scores of the next token; its state are tensors with a row for each text."""

    prompt: Value
    """i32[batch, prompt]."""

    def first(self, node: Node) -> tuple[Value, list[Value]]:
        """The scores behind the prompt, f32[batch, vocabulary], and the state."""

    def step(self, node: Node, tokens: Value, state: Sequence[Value]) -> tuple[Value, list[Value]]:
        """As `first`, behind tokens i32[rows, n], of which only the last was not seen before."""

    def picked(self, node: Node, state: Sequence[Value], rows: Value) -> list[Value]:
        """The rows i32[n] of the state."""

    def widen(self, node: Node, width: Dim) -> None:
        """From here on each text of the batch has `width` rows."""


def decoder_of(request: Request) -> Decoder:
    """The decoder of a node, with the prompt that it has."""
    return _Causal(request) if request.model_type == 0 else _Encoded(request)


def _run(
    node: Node, graph: onnx.GraphProto, given: Mapping[str, Value], caches: Sequence[Value]
) -> list[Value]:
    """The results of a body: inputs by name, `caches` for all others."""
    rest = iter(caches)
    inputs = []
    for value in graph.input:
        name = value.name
        unsupported(name in _IMPOSSIBLE, f"its body '{graph.name}' looks up beams in its cache")
        each = given.get(name) or next(rest, None)
        if each is None:
            raise UnsupportedNode(f"its body '{graph.name}' has no value for '{name}'")
        inputs.append(each)
    results = node.bodies.lower(graph, inputs, node.builder)
    values = [each for each in results if isinstance(each, Value)]
    if len(values) < max(len(results), 1) or not all(
        isinstance(each.type, TensorType) for each in values
    ):
        raise UnsupportedNode(f"its body '{graph.name}' gives no tensors: fix the model")
    return values


def _last(node: Node, logits: Value) -> Value:
    """Of [rows, n, vocabulary] the scores behind the last token, in f32."""
    unsupported(type_of(logits).rank != 3, f"its decoder gives {logits.type} as logits")
    rows, length, count = shape_of(logits)
    last = node.sliced(logits, 1, length - 1, length)
    return node.convert(node.reshape(last, (rows, count)), "f32")


def _empty(node: Node, declared: onnx.ValueInfoProto, batch: Dim, length: Dim) -> Value:
    """A cache for `length` places: [2, batch, heads, length, size], or without the 2."""
    tensor = declared.type.tensor_type
    sizes = [dim.dim_value for dim in tensor.shape.dim]
    element = dtype_of(tensor.elem_type)
    if element is None or len(sizes) not in (4, 5) or not (sizes[-3] and sizes[-1]):
        raise UnsupportedNode(f"its cache '{declared.name}' does not tell heads and their size")
    return node.full(0, element, (*sizes[:-4], batch, sizes[-3], length, sizes[-1]))


class _Causal:
    """A decoder alone, as of GPT-2. The state: the next place, which tokens are no padding, and
    the caches [2, rows, heads, n, size]."""

    def __init__(self, request: Request) -> None:
        self.prompt = request.node.convert(request.node.input(0), "i32")
        request.limit(self.prompt)
        self._request = request
        self._graph = request.node.graph("decoder")
        self._has_room = any(each.name == "past_sequence_length" for each in self._graph.input)

    def first(self, node: Node) -> tuple[Value, list[Value]]:
        tokens, request = self.prompt, self._request
        batch = shape_of(tokens)[0]
        text = node.compare("ne", tokens, request.pad)
        text = node.convert(text, "i32")
        given = request.optional("attention_mask")
        mask = text if given is None else given
        places = node.op("cumulative", text, axis=1, kind="add", exclusive=True)
        places = node.op("mul", places, text)
        graph = request.node.graph("init_decoder") if node.has("init_decoder") else self._graph
        room = request.length if self._has_room else 0
        pasts = [each for each in graph.input if each.name.startswith("past_")]
        caches = [
            _empty(node, each, batch, room)
            for each in pasts if each.name != "past_sequence_length"
        ]  # fmt: skip
        logits, caches = self._decoded(node, graph, tokens, places, mask, caches, 0)
        following = node.reduce(text, [1], "add")
        return logits, [following, mask, *caches]

    def step(self, node: Node, tokens: Value, state: Sequence[Value]) -> tuple[Value, list[Value]]:
        place, mask, *caches = state
        rows, length = shape_of(tokens)
        one = node.fill(1, like=place)
        mask = node.op("concatenate", mask, node.reshape(one, (rows, 1)), axis=1)
        token, places = node.sliced(tokens, 1, length - 1, length), node.reshape(place, (rows, 1))
        past = length - 1
        logits, caches = self._decoded(node, self._graph, token, places, mask, caches, past)
        return logits, [node.op("add", place, one), mask, *caches]

    def _decoded(
        self, node: Node, graph: onnx.GraphProto, tokens: Value, places: Value, mask: Value,
        caches: Sequence[Value], past: Dim,
    ) -> tuple[Value, list[Value]]:  # fmt: skip
        given = {"input_ids": tokens, "position_ids": places, "attention_mask": mask}
        given["past_sequence_length"] = node.sizes((past,), "i32")
        logits, *presents = _run(node, graph, given, caches)
        return _last(node, logits), presents

    def picked(self, node: Node, state: Sequence[Value], rows: Value) -> list[Value]:
        return [
            node.op("take", each, rows, axis=int(place > 1), mode="clamp")
            for place, each in enumerate(state)
        ]

    def widen(self, node: Node, width: Dim) -> None:
        pass


class _Encoded:
    """A decoder behind an encoder, as of T5 and Whisper. The state are the caches of the decoder's
    own tokens; what comes from the encoder stays as it is."""

    def __init__(self, request: Request) -> None:
        node = request.node
        source = node.input(0)
        batch = shape_of(source)[0]
        start = node.integer("decoder_start_token_id", -1)
        prompt = request.optional("decoder_input_ids")
        unsupported(prompt is None and start < 0, "its decoder_start_token_id is missing")
        self.prompt = prompt if prompt is not None else node.full(start, "i32", (batch, 1))
        request.limit(self.prompt)
        self._encoder, self._graph = node.graph("encoder"), node.graph("decoder")
        sizes = self._graph.input[0].type.tensor_type.shape.dim
        self._reads_all = len(sizes) > 1 and sizes[1].dim_value != 1
        self._given = {"encoder_input_ids": source, "decoder_input_ids": self.prompt}
        if type_of(source).rank == 2:
            mask = request.optional("attention_mask")
            self._given["encoder_attention_mask"] = (
                _mask(node, source, request.pad) if mask is None else mask
            )
        self._cross: list[Value] = []

    def first(self, node: Node) -> tuple[Value, list[Value]]:
        results = _run(node, self._encoder, self._given, ())
        own = len(self._graph.output) - 1
        if self._encoder.output[0].name == "logits":  # it also made the first step
            logits, hidden, *caches = results
            self._given["encoder_hidden_states"] = hidden
            self._cross = caches[own:]
            return _last(node, logits), caches[:own]
        self._cross = results
        pasts = [each for each in self._graph.input if "past" in each.name][:own]
        batch = shape_of(self.prompt)[0]
        return self._decoded(node, self.prompt, [_empty(node, each, batch, 0) for each in pasts])

    def step(self, node: Node, tokens: Value, state: Sequence[Value]) -> tuple[Value, list[Value]]:
        length = shape_of(tokens)[1]
        if not self._reads_all:
            tokens = node.sliced(tokens, 1, length - 1, length)
        return self._decoded(node, tokens, state)

    def _decoded(
        self, node: Node, tokens: Value, state: Sequence[Value]
    ) -> tuple[Value, list[Value]]:
        given = {**self._given, "input_ids": tokens}
        logits, *presents = _run(node, self._graph, given, [*state, *self._cross])
        return _last(node, logits), presents

    def picked(self, node: Node, state: Sequence[Value], rows: Value) -> list[Value]:
        return [node.op("take", each, rows, axis=0, mode="clamp") for each in state]

    def widen(self, node: Node, width: Dim) -> None:
        self._cross = [node.repeated(each, 0, width) for each in self._cross]
        self._given = {name: node.repeated(each, 0, width) for name, each in self._given.items()}


def _mask(node: Node, tokens: Value, pad: int) -> Value:
    """0 for the padding in front of a text; one behind it may mean its end."""
    is_text = node.convert(node.compare("ne", tokens, pad), "i32")
    return node.op("cumulative", is_text, axis=1, kind="max")

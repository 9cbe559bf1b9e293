"""GreedySearch, Sampling and BeamSearch: a decoder that runs until its texts end, as a loop.

The first step runs in front of the loop, since it reads the whole prompt. Scores are f32. Behind
the end of a text stand padding tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.onnx.loops import Loop, Step
from ingot.compiler.frontends.onnx.lowerings.microsoft.generation.beams import Beams
from ingot.compiler.frontends.onnx.lowerings.microsoft.generation.decoders import decoder_of
from ingot.compiler.frontends.onnx.lowerings.microsoft.generation.request import Request, appended
from ingot.compiler.frontends.onnx.lowerings.microsoft.generation.scores import Nucleus, Scores
from ingot.compiler.frontends.onnx.node import Node, shape_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.frontends.onnx.structures import Structure
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__: list[str] = []

_GREEDY = (
    "input_ids", "max_length", "min_length", "repetition_penalty", "vocab_mask",
    "prefix_vocab_mask", "attention_mask",
)  # fmt: skip
_SAMPLING = (*_GREEDY, "presence_mask", "seed")
_BEAMS = (
    *_GREEDY[:3], "num_beams", "num_return_sequences", "length_penalty", *_GREEDY[3:],
    "decoder_input_ids", "logits_processor",
)  # fmt: skip
_WHISPER = (*_BEAMS, "cross_qk_layer_head", "extra_decoding_ids", "temperature")


@lowering("GreedySearch", domain=MICROSOFT)
def greedy_search(node: Node) -> Value:
    """The most likely token each time: i32[batch, max_length]."""
    return _search(Request(node, _GREEDY))


@lowering("Sampling", domain=MICROSOFT)
def sampling(node: Node) -> Value:
    """A token by chance, of the most likely ones that make up `top_p`."""
    request = Request(node, _SAMPLING)
    return _search(request, Nucleus(request))


def _search(request: Request, nucleus: Nucleus | None = None) -> Value:
    node = request.node
    unsupported(request.model_type != 0, "its model_type has an encoder: use BeamSearch")
    decoder, scores = decoder_of(request), Scores(request)

    def advance(
        node: Node, tokens: Value, done: Value, logits: Value, step: Value | None
    ) -> tuple[Value, Value]:
        """The tokens with one more, and which texts have ended. No step: it is the first."""
        logits = scores.processed(node, logits, tokens, step is None)
        if nucleus is None:
            chosen = node.op("arg_max", logits, axis=1, dtype=dtype("i32"))
        else:
            chosen = nucleus.drawn(node, logits, step or node.constant(0, "i64"))
        done = node.op("or", done, node.compare("eq", chosen, request.eos))
        chosen = node.op("select", done, request.pad, chosen)
        return appended(node, tokens, chosen), done

    def take_step(inner: Node, index: Value, running: Value, carried: Sequence[Structure]) -> Step:
        tokens, done, *state = _tensors(carried)
        logits, state = decoder.step(inner, tokens, state)
        step = inner.op("add", index, inner.constant(1, "i64"))
        tokens, done = advance(inner, tokens, done, logits, step)
        return Step(_goes_on(inner, done), [tokens, done, *state], ())

    logits, state = decoder.first(node)
    done = node.full(False, "i1", shape_of(decoder.prompt)[:1])
    tokens, done = advance(node, decoder.prompt, done, logits, None)
    steps = node.size(request.length - shape_of(tokens)[1])
    last, _ = Loop(node, steps, _goes_on(node, done), [tokens, done, *state], take_step).run()
    return request.filled(node, _tensors(last)[0])


@lowering("BeamSearch", domain=MICROSOFT)
def beam_search(node: Node) -> tuple[Value | None, ...]:
    """The most likely texts of a beam: i32[batch, return, max_length], their scores, and those
    of all tokens, f32[max_length - prompt, batch, beams, vocabulary]."""
    return _beam_search(Request(node, _BEAMS))


@lowering("WhisperBeamSearch", domain=MICROSOFT)
def whisper_beam_search(node: Node) -> tuple[Value | None, ...]:
    """As BeamSearch, of sounds."""
    request = Request(node, _WHISPER)
    for name in ("extra_decoding_ids", "temperature"):
        unsupported(request.optional(name) is not None, f"it has {name}: leave it out")
    return _beam_search(request)


def _beam_search(request: Request) -> tuple[Value | None, ...]:
    node = request.node
    rules = request.scalar("logits_processor", "i64")
    unsupported(
        rules is not None and node.known_element(rules) != 0,
        "its logits_processor may ask for rules of timestamps: make it the constant 0",
    )
    decoder = decoder_of(request)
    batch, prompt = shape_of(decoder.prompt)
    beams = Beams(request, batch, request.size("num_beams", 1, 1, 128))
    is_noted = node.wants(2)

    def take_step(inner: Node, index: Value, running: Value, carried: Sequence[Structure]) -> Step:
        tokens, *rest = _tensors(carried)
        found, state = rest[: Beams.COUNT], rest[Beams.COUNT :]
        logits, state = decoder.step(inner, tokens, state)
        rows, tokens, found, scores = beams.advance(inner, tokens, logits, found, False)
        state = decoder.picked(inner, state, rows)
        carry = [tokens, *found, *state]
        return Step(_goes_on(inner, found[0]), carry, [scores] if is_noted else [])

    logits, state = decoder.first(node)
    whose = beams.owners(node)
    tokens, logits = (
        node.op("take", each, whose, axis=0, mode="clamp") for each in (decoder.prompt, logits)
    )
    rows, tokens, found, scores = beams.advance(node, tokens, logits, beams.start(node), True)
    state = decoder.picked(node, state, node.op("take", whose, rows, axis=0, mode="clamp"))
    decoder.widen(node, beams.width)
    steps = request.length - prompt - 1
    carry = [tokens, *found, *state]
    go_on = _goes_on(node, found[0])
    length = steps if is_noted else None
    last, stacks = Loop(node, node.size(steps), go_on, carry, take_step, length).run()
    tokens, *rest = _tensors(last)
    results = beams.finish(node, tokens, rest[: Beams.COUNT])
    if not is_noted:
        return results
    first = node.reshape(scores, (1, *shape_of(scores)))
    return *results, node.op("concatenate", first, *_tensors(stacks), axis=0)


def _tensors(carried: Sequence[Structure]) -> list[Value]:
    """What a loop of tensors carries."""
    return [each for each in carried if isinstance(each, Value)]


def _goes_on(node: Node, done: Value) -> Value:
    """Whether a text has not ended."""
    return node.op("not", node.reduce(done, [0], "and"))

"""Normalisations of `com.microsoft`, most of them with what is added before."""

from __future__ import annotations

from ingot.compiler.frontends.activations import swish
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.lowerings.microsoft.activations import add
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lower_as, lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim

__all__ = ["channels_first", "channels_last", "count_words", "look_up"]


@lowering("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(node: Node) -> tuple[Value | None, ...]:
    """The layer norm of input + skip + bias, and that sum."""
    return _normalize_sum(node, "LayerNormalization", node.optional(3), node.optional(4))


@lowering("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(node: Node) -> tuple[Value | None, ...]:
    """The root mean square norm of input + skip + bias, and that sum."""
    return _normalize_sum(node, "RMSNormalization", None, node.optional(3))


def _normalize_sum(
    node: Node, op_type: str, shift: Value | None, bias: Value | None
) -> tuple[Value | None, ...]:
    """Outputs 1 and 2, the statistics, are for training."""
    unsupported(
        node.wants(1) or node.wants(2), "it gives mean or deviation, which are for training"
    )
    x = node.input(0)
    terms = (x, node.input(1), bias)
    total = add(node, *(None if each is None else widen(node, each) for each in terms))
    normal = _layer_norm(node, op_type, total, node.input(2), shift)
    return narrow(node, normal, x), None, None, narrow(node, total, x)


def _layer_norm(node: Node, op_type: str, x: Value, scale: Value, shift: Value | None) -> Value:
    """Over the last axis, in f32."""
    epsilon = {"epsilon": node.number("epsilon", 1e-12)}
    operands = [x, widen(node, scale), None if shift is None else widen(node, shift)]
    return lower_as(node, op_type, operands, epsilon)


@lowering("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(node: Node) -> tuple[Value | None, ...]:
    """The layer norm of the sum of the embeddings of words, positions and segments; how many
    words each row of the mask has; and the sum."""
    words, segments, places = node.input(0), node.optional(1), node.optional(8)
    rows = [look_up(node, node.input(2), words), look_up(node, node.input(3), places, words)]
    if segments is not None:
        rows.append(look_up(node, node.input(4), segments))
    total = add(node, *(widen(node, each) for each in rows))
    normal = _layer_norm(node, "LayerNormalization", total, node.input(5), node.input(6))
    table = node.input(2)
    counts = count_words(node, words, node.optional(7))
    return narrow(node, normal, table), counts, narrow(node, total, table)


def look_up(node: Node, table: Value, indices: Value | None, words: Value | None = None) -> Value:
    """Rows of an embedding; without indices those of the places of the words."""
    if indices is None:
        assert words is not None
        length = shape_of(words)[1]
        indices = node.op("iota", dtype=type_of(words).dtype, shape=(1, length), axis=1)
    return lower_as(node, "Gather", [table, indices], {"axis": 0})


def count_words(node: Node, words: Value, mask: Value | None) -> Value:
    """How many ones each row of the mask has; zeros without one."""
    if mask is None:
        return node.full(0, type_of(words).dtype, shape_of(words)[:1])
    is_word = node.compare("eq", mask, 1)
    return node.reduce(node.convert(is_word, type_of(mask).dtype), [1], "add")


@lowering("GroupNorm", domain=MICROSOFT)
def group_norm(node: Node) -> Value:
    return _group_norm(node, widen(node, node.input(0)))


@lowering("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(node: Node) -> tuple[Value, Value]:
    """The group norm of x + skip + bias, and that sum. The skip may be one number per channel."""
    x, skip, bias = node.input(0), widen(node, node.input(3)), node.optional(4)
    last = node.integer("channels_last", 1)
    if type_of(skip).rank == 2:
        batch, channels = shape_of(skip)
        skip = node.reshape(skip, (batch, 1, 1, channels) if last else (batch, channels, 1, 1))
    if bias is not None:
        bias = node.reshape(widen(node, bias), (*shape_of(bias), *(() if last else (1, 1))))
    total = add(node, widen(node, x), skip, bias)
    return _group_norm(node, total), narrow(node, total, x)


def _group_norm(node: Node, x: Value) -> Value:
    """x normalised in groups of channels, which are axis 1 or the last, and its SiLU if wanted."""
    last = node.integer("channels_last", 1)
    attributes = {
        "num_groups": node.integer("groups", 1), "epsilon": node.number("epsilon", 1e-5)
    }  # fmt: skip
    x = channels_first(node, x) if last else x
    x = lower_as(node, "GroupNormalization", [x, node.input(1), node.input(2)], attributes)
    if node.integer("activation", 0):
        x = swish(node, x)
    return narrow(node, channels_last(node, x) if last else x, node.input(0))


def channels_first(node: Node, x: Value) -> Value:
    """[batch, spatial..., channels] as [batch, channels, spatial...]."""
    rank = type_of(x).rank
    return node.transpose(x, (0, rank - 1, *range(1, rank - 1)))


def channels_last(node: Node, x: Value) -> Value:
    """[batch, channels, spatial...] as [batch, spatial..., channels]."""
    rank = type_of(x).rank
    return node.transpose(x, (0, *range(2, rank), 1))


@lowering("BranchwiseRMSNorm", domain=MICROSOFT)
def branchwise_rms_norm(node: Node) -> Value:
    """The root mean square norm of each branch, which is the last axis or a run of it."""
    x, scale = widen(node, node.input(0)), node.optional(1)
    branches, shape = node.integer("num_branches", 0), shape_of(x)
    if branches:
        x = node.reshape(x, (*shape[:-1], branches, shape[-1] // branches))
    width = shape_of(x)[-2:]
    if scale is None:
        scale = node.full(1, "f32", width)
    elif type_of(scale).rank == 1 and shape_of(scale)[0] != width[-1]:
        scale = node.reshape(scale, width)
    normal = lower_as(
        node, "RMSNormalization", [x, node.convert(scale, "f32")],
        {"epsilon": node.number("epsilon", 1e-5)},
    )  # fmt: skip
    return narrow(node, node.reshape(normal, shape), node.input(0))


@lowering("GatedRMSNorm", domain=MICROSOFT)
def gated_rms_norm(node: Node) -> Value:
    """The root mean square norm of each run as long as the scale, times an activation of the
    gate."""
    x, scale, gate = (widen(node, node.input(place)) for place in range(3))
    kind = node.text("activation", "silu")
    unsupported(kind not in ("silu", "swish", "sigmoid"), f"its activation is '{kind}'")
    shape, width = shape_of(x), shape_of(scale)[0]
    runs: tuple[Dim, ...] = (*shape[:-1], shape[-1] // width, width)
    normal = lower_as(
        node, "RMSNormalization", [node.reshape(x, runs), scale],
        {"epsilon": node.number("epsilon", 1e-5)},
    )  # fmt: skip
    gate = node.op("logistic", gate) if kind == "sigmoid" else swish(node, gate)
    return narrow(node, node.op("mul", node.reshape(normal, shape), gate), node.input(0))

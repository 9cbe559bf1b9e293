"""Random numbers: RandomNormal, RandomUniform, Bernoulli, Multinomial, and Dropout in training.

Each run of a node begins a stream of its own (`frontends/random_numbers.py`), under the node's
`seed` if it has one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.frontends.onnx.tensors import dtype_of, element_type_name
from ingot.compiler.frontends.random_numbers import Stream
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType, dtype

__all__ = ["classes_at"]


def _stream(node: Node) -> Stream:
    if not node.has("seed"):
        return Stream(node.builder)
    if node.proto.op_type == "Dropout":  # has an integer, the others have a float
        return Stream(node.builder, node.integer("seed", 0))
    return Stream(node.builder, int(np.float32(node.number("seed", 0.0)).view(np.uint32)))


def _element(node: Node, default: DType) -> DType:
    """The dtype that the attribute `dtype` names, or the default."""
    if not node.has("dtype"):
        return default
    code = node.integer("dtype", 0)
    element = dtype_of(code)
    if element is None:
        raise UnsupportedNode(f"its dtype {element_type_name(code)} has no counterpart")
    return element


def _shape(node: Node) -> tuple[Dim, ...]:
    shape = node.integers("shape") or ()
    unsupported(any(dim < 0 for dim in shape), f"its shape {list(shape)} has a negative dim")
    return shape


def _drawn(node: Node, element: DType, shape: Sequence[Dim]) -> Value:
    """Numbers between the node's `low` and `high`, or of its `mean` and `scale`."""
    unsupported(not element.is_float, f"it draws {element}: draw floats and cast them")

    def attribute(name: str, default: float) -> Value:
        return node.full(node.number(name, default), element, ())

    if "Uniform" in node.proto.op_type:
        return _stream(node).uniform(shape, attribute("low", 0.0), attribute("high", 1.0))
    return _stream(node).normal(shape, attribute("mean", 0.0), attribute("scale", 1.0))


@lowering("RandomNormal", "RandomUniform")
def random(node: Node) -> Value:
    return _drawn(node, _element(node, dtype("f32")), _shape(node))


@lowering("RandomNormalLike", "RandomUniformLike")
def random_like(node: Node) -> Value:
    type = type_of(node.input(0))
    return _drawn(node, _element(node, type.dtype), type.shape)


@lowering("Bernoulli")
def bernoulli(node: Node) -> Value:
    """1 with the probability that the input gives, else 0."""
    chances = node.input(0)
    type = type_of(chances)
    drawn = _stream(node).fractions(type.shape, type.dtype)
    limits = node.reshape(node.convert(chances, type_of(drawn).dtype), shape_of(drawn))
    hits = node.reshape(node.compare("lt", drawn, limits), type.shape)
    return node.convert(hits, _element(node, type.dtype))


@lowering("Multinomial")
def multinomial(node: Node) -> Value:
    """Classes by their logarithms of probabilities: [batch, classes] -> [batch, samples]."""
    logits = node.convert(node.input(0), "f64")
    unsupported(type_of(logits).rank != 2, "its input has not the rank 2: fix the model")
    batch, classes = shape_of(logits)
    unsupported(classes == 0, "it has no classes to draw from: fix the model")
    samples = node.integer("sample_size", 1)
    unsupported(samples < 1, f"its sample_size is {samples}, expected 1 or more")
    drawn = _stream(node).fractions((batch, samples), type_of(logits).dtype)
    places = classes_at(node, logits, node.reshape(drawn, (batch, samples)))
    return node.convert(places, _element(node, dtype("i32")))


def classes_at(node: Node, logits: Value, drawn: Value) -> Value:
    """Classes by logarithms of probabilities [batch, classes] and shares [batch, samples], both
    of one dtype: where the running sum of a line passes this share of the whole sum, i64."""
    (batch, classes), samples = shape_of(logits), shape_of(drawn)[1]
    greatest = node.reduce(logits, [1], "max", keep=True)
    shifted = node.op("sub", logits, node.broadcast_to(greatest, shape_of(logits)))
    sums = node.op("cumulative", node.op("exp", shifted), axis=1, kind="add")
    whole = node.reduce(sums, [1], "max", keep=True)
    shape: tuple[Dim, ...] = (batch, samples, classes)

    def spread(value: Value, axes: tuple[int, ...]) -> Value:
        return node.op("broadcast", value, shape=shape, dimensions=axes)

    limits = node.op("mul", drawn, node.broadcast_to(whole, (batch, samples)))
    limits, sums = spread(limits, (0, 1)), spread(sums, (0, 2))
    passed = node.compare("le", sums, limits)
    inner = node.compare("lt", sums, spread(node.reshape(whole, (batch,)), (0,)))
    passed = node.convert(node.op("and", passed, inner), "i64")
    return node.reduce(passed, [2], "add")


@lowering("Dropout")
def dropout(node: Node) -> tuple[Value, Value]:
    """The input and a mask that keeps everything; in training, zeros at random places."""
    x = node.input(0)
    kept = node.full(True, "i1", shape_of(x))
    if node.optional(2) is None or node.known_number(2) == 0:
        return x, _mask(node, kept)
    half = node.constant(0.5, "f32")
    ratio = half if node.optional(1) is None else node.convert(node.input(1), "f32")
    ratio, training = node.reshape(ratio, ()), node.reshape(node.input(2), ())
    ratio = node.op("select", training, ratio, 0)
    drawn = _stream(node).fractions(shape_of(x), type_of(ratio).dtype)
    kept = node.compare("ge", drawn, node.broadcast_to(ratio, shape_of(drawn)))
    kept = node.reshape(kept, shape_of(x))
    one = node.fill(1, like=ratio)
    scale = node.op("div", one, node.op("sub", one, ratio))
    scale = node.broadcast_to(node.convert(scale, type_of(x).dtype), shape_of(x))
    y = node.op("select", kept, node.op("mul", x, scale), 0)
    return y, _mask(node, kept)


def _mask(node: Node, kept: Value) -> Value:
    """Before opset 10 the mask is of the dtype of the input."""
    return kept if node.opset >= 10 else node.convert(kept, type_of(node.input(0)).dtype)

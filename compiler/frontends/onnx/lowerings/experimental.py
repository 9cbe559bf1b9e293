"""Ops that the default domain had while they were tried out, and onnxruntime still runs: models
that were converted from Core ML begin with ImageScaler."""

from __future__ import annotations

from ingot.compiler.frontends.activations import softplus
from ingot.compiler.frontends.onnx.lowerings.elementwise import narrow, widen
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lower_as, lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import bounds

__all__: list[str] = []


@lowering("Affine")
def affine(node: Node) -> Value:
    """alpha x + beta."""
    x = node.input(0)
    scaled = node.op("mul", x, node.number("alpha", 1.0))
    return node.op("add", scaled, node.number("beta", 0.0))


@lowering("ScaledTanh")
def scaled_tanh(node: Node) -> Value:
    """alpha tanh(beta x)."""
    given = node.input(0)
    inner = node.op("mul", widen(node, given), node.number("beta", 1.0))
    return narrow(node, node.op("mul", node.op("tanh", inner), node.number("alpha", 1.0)), given)


@lowering("ParametricSoftplus")
def parametric_softplus(node: Node) -> Value:
    """alpha log(1 + exp(beta x))."""
    inner = node.op("mul", node.input(0), node.number("beta", 1.0))
    return node.op("mul", softplus(node, inner), node.number("alpha", 1.0))


@lowering("Scale")
def scale(node: Node) -> Value:
    return node.op("mul", node.input(0), node.number("scale", 1.0))


@lowering("ImageScaler")
def image_scaler(node: Node) -> Value:
    """scale x + the bias of its channel, of images [n, channels, h, w]."""
    x, bias = node.input(0), node.numbers("bias") or ()
    unsupported(type_of(x).rank != 4, f"its images are {x.type}, expected rank 4: fix the model")
    scaled = node.op("mul", x, node.number("scale", 1.0))
    row = node.agree(node.constant(bias, type_of(x).dtype), (shape_of(x)[1],))
    return node.op("add", scaled, node.op("broadcast", row, shape=shape_of(x), dimensions=(1,)))


@lowering("Crop")
def crop(node: Node) -> Value:
    """Images [n, channels, h, w] without borders; with `scale`, so many rows and columns."""
    x, border, size = node.input(0), node.integers("border") or (), node.integers("scale")
    unsupported(
        type_of(x).rank != 4 or len(border) != 4 or (size is not None and len(size) != 2),
        f"it takes borders {list(border)} of {x.type}, expected 4 of rank 4: fix the model",
    )
    for axis, (before, behind) in ((2, border[1::2]), (3, border[::2])):
        length = shape_of(x)[axis]
        end = length - behind if size is None else before + size[axis - 2]
        unsupported(
            before < 0 or bounds(end - before)[1] < 1 or bounds(length - end)[1] < 0,
            f"axis {axis} of {x.type} has no range {before} to {end}: fix the model",
        )
        x = node.sliced(x, axis, before, end)
    return x


@lowering("DynamicSlice")
def dynamic_slice(node: Node) -> Value:
    return lower_as(node, "Slice", [node.optional(place) for place in range(4)])

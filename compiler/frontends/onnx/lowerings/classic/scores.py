"""What `post_transform` makes of scores, as onnxruntime does it."""

from __future__ import annotations

import math
from collections.abc import Callable

from ingot.compiler.frontends.onnx.node import Node, shape_of, unsupported
from ingot.compiler.frontends.onnx.registry import lower_as
from ingot.compiler.ir import Value

__all__ = ["POST_TRANSFORMS", "both_classes", "post_transform", "transform_targets", "two_scores"]

POST_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""In the order in which `TreeEnsemble` numbers them."""

_TINY = 1e-7
"""Scores up to this size are zeros for SOFTMAX_ZERO."""


def post_transform(node: Node, scores: Value, kind: str) -> Value:
    """Scores f32[n, k], each row of it changed."""
    unsupported(kind not in POST_TRANSFORMS, f"its post_transform '{kind}' is not known")
    made: dict[str, Callable[[], Value]] = {
        "NONE": lambda: scores,
        "SOFTMAX": lambda: lower_as(node, "Softmax", [scores], {"axis": 1}),
        "LOGISTIC": lambda: node.op("logistic", scores),
        "SOFTMAX_ZERO": lambda: _softmax_zero(node, scores),
        "PROBIT": lambda: _probit(node, scores),
    }
    return made[kind]()


def transform_targets(node: Node, scores: Value, kind: str) -> Value:
    """As `post_transform`, of a regressor: a single target has no classes."""
    is_single = shape_of(scores)[1] == 1 and kind != "PROBIT"
    return scores if is_single else post_transform(node, scores, kind)


def both_classes(node: Node, score: Value, negative: Value) -> Value:
    """[n, 2] of what the first class gets and what the second."""
    return node.op("concatenate", negative, score, axis=1)


def two_scores(node: Node, score: Value, kind: str, is_share: bool = False) -> Value:
    """The scores of both classes, from that of the second, which may be a share of 1."""
    if kind == "PROBIT":
        return post_transform(node, score, kind)
    if is_share and kind != "LOGISTIC":
        return both_classes(node, score, node.op("sub", 1, score))
    both = both_classes(node, score, node.op("neg", score))
    return post_transform(node, both, kind) if kind == "LOGISTIC" else both


def _softmax_zero(node: Node, scores: Value) -> Value:
    """A softmax in which a score of 0 stays about 0 and has no share in the sum."""
    shape = shape_of(scores)
    top = node.broadcast_back(node.reduce(scores, [1], "max"), shape, [1])
    is_zero = node.compare("le", node.op("abs", scores), _TINY)
    shares = node.op("exp", node.op("sub", scores, top))
    rest = node.op("mul", scores, node.op("exp", node.op("neg", top)))
    shares = node.op("select", is_zero, rest, shares)
    counted = node.op("select", is_zero, 0, shares)
    total = node.broadcast_back(node.reduce(counted, [1], "add"), shape, [1])
    return node.op("div", shares, total)


def _probit(node: Node, p: Value) -> Value:
    """The inverse of the normal distribution, by Winitzki's formula for that of erf."""
    x = node.op("sub", node.op("mul", p, 2), 1)
    one = node.fill(1, like=x)
    log = node.op("log", node.op("mul", node.op("sub", one, x), node.op("add", one, x)))
    half = node.op("mul", log, 0.5)
    v = node.op("add", half, 2 / (math.pi * 0.147))
    square = node.op("sub", node.op("mul", v, v), node.op("mul", log, 1 / 0.147))
    size = node.op("sqrt", node.op("sub", node.op("sqrt", square), v))
    negative = node.compare("lt", x, 0)
    signed = node.op("select", negative, node.op("neg", size), size)
    return node.op("mul", signed, math.sqrt(2))

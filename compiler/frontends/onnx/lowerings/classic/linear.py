"""LinearRegressor and LinearClassifier."""

from __future__ import annotations

import numpy as np

from ingot.compiler.frontends.onnx.lowerings.classic.labels import (
    best_labels,
    class_count,
    give_labels,
)
from ingot.compiler.frontends.onnx.lowerings.classic.scores import (
    both_classes,
    post_transform,
    transform_targets,
)
from ingot.compiler.frontends.onnx.node import Node, shape_of, unsupported
from ingot.compiler.frontends.onnx.registry import CLASSIC, lowering
from ingot.compiler.frontends.strings import Strings
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__ = ["product", "rows_of"]

_F32 = dtype("f32")


def rows_of(node: Node, x: Value) -> Value:
    """f32[n, features]; a tensor of rank 1 is one row."""
    shape = shape_of(x)
    unsupported(len(shape) not in (1, 2), f"its input is {x.type}: use rank 1 or 2")
    return node.convert(x if len(shape) == 2 else node.reshape(x, (1, *shape)), _F32)


def product(
    node: Node, x: Value, weight: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> Value:
    """f32[n, m] of x: f32[n, k] and a weight [m, k]."""
    x = node.agree_on(x, 1, weight.shape[1])
    return node.op(
        "dot_general", x, node.constant(weight.T, _F32), lhs_contract=(1,), rhs_contract=(0,),
        dtype=_F32,
    )  # fmt: skip


def _scores(node: Node, count: int) -> Value:
    """f32[n, count]: x times the coefficients, plus the intercepts if there are some."""
    weights = np.array(node.numbers("coefficients") or (), np.float32)
    unsupported(
        count < 1 or weights.size % count != 0,
        f"its {weights.size} coefficients are none for each of {count}: fix the model",
    )
    scores = product(node, rows_of(node, node.input(0)), weights.reshape(count, -1))
    intercepts = node.numbers("intercepts")
    if not intercepts:
        return scores
    unsupported(
        len(intercepts) != count, f"it has {len(intercepts)} intercepts for {count}: fix the model"
    )
    return node.op("add", *node.broadcast(scores, node.constant(intercepts, _F32)))


@lowering("LinearRegressor", domain=CLASSIC)
def linear_regressor(node: Node) -> Value:
    scores = _scores(node, node.integer("targets", 1))
    kind = node.text("post_transform", "NONE")
    return transform_targets(node, scores, kind)


@lowering("LinearClassifier", domain=CLASSIC)
def linear_classifier(node: Node) -> tuple[Value | Strings, Value]:
    """Labels and scores. One row of coefficients tells the second of two classes."""
    ints = "classlabels_ints"
    classes = class_count(node, ints)
    count = len(node.numbers("intercepts") or ()) or classes
    scores = _scores(node, count)
    kind = node.text("post_transform", "NONE")
    if count > 1:
        return best_labels(node, scores, ints), post_transform(node, scores, kind)
    column = node.reshape(scores, shape_of(scores)[:1])
    places = node.convert(node.compare("gt", column, 0), "i64")
    if kind in ("LOGISTIC", "PROBIT"):
        scores = post_transform(node, scores, kind)
    if classes == 2:
        rest = node.op("sub", 1, scores)
        return give_labels(node, places, ints), both_classes(node, scores, rest)
    return places, scores

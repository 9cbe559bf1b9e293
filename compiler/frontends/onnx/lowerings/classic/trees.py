"""TreeEnsembleRegressor, TreeEnsembleClassifier and TreeEnsemble: which leaf each row reaches
(`forest_walk.py`), and what the leaves say of the targets."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from ingot.compiler.frontends.onnx.lowerings.classic.forest import (
    MODES,
    Leaves,
    Tests,
    build_forest,
    read_trees,
)
from ingot.compiler.frontends.onnx.lowerings.classic.forest_walk import Walked, walk
from ingot.compiler.frontends.onnx.lowerings.classic.labels import (
    best_labels,
    class_count,
    give_labels,
)
from ingot.compiler.frontends.onnx.lowerings.classic.scores import (
    POST_TRANSFORMS,
    post_transform,
    transform_targets,
    two_scores,
)
from ingot.compiler.frontends.onnx.malformed import bounded
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import CLASSIC, lowering
from ingot.compiler.frontends.strings import Strings
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__: list[str] = []

_I32 = dtype("i32")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""In the order in which `TreeEnsemble` numbers them."""
_CLAMP: Any = {"axis": 0, "mode": "clamp"}


def _read_features(node: Node) -> Value:
    """[n, features] of f32 or f64; a tensor of rank 1 is one row."""
    x = node.input(0)
    shape = shape_of(x)
    unsupported(len(shape) not in (1, 2), f"its input is {x.type}: use rank 1 or 2")
    x = x if len(shape) == 2 else node.reshape(x, (1, *shape))
    return x if type_of(x).dtype.name == "f64" else node.convert(x, "f32")


def _aggregate(node: Node, walked: Walked, leaves: Leaves, count: int, kind: str) -> Value:
    """f32[n, count] or f64: what the leaves say of each target, over all trees."""
    unsupported(kind not in _AGGREGATES, f"its aggregate_function '{kind}' is not known")
    targets = leaves.targets
    unsupported(
        bool(len(targets)) and not 0 <= targets.min() <= targets.max() < count,
        f"its leaves have targets {sorted(set(targets.tolist()))[:8]}, expected 0 to {count - 1}: "
        "fix the model",
    )
    none = {"MIN": math.inf, "MAX": -math.inf}.get(kind, 0.0)
    total = _total(node, walked, leaves, count, kind, none)
    if kind == "AVERAGE":
        trees = len(walked.rows_of)
        return node.op("div", total, float(trees))
    if kind == "SUM":
        return total
    is_none = node.compare("eq", total, none)
    return node.op("select", is_none, 0, total)


def _total(node: Node, walked: Walked, leaves: Leaves, count: int, kind: str, none: float) -> Value:
    """As `_aggregate`, `none` of targets that no leaf tells. Trees whose leaves tell one target,
    as many of each, are summed target by target; others give rows of all targets."""
    rows = shape_of(walked.places)[1]
    combine: Any = {"MIN": np.minimum, "MAX": np.maximum}.get(kind, np.add)
    reduction = {"MIN": "min", "MAX": "max"}.get(kind, "add")
    inside = leaves.places < leaves.count  # what stands at inner nodes is never reached
    where, weights = leaves.places[inside], leaves.weights[inside]
    own = walked.layout.targets_of(where, leaves.targets[inside]) if count > 1 else None
    sizes = np.bincount(own, minlength=count) if own is not None else np.zeros(count)
    if count == 1 or (own is not None and sizes.min() == sizes.max()):
        by_leaf = np.full(leaves.count, none, weights.dtype)
        combine.at(by_leaf, where, weights)
        table = by_leaf[walked.layout.leaf_of]
        order = walked.rows_of if own is None else walked.rows_of[np.argsort(own, kind="stable")]
        found = _take_rows(node, walked.places, order)
        found = node.op("take", node.constant(table, _element(table.dtype)), found, **_CLAMP)
        found = node.reshape(found, (count, len(order) // count, rows))
        total = node.reduce(found, [1], reduction)
        return node.transpose(total, (1, 0)) if count > 1 else node.reshape(total, (rows, 1))
    table = np.full((leaves.count, count), none, weights.dtype)
    combine.at(table, (where, leaves.targets[inside]), weights)
    leaf_of = node.constant(walked.layout.leaf_of, _I32)
    found = node.op("take", leaf_of, _take_rows(node, walked.places, walked.rows_of), **_CLAMP)
    found = node.op("take", node.constant(table, _element(table.dtype)), found, **_CLAMP)
    return node.reduce(found, [0], reduction)


def _take_rows(node: Node, value: Value, order: np.ndarray[Any, Any]) -> Value:
    if (order == np.arange(len(order))).all():
        return value
    return node.op("take", value, node.constant(order, _I32), **_CLAMP)


def _element(element: Any) -> str:
    return "f64" if element == np.float64 else "f32"


def _base_values(node: Node) -> np.ndarray[Any, Any]:
    literal = node.tensor("base_values_as_tensor")
    if literal is not None:
        return np.asarray(literal.array).reshape(-1)
    return np.array(node.numbers("base_values") or (), np.float32)


def _add_base(node: Node, total: Value, base: np.ndarray[Any, Any]) -> Value:
    if not len(base):
        return total
    count = shape_of(total)[1]
    unsupported(
        len(base) != count, f"it has {len(base)} base values for {count} targets: fix the model"
    )
    row = node.constant(base, type_of(total).dtype)
    return node.op("add", *node.broadcast(total, row))


@lowering("TreeEnsembleRegressor", domain=CLASSIC)
def tree_regressor(node: Node) -> Value:
    x = _read_features(node)
    tests, leaves, roots = read_trees(node, "target")
    forest = build_forest(tests, leaves, roots, type_of(x).dtype.numpy)
    kind, count = node.text("aggregate_function", "SUM"), _target_count(node)
    if count > 1 and len(leaves.targets) and not leaves.targets.any():
        name = node.proto.name or node.proto.op_type
        warnings.warn(
            f"all leaves of '{name}' add to target 0 of {count}; the others stay as they begin: "
            "so onnxmltools writes an XGBoost model of several outputs, which computes something "
            "else; convert one model for each output",
            stacklevel=2,
        )
    if count == 1:  # onnxruntime reads one weight of a leaf, and skl2onnx writes it several times
        _, once = np.unique(leaves.places, return_index=True)
        leaves.places, leaves.targets, leaves.weights = (
            each[once] for each in (leaves.places, leaves.targets, leaves.weights)
        )
    total = _aggregate(node, walk(node, x, forest), leaves, count, kind)
    total = node.convert(_add_base(node, total, _base_values(node)), "f32")
    return transform_targets(node, total, node.text("post_transform", "NONE"))


@lowering("TreeEnsembleClassifier", domain=CLASSIC)
def tree_classifier(node: Node) -> tuple[Value | Strings, Value]:
    """Labels and scores. Leaves that know one class only tell the second of two."""
    ints = "classlabels_int64s"
    classes = class_count(node, ints)
    x = _read_features(node)
    tests, leaves, roots = read_trees(node, "class")
    forest = build_forest(tests, leaves, roots, type_of(x).dtype.numpy)
    kind = node.text("post_transform", "NONE")
    base = _base_values(node)
    walked = walk(node, x, forest)
    if classes != 2 or len(np.unique(leaves.targets)) > 1:
        total = _aggregate(node, walked, leaves, classes, "SUM")
        total = node.convert(_add_base(node, total, base), "f32")
        return best_labels(node, total, ints), post_transform(node, total, kind)
    leaves.targets = np.zeros_like(leaves.targets)
    score = node.convert(_aggregate(node, walked, leaves, 1, "SUM"), "f32")
    score = _add_base(node, score, base[-1:])
    positive = bool((leaves.weights >= 0).all())
    column = node.reshape(score, shape_of(score)[:1])
    limit = node.fill(0.5 if positive else 0.0, like=column)
    labels = give_labels(node, node.convert(node.compare("gt", column, limit), "i64"), ints)
    return labels, two_scores(node, score, kind, positive)


@lowering("TreeEnsemble", domain=CLASSIC, since=5)
def tree_ensemble(node: Node) -> Value:
    """Trees from opset 5 on: nodes have numbers in all, and leaves are a list of their own."""
    x = _read_features(node)
    element = type_of(node.input(0)).dtype
    tests, leaves, roots = _read_ensemble(node)
    forest = build_forest(tests, leaves, roots, type_of(x).dtype.numpy)
    kind = node.integer("aggregate_function", 1)
    transform = node.integer("post_transform", 0)
    unsupported(
        not 0 <= kind < len(_AGGREGATES) or not 0 <= transform < len(POST_TRANSFORMS),
        f"its aggregate_function {kind} or post_transform {transform} is not known",
    )
    count = _target_count(node)
    total = _aggregate(node, walk(node, x, forest), leaves, count, _AGGREGATES[kind])
    total = node.convert(total, element)
    return transform_targets(node, total, POST_TRANSFORMS[transform])


def _target_count(node: Node) -> int:
    return bounded(node.integer("n_targets", 1), "n_targets")


def _read_ensemble(node: Node) -> tuple[Tests, Leaves, np.ndarray[Any, Any]]:
    def whole(name: str) -> np.ndarray[Any, Any]:
        return np.array(node.integers(name) or (), np.int64)

    def array(name: str) -> np.ndarray[Any, Any]:
        literal = node.tensor(name)
        return np.zeros(0, np.float32) if literal is None else literal.array.reshape(-1)

    modes, weights = array("nodes_modes").astype(np.int64), array("leaf_weights")
    unsupported(
        not len(modes) or bool((modes >= len(MODES)).any()),
        "its node modes are none: fix the model",
    )
    count = len(weights)

    def child(side: str) -> np.ndarray[Any, Any]:
        places = whole(f"nodes_{side}nodeids")
        return np.where(whole(f"nodes_{side}leafs") != 0, places, places + count)

    members: dict[int, np.ndarray[Any, Any]] = {}
    listed = array("membership_values")
    if len(listed) and not np.isnan(listed[-1]):  # the last NaN may be left out
        listed = np.append(listed, np.nan)
    ends = np.flatnonzero(np.isnan(listed))
    nodes = np.flatnonzero(modes == MODES.index("MEMBER"))
    unsupported(
        len(ends) != len(nodes), "its membership_values do not fit its nodes: fix the model"
    )
    starts = np.append(0, ends + 1)
    for place, start, end in zip(nodes, starts, ends, strict=False):
        members[int(place)] = listed[start:end]
    missing = whole("nodes_missing_value_tracks_true")
    tests = Tests(
        modes,
        whole("nodes_featureids"),
        array("nodes_splits"),
        child("true"),
        child("false"),
        missing != 0 if len(missing) else np.zeros(len(modes), np.bool_),
        members,
    )
    leaves = Leaves(count, np.arange(count), whole("leaf_targetids"), weights)
    return tests, leaves, whole("tree_roots") + count

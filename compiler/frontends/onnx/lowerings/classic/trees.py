"""TreeEnsembleRegressor, TreeEnsembleClassifier and TreeEnsemble.

All trees are walked for all rows at once, tree by tree, so that a tree's nodes stay in the cache:
the place of each pair goes one level down in each step, and a leaf leads to itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ingot.compiler.frontends.onnx.lowerings.classic.forest import (
    MODES,
    Forest,
    Leaves,
    Tests,
    build_forest,
    read_trees,
)
from ingot.compiler.frontends.onnx.lowerings.classic.forest_layout import Layout, lay_out
from ingot.compiler.frontends.onnx.lowerings.classic.labels import class_count, give_labels
from ingot.compiler.frontends.onnx.lowerings.classic.scores import (
    POST_TRANSFORMS,
    both_classes,
    post_transform,
    transform_targets,
)
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import CLASSIC, lowering
from ingot.compiler.frontends.strings import Strings
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import branches, counted_loop
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__: list[str] = []

_I32 = dtype("i32")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""In the order in which `TreeEnsemble` numbers them."""


def _read_features(node: Node) -> Value:
    """[n, features] of f32 or f64; a tensor of rank 1 is one row."""
    x = node.input(0)
    shape = shape_of(x)
    unsupported(len(shape) not in (1, 2), f"its input is {x.type}: use rank 1 or 2")
    x = x if len(shape) == 2 else node.reshape(x, (1, *shape))
    return x if type_of(x).dtype.name == "f64" else node.convert(x, "f32")


def _walk(node: Node, x: Value, forest: Forest) -> Value:
    """i32[trees, n]: the leaf that each row reaches in each tree. A single row, which callers that
    serve have, is walked without the places where rows begin."""
    rows, width = shape_of(x)
    greatest = int(forest.features.max(initial=0))
    unsupported(
        not isinstance(width, int) or greatest >= width,
        f"a node reads feature {greatest} of {x.type}: fix the model",
    )
    assert isinstance(width, int)
    layout = lay_out(forest, width)
    trees = len(layout.roots)
    node.builder.append("assert", (), (), {"kind": "le", "a": rows * (width + 1), "b": 2**31 - 1})
    wide = node.op(
        "pad", x, node.constant(0, type_of(x).dtype), low=(0, 0), high=(0, 1), interior=(0, 0)
    )
    flat = node.reshape(wide, (rows * (width + 1),))
    step = _step(node, layout, flat, width)
    roots, leaves = (node.constant(each, _I32) for each in (layout.roots, layout.leaf_of))
    shape = (trees, rows)

    def reached(inner: Node, at: Value, base: Value | None) -> Value:
        count = inner.constant(layout.depth, _I32)
        (at,) = counted_loop(
            inner.builder, count, [at], lambda b, _, each: [step(node.within(b), each[0], base)]
        )
        return inner.op("take", leaves, at, axis=0, mode="clamp")

    def of_one_row(builder: Builder) -> list[Value]:
        inner = node.within(builder)
        return [inner.op("broadcast", reached(inner, roots, None), shape=shape, dimensions=(0,))]

    def of_many_rows(builder: Builder) -> list[Value]:
        inner = node.within(builder)
        base = inner.op("iota", dtype=_I32, shape=shape, axis=1)
        base = inner.op("mul", base, inner.fill(width + 1, like=base))
        at = inner.op("broadcast", roots, shape=shape, dimensions=(0,))
        at, base = (inner.reshape(each, (trees * rows,)) for each in (at, base))
        return [inner.reshape(reached(inner, at, base), shape)]

    if isinstance(rows, int):
        return (of_one_row if rows == 1 else of_many_rows)(node.builder)[0]
    is_one = node.compare("eq", node.size(rows), node.constant(1, "i64"))
    builds = [of_one_row, of_many_rows]
    return branches(node.builder, "if", is_one, builds, node.fresh_symbols("rows"))[0]


def _step(
    node: Node, layout: Layout, flat: Value, width: int
) -> Callable[[Node, Value, Value | None], Value]:
    """From each place to the next, of rows that begin at `base` in `flat`. A node is one word where
    that has room for it: the threshold, a bit for NaN, the feature and the first child, from the
    low bits on; else a word without the threshold, which stands apart."""
    element = type_of(flat).dtype
    shift = (width + 1).bit_length() + 1
    links = layout.nan_first.astype(np.uint64) | layout.features.astype(np.uint64) << np.uint64(1)
    links |= layout.first.astype(np.uint64) << np.uint64(shift)
    is_word = element.bits == 32 and int(links.max(initial=0)) < 1 << 32
    if is_word:
        bits = layout.thresholds.view(np.uint32).astype(np.uint64)
        words = node.constant(links << np.uint64(32) | bits, "u64")
    else:
        words = node.constant(links, "u64")
        thresholds = node.constant(layout.thresholds, element)

    low = 32 if is_word else 0  # where the link begins in a word

    def step(inner: Node, at: Value, base: Value | None) -> Value:
        # Every reader takes its bits of the word itself, so that all is one kernel.
        word = inner.op("take", words, at, axis=0, mode="clamp")

        def field(first_bit: int, count: int) -> Value:
            part = inner.op("shift_right_logical", word, inner.fill(low + first_bit, like=word))
            return inner.op("and", part, inner.fill((1 << count) - 1, like=part))

        if is_word:
            limit = inner.op("bitcast", inner.convert(word, "u32"), dtype=element)
        else:
            limit = inner.op("take", thresholds, at, axis=0, mode="clamp")
        feature = inner.convert(field(1, shift - 1), _I32)
        place = feature if base is None else inner.op("add", base, feature)
        value = inner.op("take", flat, place, axis=0, mode="clamp")
        first = inner.compare("le", value, limit)
        if layout.nan_first.any():
            marked = inner.convert(field(0, 1), "i1")
            first = inner.op("or", first, inner.op("and", inner.op("is_nan", value), marked))
        child = inner.convert(field(shift, 31), _I32)
        return inner.op("add", child, inner.convert(inner.op("not", first), _I32))

    return step


def _aggregate(node: Node, reached: Value, leaves: Leaves, count: int, kind: str) -> Value:
    """f32[n, count] or f64: what the leaves say of each target, over all trees."""
    unsupported(kind not in _AGGREGATES, f"its aggregate_function '{kind}' is not known")
    targets, places = leaves.targets, leaves.places
    unsupported(
        bool(len(targets)) and not 0 <= targets.min() <= targets.max() < count,
        f"its leaves have targets {sorted(set(targets.tolist()))[:8]}, expected 0 to {count - 1}: "
        "fix the model",
    )
    element = leaves.weights.dtype
    combine: Any = {"MIN": np.minimum, "MAX": np.maximum}.get(kind, np.add)
    none = {"MIN": math.inf, "MAX": -math.inf}.get(kind, 0.0)
    table = np.full((leaves.count, count), none, element)
    inside = places < leaves.count  # what stands at inner nodes is never reached
    combine.at(table, (places[inside], targets[inside]), leaves.weights[inside])
    if count == 1:
        table = table[:, 0]
    weights = node.op(
        "take", node.constant(table, _element(element)), reached, axis=0, mode="clamp"
    )
    trees, rows = shape_of(reached)
    total = node.reduce(weights, [0], {"MIN": "min", "MAX": "max"}.get(kind, "add"))
    total = node.reshape(total, (rows, count))
    if kind == "AVERAGE":
        return node.op("div", total, node.fill(float(trees), like=total))  # type: ignore[arg-type]
    if kind == "SUM":
        return total
    is_none = node.compare("eq", total, node.fill(none, like=total))
    return node.op("select", is_none, node.fill(0, like=total), total)


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
    kind, count = node.text("aggregate_function", "SUM"), node.integer("n_targets", 1)
    if count == 1:  # onnxruntime reads one weight of a leaf, and skl2onnx writes it several times
        _, once = np.unique(leaves.places, return_index=True)
        leaves.places, leaves.targets, leaves.weights = (
            each[once] for each in (leaves.places, leaves.targets, leaves.weights)
        )
    total = _aggregate(node, _walk(node, x, forest), leaves, count, kind)
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
    reached = _walk(node, x, forest)
    if classes != 2 or len(np.unique(leaves.targets)) > 1:
        total = _aggregate(node, reached, leaves, classes, "SUM")
        total = node.convert(_add_base(node, total, base), "f32")
        best = node.op("arg_max", total, axis=1, dtype=dtype("i64"), last=False)
        return give_labels(node, best, ints), post_transform(node, total, kind)
    leaves.targets = np.zeros_like(leaves.targets)
    score = node.convert(_aggregate(node, reached, leaves, 1, "SUM"), "f32")
    score = _add_base(node, score, base[-1:])
    positive = bool((leaves.weights >= 0).all())
    column = node.reshape(score, shape_of(score)[:1])
    limit = node.fill(0.5 if positive else 0.0, like=column)
    labels = give_labels(node, node.convert(node.compare("gt", column, limit), "i64"), ints)
    return labels, _two_scores(node, score, kind, positive)


def _two_scores(node: Node, score: Value, kind: str, positive: bool) -> Value:
    """The scores of both classes, from that of the second."""
    if kind == "PROBIT":
        return post_transform(node, score, kind)
    if positive and kind != "LOGISTIC":
        return both_classes(node, score, node.op("sub", node.fill(1, like=score), score))
    both = both_classes(node, score, node.op("neg", score))
    return post_transform(node, both, kind) if kind == "LOGISTIC" else both


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
    count = node.integer("n_targets", 1)
    total = _aggregate(node, _walk(node, x, forest), leaves, count, _AGGREGATES[kind])
    total = node.convert(total, element)
    return transform_targets(node, total, POST_TRANSFORMS[transform])


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

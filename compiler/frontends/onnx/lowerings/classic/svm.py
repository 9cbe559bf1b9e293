"""SVMRegressor and SVMClassifier, with libsvm's votes and probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ingot.compiler.frontends.onnx.lowerings.classic.labels import (
    best_labels,
    class_count,
    give_labels,
)
from ingot.compiler.frontends.onnx.lowerings.classic.linear import product, rows_of
from ingot.compiler.frontends.onnx.lowerings.classic.scores import post_transform, two_scores
from ingot.compiler.frontends.onnx.node import Node, shape_of, unsupported
from ingot.compiler.frontends.onnx.registry import CLASSIC, lowering
from ingot.compiler.frontends.strings import Strings
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import while_loop
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__: list[str] = []

Array = np.ndarray[Any, Any]
_F32 = dtype("f32")


def _attribute(node: Node, name: str, rows: int) -> Array:
    """A list of floats as a matrix of that many rows."""
    values = np.array(node.numbers(name) or (), np.float32)
    unsupported(
        rows < 1 or not values.size or values.size % rows != 0,
        f"its {values.size} {name} are no {rows} rows: fix the model",
    )
    return values.reshape(rows, -1)


def _kernel(node: Node, x: Value, vectors: Array, kind: str) -> Value:
    """f32[n, vectors]: how near each row is to each vector."""
    gamma, coef0, degree = (*(node.numbers("kernel_params") or ()), 0.0, 0.0, 0.0)[:3]
    dots = product(node, x, vectors)
    if kind == "LINEAR":
        return dots
    if kind == "RBF":
        return _gaussian(node, x, vectors, gamma)
    inner = node.op("add", node.op("mul", dots, gamma), coef0)
    unsupported(kind not in ("POLY", "SIGMOID"), f"its kernel_type '{kind}' is not known")
    if kind == "SIGMOID":
        return node.op("tanh", inner)
    return node.op("pow", inner, degree)


def _gaussian(node: Node, x: Value, vectors: Array, gamma: float) -> Value:
    """exp(-gamma |x - v|^2), of differences, as a sum of squares would cancel."""
    shape = (shape_of(x)[0], *vectors.shape)
    wide = node.op("broadcast", x, shape=shape, dimensions=(0, 2))
    table = node.broadcast_to(node.constant(vectors, _F32), shape)
    apart = node.op("sub", wide, table)
    squares = node.reduce(node.op("mul", apart, apart), [2], "add")
    return node.op("exp", node.op("mul", squares, -gamma))


@lowering("SVMRegressor", domain=CLASSIC)
def svm_regressor(node: Node) -> Value:
    """f32[n, 1]: the sum of what the vectors say, or, `one_class`, its sign."""
    x = rows_of(node, node.input(0))
    count = node.integer("n_supports", 0)
    weights, rho = _attribute(node, "coefficients", 1), node.numbers("rho") or (0.0,)
    if count > 0:
        vectors = _attribute(node, "support_vectors", count)
        kernel = _kernel(node, x, vectors, node.text("kernel_type", "LINEAR"))
        score = product(node, kernel, weights)
    else:
        score = _kernel(node, x, weights, node.text("kernel_type", "LINEAR"))
    score = node.op("add", score, rho[0])
    if not node.integer("one_class", 0):
        return score
    positive = node.compare("gt", score, 0)
    return node.op("select", positive, node.fill(1, like=score), node.fill(-1, like=score))


@lowering("SVMClassifier", domain=CLASSIC)
def svm_classifier(node: Node) -> tuple[Value | Strings, Value]:
    """Labels and scores: probabilities, what each pair of classes says, or a score per class."""
    ints = "classlabels_ints"
    x, classes = rows_of(node, node.input(0)), max(class_count(node, ints), 1)
    counts, kind = node.integers("vectors_per_class") or (), node.text("post_transform", "NONE")
    rho, type = node.numbers("rho") or (0.0,), node.text("kernel_type", "LINEAR")
    if sum(counts) == 0:  # a linear model, whatever its kernel_type says
        scores = product(node, x, _attribute(node, "coefficients", classes))
        scores = node.op("add", scores, rho[0])
        return best_labels(node, scores, ints), post_transform(node, scores, kind)
    unsupported(
        len(counts) != classes or classes < 2 or len(rho) != classes * (classes - 1) // 2,
        f"its {len(rho)} rho and {len(counts)} vectors_per_class do not fit {classes} classes: "
        "fix the model",
    )
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    kernel = _kernel(node, x, _attribute(node, "support_vectors", sum(counts)), type)
    scores = product(node, kernel, _pair_weights(node, counts, pairs))
    scores = node.op("add", *node.broadcast(scores, node.constant(rho, _F32)))
    labels = give_labels(node, _voted(node, scores, classes, pairs), ints)
    if node.numbers("prob_a"):
        scores = _probabilities(node, scores, classes, pairs)
    if classes > 2 or node.numbers("prob_a"):
        return labels, post_transform(node, scores, kind)
    return labels, two_scores(node, scores, kind)


def _pair_weights(node: Node, counts: Sequence[int], pairs: Sequence[tuple[int, int]]) -> Array:
    """[pairs, vectors]: what each vector weighs for a pair; 0 for vectors of other classes."""
    weights = _attribute(node, "coefficients", len(counts) - 1)
    ends = np.cumsum(counts)
    parts = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    table = np.zeros((len(pairs), int(ends[-1])), np.float32)
    for row, (i, j) in zip(table, pairs, strict=True):
        row[parts[i]] = weights[j - 1, parts[i]]
        row[parts[j]] = weights[i, parts[j]]
    return table


def _voted(node: Node, scores: Value, classes: int, pairs: Sequence[tuple[int, int]]) -> Value:
    """i64[n]: the class that most pairs say, the first of equal ones."""
    won = np.zeros((classes, len(pairs)), np.float32)
    lost = np.zeros_like(won)
    for place, (i, j) in enumerate(pairs):
        won[i, place], lost[j, place] = 1, 1
    is_first = node.convert(node.compare("gt", scores, 0), _F32)
    votes = product(node, is_first, won - lost)
    votes = node.op("add", *node.broadcast(votes, node.constant(lost.sum(axis=1), _F32)))
    return node.op("arg_max", votes, axis=1, dtype=dtype("i64"))


def _probabilities(
    node: Node, scores: Value, classes: int, pairs: Sequence[tuple[int, int]]
) -> Value:
    """f32[n, classes] of what each pair says: libsvm's `multiclass_probability`, whose rows end
    one by one."""
    a, b = (_attribute(node, f"prob_{each}", 1) for each in "ab")
    unsupported(a.size != len(pairs) or b.size != len(pairs), "its prob_a or prob_b is too short")
    scaled = node.op("mul", *node.broadcast(scores, node.constant(a[0], _F32)))
    scaled = node.op("add", *node.broadcast(scaled, node.constant(b[0], _F32)))
    first = node.op("logistic", node.op("neg", scaled))
    low, high = (node.fill(each, like=first) for each in (1e-7, 1 - 1e-7))
    first = node.op("clamp", low, first, high)
    second = node.op("sub", 1, first)
    quadratic = _quadratic(node, first, second, classes, pairs)
    start = node.full(1 / classes, _F32, (shape_of(scores)[0], classes))
    limit = node.constant(max(100, classes), "i32")

    def go_on(builder: Builder, values: Sequence[Value]) -> Value:
        inner = node.within(builder)
        more = inner.compare("lt", values[0], limit)
        return inner.op("and", more, inner.reduce(values[2], [0], "or"))

    def step(builder: Builder, values: Sequence[Value]) -> list[Value]:
        return _improve(node.within(builder), values, quadratic, classes)

    running = node.full(True, "i1", (shape_of(scores)[0],))
    return while_loop(node.builder, [node.constant(0, "i32"), start, running], go_on, step)[1]


def _quadratic(
    node: Node, first: Value, second: Value, classes: int, pairs: Sequence[tuple[int, int]]
) -> Value:
    """f32[n, classes, classes]: off the diagonal -r[j, i] r[i, j], on it sums of squares, where
    r[i, j] is what the pair says of the first of it."""
    spread = np.zeros((classes * classes, len(pairs)), np.float32)
    own = np.zeros((2, classes * classes, len(pairs)), np.float32)
    for place, (i, j) in enumerate(pairs):
        spread[[i * classes + j, j * classes + i], place] = -1
        own[0, j * classes + j, place] = 1  # r[i, j] squared counts for j, r[j, i] for i
        own[1, i * classes + i, place] = 1
    total = product(node, node.op("mul", first, second), spread)
    for value, table in ((first, own[0]), (second, own[1])):
        total = node.op("add", total, product(node, node.op("mul", value, value), table))
    return node.reshape(total, (shape_of(first)[0], classes, classes))


def _improve(node: Node, values: Sequence[Value], quadratic: Value, classes: int) -> list[Value]:
    """One round over all classes for the rows that are not near enough yet."""
    count, p, running = values
    rows = shape_of(p)[0]
    wide = (rows, classes, classes)

    def column(x: Value) -> Value:
        return node.op("broadcast", x, shape=(rows, classes), dimensions=(0,))

    def part(x: Value, place: int) -> Value:
        return node.reshape(node.sliced(x, 1, place, place + 1), (rows,))

    spread = node.op("broadcast", p, shape=wide, dimensions=(0, 2))
    products = node.reduce(node.op("mul", quadratic, spread), [2], "add")
    total = node.reduce(node.op("mul", p, products), [1], "add")
    error = node.reduce(node.op("abs", node.op("sub", products, column(total))), [1], "max")
    running = node.op("and", running, node.compare("ge", error, 0.005 / classes))
    new = p
    for place in range(classes):
        line = node.reshape(node.sliced(quadratic, 1, place, place + 1), (rows, classes))
        own = part(line, place)
        difference = node.op("div", node.op("sub", total, part(products, place)), own)
        one = node.op("add", difference, 1)
        twice = node.op("mul", part(products, place), 2)
        grown = node.op("add", node.op("mul", difference, own), twice)
        total = node.op("add", total, node.op("mul", difference, grown))
        total = node.op("div", node.op("div", total, one), one)
        step = node.op("mul", column(difference), line)
        products = node.op("div", node.op("add", products, step), column(one))
        unit = node.constant(np.eye(classes)[place], _F32)
        unit = node.broadcast_to(unit, (rows, classes))
        new = node.op("add", new, node.op("mul", column(difference), unit))
        new = node.op("div", new, column(one))
    keep = node.op("broadcast", running, shape=(rows, classes), dimensions=(0,))
    return [node.op("add", count, 1), node.op("select", keep, new, p), running]

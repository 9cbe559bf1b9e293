"""The tables of a tree ensemble: every kind of node becomes a test `x <= threshold`, whose
children `lay_out` then puts beside each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ingot.compiler.frontends.onnx.node import Node, unsupported

__all__ = ["MODES", "Forest", "Leaves", "Tests", "build_forest", "read_trees"]

Array = np.ndarray[Any, Any]

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""In the order in which `TreeEnsemble` numbers them."""
_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, _MEMBER = range(len(MODES))


@dataclass
class Tests:
    """The inner nodes as a model gives them, one element each. A child that is a leaf is the
    number of the leaf, any other the count of leaves plus the number of the node."""

    modes: Array
    features: Array
    values: Array
    true: Array
    false: Array
    missing_true: Array  # whether NaN takes the true child
    members: dict[int, Array]  # of nodes of mode MEMBER


@dataclass
class Leaves:
    """What the leaves add: `weights[i]` of leaf `places[i]` to target `targets[i]`."""

    count: int
    places: Array
    targets: Array
    weights: Array


@dataclass
class Forest:
    """`children[2 * i]` is where x <= thresholds[i] leads, `children[2 * i + 1]` the rest;
    NaN is the former where `nan_first`. Leaves come first, and lead to themselves."""

    features: Array
    thresholds: Array
    children: Array
    nan_first: Array
    roots: Array
    leaves: Leaves


def build_forest(tests: Tests, leaves: Leaves, roots: Array, element: Any) -> Forest:
    """Thresholds get the dtype `element`, that of the features. Below a value is at most the
    number before it; equal is two tests, and a member a search among them."""
    count = leaves.count
    values = tests.values.astype(element)
    is_strict = np.isin(tests.modes, (_LT, _GTE))
    thresholds = np.where(is_strict, _before(values), values)
    is_swapped = np.isin(tests.modes, (_GTE, _GT))
    first = np.where(is_swapped, tests.false, tests.true)
    second = np.where(is_swapped, tests.true, tests.false)
    nan_first = tests.missing_true != is_swapped
    table = _Table(tests, thresholds, first, second, nan_first, count)
    for place in np.flatnonzero(np.isin(tests.modes, (_EQ, _NEQ, _MEMBER))):
        table.expand(int(place))
    pairs = np.stack([np.append(first, table.first), np.append(second, table.second)], axis=1)
    own = np.repeat(np.arange(count), 2)
    children = np.append(own, pairs.reshape(-1)).astype(np.int32)
    unsupported(
        children.size > 0 and not 0 <= children.min() <= children.max() < children.size // 2,
        "a node's child does not exist: fix the model",
    )

    def padded(values: Array, more: list[Any], dtype: Any) -> Array:
        return np.concatenate([np.zeros(count), values, more]).astype(dtype)

    return Forest(
        padded(tests.features, table.features, np.int32),
        padded(thresholds, table.thresholds, element),
        children,
        padded(nan_first, table.nan_first, np.bool_),
        roots.astype(np.int32),
        leaves,
    )


def _before(values: Array) -> Array:
    """The number before each; NaN, which nothing is at most, before the least."""
    before = np.nextafter(values, np.array(-np.inf, values.dtype))
    return np.where(np.isneginf(values), np.nan, before).astype(values.dtype)


class _Table:
    """Nodes of other modes, made of tests that come behind all nodes of the model."""

    def __init__(
        self, tests: Tests, thresholds: Array, first: Array, second: Array, nan: Array, leaves: int
    ) -> None:
        self._tests, self._own = tests, (thresholds, first, second, nan)
        self._next = leaves + len(first)
        self.features: list[int] = []
        self.thresholds: list[Any] = []
        self.first: list[int] = []
        self.second: list[int] = []
        self.nan_first: list[bool] = []

    def expand(self, place: int) -> None:
        tests = self._tests
        mode, nan = int(tests.modes[place]), bool(tests.missing_true[place])
        yes, no = int(tests.true[place]), int(tests.false[place])
        if mode == _NEQ:
            yes, no, nan = no, yes, False  # NaN equals nothing
        element = self._own[0].dtype
        given = tests.members[place] if mode == _MEMBER else tests.values[[place]]
        members = np.unique(given.astype(element))
        feature = int(tests.features[place])
        test = self._search(feature, members[~np.isnan(members)], yes, no, nan)
        for own, value in zip(self._own, test, strict=True):
            own[place] = value

    def _search(
        self, feature: int, members: Array, yes: int, no: int, nan: bool
    ) -> tuple[Any, int, int, bool]:
        """The test of a node that leads to `yes` for a member, and for NaN if `nan`."""
        if not len(members):
            return np.nan, yes if nan else no, no, nan
        if len(members) == 1:
            below = self._add(feature, (_before(members)[0], no, yes, not nan))
            return members[0], below, no, nan
        half = len(members) // 2
        parts = (self._search(feature, each, yes, no, nan) for each in np.split(members, [half]))
        left, right = (self._add(feature, each) for each in parts)
        return members[half - 1], left, right, nan

    def _add(self, feature: int, test: tuple[Any, int, int, bool]) -> int:
        self.features.append(feature)
        columns: list[list[Any]]
        columns = [self.thresholds, self.first, self.second, self.nan_first]
        for column, value in zip(columns, test, strict=True):
            column.append(value)
        self._next += 1
        return self._next - 1


def read_trees(node: Node, side: str) -> tuple[Tests, Leaves, Array]:
    """Of TreeEnsembleRegressor (`side` is "target") and TreeEnsembleClassifier ("class"), whose
    nodes have a tree and a number in it."""
    trees, numbers = (_whole(node, f"nodes_{each}") for each in ("treeids", "nodeids"))
    modes = np.array(node.texts("nodes_modes") or ())
    named = dict(zip((f"BRANCH_{each}" for each in MODES), range(len(MODES)), strict=True))
    unsupported(
        not len(modes) == len(trees) == len(numbers) or not len(modes),
        f"it has {len(modes)} modes for {len(trees)} nodes: fix the model",
    )
    kinds, inverse = np.unique(modes, return_inverse=True)
    for kind in kinds:
        unsupported(kind != "LEAF" and kind not in named, f"its node mode '{kind}' is not known")
    codes = np.array([named.get(str(kind), -1) for kind in kinds])[inverse]
    is_leaf = codes < 0
    places = np.where(is_leaf, np.cumsum(is_leaf) - 1, is_leaf.sum() + np.cumsum(~is_leaf) - 1)
    keys = _Keys(trees, numbers, places)
    inner = ~is_leaf

    def of_inner(name: str) -> Array:
        values = _whole(node, name)
        return values[inner] if len(values) else np.zeros(int(inner.sum()), np.int64)

    tests = Tests(
        codes[inner],
        of_inner("nodes_featureids"),
        _floats(node, "nodes_values")[inner],
        keys.find(trees[inner], of_inner("nodes_truenodeids")),
        keys.find(trees[inner], of_inner("nodes_falsenodeids")),
        of_inner("nodes_missing_value_tracks_true") != 0,
        {},
    )
    found = keys.find(_whole(node, f"{side}_treeids"), _whole(node, f"{side}_nodeids"))
    leaves = Leaves(
        int(is_leaf.sum()), found, _whole(node, f"{side}_ids"), _floats(node, f"{side}_weights")
    )
    _, firsts = np.unique(trees, return_index=True)
    return tests, leaves, places[firsts]


class _Keys:
    """Where the node of a tree and a number stands."""

    def __init__(self, trees: Array, numbers: Array, places: Array) -> None:
        self._low, self._width = int(numbers.min()), int(numbers.max() - numbers.min()) + 1
        keys = self._key(trees, numbers)
        order = np.argsort(keys, kind="stable")
        self._keys, self._places = keys[order], places[order]

    def _key(self, trees: Array, numbers: Array) -> Array:
        keys: Array = trees * self._width + (numbers - self._low)
        return keys

    def find(self, trees: Array, numbers: Array) -> Array:
        keys = self._key(trees, numbers)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        unsupported(
            bool((self._keys[at] != keys).any()),
            "it names a node that does not exist: fix the model",
        )
        found: Array = self._places[at]
        return found


def _whole(node: Node, name: str) -> Array:
    return np.array(node.integers(name) or (), np.int64)


def _floats(node: Node, name: str) -> Array:
    """An attribute that is a list of floats, or a tensor of another name, which may be f64."""
    literal = node.tensor(f"{name}_as_tensor")
    if literal is not None:
        return literal.array.reshape(-1)
    return np.array(node.numbers(name) or (), np.float32)

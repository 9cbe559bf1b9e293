"""Where the nodes of a forest stand: tree by tree, level by level, both children of a node beside
each other, so that a step reads one word of a node and adds 0 or 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ingot.compiler.frontends.onnx.lowerings.classic.forest import Forest
from ingot.compiler.frontends.onnx.node import unsupported

__all__ = ["Layout", "lay_out"]

Array = np.ndarray[Any, Any]


@dataclass
class Layout:
    """From node i, `first[i]` is next where x <= thresholds[i], else `first[i] + 1`. Leaves, whose
    numbers are `leaf_of`, lead to themselves: they read a feature behind all others, which is 0."""

    features: Array
    thresholds: Array
    first: Array
    nan_first: Array
    leaf_of: Array
    roots: Array
    depths: Array  # of each tree the greatest number of steps from its root to a leaf
    is_shared: bool  # some node has several parents

    def targets_of(self, leaves: Array, targets: Array) -> Array | None:
        """The target that each tree tells, 0 for one that tells none: `targets` are those of
        `leaves`. None: some tree tells several, or reads leaves of another one."""
        if self.is_shared:
            return None
        places = np.flatnonzero(self.first == np.arange(len(self.first)))
        tree_of = np.full(max(self.leaf_of.max(), leaves.max(initial=0)) + 1, -1)
        tree_of[self.leaf_of[places]] = np.searchsorted(self.roots, places, "right") - 1
        trees = tree_of[leaves]
        trees, targets = trees[trees >= 0], targets[trees >= 0]  # others are never reached
        least = np.full(len(self.roots), np.iinfo(np.int64).max)
        greatest = np.zeros(len(self.roots), np.int64)
        np.minimum.at(least, trees, targets)
        np.maximum.at(greatest, trees, targets)
        return greatest if (least >= greatest).all() else None


def lay_out(forest: Forest, width: int) -> Layout:
    """The forest for rows of `width` features. A node that has several parents stands where the
    first of them wants it; for the others a node that always leads there does."""
    slots = _Slots(forest)
    order = np.argsort(slots.trees, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    nodes, jumps = slots.nodes[order], slots.jumps[order]
    is_leaf = (nodes < forest.leaves.count) & ~jumps
    is_test = ~is_leaf & ~jumps
    first = np.where(is_test, place[slots.first[order]], np.arange(len(order)))
    first[jumps] = place[slots.homes[nodes[jumps]]]
    layout = Layout(
        np.where(is_test, forest.features[nodes], width),
        np.where(is_test, forest.thresholds[nodes], np.inf).astype(forest.thresholds.dtype),
        first,
        is_test & forest.nan_first[nodes],
        np.where(is_leaf, nodes, 0),
        place[: len(forest.roots)],
        np.zeros(len(forest.roots), np.int64),
        bool(jumps.any()),
    )
    layout.depths = _depths(layout, is_test, jumps)
    return layout


class _Slots:
    """The places of all trees, level by level: which node stands in each, or is led to (`jumps`),
    and where its children stand. `homes` are the places of nodes."""

    def __init__(self, forest: Forest) -> None:
        count = len(forest.children) // 2
        self.homes = np.full(count, -1, np.int64)
        nodes, trees = forest.roots.astype(np.int64), np.arange(len(forest.roots))
        levels: list[tuple[Array, Array, Array, Array]] = []
        start = 0
        while len(nodes):
            found, firsts = np.unique(nodes, return_index=True)
            own = np.zeros(len(nodes), np.bool_)
            own[firsts[self.homes[found] < 0]] = True
            self.homes[nodes[own]] = start + np.flatnonzero(own)
            tests = own & (nodes >= forest.leaves.count)
            first = np.zeros(len(nodes), np.int64)
            first[tests] = start + len(nodes) + 2 * np.arange(tests.sum())
            levels.append((nodes, trees, ~own, first))
            start += len(nodes)
            children = np.stack([2 * nodes[tests], 2 * nodes[tests] + 1], axis=1).reshape(-1)
            nodes, trees = forest.children[children].astype(np.int64), np.repeat(trees[tests], 2)
        parts = (np.concatenate(each) for each in zip(*levels, strict=True))
        self.nodes, self.trees, self.jumps, self.first = parts


def _depths(layout: Layout, is_test: Array, jumps: Array) -> Array:
    """The greatest number of steps from each root to a leaf, found from the leaves on: a node is
    met when all that it leads to has been."""
    one, two = np.flatnonzero(is_test | jumps), np.flatnonzero(is_test)
    parents = np.append(one, two)
    children = np.append(layout.first[one], layout.first[two] + 1)
    parents = parents[np.argsort(children, kind="stable")]
    counts = np.bincount(children, minlength=len(layout.first))  # of the parents of each
    begins = np.cumsum(counts) - counts
    left = np.bincount(parents, minlength=len(layout.first))
    heights = np.zeros(len(layout.first), np.int64)
    height, reached = 0, np.flatnonzero(left == 0)
    while len(reached):
        each = counts[reached]
        at = np.arange(each.sum()) + np.repeat(begins[reached] - (np.cumsum(each) - each), each)
        above, height = parents[at], height + 1
        heights[above] = height
        np.subtract.at(left, above, 1)
        reached = np.unique(above)
        reached = reached[left[reached] == 0]
    unsupported(bool(left[layout.roots].any()), "its nodes lead in a circle: fix the model")
    depths: Array = heights[layout.roots]
    return depths

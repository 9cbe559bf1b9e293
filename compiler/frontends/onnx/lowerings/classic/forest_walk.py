"""The walk of all rows through all trees at once, tree by tree, so that a tree's nodes stay in the
cache: the place of each pair goes one level down in each step, and a leaf leads to itself.

The deepest trees come first. Pairs of a tree whose leaves are all reached are left out of the steps
of deeper ones.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from ingot.compiler.frontends.onnx.lowerings.classic.forest import Forest
from ingot.compiler.frontends.onnx.lowerings.classic.forest_layout import Layout, lay_out
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import branches, counted_loop
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["Walked", "plan_phases", "walk"]

Array = np.ndarray[Any, Any]

_I32 = dtype("i32")
_MOST_PHASES = 4
_MOST_ENDS = 64  # of phases, among which the best are chosen


@dataclass(frozen=True)
class Walked:
    """Where rows end: `places` is i32[trees, n], row `rows_of[i]` of it that of tree i."""

    places: Value
    rows_of: Array
    layout: Layout


def plan_phases(depths: Array) -> list[tuple[int, int]]:
    """How many of the deepest trees take part in how many steps, for depths in falling order: of
    all ways in few phases the one with the fewest steps of all trees."""
    ends = np.unique(depths[depths > 0])
    if len(ends) > _MOST_ENDS:
        ends = ends[np.linspace(0, len(ends) - 1, _MOST_ENDS).astype(np.int64)]
    ends = np.append(0, ends)
    active = np.searchsorted(-depths, -ends)  # trees that are deeper than each end
    cost = {0: (0, [0])}  # of the steps up to each end, and the ends on the way
    best = cost
    for _ in range(_MOST_PHASES):
        best = {
            last: min(
                (before + int(active[first] * (ends[last] - ends[first])), [*way, last])
                for first, (before, way) in cost.items()
                if first <= last
            )
            for last in range(len(ends))
        }
        cost = best
    way = best[len(ends) - 1][1]
    return [(int(active[a]), int(ends[b] - ends[a])) for a, b in pairwise(way) if a < b]


def _with_features(node: Node, x: Value, greatest: int) -> tuple[Value, int]:
    """x as far as nodes read it, if only the call knows how many features it has; how many these
    are."""
    width = shape_of(x)[1]
    if isinstance(width, int):
        unsupported(
            greatest >= width, f"a node reads feature {greatest} of {x.type}: fix the model"
        )
        return x, width
    node.builder.append("assert", (), (), {"kind": "le", "a": greatest + 1, "b": width})
    return node.sliced(x, 1, 0, greatest + 1), greatest + 1


def walk(node: Node, x: Value, forest: Forest) -> Walked:
    """The leaf that each row reaches in each tree. A single row, which callers that serve have, is
    walked without the places where rows begin."""
    x, width = _with_features(node, x, int(forest.features.max(initial=0)))
    rows = shape_of(x)[0]
    layout = lay_out(forest, width)
    order = np.argsort(-layout.depths, kind="stable")
    trees = len(order)
    node.builder.append("assert", (), (), {"kind": "le", "a": rows * (width + 1), "b": 2**31 - 1})
    flat = node.reshape(node.padded(x, (0, 0), (0, 1)), (rows * (width + 1),))
    descend = _Descent(_step(node, layout, flat, width), plan_phases(layout.depths[order]))
    roots = node.constant(layout.roots[order], _I32)
    shape = (trees, rows)

    def of_one_row(builder: Builder) -> list[Value]:
        inner = node.within(builder)
        return [inner.reshape(descend.run(inner, roots, None, 1), (trees, 1))]

    def of_many_rows(builder: Builder) -> list[Value]:
        inner = node.within(builder)
        base = inner.op("iota", dtype=_I32, shape=shape, axis=1)
        base = inner.op("mul", base, width + 1)
        at = inner.op("broadcast", roots, shape=shape, dimensions=(0,))
        at, base = (inner.reshape(each, (trees * rows,)) for each in (at, base))
        return [inner.reshape(descend.run(inner, at, base, rows), shape)]

    if isinstance(rows, int):
        (places,) = (of_one_row if rows == 1 else of_many_rows)(node.builder)
    else:
        is_one = node.compare("eq", node.size(rows), node.constant(1, "i64"))
        of_one = _with_shape(node, of_one_row, shape)
        builds = [of_one, of_many_rows]
        (places,) = branches(node.builder, "if", is_one, builds, node.fresh_symbols("rows"))
    return Walked(places, np.argsort(order, kind="stable"), layout)


def _with_shape(
    node: Node, build: Callable[[Builder], list[Value]], shape: tuple[int, Dim]
) -> Callable[[Builder], list[Value]]:
    """The places of a single row as those of all rows, of which there is one."""

    def of_one(builder: Builder) -> list[Value]:
        inner = node.within(builder)
        (places,) = build(builder)
        flat = inner.reshape(places, shape[:1])
        return [inner.op("broadcast", flat, shape=shape, dimensions=(0,))]

    return of_one


Step = Callable[[Node, Value, Value | None], Value]


@dataclass(frozen=True)
class _Descent:
    """All steps, phase by phase."""

    step: Step
    phases: list[tuple[int, int]]

    def run(self, node: Node, at: Value, base: Value | None, rows: Dim) -> Value:
        """The last places of all pairs, which begin at `at`: `rows` of each tree."""
        left: list[Value] = []  # behind those that go on
        for trees, steps in self.phases:
            count = shape_of(at)[0]
            if trees * rows != count:
                left.append(node.sliced(at, 0, trees * rows, count))
                at = node.sliced(at, 0, 0, trees * rows)
                base = None if base is None else node.sliced(base, 0, 0, trees * rows)
            at = self._steps(node, at, base, steps)
        return node.op("concatenate", at, *reversed(left), axis=0) if left else at

    def _steps(self, node: Node, at: Value, base: Value | None, steps: int) -> Value:
        """A loop also of one step, in front of which rows and their places lie in memory."""
        count = node.constant(steps, _I32)
        return counted_loop(
            node.builder,
            count,
            [at],
            lambda b, _, each: [self.step(node.within(b), each[0], base)],
        )[0]


def _step(node: Node, layout: Layout, flat: Value, width: int) -> Step:
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
            part = inner.op("shift_right_logical", word, low + first_bit)
            return inner.op("and", part, (1 << count) - 1)

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

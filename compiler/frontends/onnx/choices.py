"""Inputs that shape an op and that only the call knows, such as axes: a switch over what they
may hold.

A lowering asks here for such an input. Where it is not known at import, `Undecided` says what
it can hold; `lower_node` then lowers the op once for each of that, in the branches of a `case`,
and joins the results, which may differ in dims and rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, combinations, islice, permutations

import numpy as np

from ingot.compiler.frontends.onnx.branches import join_structures
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import Lowering
from ingot.compiler.frontends.onnx.structures import Structure
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim, Expr

__all__ = ["Undecided", "axes_of", "lower_node"]

_GREATEST_COUNT = 128  # branches, each of which has code of its own


class Undecided(Exception):
    """The lowering needs an input that only the call knows: one of `choices`, the one whose
    place `chosen` is, an integer of rank 0."""

    def __init__(self, index: int, choices: Sequence[Sequence[int]], chosen: Value) -> None:
        super().__init__(index)
        self.index = index
        self.choices = choices
        self.chosen = chosen


def lower_node(lower: Lowering, node: Node) -> tuple[Structure | None, ...]:
    """The results of the lowering, joined where it needs an input that only the call knows."""
    try:
        made = lower(node)
    except Undecided as undecided:
        needed = undecided
    else:
        return made if isinstance(made, tuple) else (made,)
    branches, results = [], []
    type = type_of(node.input(needed.index))
    for choice in needed.choices:
        block = node.aside(())
        emitting = node.within(Builder(block, node.builder.location))
        shape = type.shape if len(choice) == dims.product(type.shape) else (len(choice),)
        known = emitting.constant(np.reshape(np.asarray(choice, np.int64), shape), type.dtype)
        inner = emitting.with_input(needed.index, known)
        branches.append((inner, block))
        results.append(lower_node(lower, inner))
    return join_structures(node, "case", needed.chosen, branches, results)


def axes_of(
    node: Node,
    index: int,
    rank: int,
    name: str = "axes",
    *,
    among: Sequence[int] | None = None,
    ordered: bool = False,
) -> list[int] | None:
    """The axes that the input at `index` or else the attribute `name` lists, of a tensor of `rank`,
    counted from the front; None if there is neither. Undecided: only the call knows them; then
    they are those of `among`, each once, and only if they are `ordered` their order matters."""
    value = node.optional(index)
    listed: Iterable[Dim] | None = node.integers(name)
    if value is not None:
        known = node.known(value)
        if known is None or any(isinstance(axis, Expr) for axis in known.flat):
            candidates = range(rank) if among is None else among
            raise _undecided_axes(node, index, rank, list(candidates), name, ordered)
        listed = known.flat
    return None if listed is None else [node.normalize_axis(int(axis), rank) for axis in listed]  # type: ignore[arg-type]


def _undecided_axes(
    node: Node, index: int, rank: int, candidates: list[int], name: str, ordered: bool
) -> Undecided:
    value = node.input(index)
    count = dims.product(shape_of(value))
    choices: Iterable[tuple[int, ...]]
    if isinstance(count, int):
        pick = permutations if ordered else combinations
        choices = pick(candidates, count) if count <= len(candidates) else ()
    else:
        unsupported(ordered, f"the count of its {name} is {count}, which must be known")
        sizes = range(len(candidates) + 1)
        choices = chain.from_iterable(combinations(candidates, size) for size in sizes)
    given = node.convert(node.reshape(value, (count,)), "i64")
    low = node.fill(0, like=given)
    wrapped = node.op("add", given, rank)
    wrapped = node.op("select", node.compare("lt", given, low), wrapped, given)
    meets = _pairs(node, wrapped, node.constant(candidates, "i64"))
    hits = node.convert(node.reduce(meets, [0], "or"), "i64")
    found, what = hits, f"the count of its different {name} among {candidates}"
    if not isinstance(count, int):  # one that is named twice counts once
        found = node.reduce(node.convert(meets, "i64"), [0], "add")
        what = f"the count of its {name} among {candidates}"
    node.require(node.reduce(found, [0], "add"), count, what)
    listed = _bounded(choices, name)
    if ordered:
        return Undecided(index, listed, _place_of(node, wrapped, listed))
    members = [[int(axis in choice) for axis in candidates] for choice in listed]
    return Undecided(index, listed, _place_of(node, hits, members))


def _bounded(choices: Iterable[Sequence[int]], name: str) -> list[Sequence[int]]:
    listed = list(islice(choices, _GREATEST_COUNT + 1))
    unsupported(
        not 1 <= len(listed) <= _GREATEST_COUNT,
        f"its {name} depend on data and may be any of {'many' if listed else 'no'} choices, "
        f"expected 1 to {_GREATEST_COUNT}: export the model with fixed ones",
    )
    return listed


def _pairs(node: Node, a: Value, b: Value) -> Value:
    """i1[m, n]: which elements of a: i64[m] and b: i64[n] are equal."""
    shape = (*shape_of(a), *shape_of(b))
    rows = node.op("broadcast", a, shape=shape, dimensions=(0,))
    return node.compare("eq", rows, node.op("broadcast", b, shape=shape, dimensions=(1,)))


def _place_of(node: Node, row: Value, rows: Sequence[Sequence[int]]) -> Value:
    """Which of `rows` is i64[width] `row`."""
    table = node.constant(np.asarray(rows, np.int64).reshape(len(rows), -1), "i64")
    spread = node.op("broadcast", row, shape=shape_of(table), dimensions=(1,))
    matches = node.convert(node.reduce(node.compare("eq", table, spread), [1], "and"), "i64")
    return node.op("arg_max", matches, axis=0, dtype=type_of(row).dtype)

"""DynamicTimeWarping of `com.microsoft`, which says when each token of a speech is heard."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ingot.compiler.frontends.onnx.lowerings.microsoft.attention import positions
from ingot.compiler.frontends.onnx.node import Node, shape_of
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import counted_loop, while_loop
from ingot.compiler.ir import Value

__all__: list[str] = []

_BOTH, _ROW, _COLUMN = 0, 1, 2  # which place steps from the place before


@lowering("DynamicTimeWarping", domain=MICROSOFT)
def dynamic_time_warping(node: Node) -> Value:
    """The rows and columns, i32[2, steps], of the cheapest path through costs [rows, columns]
    from the first place to the last, in which each step goes on by at most one in both."""
    costs = node.convert(node.input(0), "f32")
    costs = node.reshape(costs, shape_of(costs)[-2:])
    steps = _steps(node, costs)
    most, rows = shape_of(steps)
    columns = most - rows + 1
    none = node.full(0, "i32", (2, most))
    ends = [node.size(each - 1, "i32") for each in (most, rows, columns)]

    def goes_on(builder: Builder, carried: Sequence[Value]) -> Value:
        inner, (_, row, column, _) = node.within(builder), carried
        return inner.compare("ge", inner.op("min", row, column), inner.constant(0, "i32"))

    def go_back(builder: Builder, carried: Sequence[Value]) -> list[Value]:
        inner, (left, row, column, path) = node.within(builder), carried
        one, zero = (inner.constant(each, "i32") for each in (1, 0))
        ends = [inner.reshape(each, (1, 1)) for each in (row, column)]
        pair = inner.op("concatenate", *ends, axis=0)
        path = inner.op("dynamic_update_slice", path, pair, zero, left)
        diagonal = inner.op("take", steps, inner.op("add", row, column), axis=0, mode="clamp")
        step = inner.op("take", diagonal, row, axis=0, mode="clamp")
        moved = []
        for place, other in ((row, _COLUMN), (column, _ROW)):
            stays = inner.compare("eq", step, inner.constant(other, "i32"))
            moved.append(inner.op("select", stays, place, inner.op("sub", place, one)))
        return [inner.op("sub", left, one), *moved, path]

    left, _, _, path = while_loop(node.builder, [*ends, none], goes_on, go_back)
    begin = node.count(node.op("add", left, node.constant(1, "i32")), "where the path begins")
    return node.sliced(path, -1, begin, most)


def _by_diagonal(node: Node, costs: Value) -> Value:
    """f32[rows + columns - 1, rows]: the costs of each diagonal by row, infinite outside."""
    rows, columns = shape_of(costs)
    shape = (rows, rows + columns - 1)
    column = node.op("sub", positions(node, shape, 1), positions(node, shape, 0))
    found = node.gather_along(costs, column, 1, "clamp")
    first, last = node.fill(0, like=column), node.broadcast_to(node.size(columns, "i32"), shape)
    inside = node.op("and", node.compare("ge", column, first), node.compare("lt", column, last))
    found = node.op("select", inside, found, math.inf)
    return node.transpose(found, (1, 0))


def _steps(node: Node, costs: Value) -> Value:
    """i32[rows + columns - 1, rows]: how the cheapest path reaches each place, by diagonal."""
    skewed = _by_diagonal(node, costs)
    most, rows = shape_of(skewed)
    border, nothing = node.full(math.inf, "f32", (rows + 1,)), node.full(0, "f32", (1,))
    corner = node.op("concatenate", nothing, node.sliced(border, -1, 0, rows), axis=0)

    def advance(builder: Builder, index: Value, carried: Sequence[Value]) -> list[Value]:
        inner, (before, last, steps) = node.within(builder), carried
        both, row = (inner.sliced(each, -1, 0, rows) for each in (before, last))
        column = inner.sliced(last, -1, 1, rows + 1)
        least, step = column, inner.full(_COLUMN, "i32", (rows,))
        for value, other, number in ((row, both, _ROW), (both, row, _BOTH)):
            is_least = [inner.compare("lt", value, each) for each in (other, column)]
            chosen = inner.op("and", *is_least)
            least = inner.op("select", chosen, value, least)
            step = inner.op("select", chosen, number, step)
        cost = inner.op("take", skewed, index, axis=0, mode="clamp")
        reached = inner.op("add", least, cost)
        made = inner.op("concatenate", inner.sliced(border, -1, 0, 1), reached, axis=0)
        row_of_steps = inner.reshape(step, (1, rows))
        start = (index, inner.size(0))
        return [last, made, inner.op("dynamic_update_slice", steps, row_of_steps, *start)]

    start = [corner, border, node.full(0, "i32", (most, rows))]
    return counted_loop(node.builder, node.size(most), start, advance)[2]

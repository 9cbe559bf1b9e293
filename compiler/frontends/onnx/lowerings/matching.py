"""Where patterns match inside of strings, on bytes[strings, width], and the parts they make."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.automata import KINDS, Automaton, kinds_of_bytes
from ingot.compiler.frontends.onnx.node import Node, shape_of
from ingot.compiler.frontends.strings import put_at
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import counted_loop, while_loop
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__ = ["Marks", "apart", "counted", "gathered", "longest_matches", "ranked", "runs"]


def longest_matches(node: Node, data: Value, inside: Value, automaton: Automaton) -> Value:
    """i64[strings, width]: how long the longest match is that begins at each byte, 0 without one.
    Bytes side by side that are `inside`, i1[strings, width], are a text; matches lie within one.
    An automaton begins at every byte, and all take a byte per step until none goes on."""
    rows, width = shape_of(data)
    given = node.convert(data, "i32")

    def looked_up(table: Value, outside: int, low: int) -> Value:
        """By byte, `outside` a text and behind the strings; the first `low` columns are, too."""
        found = node.op("take", table, given, axis=0, mode="clamp")
        found = node.op("select", inside, found, outside)
        return node.padded(found, (0, low), (0, width), outside)

    kinds = looked_up(node.constant(kinds_of_bytes(), "i32"), 0, 1)
    classes = looked_up(node.constant(automaton.classes, "i32"), -1, 0)
    kind_before = node.sliced(kinds, 1, 0, width)
    kinds = node.sliced(kinds, 1, 1, width + width + 1)
    following = node.constant(automaton.following.reshape(-1), "i32")
    accepts = node.constant(automaton.accepts.reshape(-1) != 0, "i1")
    zero, count = node.size(0), automaton.following.shape[1]

    def goes_on(builder: Builder, carried: Sequence[Value]) -> Value:
        inner, state = node.within(builder), carried[1]
        return inner.reduce(inner.compare("ne", state, 0), [0, 1], "or")

    def step(builder: Builder, carried: Sequence[Value]) -> list[Value]:
        inner, (taken, state, best) = node.within(builder), carried

        def now(table: Value) -> Value:
            return inner.op("dynamic_slice", table, zero, taken, sizes=(rows, width))

        def entry(columns: int, column: Value) -> Value:
            row = inner.op("mul", state, columns)
            return inner.op("add", row, column)

        ends = inner.op("take", accepts, entry(len(KINDS), now(kinds)), axis=0, mode="clamp")
        best = inner.op("select", ends, inner.broadcast_to(taken, (rows, width)), best)
        column = now(classes)
        reached = inner.op("take", following, entry(count, column), axis=0, mode="clamp")
        lost = inner.fill(0, like=state)
        state = inner.op("select", inner.compare("ge", column, lost), reached, lost)
        return [inner.op("add", taken, inner.size(1)), state, best]

    begins = node.constant(automaton.begins, "i32")
    initial = node.op("take", begins, kind_before, axis=0, mode="clamp")
    best = node.full(0, "i64", (rows, width))
    return while_loop(node.builder, [zero, initial, best], goes_on, step)[2]


@dataclass(frozen=True)
class Marks:
    """Which elements [strings, n] tell about a piece: its place among those of the string, and
    the value. No place has two."""

    marked: Value
    place: Value
    value: Value


def gathered(node: Node, marks: Sequence[Marks], count: Dim) -> Value:
    """i64[strings, count]: the values at their places."""
    rows = shape_of(marks[0].marked)[0]
    total: Value | None = None
    for each in marks:
        shape = shape_of(each.marked)
        row = node.op("iota", dtype=dtype("i64"), shape=shape, axis=0)
        row = node.op("mul", row, node.broadcast_to(node.size(count), shape))
        place = node.op("add", row, each.place)
        place = node.op("select", each.marked, place, -1)
        put = put_at(node, rows * count, node.flat(place), node.flat(each.value))
        total = put if total is None else node.op("add", total, put)
    assert total is not None
    return node.reshape(total, (rows, count))


def ranked(node: Node, marked: Value) -> Value:
    """Of each element of i1[strings, n], how many of its string are marked in front of it."""
    rank = node.op("cumulative", node.convert(marked, "i64"), axis=1, kind="add")
    return node.op("sub", rank, node.convert(marked, "i64"))


def counted(node: Node, marked: Value) -> Value:
    """i64[strings]: how many are marked."""
    return node.reduce(node.convert(marked, "i64"), [1], "add")


def runs(node: Node, inside: Value, place: Value) -> tuple[Marks, Marks]:
    """Where bytes side by side that are `inside`, i1[strings, width], begin and end."""
    width = shape_of(inside)[1]
    around = node.padded(inside, (0, 1), (0, 1), False)
    before, behind = (node.sliced(around, 1, at, width + at) for at in (0, 2))
    first, last = (node.op("and", inside, node.op("not", each)) for each in (before, behind))
    end = node.op("add", place, 1)
    return Marks(first, ranked(node, first), place), Marks(last, ranked(node, last), end)


def apart(node: Node, sizes: Value) -> tuple[Value, Value]:
    """Which matches of these sizes i64[strings, width] do not begin inside of one before, and
    which bytes they cover: byte by byte, since that one may go, too."""
    rows, width = shape_of(sizes)
    zero = node.size(0)

    def step(builder: Builder, index: Value, carried: Sequence[Value]) -> list[Value]:
        inner, (free, *kept) = node.within(builder), carried
        here = inner.broadcast_to(index, (rows,))
        size = inner.op("take", sizes, index, axis=1, mode="clamp")
        hit = inner.compare("gt", size, 0)
        hit = inner.op("and", hit, inner.compare("ge", here, free))
        free = inner.op("select", hit, inner.op("add", here, size), free)
        columns = (inner.reshape(x, (rows, 1)) for x in (hit, inner.compare("lt", here, free)))
        return [
            free,
            *(
                inner.op("dynamic_update_slice", table, column, zero, index)
                for table, column in zip(kept, columns, strict=True)
            ),
        ]

    none = node.full(0, "i1", (rows, width))
    initial = [node.full(0, "i64", (rows,)), none, none]
    _, begins, covered = counted_loop(node.builder, node.size(width), initial, step)
    return begins, covered

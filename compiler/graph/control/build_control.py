"""Builds branches and loops from Python functions that build their regions.

Importers and passes write `while_loop(builder, initial, condition, body)` as they would
call a loop of a functional language. The functions may use all values around them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.ops import fresh_dim_count
from ingot.compiler.ir import Block, Region, Type, Value

__all__ = ["Branch", "branches", "counted_loop", "join_branches", "region_of", "while_loop"]

Branch = Callable[[Builder], Sequence[Value]]
"""Builds one branch and returns what it yields."""


def region_of(
    builder: Builder,
    types: Sequence[Type],
    build: Callable[[Builder, Sequence[Value]], Sequence[Value]],
) -> Region:
    """A region whose block takes `types` and yields what `build` returns."""
    block = Block(types)
    inner = Builder(block, builder.location)
    inner.yield_(*build(inner, block.arguments))
    return Region([block])


def branches(
    builder: Builder, name: str, selector: Value, builds: Sequence[Branch], fresh: Iterator[str]
) -> list[Value]:
    """An `if` or `case`. `fresh` gives names for the dims in which the branches differ.

    CompileError: the branches differ in count, rank or dtype.
    """
    regions = [region_of(builder, (), lambda inner, _, each=each: each(inner)) for each in builds]  # type: ignore[misc]
    return join_branches(builder, name, selector, regions, fresh)


def join_branches(
    builder: Builder,
    name: str,
    selector: Value,
    regions: Sequence[Region],
    fresh: Iterator[str],
) -> list[Value]:
    """As `branches`, of regions that have been built."""
    try:
        count = fresh_dim_count(regions)
    except ValueError:
        count = 0  # the rule says what is wrong
    symbols = tuple(next(fresh) for _ in range(count))
    return builder.append(name, (selector,), regions, {"symbols": symbols}).results


def while_loop(
    builder: Builder,
    initial: Sequence[Value],
    condition: Callable[[Builder, Sequence[Value]], Value],
    body: Callable[[Builder, Sequence[Value]], Sequence[Value]],
    types: Sequence[Type] | None = None,
    symbols: Sequence[str] = (),
) -> list[Value]:
    """A `while`; `types` are those of the carried values where they differ from the initial.

    `symbols` are the names in `types` of dims that change from step to step.
    """
    carried = [value.type for value in initial] if types is None else list(types)
    test = region_of(builder, carried, lambda inner, values: [condition(inner, values)])
    step = region_of(builder, carried, body)
    return builder.append("while", initial, (test, step), {"symbols": tuple(symbols)}).results


def counted_loop(
    builder: Builder,
    count: Value,
    initial: Sequence[Value],
    body: Callable[[Builder, Value, Sequence[Value]], Sequence[Value]],
) -> list[Value]:
    """Runs `body` for the indices 0, 1, ... below `count`, an integer of rank 0."""
    zero = builder.constant(0, count.dtype)

    def condition(inner: Builder, values: Sequence[Value]) -> Value:
        return inner.value("compare", values[0], count, direction="lt")

    def step(inner: Builder, values: Sequence[Value]) -> Sequence[Value]:
        index, *carried = values
        following = inner.value("add", index, inner.constant(1, count.dtype))
        return [following, *body(inner, index, carried)]

    return while_loop(builder, [zero, *initial], condition, step)[1:]

"""Decides where every value of a stream function lies.

One slab holds all intermediate values of a call. Sizes may be symbolic: two ranges are
placed over each other only where it is proven, for all values of the symbols, that they
fit; static sizes are the case where every proof is a comparison of two numbers. A result
of the function is written by its producer into the caller's memory, and a variable's next
value into the variable, if nobody reads the old one any more. Kernels that allow it write
over an operand that nobody reads again. Dispatches change their order where that makes the slab
shorter, and nothing else worse (`order_dispatches.py`). In `init` the slab is an
arena, and what is returned is never freed.

The plan is written into the IR (`ops.py`): `places` of an op that writes memory; in `starts` and
`sources` of a `while` where values lie that it carries in changing places; and where globals lie
in the arena. `slab_length` of a function is the peak, as a formula. Where sizes come from data,
values that need them lie in scopes behind the first (`scopes.py`), and `slab_scopes` has the
slab's length up to each.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from ingot.compiler.graph.init_functions import init_functions, is_init
from ingot.compiler.ir import Function, Module, Op, Value, clone_region, walk
from ingot.compiler.ir.dims import Bounds, Dim
from ingot.compiler.stream.allocation import GUESS, Allocation, likely_value
from ingot.compiler.stream.homes import MAKERS, Home, alias_root, byte_length
from ingot.compiler.stream.ops import (
    Dispatch,
    GlobalBytes,
    InSlab,
    Named,
    Place,
    Placed,
    PlannedControl,
    PlannedFunction,
    Start,
)
from ingot.compiler.stream.order_dispatches import order_dispatches
from ingot.compiler.stream.plan_block import BlockPlan, Memory
from ingot.compiler.stream.scopes import ScopedRange, Scopes
from ingot.hal.errors import InvalidArgument

__all__ = ["byte_length", "plan_memory"]

Listener = Callable[[str, Sequence[Allocation]], None]

_Settled = tuple[Function, Memory]
_SIZES = (GUESS, 1, 1024)  # of dims, at which orders are compared


def plan_memory(module: Module, listener: Listener | None = None) -> Module:
    """The module with all places decided. `listener` hears, per function, what its slab held."""
    result = Module(attributes=dict(module.attributes), variables=dict(module.variables))
    places: list[tuple[Dim, int]] = []  # of globals: offsets in arenas
    for arena, init in enumerate(init_functions(module)):
        planned, offsets = _plan(init, listener)
        places += [(offset, arena) for offset in offsets]
        result.add(planned)
    for function in module.functions.values():
        if not is_init(function.name):
            planned, _ = _plan(function, listener)
            result.add(planned)
            for op in walk(planned):
                if op.name == "stream.global":
                    index = GlobalBytes.of(op).index
                    op.attributes = GlobalBytes(index, *places[index])
    return result


def _plan(function: Function, listener: Listener | None) -> tuple[Function, list[Dim]]:
    """The planned function and, for an init function, the arena offset of each of its results."""
    planned, memory = _least(function)
    makes_globals = is_init(function.name)
    lengths = memory.scopes.lengths()
    planned.attributes = PlannedFunction(
        **vars(function.attributes),
        slab_length=memory.scopes.peak(),
        slab_scopes=lengths if len(lengths) > 1 else (),
    )
    starts = memory.scopes.starts()
    if listener is not None:
        listener(function.name, tuple(_allocations(planned, memory, starts)))
    places = _write_places(planned, memory, starts, "arena" if makes_globals else "slab")
    returned = planned.block.terminator.operands
    ends = [places[alias_root(value)] for value in returned if makes_globals]
    return planned, [each.offset for each in ends if isinstance(each, InSlab)]


def _least(function: Function) -> _Settled:
    """The function with its dispatches in the given order, or in one that needs less memory, and
    its homes."""
    given = _settle(function)
    ordered = replace(function, body=clone_region(function.body, {}))

    lengths: dict[Value, int] = {}

    def length(value: Value) -> int:
        if value not in lengths:
            lengths[value] = likely_value(byte_length(value), function.symbols)
        return lengths[value]

    try:
        if not order_dispatches(ordered.block, length, not is_init(function.name)):
            return given
        found = _settle(ordered)
        saved = [_saved(given, found, size, function.symbols) for size in _SIZES]
    except InvalidArgument:  # a dim that divides by zero at some sizes
        return given
    is_worse = any(memory < 0 or touched < 0 for memory, touched in saved)
    return found if saved[0][0] > 0 and not is_worse else given


def _settle(function: Function) -> _Settled:
    """A copy of the function with the copies that its homes need, and these."""
    planned = replace(function, body=clone_region(function.body, {}))
    memory = Memory(Scopes(function.symbols))
    makes_globals = is_init(function.name)
    count = len(planned.block.terminator.operands)
    wanted = [None if makes_globals else Home("result", ordinal) for ordinal in range(count)]
    BlockPlan(planned.block, memory, wanted, {}).run()
    memory.pack()
    return planned, memory


def _saved(given: _Settled, found: _Settled, size: int, symbols: Bounds) -> tuple[int, int]:
    """Bytes of working memory, and bytes that dispatches and copies touch, of which `found` needs
    fewer than `given` where dims are `size`."""
    at = partial(likely_value, symbols=symbols, size=size)
    peaks = (at(memory.scopes.peak()) for _, memory in (given, found))
    touched = (sum(map(at, _touched(function))) for function, _ in (given, found))
    return operator.sub(*peaks), operator.sub(*touched)


def _touched(function: Function) -> Iterator[Dim]:
    for op in walk(function):
        if isinstance(op.attributes, Dispatch):
            yield op.attributes.call.bytes
        elif op.name == "stream.copy":
            yield 2 * byte_length(op.result)


def _allocations(function: Function, memory: Memory, bases: Sequence[Dim]) -> Iterator[Allocation]:
    places = {op: place for place, op in enumerate(walk(function))}
    for held in memory.held:
        maker, layer, place = "the program", "", -1
        if isinstance(held.value.owner, Op):
            op = held.value.owner
            layer, place = op.location, places[op]
            found = op.attributes
            name = op.name.removeprefix("stream.")
            maker = found.entry if isinstance(found, Dispatch) else name
        offset = bases[held.range.scope] + held.range.range.offset
        end = len(memory.held) if held.end is None else held.end
        span = (offset, held.length, held.begin, end)
        yield Allocation(maker, layer, str(held.value.type), *span, place)


def _write_places(
    function: Function, memory: Memory, bases: Sequence[Dim], slab: Literal["slab", "arena"]
) -> dict[Value, Place]:
    """Write the places into the ops, now that the length of every scope is known."""
    places: dict[Value, Place] = {}

    def in_slab(range_: ScopedRange) -> InSlab:
        return InSlab(slab, bases[range_.scope] + range_.range.offset, range_.scope)

    for value, home in memory.homes.items():
        if home.kind != "slab":
            places[value] = Named(home.kind, home.ordinal)
        elif home.range is not None:
            places[value] = in_slab(home.range)
    for op in walk(function):
        if op.name in MAKERS:
            op.attributes = replace(Placed.of(op), places=tuple(map(places.get, op.results)))
        if isinstance(op.attributes, PlannedControl) and op.attributes.sources:
            homes = [memory.homes.get(each) for each in op.regions[1].block.arguments]
            starts = tuple(
                Start(home.ordinal, in_slab(home.range))
                if home is not None and home.kind == "carried" and home.range is not None
                else None
                for home in homes
            )
            op.attributes = replace(op.attributes, starts=starts)
    return places

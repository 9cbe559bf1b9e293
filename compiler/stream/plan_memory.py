"""Decides where every value of a stream function lies.

One slab holds all intermediate values of a call. Sizes may be symbolic: two ranges are
placed over each other only where it is proven, for all values of the symbols, that they
fit; static sizes are the case where every proof is a comparison of two numbers. A result
of the function is written by its producer into the caller's memory, and a variable's next
value into the variable, if nobody reads the old one any more. Kernels that allow it write
over an operand that nobody reads again. In `init` the slab is the program's arena, and what
is returned is never freed.

The plan is written into the IR (`ops.py`): `places` of an op that writes memory; in `starts` and
`sources` of a `while` where values lie that it carries in changing places; and where globals lie
in the arena. `slab_length` of a function is the peak, as a formula. Where sizes come from data,
values that need them lie in scopes behind the first (`scopes.py`), and `slab_scopes` has the
slab's length up to each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from ingot.compiler.ir import Function, Module, Op, Value, clone_region, walk
from ingot.compiler.ir.dims import Dim
from ingot.compiler.stream.allocation import Allocation
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
from ingot.compiler.stream.plan_block import BlockPlan, Memory
from ingot.compiler.stream.scopes import ScopedRange, Scopes

__all__ = ["byte_length", "plan_memory"]

Listener = Callable[[str, Sequence[Allocation]], None]


def plan_memory(module: Module, listener: Listener | None = None) -> Module:
    """The module with all places decided. `listener` hears, per function, what its slab held."""
    result = Module(attributes=dict(module.attributes), variables=dict(module.variables))
    offsets: list[Dim] = []
    init = module.functions.get("init")
    if init is not None:
        planned, offsets = _plan(init, listener)
        result.add(planned)
    for function in module.functions.values():
        if function is not init:
            planned, _ = _plan(function, listener)
            result.add(planned)
            for op in walk(planned):
                if op.name == "stream.global":
                    index = GlobalBytes.of(op).index
                    op.attributes = GlobalBytes(index, offsets[index])
    return result


def _plan(function: Function, listener: Listener | None) -> tuple[Function, list[Dim]]:
    """The planned function and, for `init`, the arena offset of each of its results."""
    body = clone_region(function.body, {})
    planned = replace(function, body=body)
    memory = Memory(Scopes(function.symbols))
    is_init = function.name == "init"
    returned = body.block.terminator.operands
    wanted: Sequence[Home | None] = [
        None if is_init else Home("result", ordinal) for ordinal in range(len(returned))
    ]
    BlockPlan(body.block, memory, wanted, {}).run()
    lengths = memory.scopes.lengths()
    planned.attributes = PlannedFunction(
        **vars(function.attributes),
        slab_length=memory.scopes.peak(),
        slab_scopes=lengths if len(lengths) > 1 else (),
    )
    starts = memory.scopes.starts()
    if listener is not None:
        listener(function.name, tuple(_allocations(planned, memory, starts)))
    places = _write_places(planned, memory, starts, "arena" if is_init else "slab")
    ends = [places[alias_root(value)] for value in returned if is_init]
    return planned, [each.offset for each in ends if isinstance(each, InSlab)]


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

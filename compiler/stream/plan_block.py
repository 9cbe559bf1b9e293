"""Plans the memory of one block of stream IR, and of the bodies of branches and loops in it.

Ranges of the slab are taken and given back in the order of the ops, so a loop's body uses
the same ranges in every step, and what is made in front of a loop and used in it stays to
its end. What a loop carries has one home for all steps (`homes.py`); the next value is made
there if the old one is not read any more, else it is copied there at the end of the step.
Copies that are needed become ops here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import cast

from ingot.compiler.graph.ops import CONTROL, defined_symbols
from ingot.compiler.ir import Block, Op, Value, tensor_type
from ingot.compiler.ir.dims import Dim, symbols_of
from ingot.compiler.stream.homes import (
    BRANCHES,
    MAKERS,
    Home,
    Uses,
    alias_root,
    byte_length,
    find_chain,
    find_rotation,
    in_place_operands,
    is_tensor,
    is_whole,
    make_last,
)
from ingot.compiler.stream.ops import Dispatch, Placed, PlannedControl
from ingot.compiler.stream.scopes import ScopedRange, Scopes
from ingot.compiler.stream.slots import copy_changing_elements
from ingot.compiler.stream.variables import VariableAccess

__all__ = ["BlockPlan", "Held", "Memory"]


@dataclass(eq=False)
class Held:
    """`length` bytes that the range of a scope held for `value`, and from when to when: times
    count what was allocated before."""

    value: Value
    range: ScopedRange
    length: Dim
    begin: int
    end: int | None = None


class Memory:
    """The homes of all values of a function."""

    def __init__(self, scopes: Scopes) -> None:
        self.scopes = scopes
        self.held: list[Held] = []
        self._in_use: dict[ScopedRange, Held] = {}
        self.homes: dict[Value, Home] = {}
        self.variables: dict[int, Home] = {}
        self.carried_count = 0

    def new(self, value: Value) -> Home:
        """A home in the slab that is large enough for the value."""
        return Home("slab", range=self._allocate(value))

    def carried(self, value: Value) -> Home:
        """A home for a carried value that changes places with others."""
        self.carried_count += 1
        return Home("carried", self.carried_count - 1, self._allocate(value))

    def _allocate(self, value: Value) -> ScopedRange:
        range_ = self.scopes.allocate(byte_length(value))
        held = Held(value, range_, range_.range.length, len(self.held))
        self.held.append(held)
        self._in_use[range_] = held
        return range_

    def free(self, home: Home) -> None:
        """Give the memory of a home back."""
        assert home.range is not None
        self._in_use.pop(home.range).end = len(self.held)
        self.scopes.free(home.range)

    def pack(self) -> None:
        """Move what lies in the slabs, now that all times are known."""
        last = len(self.held)
        self.scopes.pack(
            (each.range, (each.length, each.begin, last if each.end is None else each.end))
            for each in self.held
        )

    def variable(self, ordinal: int) -> Home:
        """The home of a variable."""
        return self.variables.setdefault(ordinal, Home("variable", ordinal))


class BlockPlan:
    """The plan of one block.

    `wanted` has per operand of the terminator the home where it has to lie in the end, or
    None; `occupants` what lies in homes when the block begins.
    """

    def __init__(
        self,
        block: Block,
        memory: Memory,
        wanted: Sequence[Home | None],
        occupants: Mapping[Home, Iterable[Value]],
    ) -> None:
        self.block = block
        self.memory = memory
        self.homes = memory.homes
        self.wanted = wanted
        self.occupants = {home: set(values) for home, values in occupants.items()}
        copy_changing_elements(block)
        self.access = VariableAccess(block)
        self.uses = Uses(block)
        self.defined = {
            name: place for place, op in enumerate(block.ops) for name in defined_symbols(op)
        }
        self.done: list[Op] = []
        self.owned: dict[Value, Home] = {}  # in the slab, given back by this block
        self.copies: list[tuple[Value, Home]] = []  # at the end

    def run(self) -> None:
        """Decide homes, insert copies."""
        self._move_into_homes()
        terminator = self.block.terminator
        for op in self.block.ops[:-1]:
            self._op(op)
            self._free(op)
        self._copy_at_end(terminator)
        self.done.append(terminator)
        self.block.ops = self.done

    # What is made where it has to be.

    def _move_into_homes(self) -> None:
        for ordinal, store in self.access.stores:
            self._move_into_variable(ordinal, store)
        for value, home in zip(self.block.terminator.operands, self.wanted, strict=True):
            if home is None or not is_tensor(value):
                continue
            root = alias_root(value)
            held = self.occupants.get(home, set())
            if not is_whole(value):
                self.copies.append((value, home))
                continue
            if root in held:
                continue
            chain = list(find_chain(root, held, self.uses, self.homes))
            if home.kind == "result":
                known = self._known_from(value)
                while chain and self._place_of(chain[-1]) < known:
                    chain.pop()
            self.homes.update(dict.fromkeys(chain, home))
            if not chain:
                self.copies.append((value, home))

    def _known_from(self, value: Value) -> int:
        """The place from which on all dims of the value are known, as the caller's memory for
        it needs them."""
        names = {name for dim in tensor_type(value).shape for name in symbols_of(dim)}
        return max((self.defined.get(name, -1) for name in names), default=-1)

    def _place_of(self, value: Value) -> int:
        return self.uses.place[value.op]

    def _move_into_variable(self, ordinal: int, store: Op) -> None:
        """Let the value that is stored be made in the variable, if that shows nowhere."""
        home = self.memory.variable(ordinal)
        root = alias_root(store.operands[0])
        held = {*self.occupants.get(home, ()), *self.access.views(ordinal, store)}
        if root in held or not is_whole(store.operands[0]):
            return
        chain = list(find_chain(root, held, self.uses, self.homes))
        while chain and not self.access.may_begin_early(ordinal, chain[-1].owner, store, self.uses):
            chain.pop()
            if chain and not find_chain(chain[-1], held, self.uses, {}):
                chain.clear()
        if chain and self.access.is_overwritten(ordinal, store, self.uses.last_use(root)):
            return
        self.homes.update(dict.fromkeys(chain, home))
        self.occupants.setdefault(home, set()).update(chain[:1])

    # One op after the other.

    def _op(self, op: Op) -> None:
        if op.name == "variable.load":
            self.homes[op.result] = self.memory.variable(self.access.ordinal(op))
        elif op.name == "variable.store":
            self._store(op)
            return
        elif op.name == "while":
            self._loop(op)
        elif op.name in BRANCHES:
            self._branch(op)
        elif op.name == "update":
            self._update(op)
        elif op.name in MAKERS:
            for ordinal, result in enumerate(op.results):
                self._place(op, ordinal, result)
            self._count_bytes(op)
        elif op.name in ("stream.size", "slot.get", "slot.length", "slot.argument"):
            self._free(op)
            self.memory.scopes.define(defined_symbols(op))
        self.done.append(op)

    def _count_bytes(self, op: Op) -> None:
        """A kernel that writes over its operand leaves what stays there alone."""
        found = op.attributes
        if not isinstance(found, Dispatch) or found.untouched == 0:
            return
        call = found.call
        for ordinal, result in enumerate(op.results):
            for operand in in_place_operands(op, ordinal):
                if self._home_of(op.operands[operand]) is self.homes[result]:
                    call = replace(call, bytes=call.bytes - found.untouched)
        op.attributes = replace(found, call=call)

    def _place(self, op: Op, ordinal: int, result: Value) -> Home:
        """The home of a result: given already, an operand's that dies here, or a new one."""
        if result in self.homes:
            return self.homes[result]
        for operand in in_place_operands(op, ordinal):
            root = alias_root(op.operands[operand])
            if root in self.owned and self._fits(op, root, result):
                home = self.owned.pop(root)
                break
        else:
            home = self.memory.new(result)
        self.homes[result] = self.owned[result] = home
        return home

    def _fits(self, op: Op, root: Value, result: Value) -> bool:
        range_ = self.owned[root].range
        assert range_ is not None
        whole = any(alias_root(each) is root and is_whole(each) for each in op.operands)
        return (
            whole
            and self.uses.only_operand(op, root)
            and self.memory.scopes.fits(byte_length(result), range_)
        )

    def _store(self, op: Op) -> None:
        """A store is a copy, unless the value lies in the variable."""
        home = self.memory.variable(self.access.ordinal(op))
        root = alias_root(op.operands[0])
        if self.homes.get(root) is not home or not is_whole(op.operands[0]):
            self._copy(op.operands[0], home, op.location)

    def _update(self, op: Op) -> None:
        """An update writes into its operand; into a copy of it, if that is still read."""
        before = self._home_of(op.operands[0])
        home = self._place(op, 0, op.result)
        if before is not home:
            op.operands[0] = self._copy(op.operands[0], home, op.location)

    def _home_of(self, value: Value) -> Home | None:
        """The home that the value fills; None for a view or what was never placed here."""
        return self.homes.get(alias_root(value)) if is_whole(value) else None

    def _copy(self, value: Value, home: Home, location: str = "") -> Value:
        copy = Op("stream.copy", [value], [value.type], Placed(), location=location)
        self.homes[copy.result] = home
        self.done.append(copy)
        return copy.result

    def _loop(self, op: Op) -> None:
        condition, body = (region.block for region in op.regions)
        sources = find_rotation(op)
        homes: list[Home | None] = []
        occupants: dict[Home, list[Value]] = {}
        initial = list(op.operands)
        for ordinal, result in enumerate(op.results):
            if not is_tensor(result):
                homes.append(None)
                continue
            before = self._home_of(initial[ordinal])
            home = self._place(op, ordinal, result)
            if ordinal in sources:
                home = self.memory.carried(result)
                start = Home("slab", range=home.range)
                op.operands[ordinal] = self._copy(initial[ordinal], start, op.location)
            elif before is not home:
                op.operands[ordinal] = self._copy(initial[ordinal], home, op.location)
            homes.append(home)
            for block in (condition, body):
                self.homes[block.arguments[ordinal]] = home
            occupants[home] = [body.arguments[ordinal]]
        wanted = [homes[sources.get(ordinal, ordinal)] for ordinal in range(len(homes))]
        uses = Uses(body)
        for ordinal, value in enumerate(body.terminator.operands):
            if homes[ordinal] is not None:
                current = body.arguments[sources.get(ordinal, ordinal)]
                if make_last(body, alias_root(value), current, uses):
                    uses = Uses(body)
        if sources:
            moved = tuple(sources.get(each) for each in range(len(homes)))
            op.attributes = replace(PlannedControl.of(op), sources=moved)
        inherited = {home: held for home, held in self.occupants.items() if home not in occupants}
        nothing = [None] * len(condition.terminator.operands)
        self._inner(condition, nothing, inherited)
        self._inner(body, wanted, {**inherited, **occupants})
        for ordinal in sources:
            self.memory.free(cast(Home, homes[ordinal]))

    def _branch(self, op: Op) -> None:
        kept = self._kept_by_branches(op)
        homes: list[Home | None] = []
        occupants = dict(self.occupants)
        for ordinal, result in enumerate(op.results):
            if not is_tensor(result):
                homes.append(None)
            elif ordinal in kept and result not in self.homes:
                home = self.owned.pop(kept[ordinal])
                occupants[home] = {kept[ordinal]}
                self.homes[result] = self.owned[result] = home
                homes.append(home)
            else:
                homes.append(self._place(op, ordinal, result))
        for region in op.regions:
            self._inner(region.block, homes, occupants)

    def _kept_by_branches(self, op: Op) -> dict[int, Value]:
        """By result the value from outside that a branch gives for it, if nobody reads that
        afterwards: then the result takes its memory."""
        kept: dict[int, Value] = {}
        for ordinal, result in enumerate(op.results):
            for region in op.regions:
                value = region.block.terminator.operands[ordinal]
                root = alias_root(value) if is_tensor(value) else None
                if (
                    root in self.owned
                    and root not in kept.values()
                    and is_whole(value)
                    and self.uses.last_use(root) == self.uses.place[op]
                    and byte_length(root) == byte_length(result)
                ):
                    kept.setdefault(ordinal, root)
        return kept

    def _inner(
        self,
        block: Block,
        wanted: Sequence[Home | None],
        occupants: Mapping[Home, Iterable[Value]],
    ) -> None:
        with self.memory.scopes.inside():
            plan = BlockPlan(block, self.memory, wanted, occupants)
            plan.run()
        for home in plan.owned.values():
            self.memory.free(home)

    def _free(self, op: Op) -> None:
        """Give back what is not used after `op`."""
        place = self.uses.place[op]
        roots = [alias_root(operand) for operand in op.operands]
        if op.name in CONTROL:
            roots += [root for root in self.owned if self.uses.last_use(root) == place]
        for root in dict.fromkeys([*roots, *op.results]):
            if root in self.owned and self.uses.last_use(root) <= place:
                self.memory.free(self.owned.pop(root))

    # The end of the block.

    def _copy_at_end(self, terminator: Op) -> None:
        """All copies at once, as it were: none writes over what another one still reads."""
        waiting = dict(enumerate(self.copies))
        sources = [self.homes.get(alias_root(value)) for value, _ in self.copies]
        readers = Counter(sources)
        writers: dict[Home | None, list[int]] = {}
        for place, (_, home) in waiting.items():
            writers.setdefault(home, []).append(place)

        def is_free(place: int) -> bool:
            home = waiting[place][1]
            return readers[home] == (sources[place] is home)

        def read(place: int) -> None:
            """The copy reads its source no more, which may be written over from now on."""
            readers[sources[place]] -= 1
            for writer in writers.get(sources[place], ()):
                if writer in waiting and writer != place and is_free(writer):
                    heappush(free, writer)

        free = [place for place in waiting if is_free(place)]
        while waiting:
            if not free:  # they go in a circle: one steps aside
                place = next(iter(waiting))
                value, home = waiting[place]
                aside = self._copy(value, self.memory.new(value))
                self.owned[aside] = self.homes[aside]
                waiting[place] = (aside, home)
                read(place)
                sources[place] = self.homes[aside]
                readers[sources[place]] += 1
                continue
            place = heappop(free)
            value, home = waiting.pop(place)
            read(place)
            self._copy(value, home, terminator.location)

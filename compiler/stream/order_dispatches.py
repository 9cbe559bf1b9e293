"""Orders the dispatches of a block so that less working memory is in use at a time.

Between two ops that stay where they are (control flow, state, numbers that the host reads)
dispatches may run in any order in which operands are made before they are read. What is in use
behind a set of them does not depend on their order, so the search goes over sets: dispatch after
dispatch, it keeps of every set the order with the lowest peak, and the `_WIDTH` sets with the
lowest ones. A dispatch that leaves no more in use than before and raises no peak comes at once, as
later it would be no better. Where the given order stays below the peak that is reached, it is kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from ingot.compiler.ir import Block, Op, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.stream.homes import (
    MAKERS,
    Uses,
    alias_root,
    in_place_operands,
    is_tensor,
    is_whole,
)

__all__ = ["order_dispatches"]

Length = Callable[[Value], int]

_MOVED = frozenset({"stream.dispatch", "stream.alias", "view"})
_WIDTH, _LEAST_WIDTH = 32, 8  # sets of one size that are kept
_MOST_SETS = 1 << 15  # in all, from which on fewer of each size are
_CHOICES = 12  # dispatches of those that can come next


def order_dispatches(block: Block, length: Length, elsewhere: bool = True) -> bool:
    """Put the dispatches of the block, and of the bodies in it, in the order that is found; whether
    it is another one.

    `length` gives the bytes of a tensor. `elsewhere`: what the block gives back lies in memory
    that others hold.
    """
    changed = False
    for op in block.ops:
        for region in op.regions:
            changed |= order_dispatches(region.block, length)
    given = set(map(alias_root, block.terminator.operands)) if elsewhere else set()
    uses = Uses(block)
    parts: list[_Part] = []
    before: list[Value] = []  # made in front of a run, and used from there on
    place = 0
    for run in _runs(block):
        made = (op for op in block.ops[place : run.start] if op.name in MAKERS)
        before += (value for op in made for value in op.results)
        before, place = [each for each in before if uses.last_use(each) >= run.start], run.start
        parts += _Run(block, run, uses, length, given, before).parts()
    reached = max((min(part.given, part.found) for part in parts), default=0)
    for part in parts:
        if part.given > reached:
            block.ops[part.begin : part.begin + len(part.ops)] = part.ops
            changed = True
    return changed


def _runs(block: Block) -> Iterator[range]:
    """The places of ops that lie side by side and may change places."""
    begin = 0
    for place, op in enumerate(block.ops):
        if op.name not in _MOVED:
            if place - begin > 1:
                yield range(begin, place)
            begin = place + 1


@dataclass(frozen=True)
class _Part:
    """Ops from place `begin` on in the order that was found, and the peaks of both orders."""

    begin: int
    ops: Sequence[Op]
    given: int
    found: int


@dataclass(eq=False)
class _Held:
    """A value in working memory: the set of its maker and readers, and whether ops behind the run
    read it."""

    length: int
    is_kept: bool
    users: int = 0


@dataclass(eq=False)
class _Task:
    """A dispatch: those that must run before it, and those that wait for it; the values it makes
    and reads, and those of them whose memory a result may take."""

    op: Op
    before: int
    values: list[_Held]
    made: int  # bytes
    taken: list[_Held]
    following: list[int] = field(default_factory=list)


@dataclass(eq=False)
class _State:
    """A set of dispatches that have run: the bytes in use, the most that were, the last one and
    the state before it, and, while the search goes on from here, those that can come next."""

    done: int
    live: int
    peak: int
    last: int
    previous: _State | None
    ready: Sequence[int] = ()


class _Run:
    """Ops of a block that may change places."""

    def __init__(
        self,
        block: Block,
        places: range,
        uses: Uses,
        length: Length,
        given: set[Value],
        before: Sequence[Value],
    ) -> None:
        self.places, self.uses, self.length, self.given = places, uses, length, given
        self.ops = block.ops[places.start : places.stop]
        self.held: dict[Value, _Held | None] = {}
        self.tasks: list[_Task] = []
        ordinals: dict[object, int] = {}
        for op in self.ops:
            if op.name == "stream.dispatch":
                self._add(op, ordinals)
        self.live = sum(held.length for held in map(self._hold, before) if held is not None)

    def _add(self, op: Op, ordinals: dict[object, int]) -> None:
        ordinal = ordinals[op] = len(self.tasks)
        roots = list(dict.fromkeys(map(alias_root, op.operands)))
        makers = {ordinals[root.owner] for root in roots if root.owner in ordinals}
        for maker in makers:
            self.tasks[maker].following.append(ordinal)
        results = [held for held in map(self._hold, op.results) if held is not None]
        values = [*(held for held in map(self._hold, roots) if held is not None), *results]
        for held in values:
            held.users |= 1 << ordinal
        before = sum(1 << maker for maker in makers)
        made = sum(held.length for held in results)
        self.tasks.append(_Task(op, before, values, made, list(self._taken(op))))

    def _hold(self, root: Value) -> _Held | None:
        """What the value takes of working memory; None if it lies elsewhere."""
        if root not in self.held:
            owner = root.owner
            is_made = isinstance(owner, Op) and owner in self.uses.place and owner.name in MAKERS
            is_held = is_made and is_tensor(root) and root not in self.given
            is_kept = self.uses.last_use(root) >= self.places.stop
            self.held[root] = _Held(self.length(root), is_kept) if is_held else None
        return self.held[root]

    def _taken(self, op: Op) -> Iterator[_Held]:
        for ordinal, result in enumerate(op.results):
            for operand in in_place_operands(op, ordinal):
                value = op.operands[operand]
                held, made = self._hold(alias_root(value)), self._hold(result)
                if held and made and is_whole(value) and held.length == made.length:
                    yield held
                    break

    def parts(self) -> Iterator[_Part]:
        """The order that is found, cut where both orders have run the same dispatches."""
        found = self._search()
        orders = range(len(found)), found
        peaks = [list(self._peaks(order)) for order in orders]
        greatest, begin = -1, 0
        for place, task in enumerate(found):
            greatest = max(greatest, task)
            if greatest > place:
                continue
            given, reached = (max(each[begin : place + 1]) for each in peaks)
            yield self._part(found[begin : place + 1], given, reached)
            begin = place + 1

    def _part(self, found: Sequence[int], given: int, reached: int) -> _Part:
        """Aliases stay in front of the first dispatch that reads them."""
        if len(found) == 1:
            return _Part(0, (), given, reached)
        chosen = {self.tasks[task].op for task in found}
        places = [place for place, op in enumerate(self.ops) if op in chosen]
        first, last = places[0], places[-1] + 1
        waiting = dict.fromkeys(self.ops[first:last])
        ops: list[Op] = []

        def put(op: Op) -> None:
            if op not in waiting:
                return
            del waiting[op]
            for operand in op.operands:
                if isinstance(operand.owner, Op):
                    put(operand.owner)
            ops.append(op)

        for task in found:
            put(self.tasks[task].op)
        for op in list(waiting):
            put(op)
        return _Part(self.places.start + first, ops, given, reached)

    # The search.

    def _step(self, state: _State, task: _Task, ordinal: int) -> tuple[int, int]:
        """The bytes in use behind the task, and while it runs."""
        left = ~(state.done | 1 << ordinal)
        gone = [held for held in task.values if not held.is_kept and not held.users & left]
        taken = sum(held.length for held in task.taken if held in gone)
        during = state.live + task.made - taken
        return state.live + task.made - sum(held.length for held in gone), during

    def _after(self, state: _State, ordinal: int) -> _State:
        task = self.tasks[ordinal]
        live, during = self._step(state, task, ordinal)
        return _State(state.done | 1 << ordinal, live, max(state.peak, during), ordinal, state)

    def _start(self) -> _State:
        return _State(0, self.live, 0, -1, None)

    def _ready(self, state: _State) -> list[int]:
        """The dispatches that can come next: of states that are kept alone, as there may be
        thousands."""
        if state.previous is None:
            return [ordinal for ordinal, task in enumerate(self.tasks) if not task.before]
        ready, following = list(state.previous.ready), self.tasks[state.last].following
        del ready[bisect_left(ready, state.last)]
        ready += (each for each in following if not self.tasks[each].before & ~state.done)
        return sorted(ready)

    def _peaks(self, order: Sequence[int]) -> Iterator[int]:
        """The bytes in use while each dispatch runs."""
        state = self._start()
        for ordinal in order:
            yield self._step(state, self.tasks[ordinal], ordinal)[1]
            state = self._after(state, ordinal)

    def _next(self, state: _State) -> list[_State]:
        """The states behind one more dispatch that are worth looking at."""
        found: list[_State] = []
        for ordinal in state.ready[:_CHOICES]:
            after = self._after(state, ordinal)
            if after.live <= state.live and after.peak == state.peak:
                return [after]
            found.append(after)
        return found

    def _search(self) -> list[int]:
        states = [self._start()]
        width = min(max(_MOST_SETS // max(len(self.tasks), 1), _LEAST_WIDTH), _WIDTH)
        for _ in self.tasks:
            best: dict[int, _State] = {}
            before = [each.previous for each in states if each.previous is not None]
            for state in states:
                state.ready = self._ready(state)
            for each in before:
                each.ready = ()
            for state in states:
                for after in self._next(state):
                    other = best.get(after.done)
                    if other is None or after.peak < other.peak:
                        best[after.done] = after
            states = sorted(best.values(), key=lambda each: (each.peak, each.live))[:width]
        order: list[int] = []
        last = states[0]
        while last.previous is not None:
            order.append(last.last)
            last = last.previous
        return order[::-1]

"""Where a workgroup that may run long asks whether its call is to end.

Work is counted in ops, of scalars or vectors. Loops whose count has no bound, or a large one,
get polls: in the loop's own head where a step is little, else at the end of its body. So the
kernel does bounded work from one poll to the next, and polls seldom enough that it costs
nothing. A workgroup with little to do has none: callers look between workgroups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import cast

from ingot.compiler.graph.ops import COSTLY
from ingot.compiler.ir import Block, Op, Value, defined_by, walk
from ingot.compiler.ir.dims import Bounds, bounds
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.loop import lanes_of
from ingot.compiler.kernels.math.functions import MATH_FUNCTIONS
from ingot.compiler.kernels.table import Constant, DotParts, For, Ordinal, Poll

__all__ = ["PART", "place_polls"]

PART = 1 << 17
"""The work of a loop from poll to poll, where its head has them."""

_LEAST = 256  # what a poll may say that was done since the last one: it costs two or three ops
_FREE = 1 << 22  # a workgroup that does no more has no polls: about a millisecond
_DEPTH = 8  # of minima, maxima, ... that are looked into

_COSTS = {
    "loop.load": 2, "loop.store": 2, "loop.reduce": 8, "loop.any": 4, "loop.store_tile": 16,
    "return": 0,
}  # fmt: skip
_LEAVES = frozenset(
    f"loop.{name}"
    for name in ("constant", "dim", "binding", "scratch", "workgroup", "workload", "lanes")
)
_FEW = 64  # stands for words that only the call knows
_FUNCTION = 32  # ops of exp and its like


def place_polls(kernel: Kernel, known: Bounds) -> Kernel:
    """The kernel with polls in those of its loops that may run long; `known` are bounds of
    symbols."""
    _Placer(_Ranges(kernel, known)).place(kernel.loops.block, _FREE, in_loop=False)
    return kernel


_Work = tuple[float, float]
"""What is usually done, and the most that may be."""


class _Placer:
    def __init__(self, ranges: _Ranges) -> None:
        self.ranges = ranges

    def measure(self, block: Block) -> _Work:
        """The work of a block without polls."""
        return _sum(block, self._measure)

    def place(self, block: Block, free: float, in_loop: bool) -> _Work:
        """Place the polls of a block, of which `free` may be done without; the most then is
        what is done from poll to poll."""
        return _sum(block, lambda op: self._place(op, free, in_loop))

    def _measure(self, op: Op) -> _Work:
        inner = [self.measure(region.block) for region in op.regions]
        return _branch(inner) if op.name == "loop.if" else self._repeated(op, inner[0])

    def _repeated(self, op: Op, work: _Work) -> _Work:
        """A count that is not known may be anything: half of its digits are a fair guess."""
        count = self._count(op)
        is_known = None not in map(_number, op.operands[:2])
        usual = count if is_known else math.sqrt(count) if count < math.inf else 1
        return work[0] * usual, work[1] * count if count else 0

    def _count(self, op: Op) -> float:
        """The most steps that a loop may take."""
        lower, upper, step = op.operands[:3]
        way = self.ranges.difference(upper, lower)
        return max(math.ceil(way / max(self.ranges.least(step), 1)), 0) if way < math.inf else way

    def _place(self, op: Op, free: float, in_loop: bool) -> _Work:
        if op.name == "loop.if":
            return self._place_if(op, free, in_loop)
        work = self._measure(op)
        if work[1] <= free:
            return work
        block, count = op.regions[0].block, self._count(op)
        inner = self.place(block, max(free / count, PART), in_loop=True)
        work = self._repeated(op, inner)
        if work[1] <= free or count == 1:
            return work
        usual, most = inner
        steps = int(PART // max(most, 1))
        if steps > 1:
            op.attributes = replace(For.of(op), poll=steps)
            return usual * math.sqrt(steps), most * steps
        _append_poll(block, usual)
        return usual, most

    def _place_if(self, op: Op, free: float, in_loop: bool) -> _Work:
        """In a loop a branch with much work counts its own: the loop need not assume it."""
        blocks = [region.block for region in op.regions]
        works = [self.place(block, free, in_loop) for block in blocks]
        usual, most = _branch(works)
        limit = max(4 * usual, _LEAST)
        if not in_loop or most <= limit:
            return usual, most
        for block, work in zip(blocks, works, strict=True):
            if work[1] > limit:
                _append_poll(block, work[0])
        return usual, limit


def _sum(block: Block, work: Callable[[Op], _Work]) -> _Work:
    done = [work(op) if op.regions else (_cost(op),) * 2 for op in block.ops]
    return sum(each[0] for each in done), sum(each[1] for each in done)


def _branch(works: list[_Work]) -> _Work:
    return min(each[0] for each in works), max(each[1] for each in works)


def _append_poll(block: Block, work: float) -> None:
    done = max(int(min(work, PART)), _LEAST)
    block.ops.insert(len(block.ops) - 1, Op("loop.poll", attributes=Poll(done)))


def _cost(op: Op) -> int:
    if op.name in _LEAVES:
        return 0
    if op.name == "loop.gather":
        return 8 * lanes_of(op.result)  # they may come from memory, one by one
    if op.name == "loop.multiply_tile":
        return 18 + 2 * (_number(op.operands[5]) or _FEW)
    if op.name == "loop.dot_tiles":
        # about 72 cycles for 16 words of 32 rows and columns
        words, segments = (_number(value) or _FEW for value in op.operands[11:])
        return 5 * words * segments
    if op.name == "loop.dot_parts":
        parts = DotParts.of(op).parts
        return 5 * (_number(op.operands[11]) or _FEW) * parts * (parts + 1) // 2
    return _FUNCTION if op.name in COSTLY or op.name in MATH_FUNCTIONS else _COSTS.get(op.name, 1)


_Form = dict[Value | None, float]
"""A sum of values, each with a factor; that of None is a number."""


class _Ranges:
    """What is known of indices without running the kernel."""

    def __init__(self, kernel: Kernel, known: Bounds) -> None:
        self.dims = [bounds(each, known) for each in kernel.constants]
        loops = [op for op in walk(kernel.loops) if op.name == "loop.for"]
        self.loops = {op.regions[0].block: op for op in loops}

    def difference(self, a: Value, b: Value) -> float:
        """The most that a - b can be."""
        return self._most(_added(_form(a), _form(b), -1), _DEPTH)

    def least(self, value: Value) -> float:
        """The least that an index can be."""
        return -self._most(_added({}, _form(value), -1), _DEPTH)

    def _most(self, form: _Form, depth: int) -> float:
        """The most that a sum can be. The first value that is made of others is replaced by what
        it is at most, or at least where it is subtracted."""
        for value, factor in form.items():
            if value is None or not factor or not depth:
                continue
            rest = {key: each for key, each in form.items() if key is not value}
            ends = list(self._replace(value, factor))
            found = [self._most(_added(rest, each, 1), depth - 1) for each in ends]
            if found:
                is_either = _owner_name(value) == ("loop.min" if factor > 0 else "loop.max")
                return min(found) if is_either else max(found)
        return sum(self._end(value, factor) for value, factor in form.items() if factor)

    def _replace(self, value: Value, factor: float) -> Iterator[_Form]:
        """What `factor` times a value that is made of others is at most: one of these, or, of a
        minimum that is added and a maximum that is subtracted, each of these."""
        owner = value.owner
        if isinstance(owner, Block):
            if value is owner.arguments[0]:
                yield _added({}, _form(self.loops[owner].operands[factor > 0]), factor)
        elif owner.name in ("loop.min", "loop.max"):
            for each in owner.operands:
                yield _added({}, _form(each), factor)
        elif owner.name in ("loop.div", "loop.rem"):
            by = _number(owner.operands[1])
            if by and owner.name == "loop.div":
                below = 0 if factor > 0 else by - 1
                yield _added({None: -factor / by * below}, _form(owner.operands[0]), factor / by)
            elif by and factor > 0:
                yield {None: factor * (by - 1)}

    def _end(self, value: Value | None, factor: float) -> float:
        if value is None:
            return factor
        low, high = -math.inf, math.inf
        if _owner_name(value) == "loop.dim":
            low, high = self.dims[Ordinal.of(value.op).ordinal]
        elif _owner_name(value) in ("loop.workgroup", "loop.workload", "loop.div", "loop.rem"):
            low = 0
        return factor * (high if factor > 0 else low)


def _owner_name(value: Value) -> str:
    return value.owner.name if isinstance(value.owner, Op) else ""


def _number(value: Value) -> int | None:
    if _owner_name(value) != "loop.constant":
        return None
    return cast(int, Constant.of(value.op).value)


def _form(value: Value) -> _Form:
    """An index as a sum of values that are no sums."""
    number = _number(value)
    if number is not None:
        return {None: number}
    if op := defined_by(value, "loop.add", "loop.sub"):
        a, b = map(_form, op.operands)
        return _added(a, b, 1 if op.name == "loop.add" else -1)
    if op := defined_by(value, "loop.mul"):
        for one, other in (op.operands, op.operands[::-1]):
            factor = _number(other)
            if factor is not None:
                return _added({}, _form(one), factor)
    return {value: 1}


def _added(a: _Form, b: _Form, factor: float) -> _Form:
    form = dict(a)
    for value, each in b.items():
        form[value] = form.get(value, 0) + factor * each
    return {value: each for value, each in form.items() if each}

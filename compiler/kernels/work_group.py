"""The work items of one group in loop IR: who takes which step, and what they compute together.

A `WorkGroup` of one item needs no local memory and no barrier: the same schedule then is
plain loops, which is how the C variant of an OpenCL kernel is made. Everything here that has
a barrier must be reached by all items of the group: outside of loops and branches whose
bounds or conditions depend on an item or on loaded elements. Results depend on the size of
the group and on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ingot.compiler.ir import Value
from ingot.compiler.kernels.loop import ForLoop, Index, LoopBuilder, dtype_of, lanes_of
from ingot.hal.spec import DType

__all__ = ["Combine", "WorkGroup", "combine_kind", "in_halves"]

Values = list[Value]
Combine = Callable[[Values, Values], Values]
"""Two partial results, each of one or several values, as one; associative."""

_FEW = 8  # items that each look at all others' values: with one barrier less than in two levels


@dataclass
class WorkGroup:
    """The items of a group of `size`, x first, each a power of two. `local_length` is the
    local memory in bytes that was asked for so far."""

    builder: LoopBuilder
    size: tuple[int, int, int] = (1, 1, 1)
    local_length: int = 0
    _buffers: dict[tuple[object, ...], Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if any(items < 1 or items & (items - 1) for items in self.size):
            raise ValueError(f"a work-group of {self.size} items: each must be a power of two")

    @property
    def count(self) -> int:
        """How many items there are."""
        return self.size[0] * self.size[1] * self.size[2]

    def item(self, axis: int = 0) -> Index:
        """The item's position along an axis, 0 where there is only one."""
        return 0 if self.size[axis] == 1 else self.builder.local_id(axis)

    def ordinal(self) -> Index:
        """The item's number in the group: x + size x * (y + size y * z)."""
        b = self.builder
        number: Index = 0
        for axis in (2, 1, 0):
            number = b.add(b.mul(number, self.size[axis]), self.item(axis))
        return number

    def barrier(self) -> None:
        """Wait for all items; what they stored is there to be read."""
        if self.count > 1:
            self.builder.barrier()

    def allocate(self, elements: int, element: DType) -> Value:
        """Fresh local memory of any content."""
        memory = self.builder.local(self.local_length, element)
        self.local_length += -(-elements * element.bytes // 64) * 64
        return memory

    # Who does what.

    @contextmanager
    def each(
        self,
        first: Index,
        end: Index,
        step: int = 1,
        axis: int | None = None,
        initial: Sequence[Value] = (),
    ) -> Iterator[ForLoop]:
        """A loop over first, first + step, ... below end, in which neighbouring items take
        neighbouring steps; `axis`: only the items along it share, else all do. Items may differ
        in how often they come: no barrier inside."""
        b = self.builder
        number = self.ordinal() if axis is None else self.item(axis)
        items = self.count if axis is None else self.size[axis]
        start = b.add(first, b.mul(number, step))
        with b.for_(start, end, items * step, initial) as loop:
            yield loop

    def once(self, body: Callable[[], None]) -> None:
        """Only item 0 does this; no barrier inside."""
        if self.count == 1:
            body()
            return
        b = self.builder
        b.if_(b.compare("eq", self.ordinal(), 0), lambda: body())

    def copy(
        self, source: Value, place: Index, target: Value, to: Index, count: Index, lanes: int = 1
    ) -> None:
        """All items copy `count` elements, a multiple of `lanes`. A barrier must follow before
        others than the writer read them."""
        b = self.builder
        with self.each(0, count, lanes) as loop:
            b.store(target, b.add(to, loop.index), b.load(source, b.add(place, loop.index), lanes))

    # What they compute together.

    def reduce(self, values: Sequence[Value], combine: Combine, axis: int | None = None) -> Values:
        """The values of all items (of those along `axis`) combined; every item gets the result.

        `combine` must be commutative. Scalars or vectors, as many as there are. Has barriers.
        """
        b, values = self.builder, list(values)
        line = _Line(self, axis)
        if line.count == 1:
            return values
        first = [self._buffer("reduce", place, value) for place, value in enumerate(values)]
        self._put(first, line.place(line.item), values)
        self.barrier()
        if line.count <= _FEW:
            parts = [self._get(first, line.place(each), values) for each in range(line.count)]
            total = in_halves(parts, combine)
            self.barrier()  # the next one stores to the same memory
            return total
        chunks = _chunks(line.count)
        second = [self._buffer("join", place, value) for place, value in enumerate(values)]

        def join() -> None:
            places = range(0, line.count, chunks)
            mine = [line.place(b.add(line.item, each)) for each in places]
            total = in_halves([self._get(first, each, values) for each in mine], combine)
            self._put(second, line.place(line.item), total)

        b.if_(b.compare("lt", line.item, chunks), join)
        self.barrier()
        return in_halves(
            [self._get(second, line.place(each), values) for each in range(chunks)], combine
        )

    def scan(
        self,
        values: Sequence[Value],
        combine: Combine,
        start: Sequence[Value],
        along_x: bool = False,
    ) -> tuple[Values, Values]:
        """What the items before this one have, combined in order, and what all have together;
        `along_x`: only those of the same line along x.

        `start` changes nothing when combined. Has barriers.
        """
        b, values = self.builder, list(values)
        count, item = (self.size[0], self.item(0)) if along_x else (self.count, self.ordinal())
        if count == 1:
            return list(start), values
        chunks = _chunks(count)  # each is walked by one item; then all walk the chunks' totals
        length = count // chunks
        pitch = chunks | 1  # odd: neighbouring items meet different banks
        line = b.add(self.item(1), b.mul(self.item(2), self.size[1])) if along_x else 0
        lines, number = self.count // count, range(len(values))
        first = [self._buffer("scan", n, values[n], lines * length * pitch) for n in number]
        second = [self._buffer("totals", n, values[n], lines * chunks) for n in number]
        begin, totals = b.mul(line, length * pitch), b.mul(line, chunks)
        mine = b.add(begin, b.add(b.mul(b.rem(item, length), pitch), b.div(item, length)))
        self._put(first, mine, values)
        self.barrier()

        def walk() -> None:
            before = list(start)
            for step in range(length):
                place = b.add(begin, b.add(step * pitch, item))
                found = self._get(first, place, values)
                self._put(first, place, before)
                before = combine(before, found)
            self._put(second, b.add(totals, item), before)

        b.if_(b.compare("lt", item, chunks), walk)
        self.barrier()
        within, number_of_chunk = self._get(first, mine, values), b.div(item, length)
        total, before = list(start), list(start)
        for chunk in range(chunks):
            is_mine = b.compare("eq", number_of_chunk, chunk)
            before = [b.op("select", is_mine, t, p) for t, p in zip(total, before, strict=True)]
            total = combine(total, self._get(second, b.add(totals, chunk), values))
        result = combine(before, within)
        self.barrier()  # the next one stores to the same memory
        return result, total

    def _buffer(self, use: str, place: int, value: Value, slots: int = 0) -> Value:
        """Local memory of a value per item, the same for every call of a use."""
        key = (use, place, dtype_of(value), lanes_of(value), slots)
        if key not in self._buffers:
            elements = (slots or self.count) * lanes_of(value)
            self._buffers[key] = self.allocate(elements, dtype_of(value))
        return self._buffers[key]

    def _put(self, buffers: Sequence[Value], slot: Index, values: Sequence[Value]) -> None:
        b = self.builder
        for buffer, value in zip(buffers, values, strict=True):
            b.store(buffer, b.mul(slot, lanes_of(value)), value)

    def _get(self, buffers: Sequence[Value], slot: Index, like: Sequence[Value]) -> Values:
        b = self.builder
        return [
            b.load(buffer, b.mul(slot, lanes_of(value)), lanes_of(value))
            for buffer, value in zip(buffers, like, strict=True)
        ]


class _Line:
    """The items along one axis, or all; each has a slot of local memory."""

    def __init__(self, group: WorkGroup, axis: int | None) -> None:
        self.group, self.axis = group, axis
        self.count = group.count if axis is None else group.size[axis]
        self.item = group.ordinal() if axis is None else group.item(axis)

    def place(self, number: Index) -> Index:
        """The slot of the item `number` of the line."""
        if self.axis is None:
            return number
        b, group = self.group.builder, self.group
        slot: Index = 0
        for axis in (2, 1, 0):
            step = number if axis == self.axis else group.item(axis)
            slot = b.add(b.mul(slot, group.size[axis]), step)
        return slot


def _chunks(count: int) -> int:
    """About the root of a count, a power of two; it divides a count that is one."""
    return 1 << ((count - 1).bit_length() // 2)


def in_halves(parts: Sequence[Values], combine: Combine) -> Values:
    """The parts combined as a tree, neighbours in order."""
    parts = list(parts)
    while len(parts) > 1:
        pairs = [combine(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + parts[len(pairs) * 2 :]
    return parts[0]


def combine_kind(b: LoopBuilder, kind: str) -> Combine:
    """Combines single values by a recognised kind: "add", "mul", "max", "min", "and", ..."""
    return lambda left, right: [b.op(kind, left[0], right[0])]

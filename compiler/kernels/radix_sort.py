"""A stable sort of lines by the bytes of a key: what sort and top_k use on a CPU for long lines.

The keys, integers of the order that is wanted, and the places of their elements go from one half
of a buffer to the other, in a pass for each byte from the lowest on; one in which all keys have the
same byte is left out. The elements themselves are read once more, in order, at the end. The buffer
is scratch memory or a workspace of the call, as that of `merge_sort.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ingot.compiler.graph.ops import ReduceKind
from ingot.compiler.ir import TensorType, Value, dims
from ingot.compiler.ir.dims import Bounds, Dim
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.lines import Lines
from ingot.compiler.kernels.loop import I64, LoopBuilder, dtype_of, lanes_of
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.merge_sort import Read, Store
from ingot.compiler.kernels.schedule import MOST_SCRATCH
from ingot.hal.spec import DType, dtype

__all__ = ["RadixSort", "has_radix", "order_key"]

_I32, _U32, _U64, _F32 = dtype("i32"), dtype("u32"), dtype("u64"), dtype("f32")
_FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
_LEAST_LENGTH = 256  # of shorter lines runs are merged in less time: 100 f32 take 3 us, not 4
_DIGITS = 256
_FEWER = 4  # a fourth that is set aside pays for being moved once more


def has_radix(element: DType, length: Dim, known: Bounds) -> bool:
    """Whether lines are long enough, or may be, and their elements have keys."""
    has_key = element.is_integer or element.name in _FLOATS
    return has_key and dims.bounds(length, known)[1] >= _LEAST_LENGTH


def order_key(b: LoopBuilder, x: Value) -> Value:
    """i32 or i64 in the order of numbers, u32 or u64 of unsigned ones as wide. Of floats both zeros
    are one, and NaN are the greatest."""
    element, lanes = dtype_of(x), lanes_of(x)
    word = I64 if element.bits == 64 else _I32
    if not element.is_float:
        return x if element.bits == word.bits else b.convert(x, word)

    def number(value: int) -> Value:
        return b.constant(value, word, lanes)

    most = (1 << (word.bits - 1)) - 1
    x = x if word == I64 else b.convert(x, _F32)
    bits = b.op("bitcast", x, dtype=word)
    is_negative = b.op("compare", bits, number(0), direction="lt")
    key = b.op("select", is_negative, b.op("xor", bits, number(most)), bits)
    is_zero = b.op("compare", key, number(-1), direction="eq")
    key = b.op("select", is_zero, number(0), key)
    return b.op("select", b.op("is_nan", x), number(most), key)


@dataclasses.dataclass
class RadixSort:
    """Sorts the lines of `lines`, whose elements `read` gives, by what `rank` gives of them, the
    greatest first if `descending`; `lanes` keys are made at a time. After `plan`, `scratch_length`
    and `workspaces` say what the kernel needs beside the first `start` bytes of scratch."""

    builder: LoopBuilder
    lines: Lines
    read: Read
    rank: Callable[[Emitter], Value]
    element: DType
    descending: bool
    first_workspace: int
    lanes: int = 1
    start: int = 0
    scratch_length: int = 0
    workspaces: tuple[TensorType, ...] = ()

    def plan(self, known: Bounds) -> None:
        """Decide where the buffers lie."""
        b, self.half = self.builder, self.lines.length
        most = dims.bounds(self.half, known)[1]
        self.word = _U64 if self.element.bits == 64 else _U32
        self.columns = [self.word, _I32 if most < 1 << 31 else I64]
        self.counts = b.scratch(self.start, I64)
        place = self.start + _DIGITS * I64.bytes
        sizes = [most * 2 * each.bytes for each in self.columns]
        if place + sum(sizes) + 64 <= MOST_SCRATCH:
            second = place + -(-int(sizes[0]) // 64) * 64
            self.buffers = [b.scratch(place, self.word), b.scratch(second, self.columns[1])]
            self.scratch_length = second + -(-int(sizes[1]) // 64) * 64
            return
        self.scratch_length = place
        shape = (self.lines.count, 2, self.half)
        self.workspaces = tuple(TensorType(each, shape) for each in self.columns)
        self.buffers = [
            b.binding(self.first_workspace + number, each)
            for number, each in enumerate(self.columns)
        ]

    def sort_line(self, emitter: Emitter, limit: Dim, store: Store) -> None:
        """Sort one line; `store` gets its first `limit` elements, in order."""
        b = self.builder
        base: LoopIndex = 0
        if self.workspaces:
            base = b.mul(emitter.index(self.lines.ordinal), b.mul(b.dim(self.half), 2))
        length, half, end = b.dim(self.lines.length), b.dim(self.half), b.dim(limit)
        source, kept = self._divide(base, length, self._fill(emitter, base, length))
        passes = b.mul(b.min(kept, 1), self._bytes())
        with b.for_(0, passes, 1, [source]) as loop:
            source = loop.carried[0]
            target = b.sub(half, source)
            from_, into = b.add(base, source), b.add(base, target)
            shift = b.convert(b.data(b.mul(loop.index, 8)), self.word)
            self._count(from_, kept, shift)
            alike = b.load(self.counts, self._digit(b.load(self.buffers[0], from_), shift))

            def move() -> list[Value]:
                self._move(from_, into, kept, shift)
                return [b.value(target)]

            loop.yield_(*b.if_(b.compare("lt", alike, kept), move, lambda: [source]))
        between = b.min(kept, end)
        for first, stop, place in ((0, between, loop.results[0]), (between, end, half)):
            with b.for_(first, stop) as rest, emitter.scope():
                at = b.add(b.add(base, place), rest.index)
                emitter.places[self.lines.line] = b.convert(b.load(self.buffers[1], at), I64)
                store(rest.index, self.read(emitter))

    def _fill(self, emitter: Emitter, base: LoopIndex, length: LoopIndex) -> Value:
        """The keys and places of a line in the first half of its buffer; the last key there is."""
        b, (keys, places) = self.builder, self.buffers

        def put(place: LoopIndex, lanes: int, last: Value) -> Value:
            with emitter.scope(), emitter.along(self.lines.line, place, lanes):
                key = b.broadcast(self._key(self.rank(emitter)), lanes)
            at, number = b.add(base, place), b.data(place)
            if lanes > 1:
                number = b.op("add", b.lanes(lanes), number)
            b.store(keys, at, key)
            b.store(places, at, b.convert(number, self.columns[1]))
            return b.op("max", last, key)

        return self._fold(length, self.word, "max", put)

    def _divide(self, base: LoopIndex, length: LoopIndex, last: Value) -> tuple[Value, Value]:
        """Where many elements have the last key of all, as those that a mask left out, they go
        behind the others in the second half. In which half the others are, and how many."""
        b, (keys, places) = self.builder, self.buffers

        def count(place: LoopIndex, lanes: int, found: Value) -> Value:
            key = b.load(keys, b.add(base, place), lanes)
            is_last = b.op("compare", key, b.broadcast(last, lanes), direction="eq")
            return b.op("add", found, b.convert(is_last, self.columns[1]))

        others = b.sub(length, b.convert(self._fold(length, self.columns[1], "add", count), I64))

        def divide() -> list[Value]:
            half = b.add(base, b.dim(self.half))
            with b.for_(0, length, 1, [b.data(0), b.data(others)]) as loop:
                front, back = loop.carried
                at = b.add(base, loop.index)
                key, place = b.load(keys, at), b.load(places, at)
                step = b.convert(b.op("compare", key, last, direction="eq"), I64)
                into = b.add(half, b.add(front, b.mul(step, b.sub(back, front))))
                b.store(keys, into, key)
                b.store(places, into, place)
                loop.yield_(b.value(b.add(front, b.sub(1, step))), b.value(b.add(back, step)))
            return [b.value(b.dim(self.half)), b.data(others)]

        pays = b.compare("le", b.mul(others, _FEWER), b.mul(length, _FEWER - 1))
        source, kept = b.if_(pays, divide, lambda: [b.value(0), b.data(length)])
        return source, kept

    def _fold(
        self,
        length: LoopIndex,
        element: DType,
        kind: ReduceKind,
        step: Callable[[LoopIndex, int, Value], Value],
    ) -> Value:
        """What `step` makes of the places of a line, vectors of them first, from 0 on."""
        b, lanes = self.builder, self.lanes
        total, full = b.constant(0, element), b.mul(b.div(length, lanes), lanes)
        if lanes > 1:
            with b.for_(0, full, lanes, [b.constant(0, element, lanes)]) as vectors:
                vectors.yield_(step(vectors.index, lanes, vectors.carried[0]))
            total = b.reduce(vectors.results[0], kind)
        with b.for_(full if lanes > 1 else 0, length, 1, [total]) as rest:
            rest.yield_(step(rest.index, 1, rest.carried[0]))
        return rest.results[0]

    def _bytes(self) -> int:
        """Of a key, those that are not the same in all."""
        return self.word.bytes if self.element.is_float else self.element.bytes

    def _key(self, rank: Value) -> Value:
        """An unsigned number in the order of elements, of which the low bytes count."""
        b, element = self.builder, self.element
        key = order_key(b, rank)
        if dtype_of(key) != self.word:
            key = b.op("bitcast", key, dtype=self.word)
        if element.kind != "u":
            sign = 1 << (8 * self._bytes() - 1)
            key = b.op("xor", key, b.constant(sign, self.word))
        key = b.op("not", key) if self.descending else key
        if self._bytes() < self.word.bytes:
            key = b.op("and", key, b.constant((1 << 8 * self._bytes()) - 1, self.word))
        return key

    def _digit(self, key: Value, shift: Value) -> Value:
        b = self.builder
        shifted = b.op("shift_right_logical", key, shift)
        return b.convert(b.op("and", shifted, b.constant(_DIGITS - 1, self.word)), I64)

    def _count(self, base: LoopIndex, length: LoopIndex, shift: Value) -> None:
        """How often each digit is there."""
        b, keys = self.builder, self.buffers[0]
        with b.for_(0, _DIGITS) as loop:
            b.store(self.counts, loop.index, b.constant(0, I64))
        with b.for_(0, length) as loop:
            digit = self._digit(b.load(keys, b.add(base, loop.index)), shift)
            b.store(self.counts, digit, b.op("add", b.load(self.counts, digit), b.constant(1, I64)))

    def _move(self, base: LoopIndex, into: LoopIndex, length: LoopIndex, shift: Value) -> None:
        """Every element to where those of its digit go."""
        b = self.builder
        with b.for_(0, _DIGITS, 1, [b.data(0)]) as loop:
            count = b.load(self.counts, loop.index)
            b.store(self.counts, loop.index, loop.carried[0])
            loop.yield_(b.op("add", loop.carried[0], count))
        with b.for_(0, length) as loop:
            values = [b.load(each, b.add(base, loop.index)) for each in self.buffers]
            digit = self._digit(values[0], shift)
            place = b.load(self.counts, digit)
            b.store(self.counts, digit, b.op("add", place, b.constant(1, I64)))
            for buffer, value in zip(self.buffers, values, strict=True):
                b.store(buffer, b.add(into, place), value)

"""A stable sort of lines by the bytes of a key: what sort and top_k use on a CPU for long lines.

The keys, integers of the order that is wanted, and the places of their elements go from one half
of a buffer to the other, in a pass for each byte from the lowest on; one in which all keys have the
same byte is left out. The elements themselves are read once more, in order, at the end. The buffer
is scratch memory or a workspace of the call, as that of `merge_sort.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

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
    greatest first if `descending`. After `plan`, `scratch_length` and `workspaces` say what the
    kernel needs beside the first `start` bytes of scratch."""

    builder: LoopBuilder
    lines: Lines
    read: Read
    rank: Callable[[Emitter], Value]
    element: DType
    descending: bool
    first_workspace: int
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
        b, (keys, places) = self.builder, self.buffers
        base: LoopIndex = 0
        if self.workspaces:
            base = b.mul(emitter.index(self.lines.ordinal), b.mul(b.dim(self.half), 2))
        length, half = b.dim(self.lines.length), b.dim(self.half)
        with b.for_(0, length) as loop, emitter.scope():
            emitter.places[self.lines.line] = loop.index
            at = b.add(base, loop.index)
            b.store(keys, at, self._key(self.rank(emitter)))
            b.store(places, at, b.convert(b.data(loop.index), self.columns[1]))
        passes = b.mul(b.min(length, 1), self._bytes())
        with b.for_(0, passes, 1, [b.value(0)]) as loop:
            source = loop.carried[0]
            target = b.sub(half, source)
            from_, into = b.add(base, source), b.add(base, target)
            shift = b.convert(b.data(b.mul(loop.index, 8)), self.word)
            self._count(from_, length, shift)
            alike = b.load(self.counts, self._digit(b.load(keys, from_), shift))

            def move() -> list[Value]:
                self._move(from_, into, length, shift)
                return [b.value(target)]

            loop.yield_(*b.if_(b.compare("lt", alike, length), move, lambda: [source]))
        sorted_ = b.add(base, loop.results[0])
        with b.for_(0, b.dim(limit)) as loop, emitter.scope():
            place = b.convert(b.load(places, b.add(sorted_, loop.index)), I64)
            emitter.places[self.lines.line] = place
            store(loop.index, self.read(emitter))

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
        return b.op("not", key) if self.descending else key

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

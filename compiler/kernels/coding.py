"""Blocks with scales: the right side of a `dot_coded` or `dot_scaled`, as schedules read it.

A panel has a line per `steps` steps of K: 32 bits for each of its 16 columns, with the codes of
four steps in the low bits of the four bytes, of the next four above these, and so on. Codes of 3, 5
and 6 bits have their upper bits in lines of their own, each in front of those that share it. All
steps of a line share the scale and the zero of their group. This file takes codes out of a line and
makes numbers of them; which lines are read, and whether the scale is applied to each number or to a
sum of products, the schedules say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ingot.compiler.graph.ops import DotCoded, DotScaled, code_planes
from ingot.compiler.ir import Function, Op, Value, defined_by, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import known_dims
from ingot.compiler.kernels.loop import Index, LoopBuilder, lanes_of
from ingot.compiler.kernels.register_tile import PANEL
from ingot.compiler.kernels.table import Code
from ingot.hal.spec import DType, dtype

__all__ = ["I32", "BlockCoding", "Line", "Words", "coding_of", "in_each_byte", "minima_of"]

F32, I32 = dtype("f32"), dtype("i32")

Line = tuple[Index, Index]
"""A line of a panel: its run, whose lines share one of upper bits, and its place in that."""


@dataclass(frozen=True)
class Words:
    """What a line says of its steps: words of their upper bits, if there are any, and of low ones.
    In front of their own the upper ones have so many fours of steps of other lines."""

    values: tuple[Value, ...]
    before: int = 0


@dataclass(frozen=True)
class BlockCoding:
    """Codes of a weight [depth, ...] in panels, and the arguments that hold what belongs to it:
    ordinals, and dtypes of what is not codes."""

    is_signed: bool
    bits: int
    depth: int
    group: int
    block: int  # steps of K that share a factor; 0: there are none
    codes: int
    scales: tuple[int, DType]
    factors: tuple[int, DType] | None
    zeros: tuple[int, DType] | None
    table: tuple[int, ...] = ()
    is_float: bool = False  # codes are bits of f8e4m3fn

    @property
    def middle(self) -> int:
        """What `bytes` have more than the numbers that they stand for."""
        return 128 if self.table else (1 << (self.bits - 1)) * self.is_signed

    @property
    def planes(self) -> tuple[int, ...]:
        """Bits of a code in the words of a line."""
        return code_planes(self.bits)[::-1]

    @property
    def steps(self) -> int:
        """Steps of K in a line."""
        return 32 // self.planes[-1]

    @property
    def shared(self) -> int:
        """Lines that share one of upper bits; 1 without any."""
        return self.planes[-1] // self.planes[0]

    @property
    def lines(self) -> int:
        """Lines of a panel; the last ones may be cut short."""
        return -(-self.depth // (self.steps * self.shared)) * self.shared

    @property
    def groups(self) -> int:
        return -(-self.depth // self.group)

    @property
    def ordinals(self) -> set[int]:
        """The arguments."""
        others = (self.scales, self.factors, self.zeros)
        return {self.codes, *(each[0] for each in others if each is not None)}

    def group_of(self, b: LoopBuilder, step: Index) -> Index:
        """The group of a step."""
        return 0 if self.groups == 1 else b.div(step, self.group)

    def places(self, b: LoopBuilder, panel: Index, line: Line) -> list[Index]:
        """Where the words of a line begin, in words of 32 bits."""
        run, place = line
        first = b.add(b.mul(panel, self.lines // self.shared), run)
        first = b.mul(first, (self.shared + len(self.planes) - 1) * PANEL)
        if len(self.planes) == 1:
            return [first]
        return [first, b.add(first, b.mul(b.add(place, 1), PANEL))]

    def words(self, b: LoopBuilder, line: Line, loaded: Sequence[Value]) -> Words:
        """The words of a line, of what lies at its places."""
        fours = b.mul(line[1], self.steps // 4)
        if isinstance(fours, int):
            return Words(tuple(loaded), fours)
        *high, low = loaded
        bits = b.mul(fours, self.planes[0])
        return Words((*(self._down(b, each, bits) for each in high), low))

    def line(self, b: LoopBuilder, number: Index) -> Line:
        """A line of a panel by its number."""
        return b.div(number, self.shared), b.rem(number, self.shared)

    def scale_place(self, b: LoopBuilder, panel: Index, group: Index) -> Index:
        """Where the scales of a group begin, and its zeros."""
        return b.mul(b.add(b.mul(panel, self.groups), group), PANEL)

    def factor_place(self, b: LoopBuilder, panel: Index, group: Index) -> Index:
        """Where the factors of a group's scales begin."""
        blocks = -(-self.depth // self.block)
        block = b.div(group, self.block // self.group)
        return b.mul(b.add(b.mul(panel, blocks), block), PANEL)

    def signed(self, b: LoopBuilder, words: Words) -> Words:
        """Words whose codes have their sign, which `numbers` takes: they lie as unsigned ones, half
        of the range more."""
        if not self.is_signed:
            return words
        high, *low = words.values
        width = self.planes[0]
        signs = sum(1 << place for place in range(width - 1, 8, width))
        high = b.op("xor", high, b.constant(in_each_byte(signs), I32, lanes_of(high)))
        return Words((high, *low), words.before)

    def numbers(self, b: LoopBuilder, words: Words, count: int, element: DType) -> Iterator[Value]:
        """The codes of the first steps of a line, as numbers."""
        bits, is_signed = (8, True) if self.table else (self.bits, self.is_signed)
        for step in range(count):
            if self.is_float:
                yield b.convert(_of_f8(b, words.values[-1], 8 * (step % 4)), element)
                continue
            word, above = words.values[-1], self.bits * (step // 4)
            if self.table:
                word, above = b.table4(self._codes(b, words, step // 4), _as_bytes(self.table)), 0
            elif len(words.values) > 1:
                word, above = self._codes(b, words, step // 4), 0
            code = Code(8 * (step % 4) + above, bits, is_signed)
            yield b.convert(b.code(word, code), element)

    def bytes(self, b: LoopBuilder, words: Words, part: int) -> Value:
        """The numbers of four steps of a line as bytes, `middle` more."""
        codes = self._codes(b, words, part)
        if not self.table:
            return codes
        return b.table4(codes, [each + self.middle for each in self.table])

    def _codes(self, b: LoopBuilder, words: Words, part: int) -> Value:
        """The codes of four steps of a line, as bytes, as they lie."""
        found, at = None, self.bits
        for word, bits in zip(words.values, self.planes, strict=True):
            at -= bits
            down = bits * (part + words.before if at else part) - at
            places = b.constant(abs(down), I32, lanes_of(word))
            if down:
                word = b.op("shift_right_logical" if down > 0 else "shift_left", word, places)
            if bits < 8:
                mask = in_each_byte(((1 << bits) - 1) << at)
                word = b.op("and", word, b.constant(mask, I32, lanes_of(word)))
            found = word if found is None else b.op("or", found, word)
        assert found is not None
        return found

    def without(self, b: LoopBuilder, words: Words, steps: int) -> Words:
        """Words behind their first steps, a multiple of four."""
        planes = zip(words.values, self.planes, strict=True)
        values = (self._down(b, word, bits * steps // 4) for word, bits in planes)
        return Words(tuple(values), words.before)

    def _down(self, b: LoopBuilder, word: Value, bits: Index) -> Value:
        """The word without its low bits."""
        if bits == 0:
            return word
        if isinstance(bits, int):
            return b.op("shift_right_logical", word, b.constant(bits, I32, lanes_of(word)))
        return b.op("shift_right_logical", word, b.convert(bits, I32))


def _of_f8(b: LoopBuilder, word: Value, place: int) -> Value:
    """The f8e4m3fn whose lowest bit of a word is there, as f32. Its exponent and fraction are put
    where f32 has them, 120 more in the exponent. What is subnormal has no leading one and the
    exponent of the least normal number, 2**-6: of its half with a leading one the number is the
    double less 2**-6."""
    lanes = lanes_of(word)

    def with_bits(name: str, value: Value, bits: int) -> Value:
        return b.op(name, value, b.constant(bits, I32, lanes))

    def float(value: Value) -> Value:
        return b.op("bitcast", value, dtype=F32)

    high = with_bits("shift_left", word, 24 - place) if place < 24 else word
    bits = with_bits("and", with_bits("shift_right_logical", high, 4), 0x07F00000)
    number = float(with_bits("add", bits, 120 << 23))
    least = b.constant(2.0**-6, F32, lanes)
    below = b.op("min", b.op("sub", number, least), b.constant(0.0, F32, lanes))
    number = b.op("bitcast", b.op("add", number, below), dtype=I32)
    return float(b.op("or", number, with_bits("and", high, -(1 << 31))))


def _as_bytes(table: Sequence[int]) -> list[int]:
    """Numbers of i8 as their bytes."""
    return [each & 255 for each in table]


def in_each_byte(number: int) -> int:
    """A word of four equal bytes, as i32."""
    return int.from_bytes(bytes([number] * 4), "little", signed=True)


def coding_of(function: Function, root: Op) -> BlockCoding | None:
    """The coding of a contraction's right side; None if its elements lie plainly."""
    coded, (left, codes, *others) = root.attributes, root.operands
    if not isinstance(coded, DotCoded):
        return None
    (depth,), (scales, *more) = known_dims(tensor_type(left).shape[-1:]), others
    if isinstance(coded, DotScaled):
        more = list(coded.without_minima(more[2:])[0])
    factors = _argument(function, more.pop(0)) if coded.block else None
    zeros = _argument(function, more[0]) if more else None
    return BlockCoding(
        coded.coding.kind == "i", coded.width, depth, coded.group, coded.block,
        _argument(function, codes)[0], _argument(function, scales), factors, zeros, coded.table,
        coded.coding.is_float,
    )  # fmt: skip


def minima_of(function: Function, root: Op) -> BlockCoding | None:
    """The coding of the minima of a dot_scaled, whose steps are groups; None without any."""
    coded = root.attributes
    assert isinstance(coded, DotScaled)
    if not coded.minima:
        return None
    *_, codes, scales = root.operands
    (bits, group), (groups,) = coded.minima, known_dims(tensor_type(root.operands[4]).shape[-1:])
    return BlockCoding(
        False, bits, groups, group, 0, _argument(function, codes)[0], _argument(function, scales),
        None, None,
    )  # fmt: skip


def _argument(function: Function, value: Value) -> tuple[int, DType]:
    """The ordinal of an operand and its dtype."""
    while (op := defined_by(value, "reshape")) is not None:
        value = op.operands[0]
    return function.arguments.index(value), tensor_type(value).dtype

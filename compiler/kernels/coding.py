"""Blocks with scales: the right side of a `dot_coded` or `dot_scaled`, as schedules read it.

A panel has a line per `steps` steps of K: 32 bits for each of its 16 columns, with the codes of
four steps in the low bits of the four bytes, of the next four above these, and so on. All steps of
a line share the scale and the zero of their group. This file takes codes out of a line and makes
numbers of them; which lines are read, and whether the scale is applied to each number or to a sum
of products, the schedules say.
"""

from __future__ import annotations

from ingot.compiler.graph.ops import DotCoded, DotScaled
from ingot.compiler.ir import Function, Op, Value, defined_by, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import known_dims
from ingot.compiler.kernels.loop import Index, LoopBuilder, lanes_of
from ingot.compiler.kernels.register_tile import PANEL
from ingot.hal.spec import DType, dtype

__all__ = ["I32", "BlockCoding", "coding_of"]

I32 = dtype("i32")


@dataclass(frozen=True)
class BlockCoding:
    """Codes of a weight [depth, ...] in panels, and the arguments that hold what belongs to it:
    ordinals, and dtypes of what is not codes."""

    dtype: DType
    depth: int
    group: int
    codes: int
    scales: tuple[int, DType]
    zeros: tuple[int, DType] | None

    @property
    def steps(self) -> int:
        """Steps of K in a line."""
        return 32 // self.dtype.bits

    @property
    def lines(self) -> int:
        """Lines of a panel; the last one may be cut short."""
        return -(-self.depth // self.steps)

    @property
    def groups(self) -> int:
        return -(-self.depth // self.group)

    @property
    def ordinals(self) -> set[int]:
        """The arguments."""
        return {self.codes, self.scales[0], *([self.zeros[0]] if self.zeros else [])}

    def group_of(self, b: LoopBuilder, step: Index) -> Index:
        """The group of a step."""
        return 0 if self.groups == 1 else b.div(step, self.group)

    def place(self, b: LoopBuilder, panel: Index, line: Index) -> Index:
        """Where a line of codes begins, in words of 32 bits."""
        return b.mul(b.add(b.mul(panel, self.lines), line), PANEL)

    def scale_place(self, b: LoopBuilder, panel: Index, group: Index) -> Index:
        """Where the scales of a group begin, and its zeros."""
        return b.mul(b.add(b.mul(panel, self.groups), group), PANEL)

    def words(self, b: LoopBuilder) -> Value:
        """The memory of the codes, in words of 32 bits."""
        return b.binding(self.codes, I32)

    def number(self, b: LoopBuilder, word: Value, step: int, element: DType) -> Value:
        """The code of one step of a line, as a number."""
        bits = self.dtype.bits
        place = 8 * (step % 4) + bits * (step // 4)
        if self.dtype.kind == "i":
            up = 32 - bits - place
            high = b.op("shift_left", word, b.constant(up, I32)) if up else word
            code = b.op("shift_right_arithmetic", high, b.constant(32 - bits, I32))
        elif place == 32 - bits:
            code = b.op("shift_right_logical", word, b.constant(place, I32))
        else:
            low = b.op("shift_right_logical", word, b.constant(place, I32)) if place else word
            code = b.op("and", low, b.constant((1 << bits) - 1, I32, lanes_of(word)))
        return b.convert(code, element)

    def without(self, b: LoopBuilder, word: Value, steps: int) -> Value:
        """A word behind its first steps, a multiple of four."""
        places = b.constant(self.dtype.bits * steps // 4, I32)
        return b.op("shift_right_logical", word, places)


def coding_of(function: Function, root: Op) -> BlockCoding | None:
    """The coding of a contraction's right side; None if its elements lie plainly."""
    coded, (left, codes, *others) = root.attributes, root.operands
    if not isinstance(coded, DotCoded):
        return None
    (depth,), (scales, *zeros) = known_dims(tensor_type(left).shape[-1:]), others
    if isinstance(coded, DotScaled):
        zeros = zeros[2:]

    def argument(value: Value) -> tuple[int, DType]:
        while (op := defined_by(value, "reshape")) is not None:
            value = op.operands[0]
        return function.arguments.index(value), tensor_type(value).dtype

    zero = argument(zeros[0]) if zeros else None
    return BlockCoding(coded.coding, depth, coded.group, argument(codes)[0], argument(scales), zero)

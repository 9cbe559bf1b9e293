"""How a reduction runs: what it starts from, how it takes a value in, how lanes are joined.

An accumulator is a list of loop values that a loop carries. Sums of f16 and bf16 run in
f32 and are rounded once at the end. NaN wins max, min and the arg ops, as in the op table.
"""

from __future__ import annotations

from ingot.compiler.graph.ops import ArgExtreme, Reduce, ReduceKind
from ingot.compiler.graph.ops.reduction import identity
from ingot.compiler.ir import Op, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.loop import I64, LoopBuilder, lanes_of
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType, dtype

__all__ = ["Accumulator", "accumulator_of"]

_F32, _I32 = dtype("f32"), dtype("i32")


def accumulator_of(op: Op, operand: DType, result: DType, count: Dim) -> Accumulator:
    """The accumulator of a `reduce`, `arg_max` or `arg_min` op over so many elements."""
    if op.name == "reduce":
        return Accumulator(Reduce.of(op).kind, operand, result)
    if isinstance(op.attributes, ArgExtreme):
        kind: ReduceKind = "max" if op.name == "arg_max" else "min"
        place = _I32 if isinstance(count, int) and count < 2**31 else I64
        return Accumulator(kind, operand, result, place, op.attributes.last)
    raise CompileError(f"{op.location or op.name}: no kernel reduces by op '{op.name}'")


@dataclass(frozen=True)
class Accumulator:
    """One reduction. `index`: the position of the greatest or least element is wanted, and has
    this dtype while it runs."""

    kind: ReduceKind
    operand: DType
    result: DType
    index: DType | None = None
    last: bool = False

    @property
    def running(self) -> DType:
        """The dtype in which it runs."""
        half = self.operand.is_half
        return _F32 if half and self.kind in ("add", "mul") else self.operand

    def start(self, b: LoopBuilder, lanes: int, along: bool) -> list[Value]:
        """The first carried values; `along`: lanes are neighbours of the reduced axis."""
        first = b.constant(identity(self.kind, self.running), self.running, lanes)
        if self.index is None:
            return [first]
        if self.last:
            return [first, b.constant(-1, self.index, lanes)]
        if along and lanes > 1:
            return [first, b.convert(b.lanes(lanes), self.index)]
        return [first, b.constant(0, self.index, lanes)]

    def take(
        self, b: LoopBuilder, carried: list[Value], value: Value, place: Value, live: Value | None
    ) -> list[Value]:
        """The carried values after one more; lanes that are not live stay as they are."""
        value = b.convert(b.broadcast(value, lanes_of(carried[0])), self.running)
        if self.index is not None:
            place = b.broadcast(b.convert(place, self.index), lanes_of(value))
            return self._take_index(b, carried, value, place, live)
        if live is not None:
            value = b.op(
                "select", live, value, b.constant(identity(self.kind, self.running), self.running)
            )
        return [b.op(self.kind, carried[0], value)]

    def _take_index(
        self, b: LoopBuilder, carried: list[Value], value: Value, place: Value, live: Value | None
    ) -> list[Value]:
        best, at = carried
        if self.last:
            direction = {"max": "ge", "min": "le"}[self.kind]
            better = b.op("compare", value, best, direction=direction)
            if self.operand.is_float:  # nothing compares with a NaN that is the best
                better = b.op("or", better, b.op("is_nan", value))
        else:
            direction = {"max": "le", "min": "ge"}[self.kind]
            worse = b.op("compare", value, best, direction=direction)
            if self.operand.is_float:  # the first NaN stays
                worse = b.op("or", worse, b.op("is_nan", best))
            better = b.op("not", worse)
        if live is not None:
            better = b.op("and", better, live)
        return [b.op("select", better, value, best), b.op("select", better, place, at)]

    def finish(self, b: LoopBuilder, carried: list[Value], join: bool) -> Value:
        """The result; `join`: all lanes belong to one element."""
        carried = self.join(b, carried) if join else carried
        return b.convert(carried[-1], self.result)

    def join(self, b: LoopBuilder, carried: list[Value]) -> list[Value]:
        """The carried values of all lanes as scalars."""
        if lanes_of(carried[0]) == 1:
            return carried
        if self.index is None:
            return [b.reduce(carried[0], self.kind)]
        best, at = carried
        top = b.reduce(best, self.kind)
        same = b.op("compare", best, top, direction="eq")
        if self.operand.is_float:
            both = b.op(
                "and", b.op("is_nan", best), b.broadcast(b.op("is_nan", top), lanes_of(best))
            )
            same = b.op("or", same, both)
        outside = -1 if self.last else 2 ** (8 * self.index.bytes - 1) - 1
        at = b.op("select", same, at, b.constant(outside, self.index))
        return [top, b.reduce(at, "max" if self.last else "min")]

    def merge(self, b: LoopBuilder, left: list[Value], right: list[Value]) -> list[Value]:
        """The carried values of two parts of the elements, in any order, as those of both."""
        if self.index is None:
            return [b.op(self.kind, left[0], right[0])]
        (best, at), (other, other_at) = left, right
        better = b.op("compare", other, best, direction={"max": "gt", "min": "lt"}[self.kind])
        equal = b.op("compare", other, best, direction="eq")
        if self.operand.is_float:
            nan, other_nan = b.op("is_nan", best), b.op("is_nan", other)
            better = b.op("or", better, b.op("and", other_nan, b.op("not", nan)))
            equal = b.op("or", equal, b.op("and", nan, other_nan))
        nearer = b.op("compare", other_at, at, direction="gt" if self.last else "lt")
        better = b.op("or", better, b.op("and", equal, nearer))
        return [b.op("select", better, other, best), b.op("select", better, other_at, at)]

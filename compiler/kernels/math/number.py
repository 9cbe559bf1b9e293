"""Values of a math function under construction, with the operators of Python.

A `Number` is a scalar or a vector of the loop builder, of floats, integers or truth; a plain
number beside one stands for a constant of its type. Nothing here knows a function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.graph.ops import Bitcast, Compare
from ingot.compiler.ir import Value
from ingot.compiler.ir.attributes import NO_ATTRIBUTES, Attributes
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.loop import LoopBuilder, dtype_of, lanes_of
from ingot.hal.spec import DType, dtype

__all__ = ["Format", "Functions", "Number", "Operand", "coefficients", "horner", "select"]


@dataclass(frozen=True)
class Format:
    """How a float lies in its bits."""

    mantissa: int  # bits of it that are stored
    bias: int  # of the exponent

    @property
    def magic(self) -> float:
        """Added to a number that is not large, it leaves a whole one in the lowest bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def magic_bits(self) -> int:
        """The bits of that."""
        return (self.bias + self.mantissa) << self.mantissa | 1 << (self.mantissa - 1)

    @property
    def bits(self) -> int:
        """Of all."""
        return 32 if self.mantissa == 23 else 64


_FORMATS = {"f32": Format(23, 127), "f64": Format(52, 1023)}


@dataclass(frozen=True, eq=False)
class Number:
    """A value, and the builder that it stands in."""

    b: LoopBuilder
    value: Value

    @property
    def dtype(self) -> DType:
        return dtype_of(self.value)

    @property
    def format(self) -> Format:
        """Of a float."""
        return _FORMATS[self.dtype.name]

    @property
    def is_f32(self) -> bool:
        return self.dtype.name == "f32"

    def like(self, number: float | int) -> Number:
        """A constant of this type."""
        lanes = lanes_of(self.value)
        return Number(self.b, self.b.constant(number, self.dtype, lanes))

    def op(self, name: str, *others: Operand, attributes: Attributes = NO_ATTRIBUTES) -> Number:
        """An element-wise op of this value and others."""
        values = (self._like(other).value for other in others)
        return Number(self.b, self.b.op(name, self.value, *values, attributes=attributes))

    def _like(self, other: Operand) -> Number:
        return other if isinstance(other, Number) else self.like(other)

    def __add__(self, other: Operand) -> Number:
        return self.op("add", other)

    def __radd__(self, other: Operand) -> Number:
        return self._like(other) + self

    def __sub__(self, other: Operand) -> Number:
        return self.op("sub", other)

    def __rsub__(self, other: Operand) -> Number:
        return self._like(other) - self

    def __mul__(self, other: Operand) -> Number:
        return self.op("mul", other)

    def __rmul__(self, other: Operand) -> Number:
        return self._like(other) * self

    def __truediv__(self, other: Operand) -> Number:
        return self.op("div", other)

    def __rtruediv__(self, other: Operand) -> Number:
        return self._like(other) / self

    def __neg__(self) -> Number:
        return self.op("neg")

    def __abs__(self) -> Number:
        return self.op("abs")

    def __and__(self, other: Operand) -> Number:
        return self.op("and", other)

    def __or__(self, other: Operand) -> Number:
        return self.op("or", other)

    def __invert__(self) -> Number:
        return self.op("not")

    def __lshift__(self, count: Operand) -> Number:
        return self.op("shift_left", count)

    def __rshift__(self, count: Operand) -> Number:
        """With the sign of a signed integer."""
        kind = "arithmetic" if self.dtype.kind == "i" else "logical"
        return self.op(f"shift_right_{kind}", count)

    def __lt__(self, other: Operand) -> Number:
        return self.op("compare", other, attributes=Compare("lt"))

    def __le__(self, other: Operand) -> Number:
        return self.op("compare", other, attributes=Compare("le"))

    def __gt__(self, other: Operand) -> Number:
        return self.op("compare", other, attributes=Compare("gt"))

    def equals(self, other: Operand) -> Number:
        """Whether both are equal; of NaN nothing is."""
        return self.op("compare", other, attributes=Compare("eq"))

    def differs(self, other: Operand) -> Number:
        """Whether both are not equal."""
        return self.op("compare", other, attributes=Compare("ne"))

    def at_least(self, least: float) -> Number:
        """Nothing below `least`; NaN stays."""
        return self.like(least).op("max", self)

    def at_most(self, most: float) -> Number:
        """Nothing above `most`; NaN stays."""
        return self.like(most).op("min", self)

    def fma(self, factor: Operand, summand: Operand, exact: bool = False) -> Number:
        """self * factor + summand; `exact`: the bits that the product alone would lose count,
        on machines without the instruction, too."""
        values = self._like(factor).value, self._like(summand).value
        return Number(self.b, self.b.fma(self.value, *values, exact=exact))

    def part(self, name: str, *others: Number) -> Number:
        """A part of math functions, `loop.scale` or the like."""
        return Number(self.b, self.b.part(name, self.value, *(each.value for each in others)))

    def to(self, name: str) -> Number:
        """Converted."""
        return Number(self.b, self.b.convert(self.value, dtype(name)))

    def bits(self, kind: str) -> Number:
        """The bits of a float as integers, "i" or "u"; those of an integer as another one."""
        return self.op("bitcast", attributes=Bitcast(dtype(f"{kind}{self.dtype.bits}")))

    def as_float(self) -> Number:
        """The float of these bits."""
        return self.op("bitcast", attributes=Bitcast(dtype(f"f{self.dtype.bits}")))

    def with_sign_of(self, other: Number) -> Number:
        """The magnitude of this one."""
        sign = 1 << (self.format.bits - 1)
        mine, other = self.bits("u") & (sign - 1), other.bits("u") & sign
        return (mine | other).as_float()

    def where_any(
        self, then: Callable[[], Sequence[Number]], otherwise: Sequence[Number]
    ) -> list[Number]:
        """What `then` gives if one lane of this truth is set, else the others."""
        results = self.b.if_(
            self.b.any(self.value),
            lambda: [each.value for each in then()],
            lambda: [each.value for each in otherwise],
        )
        return [Number(self.b, each) for each in results]


Operand = Number | float | int
Functions = dict[str, Callable[..., Number]]
"""What makes the result of an op out of its operands."""


def select(condition: Number, then: Operand, otherwise: Operand) -> Number:
    """By lane: one of two, of which one at least is no plain number."""
    known = then if isinstance(then, Number) else otherwise
    assert isinstance(known, Number)
    return condition.op("select", *(known._like(each) for each in (then, otherwise)))


def coefficients(text: str) -> tuple[float, ...]:
    """Numbers as C writes them in base 16, which are exact."""
    return tuple(map(float.fromhex, text.split()))


def horner(x: Number, factors: Sequence[float]) -> Number:
    """factors[0] + factors[1] x + ... by multiply-adds."""
    sum = x.like(factors[-1])
    for factor in reversed(factors[:-1]):
        sum = sum.fma(x, factor)
    return sum

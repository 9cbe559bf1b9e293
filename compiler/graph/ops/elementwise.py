"""Rows of ops that work element by element on operands of equal shape.

Broadcasting is explicit (`broadcast` in shape.py). f16 and bf16 ops compute in f32 and
round once. The ops also work on the scalars of regions and the vectors of kernels.
"""

from __future__ import annotations

from typing import Literal, get_args

from ingot.compiler.graph.ops.table import OPS, OpRow, register, require
from ingot.compiler.ir import TensorType
from ingot.compiler.ir.attributes import Attributes
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.spec import DType
from ingot.hal.spec import dtype as dtype_named

__all__ = ["COSTLY", "DIRECTIONS", "Bitcast", "Clamp", "Compare", "Convert", "Direction"]

Direction = Literal["eq", "ne", "lt", "le", "gt", "ge"]
DIRECTIONS = get_args(Direction)
"""How `compare` compares; each is false with a NaN but "ne", which is true."""

_I1 = dtype_named("i1")


def _unary(x: TensorType) -> TensorType:
    return x


def _absolute(x: TensorType) -> TensorType:
    require(not x.dtype.is_complex, "abs takes a real dtype; take sqrt(re*re + im*im)")
    return x


def _test(x: TensorType) -> TensorType:
    return TensorType(_I1, x.shape)


def _binary(a: TensorType, b: TensorType) -> TensorType:
    return a


@dataclass(frozen=True)
class Compare(Attributes):
    """Whether a stands in `direction` to b."""

    direction: Direction

    def result(self, a: TensorType, b: TensorType) -> TensorType:
        require(
            self.direction in ("eq", "ne") or not a.dtype.is_complex,
            "complex numbers have no order",
        )
        return TensorType(_I1, a.shape)


def _select(predicate: TensorType, a: TensorType, b: TensorType) -> TensorType:
    require(a == b, f"operand 1 is {a}, but operand 2 is {b}: they must be equal")
    require(predicate.shape == a.shape, f"the predicate {predicate} must have the shape of {a}")
    return a


@dataclass(frozen=True)
class Clamp(Attributes):
    """min(max(x, low), high). `numbers`: no limit is NaN."""

    numbers: bool = False

    def result(self, low: TensorType, x: TensorType, high: TensorType) -> TensorType:
        return x


@dataclass(frozen=True)
class Convert(Attributes):
    """x in another dtype: to a float rounds once, float to integer drops the fraction and
    saturates (NaN gives 0), to i1 is x != 0, between integers wraps."""

    dtype: DType

    def result(self, x: TensorType) -> TensorType:
        return TensorType(self.dtype, x.shape)


@dataclass(frozen=True)
class Bitcast(Attributes):
    """The same bits as another dtype of equal width."""

    dtype: DType

    def result(self, x: TensorType) -> TensorType:
        require(
            x.dtype.bits == self.dtype.bits, f"{x.dtype} and {self.dtype} have different widths"
        )
        return TensorType(self.dtype, x.shape)


# name, dtype class, ulp, meaning
_UNARY = (
    ("neg", "number", 0, "-x; integers wrap."),
    ("abs", "number", 0, "The absolute value; the least integer wraps to itself."),
    ("sign", "number", 0, "-1, 0 or 1; a zero keeps its sign, NaN stays NaN."),
    ("exp", "float", 2, "e to the power x."),
    ("exp2", "float", 2, "2 to the power x."),
    ("expm1", "float", 3, "exp(x) - 1, exact near zero."),
    ("log", "float", 2, "The natural logarithm; NaN below zero."),
    ("log1p", "float", 3, "log(1 + x), exact near zero."),
    ("sqrt", "float", 0.5, "The square root; NaN below zero, -0 for -0."),
    ("rsqrt", "float", 2, "1 / sqrt(x)."),
    ("cbrt", "real", 2, "The cube root."),
    ("sin", "float", 3, "The sine of an angle in radians."),
    ("cos", "float", 3, "The cosine of an angle in radians."),
    ("tan", "float", 4, "The tangent of an angle in radians."),
    ("asin", "real", 4, "The arc sine; NaN outside [-1, 1]."),
    ("acos", "real", 4, "The arc cosine; NaN outside [-1, 1]."),
    ("atan", "real", 4, "The arc tangent."),
    ("sinh", "real", 4, "The hyperbolic sine."),
    ("cosh", "real", 4, "The hyperbolic cosine."),
    ("tanh", "float", 5, "The hyperbolic tangent."),
    ("asinh", "real", 5, "The inverse hyperbolic sine."),
    ("acosh", "real", 5, "The inverse hyperbolic cosine; NaN below 1."),
    ("atanh", "real", 5, "The inverse hyperbolic tangent; NaN outside [-1, 1]."),
    ("logistic", "float", 4, "1 / (1 + exp(-x))."),
    ("erf", "real", 6, "The error function."),
    ("floor", "real", 0, "The greatest whole number that is not greater."),
    ("ceil", "real", 0, "The least whole number that is not less."),
    ("round_even", "real", 0, "The nearest whole number; halves go to the even one."),
    ("round_away", "real", 0, "The nearest whole number; halves go away from zero."),
    ("trunc", "real", 0, "The whole part; a zero keeps its sign."),
    ("not", "logical", 0, "Every bit flipped; of i1 the negation."),
    ("popcount", "integer", 0, "How many bits are set."),
    ("count_leading_zeros", "integer", 0, "How many zero bits stand above the highest set one."),
)
_TESTS = (
    ("is_finite", "Whether x is neither infinite nor NaN."),
    ("is_nan", "Whether x is NaN."),
    ("is_inf", "Whether x is plus or minus infinity."),
)
_BINARY = (
    ("add", "number", 0.5, "a + b; integers wrap."),
    ("sub", "number", 0.5, "a - b; integers wrap."),
    ("mul", "number", 0.5, "a * b; integers wrap."),
    ("div", "number", 0.5, "a / b; integers toward zero, x / 0 = -1 (all bits), MIN / -1 = MIN."),
    ("rem", "ordered number", 0, "What is left of a, with its sign; of integers a rem 0 = a."),
    ("pow", "number", 4, "a to the power b; integers wrap, a negative power is 0, 1 or -1."),
    ("atan2", "real", 5, "The angle of the point (b, a) in radians."),
    ("max", "ordered", 0, "The greater one; NaN if one is NaN; of i1 or."),
    ("min", "ordered", 0, "The lesser one; NaN if one is NaN; of i1 and."),
    ("and", "logical", 0, "Bits that are set in both."),
    ("or", "logical", 0, "Bits that are set in one or both."),
    ("xor", "logical", 0, "Bits that are set in exactly one."),
    ("shift_left", "integer", 0, "a shifted to the left by b bits; 0 if b is not below the width."),
    (
        "shift_right_arithmetic", "integer", 0,
        "a shifted to the right with copies of its top bit, also if b is not below the width.",
    ),
    (
        "shift_right_logical", "integer", 0,
        "a shifted to the right with zeros; 0 if b is not below the width.",
    ),
)  # fmt: skip


def _register_rows() -> None:
    family = "elementwise"
    for name, wanted, ulp, doc in _UNARY:
        rule = _absolute if name == "abs" else _unary
        register(OpRow(name, family, (f"x: {wanted}",), rule, doc, ulp=ulp))
    for name, doc in _TESTS:
        register(OpRow(name, family, ("x: real",), _test, doc))
    for name, wanted, ulp, doc in _BINARY:
        operands = (f"a: {wanted}", f"b: {wanted}")
        register(OpRow(name, family, operands, _binary, doc, ulp=ulp, same=True))
    register(OpRow("compare", family, ("a", "b"), Compare, same=True))
    register(OpRow("select", family, ("predicate: i1", "a", "b"), _select, "a where true, else b."))
    register(
        OpRow(
            "clamp",
            family,
            ("low: ordered", "x: ordered", "high: ordered"),
            Clamp,
            same=True,
        )
    )
    register(OpRow("convert", family, ("x",), Convert))
    register(OpRow("bitcast", family, ("x",), Bitcast))


_register_rows()

COSTLY = frozenset({"sqrt", "div", "rem"}).union(
    row.name for row in OPS.values() if row.family == "elementwise" and row.ulp > 0.5
)
"""Ops that take many instructions an element: those that are rounded once take one or two."""

"""Element-wise functions. Operands promote and broadcast; numbers take the dtype of the tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from ingot.compiler.frontends import division
from ingot.compiler.frontends.binary_functions import log_of_sum, next_after
from ingot.compiler.frontends.complex_numbers import Complex, absolute
from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.program.dtypes import (
    complex_dtype,
    default_float,
    default_int,
    element_type,
    promoted,
)
from ingot.compiler.frontends.program.tensor import (
    Size,
    Tensor,
    current,
    given,
    public,
    value_of,
)
from ingot.compiler.ir import Value
from ingot.hal.spec import DType, dtype

__all__ = ["common_dtype", "floating", "together"]

_UNARY_FLOAT = {
    "acos": "The arc cosine; NaN outside [-1, 1].",
    "acosh": "The inverse hyperbolic cosine; NaN below 1.",
    "asin": "The arc sine; NaN outside [-1, 1].",
    "asinh": "The inverse hyperbolic sine.",
    "atan": "The arc tangent.",
    "atanh": "The inverse hyperbolic tangent; NaN outside [-1, 1].",
    "cbrt": "The cube root.",
    "cos": "The cosine of an angle in radians.",
    "cosh": "The hyperbolic cosine.",
    "erf": "The error function.",
    "exp": "e to the power x.",
    "exp2": "2 to the power x.",
    "expm1": "exp(x) - 1, exact near zero.",
    "log": "The natural logarithm; NaN below zero.",
    "log1p": "log(1 + x), exact near zero.",
    "rsqrt": "1 / sqrt(x).",
    "sin": "The sine of an angle in radians.",
    "sinh": "The hyperbolic sine.",
    "sqrt": "The square root; NaN below zero.",
    "tan": "The tangent of an angle in radians.",
    "tanh": "The hyperbolic tangent.",
}
_WHOLE = {
    "ceil": ("ceil", "The least whole number that is not less."),
    "floor": ("floor", "The greatest whole number that is not greater."),
    "round": ("round_even", "The nearest whole number; halves go to the even one."),
    "trunc": ("trunc", "The whole part."),
}
_COMPARISONS = {
    "equal": ("eq", "=="),
    "not_equal": ("ne", "!="),
    "less": ("lt", "<"),
    "less_equal": ("le", "<="),
    "greater": ("gt", ">"),
    "greater_equal": ("ge", ">="),
}


def common_dtype(*operands: Any) -> DType:
    """What the operands promote to. Numbers and sizes count only where they are of a higher kind
    (boolean, integer, float) than all tensors."""
    strong = [
        element_type(each.dtype)
        for each in operands
        if isinstance(each, (Tensor, np.ndarray, np.generic))
    ]
    found = reduce(promoted, strong) if strong else None
    kinds = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
    for each in operands:
        if isinstance(each, (Tensor, np.ndarray, np.generic)):
            continue
        if not isinstance(each, (bool, int, float, complex, Size)):
            each = given(value_of(each)).dtype
            own = each
        elif isinstance(each, complex):
            own = complex_dtype(default_float() if found is None else found)
        elif isinstance(each, bool):
            own = dtype("i1")
        else:
            own = default_float() if isinstance(each, float) else default_int()
        if found is None or kinds[own.kind] > kinds[found.kind]:
            found = own
    assert found is not None
    return found


def together(*operands: Any, element: DType | None = None) -> list[Value]:
    """The operands in one dtype, that to which they promote, and in one shape."""
    trace = current()
    element = element or common_dtype(*operands)
    values = [trace.convert(value_of(each, element), element) for each in operands]
    return trace.broadcast(*values)


def floating(x: Any) -> Value:
    """x, or as the default float where it is none."""
    value = value_of(x, default_float() if isinstance(x, (int, Size)) else None)
    return value if type_of(value).dtype.is_float else current().convert(value, default_float())


def _named(function: Callable[..., Any], name: str, doc: str) -> None:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    public(function)


def _register_unary(name: str, doc: str) -> None:
    def call(x: Any, /) -> Tensor:
        return given(current().op(name, floating(x)))

    _named(call, name, doc)


def _register_whole(name: str, op: str, doc: str) -> None:
    def call(x: Any, /) -> Tensor:
        value = value_of(x)
        return given(current().op(op, value) if type_of(value).dtype.is_float else value)

    _named(call, name, doc)


def _register_comparison(name: str, direction: str, sign: str) -> None:
    def call(x1: Any, x2: Any, /) -> Tensor:
        return given(current().compare(direction, *together(x1, x2)))

    _named(call, name, f"Whether x1 {sign} x2.")


def _register_binary(name: str, op: str, boolean: str | None, doc: str) -> None:
    """`boolean`: the op that says the same of booleans; None: they are computed as integers."""

    def call(x1: Any, x2: Any, /) -> Tensor:
        a, b = together(x1, x2)
        if type_of(a).dtype.is_boolean:
            if boolean is None:
                raise UnsupportedNode("its operands are booleans: use the bitwise functions")
            return given(current().op(boolean, a, b))
        return given(current().op(op, a, b))

    _named(call, name, doc)


def _register_bits(name: str, op: str, doc: str) -> None:
    def call(x1: Any, x2: Any, /) -> Tensor:
        a, b = together(x1, x2)
        element = type_of(a).dtype
        if element.is_float or (element.is_boolean and op.startswith("shift")):
            raise UnsupportedNode(f"its operands are {element}, expected integers")
        chosen = op
        if op == "shift_right":
            chosen = "shift_right_arithmetic" if element.kind == "i" else "shift_right_logical"
        return given(current().op(chosen, a, b))

    _named(call, name, doc)


def _register_test(name: str, op: str, of_others: bool, doc: str) -> None:
    """`of_others`: what holds for all numbers that are no floats."""

    def call(x: Any, /) -> Tensor:
        value, trace = value_of(x), current()
        if type_of(value).dtype.is_float:
            return given(trace.op(op, value))
        return given(trace.full(of_others, "i1", shape_of(value)))

    _named(call, name, doc)


def _register_logical(name: str, op: str) -> None:
    def call(x1: Any, x2: Any, /) -> Tensor:
        return given(current().op(op, *together(x1, x2, element=dtype("i1"))))

    _named(call, name, f"Whether x1 is true {op} x2 is; numbers are true unless they are 0.")


def _register() -> None:
    for name, doc in _UNARY_FLOAT.items():
        _register_unary(name, doc)
    for name, (op, doc) in _WHOLE.items():
        _register_whole(name, op, doc)
    for name, (direction, sign) in _COMPARISONS.items():
        _register_comparison(name, direction, sign)
    _register_binary("add", "add", "or", "x1 + x2; integers wrap.")
    _register_binary("subtract", "sub", None, "x1 - x2; integers wrap.")
    _register_binary("multiply", "mul", "and", "x1 * x2; integers wrap.")
    _register_binary("maximum", "max", "or", "The greater one; NaN if one is NaN.")
    _register_binary("minimum", "min", "and", "The lesser one; NaN if one is NaN.")
    _register_bits("bitwise_and", "and", "Bits that are set in both.")
    _register_bits("bitwise_or", "or", "Bits that are set in one or both.")
    _register_bits("bitwise_xor", "xor", "Bits that are set in exactly one.")
    _register_bits("bitwise_left_shift", "shift_left", "x1 shifted to the left by x2 bits.")
    _register_bits("bitwise_right_shift", "shift_right", "x1 shifted to the right by x2 bits.")
    _register_test("isfinite", "is_finite", True, "Whether x is neither infinite nor NaN.")
    _register_test("isinf", "is_inf", False, "Whether x is plus or minus infinity.")
    _register_test("isnan", "is_nan", False, "Whether x is NaN.")
    _register_logical("logical_and", "and")
    _register_logical("logical_or", "or")
    _register_logical("logical_xor", "xor")


_register()


@public
def abs(x: Any, /) -> Tensor:
    """The absolute value."""
    value = value_of(x)
    if type_of(value).dtype.kind in "bu":
        return given(value)
    return given(current().op("abs", value))


@public
def negative(x: Any, /) -> Tensor:
    """-x; integers wrap."""
    return given(current().op("neg", _number(x)))


@public
def positive(x: Any, /) -> Tensor:
    """x."""
    return given(_number(x))


@public
def sign(x: Any, /) -> Tensor:
    """-1, 0 or 1; NaN stays NaN."""
    return given(current().op("sign", _number(x)))


@public
def square(x: Any, /) -> Tensor:
    """x * x."""
    value = _number(x)
    return given(current().op("mul", value, value))


def _number(x: Any) -> Value:
    value = value_of(x)
    if type_of(value).dtype.is_boolean:
        raise UnsupportedNode("its operand is boolean: convert it with ops.astype")
    return value


@public
def bitwise_invert(x: Any, /) -> Tensor:
    """Every bit flipped; of booleans the negation."""
    value = value_of(x)
    if type_of(value).dtype.is_float:
        raise UnsupportedNode(f"its operand is {value.type}, expected integers or booleans")
    return given(current().op("not", value))


@public
def logical_not(x: Any, /) -> Tensor:
    """Whether x is 0 or false."""
    return given(current().op("not", current().convert(value_of(x), "i1")))


def _floats(*operands: Any) -> list[Value]:
    """As `together`, in a floating-point dtype."""
    element = common_dtype(*operands)
    return together(*operands, element=element if element.is_float else default_float())


@public
def divide(x1: Any, x2: Any, /) -> Tensor:
    """x1 / x2; integers as the default float."""
    return given(current().op("div", *_floats(x1, x2)))


@public
def floor_divide(x1: Any, x2: Any, /) -> Tensor:
    """The greatest whole number not above x1 / x2."""
    return given(division.floor_divide(current(), *_numbers(x1, x2)))


@public
def remainder(x1: Any, x2: Any, /) -> Tensor:
    """What is left of x1, with the sign of x2."""
    trace = current()
    a, b = _numbers(x1, x2)
    rest = division.floor_remainder(trace, a, b)
    if type_of(rest).dtype.is_float:
        nothing = trace.compare("eq", rest, 0)
        zero = value_of(copysign(given(trace.fill(0, like=rest)), given(b)))
        rest = trace.op("select", nothing, zero, rest)
    return given(rest)


def _numbers(*operands: Any) -> list[Value]:
    """As `together`, booleans as integers."""
    element = common_dtype(*operands)
    return together(*operands, element=default_int() if element.is_boolean else element)


@public
def pow(x1: Any, x2: Any, /) -> Tensor:
    """x1 to the power x2; of integers a negative power is 0, 1 or -1."""
    trace = current()
    if isinstance(x2, (int, float)) and not isinstance(x2, (bool, np.generic)):
        value = _number(x1)
        if x2 == 2:
            return given(trace.op("mul", value, value))
        if x2 == 0.5:
            return given(trace.op("sqrt", floating(x1)))
    return given(trace.op("pow", *_numbers(x1, x2)))


@public
def atan2(x1: Any, x2: Any, /) -> Tensor:
    """The angle of the point (x2, x1) in radians."""
    return given(current().op("atan2", *_floats(x1, x2)))


@public
def hypot(x1: Any, x2: Any, /) -> Tensor:
    """sqrt(x1^2 + x2^2), without overflow on the way."""
    first, second = _floats(x1, x2)
    return given(absolute(Complex(current().builder), (first, second)))


@public
def logaddexp(x1: Any, x2: Any, /) -> Tensor:
    """log(exp(x1) + exp(x2)), without overflow on the way."""
    return given(log_of_sum(current(), *_floats(x1, x2)))


def _logarithm(x: Any, base: float) -> Tensor:
    trace = current()
    value = floating(x)
    element = type_of(value).dtype
    wide = trace.op("log", trace.convert(value, "f32") if element.is_half else value)
    scaled = trace.op("div", wide, math.log(base))
    return given(trace.convert(scaled, element))


@public
def log2(x: Any, /) -> Tensor:
    """The logarithm to the base 2."""
    return _logarithm(x, 2)


@public
def log10(x: Any, /) -> Tensor:
    """The logarithm to the base 10."""
    return _logarithm(x, 10)


@public
def reciprocal(x: Any, /) -> Tensor:
    """1 / x."""
    value = floating(x)
    return given(current().op("div", 1, value))


@public
def signbit(x: Any, /) -> Tensor:
    """Whether x has a minus; a zero may have one."""
    return given(_has_minus(floating(x)))


def _has_minus(value: Value) -> Value:
    trace = current()
    bits = trace.op("bitcast", value, dtype=dtype(f"i{type_of(value).dtype.bits}"))
    return trace.compare("lt", bits, 0)


@public
def copysign(x1: Any, x2: Any, /) -> Tensor:
    """x1 with the sign of x2."""
    trace = current()
    a, b = _floats(x1, x2)
    plain = trace.op("abs", a)
    return given(trace.op("select", _has_minus(b), trace.op("neg", plain), plain))


@public
def nextafter(x1: Any, x2: Any, /) -> Tensor:
    """The float next to x1 in the direction of x2."""
    return given(next_after(current(), *_floats(x1, x2)))


@public
def clip(x: Any, /, min: Any = None, max: Any = None) -> Tensor:
    """x, not below `min` and not above `max`."""
    trace = current()
    value = _number(x)
    for op, bound in (("max", min), ("min", max)):
        if bound is not None:
            limit = trace.convert(value_of(bound, type_of(value).dtype), type_of(value).dtype)
            value = trace.op(op, *trace.broadcast(value, limit))
    return given(value)


@public
def where(condition: Any, x1: Any, x2: Any, /) -> Tensor:
    """x1 where the condition holds, else x2."""
    trace = current()
    chosen = trace.convert(value_of(condition), "i1")
    return given(trace.op("select", *trace.broadcast(chosen, *together(x1, x2))))


@public
def sigmoid(x: Any, /) -> Tensor:
    """1 / (1 + exp(-x))."""
    return given(current().op("logistic", floating(x)))


@public
def relu(x: Any, /) -> Tensor:
    """x, or 0 where it is less."""
    value = _number(x)
    return given(current().op("max", value, 0))

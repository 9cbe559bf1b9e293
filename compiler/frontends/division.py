"""Division that rounds down, as Python has it."""

from __future__ import annotations

from ingot.compiler.frontends.emitter import Emitter, type_of
from ingot.compiler.ir import Value

__all__ = ["floor_divide", "floor_remainder"]


def floor_divide(c: Emitter, a: Value, b: Value) -> Value:
    """The greatest whole number not above a / b, both of one dtype and shape."""
    quotient = c.op("div", a, b)
    element = type_of(quotient).dtype
    if element.is_float:
        # as Python has it: of the exact quotient, not the rounded one
        exact = c.op("div", c.op("sub", a, floor_remainder(c, a, b)), b)
        whole = c.op("round_even", exact)
        none = c.compare("eq", whole, 0)
        whole = c.op("select", none, c.op("mul", quotient, 0), whole)
        # what is left of a finite a by an infinite b of the other sign is infinite, too
        whole = c.op("select", c.op("is_nan", exact), -1, whole)
        zero = c.compare("eq", b, 0)
        infinite = c.op("not", c.op("is_finite", quotient))
        return c.op("select", c.op("or", zero, infinite), quotient, whole)
    if element.kind == "u":
        return quotient
    inexact = c.compare("ne", c.op("rem", a, b), 0)
    negative = c.compare("lt", c.op("xor", a, b), 0)
    below = c.op("sub", quotient, 1)
    return c.op("select", c.op("and", inexact, negative), below, quotient)


def floor_remainder(c: Emitter, a: Value, b: Value) -> Value:
    """What is left of a, with the sign of b."""
    rest = c.op("rem", a, b)
    if type_of(a).dtype.kind == "u":
        return rest
    zero = c.fill(0, like=a)
    differs = c.op("xor", c.compare("lt", rest, zero), c.compare("lt", b, zero))
    adjusts = c.op("and", differs, c.compare("ne", rest, zero))
    return c.op("select", adjusts, c.op("add", rest, b), rest)

"""Functions of two numbers that no op is."""

from __future__ import annotations

from ingot.compiler.frontends.emitter import Emitter, type_of
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__ = ["log_of_sum", "next_after"]


def log_of_sum(c: Emitter, a: Value, b: Value) -> Value:
    """log(exp(a) + exp(b)), without overflow on the way."""
    greatest = c.op("max", a, b)
    less = c.op("neg", c.op("abs", c.op("sub", a, b)))
    found = c.op("add", greatest, c.op("log1p", c.op("exp", less)))
    return c.op("select", c.op("is_inf", greatest), greatest, found)


def next_after(c: Emitter, a: Value, b: Value) -> Value:
    """The float next to a on the way to b. Away from zero its bits as an integer grow; next to zero
    is the least float with the sign of b."""
    element = type_of(a).dtype
    bits = c.op("bitcast", a, dtype=dtype(f"i{element.bits}"))
    one = c.fill(1, like=bits)
    grows = c.compare("eq", c.compare("lt", a, b), c.compare("gt", a, 0))
    moved = c.op("add", bits, c.op("select", grows, one, -1))
    least = c.op("bitcast", one, dtype=element)
    least = c.op("select", c.compare("lt", b, 0), c.op("neg", least), least)
    found = c.op("bitcast", moved, dtype=element)
    found = c.op("select", c.compare("eq", a, 0), least, found)
    found = c.op("select", c.compare("eq", a, b), b, found)
    is_none = c.op("or", c.op("is_nan", a), c.op("is_nan", b))
    return c.op("select", is_none, c.op("add", a, b), found)

"""Arithmetic on sizes: symbolic integers, and numbers that are read from tensors."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from ingot.compiler.frontends.division import floor_divide, floor_remainder
from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.symbols import Atom
from ingot.compiler.frontends.torch.complex_values import complex_lowering
from ingot.compiler.frontends.torch.expressions import power_of_two
from ingot.compiler.frontends.torch.lowering import Context, Scalar, lowering
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim, Expr

__all__ = ["as_dim"]

_F64 = "f64"


@lowering("aten.sym_size.int", "aten.size.int")
def size(c: Context, x: Value, axis: int) -> Dim:
    return shape_of(x)[c.axis(axis, x)]


@lowering("aten.sym_numel.default", "aten.numel.default")
def count(c: Context, x: Value) -> Dim:
    return dims.product(shape_of(x))


def _whole(a: Any, b: Any) -> bool:
    return isinstance(a, (int, Expr)) and isinstance(b, (int, Expr))


def _register(name: str, of_dims: Callable[..., Any], of_values: str | Callable[..., Any]) -> None:
    """An op on two numbers: as dims, or in f64 where one is a float that only the call knows."""

    def lower(c: Context, a: Scalar, b: Scalar) -> Any:
        if _whole(a, b):
            return of_dims(a, b)
        if isinstance(a, float) and isinstance(b, (int, float)):
            return of_dims(a, b)
        values = (c.scalar(a, _F64), c.scalar(b, _F64))
        return c.op(of_values, *values) if isinstance(of_values, str) else of_values(c, *values)

    lowering(f"_operator.{name}")(lower)


_register("add", lambda a, b: a + b, "add")
_register("sub", lambda a, b: a - b, "sub")
_register("mul", lambda a, b: a * b, "mul")
_register("floordiv", dims.floordiv, floor_divide)
_register("mod", dims.modulo, floor_remainder)


def _register_shift(name: str, of_dims: Callable[[Dim, int], Dim], kind: str) -> None:
    def lower(c: Context, a: Dim, b: Dim) -> Dim:
        if isinstance(b, int):
            return of_dims(a, power_of_two(b))
        return as_dim(c, c.op(kind, c.scalar(a, "i64"), c.scalar(b, "i64")))

    lowering(f"_operator.{name}")(lower)


_register_shift("lshift", lambda a, b: a * b, "shift_left")
_register_shift("rshift", dims.floordiv, "shift_right_arithmetic")


@lowering("torch.sym_sum")
def summed(c: Context, *terms: Any) -> Dim:
    """Of sizes that come as a list or one by one."""
    listed = terms[0] if len(terms) == 1 and isinstance(terms[0], (list, tuple)) else terms
    return sum(listed)


@lowering("_operator.pow")
def power(c: Context, a: Any, b: Any) -> Any:
    """A small power of a size is a size, any other one an f64."""
    if isinstance(b, int) and 0 <= b <= 8 and _whole(a, b):
        return dims.product([a] * b)
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a**b
    return c.op("pow", c.scalar(a, _F64), c.scalar(b, _F64))


@lowering("_operator.neg")
def negative(c: Context, a: Scalar) -> Any:
    return c.op("neg", a) if isinstance(a, Value) else a * -1


@lowering("_operator.pos")
def positive(c: Context, a: Any) -> Any:
    return a


@lowering("_operator.abs")
def magnitude(c: Context, a: Any) -> Any:
    return c.op("abs", a) if isinstance(a, Value) else dims.maximum(a, a * -1)


@lowering("torch.sym_max")
def greatest(c: Context, a: Dim, b: Dim) -> Dim:
    return dims.maximum(a, b)


@lowering("torch.sym_min")
def least(c: Context, a: Dim, b: Dim) -> Dim:
    return dims.minimum(a, b)


@lowering("torch.sym_ite")
def chosen(c: Context, condition: Any, a: Dim, b: Dim) -> Dim:
    """One of two sizes, by what is known of sizes, or by what the call finds, which is read."""
    if not _whole(a, b):
        raise UnsupportedNode("it chooses between floats: use torch.where")
    known = None if isinstance(condition, Value) else c.amounts.symbols.decide(condition)
    if known is not None:
        return a if known else b
    ends = (c.scalar(each, "i64") for each in (a, b))
    return as_dim(c, c.op("select", c.truth(condition), *ends))


@lowering("torch.sym_float")
def as_float(c: Context, a: Scalar) -> Any:
    return float(a) if isinstance(a, (int, float)) else c.scalar(a, _F64)


@lowering("_operator.truediv")
def divide(c: Context, a: Scalar, b: Scalar) -> Any:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a / b
    return c.op("div", c.scalar(a, _F64), c.scalar(b, _F64))


@lowering("torch._sym_sqrt", "torch.sym_sqrt")
def square_root(c: Context, a: Scalar) -> Any:
    if isinstance(a, (int, float)):
        return math.sqrt(a)
    return c.op("sqrt", c.scalar(a, _F64))


@lowering("math.trunc", "torch.sym_int")
def truncate(c: Context, a: Any) -> Dim:
    if isinstance(a, (int, Expr)):
        return a
    if isinstance(a, float):
        return math.trunc(a)
    return as_dim(c, c.convert(a, "i64"))


def _rounded(op: str, of_number: Callable[[float], int]) -> Callable[..., Dim]:
    def lower(c: Context, a: Any, digits: int | None = None) -> Dim:
        if digits is not None:
            raise UnsupportedNode("it rounds a size to decimals: round to a whole number")
        if isinstance(a, (int, Expr)):
            return a
        if isinstance(a, float):
            return of_number(a)
        return as_dim(c, c.convert(c.op(op, c.scalar(a, _F64)), "i64"))

    return lower


lowering("math.floor")(_rounded("floor", math.floor))
lowering("math.ceil")(_rounded("ceil", math.ceil))
lowering("builtins.round")(_rounded("round_even", round))


def _compared(direction: str) -> Callable[..., Any]:
    def lower(c: Context, a: Scalar, b: Scalar) -> Any:
        if isinstance(a, (int, Expr)) and isinstance(b, (int, Expr)):
            return [(Atom(direction, a - b),)]  # one result, a conjunction
        return c.compare(direction, c.scalar(a, _F64), c.scalar(b, _F64))

    return lower


for _direction in ("eq", "ne", "lt", "le", "gt", "ge"):
    lowering(f"_operator.{_direction}")(_compared(_direction))


def _register_bits(name: str, kind: str, of_numbers: Callable[[int, int], int]) -> None:
    def lower(c: Context, a: Any, b: Any) -> Any:
        if isinstance(a, int) and isinstance(b, int):
            return of_numbers(a, b)
        if kind == "and" and isinstance(a, tuple) and isinstance(b, tuple):
            return [(*a, *b)]
        if _whole(a, b) and not isinstance(a, bool) and not isinstance(b, bool):
            return as_dim(c, c.op(kind, c.scalar(a, "i64"), c.scalar(b, "i64")))
        return c.op(kind, c.truth(a), c.truth(b))

    lowering(f"_operator.{name}")(lower)


_register_bits("and_", "and", operator.and_)
_register_bits("or_", "or", operator.or_)
_register_bits("xor", "xor", operator.xor)


@lowering("torch.sym_not")
def opposite(c: Context, a: Any) -> Value:
    return c.op("not", c.truth(a))


@lowering("aten._assert_scalar.default", "aten._assert_async.msg")
def check(c: Context, condition: Any, *_: Any) -> list[Any]:
    """What torch assumed of sizes, which the call checks where it is not known."""
    for atom in condition if isinstance(condition, tuple) else ():
        if not isinstance(atom, Atom) or c.amounts.symbols.decide((atom,)):
            continue
        zero_or_more = {
            "ge": atom.difference,
            "gt": atom.difference - 1,
            "le": atom.difference * -1,
            "lt": atom.difference * -1 - 1,
        }.get(atom.direction)
        if atom.direction == "eq":
            c.builder.append("assert", (), (), {"a": atom.difference, "b": 0})
        elif zero_or_more is not None:
            c.builder.append("assert", (), (), {"kind": "le", "a": 0, "b": zero_or_more})
    return []


@complex_lowering("aten._assert_tensor_metadata.default")
@lowering("aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default",
          "aten._assert_tensor_metadata.default")  # fmt: skip
def nothing(c: Context, *_: Any, **__: Any) -> list[Any]:
    return []


@lowering("aten.item.default", "aten._local_scalar_dense.default")
def item(c: Context, x: Value) -> Any:
    """An integer is a size; other numbers stay values."""
    x = c.reshape(x, ())
    if type_of(x).dtype.is_integer:
        return as_dim(c, x)
    return x if type_of(x).dtype.is_boolean else c.convert(x, _F64)


def as_dim(c: Context, x: Value) -> Dim:
    """A number of rank 0 as a size that the call knows."""
    (part,) = c.amounts.parts(c.builder, x)
    if not isinstance(part, Value):
        return part
    low, high = c.bounds(c.hint)
    what = f"the number '{c.hint}'"
    if low is None:
        name = f"{c.hint}_"
        return c.amounts.define_amount(c.builder, part, lambda side: c.fresh(name + side), what)
    return c.amounts.define_size(c.builder, part, partial(c.fresh, c.hint), what, low, high)

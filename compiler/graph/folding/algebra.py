"""Algebraic rules on element-wise ops, as data: left side, right side, dtypes, condition.

A side is text such as `mul(x, 1)`: letters are any values (the same letter the same
value), a number is a tensor of that number throughout (0 and -0.0 differ). A rule holds
bit for bit for every dtype of its class, NaN and signed zeros included, unless it names
an error in ulp. A test proves each one on random numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import cache

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.references.numbers import widen
from ingot.compiler.graph.rewriter import splat_of
from ingot.compiler.ir import Op, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.spec import DType

__all__ = ["RULES", "AlgebraRule", "Term", "apply_rules", "parse_term"]

_COMMUTATIVE = frozenset({"add", "mul", "max", "min", "and", "or", "xor"})


@dataclass(frozen=True)
class Term:
    """An op of terms, a letter (no operands), or a number (its text in `name`)."""

    name: str
    operands: tuple[Term, ...] = ()

    @property
    def is_number(self) -> bool:
        return self.name[0] in "-0123456789" or self.name in ("inf", "nan")


@cache
def parse_term(text: str) -> Term:
    """Read one side of a rule. Raises ValueError if it is not readable."""
    tokens = re.findall(r"[-\w.]+|[(),]", text)
    term, end = _parse(tokens, 0)
    if end != len(tokens):
        raise ValueError(f"rule {text!r} goes on after its end")
    return term


def _parse(tokens: Sequence[str], at: int) -> tuple[Term, int]:
    name = tokens[at]
    at += 1
    operands: list[Term] = []
    if at < len(tokens) and tokens[at] == "(":
        while tokens[at] != ")":
            term, at = _parse(tokens, at + 1)
            operands.append(term)
        at += 1
    return Term(name, tuple(operands)), at


@dataclass(frozen=True)
class AlgebraRule:
    """`left` becomes `right` for operands of the dtype kinds in `kinds` (f i u b).

    Kind w is floats of 32 bits and more, where no step between overflows visibly.

    `power_of_two` names a letter that must be a constant power of two, of which `reciprocal`
    may be taken on the right. `ulp` is the greatest
    change of the result.
    """

    left: str
    right: str
    kinds: str
    ulp: float = 0
    power_of_two: str = ""


_ROOTABLE = "select(is_inf(x), inf, add(x, 0))"

RULES = (
    AlgebraRule("add(x, 0)", "x", "iu"),
    AlgebraRule("add(x, -0.0)", "x", "f"),
    AlgebraRule("sub(x, 0)", "x", "fiu"),
    AlgebraRule("sub(x, x)", "0", "iu"),
    AlgebraRule("add(x, neg(y))", "sub(x, y)", "fiu"),
    AlgebraRule("sub(x, neg(y))", "add(x, y)", "fiu"),
    AlgebraRule("sub(-0.0, x)", "neg(x)", "f"),
    AlgebraRule("sub(0, x)", "neg(x)", "iu"),
    AlgebraRule("mul(x, 1)", "x", "fiu"),
    AlgebraRule("mul(x, -1)", "neg(x)", "fi"),
    AlgebraRule("mul(x, 0)", "0", "iu"),
    AlgebraRule("div(x, 1)", "x", "fiu"),
    AlgebraRule("div(x, c)", "mul(x, reciprocal(c))", "f", power_of_two="c"),
    AlgebraRule("div(1, sqrt(x))", "rsqrt(x)", "f", ulp=2),
    AlgebraRule("div(x, sqrt(y))", "mul(x, rsqrt(y))", "f", ulp=3),
    AlgebraRule("div(1, add(exp(neg(x)), 1))", "logistic(x)", "w", ulp=4),
    AlgebraRule("pow(x, 1)", "x", "fiu"),
    AlgebraRule("pow(x, 2)", "mul(x, x)", "fiu", ulp=1),
    AlgebraRule("pow(x, 3)", "mul(mul(x, x), x)", "fiu", ulp=2),
    AlgebraRule("pow(x, 4)", "mul(mul(x, x), mul(x, x))", "fiu", ulp=3),
    AlgebraRule("pow(x, 5)", "mul(mul(mul(x, x), mul(x, x)), x)", "fiu", ulp=4),
    AlgebraRule("pow(x, 0)", "1", "fiu"),
    AlgebraRule("pow(x, -1)", "div(1, x)", "f", ulp=1),
    AlgebraRule("pow(x, -2)", "mul(div(1, x), div(1, x))", "f", ulp=3),
    # A power of -0 is that of 0, and one of -inf that of inf: their roots are not.
    AlgebraRule("pow(x, 0.5)", f"sqrt({_ROOTABLE})", "f", ulp=1),
    AlgebraRule("pow(x, -0.5)", f"rsqrt({_ROOTABLE})", "f", ulp=2),
    AlgebraRule("pow(x, 0.25)", f"sqrt(sqrt({_ROOTABLE}))", "f", ulp=1),
    AlgebraRule("pow(x, 0.75)", f"mul(sqrt({_ROOTABLE}), sqrt(sqrt({_ROOTABLE})))", "f", ulp=3),
    AlgebraRule("pow(x, 1.5)", f"mul(abs(x), sqrt({_ROOTABLE}))", "f", ulp=2),
    AlgebraRule("pow(x, 2.5)", f"mul(mul(x, x), sqrt({_ROOTABLE}))", "f", ulp=3),
    AlgebraRule("neg(neg(x))", "x", "fiu"),
    AlgebraRule("abs(neg(x))", "abs(x)", "fi"),
    AlgebraRule("abs(abs(x))", "abs(x)", "fi"),
    AlgebraRule("abs(x)", "x", "u"),
    AlgebraRule("not(not(x))", "x", "iub"),
    AlgebraRule("max(x, x)", "x", "fiub"),
    AlgebraRule("min(x, x)", "x", "fiub"),
    AlgebraRule("max(max(x, y), y)", "max(x, y)", "fiub"),
    AlgebraRule("min(min(x, y), y)", "min(x, y)", "fiub"),
    AlgebraRule("max(x, -inf)", "x", "f"),
    AlgebraRule("min(x, inf)", "x", "f"),
    AlgebraRule("and(x, x)", "x", "iub"),
    AlgebraRule("and(x, 0)", "0", "iub"),
    AlgebraRule("or(x, x)", "x", "iub"),
    AlgebraRule("or(x, 0)", "x", "iub"),
    AlgebraRule("and(x, 1)", "x", "b"),
    AlgebraRule("or(x, 1)", "1", "b"),
    AlgebraRule("xor(x, x)", "0", "iub"),
    AlgebraRule("xor(x, 0)", "x", "iub"),
    AlgebraRule("shift_left(x, 0)", "x", "iu"),
    AlgebraRule("shift_right_logical(x, 0)", "x", "iu"),
    AlgebraRule("shift_right_arithmetic(x, 0)", "x", "iu"),
    AlgebraRule("select(1, x, y)", "x", "fiub"),
    AlgebraRule("select(0, x, y)", "y", "fiub"),
    AlgebraRule("select(p, x, x)", "x", "fiub"),
    AlgebraRule("select(not(p), x, y)", "select(p, y, x)", "fiub"),
)


_Numbers = dict[Value, float | None]
"""What all elements of values are, where it is one number: of those that were looked at."""


def _rules_by_op() -> dict[str, tuple[tuple[AlgebraRule, Term], ...]]:
    """Rules with their left sides."""
    table: dict[str, tuple[tuple[AlgebraRule, Term], ...]] = {}
    for rule in RULES:
        left = parse_term(rule.left)
        table[left.name] = (*table.get(left.name, ()), (rule, left))
    return table


_RULES_BY_OP = _rules_by_op()


def apply_rules(op: Op, builder: Builder) -> Sequence[Value] | None:
    """The value that the first fitting rule puts in place of the op's result, or None."""
    rules = _RULES_BY_OP.get(op.name, ())
    if not rules:
        return None
    dtype, numbers = tensor_type(op.result).dtype, _Numbers()
    wide = "w" if dtype.is_float and dtype.bits >= 32 else ""
    for rule, left in rules:
        if dtype.kind not in rule.kinds and (not wide or wide not in rule.kinds):
            continue
        bound: dict[str, Value] = {}
        if not _match_operands(left, op, bound, numbers):
            continue
        if rule.power_of_two and not _is_power_of_two(bound[rule.power_of_two], dtype):
            continue
        return [_build(parse_term(rule.right), op, bound, builder)]
    return None


def _match(term: Term, value: Value, bound: dict[str, Value], numbers: _Numbers) -> bool:
    if term.is_number:
        return _is_number(value, term.name, numbers)
    if not term.operands:
        return bound.setdefault(term.name, value) is value
    owner = value.owner
    if not isinstance(owner, Op) or owner.name != term.name:
        return False
    return _match_operands(term, owner, bound, numbers)


def _match_operands(term: Term, op: Op, bound: dict[str, Value], numbers: _Numbers) -> bool:
    orders = [op.operands]
    if op.name in _COMMUTATIVE:
        orders.append(op.operands[::-1])
    for operands in orders:
        trial = dict(bound)
        for each, value in zip(term.operands, operands, strict=True):
            if not _match(each, value, trial, numbers):
                break
        else:
            bound.update(trial)
            return True
    return False


def _is_number(value: Value, text: str, numbers: _Numbers) -> bool:
    if value not in numbers:
        splat = splat_of(value)
        numbers[value] = None if splat is None else float(widen(np.asarray(splat)))
    number = numbers[value]
    if number is None:
        return False
    wanted = float(text)
    return number == wanted and math.copysign(1, number) == math.copysign(1, wanted)


def _is_power_of_two(value: Value, dtype: DType) -> bool:
    """Whether value and its reciprocal are exact, normal powers of two."""
    splat = splat_of(value)
    if splat is None:
        return False
    number = float(widen(np.asarray(splat)))
    if number == 0 or not math.isfinite(number):
        return False
    mantissa, exponent = math.frexp(number)
    return abs(mantissa) == 0.5 and abs(exponent - 1) < max(dtype.bias, 1)


def _build(term: Term, op: Op, bound: dict[str, Value], builder: Builder) -> Value:
    if term.is_number:
        type = tensor_type(op.result)
        number = float(term.name)
        return builder.full(number if type.dtype.is_float else int(number), type.dtype, type.shape)
    if not term.operands:
        return bound[term.name]
    if term.name == "reciprocal":
        return _reciprocal(bound[term.operands[0].name], builder)
    operands = [_build(each, op, bound, builder) for each in term.operands]
    return builder.value(term.name, *operands)


def _reciprocal(value: Value, builder: Builder) -> Value:
    """1 / c of a constant c throughout, as a constant."""
    type = tensor_type(value)
    return builder.full(1 / float(widen(np.asarray(splat_of(value)))), type.dtype, type.shape)

"""Reads the text of a symbolic dim."""

from __future__ import annotations

import re

from ingot.compiler.ir.dims import Dim, symbol
from ingot.compiler.ir.polynomials import FUNCTIONS
from ingot.hal.errors import CompileError

__all__ = ["parse_dim"]

_TOKEN = re.compile(r"\s*([A-Za-z_][\w.']*|\d+|[-+*(),])")
_ANY_COUNT = frozenset({"min", "max", "broadcast"})


_GREATEST_TEXT = 1 << 20
_GREATEST_DIGITS = 39  # of 127 bits


def parse_dim(text: str) -> Dim:
    """Read what `str(dim)` wrote. Raises ValueError that quotes the text."""
    if len(text) > _GREATEST_TEXT:
        raise ValueError(f"a dim expression has {len(text)} characters, at most {_GREATEST_TEXT}")
    try:
        return _parse(text)
    except ZeroDivisionError:
        raise ValueError(f"dim expression {text[:80]!r} divides by 0") from None
    except RecursionError:
        raise ValueError(f"dim expression {text[:80]!r} is nested too deep") from None
    except CompileError as error:
        raise ValueError(f"dim expression {text[:80]!r}: {error}") from None


def _parse(text: str) -> Dim:
    tokens: list[str] = []
    position = 0
    stripped = text.strip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None:
            raise ValueError(f"dim expression {text!r} is not readable at column {position}")
        tokens.append(match.group(1))
        position = match.end()
    result, end = _parse_sum(tokens, 0, text)
    if end != len(tokens):
        raise ValueError(f"dim expression {text!r} goes on after its end with {tokens[end]!r}")
    return result


def _parse_sum(tokens: list[str], at: int, text: str) -> tuple[Dim, int]:
    total: Dim = 0
    sign = 1
    if at < len(tokens) and tokens[at] in "+-":
        sign, at = (-1 if tokens[at] == "-" else 1), at + 1
    while True:
        term, at = _parse_factor(tokens, at, text)
        while at < len(tokens) and tokens[at] == "*":
            factor, at = _parse_factor(tokens, at + 1, text)
            term = term * factor
        total = total + term * sign
        if at >= len(tokens) or tokens[at] not in "+-":
            return total, at
        sign, at = (-1 if tokens[at] == "-" else 1), at + 1


def _parse_factor(tokens: list[str], at: int, text: str) -> tuple[Dim, int]:
    if at >= len(tokens) or tokens[at] in "+*,)":
        raise ValueError(f"dim expression {text!r} ends where an operand was expected")
    token = tokens[at]
    if token == "(":
        inner, at = _parse_sum(tokens, at + 1, text)
        return inner, _expect(tokens, at, ")", text)
    if token.isdigit():
        if len(token) > _GREATEST_DIGITS:
            raise ValueError(f"dim expression {text[:80]!r} has a number of {len(token)} digits")
        return int(token), at + 1
    if token in FUNCTIONS and at + 1 < len(tokens) and tokens[at + 1] == "(":
        first, at = _parse_sum(tokens, at + 2, text)
        second, at = _parse_sum(tokens, _expect(tokens, at, ",", text), text)
        result = FUNCTIONS[token](first, second)
        while token in _ANY_COUNT and at < len(tokens) and tokens[at] == ",":
            second, at = _parse_sum(tokens, at + 1, text)
            result = FUNCTIONS[token](result, second)
        return result, _expect(tokens, at, ")", text)
    return symbol(token), at + 1


def _expect(tokens: list[str], at: int, token: str, text: str) -> int:
    if at >= len(tokens) or tokens[at] != token:
        got = tokens[at] if at < len(tokens) else "the end"
        raise ValueError(f"dim expression {text!r}: expected {token!r}, got {got!r}")
    return at + 1

"""Sizes as torch writes them: "Add(Mul(Integer(2), Symbol('s0', positive=True)), Integer(1))"."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

from ingot.compiler.ir import dims
from ingot.compiler.ir.dims import Dim

__all__ = ["parse_dim", "power_of_two", "symbol_dim"]

_LONGEST = 10_000  # characters
_GREATEST_PART = 1 << 16  # of a fraction
_CHECKED = 1 << 10  # multiples of a fraction that must be what floats give: .29 * 100 is below 29


def power_of_two(bits: Dim) -> int:
    """What a size is multiplied or divided by, that is shifted. ValueError: beyond all sizes."""
    if not isinstance(bits, int) or not 0 <= bits < 63:
        raise ValueError(f"a size is shifted by {str(bits)[:80]}, expected 0 to 62")
    return 1 << bits


_FUNCTIONS: dict[str, Callable[..., Dim]] = {
    "Add": lambda *each: reduce(lambda a, b: a + b, each),
    "Mul": lambda *each: dims.product(each),
    "Max": lambda *each: reduce(dims.maximum, each),
    "Min": lambda *each: reduce(dims.minimum, each),
    "FloorDiv": dims.floordiv,
    "CleanDiv": dims.floordiv,
    "CeilDiv": dims.ceildiv,
    "Mod": dims.modulo,
    "PythonMod": dims.modulo,
    "Identity": lambda each: each,
    "Abs": lambda each: dims.maximum(each, each * -1),
    "LShift": lambda a, b: a * power_of_two(b),
    "RShift": lambda a, b: dims.floordiv(a, power_of_two(b)),
}
_RELATIONS: dict[str, Callable[..., Dim]] = {  # 1 where it holds, else 0
    "StrictGreaterThan": lambda a, b: dims.minimum(dims.maximum(a - b, 0), 1),
    "GreaterThan": lambda a, b: dims.minimum(dims.maximum(a - b + 1, 0), 1),
    "StrictLessThan": lambda a, b: dims.minimum(dims.maximum(b - a, 0), 1),
    "LessThan": lambda a, b: dims.minimum(dims.maximum(b - a + 1, 0), 1),
    "Unequality": lambda a, b: dims.minimum(dims.maximum(a - b, b - a), 1),
    "Equality": lambda a, b: 1 - dims.minimum(dims.maximum(a - b, b - a), 1),
    "And": lambda *each: dims.product(each),
    "Or": lambda *each: reduce(dims.maximum, each),
    "Not": lambda each: 1 - each,
}


_ROUNDED: dict[str, Callable[[Dim, int], Dim]] = {
    "CeilToInt": dims.ceildiv,
    "FloorToInt": dims.floordiv,
    "TruncToInt": dims.floordiv,  # of sizes, which are not negative
}


def parse_dim(text: Any, symbol: Callable[[str], Dim]) -> Dim:
    """The dim that an expression is. ValueError: it is none that is known."""
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise ValueError(f"the size {str(text)[:80]!r} is no expression that can be read")
    tree = ast.parse(text, mode="eval").body
    try:
        return _dim(tree, symbol)
    except (IndexError, TypeError):  # more arguments than a function takes, or fewer
        raise ValueError(f"the size {text[:80]!r} is no expression that is known") from None


def symbol_dim(name: str) -> Dim:
    """The symbol with this name, which is checked."""
    if not re.fullmatch(r"[A-Za-z_]\w{0,63}", name):
        raise ValueError(f"the symbol {name[:80]!r} has no name that a dim can have")
    return dims.symbol(name)


def _dim(tree: ast.expr, symbol: Callable[[str], Dim]) -> Dim:
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or not tree.args:
        raise ValueError(f"the size {ast.unparse(tree)[:80]!r} is no expression that is known")
    name, first = tree.func.id, tree.args[0]
    if name == "Symbol" and isinstance(first, ast.Constant) and isinstance(first.value, str):
        return symbol(first.value)
    if name == "Integer":
        return _integer(first)
    if name == "Pow" and len(tree.args) == 2:
        power = _dim(tree.args[1], symbol)
        if isinstance(power, int) and 0 <= power <= 8:
            return dims.product([_dim(first, symbol)] * power)
    if name == "Piecewise":
        return _chosen(tree.args, symbol)
    if name in _ROUNDED:
        return _ROUNDED[name](*_ratio(first, symbol))
    if name not in _FUNCTIONS:
        raise ValueError(f"sizes with {name} are not supported: {ast.unparse(tree)[:200]}")
    return _FUNCTIONS[name](*(_dim(each, symbol) for each in tree.args))


def _chosen(pairs: Sequence[ast.expr], symbol: Callable[[str], Dim]) -> Dim:
    """The first of several sizes whose condition holds."""
    result: Dim = 0
    for pair in reversed(pairs):
        if not isinstance(pair, ast.Call) or len(pair.args) != 2:
            raise ValueError(f"{ast.unparse(pair)[:80]!r} is no size with a condition")
        size, holds = _dim(pair.args[0], symbol), _condition(pair.args[1], symbol)
        result = dims.product((size, holds)) + dims.product((result, 1 - holds))
    return result


def _condition(tree: ast.expr, symbol: Callable[[str], Dim]) -> Dim:
    """1 where it holds, else 0."""
    if isinstance(tree, ast.Name) and tree.id in ("true", "false"):
        return int(tree.id == "true")
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise ValueError(f"{ast.unparse(tree)[:80]!r} is no condition")
    name = tree.func.id
    if name not in _RELATIONS:
        raise ValueError(f"sizes with {name} are not supported: {ast.unparse(tree)[:200]}")
    read = _condition if name in ("And", "Or", "Not") else _dim
    return _RELATIONS[name](*(read(each, symbol) for each in tree.args))


def _ratio(tree: ast.expr, symbol: Callable[[str], Dim]) -> tuple[Dim, int]:
    """A number that torch computes as a float and rounds to a size: a dim, and what divides it."""
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        return _dim(tree, symbol), 1
    name = tree.func.id
    if name == "Float":
        value = float(ast.literal_eval(tree.args[0]))
        above, below = Fraction(repr(value)).as_integer_ratio()  # 2/5 of 0.4000000000000000222
        is_small = max(abs(above), below) <= _GREATEST_PART
        if is_small and all(value * (below * each) == above * each for each in range(_CHECKED)):
            return above, below
    if name == "ToFloat":
        return _dim(tree.args[0], symbol), 1
    if name in ("Add", "Mul", "FloatTrueDiv", "IntTrueDiv"):
        parts = [_ratio(each, symbol) for each in tree.args]
        divisor = math.prod(part[1] for part in parts)
        if name == "Add":
            return _FUNCTIONS["Add"](*(a * (divisor // b) for a, b in parts)), divisor
        if name == "Mul":
            return dims.product(part[0] for part in parts), divisor
        (a, b), (by, of) = parts
        if isinstance(by, int) and by:
            return a * (of if by > 0 else -of), b * abs(by)
    return _dim(tree, symbol), 1


def _integer(tree: ast.expr) -> int:
    sign = 1
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        sign, tree = -1, tree.operand
    if not isinstance(tree, ast.Constant) or type(tree.value) is not int:
        raise ValueError(f"{ast.unparse(tree)[:80]!r} is no integer")
    return sign * tree.value

"""Recognise what the region of a reduce, window or scatter op computes.

A body that combines each pair of elements by one op has a kind: add, mul, max and so on. A
body that carries a value and its index is an arg_max or arg_min: it only compares and
selects, so it is decided by running it on every order that two values can have, NaN included,
where the index of the first is the smaller one, as in a reduction from front to back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ingot.compiler.frontends.stablehlo.reading.program import (
    Constant,
    SourceBlock,
    SourceOp,
    SourceValue,
    TensorType,
)
from ingot.hal.spec import DTYPES

__all__ = ["arg_kind", "body_of", "combination", "reduction_kinds"]

_KINDS = {
    "add": "add",
    "multiply": "mul",
    "maximum": "max",
    "minimum": "min",
    "and": "and",
    "or": "or",
    "xor": "xor",
}


def body_of(op: SourceOp) -> SourceBlock | None:
    """The one block of the op's one region."""
    if len(op.regions) == 1 and len(op.regions[0]) == 1 and op.regions[0][0].ops:
        return op.regions[0][0]
    return None


def combination(block: SourceBlock, result: int, a: int, b: int) -> str | None:
    """The kind that makes result number `result` of arguments `a` and `b`, else None.

    "set" is the kind of a result that is argument `b` as it came.
    """
    returned = block.ops[-1].operands
    if len(returned) <= result:
        return None
    value = returned[result]
    if value is block.arguments[b]:
        return "set"
    op = value.producer
    if op is None or set(op.operands) != {block.arguments[a], block.arguments[b]}:
        return None
    kind = _KINDS.get(op.name)
    element = value.type.element if isinstance(value.type, TensorType) else ""
    if element == "i1":
        kind = {"add": "or", "mul": "and", "max": "or", "min": "and"}.get(kind or "", kind)
    if element in ("c64", "c128") and kind != "add":
        return None  # what the parts give depends on both
    return kind


def reduction_kinds(op: SourceOp) -> tuple[str, ...] | None:
    """The kind of each operand of a reduce, where each is combined by itself, else None."""
    block, count = body_of(op), len(op.operands) // 2
    if block is None or len(block.arguments) != 2 * count or count == 0:
        return None
    kinds = [combination(block, place, place, place + count) for place in range(count)]
    known = tuple(kind for kind in kinds if kind is not None and kind != "set")
    return known if len(known) == count else None


def arg_kind(op: SourceOp) -> tuple[str, bool] | None:
    """("arg_max" or "arg_min", whether the last of equal ones wins) of a two-operand reduce.

    None if the body is anything else.
    """
    block = body_of(op)
    if block is None or len(block.arguments) != 4 or len(block.ops[-1].operands) != 2:
        return None
    for name in ("arg_max", "arg_min"):
        for last in (False, True):
            if _agrees(block, name, last):
                return name, last
    return None


def _agrees(block: SourceBlock, name: str, last: bool) -> bool:
    """Whether the body picks as arg_max or arg_min does, on every order of its arguments."""
    value_type = block.arguments[0].type
    if not isinstance(value_type, TensorType) or DTYPES[value_type.element].is_complex:
        return False
    is_float = DTYPES[value_type.element].is_float
    values = (0.0, 1.0, math.nan) if is_float else (0, 1)
    for a in values:
        for b in values:
            found = _run(block, (a, 0, b, 1))
            if found is None:
                return False
            value, index = (a, 0) if _precedes(a, b, name, last) else (b, 1)
            if found[1] != index or not _same(found[0], value):
                return False
    return True


def _precedes(a: float, b: float, name: str, last: bool) -> bool:
    """Whether the first of two elements is the one to pick."""
    if math.isnan(a) != math.isnan(b):
        return math.isnan(a)
    if a == b or math.isnan(a):
        return not last
    return a > b if name == "arg_max" else a < b


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) or (a != a and b != b)


def _run(block: SourceBlock, arguments: Sequence[Any]) -> list[Any] | None:
    """The results of a body that only compares and selects; None for any other body."""
    values: dict[SourceValue, Any] = dict(zip(block.arguments, arguments, strict=True))
    for op in block.ops:
        if any(operand not in values for operand in op.operands):
            return None
        operands = [values[operand] for operand in op.operands]
        if op.name == "return":
            return operands
        function = _SCALAR.get(op.name)
        if function is None or len(op.results) != 1:
            return None
        value = function(op, operands)
        if value is None:
            return None
        values[op.results[0]] = value
    return None


def _compare(op: SourceOp, operands: Sequence[Any]) -> bool | None:
    if op.attributes.get("compare_type") == "TOTALORDER":
        return None
    a, b = operands
    results = {"EQ": a == b, "NE": a != b, "GE": a >= b, "GT": a > b, "LE": a <= b, "LT": a < b}
    return results.get(str(op.attributes.get("comparison_direction")))


def _boolean(compute: Callable[..., bool]) -> Callable[[SourceOp, Sequence[Any]], Any]:
    def run(op: SourceOp, operands: Sequence[Any]) -> Any:
        return compute(*operands) if all(isinstance(each, bool) for each in operands) else None

    return run


def _constant(op: SourceOp, operands: Sequence[Any]) -> bool | None:
    constant = op.attributes.get("value")
    if not isinstance(constant, Constant) or constant.element != "i1" or constant.array.size != 1:
        return None
    return bool(constant.integers()[0])


_SCALAR: dict[str, Callable[[SourceOp, Sequence[Any]], Any]] = {
    "compare": _compare,
    "select": lambda op, operands: operands[1] if operands[0] else operands[2],
    "and": _boolean(lambda a, b: a and b),
    "or": _boolean(lambda a, b: a or b),
    "xor": _boolean(lambda a, b: a != b),
    "not": _boolean(lambda a: not a),
    "constant": _constant,
}

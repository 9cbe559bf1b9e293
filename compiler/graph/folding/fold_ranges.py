"""Decides comparisons and index checks from what range the integers of a program have.

Source languages guard every index: `i < 0 ? i + n : i` around each access in a loop. A
loop's counter starts somewhere, grows by a constant and ends below its limit; constants,
dims and iotas have known ranges; from these the ranges of sums, remainders and selections
follow. A comparison that they decide becomes a constant, a remainder that changes nothing
goes, and a `take` whose indices are in range is not checked any more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.loops import body_of, induction_of, trip_count
from ingot.compiler.graph.ops import CONTROL, Compare, DimValue, Iota, Take
from ingot.compiler.graph.references.leaves import array_of
from ingot.compiler.graph.rewriter import defined_by, literal_of_value, rewrite
from ingot.compiler.ir import Block, Function, Module, Op, TensorType, Value
from ingot.compiler.ir.dims import Bounds, bounds
from ingot.hal.spec import DType

__all__ = ["fold_ranges", "ranges_of"]

Range = tuple[float, float]
"""Least and greatest value, both included."""

_GREATEST_COUNT = 4096
"""Elements of the largest constant that is looked at."""


def fold_ranges(module: Module) -> Module:
    """Fold what ranges decide in every function; returns the module."""
    for function in module.functions.values():
        folder = _Folder(ranges_of(function), function.symbols)
        rewrite(function.block, folder.rule)
    return module


def ranges_of(function: Function) -> dict[Value, Range]:
    """The ranges of the integer and i1 values of a function; one without a range is absent."""
    analysis = _Analysis(function.symbols)
    analysis.visit(function.block)
    return analysis.ranges


class _Folder:
    """Ranges are those of the values before the pass, which replacements share."""

    def __init__(self, ranges: dict[Value, Range], symbols: Bounds) -> None:
        self.ranges = ranges
        self.symbols = symbols

    def rule(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        if op.name == "compare":
            type = tensor_type(op.result)
            found = self.ranges.get(op.result)
            if found is None or found[0] != found[1]:
                return None
            return [self.noted(op, builder.full(bool(found[0]), type.dtype, type.shape))]
        if op.name == "rem":
            x, divisor = (self.ranges.get(operand) for operand in op.operands)
            fits = x is not None and divisor is not None and x[0] >= 0 and x[1] < divisor[0]
            return [op.operands[0]] if fits else None
        if op.name == "take" and Take.of(op).mode != "clamp":
            return self.unchecked(op, builder)
        return None

    def noted(self, op: Op, value: Value) -> Value:
        self.ranges[value] = self.ranges[op.result]
        return value

    def unchecked(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        """A take whose indices all lie in the operand."""
        operand, indices = op.operands
        axis, found = Take.of(op).axis, self.ranges.get(indices)
        least, _ = bounds(tensor_type(operand).shape[axis], self.symbols)
        if found is None or found[0] < 0 or found[1] >= least:
            return None
        return [builder.value("take", operand, indices, axis=axis, mode="clamp")]


class _Analysis:
    def __init__(self, symbols: Bounds) -> None:
        self.symbols = symbols
        self.ranges: dict[Value, Range] = {}

    def visit(self, block: Block) -> None:
        for op in block.ops:
            if op.name == "while":
                self.visit_loop(op)
            if op.name in CONTROL:
                for region in op.regions:
                    self.visit(region.block)
            elif len(op.results) == 1 and _is_whole(op.result):
                self.note(op)

    def note(self, op: Op) -> None:
        """Learn the range of an op's result, unless it may wrap."""
        dtype = tensor_type(op.result).dtype
        found = self.range_of(op)
        if found is not None and _fits(found, dtype):
            self.ranges[op.result] = found

    def range_of(self, op: Op) -> Range | None:
        if op.name == "constant":
            return _of_constant(op.result)
        if op.name == "dim":
            return bounds(DimValue.of(op).value, self.symbols)
        if op.name == "iota":
            axis = Iota.of(op).axis
            return 0, max(0, bounds(tensor_type(op.result).shape[axis], self.symbols)[1] - 1)
        if op.name in _MOVES:
            return self.ranges.get(op.operands[0])
        rule = _RULES.get(op.name)
        known = [self.ranges.get(operand) for operand in op.operands]
        if op.name == "select" and known[0] is not None and known[0][0] == known[0][1]:
            return known[1 if known[0][0] else 2]
        if op.name == "select":
            known = known[1:]
        if op.name == "and" and tensor_type(op.result).dtype.is_boolean:
            known = [each or (0, 1) for each in known]
        if rule is None or any(each is None for each in known):
            return None
        return rule(op, *known)

    def visit_loop(self, op: Op) -> None:
        """The ranges of a loop's counters inside its body."""
        trips = trip_count(op)
        for place, argument in enumerate(body_of(op).arguments):
            found = induction_of(op, place) if _is_whole(argument) else None
            if found is None:
                continue
            dtype = tensor_type(argument).dtype
            start = bounds(found.start, self.symbols)
            if trips is not None:
                reached = found.step * max(0, bounds(trips, self.symbols)[1] - 1)
                range = (start[0] + min(0, reached), start[1] + max(0, reached))
                if _fits(range, dtype):
                    self.ranges[argument] = range
                    continue
            if found.step > 0 and _is_bounded(op, place):
                self.ranges[argument] = (start[0], _greatest(dtype) - 1)


def _is_bounded(op: Op, place: int) -> bool:
    """Whether a step runs only while the carried value is less than something."""
    block = op.regions[0].block
    waiting = [block.terminator.operands[0]]
    while waiting:
        test = defined_by(waiting.pop(), "and", "compare")
        if test is None:
            continue
        if test.name == "and":
            waiting.extend(test.operands)
            continue
        a, b = test.operands
        less = {"lt": a, "gt": b}.get(Compare.of(test).direction)
        if less is block.arguments[place]:
            return True
    return False


def _is_whole(value: Value) -> bool:
    """Whether the value holds integers or booleans."""
    type = value.type
    return isinstance(type, TensorType) and (type.dtype.is_integer or type.dtype.is_boolean)


def _greatest(dtype: DType) -> float:
    """The greatest number of an integer dtype, if ranges can tell it from its neighbours."""
    return dtype.limits[1] if dtype.bits <= 32 else math.inf


def _fits(found: Range, dtype: DType) -> bool:
    """Whether no number of the range wraps in the dtype, and the range is exact."""
    bits = 1 if dtype.is_boolean else min(dtype.bits - (dtype.kind == "i"), 53)
    least = -(2**bits) if dtype.kind == "i" else 0
    return found[0] >= least and found[1] < 2**bits


def _of_constant(value: Value) -> Range | None:
    literal = literal_of_value(value)
    if literal is None or not 0 < literal.size <= _GREATEST_COUNT:
        return None
    array = array_of(literal)
    return int(array.min()), int(array.max())


_MOVES = frozenset(
    {"broadcast", "reshape", "transpose", "slice", "reverse", "take", "dynamic_slice"}
)
"""Ops whose result has elements of the first operand only."""


def _products(a: Range, b: Range) -> Range:
    ends = [0.0 if 0 in (x, y) else x * y for x in a for y in b]
    return min(ends), max(ends)


def _convert(op: Op, a: Range) -> Range | None:
    target = tensor_type(op.result).dtype
    return None if target.is_boolean else a


def _remainder(op: Op, a: Range, b: Range) -> Range | None:
    if b[0] <= 0:
        return None
    return max(a[0], min(0, 1 - b[1])) if a[0] < 0 else 0, min(max(0, a[1]), b[1] - 1)


def _quotient(op: Op, a: Range, b: Range) -> Range | None:
    if a[0] < 0 or b[0] <= 0 or math.isinf(a[1]) or math.isinf(b[1]):
        return None
    return a[0] // b[1], a[1] // b[0]


def _compare(op: Op, a: Range, b: Range) -> Range | None:
    outcomes = {
        "lt": (a[1] < b[0], a[0] >= b[1]),
        "le": (a[1] <= b[0], a[0] > b[1]),
        "gt": (a[0] > b[1], a[1] <= b[0]),
        "ge": (a[0] >= b[1], a[1] < b[0]),
        "eq": (a[0] == a[1] == b[0] == b[1], a[1] < b[0] or a[0] > b[1]),
        "ne": (a[1] < b[0] or a[0] > b[1], a[0] == a[1] == b[0] == b[1]),
    }
    always, never = outcomes[Compare.of(op).direction]
    return (1, 1) if always else (0, 0) if never else None


def _and(op: Op, a: Range, b: Range) -> Range | None:
    if tensor_type(op.result).dtype.is_boolean:
        return min(a[0], b[0]), min(a[1], b[1])
    return (0, min(a[1], b[1])) if a[0] >= 0 and b[0] >= 0 else None


def _clamp(op: Op, low: Range, x: Range, high: Range) -> Range:
    return min(max(low[0], x[0]), high[0]), min(max(low[1], x[1]), high[1])


def _union(op: Op, *each: Range) -> Range:
    return min(low for low, _ in each), max(high for _, high in each)


_RULES: dict[str, Callable[..., Range | None]] = {
    "add": lambda op, a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda op, a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": lambda op, a, b: _products(a, b),
    "neg": lambda op, a: (-a[1], -a[0]),
    "max": lambda op, a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "min": lambda op, a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "clamp": _clamp,
    "select": _union,
    "concatenate": _union,
    "convert": _convert,
    "rem": _remainder,
    "div": _quotient,
    "compare": _compare,
    "and": _and,
    "not": lambda op, a: (1 - a[1], 1 - a[0]) if tensor_type(op.result).dtype.is_boolean else None,
}

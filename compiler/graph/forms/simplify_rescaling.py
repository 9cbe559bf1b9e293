"""Makes few ops of what stands behind an integer contraction: scale, bias, quantise, dequantise.

Numbers that are computed from integers and constants alone are known to be finite, and how large
they may be. So codes that are dequantised at once need not become codes in between (but do where
they lie in memory until a later product, `waiting_codes.py`), a clamp to what a dtype holds is part
of the conversion to it, constant factors join those of the columns, windows take the greatest code,
and what was whole needs no rounding. What is divided by a constant behind a contraction, or a
function such as exp, is multiplied by its reciprocal: sums in floats are rounded in another order
than the source's anyway, and functions not exactly, by as little. Other numbers, and whole ones by
whole ones, whose quotients may be whole, are divided as the source says.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.waiting_codes import waiting_codes
from ingot.compiler.graph.ops import ReduceWindow, lookup
from ingot.compiler.graph.rewriter import (
    defined_by,
    literal_of_value,
    rewrite,
    splat_of,
    tensor_ops,
    weights_of,
)
from ingot.compiler.ir import Function, Module, Op, Value, derived
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.spec import DType, dtype

__all__ = ["simplify_rescaling"]

_F32 = dtype("f32")
_GREATEST = 1e30  # beyond it a product of two may be infinite
_EXACT = 1 << 23  # up to there sums of whole numbers are exact
_ARRANGED = ("add", "concatenate", "convert", "reshape", "slice", "sub", "transpose")
_LEAST = 1.2e-38  # below it floats have fewer digits


def simplify_rescaling(module: Module) -> Module:
    """Simplify what follows contractions of integers in every function; returns the module."""
    for function in module.functions.values():
        if any(_is_sum(op.result) for op in tensor_ops(function.block) if len(op.results) == 1):
            rewrite(function.block, _Rescaling(function).rule)
    return module


def _is_sum(x: Value) -> bool:
    op = defined_by(x, "dot_general", "convolution")
    return op is not None and tensor_type(x).dtype.name == "i32"


@dataclass(frozen=True)
class _Known:
    """Of finite numbers: none is larger. Whether they are whole, and made from sums."""

    most: float
    is_whole: bool = False
    is_summed: bool = False


def _parts(value: Value) -> Sequence[Value]:
    """By which the value is known."""
    op = value.owner
    return op.operands if isinstance(op, Op) and op.name in _DERIVED else ()


class _Rescaling:
    """`known` are values whose elements are finite."""

    def __init__(self, function: Function) -> None:
        self.weights = weights_of(function)
        self.uses = Counter(each for op in tensor_ops(function.block) for each in op.operands)
        self.known: dict[Value, _Known | None] = {}
        self.waiting = waiting_codes(function.block)
        self.moved: set[Op] = set()  # factors of sums, now of their parts

    def rule(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        rule = _RULES.get(op.name)
        made = None if rule is None else rule(self, op, builder)
        if made is None:
            return None
        self.uses[made] += self.uses[op.result]
        self.uses.subtract(op.operands)
        if isinstance(made.owner, Op):
            self.uses.update(made.owner.operands)
        return [made]

    # What is known of numbers.

    def of(self, x: Value) -> _Known | None:
        """What is known of elements of f32; None if they may be infinite or NaN."""
        return derived(x, self.known, _parts, self._compute)

    def _compute(self, x: Value) -> _Known | None:
        if tensor_type(x).dtype is not _F32:
            return None
        literal = literal_of_value(x)
        if literal is not None:
            return _of_numbers(literal.array)
        op = x.owner
        if not isinstance(op, Op):
            return None
        if op.name == "convert" and tensor_type(op.operands[0]).dtype.is_integer:
            bits = tensor_type(op.operands[0]).dtype.bits
            return _Known(2.0**bits, True, self._is_summed(op.operands[0]))
        derive = _DERIVED.get(op.name)
        parts = [self.known[each] for each in op.operands] if derive is not None else []
        known = [each for each in parts if each is not None]
        if derive is None or len(known) < len(parts):
            return None
        most = derive(*(each.most for each in known))
        whole = op.name in _ROUNDINGS or (op.name != "div" and all(each.is_whole for each in known))
        is_summed = any(each.is_summed for each in known)
        return _Known(most, whole, is_summed) if most < _GREATEST else None

    def _is_summed(self, x: Value) -> bool:
        """Whether integers are sums of products, with corrections."""
        while not _is_sum(x):
            op = defined_by(x, *_ARRANGED)
            if op is None:
                return False
            x = op.operands[0]
        return True

    def _is_inexact(self, x: Value) -> bool:
        """Whether sums, or functions that are not rounded exactly, are in the numbers."""
        waiting, seen = [x], {x}
        while waiting:
            op = waiting.pop().owner
            if not isinstance(op, Op) or op.regions or not op.results:
                continue
            row = lookup(op.name)
            is_elementwise = row.family == "elementwise"
            if _is_sum(op.result) or (is_elementwise and row.ulp > 0.5):
                return True
            if is_elementwise or op.name in ("broadcast", "reshape", "transpose"):
                waiting += [each for each in op.operands if each not in seen]
                seen.update(op.operands)
        return False

    # Rules.

    def convert(self, op: Op, builder: Builder) -> Value | None:
        (x,), target = op.operands, tensor_type(op.result).dtype
        if target is _F32:
            return None if op in self.waiting else self._dequantised(x, builder)
        if not target.is_integer or target.bits > 16 or tensor_type(x).dtype is not _F32:
            return None
        inner = _saturated(x, target)
        inner = x if inner is None else inner
        if (add := defined_by(inner, "add")) and splat_of(add.operands[1]) == 0:
            inner = add.operands[0]
        rounded = defined_by(inner, "round_even")
        top = rounded and defined_by(rounded.operands[0], "max")
        if rounded and top and target.kind == "u" and splat_of(top.operands[1]) == 0:
            inner = builder.value("round_even", top.operands[0])
        return None if inner is x else builder.value("convert", inner, dtype=target)

    def _dequantised(self, codes: Value, builder: Builder) -> Value | None:
        """Codes that nobody else reads, and that were numbers before, as these numbers."""
        op, own = defined_by(codes, "convert"), tensor_type(codes).dtype
        if op is None or not own.is_integer or own.bits > 16 or self.uses[codes] > 1:
            return None
        x = op.operands[0]
        known = self.of(x)
        if known is None or not known.is_whole:
            return None
        limits = [builder.full(each, _F32, tensor_type(x).shape) for each in own.limits]
        return builder.value("clamp", limits[0], x, limits[1])

    def div(self, op: Op, builder: Builder) -> Value | None:
        x, number = op.operands[0], splat_of(op.operands[1])
        if number is None or tensor_type(x).dtype is not _F32 or not self._is_inexact(x):
            return None
        known, factor = self.of(x), 1.0 / float(number) if number else math.inf
        is_counted = known is not None and known.is_whole and float(number).is_integer()
        if is_counted or not _LEAST < abs(factor) < _GREATEST:
            return None
        return builder.value("mul", x, builder.full(factor, _F32, tensor_type(x).shape))

    def mul(self, op: Op, builder: Builder) -> Value | None:
        """A constant factor of what has one already, or of a sum with such."""
        x, factor = op.operands
        number, known = splat_of(factor), self.of(x)
        if number == 1 and known is not None:
            return x
        if number is None or known is None or self.uses[x] > 1:
            return None
        if not known.is_summed and op not in self.moved:
            return None
        inner = defined_by(x, "mul", "add", "max")
        if inner is None:
            return None
        if inner.name == "add" and all(map(self._is_scaled, inner.operands)):
            return builder.like(inner, *(self._times(y, factor, builder) for y in inner.operands))
        if not self._is_constant(inner.operands[1]):
            return None
        first, second = inner.operands
        if inner.name == "max" and not number > 0:
            return None
        scaled = self._scaled(second, float(number), builder)
        if inner.name != "mul":
            first = self._times(first, factor, builder)
        return builder.like(inner, first, scaled)

    def round_even(self, op: Op, builder: Builder) -> Value | None:
        """What is whole stays, also if it is divided by its factor."""
        x = op.operands[0]
        known = self.of(x)
        if known is not None and known.is_whole:
            return x
        division = defined_by(x, "div")
        product = division and defined_by(division.operands[0], "mul")
        if not division or not product:
            return None
        factor, divisor = (splat_of(each.operands[1]) for each in (product, division))
        known = self.of(product.operands[0])
        if factor is None or factor != divisor or abs(factor) < _LEAST or known is None:
            return None
        return product.operands[0] if known.is_whole and known.most < _EXACT / 4 else None

    def reduce_window(self, op: Op, builder: Builder) -> Value | None:
        """The greatest of codes, of which numbers are made behind it."""
        x, moves = op.operands[0], ReduceWindow.of(op)
        known = self.of(x)
        if moves.kind != "max" or self.uses[x] > 1 or known is None:
            return None
        inner = defined_by(x, "mul", "sub")
        number = splat_of(inner.operands[1]) if inner is not None else None
        if inner is not None and number is not None and (number > 0 or inner.name == "sub"):
            greatest = builder.like(op, inner.operands[0])
            shape = tensor_type(greatest).shape
            return builder.value(inner.name, greatest, builder.full(number, _F32, shape))
        clamp = defined_by(x, "clamp")
        if clamp is None or not known.is_whole or _has_empty_windows(moves):
            return None
        low, high = (splat_of(each) for each in clamp.operands[::2])
        for codes in map(dtype, ("u8", "i8")):
            least, most = codes.limits
            if low is not None and high is not None and least <= low <= high <= most:
                x = builder.value("convert", x, dtype=codes)
                return builder.value("convert", builder.like(op, x), dtype=_F32)
        return None

    def clamp(self, op: Op, builder: Builder) -> Value | None:
        """The second of two with the same limits."""
        inner = defined_by(op.operands[1], "clamp")
        if inner is None:
            return None
        own, first = ([splat_of(each.operands[i]) for i in (0, 2)] for each in (op, inner))
        return inner.result if own == first and None not in own else None

    def sub(self, op: Op, builder: Builder) -> Value | None:
        """A zero point that is taken away again from what was clamped with it."""
        clamp, zero = defined_by(op.operands[0], "clamp"), splat_of(op.operands[1])
        add = clamp and defined_by(clamp.operands[1], "add")
        if not clamp or not add or zero is None or splat_of(add.operands[1]) != zero:
            return None
        x, limits = add.operands[0], [splat_of(clamp.operands[place]) for place in (0, 2)]
        known = self.of(x)
        numbers = [float(each) for each in (*limits, zero) if each is not None]
        if known is None or not known.is_whole or len(numbers) < 3:
            return None
        if not all(each.is_integer() and abs(each) < _EXACT for each in numbers):
            return None
        shape = tensor_type(x).shape
        low, high = (builder.full(each - numbers[2], _F32, shape) for each in numbers[:2])
        return builder.value("clamp", low, x, high)

    def _times(self, x: Value, factor: Value, builder: Builder) -> Value:
        op = builder.append("mul", (x, factor))
        self.uses[op.result] = 1
        self.moved.add(op)
        return op.result

    def _is_scaled(self, x: Value) -> bool:
        """Whether the value, which nobody else reads, has a constant factor, and is finite."""
        op = defined_by(x, "mul")
        known = op is not None and self._is_constant(op.operands[1]) and self.of(x) is not None
        return known and self.uses[x] == 1

    def _is_constant(self, x: Value) -> bool:
        op = defined_by(x, "broadcast")
        return splat_of(x) is not None or (op is not None and op.operands[0] in self.weights)

    def _scaled(self, x: Value, number: float, builder: Builder) -> Value:
        """A broadcast weight times a number."""
        if (known := splat_of(x)) is not None:
            return builder.full(float(known) * number, _F32, tensor_type(x).shape)
        small = x.op.operands[0]
        scaled = builder.value("mul", small, builder.full(number, _F32, tensor_type(small).shape))
        self.weights.add(scaled)
        return builder.like(x.op, scaled)


def _of_numbers(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> _Known | None:
    numbers = array.astype(np.float64)
    if not np.isfinite(numbers).all():
        return None
    most = float(np.abs(numbers).max(initial=0.0))
    return _Known(most, bool((numbers == np.rint(numbers)).all()))


def _has_empty_windows(moves: ReduceWindow) -> bool:
    """Whether a window may hold nothing but padding."""
    dilated = any(each != 1 for each in (*moves.base_dilation, *moves.window_dilation))
    inside = all(
        isinstance(each, int) and isinstance(size, int) and 0 <= each < size
        for pair, size in zip(moves.padding, moves.window, strict=True)
        for each in pair
    )
    return dilated or not inside


def _saturated(x: Value, target: DType) -> Value | None:
    """What a clamp to all that the dtype holds, or to more, takes."""
    op = defined_by(x, "clamp")
    if op is None:
        return None
    low, high = splat_of(op.operands[0]), splat_of(op.operands[2])
    least, most = target.limits
    if low is None or high is None or not low <= least or not high >= most:
        return None
    return op.operands[1]


_ROUNDINGS = frozenset({"round_even", "round_away", "floor", "ceil", "trunc"})

_DERIVED: dict[str, Callable[..., float]] = {
    **dict.fromkeys(("broadcast", "reshape", "transpose", "neg", "abs"), lambda x: x),
    **dict.fromkeys(_ROUNDINGS, lambda x: x + 1),
    **dict.fromkeys(("add", "sub"), lambda a, b: a + b),
    **dict.fromkeys(("max", "min", "clamp"), max),
    "mul": lambda a, b: a * b,
}
"""The most that an op gives, by the most of its operands."""

_RULES: dict[str, Callable[[_Rescaling, Op, Builder], Value | None]] = {
    "clamp": _Rescaling.clamp,
    "convert": _Rescaling.convert,
    "div": _Rescaling.div,
    "mul": _Rescaling.mul,
    "reduce_window": _Rescaling.reduce_window,
    "round_even": _Rescaling.round_even,
    "sub": _Rescaling.sub,
}

"""What an entry gives by the NumPy references, and how far a kernel may be from that.

Every row of the op table says how many ulp an op may be wrong. How such errors spread
through the ops of an entry is measured: it is evaluated several times, with every result
of an op that is not exact moved at random by about its bound (the same way every time),
and the spread of what comes out is the difference that is allowed. So cancellation and
steep functions are taken into account, whatever the ops are. An entry of exact ops, among
them correctly rounded ones, must be met exactly.

Sums have errors in proportion to their terms: those of a contraction, or of a reduction
that adds or multiplies, are relative to the sum of absolute terms, and grow with the square
root of the number of terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, cast

import numpy as np

from ingot.compiler.graph.interpreter import evaluate_in
from ingot.compiler.graph.ops import (
    Attention,
    AttentionPaged,
    ConvPacked,
    ConvWinograd,
    Cumulative,
    DotCoded,
    DotGeneral,
    DotPacked,
    DotScaled,
    Reduce,
    ReduceWindow,
    lookup,
)
from ingot.compiler.graph.references.contraction import coded_minima, coded_weight, scaled_rows
from ingot.compiler.graph.references.numbers import Array, dtype_of, widen
from ingot.compiler.ir import Function, Module, Op, TensorType, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import known_dims
from ingot.hal.spec import DType
from ingot.hal.spec import dtype as dtype_named

__all__ = ["Reference", "evaluate_entry"]

_SAMPLES = 8
_SPREAD = 4.0
"""How many standard deviations of the samples a kernel may be away."""

_CORRECTLY_ROUNDED = 0.5
_EXACT_KINDS = frozenset({"max", "min", "and", "or", "xor"})
_LEFT_OUT = {2: 512, 3: 2}
"""Ulp of terms' magnitudes that products of so many bf16 parts leave out."""

_NARROW = (2, -6)
"""Bits of fraction and the least exponent of the f8 family, or less."""


@dataclass(frozen=True, eq=False)
class Reference:
    """One result of an entry: its elements, and the allowed difference of each (0: exact)."""

    array: Array
    allowed: Array | float


@dataclass(eq=False)
class _Samples:
    """A value: by the reference and, if it is not exact, with random errors."""

    array: Array
    moved: list[Array] = field(default_factory=list)


def evaluate_entry(
    module: Module, entry: Function, operands: Sequence[Array], symbols: Mapping[str, int]
) -> list[Reference]:
    """The results of an entry on live operands. Raises what the references raise."""
    values = dict(zip(entry.arguments, map(_Samples, operands), strict=True))
    evaluator = _Evaluator(module, entry, symbols)
    for op in entry.block.ops[:-1]:
        values.update(zip(op.results, evaluator.results(op, values), strict=True))
    return [_reference(values[value]) for value in entry.block.terminator.operands]


class _Evaluator:
    def __init__(self, module: Module, entry: Function, symbols: Mapping[str, int]) -> None:
        self.module = module
        self.symbols = symbols
        self.is_exact = all(_is_exact(op) for op in entry.block.ops[:-1])
        self.generator = np.random.default_rng(0)

    def results(self, op: Op, values: Mapping[Value, _Samples]) -> list[_Samples]:
        exact = {value: each.array for value, each in values.items()}
        arrays = evaluate_in(self.module, op, exact, self.symbols)
        if self.is_exact:
            return [_Samples(array) for array in arrays]
        samples = [list(arrays)] * _SAMPLES
        if any(values[operand].moved for operand in op.operands):
            samples = [
                list(evaluate_in(self.module, op, _sample(values, place), self.symbols))
                for place in range(_SAMPLES)
            ]
        results = []
        for place, array in enumerate(arrays):
            moved = [each[place] for each in samples]
            bound = self._bound(op, array, exact)
            if bound is not None:
                moved = [self._move(each, bound) for each in moved]
            is_moved = any(each is not array for each in moved)
            results.append(_Samples(array, moved if is_moved else []))
        return results

    def _move(self, array: Array, bound: Array) -> Array:
        noise = self.generator.standard_normal(array.shape)
        with np.errstate(all="ignore"):
            moved = widen(array) + noise * bound
            return np.where(np.isfinite(moved), moved, widen(array)).astype(array.dtype)

    def _bound(self, op: Op, array: Array, values: Mapping[Value, Array]) -> Array | None:
        """How far each element of a result may be wrong by the op alone; None: not at all."""
        row = lookup(op.name)
        dtype = dtype_of(array)
        if row.ulp == 0 or not (dtype.is_float or dtype.is_complex) or _only_chooses(op):
            return None
        own = row.ulp * _unit(np.abs(widen(array)), dtype)
        if row.family == "elementwise":
            return own
        terms = row.ulp + np.sqrt(_term_count(op, values))
        terms += _LEFT_OUT.get(getattr(op.attributes, "bf16_parts", 0), 0)
        magnitude = self._magnitude(op, values)
        working = dtype if dtype.bytes >= 4 else DType.from_numpy(np.dtype(np.float32))
        return cast(Array, own + terms * _unit(magnitude, working))

    def _magnitude(self, op: Op, values: Mapping[Value, Array]) -> Array:
        """The sum of absolute terms, or of what takes part in it, of each element."""
        if isinstance(op.attributes, (Attention, AttentionPaged)):
            return _attention_magnitude(op, values)
        if isinstance(op.attributes, DotCoded):
            return _coded_magnitude(op, op.attributes, values)
        absolute = {
            value: np.abs(values[value]).astype(values[value].dtype) for value in op.operands
        }
        (result,) = evaluate_in(self.module, op, absolute, self.symbols)
        magnitude = np.abs(widen(result))
        if op.name == "conv_winograd":  # its transforms have signs of their own
            return np.full_like(magnitude, magnitude.max(initial=0.0))
        return magnitude


def _attention_magnitude(op: Op, values: Mapping[Value, Array]) -> Array:
    """The greatest element of v, times how steep the softmax is: the greatest score."""
    q, k, v = (np.abs(widen(values[operand])) for operand in op.operands[:3])
    lengths = [np.sqrt(np.square(each).sum(-1)).max(initial=0.0) for each in (q, k)]
    assert isinstance(op.attributes, (Attention, AttentionPaged))
    scale = op.attributes.scale
    steepness = 1.0 + abs(scale) * lengths[0] * lengths[1]
    return np.asarray(v.max(initial=0.0) * steepness)


def _coded_magnitude(op: Op, coded: DotCoded, values: Mapping[Value, Array]) -> Array:
    """The sum of absolute terms: codes have signs only as numbers."""
    a, codes, scales, *others = (values[operand] for operand in op.operands)
    attributes = dict(vars(coded))
    least: Array = np.zeros(())
    if isinstance(coded, DotScaled):
        a_scales, _, *rest = others
        a, attributes = scaled_rows(a, a_scales), coded.of_weight
        others, minima = map(list, coded.without_minima(rest))
        if minima:
            k, groups = a.shape[-1], a_scales.shape[-1]
            least = coded_minima(k, groups, *minima, minima=coded.minima, n=attributes["n"])
    attributes.pop("dtype")
    weight = coded_weight(a.shape[-1], codes, scales, *others, **attributes)
    with np.errstate(all="ignore"):
        return np.asarray(np.abs(widen(a)) @ (np.abs(weight) + np.abs(least)))


def _sample(values: Mapping[Value, _Samples], place: int) -> dict[Value, Array]:
    return {
        value: each.moved[place] if each.moved else each.array for value, each in values.items()
    }


def _is_exact(op: Op) -> bool:
    """Whether the op gives the same bits everywhere."""
    types = [value.type for value in (*op.operands, *op.results)]
    dtypes = [type.dtype for type in types if isinstance(type, TensorType)]
    floats = [dtype for dtype in dtypes if dtype.is_float or dtype.is_complex]
    ulp = lookup(op.name).ulp
    if not floats or ulp == 0 or _only_chooses(op):
        return True
    correct = ulp <= _CORRECTLY_ROUNDED and not any(dtype.is_complex for dtype in floats)
    return correct and min(dtype.bytes for dtype in floats) >= 4


def _only_chooses(op: Op) -> bool:
    return getattr(op.attributes, "kind", "") in _EXACT_KINDS


def _term_count(op: Op, values: Mapping[Value, Array]) -> float:
    """About how many terms make one element of the result, from the counts of elements."""
    shapes = [values[operand].shape for operand in op.operands[:2]]
    counts = [max(float(np.prod(shape)), 1.0) for shape in shapes]
    if isinstance(op.attributes, DotCoded):
        return float(max(shapes[0][-1], 1))
    if lookup(op.name).family == "contraction":
        return max(counts[-1] / max(_result_count(op, shapes), 1), 1.0)
    if op.name == "cumulative":
        return float(shapes[0][Cumulative.of(op).axis])
    if op.name == "reduce_window":
        return float(np.prod(known_dims(ReduceWindow.of(op).window)))
    axes = op.attributes.axes if isinstance(op.attributes, Reduce) else ()
    return float(np.prod([shapes[0][axis] for axis in axes]))


def _result_count(op: Op, shapes: Sequence[tuple[int, ...]]) -> int:
    """How many elements of the second operand go into different elements of the result."""
    if op.name == "dot_general":
        contracted = DotGeneral.of(op).rhs_contract
        kept = [size for axis, size in enumerate(shapes[1]) if axis not in contracted]
        return int(np.prod(kept))
    if isinstance(op.attributes, ConvWinograd):
        return shapes[1][1] * shapes[1][3]
    if isinstance(op.attributes, (DotPacked, ConvPacked)):
        return op.attributes.n
    return int(shapes[1][-1]) if shapes[1] else 1


def _unit(magnitude: Array, dtype: DType) -> Array:
    """One ulp of numbers as large as `magnitude`."""
    part = dtype_named(f"f{dtype.bits // 2}") if dtype.is_complex else dtype
    bits, least = (part.fraction, 1 - part.bias) if part.fraction else _NARROW
    return cast(Array, np.ldexp(np.maximum(magnitude, np.ldexp(1.0, least)), -bits))


def _reference(value: _Samples) -> Reference:
    if not value.moved:
        return Reference(value.array, 0.0)
    array = widen(value.array)
    with np.errstate(all="ignore"):
        squares: Any = sum(np.square(np.abs(widen(each) - array)) for each in value.moved)
        spread = np.sqrt(np.asarray(squares, np.float64) / _SAMPLES)
        dtype = dtype_of(value.array)
        last_place = _unit(np.abs(array), dtype) if dtype.is_float or dtype.is_complex else 0.0
        allowed = _SPREAD * np.where(np.isfinite(spread), spread, 0.0) + last_place
    return Reference(value.array, allowed)

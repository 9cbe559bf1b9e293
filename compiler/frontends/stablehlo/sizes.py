"""Fold the shape arithmetic of StableHLO into symbolic dims.

Exporters compute sizes with ops on small integer tensors of rank 0 to 2. Where all operands of
such an op are known as dims, its results are dims too and no op is built. Integers wrap to
the dtype; symbolic sizes are taken not to overflow. An op that does not fold here is lowered
as any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ingot.compiler.frontends.stablehlo.lowering import Context, Lowered, ints
from ingot.compiler.frontends.stablehlo.reading.program import Constant, SourceOp, TensorType
from ingot.compiler.frontends.symbols import Atom, Truth
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DTYPES

__all__ = ["fold"]

_GREATEST_COUNT = 64
Sizes = tuple[Dim, ...]
Fold = Callable[[Context, SourceOp], "Lowered | None"]


def fold(context: Context, op: SourceOp) -> Lowered | None:
    """What the one result of `op` is in dims, or None if the op is not shape arithmetic."""
    folder = _FOLDS.get(op.name)
    if folder is None or len(op.results) != 1 or not _is_size(op.results[0].type):
        return None
    lowered = folder(context, op)
    if lowered is None or not isinstance(op.results[0].type, TensorType):
        return None
    lowered.type = op.results[0].type
    if lowered.truth is not None:
        known = context.symbols.decide(lowered.truth)
        if known is not None:
            lowered.truth, lowered.sizes = known, (int(known),)
    elif lowered.sizes is not None:
        lowered.sizes = tuple(_wrapped(size, lowered.type.element) for size in lowered.sizes)
        if lowered.type.element == "i1":
            lowered.truth = lowered.sizes == (1,) if len(lowered.sizes) == 1 else None
    return lowered


def _is_size(type: Any) -> bool:
    """Whether a type may hold sizes: a small static integer or i1 tensor of rank 0 to 2."""
    if not isinstance(type, TensorType) or type.element not in DTYPES or len(type.shape) > 2:
        return False
    small = None not in type.shape and _count(type) <= _GREATEST_COUNT
    return DTYPES[type.element].kind in "biu" and small


def _count(type: TensorType) -> int:
    return math.prod(dim or 0 for dim in type.shape)


def _wrapped(size: Dim, element: str) -> Dim:
    if not isinstance(size, int):
        return size
    row = DTYPES[element]
    low = size & ((1 << row.bits) - 1)
    return low - (1 << row.bits) if row.kind == "i" and low >> (row.bits - 1) else low


def _constant(context: Context, op: SourceOp) -> Lowered | None:
    constant = op.attributes.get("value")
    if not isinstance(constant, Constant):
        return None
    return Lowered(sizes=constant.integers(), constant=constant)


def _dimension_size(context: Context, op: SourceOp) -> Lowered | None:
    type = tensor_type(context.operand(op, 0))
    axis = op.attributes["dimension"]
    return Lowered(sizes=(type.shape[axis],)) if 0 <= axis < type.rank else None


def _elementwise(compute: Callable[..., Dim | None]) -> Fold:
    """A fold of an op that works on each element by itself."""

    def folder(context: Context, op: SourceOp) -> Lowered | None:
        operands = _all_sizes(context, op)
        if operands is None or len({len(each) for each in operands}) != 1:
            return None
        results = [compute(context, *column) for column in zip(*operands, strict=True)]
        known = [each for each in results if each is not None]
        return Lowered(sizes=tuple(known)) if len(known) == len(results) else None

    return folder


def _all_sizes(context: Context, op: SourceOp) -> list[Sizes] | None:
    found = [context.lowered(op, place).sizes for place in range(len(op.operands))]
    known = [each for each in found if each is not None]
    return known if known and len(known) == len(found) else None


def _is_positive(context: Context, dim: Dim, least: int = 1) -> bool:
    return dims.prove_le(least, dim, context.symbols.bounds)


def _divide(context: Context, a: Dim, b: Dim) -> Dim | None:
    if isinstance(a, int) and isinstance(b, int) and b != 0:
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if _is_positive(context, a, 0) and _is_positive(context, b):
        return dims.floordiv(a, b)
    return None


def _remainder(context: Context, a: Dim, b: Dim) -> Dim | None:
    if isinstance(a, int) and isinstance(b, int) and b != 0:
        return abs(a) % abs(b) * (-1 if a < 0 else 1)
    if _is_positive(context, a, 0) and _is_positive(context, b):
        return dims.modulo(a, b)
    return None


def _sign(context: Context, a: Dim) -> Dim:
    return _maximum(context, -1, _minimum(context, 1, a))


def _absolute(context: Context, a: Dim) -> Dim | None:
    return a if _is_positive(context, a, 0) else None


def _maximum(context: Context, a: Dim, b: Dim) -> Dim:
    if dims.prove_le(a, b, context.symbols.bounds):
        return b
    return a if dims.prove_le(b, a, context.symbols.bounds) else dims.maximum(a, b)


def _minimum(context: Context, a: Dim, b: Dim) -> Dim:
    if dims.prove_le(a, b, context.symbols.bounds):
        return a
    return b if dims.prove_le(b, a, context.symbols.bounds) else dims.minimum(a, b)


def _compare(context: Context, op: SourceOp) -> Lowered | None:
    operands = _all_sizes(context, op)
    if operands is None or len(operands[0]) != 1 or len(operands[1]) != 1:
        return None
    direction = str(op.attributes["comparison_direction"]).lower()
    return Lowered(truth=(Atom(direction, operands[0][0] - operands[1][0]),))


def _and(context: Context, op: SourceOp) -> Lowered | None:
    truths = _truths(context, op)
    if truths is None:
        return _integer_logic(context, op, lambda a, b: a & b)
    atoms: tuple[Atom, ...] = ()
    for truth in truths:
        if truth is False:
            return Lowered(truth=False)
        atoms += truth if isinstance(truth, tuple) else ()
    return Lowered(truth=atoms or True)


def _or(context: Context, op: SourceOp) -> Lowered | None:
    truths = _truths(context, op)
    if truths is None:
        return _integer_logic(context, op, lambda a, b: a | b)
    if True in truths:
        return Lowered(truth=True)
    rest = [truth for truth in truths if truth is not False]
    return Lowered(truth=rest[0] if rest else False) if len(rest) <= 1 else None


def _not(context: Context, op: SourceOp) -> Lowered | None:
    truths = _truths(context, op)
    if truths is None or not isinstance(truths[0], bool):
        return None
    return Lowered(truth=not truths[0])


def _integer_logic(
    context: Context, op: SourceOp, compute: Callable[[int, int], int]
) -> Lowered | None:
    def each(context: Context, a: Dim, b: Dim) -> Dim | None:
        return compute(a, b) if isinstance(a, int) and isinstance(b, int) else None

    return _elementwise(each)(context, op)


def _truths(context: Context, op: SourceOp) -> list[Truth] | None:
    found = [context.lowered(op, place).truth for place in range(len(op.operands))]
    known = [each for each in found if each is not None]
    return known if len(known) == len(found) else None


def _select(context: Context, op: SourceOp) -> Lowered | None:
    truth = context.lowered(op, 0).truth
    if isinstance(truth, tuple):
        return _select_symbolic(context, op, truth)
    if truth is None:
        return None
    chosen = context.lowered(op, 1 if truth else 2)
    return Lowered(sizes=chosen.sizes, truth=chosen.truth) if chosen.sizes is not None else None


def _select_symbolic(context: Context, op: SourceOp, truth: tuple[Atom, ...]) -> Lowered | None:
    """b + (a - b) * c with c = 1 where all atoms hold, else 0."""
    then, otherwise = (context.lowered(op, place).sizes for place in (1, 2))
    if then is None or otherwise is None or str(op.results[0].type).startswith("i1["):
        return None
    holds = dims.product(_one_if(context, atom) for atom in truth)
    pairs = zip(then, otherwise, strict=True)
    return Lowered(sizes=tuple(b + (a - b) * holds for a, b in pairs))


def _one_if(context: Context, atom: Atom) -> Dim:
    """1 if the atom holds, else 0."""
    difference = atom.difference
    if atom.direction in ("eq", "ne"):
        above, below = (_maximum(context, each, 0) for each in (difference, difference * -1))
        unequal = _minimum(context, above + below, 1)
        return unequal if atom.direction == "ne" else 1 - unequal
    if atom.direction in ("lt", "le"):
        difference = difference * -1
    least = 1 if atom.direction in ("lt", "gt") else 0
    return _minimum(context, _maximum(context, difference + (1 - least), 0), 1)


def _clamp(context: Context, op: SourceOp) -> Lowered | None:
    operands = _all_sizes(context, op)
    if operands is None:
        return None
    lows, values, highs = operands
    count = len(values)
    rows = zip(_spread(lows, count), values, _spread(highs, count), strict=True)
    return Lowered(
        sizes=tuple(_minimum(context, _maximum(context, x, low), high) for low, x, high in rows)
    )


def _spread(sizes: Sizes, count: int) -> Sizes:
    return sizes * count if len(sizes) == 1 else sizes


def _same(context: Context, op: SourceOp) -> Lowered | None:
    sizes = context.lowered(op, 0).sizes
    return None if sizes is None else Lowered(sizes=sizes)


def _convert(context: Context, op: SourceOp) -> Lowered | None:
    sizes = context.lowered(op, 0).sizes
    type = op.results[0].type
    if sizes is None or not isinstance(type, TensorType):
        return None
    if type.element == "i1":
        if not all(isinstance(size, int) for size in sizes):
            return None
        return Lowered(sizes=tuple(int(size != 0) for size in sizes))
    return Lowered(sizes=sizes)


def _broadcast(context: Context, op: SourceOp) -> Lowered | None:
    sizes, type = context.lowered(op, 0).sizes, op.results[0].type
    if sizes is None or not isinstance(type, TensorType):
        return None
    places = ints(op.attributes["broadcast_dimensions"])
    if len(sizes) == 1:
        return Lowered(sizes=sizes * _count(type))
    in_order = _count(type) == len(sizes) and list(places) == sorted(places)
    return Lowered(sizes=sizes) if in_order else None


def _concatenate(context: Context, op: SourceOp) -> Lowered | None:
    operands = _all_sizes(context, op)
    if operands is None or op.attributes["dimension"] != 0:
        return None
    return Lowered(sizes=sum(operands, ()))


def _slice(context: Context, op: SourceOp) -> Lowered | None:
    sizes = context.lowered(op, 0).sizes
    if sizes is None or len(ints(op.attributes["start_indices"])) != 1:
        return None
    (start,), (limit,) = ints(op.attributes["start_indices"]), ints(op.attributes["limit_indices"])
    return Lowered(sizes=sizes[start : limit : ints(op.attributes["strides"])[0]])


def _binary(compute: Callable[[Dim, Dim], Dim]) -> Fold:
    return _elementwise(lambda context, a, b: compute(a, b))


def _add(context: Context, op: SourceOp) -> Lowered | None:
    if str(op.results[0].type).startswith("i1["):  # on i1 it means "or"
        return None
    return _binary(lambda a, b: a + b)(context, op)


_FOLDS: dict[str, Fold] = {
    "constant": _constant,
    "get_dimension_size": _dimension_size,
    "add": _add,
    "subtract": _binary(lambda a, b: a - b),
    "multiply": _binary(lambda a, b: a * b),
    "negate": _elementwise(lambda context, a: a * -1),
    "divide": _elementwise(_divide),
    "remainder": _elementwise(_remainder),
    "sign": _elementwise(_sign),
    "abs": _elementwise(_absolute),
    "maximum": _elementwise(_maximum),
    "minimum": _elementwise(_minimum),
    "compare": _compare,
    "and": _and,
    "or": _or,
    "not": _not,
    "select": _select,
    "clamp": _clamp,
    "convert": _convert,
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "slice": _slice,
    "reshape": _same,
    "dynamic_reshape": _same,
}

"""Functions of one byte become a table: what stands between codes and the next codes.

A network that is quantised around each op dequantises the codes of a layer, takes e.g. `x *
logistic(x)` of them, with codes in between, and quantises that. All of it depends on one byte, so
256 elements say all that it can be. A `take` from them costs less than the function where that has
exponentials, divisions or many steps; the kernel that makes the codes takes it in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.interpreter import evaluate_op
from ingot.compiler.graph.ops import COSTLY, OPS, Take
from ingot.compiler.graph.references.numbers import Array
from ingot.compiler.graph.rewriter import literal_of_value, rewrite, splat_of, weights_of
from ingot.compiler.ir import Function, Literal, Module, Op, TensorType, Value, derived
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.spec import dtype

__all__ = ["tabulate_codes"]

_U8, _I8 = dtype("u8"), dtype("i8")
_COSTLY, _LEAST = 16, 24
"""Plain ops that a costly one takes as long as, and those that a look-up of bytes does; without an
instruction for it, each lane is looked up alone."""


def tabulate_codes(module: Module) -> Module:
    """Make tables of functions of bytes in every function; returns the module."""
    for function in module.functions.values():
        rewrite(function.block, _Tables(function).rule)
    return module


@dataclass(frozen=True)
class _Derived:
    """What a value is computed from alone, element by element: codes, or constants (None). `cost`:
    in plain ops."""

    codes: Value | None
    cost: int


class _Tables:
    """`known` has None for what is computed from others."""

    def __init__(self, function: Function) -> None:
        self.weights = weights_of(function)
        self.known: dict[Value, _Derived | None] = {}

    def rule(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        if op.name not in ("convert", "xor") or tensor_type(op.result).dtype not in (_U8, _I8):
            return None
        found = self._derive(op)
        if found is None or found.codes is None or found.cost < _LEAST:
            return None
        if found.codes in self.weights:
            return None
        table = self._table(op.result, found.codes).astype(tensor_type(op.result).dtype.numpy)
        literal = builder.constant(Literal(table.view(np.uint8), _U8))
        places = found.codes
        if tensor_type(places).dtype is _I8:
            places = builder.value("bitcast", places, dtype=_U8)
        taken = builder.value("take", literal, places, axis=0, mode="clamp")
        return [taken if tensor_type(op.result).dtype is _U8 else
                builder.value("bitcast", taken, dtype=_I8)]  # fmt: skip

    def _derive(self, op: Op) -> _Derived | None:
        """That of the op's result, without taking bytes for codes of their own."""
        parts = [self._of(each) for each in _operands(op)]
        found = [each for each in parts if each is not None]
        sources = {each.codes for each in found if each.codes is not None}
        if not parts or len(found) < len(parts) or len(sources) > 1:
            return None
        cost = _cost(op) + sum(each.cost for each in found)
        return _Derived(sources.pop() if sources else None, cost)

    def _of(self, x: Value) -> _Derived | None:
        return derived(x, self.known, _parts, self._compute)

    def _compute(self, x: Value) -> _Derived | None:
        if splat_of(x) is not None:
            return _Derived(None, 0)
        found = self._derive(x.owner) if isinstance(x.owner, Op) else None
        if found is None and isinstance(x.type, TensorType) and x.type.dtype in (_U8, _I8):
            return _Derived(x, 0)
        return found

    def _table(self, x: Value, codes: Value) -> Array:
        """The 256 elements that a value has for the bytes 0, 1, ... of the codes."""
        places = np.arange(256, dtype=np.uint8)
        made: dict[Value, Array] = {codes: places.view(tensor_type(codes).dtype.numpy)}
        for op in _in_order(x, made):
            arrays = [made[each] for each in _operands(op)]
            if op.name == "take":
                table = literal_of_value(op.operands[0])
                assert table is not None
                arrays.insert(0, table.array)
            made[op.result] = np.asarray(evaluate_op(op, arrays)[0])
        return made[x]


def _operands(op: Op) -> list[Value]:
    """What the op computes an element from: one of each; none of an op that is not element-wise."""
    if op.name == "take" and _is_table(op):
        return op.operands[1:]
    row = OPS.get(op.name)
    is_single = row is not None and row.family == "elementwise" and len(op.results) == 1
    is_tensor = is_single and isinstance(op.result.type, TensorType)
    return op.operands if is_tensor else []


def _is_table(op: Op) -> bool:
    table = literal_of_value(op.operands[0])
    return table is not None and table.shape == (256,) and Take.of(op).axis == 0


def _cost(op: Op) -> int:
    """In plain ops. What is looked up already takes no longer with more behind it; a division by a
    constant will be a multiplication."""
    if op.name == "take":
        return _LEAST
    is_scaling = op.name == "div" and splat_of(op.operands[1]) is not None
    return _COSTLY if op.name in COSTLY and not is_scaling else 1


def _parts(value: Value) -> Sequence[Value]:
    """Of which the value is derived."""
    is_made = isinstance(value.owner, Op) and splat_of(value) is None
    return _operands(value.op) if is_made else ()


def _in_order(x: Value, made: dict[Value, Array]) -> Iterator[Op]:
    """The ops that make x of what is made, each behind its operands; splats are made here."""
    waiting = [x]
    while waiting:
        value = waiting[-1]
        number = None if value in made else splat_of(value)
        if number is not None:
            made[value] = np.full(256, number)
        missing = [] if value in made else [v for v in _operands(value.op) if v not in made]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        if value not in made:
            yield value.op

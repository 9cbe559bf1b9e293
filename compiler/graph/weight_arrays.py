"""What weights are: values that depend on constants only, evaluated with the references."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.graph.interpreter import evaluate_op, padded_count
from ingot.compiler.graph.moved_axes import MovedAxes
from ingot.compiler.graph.ops import Transpose, lookup
from ingot.compiler.graph.references.numbers import Array
from ingot.compiler.graph.rewriter import literal_of_value, tensor_ops
from ingot.compiler.ir import Function, Later, Op, Value, clone_op
from ingot.compiler.ir.dims import known_dim, known_dims
from ingot.hal.errors import Error, Unsupported

__all__ = ["WeightArrays"]

_COSTLY = frozenset(
    {
        "dot_general",
        "convolution",
        "sort",
        "top_k",
        "scatter",
        "attention",
        "attention_paged",
        "cumulative",
    }
)
"""Ops that are not evaluated, since the references take their time over them."""

_SURE = frozenset({"leaves", "shape", "elementwise"})
"""Families of ops whose references refuse dtypes only, no elements."""

_ROOM, _GROWTH = 1 << 28, 64
"""Arrays may take so many bytes, and so many times what the function's constants take: a model
of a few bytes does not use up the memory."""

_REMEMBERED = 1 << 16
"""Bytes of the longest array that is remembered: a longer one is made anew for whoever asks."""


class WeightArrays:
    """The arrays of a function's weights (`weights_of`), computed when asked."""

    def __init__(self, function: Function) -> None:
        results = (result for op in tensor_ops(function.block) for result in op.results)
        self.order = {result: place for place, result in enumerate(results)}
        self.arrays: dict[Value, Array | None] = {}
        literals = (literal_of_value(result) for result in self.order)
        self.room = _ROOM + _GROWTH * sum(each.nbytes for each in literals if each is not None)

    def of(self, value: Value) -> Array | None:
        """The value's array, or None if a parameter or a costly op is among its sources, or there
        is no room for one."""
        ops = self._sources(value)
        if not self._has_room(ops):
            return None
        for op, last_used in _last_uses(ops):
            self._compute(op)
            for each in last_used - {value}:
                self._forget(each)
        array = self.arrays[value]
        for op in ops:
            for each in op.results:
                self._forget(each)
        return array

    def _forget(self, value: Value) -> None:
        if _length(value) > _REMEMBERED and self.arrays.get(value) is not None:
            del self.arrays[value]

    def later(self, value: Value) -> Later | None:
        """What makes the value's array whenever it is asked for; None if it may be that there is
        none."""
        ops = self._sources(value, anew=True)
        if not self._has_room(ops) or not all(map(_is_sure, ops)):
            return None
        return _Computed(ops, value)

    def _sources(self, value: Value, anew: bool = False) -> list[Op]:
        """The ops that make it, in order; those whose results are not remembered, or all."""
        needed: dict[Op, int] = {}
        waiting = [value]
        while waiting:
            each = waiting.pop()
            op = each.owner
            assert isinstance(op, Op)
            if op not in needed and (anew or each not in self.arrays):
                needed[op] = self.order[op.results[0]]
                waiting.extend(op.operands)
        return sorted(needed, key=needed.__getitem__)

    def _has_room(self, ops: Sequence[Op]) -> bool:
        made = (each for op in ops if op.name != "constant" for each in op.results)
        padded = (padded_count(op) * tensor_type(op.results[0]).dtype.bytes for op in ops)
        return sum(map(_length, made)) + sum(padded) <= self.room

    def _compute(self, op: Op) -> None:
        operands = [self.arrays[operand] for operand in op.operands]
        self.arrays.update(dict.fromkeys(op.results))
        if op.name == "parameter" or op.name in _COSTLY or any(each is None for each in operands):
            return
        try:
            arrays = evaluate_op(op, [each for each in operands if each is not None])
        except Error:
            return  # a dtype without ml_dtypes, or an index out of range: left to load time
        self.arrays.update(zip(op.results, arrays, strict=True))


class _Computed(Later):
    """A weight that is evaluated from copies of `ops`, which passes may change."""

    def __init__(self, ops: Sequence[Op], value: Value) -> None:
        copies: dict[Value, Value] = {}
        self.ops = [clone_op(op, copies) for op in ops]
        self.value = copies[value]
        self.shape = known_dims(tensor_type(value).shape)

    def make(self) -> Array:
        return next(self.parts()).reshape(self.shape)

    def parts(self) -> Iterator[Array]:
        at = len(self.ops)
        while at > 0 and _is_move(self.ops[at - 1], self.ops[at:]):
            at -= 1
        if at == len(self.ops):
            yield self._evaluated(self.ops, self.value)
            return
        moved = MovedAxes(self._evaluated(self.ops[:at], self.ops[at].operands[0]))
        for op in self.ops[at:]:
            if isinstance(op.attributes, Transpose):
                moved.transpose(op.attributes.permutation)
            else:
                moved.reshape(known_dims(tensor_type(op.result).shape))
        yield moved.array

    def _evaluated(self, ops: Sequence[Op], value: Value) -> Array:
        arrays: dict[Value, Array] = {}
        for op, last_used in _last_uses(ops):
            made = evaluate_op(op, [arrays[operand] for operand in op.operands])
            arrays.update(zip(op.results, made, strict=True))
            for operand in last_used:
                del arrays[operand]
            del made
        return arrays[value]


def _is_move(op: Op, later: Sequence[Op]) -> bool:
    """Whether an op moves elements for the first of later ones alone."""
    reads = [operand for each in later for operand in each.operands]
    is_read = not later or (reads.count(op.result) == 1 and later[0].operands[0] is op.result)
    return op.name in ("reshape", "transpose") and is_read


def _last_uses(ops: Sequence[Op]) -> list[tuple[Op, set[Value]]]:
    """Each op with those of its operands that no later one reads."""
    last = {operand: op for op in ops for operand in op.operands}
    return [(op, {each for each in op.operands if last[each] is op}) for op in ops]


def _is_sure(op: Op) -> bool:
    """Whether the references compute it, whatever the elements are."""
    try:
        for each in (*op.operands, *op.results):
            _ = tensor_type(each).dtype.numpy
    except Unsupported:
        return False
    is_given = op.name in ("parameter", "global")
    return not op.regions and not is_given and lookup(op.name).family in _SURE


def _length(value: Value) -> int:
    type = tensor_type(value)
    return prod(map(known_dim, type.shape)) * type.dtype.bytes

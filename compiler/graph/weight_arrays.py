"""What weights are: values that depend on constants only, evaluated with the references."""

from __future__ import annotations

from math import prod

from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.graph.interpreter import evaluate_op
from ingot.compiler.graph.references.leaves import array_of
from ingot.compiler.graph.references.numbers import Array
from ingot.compiler.graph.rewriter import literal_of_value, tensor_ops
from ingot.compiler.ir import Function, Op, Value
from ingot.compiler.ir.dims import known_dim
from ingot.hal.errors import Error

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

_ROOM, _GROWTH = 1 << 28, 64
"""Arrays may take so many bytes, and so many times what the function's constants take: a model
of a few bytes does not use up the memory."""


class WeightArrays:
    """The arrays of a function's weights (`weights_of`), computed when asked and remembered."""

    def __init__(self, function: Function) -> None:
        results = (result for op in tensor_ops(function.block) for result in op.results)
        self.order = {result: place for place, result in enumerate(results)}
        self.arrays: dict[Value, Array | None] = {}
        literals = (literal_of_value(result) for result in self.order)
        self.most = _ROOM + _GROWTH * sum(
            _stored(each.array) for each in literals if each is not None
        )
        self.room = self.most

    def of(self, value: Value) -> Array | None:
        """The value's array, or None if a parameter or a costly op is among its sources, or there
        is no room for one."""
        needed: set[Value] = set()
        waiting = [value]
        while waiting:
            each = waiting.pop()
            if each not in self.arrays and each not in needed:
                needed.add(each)
                assert isinstance(each.owner, Op)
                waiting.extend(each.owner.operands)
        for each in sorted(needed, key=self.order.__getitem__):
            if each not in self.arrays:
                self._compute(each)
        return self.arrays[value]

    def forget(self) -> None:
        """Free what is remembered."""
        self.arrays.clear()
        self.room = self.most

    def _compute(self, value: Value) -> None:
        op = value.owner
        assert isinstance(op, Op)
        literal = literal_of_value(value)
        operands = [self.arrays[operand] for operand in op.operands]
        self.arrays[value] = None
        if literal is not None:
            self.arrays[value] = array_of(literal)
            return
        if op.name == "parameter" or op.name in _COSTLY or any(each is None for each in operands):
            return
        length = sum(_length(result) for result in op.results)
        if length > self.room:
            return
        self.room -= length
        try:
            arrays = evaluate_op(op, [each for each in operands if each is not None])
        except Error:
            return  # a dtype without ml_dtypes, or an index out of range: left to load time
        self.arrays.update(zip(op.results, arrays, strict=True))


def _length(value: Value) -> int:
    type = tensor_type(value)
    return prod(map(known_dim, type.shape)) * type.dtype.bytes


def _stored(array: Array) -> int:
    """The bytes that an array takes, in which elements may lie in many places."""
    steps = zip(array.shape, array.strides, strict=True)
    count: int = prod(size for size, step in steps if step)
    return count * int(array.itemsize)

"""What weights are: values that depend on constants only, evaluated with the references."""

from __future__ import annotations

from ingot.compiler.graph.interpreter import evaluate_op
from ingot.compiler.graph.references.leaves import array_of
from ingot.compiler.graph.references.numbers import Array
from ingot.compiler.graph.rewriter import literal_of_value, tensor_ops
from ingot.compiler.ir import Function, Op, Value
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


class WeightArrays:
    """The arrays of a function's weights (`weights_of`), computed when asked and remembered."""

    def __init__(self, function: Function) -> None:
        results = (result for op in tensor_ops(function.block) for result in op.results)
        self.order = {result: place for place, result in enumerate(results)}
        self.arrays: dict[Value, Array | None] = {}

    def of(self, value: Value) -> Array | None:
        """The value's array, or None if a parameter or a costly op is among its sources."""
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
        try:
            arrays = evaluate_op(op, [each for each in operands if each is not None])
        except Error:
            return  # a dtype without ml_dtypes, or an index out of range: left to load time
        self.arrays.update(zip(op.results, arrays, strict=True))

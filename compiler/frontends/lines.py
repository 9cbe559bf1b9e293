"""Numbers that only the call knows, in formulas that are written for NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ingot.compiler.frontends.emitter import Emitter, type_of
from ingot.compiler.ir import Value

__all__ = ["Line"]

_OPS = {
    np.add: "add", np.subtract: "sub", np.multiply: "mul", np.divide: "div", np.minimum: "min",
    np.maximum: "max", np.floor: "floor", np.ceil: "ceil", np.absolute: "abs",
    np.bitwise_or: "or",
}  # fmt: skip
_DIRECTIONS = {
    np.equal: "eq", np.less: "lt", np.less_equal: "le", np.greater: "gt", np.greater_equal: "ge",
}  # fmt: skip


class Line(np.lib.mixins.NDArrayOperatorsMixin):
    """A tensor, with operators and functions of NumPy that become ops; arrays and numbers beside it
    become constants of its dtype."""

    def __init__(self, c: Emitter, value: Value) -> None:
        self.c = c
        self.value = value

    def __array_ufunc__(self, function: Any, method: str, *given: Any, **options: Any) -> Any:
        if method != "__call__" or options or function not in {*_OPS, *_DIRECTIONS}:
            return NotImplemented
        operands = self._operands(*given)
        if function in _DIRECTIONS:
            return Line(self.c, self.c.compare(_DIRECTIONS[function], *operands))
        return Line(self.c, self.c.op(_OPS[function], *operands))

    def __array_function__(self, function: Any, types: Any, given: Any, options: Any) -> Any:
        if function is not np.where or options:
            return NotImplemented
        condition, *choices = given
        like = next((each for each in choices if isinstance(each, Line)), None)
        if like is None:
            return NotImplemented
        holds = condition.value if isinstance(condition, Line) else self.c.constant(condition, "i1")
        operands = self.c.broadcast(holds, *like._operands(*choices))
        return Line(self.c, self.c.op("select", *operands))

    def _operands(self, *given: Any) -> list[Value]:
        """Lines, arrays and numbers as values of one shape."""
        element = type_of(self.value).dtype
        values = (
            each.value if isinstance(each, Line) else self.c.constant(each, element)
            for each in given
        )
        return self.c.broadcast(*values)

    def sum(self, axis: int) -> Line:
        return Line(self.c, self.c.reduce(self.value, [axis], "add"))

    def max(self, axis: int) -> Line:
        return Line(self.c, self.c.reduce(self.value, [axis], "max"))

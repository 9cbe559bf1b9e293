"""Numbers that only the call knows, in formulas that are written for NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ingot.compiler.frontends.emitter import Emitter, shape_of, type_of
from ingot.compiler.ir import Value

__all__ = ["Line"]

_OPS = {
    np.add: "add", np.subtract: "sub", np.multiply: "mul", np.divide: "div", np.minimum: "min",
    np.maximum: "max", np.floor: "floor", np.ceil: "ceil", np.absolute: "abs",
}  # fmt: skip


class Line(np.lib.mixins.NDArrayOperatorsMixin):
    """A tensor of floats, with operators and functions of NumPy that become ops; arrays and numbers
    beside it become constants of its dtype."""

    def __init__(self, c: Emitter, value: Value) -> None:
        self.c = c
        self.value = value

    def __array_ufunc__(self, function: Any, method: str, *given: Any, **options: Any) -> Any:
        if method != "__call__" or options or function not in _OPS:
            return NotImplemented
        return Line(self.c, self.c.op(_OPS[function], *self.operands(*given)))

    def operands(self, *given: Any) -> list[Value]:
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

    def compare(self, direction: str, other: Any) -> Value:
        return self.c.compare(direction, *self.operands(self, other))

    def where(self, condition: Value, other: Any) -> Line:
        """`other` where the condition holds, this elsewhere."""
        mine, theirs = self.operands(self, other)
        spread = self.c.broadcast_to(condition, shape_of(mine))
        return Line(self.c, self.c.op("select", spread, theirs, mine))

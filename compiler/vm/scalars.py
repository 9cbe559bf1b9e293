"""Instructions of scalar ops: graph ops on values that live in registers of the VM.

Integers of every width lie in i64 registers as their numbers, floats in f64 registers,
rounded to their dtype after every op; so a result is bit for bit that of the kernels.
`dispatch/scalar_ops.py` lists the ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.graph.ops import Compare, Constant, DimValue
from ingot.compiler.ir import Op, ScalarType, Value
from ingot.compiler.kernels.trace import number_of
from ingot.compiler.vm.code import CodeBuilder
from ingot.compiler.vm.sizes import Sizes
from ingot.hal.spec import DType

__all__ = ["write_scalar_op"]

_PLAIN = {"add": "add", "sub": "sub", "mul": "mul", "div": "div"}
_INTEGER = {
    "rem": "rem.i64",
    "and": "and.i64",
    "or": "or.i64",
    "xor": "xor.i64",
    "max": "max.i64",
    "min": "min.i64",
    "shift_left": "shl.i64",
    "shift_right_arithmetic": "shr.i64",
}
_KEEP_RANGE = frozenset({"rem", "and", "or", "xor", "max", "min", "shift_right_arithmetic"})
"""Integer ops whose results always fit where their operands do."""

_DIRECTIONS = {
    "lt": ("lt", False, False),  # instruction, operands swapped, result negated
    "le": ("le", False, False),
    "gt": ("lt", True, False),
    "ge": ("le", True, False),
    "eq": ("eq", False, False),
    "ne": ("eq", False, True),
}


def write_scalar_op(op: Op, operands: Sequence[Value], code: CodeBuilder, sizes: Sizes) -> Value:
    """The register that holds the result of `op`."""
    return _Writer(op, list(operands), code, sizes).write()


def dtype_of(value: Value) -> DType:
    """The dtype of a host scalar."""
    return value.typed(ScalarType).dtype


class _Writer:
    def __init__(self, op: Op, operands: list[Value], code: CodeBuilder, sizes: Sizes) -> None:
        self.op = op
        self.operands = operands
        self.code = code
        self.sizes = sizes
        self.dtype = dtype_of(op.result)
        self.source = dtype_of(op.operands[-1]) if op.operands else self.dtype

    def write(self) -> Value:
        name = self.op.name
        special: dict[str, Callable[[], Value]] = {
            "constant": self._constant,
            "dim": lambda: self.sizes.value(DimValue.of(self.op).value),
            "reshape": lambda: self.operands[0],
            "broadcast": lambda: self.operands[0],
            "compare": self._compare,
            "select": self._select,
            "convert": self._convert,
            "clamp": self._clamp,
            "not": self._not,
            "neg": self._neg,
            "abs": self._abs,
            "sign": self._sign,
        }
        if name in special:
            return special[name]()
        if self.dtype.is_float:
            if name in ("max", "min"):
                return self._float_extreme(name)
            return self._round(self._do(f"{_PLAIN[name]}.f64", *self.operands))
        if self.dtype.is_boolean and name in ("add", "mul"):
            return self._do("or.i64" if name == "add" else "and.i64", *self.operands)
        instruction = _INTEGER.get(name) or f"{_PLAIN[name]}.i64"
        result = self._do(instruction, *self.operands)
        return result if name in _KEEP_RANGE else self._wrap(result)

    def _do(self, name: str, *operands: Value, immediates: tuple[int, ...] = ()) -> Value:
        return self.code.op(name, *operands, immediates=immediates)[0]

    def _wrap(self, value: Value) -> Value:
        if self.dtype.name == "i64":
            return value
        return self._do("wrap.i64", value, immediates=(self.dtype.code,))

    def _round(self, value: Value) -> Value:
        if self.dtype.name == "f64":
            return value
        return self._do("round.f64", value, immediates=(self.dtype.code,))

    def _constant(self) -> Value:
        number = number_of(Constant.of(self.op).value)
        if self.dtype.is_float:
            return self.code.float_constant(float(number))
        return self.code.constant(int(number))

    def _compare(self) -> Value:
        name, swapped, negated = _DIRECTIONS[Compare.of(self.op).direction]
        kind = "f64" if self.source.is_float else "i64"
        if name == "eq" and negated and kind == "i64":
            return self._do("ne.i64", *self.operands)
        a, b = reversed(self.operands) if swapped else self.operands
        result = self._do(f"{name}.{kind}", a, b)
        return self._do("xor.i64", result, self.code.constant(1)) if negated else result

    def _select(self) -> Value:
        return self._do("select.f64" if self.dtype.is_float else "select.i64", *self.operands)

    def _clamp(self) -> Value:
        low, x, high = self.operands
        return self._do("min.i64", self._do("max.i64", low, x), high)

    def _not(self) -> Value:
        ones = 1 if self.dtype.is_boolean else -1
        return self._wrap(self._do("xor.i64", self.operands[0], self.code.constant(ones)))

    def _neg(self) -> Value:
        if self.dtype.is_float:
            return self._do("mul.f64", self.operands[0], self.code.float_constant(-1.0))
        return self._wrap(self._do("sub.i64", self.code.constant(0), self.operands[0]))

    def _sign(self) -> Value:
        one, minus = self.code.constant(1), self.code.constant(-1)
        return self._do("max.i64", self._do("min.i64", self.operands[0], one), minus)

    def _abs(self) -> Value:
        (x,) = self.operands
        if not self.dtype.is_float:
            negative = self._do("sub.i64", self.code.constant(0), x)
            return self._wrap(self._do("max.i64", x, negative))
        # -0 becomes 0, which max of x and -x need not give.
        zero = self.code.float_constant(0.0)
        below = self._do("lt.f64", x, zero)
        size = self._do("select.f64", below, self._do("sub.f64", zero, x), x)
        return self._do("add.f64", size, zero)

    def _float_extreme(self, name: str) -> Value:
        """The greater or smaller one; NaN if one is NaN; 0 is greater than -0."""
        a, b = self.operands
        first, second = (b, a) if name == "max" else (a, b)
        picked = self._do("select.f64", self._do("lt.f64", first, second), a, b)
        same = self._do("eq.f64", a, b)
        # Equal numbers differ in the sign of a zero at most, which these sums settle.
        tie = self._do("add.f64", a, b)
        if name == "min":
            minus = self.code.float_constant(-1.0)
            flipped = [self._do("mul.f64", each, minus) for each in (a, b)]
            tie = self._do("mul.f64", self._do("add.f64", *flipped), minus)
        is_zero = self._do("eq.f64", a, self.code.float_constant(0.0))
        picked = self._do("select.f64", self._do("and.i64", same, is_zero), tie, picked)
        is_number = self._do("eq.f64", a, a)
        picked = self._do("select.f64", is_number, picked, a)
        return self._do("select.f64", self._do("eq.f64", b, b), picked, b)

    def _convert(self) -> Value:
        (x,) = self.operands
        if self.dtype.is_float:
            return self._round(x if self.source.is_float else self._do("i64.to.f64", x))
        if self.dtype.is_boolean:
            if self.source.is_float:
                zero = self._do("eq.f64", x, self.code.float_constant(0.0))
                return self._do("xor.i64", zero, self.code.constant(1))
            return self._do("ne.i64", x, self.code.constant(0))
        if not self.source.is_float:
            return self._wrap(x)
        low, high = self.dtype.limits
        whole = self._do("f64.to.i64", x)
        whole = self._do("max.i64", whole, self.code.constant(low))
        return self._do("min.i64", whole, self.code.constant(high))

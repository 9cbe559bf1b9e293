"""Which graph ops the VM computes in its registers, on values of one element.

The instructions themselves are written in `vm/scalars.py`, one rule per op that is listed
here; a test compares the two lists.
"""

from __future__ import annotations

from typing import cast

from ingot.compiler.ir import Op, TensorType, Type
from ingot.hal.spec import DType

__all__ = ["FLOAT_OPS", "INTEGER_OPS", "is_host_op", "is_host_type"]

INTEGER_OPS = frozenset(
    {
        *("add", "sub", "mul", "div", "rem", "and", "or", "xor", "not", "neg", "abs", "max", "min"),
        "sign",
        *("shift_left", "shift_right_arithmetic", "compare", "select", "clamp", "convert"),
    }
)
FLOAT_OPS = frozenset(
    {"add", "sub", "mul", "div", "neg", "abs", "max", "min", "compare", "select", "convert"}
)
_SAME = frozenset({"reshape", "broadcast"})  # between shapes of one element
_INTEGERS = frozenset({"i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32"})
_FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
_EXACT = frozenset({"i1", "i8", "i16", "i32", "u8", "u16", "u32"})  # in f64, then rounded once


def is_host_type(type: Type) -> bool:
    """Whether a register can hold a value of this type: one element of a common dtype."""
    return (
        isinstance(type, TensorType)
        and all(dim == 1 for dim in type.shape)
        and type.dtype.name in _INTEGERS | _FLOATS
    )


def is_host_op(op: Op) -> bool:
    """Whether the VM can compute the op, given that all its values have host types."""
    if op.name in ("constant", "dim"):
        return op.name == "constant" or _dtype(op.result.type).name in _INTEGERS
    if op.name in _SAME:
        return True
    dtypes = {_dtype(operand.type).name for operand in op.operands}
    if op.name == "convert":
        (source,), target = dtypes, _dtype(op.result.type).name
        return source in _FLOATS or target in _INTEGERS or source in _EXACT or target == "f64"
    if op.name == "select":
        dtypes = {_dtype(operand.type).name for operand in op.operands[1:]}
    if dtypes <= _FLOATS:
        return op.name in FLOAT_OPS
    if op.name == "shift_right_arithmetic" and any(name.startswith("u") for name in dtypes):
        return False  # it takes the highest bit of an unsigned number for a sign
    return op.name in INTEGER_OPS


def _dtype(type: Type) -> DType:
    return cast(TensorType, type).dtype

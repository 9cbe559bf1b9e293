"""Pieces of C text: names of types and of functions on memory, literals, and by how much shifts
move."""

from __future__ import annotations

import math
from itertools import pairwise

from ingot.compiler.ir import MemoryType, Op, Value, defined_by
from ingot.compiler.kernels.loop import dtype_of, lanes_of
from ingot.compiler.kernels.table import Constant
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType

__all__ = [
    "MEMORY_TYPES",
    "access",
    "converted",
    "literal",
    "scalar_name",
    "shift",
    "stored",
    "wrapped",
]

_SUPPORTED = {"i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16"} | {
    "f32",
    "f64",
}


MEMORY_TYPES = {
    "i1": "uint8_t",
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "f32": "float",
    "f64": "double",
    **{
        f"{kind}{bits}": f"{'u' * (kind == 'u')}int{bits}_t"
        for kind in "iu"
        for bits in (8, 16, 32, 64)
    },
}
"""The standard's C type of an element in memory."""


def scalar_name(element: DType) -> str:
    """The C type of a scalar in a register."""
    if element.name not in _SUPPORTED:
        raise CompileError(
            f"kernels cannot compute with {element.name}; convert to one of: "
            + ", ".join(sorted(_SUPPORTED))
        )
    return "f32" if element.is_half else element.name


def wrapped(name: str, bits: int, target: str, lanes: int) -> str:
    """A vector of integers of `bits` as those of another width."""
    width = int(target[1:])
    if bits < 4 * width:
        return f"__builtin_convertvector({name}, {target}x{lanes})"
    return f"({target}x{lanes})narrow_i{bits}_i{width}x{lanes}((i{bits}x{lanes}){name})"


def converted(name: str, source: str, target: str, lanes: int) -> str:
    """A vector of numbers as those of another type; no floats as integers."""
    is_integer, bits = target[0] in "iu", int(target[1:])
    steps = [source]
    if source in ("u8", "i8", "u16", "i16") and (bits >= 32 or not is_integer):
        steps.append("i32")
    if steps[-1] in ("i32", "u32") and is_integer and bits == 64:
        steps.append("i64")
    elif steps[-1] in ("i32", "f32") and target == "f64":
        steps.append("f64")
    for before, after in pairwise(steps):
        name = f"widen_{before}_{after}x{lanes}({name})"
    if steps[-1] == target:
        return name
    if is_integer:
        return wrapped(name, int(steps[-1][1:]), target, lanes)
    return f"__builtin_convertvector({name}, {target}x{lanes})"


def stored(memory: Value) -> str:
    """What functions on the memory call its elements."""
    return f"{'packed_' * memory.typed(MemoryType).is_packed}{memory.typed(MemoryType).dtype.name}"


def access(kind: str, element: str, lanes: int, partial: bool) -> str:
    """The function that loads or stores, of all lanes or of the first ones."""
    if lanes == 1:
        return f"{kind}_{element}"
    return f"{kind}_partial_{element}x{lanes}" if partial else f"{kind}_{element}x{lanes}"


def literal(value: bool | int | float, element: DType) -> str:
    """A number of the dtype."""
    if element.is_boolean:
        return str(int(value))
    if element.is_float:
        suffix = "" if element.name == "f64" else "f"
        if math.isnan(value):
            return f'__builtin_nan{suffix}("")'
        if math.isinf(value):
            return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
        return f"{float(value).hex()}{suffix}"
    if element.name == "i64" and value == -(2**63):
        return "INT64_MIN"
    suffix = "u" if element.kind == "u" else ""
    return f"{value}{suffix}{'ll' if element.bits == 64 and abs(value) >= 2**31 else ''}"


def shift(op: Op) -> int | None:
    """By how much a shift moves all lanes of a vector, where that is known."""
    known = defined_by(op.operands[1], "loop.constant") if op.name.startswith("shift_") else None
    if known is None or lanes_of(op.result) == 1:
        return None
    count = int(Constant.of(known).value)
    return count if 0 <= count < dtype_of(op.result).bits else None

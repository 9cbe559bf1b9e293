"""How elements and vectors are called in OpenCL C."""

from __future__ import annotations

__all__ = ["LANES", "MEMORY_TYPES", "SWIZZLE", "TYPES", "vector_type"]

LANES = (2, 4, 8, 16)
"""How many lanes a vector of OpenCL C may have."""

SWIZZLE = "0123456789abcdef"
TYPES = {
    "i1": "int",
    "i8": "char",
    "u8": "uchar",
    "i16": "short",
    "u16": "ushort",
    "i32": "int",
    "u32": "uint",
    "i64": "long",
    "u64": "ulong",
    "f16": "float",
    "bf16": "float",
    "f32": "float",
    "f64": "double",
}
"""The OpenCL C type of an element in a register."""

MEMORY_TYPES = {**TYPES, "i1": "uchar", "f16": "half", "bf16": "ushort"}
"""The OpenCL C type of an element in memory."""


def vector_type(scalar: str, lanes: int) -> str:
    """`float` and 4 give `float4`; one lane is a scalar."""
    return scalar if lanes == 1 else f"{scalar}{lanes}"

"""The types of values, for all IR levels.

`f32[n,4]` a tensor, `list<f32[?,4]>` a list of tensors, `f32` a scalar, `vector<16xf32>` a
vector of a kernel, `memory<f32>` typed memory that a kernel reads and writes by element index,
`ref` a device buffer. Types
are frozen, compare by value, and print as text that `parse_type` in `parser.py` reads back.
"""

from __future__ import annotations

from dataclasses import dataclass

from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType

__all__ = ["ListType", "MemoryType", "RefType", "ScalarType", "TensorType", "Type", "VectorType"]


@dataclass(frozen=True)
class TensorType:
    """An array of `dtype` with static rank; each dim an integer or an expression."""

    dtype: DType
    shape: tuple[Dim, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class ListType:
    """Tensors of one `dtype` and rank; None stands for a dim in which they may differ."""

    dtype: DType
    shape: tuple[int | None, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        dims = ",".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"list<{self.dtype.name}[{dims}]>"


@dataclass(frozen=True)
class ScalarType:
    """One element of `dtype` in a register."""

    dtype: DType

    def __str__(self) -> str:
        return self.dtype.name


@dataclass(frozen=True)
class VectorType:
    """`lanes` elements of `dtype` in a vector register."""

    dtype: DType
    lanes: int

    def __str__(self) -> str:
        return f"vector<{self.lanes}x{self.dtype.name}>"


@dataclass(frozen=True)
class MemoryType:
    """Typed memory of a kernel: a binding, scratch, or local memory."""

    dtype: DType

    def __str__(self) -> str:
        return f"memory<{self.dtype.name}>"


@dataclass(frozen=True)
class RefType:
    """A reference to a device buffer."""

    def __str__(self) -> str:
        return "ref"


Type = TensorType | ListType | ScalarType | VectorType | MemoryType | RefType

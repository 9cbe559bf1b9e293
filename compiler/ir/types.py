"""The types of values, for all IR levels.

`f32[n,4]` a tensor, `list<f32[?,4]>` a list of tensors, `sequence<f32[?,4]>` such a list as
callers pass and get it, `&acme.db` an object of the application, `f32` a scalar, `vector<16xf32>`
a vector of a kernel, `memory<f32>` typed memory that a kernel reads and writes by element index,
`index` an integer that counts a kernel's loops, work items and elements, `ref` a device buffer.
Types are frozen, compare by value, and print as text that `parse_type` in `parser.py` reads back.
"""

from __future__ import annotations

from functools import cached_property

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, symbols_of
from ingot.hal.spec import DType, dtype

__all__ = [
    "IndexType",
    "ListType",
    "MemoryType",
    "PassedType",
    "RefType",
    "ReferenceType",
    "ScalarType",
    "TensorType",
    "Type",
    "VectorType",
]


@dataclass(frozen=True)
class TensorType:
    """An array of `dtype` with static rank; each dim an integer or an expression."""

    dtype: DType
    shape: tuple[Dim, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The names of the symbols in the dims."""
        return frozenset[str]().union(*map(symbols_of, self.shape))

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


_HANDLE = dtype("i64")


@dataclass(frozen=True)
class ReferenceType(TensorType):
    """An object of the application, of a type that it names: a handle, which is only passed on."""

    dtype: DType = _HANDLE
    name: str = ""

    def __str__(self) -> str:
        return f"&{self.name}"


@dataclass(frozen=True)
class ListType:
    """Tensors of one `dtype` and rank; None stands for a dim in which they may differ. Of which
    rank they are may be open until a call: `any_rank`."""

    dtype: DType
    shape: tuple[int | None, ...] = ()
    any_rank: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def element(self) -> str:
        """The type of an element: `f32[?,4]`, `f32[*]`."""
        dims = ",".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{self.dtype.name}[{'*' if self.any_rank else dims}]"

    def __str__(self) -> str:
        return f"list<{self.element}>"


@dataclass(frozen=True)
class PassedType:
    """An argument or result that is no tensor, with the list that it is inside: a `sequence`, an
    `optional` tensor (no element, or one), or an `optional_sequence`."""

    kind: str
    list: ListType

    @property
    def dtype(self) -> DType:
        return self.list.dtype

    def __str__(self) -> str:
        return f"{self.kind}<{self.list.element}>"


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
    """Typed memory of a kernel: a binding, scratch, or local memory. Integers below 8 bits lie
    packed in it, the first element in the low bits of a byte, and have 8 bits in a register."""

    dtype: DType

    @property
    def is_packed(self) -> bool:
        """Whether a byte has several elements."""
        return self.dtype.is_integer and self.dtype.bits < 8

    @property
    def element(self) -> DType:
        """The dtype of an element in a register."""
        return dtype(f"{self.dtype.kind}8") if self.is_packed else self.dtype

    def __str__(self) -> str:
        return f"memory<{self.dtype.name}>"


@dataclass(frozen=True)
class IndexType:
    """A signed integer as wide as the device counts: 64 bits, or 32 where that is enough."""

    def __str__(self) -> str:
        return "index"


@dataclass(frozen=True)
class RefType:
    """A reference to a device buffer."""

    def __str__(self) -> str:
        return "ref"


Type = (
    TensorType | ListType | PassedType | ScalarType | VectorType | MemoryType | IndexType | RefType
)

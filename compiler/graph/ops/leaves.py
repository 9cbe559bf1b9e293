"""Rows of ops without operands (constants, parameters, dims, iota) and of terminators."""

from __future__ import annotations

from ingot.compiler.graph.ops.table import OpRow, register, require
from ingot.compiler.ir import Literal, TensorType
from ingot.compiler.ir.attributes import Attributes, Dims
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType

__all__ = ["Constant", "DimValue", "Global", "Iota", "Parameter"]


@dataclass(frozen=True)
class Constant(Attributes):
    """A tensor that stands in the module."""

    value: Literal

    def result(self) -> TensorType:
        return TensorType(self.value.dtype, self.value.shape)


@dataclass(frozen=True)
class Parameter(Attributes):
    """An external weight, found by `key` in the parameters `scope` when the module loads."""

    scope: str
    key: str
    dtype: DType
    shape: Dims

    def result(self) -> TensorType:
        require(all(isinstance(dim, int) for dim in self.shape), "a parameter has a static shape")
        return TensorType(self.dtype, self.shape)


@dataclass(frozen=True)
class Global(Attributes):
    """Result number `index` of the function `init`, which runs once at load."""

    index: int
    dtype: DType
    shape: Dims

    def result(self) -> TensorType:
        require(self.index >= 0, f"index {self.index} must not be negative")
        return TensorType(self.dtype, self.shape)


@dataclass(frozen=True)
class DimValue(Attributes):
    """The number that a symbolic dim has in this call, rank 0."""

    value: Dim
    dtype: DType

    def result(self) -> TensorType:
        require(self.dtype.is_integer, f"a dim has an integer dtype, not {self.dtype}")
        return TensorType(self.dtype, ())


@dataclass(frozen=True)
class Iota(Attributes):
    """Each element is its index along `axis`."""

    dtype: DType
    shape: Dims
    axis: int

    def result(self) -> TensorType:
        require(
            0 <= self.axis < len(self.shape),
            f"axis {self.axis} is not in 0 ... {len(self.shape) - 1}",
        )
        require(not self.dtype.is_boolean, "iota has a numeric dtype, not i1")
        return TensorType(self.dtype, self.shape)


def _terminator(*types: TensorType) -> tuple[TensorType, ...]:
    return ()


for _row in (
    OpRow("constant", "leaves", (), Constant),
    OpRow("parameter", "leaves", (), Parameter),
    OpRow("global", "leaves", (), Global),
    OpRow("dim", "leaves", (), DimValue),
    OpRow("iota", "leaves", (), Iota),
    OpRow(
        "return",
        "leaves",
        ("*values",),
        _terminator,
        "Ends a function and gives its results.",
        terminator=True,
    ),
    OpRow(
        "yield",
        "leaves",
        ("*values",),
        _terminator,
        "Ends a region and gives its results.",
        terminator=True,
    ),
):
    register(_row)

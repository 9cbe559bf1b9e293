"""Rows of ops without operands (constants, parameters, dims, iota) and of terminators."""

from __future__ import annotations

from ingot.compiler.graph.ops.table import OpRow, attribute, register, require
from ingot.compiler.ir import Literal, TensorType
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType

__all__: list[str] = []


def _constant(*, value: Literal) -> TensorType:
    return TensorType(value.dtype, tuple(value.array.shape))


def _parameter(*, scope: str, key: str, dtype: DType, shape: tuple[Dim, ...]) -> TensorType:
    require(all(isinstance(dim, int) for dim in shape), "a parameter has a static shape")
    return TensorType(dtype, shape)


def _global(*, index: int, dtype: DType, shape: tuple[Dim, ...]) -> TensorType:
    require(index >= 0, f"index {index} must not be negative")
    return TensorType(dtype, shape)


def _dim(*, value: Dim, dtype: DType) -> TensorType:
    require(dtype.is_integer, f"a dim has an integer dtype, not {dtype}")
    return TensorType(dtype, ())


def _iota(*, dtype: DType, shape: tuple[Dim, ...], axis: int) -> TensorType:
    require(0 <= axis < len(shape), f"axis {axis} is not in 0 ... {len(shape) - 1}")
    require(not dtype.is_boolean, "iota has a numeric dtype, not i1")
    return TensorType(dtype, shape)


def _terminator(*types: TensorType) -> tuple[TensorType, ...]:
    return ()


_SHAPED = {"dtype": attribute("dtype"), "shape": attribute("dims")}

for _row in (
    OpRow(
        "constant",
        "leaves",
        (),
        _constant,
        "A tensor that stands in the module.",
        {"value": attribute("literal")},
    ),
    OpRow(
        "parameter",
        "leaves",
        (),
        _parameter,
        "An external weight, found by `key` in the parameters `scope` when the module loads.",
        {"scope": attribute("string"), "key": attribute("string"), **_SHAPED},
    ),
    OpRow(
        "global",
        "leaves",
        (),
        _global,
        "Result number `index` of the function `init`, which runs once at load.",
        {"index": attribute("int"), **_SHAPED},
    ),
    OpRow(
        "dim",
        "leaves",
        (),
        _dim,
        "The number that a symbolic dim has in this call, rank 0.",
        {"value": attribute("dim"), "dtype": attribute("dtype")},
    ),
    OpRow(
        "iota",
        "leaves",
        (),
        _iota,
        "Each element is its index along `axis`.",
        {**_SHAPED, "axis": attribute("int")},
    ),
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

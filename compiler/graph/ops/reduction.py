"""Rows of ops that combine elements along axes: reduce, arg_max, cumulative, reduce_window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Literal, get_args

from ingot.compiler.graph.ops.shape import AlongAxis, check_axes
from ingot.compiler.graph.ops.table import OpRow, register, require
from ingot.compiler.ir import TensorType
from ingot.compiler.ir.attributes import Attributes, Dims, Ints, Pairs, by_operands
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, floordiv
from ingot.hal.spec import DType

__all__ = [
    "REDUCE_KINDS",
    "ArgExtreme",
    "Cumulative",
    "Reduce",
    "ReduceKind",
    "ReduceWindow",
    "identity",
    "window_dim",
]

ReduceKind = Literal["add", "mul", "max", "min", "and", "or", "xor"]
REDUCE_KINDS = get_args(ReduceKind)
"""How elements combine; the identity of the kind enters where there are none."""


def identity(kind: str, element: DType) -> float:
    """The number that changes nothing when it is combined by `kind`."""
    if kind in ("add", "or", "xor"):
        return 0
    if kind == "mul":
        return 1
    if element.is_float:
        return -math.inf if kind == "max" else math.inf
    if kind == "and" and element.kind == "i":
        return -1
    return element.limits[kind != "max"]


def _ones(x: TensorType) -> tuple[int, ...]:
    return (1,) * x.rank


def _no_padding(x: TensorType) -> tuple[tuple[int, int], ...]:
    return ((0, 0),) * x.rank


def _check_kind(x: TensorType, kind: str) -> None:
    if kind in ("and", "or", "xor"):
        require(x.dtype.kind in "bui", f"kind '{kind}' takes integers or i1, not {x}")
    elif kind in ("add", "mul"):
        require(not x.dtype.is_boolean, f"kind '{kind}' takes numbers, not {x}: use or, and, xor")
    else:
        require(not x.dtype.is_complex, f"kind '{kind}' takes ordered numbers, not {x}")


@dataclass(frozen=True)
class Reduce(Attributes):
    """Elements along `axes` combined by `kind`; sums of f16, bf16 and f8 run in f32 and round
    once; max and min propagate NaN."""

    axes: Ints
    kind: ReduceKind

    def result(self, x: TensorType) -> TensorType:
        check_axes(self.axes, x.rank, "axes")
        _check_kind(x, self.kind)
        return TensorType(
            x.dtype, tuple(dim for axis, dim in enumerate(x.shape) if axis not in self.axes)
        )


@dataclass(frozen=True)
class ArgExtreme(AlongAxis):
    """Of `arg_max`, `arg_min`."""

    dtype: DType
    last: bool = False

    def result(self, x: TensorType) -> TensorType:
        check_axes((self.axis,), x.rank, "axis")
        require(self.dtype.is_integer, f"an index has an integer dtype, not {self.dtype}")
        require(
            x.shape[self.axis] != 0, f"axis {self.axis} of {x} is empty: there is no index to give"
        )
        return TensorType(self.dtype, (*x.shape[: self.axis], *x.shape[self.axis + 1 :]))


@dataclass(frozen=True)
class Cumulative(AlongAxis):
    """Each element combined with all before it on `axis` (after it, if `reverse`); without itself,
    if `exclusive`. Vector lanes go in that order, one by one: sums and products of f16 and bf16 in
    f32 and those of f32 in f64; each element is rounded once."""

    kind: ReduceKind
    exclusive: bool = False
    reverse: bool = False

    def result(self, x: TensorType) -> TensorType:
        check_axes((self.axis,), x.rank, "axis")
        _check_kind(x, self.kind)
        return x


def window_dim(
    dim: Dim, window: Dim, stride: Dim, padding: Sequence[Dim], base: Dim, dilation: Dim
) -> Dim:
    """How many places a dilated window has on a dilated and padded dim."""
    dilated = 0 if dim == 0 else (dim - 1) * base + 1
    room = dilated + padding[0] + padding[1] - ((window - 1) * dilation + 1)
    if isinstance(room, int) and room < 0:
        return 0
    return floordiv(room, stride) + 1


def check_positive(values: Sequence[Dim], name: str) -> None:
    """Raise RuleError if an entry is known to be less than 1."""
    for value in values:
        require(not isinstance(value, int) or value >= 1, f"{name} has {value}, expected 1 or more")


@dataclass(frozen=True)
class ReduceWindow(Attributes):
    """Elements under a window that moves over all axes combined by `kind`; padding has the
    identity of the kind."""

    kind: ReduceKind
    window: Dims
    strides: Dims = field(metadata=by_operands(_ones))
    padding: Pairs = field(metadata=by_operands(_no_padding))
    base_dilation: Dims = field(metadata=by_operands(_ones))
    window_dilation: Dims = field(metadata=by_operands(_ones))

    def result(self, x: TensorType) -> TensorType:
        _check_kind(x, self.kind)
        for name, values in (
            ("window", self.window),
            ("strides", self.strides),
            ("padding", self.padding),
            ("base_dilation", self.base_dilation),
            ("window_dilation", self.window_dilation),
        ):
            require(
                len(values) == x.rank, f"{name} needs {x.rank} entries for {x}, got {len(values)}"
            )
            if name != "padding":
                check_positive(values, name)  # type: ignore[arg-type]
        columns = zip(
            x.shape,
            self.window,
            self.strides,
            self.padding,
            self.base_dilation,
            self.window_dilation,
            strict=True,
        )
        return TensorType(x.dtype, tuple(window_dim(*column) for column in columns))


for _row in (
    OpRow("reduce", "reduction", ("x",), Reduce, ulp=2),
    OpRow(
        "arg_max",
        "reduction",
        ("x: ordered",),
        ArgExtreme,
        "The index of the greatest element, the first (or `last`) of equal ones; NaN is greatest.",
    ),
    OpRow(
        "arg_min",
        "reduction",
        ("x: ordered",),
        ArgExtreme,
        "The index of the least element, the first (or `last`) of equal ones; NaN is least.",
    ),
    OpRow("cumulative", "reduction", ("x",), Cumulative, ulp=2),
    OpRow("reduce_window", "reduction", ("x",), ReduceWindow, ulp=2),
):
    register(_row)

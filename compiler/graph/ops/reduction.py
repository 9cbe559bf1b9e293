"""Rows of ops that combine elements along axes: reduce, arg_max, cumulative, reduce_window."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.graph.ops.shape import check_axes
from ingot.compiler.graph.ops.table import OpRow, attribute, register, require
from ingot.compiler.ir import TensorType
from ingot.compiler.ir.dims import Dim, floordiv
from ingot.hal.spec import DType

__all__ = ["REDUCE_KINDS", "window_dim"]

REDUCE_KINDS = ("add", "mul", "max", "min", "and", "or", "xor")
"""How elements combine; the identity of the kind enters where there are none."""


def _check_kind(x: TensorType, kind: str) -> None:
    if kind in ("and", "or", "xor"):
        require(x.dtype.kind in "bui", f"kind '{kind}' takes integers or i1, not {x}")
    elif kind in ("add", "mul"):
        require(not x.dtype.is_boolean, f"kind '{kind}' takes numbers, not {x}: use or, and, xor")
    else:
        require(not x.dtype.is_complex, f"kind '{kind}' takes ordered numbers, not {x}")


def _reduce(x: TensorType, *, axes: tuple[int, ...], kind: str) -> TensorType:
    check_axes(axes, x.rank, "axes")
    _check_kind(x, kind)
    return TensorType(x.dtype, tuple(dim for axis, dim in enumerate(x.shape) if axis not in axes))


def _arg(x: TensorType, *, axis: int, dtype: DType, last: bool) -> TensorType:
    check_axes((axis,), x.rank, "axis")
    require(dtype.is_integer, f"an index has an integer dtype, not {dtype}")
    require(x.shape[axis] != 0, f"axis {axis} of {x} is empty: there is no index to give")
    return TensorType(dtype, (*x.shape[:axis], *x.shape[axis + 1 :]))


def _cumulative(
    x: TensorType, *, axis: int, kind: str, exclusive: bool, reverse: bool
) -> TensorType:
    check_axes((axis,), x.rank, "axis")
    _check_kind(x, kind)
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


def _reduce_window(
    x: TensorType,
    *,
    kind: str,
    window: tuple[Dim, ...],
    strides: tuple[Dim, ...],
    padding: tuple[tuple[Dim, Dim], ...],
    base_dilation: tuple[Dim, ...],
    window_dilation: tuple[Dim, ...],
) -> TensorType:
    _check_kind(x, kind)
    for name, values in (
        ("window", window),
        ("strides", strides),
        ("padding", padding),
        ("base_dilation", base_dilation),
        ("window_dilation", window_dilation),
    ):
        require(len(values) == x.rank, f"{name} needs {x.rank} entries for {x}, got {len(values)}")
        if name != "padding":
            check_positive(values, name)  # type: ignore[arg-type]
    columns = zip(x.shape, window, strides, padding, base_dilation, window_dilation, strict=True)
    return TensorType(x.dtype, tuple(window_dim(*column) for column in columns))


def _ones(x: TensorType) -> tuple[int, ...]:
    return (1,) * x.rank


def _no_padding(x: TensorType) -> tuple[tuple[int, int], ...]:
    return ((0, 0),) * x.rank


_KIND = attribute("string", choices=REDUCE_KINDS)
_ARG = {
    "axis": attribute("int"),
    "dtype": attribute("dtype"),
    "last": attribute("bool", False),
}

for _row in (
    OpRow(
        "reduce",
        "reduction",
        ("x",),
        _reduce,
        "Elements along `axes` combined by `kind`; sums of f16, bf16 and f8 run in f32 and round "
        "once; max and min propagate NaN.",
        {"axes": attribute("ints"), "kind": _KIND},
        ulp=2,
    ),
    OpRow(
        "arg_max",
        "reduction",
        ("x: ordered",),
        _arg,
        "The index of the greatest element, the first (or `last`) of equal ones; NaN is greatest.",
        _ARG,
    ),
    OpRow(
        "arg_min",
        "reduction",
        ("x: ordered",),
        _arg,
        "The index of the least element, the first (or `last`) of equal ones; NaN is least.",
        _ARG,
    ),
    OpRow(
        "cumulative",
        "reduction",
        ("x",),
        _cumulative,
        "Each element combined with all before it on `axis` (after it, if `reverse`); without "
        "itself, if `exclusive`. Vector lanes go in that order, one by one: sums and products of "
        "f16 and bf16 in f32 and those of f32 in f64; each element is rounded once.",
        {
            "axis": attribute("int"),
            "kind": _KIND,
            "exclusive": attribute("bool", False),
            "reverse": attribute("bool", False),
        },
        ulp=2,
    ),
    OpRow(
        "reduce_window",
        "reduction",
        ("x",),
        _reduce_window,
        "Elements under a window that moves over all axes combined by `kind`; padding has the "
        "identity of the kind.",
        {
            "kind": _KIND,
            "window": attribute("dims"),
            "strides": attribute("dims", _ones),
            "padding": attribute("pairs", _no_padding),
            "base_dilation": attribute("dims", _ones),
            "window_dilation": attribute("dims", _ones),
        },
        ulp=2,
    ),
):
    register(_row)

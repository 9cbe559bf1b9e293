"""Rows of contractions: dot_general, convolution, their packed forms, attention.

The packed forms are made by passes: one operand is a weight in panels of 16 columns. f16,
bf16 and f8 accumulate in f32, narrow integers in i32, rounded or wrapped once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.compiler.graph.forms.winograd import INPUT, WINDOW
from ingot.compiler.graph.ops.reduction import check_positive, window_dim
from ingot.compiler.graph.ops.shape import can_broadcast, check_axes
from ingot.compiler.graph.ops.table import OpRow, RuleError, attribute, dims_text, register, require
from ingot.compiler.ir import TensorType
from ingot.compiler.ir.dims import Dim, ceildiv, product
from ingot.hal.spec import DType

__all__ = ["PANEL", "ConvolutionLayout", "code_steps", "lane_depth", "packed_shape", "parse_layout"]

PANEL = 16
"""Columns of a panel of packed weights."""


def lane_depth(dtype: DType) -> int:
    """K-steps that share a 4-byte lane of a packed line: 1 for f32, 2 for bf16, 4 for i8."""
    return max(1, 4 // dtype.bytes)


def packed_shape(k: Dim, n: Dim, dtype: DType) -> tuple[Dim, Dim, Dim, Dim]:
    """The shape of a packed [k, n] weight: [ceil(n/16), ceil(k/s), 16, s]."""
    depth = lane_depth(dtype)
    return (ceildiv(n, PANEL), ceildiv(k, depth), PANEL, depth)


def _same_class(a: TensorType, b: TensorType) -> None:
    both_integer = a.dtype.is_integer and b.dtype.is_integer
    require(
        a.dtype is b.dtype or both_integer,
        f"{a} and {b} do not contract: convert one to the other's dtype",
    )


def _dot_general(
    a: TensorType,
    b: TensorType,
    *,
    lhs_batch: tuple[int, ...],
    rhs_batch: tuple[int, ...],
    lhs_contract: tuple[int, ...],
    rhs_contract: tuple[int, ...],
    dtype: DType,
) -> TensorType:
    _same_class(a, b)
    check_axes((*lhs_batch, *lhs_contract), a.rank, "lhs_batch and lhs_contract")
    check_axes((*rhs_batch, *rhs_contract), b.rank, "rhs_batch and rhs_contract")
    require(len(lhs_batch) == len(rhs_batch), "lhs_batch and rhs_batch differ in count")
    require(len(lhs_contract) == len(rhs_contract), "contracted axes differ in count")
    pairs = (
        *zip(lhs_batch, rhs_batch, strict=True),
        *zip(lhs_contract, rhs_contract, strict=True),
    )
    for i, j in pairs:
        require(
            a.shape[i] == b.shape[j],
            f"dim {i} of {a} is {a.shape[i]}, but dim {j} of {b} is {b.shape[j]}",
        )
    shape = [a.shape[axis] for axis in lhs_batch]
    shape += [dim for axis, dim in enumerate(a.shape) if axis not in (*lhs_batch, *lhs_contract)]
    shape += [dim for axis, dim in enumerate(b.shape) if axis not in (*rhs_batch, *rhs_contract)]
    return TensorType(dtype, tuple(shape))


@dataclass(frozen=True)
class ConvolutionLayout:
    """The axes of a convolution: of input, weight and result; spatial axes in input order."""

    batch: int
    feature: int
    spatial: tuple[int, ...]
    weight_output: int
    weight_input: int
    weight_spatial: tuple[int, ...]
    result_batch: int
    result_feature: int
    result_spatial: tuple[int, ...]


def parse_layout(layout: str) -> ConvolutionLayout:
    """Read "nchw,oihw->nchw": n batch, c features, o and i of the weight, the rest spatial."""
    operands, arrow, result = layout.partition("->")
    x, comma, w = operands.partition(",")
    spatial = [letter for letter in x if letter not in "nc"]
    good = arrow and comma and sorted(x) == sorted(["n", "c", *spatial])
    good = good and sorted(w) == sorted(["o", "i", *spatial])
    good = good and sorted(result) == sorted(x) and len(set(x)) == len(x)
    if not good:
        raise RuleError(f"layout {layout!r} is not like 'nchw,oihw->nchw'")
    return ConvolutionLayout(
        x.index("n"),
        x.index("c"),
        tuple(x.index(letter) for letter in spatial),
        w.index("o"),
        w.index("i"),
        tuple(w.index(letter) for letter in spatial),
        result.index("n"),
        result.index("c"),
        tuple(result.index(letter) for letter in spatial),
    )


def _spatial_dims(
    sizes: Sequence[Dim],
    window: Sequence[Dim],
    strides: Sequence[Dim],
    padding: Sequence[tuple[Dim, Dim]],
    lhs_dilation: Sequence[Dim],
    rhs_dilation: Sequence[Dim],
) -> list[Dim]:
    count = len(sizes)
    for name, values in (
        ("window", window),
        ("strides", strides),
        ("padding", padding),
        ("lhs_dilation", lhs_dilation),
        ("rhs_dilation", rhs_dilation),
    ):
        require(len(values) == count, f"{name} needs {count} entries, got {len(values)}")
    for name, steps in (
        ("strides", strides),
        ("lhs_dilation", lhs_dilation),
        ("rhs_dilation", rhs_dilation),
    ):
        check_positive(steps, name)
    columns = zip(sizes, window, strides, padding, lhs_dilation, rhs_dilation, strict=True)
    return [window_dim(*column) for column in columns]


def _convolution(
    x: TensorType,
    w: TensorType,
    *,
    layout: str,
    strides: tuple[Dim, ...],
    padding: tuple[tuple[Dim, Dim], ...],
    lhs_dilation: tuple[Dim, ...],
    rhs_dilation: tuple[Dim, ...],
    groups: int,
    dtype: DType,
) -> TensorType:
    _same_class(x, w)
    axes = parse_layout(layout)
    rank = len(axes.spatial) + 2
    require(x.rank == rank and w.rank == rank, f"layout {layout!r} does not fit {x} and {w}")
    features, inputs = x.shape[axes.feature], w.shape[axes.weight_input]
    outputs = w.shape[axes.weight_output]
    require(groups >= 1, f"groups is {groups}, expected 1 or more")
    require(
        features == inputs * groups,
        f"x has {features} features, but w takes {inputs} in each of {groups} groups",
    )
    require(
        not isinstance(outputs, int) or outputs % groups == 0,
        f"w has {outputs} output features, which {groups} groups do not divide",
    )
    spatial = _spatial_dims(
        [x.shape[axis] for axis in axes.spatial],
        [w.shape[axis] for axis in axes.weight_spatial],
        strides,
        padding,
        lhs_dilation,
        rhs_dilation,
    )
    shape: list[Dim] = [0] * rank
    shape[axes.result_batch] = x.shape[axes.batch]
    shape[axes.result_feature] = outputs
    for axis, dim in zip(axes.result_spatial, spatial, strict=True):
        shape[axis] = dim
    return TensorType(dtype, tuple(shape))


def _dot_packed(a: TensorType, b: TensorType, *, n: int, dtype: DType) -> TensorType:
    _same_class(a, b)
    require(a.rank >= 1, "a must have at least one dim")
    wanted = packed_shape(a.shape[-1], n, b.dtype)
    require(b.shape == wanted, f"b is {b}, expected {TensorType(b.dtype, wanted)}")
    return TensorType(dtype, (*a.shape[:-1], n))


def code_steps(coding: DType) -> int:
    """K-steps whose codes share the 4 bytes of a column in a line of a panel."""
    return 32 // coding.bits


def _dot_coded(
    a: TensorType,
    codes: TensorType,
    scales: TensorType,
    *zeros: TensorType,
    n: int,
    coding: DType,
    group: int,
    dtype: DType,
) -> TensorType:
    require(a.rank >= 1, "a must have at least one dim")
    require(coding.is_integer and coding.bits <= 8, f"codes are integers of 8 bits, not {coding}")
    k, steps, panels = a.shape[-1], code_steps(coding), ceildiv(n, PANEL)
    require(isinstance(k, int), f"the last dim of {a} is not known")
    wanted = (panels, ceildiv(k, steps), PANEL, 4)
    require(
        codes.dtype.name == "u8" and codes.shape == wanted,
        f"codes is {codes}, expected u8{dims_text(wanted)}",
    )
    require(
        group > 0 and (group % steps == 0 or group == k),
        f"a group of {group} steps does not hold whole lines of {steps}, and is not all of {k}",
    )
    per_group = (panels, ceildiv(k, group), PANEL)
    require(len(zeros) <= 1, f"takes one tensor of zeros, got {len(zeros)}")
    for name, each in (("scales", scales), *(("zeros", each) for each in zeros)):
        require(each.shape == per_group, f"{name} is {each}, expected {dims_text(per_group)}")
    return TensorType(dtype, (*a.shape[:-1], n))


def _conv_packed(
    x: TensorType,
    w: TensorType,
    *,
    window: tuple[int, ...],
    strides: tuple[int, ...],
    rhs_dilation: tuple[int, ...],
    padding: tuple[tuple[Dim, Dim], ...],
    n: int,
    dtype: DType,
) -> TensorType:
    _same_class(x, w)
    require(x.rank >= 3, f"x must be [batch, spatial..., features], got {x}")
    wanted = packed_shape(product(window) * x.shape[-1], n, w.dtype)
    require(w.shape == wanted, f"w is {w}, expected {TensorType(w.dtype, wanted)}")
    ones = (1,) * len(window)
    spatial = _spatial_dims(x.shape[1:-1], window, strides, padding, ones, rhs_dilation)
    return TensorType(dtype, (x.shape[0], *spatial, n))


def _conv_winograd(
    x: TensorType, u: TensorType, *, padding: tuple[tuple[Dim, Dim], ...], n: int
) -> TensorType:
    require(x.rank == 4, f"x must be [batch, height, width, features], got {x}")
    sums = "f64" if x.dtype.bytes == 8 else "f32"
    require(u.dtype.name == sums, f"u is {u}, expected the dtype of sums, {sums}")
    wanted = (INPUT * INPUT, ceildiv(n, PANEL), x.shape[-1], PANEL)
    require(u.shape == wanted, f"u is {u}, expected {TensorType(u.dtype, wanted)}")
    ones, window = (1, 1), (WINDOW, WINDOW)
    spatial = _spatial_dims(x.shape[1:-1], window, ones, padding, ones, ones)
    return TensorType(x.dtype, (x.shape[0], *spatial, n))


def _depthwise(
    x: TensorType,
    w: TensorType,
    *,
    strides: tuple[int, ...],
    rhs_dilation: tuple[int, ...],
    padding: tuple[tuple[Dim, Dim], ...],
    dtype: DType,
) -> TensorType:
    _same_class(x, w)
    require(x.rank == w.rank + 1, f"x {x} must have one more dim than w {w}")
    require(x.shape[-1] == w.shape[-1], f"the features of x {x} and w {w} differ")
    ones = (1,) * (w.rank - 1)
    spatial = _spatial_dims(x.shape[1:-1], w.shape[:-1], strides, padding, ones, rhs_dilation)
    return TensorType(dtype, (x.shape[0], *spatial, x.shape[-1]))


def _attention(
    q: TensorType, k: TensorType, v: TensorType, mask: TensorType | None = None, *, scale: float
) -> TensorType:
    require(q.rank >= 2 and q.rank == k.rank == v.rank, "q, k and v must have one rank >= 2")
    require(q.dtype is k.dtype is v.dtype, "q, k and v must have one dtype")
    require(q.shape[:-2] == k.shape[:-2] == v.shape[:-2], "the batch dims of q, k and v differ")
    require(q.shape[-1] == k.shape[-1], f"q {q} and k {k} differ in the last dim")
    require(k.shape[-2] == v.shape[-2], f"k {k} and v {v} differ in the dim before the last")
    if mask is not None:
        scores = (*q.shape[:-1], k.shape[-2])
        fits = mask.rank <= len(scores) and all(
            can_broadcast(a, b) for a, b in zip(mask.shape[::-1], scores[::-1], strict=False)
        )
        wanted = TensorType(q.dtype, scores)
        require(fits and mask.dtype is q.dtype, f"mask {mask} does not broadcast to {wanted}")
    return TensorType(q.dtype, (*q.shape[:-1], v.shape[-1]))


def _dtype_of(x: TensorType, *_: TensorType) -> DType:
    return x.dtype


def _spatial_ones(x: TensorType, *_: TensorType) -> tuple[int, ...]:
    return (1,) * (x.rank - 2)


def _no_padding(x: TensorType, *_: TensorType) -> tuple[tuple[int, int], ...]:
    return ((0, 0),) * (x.rank - 2)


_DTYPE = attribute("dtype", _dtype_of)
_MOVES = {
    "strides": attribute("dims", _spatial_ones),
    "rhs_dilation": attribute("dims", _spatial_ones),
    "padding": attribute("pairs", _no_padding),
}

for _row in (
    OpRow(
        "dot_general",
        "contraction",
        ("a: number", "b: number"),
        _dot_general,
        "Sum of products over the contracted axes: [batch, free of a, free of b].",
        {
            "lhs_batch": attribute("ints", ()),
            "rhs_batch": attribute("ints", ()),
            "lhs_contract": attribute("ints"),
            "rhs_contract": attribute("ints"),
            "dtype": _DTYPE,
        },
        ulp=4,
    ),
    OpRow(
        "convolution",
        "contraction",
        ("x: number", "w: number"),
        _convolution,
        "Sum of products under a window; `layout` such as nchw,oihw->nchw names the axes.",
        {
            "layout": attribute("string"),
            "strides": attribute("dims", _spatial_ones),
            "padding": attribute("pairs", _no_padding),
            "lhs_dilation": attribute("dims", _spatial_ones),
            "rhs_dilation": attribute("dims", _spatial_ones),
            "groups": attribute("int", 1),
            "dtype": _DTYPE,
        },
        ulp=4,
    ),
    OpRow(
        "dot_packed",
        "contraction",
        ("a: number", "b: number"),
        _dot_packed,
        "[..., k] times a packed [k, n] weight: [..., n].",
        {"n": attribute("int"), "dtype": _DTYPE},
        ulp=4,
    ),
    OpRow(
        "dot_coded",
        "contraction",
        ("a: float", "codes", "scales: float", "*zeros: number"),
        _dot_coded,
        "[..., k] times a packed [k, n] weight of (code - zero) * scale: [..., n]. The codes of a "
        "column lie as 32-bit words of steps of k, the first one in the low bits; scales and zeros "
        "are [ceil(n/16), ceil(k/group), 16].",
        {
            "n": attribute("int"),
            "coding": attribute("dtype"),
            "group": attribute("int"),
            "dtype": _DTYPE,
        },
        ulp=4,
    ),
    OpRow(
        "conv_packed",
        "contraction",
        ("x: number", "w: number"),
        _conv_packed,
        "Convolution of [batch, spatial..., features] with a packed weight whose K runs over the "
        "window and then the features, features innermost.",
        {"window": attribute("dims"), **_MOVES, "n": attribute("int"), "dtype": _DTYPE},
        ulp=4,
    ),
    OpRow(
        "conv_winograd",
        "contraction",
        ("x: real", "u: real"),
        _conv_winograd,
        "Convolution of [batch, height, width, features] with a 3x3 window, by Winograd's "
        "F(4, 3): u is the transformed weight, [36, panels, features, 16], in the dtype of sums.",
        {"padding": attribute("pairs", _no_padding), "n": attribute("int")},
        ulp=32,
    ),
    OpRow(
        "depthwise",
        "contraction",
        ("x: number", "w: number"),
        _depthwise,
        "Convolution of each feature of [batch, spatial..., features] with its own window "
        "[window..., features].",
        {**_MOVES, "dtype": _DTYPE},
        ulp=4,
    ),
    OpRow(
        "attention",
        "contraction",
        ("q: real", "k: real", "v: real", "mask: real?"),
        _attention,
        "softmax(scale * q k^T + mask) v over the last two dims; floats round once, at its end.",
        {"scale": attribute("float")},
        ulp=8,
    ),
):
    register(_row)

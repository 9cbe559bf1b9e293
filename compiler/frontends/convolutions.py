"""The convolution of StableHLO, whose numbers say which axis is what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType

__all__ = ["MOST_SPATIAL", "convolve"]

_SPATIAL = {1: "w", 2: "hw", 3: "dhw"}
_LETTERS = "0123456789"
_STEPS = ("window_strides", "lhs_dilation", "rhs_dilation")
MOST_SPATIAL = len(_LETTERS)
"""Spatial axes that a layout has letters for."""


def convolve(
    builder: Builder,
    x: Value,
    w: Value,
    numbers: Mapping[str, Any],
    padding: Sequence[Dim],
    dtype: DType,
    exact: bool = False,
) -> Value:
    """A window moved over the spatial axes; the layout names all axes, nothing is transposed.
    `numbers` are the attributes that are integers, one or several; `padding` has two for each
    spatial axis, or none."""
    axes = numbers["kernel_spatial_dimensions"]
    count = len(axes)
    groups = numbers.get("batch_group_count") or 1
    x = _batch_as_groups(builder, x, numbers, groups)
    flags = numbers.get("window_reversal", ())
    turned = tuple(axis for axis, flag in zip(axes, flags, strict=False) if flag)
    if turned:
        w = builder.value("reverse", w, axes=turned)
    ends = tuple(padding) or (0,) * (2 * count)
    pairs = list(zip(ends[::2], ends[1::2], strict=True))
    strides, lhs_dilation, rhs_dilation = (
        _in_order(numbers, numbers.get(name) or (1,) * count) for name in _STEPS
    )
    return builder.value(
        "convolution",
        x,
        w,
        layout=_layout(numbers),
        strides=strides,
        padding=_in_order(numbers, pairs),
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        groups=(numbers["feature_group_count"] or 1) * groups,
        dtype=dtype,
        exact=exact,
    )


def _in_order(numbers: Mapping[str, Any], of_axes: Sequence[Any]) -> tuple[Any, ...]:
    """What is said of each spatial axis, in the order that the axes have in the input."""
    axes = numbers["input_spatial_dimensions"]
    if len(of_axes) != len(axes):  # the rule of the op refuses it
        return tuple(of_axes)
    order = sorted(range(len(axes)), key=lambda place: axes[place])
    return tuple(of_axes[place] for place in order)


def _batch_as_groups(builder: Builder, x: Value, numbers: Mapping[str, Any], groups: int) -> Value:
    """x with the groups that its batch is in as groups of features."""
    if groups == 1:
        return x
    batch, feature = numbers["input_batch_dimension"], numbers["input_feature_dimension"]
    shape = tensor_type(x).shape
    split = (*shape[:batch], groups, dims.floordiv(shape[batch], groups), *shape[batch + 1 :])
    x = builder.value("reshape", x, shape=split)
    order = [axis for axis in range(len(split)) if axis != batch]
    order.insert(order.index(feature + (feature > batch)), batch)
    x = builder.value("transpose", x, permutation=tuple(order))
    merged = list(shape)
    merged[batch] = split[batch + 1]
    merged[feature] = shape[feature] * groups
    return builder.value("reshape", x, shape=tuple(merged))


def _layout(numbers: Mapping[str, Any]) -> str:
    """The axes as text, such as "nhwc,hwio->nhwc"."""

    def axes(first: str, second: str, prefix: str, one: str, two: str) -> str:
        spatial = numbers[f"{prefix}_spatial_dimensions"]
        letters = _SPATIAL.get(len(spatial), _LETTERS[: len(spatial)])
        order = dict(zip(spatial, letters, strict=True))
        order[numbers[f"{prefix}_{one}_dimension"]] = first
        order[numbers[f"{prefix}_{two}_dimension"]] = second
        return "".join(order[axis] for axis in sorted(order))

    x = axes("n", "c", "input", "batch", "feature")
    w = axes("i", "o", "kernel", "input_feature", "output_feature")
    return f"{x},{w}->{axes('n', 'c', 'output', 'batch', 'feature')}"

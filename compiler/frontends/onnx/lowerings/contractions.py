"""Matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.onnx.lowerings.windows import read_window
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.frontends.pooling import Window
from ingot.compiler.frontends.products import matmul
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim, floordiv

__all__ = ["add_bias", "convolve", "matmul"]


@lowering("MatMul")
def matmul_of_numbers(node: Node) -> Value:
    return matmul(node, node.input(0), node.input(1), type_of(node.input(0)).dtype)


@lowering("Gemm")
def gemm(node: Node) -> Value:
    """alpha A' B' + beta C, where A' and B' may be transposed. Integers lose their fractions at
    the end."""
    a, b, c = node.input(0), node.input(1), node.optional(2)
    element = type_of(a).dtype
    for value in (a, b):
        unsupported(type_of(value).rank != 2, "A and B must have rank 2")
    left, right = int(not node.integer("transA", 0)), int(bool(node.integer("transB", 0)))
    b = node.agree_on(b, right, shape_of(a)[left])
    product = node.op(
        "dot_general",
        a,
        b,
        lhs_contract=(left,),
        rhs_contract=(right,),
        dtype=element,
    )
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    if not (element.is_float or (alpha.is_integer() and beta.is_integer())):
        product, c = node.convert(product, "f64"), c if c is None else node.convert(c, "f64")
    if alpha != 1:
        product = node.op("mul", product, alpha)
    if c is not None and beta != 0:
        bias = c if beta == 1 else node.op("mul", c, beta)
        product = node.op("add", product, node.broadcast_to(bias, shape_of(product)))
    return node.convert(product, element)


@lowering("Conv")
def convolution(node: Node) -> Value:
    """f32[n, c, spatial...] * f32[o, c / group, spatial...] -> f32[n, o, spatial...]."""
    x, w, bias = node.input(0), node.input(1), node.optional(2)
    rank = type_of(x).rank
    unsupported(rank < 3, f"its input has rank {rank}, expected 3 or more")
    window = read_window(node, shape_of(x)[2:], shape_of(w)[2:])
    result = convolve(node, x, w, window, node.integer("group", 1))
    return result if bias is None else add_bias(node, result, bias)


def convolve(
    node: Node,
    x: Value,
    w: Value,
    window: Window,
    groups: int,
    lhs_dilation: Sequence[Dim] | None = None,
) -> Value:
    """The convolution of x by w, channels second, without padding by auto_pad."""
    letters = _spatial_letters(type_of(x).rank - 2)
    x = node.agree_on(x, 1, shape_of(w)[1] * groups)
    return node.op(
        "convolution",
        x,
        w,
        strides=window.strides,
        padding=window.padding,
        lhs_dilation=tuple(lhs_dilation or (1,) * len(letters)),
        rhs_dilation=window.dilations,
        groups=groups,
        layout=f"nc{letters},oi{letters}->nc{letters}",
        dtype=type_of(x).dtype,
    )


def _spatial_letters(count: int) -> str:
    """Names of spatial axes: "hw" for two, as everybody calls them."""
    return {1: "w", 2: "hw", 3: "dhw"}.get(count) or "0123456789"[:count]


def add_bias(node: Node, x: Value, bias: Value) -> Value:
    """Adds one number per channel, axis 1."""
    shape = shape_of(x)
    column = node.reshape(bias, (1, *shape_of(bias), *(1 for _ in shape[2:])))
    return node.op("add", x, node.broadcast_to(column, shape))


@lowering("ConvTranspose")
def convolution_transpose(node: Node) -> Value:
    """The gradient of a convolution: the input spread by the strides, the window flipped."""
    x, w, bias = node.input(0), node.input(1), node.optional(2)
    spatial = type_of(x).rank - 2
    window = read_window(node, shape_of(x)[2:], shape_of(w)[2:])
    added = node.integers("output_padding") or (0,) * spatial
    crop = _transposed_crop(node, window, shape_of(x)[2:], added)
    padding = tuple(
        (dilation * (size - 1) - low, dilation * (size - 1) - high + extra)
        for size, dilation, (low, high), extra in zip(
            window.sizes, window.dilations, crop, added, strict=True
        )
    )
    groups = node.integer("group", 1)
    flipped = _swap_channels(node, node.op("reverse", w, axes=tuple(range(2, 2 + spatial))), groups)
    moved = Window(window.sizes, (1,) * spatial, padding, window.dilations)
    result = convolve(node, x, flipped, moved, groups, window.strides)
    return result if bias is None else add_bias(node, result, bias)


def _transposed_crop(
    node: Node, window: Window, spatial: Sequence[Dim], added: Sequence[int]
) -> tuple[tuple[Dim, Dim], ...]:
    """What is cut off the two ends of each axis: the pads, or what output_shape leaves over."""
    mode = node.text("auto_pad", "NOTSET")
    wanted: Sequence[Dim] | None = node.integers("output_shape")
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [dim * stride for dim, stride in zip(spatial, window.strides, strict=True)]
    if wanted is None:
        return window.padding
    crop: list[tuple[Dim, Dim]] = []
    for axis, dim in enumerate(wanted[-len(spatial) :]):
        reach = (window.sizes[axis] - 1) * window.dilations[axis] + 1
        total = window.strides[axis] * (spatial[axis] - 1) + added[axis] + reach - dim
        half = floordiv(total, 2)
        crop.append((half, total - half) if mode == "SAME_UPPER" else (total - half, half))
    return tuple(crop)


def _swap_channels(node: Node, w: Value, groups: int) -> Value:
    """[c, o / groups, spatial...] as [o, c / groups, spatial...], group by group."""
    inputs, outputs, *spatial = shape_of(w)
    split = node.reshape(w, (groups, inputs // groups, outputs, *spatial))
    swapped = node.transpose(split, (0, 2, 1, *range(3, 3 + len(spatial))))
    return node.reshape(swapped, (groups * outputs, inputs // groups, *spatial))

"""Matrix products, convolutions and einsum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends import products
from ingot.compiler.frontends.einsum import contract_letters
from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.runs import each_run
from ingot.compiler.frontends.torch.lowering import Context, lowering, per_axis
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim

__all__ = ["linear", "matmul"]


@lowering("aten.mm.default", "aten.matmul.default", "aten.mv.default", "aten.dot.default",
          "aten.bmm.default")  # fmt: skip
def matmul(c: Context, a: Value, b: Value) -> Value:
    """NumPy's matmul: [..., m, k] x [..., k, n] -> [..., m, n]."""
    return products.matmul(c, a, b, type_of(a).dtype)


@lowering("aten.linear.default")
def linear(c: Context, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """[..., k] by [n, k]."""
    rank = type_of(weight).rank
    weight = c.agree_on(weight, rank - 1, shape_of(x)[-1])
    product = c.op(
        "dot_general",
        x,
        weight,
        lhs_contract=(type_of(x).rank - 1,),
        rhs_contract=(rank - 1,),
        dtype=type_of(x).dtype,
    )
    return product if bias is None else c.op("add", *c.broadcast(product, bias))


@lowering("aten.addmm.default", "aten.baddbmm.default", "aten.addmv.default",
          "aten.addbmm.default")  # fmt: skip
def add_product(
    c: Context, x: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1
) -> Value:
    product = matmul(c, a, b)
    if type_of(product).rank > len(c.shape):
        product = c.reduce(product, [0], "add")
    if alpha != 1:
        product = c.op("mul", product, alpha)
    if beta == 0:
        return product
    if beta != 1:
        x = c.op("mul", x, beta)
    return c.op("add", *c.broadcast(product, x))


@lowering("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default")
def grouped_product(
    c: Context, a: Value, b: Value, ends: Value | None = None, bias: Value | None = None, *_: Any,
    **__: Any,
) -> Value:  # fmt: skip
    """[n, k] by [groups, k, m], of which each is for the rows that end at its `ends`; or bmm."""
    if ends is None:
        return matmul(c, a, b)
    if (type_of(a).rank, type_of(b).rank) != (2, 3) or bias is not None:
        raise UnsupportedNode(f"it groups {a.type} by {b.type}: rows and matrices are supported")

    def product(inner: Builder, group: Value, first: Value, count: Dim) -> Value:
        start = (first, inner.constant(0, "i64"))
        rows = inner.value("dynamic_slice", a, *start, sizes=(count, shape_of(a)[1]))
        weight = inner.value("take", b, group, axis=0)
        return inner.value("dot_general", rows, weight, lhs_contract=(1,), rhs_contract=(0,))

    made = c.full(0, c.dtype, c.shape)
    return each_run(c.builder, c.convert(ends, "i64"), made, product, c.fresh)


@lowering("aten._trilinear.default")
def trilinear(
    c: Context, a: Value, b: Value, d: Value, expand1: Sequence[int], expand2: Sequence[int],
    expand3: Sequence[int], summed: Sequence[int], *_: Any,
) -> Value:  # fmt: skip
    """The product of three, which get axes, summed over axes: what nn.Bilinear is made of."""
    letters = "abcdefgh"[: type_of(a).rank + len(expand1)]
    *terms, made = (
        "".join(letter for axis, letter in enumerate(letters) if axis not in left)
        for left in (expand1, expand2, expand3, summed)
    )
    return contract_letters(c, f"{','.join(terms)}->{made}", (a, b, d))


@lowering("aten.outer.default", "aten.ger.default")
def outer(c: Context, a: Value, b: Value) -> Value:
    columns = c.reshape(c.convert(a, c.dtype), (*shape_of(a), 1))
    name = "and" if c.dtype.is_boolean else "mul"
    return c.op(name, *c.broadcast(columns, c.convert(b, c.dtype)))


@lowering("aten.convolution.default")
def convolution(
    c: Context,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Value:
    count = type_of(weight).rank - 2
    strides, pads, dilations = (per_axis(each, count) for each in (stride, padding, dilation))
    pairs = [(each, each) for each in pads]
    if not transposed:
        return _convolved(c, x, weight, bias, strides, pairs, dilations, groups)
    added = per_axis(output_padding, count)
    sizes = shape_of(weight)[2:]
    pairs = [
        (step * (size - 1) - low, step * (size - 1) - low + more)
        for size, step, low, more in zip(sizes, dilations, pads, added, strict=True)
    ]
    flipped = c.op("reverse", weight, axes=tuple(range(2, 2 + count)))
    swapped = _swap_channels(c, flipped, groups)
    ones = [1] * count
    return _convolved(c, x, swapped, bias, ones, pairs, dilations, groups, strides)


def _swap_channels(c: Context, w: Value, groups: int) -> Value:
    """[i, o / groups, spatial...] as [o, i / groups, spatial...], group by group."""
    inputs, outputs, *spatial = shape_of(w)
    inner = dims.floordiv(inputs, groups)
    parts = c.reshape(w, (groups, inner, outputs, *spatial))
    swapped = c.transpose(parts, (0, 2, 1, *range(3, 3 + len(spatial))))
    return c.reshape(swapped, (outputs * groups, inner, *spatial))


def _convolved(
    c: Context,
    x: Value,
    weight: Value,
    bias: Value | None,
    strides: Sequence[Dim],
    padding: Sequence[tuple[Dim, Dim]],
    dilations: Sequence[Dim],
    groups: int,
    spread: Sequence[Dim] | None = None,
) -> Value:
    count = len(strides)
    single = type_of(x).rank == count + 1
    if single:
        x = c.reshape(x, (1, *shape_of(x)))
    letters = {1: "w", 2: "hw", 3: "dhw"}.get(count)
    if letters is None:
        raise UnsupportedNode(f"it has {count} spatial dims, expected 1 to 3")
    x = c.agree_on(x, 1, shape_of(weight)[1] * groups)
    result = c.op(
        "convolution",
        x,
        weight,
        strides=tuple(strides),
        padding=tuple(padding),
        lhs_dilation=tuple(spread or (1,) * count),
        rhs_dilation=tuple(dilations),
        groups=groups,
        layout=f"nc{letters},oi{letters}->nc{letters}",
        dtype=type_of(x).dtype,
    )
    if bias is not None:
        column = c.reshape(bias, (1, *shape_of(bias), *[1] * count))
        result = c.op("add", result, c.broadcast_to(column, shape_of(result)))
    return c.reshape(result, shape_of(result)[1:]) if single else result


@lowering("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default")
def convolve(
    c: Context, x: Value, weight: Value, bias: Value | None = None, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> Value:  # fmt: skip
    return convolution(c, x, weight, bias, stride, padding, dilation, False, 0, groups)


@lowering("aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding")
def convolve_padded(
    c: Context, x: Value, weight: Value, bias: Value | None = None, stride: Any = 1,
    padding: str = "valid", dilation: Any = 1, groups: int = 1,
) -> Value:  # fmt: skip
    count = type_of(weight).rank - 2
    strides, dilations = per_axis(stride, count), per_axis(dilation, count)
    pairs: list[tuple[Dim, Dim]] = [(0, 0)] * count
    if padding == "same":
        totals = [(n - 1) * step for n, step in zip(shape_of(weight)[2:], dilations, strict=True)]
        pairs = [(dims.floordiv(n, 2), n - dims.floordiv(n, 2)) for n in totals]
    return _convolved(c, x, weight, bias, strides, pairs, dilations, groups)


@lowering("aten.conv_transpose1d.default", "aten.conv_transpose2d.input",
          "aten.conv_transpose3d.input")  # fmt: skip
def convolve_transposed(
    c: Context, x: Value, weight: Value, bias: Value | None = None, stride: Any = 1,
    padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1,
) -> Value:  # fmt: skip
    given = (stride, padding, dilation, True, output_padding, groups)
    return convolution(c, x, weight, bias, *given)


@lowering("aten.einsum.default")
def einsum(c: Context, equation: str, operands: Sequence[Value], *, path: Any = None) -> Value:
    return contract_letters(c, equation, operands)

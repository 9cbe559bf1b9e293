"""Quantised tensors of pt2e (`quantized_decomposed`) and of torchao: integers that stand for
(integer - zero point) * scale, with one scale per tensor, per index of an axis, or per block."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.normalizing import widen
from ingot.compiler.frontends.torch.lowering import Context, Scalar, Wrapped, lowering
from ingot.compiler.frontends.torch.lowerings.arithmetic import promoted
from ingot.compiler.graph.rewriter import literal_of_value
from ingot.compiler.ir import Literal, Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType, dtype

__all__: list[str] = []

_F32 = dtype("f32")
_EPSILON = 2.0**-23  # of f32
_PT2E = "quantized_decomposed"
_Spread = Callable[[Value], Value]


def _divided(c: Context, x: Value, scale: Scalar, spread: _Spread, element: DType = _F32) -> Value:
    """x times the inverse of the scale, both rounded to that dtype."""
    if isinstance(scale, float):
        factor = c.scalar(1 / scale, element)
    else:
        factor = c.op("div", 1, c.scalar(scale, element))
    return c.op("mul", c.convert(x, element), spread(factor))


def _quantized(
    c: Context, x: Value, scale: Scalar, zero: Scalar | None, low: Scalar, high: Scalar,
    spread: _Spread, element: DType = _F32,
) -> Value:  # fmt: skip
    """round(x / scale) + zero point, halves to even, saturated, as numbers of `element`."""
    rounded = c.op("round_even", _divided(c, x, scale, spread, element))
    if zero is not None:
        rounded = c.op("add", rounded, spread(c.scalar(zero, element)))
    first, last = (c.filled(each, element, shape_of(rounded)) for each in (low, high))
    return c.convert(c.op("clamp", first, rounded, last), c.dtype)


def _dequantized(
    c: Context, x: Value, scale: Scalar, zero: Scalar | None, spread: _Spread
) -> Value:
    wide = c.convert(x, "f32")
    if zero is not None:
        wide = c.op("sub", wide, spread(c.scalar(zero, "f32")))
    return c.convert(c.op("mul", wide, spread(c.scalar(scale, "f32"))), c.dtype)


def _to_all(c: Context, x: Value) -> _Spread:
    """One number for all elements of x, or one for each line of its last axis."""

    def spread(value: Value) -> Value:
        one = dims.product(shape_of(value)) == 1
        return c.broadcast_to(c.reshape(value, ()) if one else value, shape_of(x))

    return spread


def _to_channels(c: Context, x: Value, axis: int) -> _Spread:
    """A number for each index of an axis."""
    at = c.axis(axis, x)
    return lambda value: c.op("broadcast", value, shape=shape_of(x), dimensions=(at,))


def _to_blocks(c: Context, x: Value, block: Sequence[Dim]) -> _Spread:
    """A number for each block of x."""
    counts, split = _blocks(x, block)
    many = [axis for axis, count in enumerate(counts) if count != 1]

    def spread(value: Value) -> Value:
        small = c.reshaped(value, [counts[axis] for axis in many])
        if all(split[2 * axis + 1] == 1 for axis in many):  # lines, or all of them
            return c.op("broadcast", small, shape=shape_of(x), dimensions=tuple(many))
        places = tuple(2 * axis for axis in many)
        return c.reshape(c.op("broadcast", small, shape=split, dimensions=places), shape_of(x))

    return spread


def _blocks(x: Value, block: Sequence[Dim]) -> tuple[list[Dim], tuple[Dim, ...]]:
    """Per axis how many blocks there are, and the shape with each axis as (blocks, block)."""
    sizes = [n if size == -1 else size for size, n in zip(block, shape_of(x), strict=True)]
    counts = [dims.floordiv(n, size) for size, n in zip(sizes, shape_of(x), strict=True)]
    return counts, tuple(each for pair in zip(counts, sizes, strict=True) for each in pair)


# ---- pt2e


@lowering(f"{_PT2E}.quantize_per_tensor.default", f"{_PT2E}.quantize_per_tensor.tensor",
          f"{_PT2E}.quantize_per_tensor.tensor2",
          f"{_PT2E}.quantize_per_token.default")  # fmt: skip
def quantize(
    c: Context, x: Value, scale: Scalar, zero: Scalar, low: Scalar, high: Scalar, _: DType
) -> Value:
    return _quantized(c, x, scale, zero, low, high, _to_all(c, x))


@lowering(f"{_PT2E}.dequantize_per_tensor.default", f"{_PT2E}.dequantize_per_tensor.tensor",
          f"{_PT2E}.dequantize_per_tensor.tensor2",
          f"{_PT2E}.dequantize_per_token.default")  # fmt: skip
def dequantize(c: Context, x: Value, scale: Scalar, zero: Scalar, *_: Any, **__: Any) -> Value:
    return _dequantized(c, x, scale, zero, _to_all(c, x))


@lowering(f"{_PT2E}.quantize_per_channel.default")
def quantize_channels(
    c: Context, x: Value, scale: Value, zero: Value, axis: int, low: int, high: int, _: DType
) -> Value:
    return _quantized(c, x, scale, zero, low, high, _to_channels(c, x, axis))


@lowering(f"{_PT2E}.dequantize_per_channel.default")
def dequantize_channels(
    c: Context, x: Value, scale: Value, zero: Value | None, axis: int, *_: Any, **__: Any
) -> Value:
    return _dequantized(c, x, scale, zero, _to_channels(c, x, axis))


@lowering(f"{_PT2E}.quantize_per_channel_group.default")
def quantize_groups(
    c: Context, x: Value, scale: Value, zero: Value, low: int, high: int, _: DType, size: int = 128
) -> Value:
    return _quantized(c, x, scale, zero, low, high, _to_blocks(c, x, (1, size)))


@lowering(f"{_PT2E}.dequantize_per_channel_group.default")
def dequantize_groups(
    c: Context, x: Value, scale: Value, zero: Value | None, low: int, high: int, _: DType,
    size: int = 128, *__: Any,
) -> Value:  # fmt: skip
    codes = _packed(c, x, low, high)
    return _dequantized(c, codes, scale, zero, _to_blocks(c, x, (1, size)))


@lowering(f"{_PT2E}.choose_qparams.tensor")
def choose(
    c: Context, x: Value, low: int, high: int, epsilon: float, element: DType
) -> list[Value]:
    least, greatest = _ends(c, widen(c, x), range(type_of(x).rank))
    return _asymmetric(c, least, greatest, low, high, epsilon, element)


@lowering(f"{_PT2E}.choose_qparams_symmetric.tensor")
def choose_symmetric(
    c: Context, x: Value, low: int, high: int, epsilon: float, element: DType
) -> list[Value]:
    least, greatest = _ends(c, widen(c, x), range(type_of(x).rank))
    middle = 128 if element.kind == "u" else 0
    return _symmetric(c, least, greatest, low, high, epsilon, middle)


@lowering(f"{_PT2E}.choose_qparams_per_token.default")
def choose_for_lines(c: Context, x: Value, element: DType) -> list[Value]:
    axis = [type_of(x).rank - 1]
    greatest = c.reduce(c.op("abs", widen(c, x)), axis, "max", keep=True)
    scale = c.op("div", c.op("max", greatest, 1e-5), 127)
    return [scale, c.fill(0, like=scale)]


@lowering(f"{_PT2E}.choose_qparams_per_token_asymmetric.default",
          f"{_PT2E}._choose_qparams_per_token_asymmetric_impl.default")  # fmt: skip
def choose_asymmetric_for_lines(c: Context, x: Value, element: DType) -> list[Value]:
    """The zero point is that of the end whose error is less."""
    low, high, axis = -128, 127, [type_of(x).rank - 1]
    least, greatest = (c.keep_axes(each, shape_of(x), axis) for each in _ends(c, widen(c, x), axis))
    scale = _scale(c, c.op("sub", greatest, least), high - low, _EPSILON)
    first, last = c.op("div", least, scale), c.op("div", greatest, scale)

    def of(number: int, name: str, value: Value) -> Value:
        return c.op(name, c.fill(number, like=value), value)

    errors = c.op("add", of(low, "add", first), of(high, "add", last))
    is_low = c.compare("gt", errors, 0)
    zero = c.op("select", is_low, of(low, "sub", first), of(high, "sub", last))
    zero = c.op("clamp", low, zero, high)
    return [scale, c.convert(c.op("round_even", zero), element)]


def _ends(c: Context, x: Value, axes: Sequence[int]) -> tuple[Value, Value]:
    """The least and the greatest element, with 0 among them."""
    least, greatest = (c.reduce(x, axes, kind) for kind in ("min", "max"))
    zero = c.fill(0, like=least)
    return c.op("min", least, zero), c.op("max", greatest, zero)


def _scale(c: Context, width: Value, count: float, epsilon: float) -> Value:
    found = c.op("div", width, count)
    return c.op("max", found, epsilon)


def _asymmetric(
    c: Context, least: Value, greatest: Value, low: int, high: int, epsilon: float, element: DType
) -> list[Value]:
    """The zero point passes the dtype of the codes, among which it is."""
    scale = _scale(c, c.op("sub", greatest, least), high - low, epsilon)
    steps = c.op("round_even", c.op("div", least, scale))
    zero = c.op("sub", low, steps)
    zero = c.op("clamp", low, zero, high)
    return _declared(c, scale, c.convert(zero, element))


def _symmetric(
    c: Context, least: Value, greatest: Value, low: int, high: int, epsilon: float, middle: int
) -> list[Value]:
    size = c.op("max", c.op("neg", least), greatest)
    scale = _scale(c, size, (high - low) / 2, epsilon)
    return _declared(c, scale, c.fill(middle, like=scale))


def _packed(c: Context, x: Value, low: Any, high: Any) -> Value:
    """A weight of codes between `low` and `high` in the least dtype that holds them."""
    literal = literal_of_value(x)
    if literal is None or low is None or high is None or not literal.size:
        return x
    numbers = literal.array.astype(np.int32)
    for name, least, greatest in (("i4", -8, 7), ("u4", 0, 15)):
        if least <= min(low, numbers.min()) and max(high, numbers.max()) <= greatest:
            return c.literal(Literal(numbers.astype(np.int8), dtype(name)))
    return x


def _declared(c: Context, *results: Value) -> list[Value]:
    shapes = [type.shape for type in c.declared if type is not None]
    return [c.reshaped(each, shape) for each, shape in zip(results, shapes, strict=True)]


# ---- what training for bytes leaves


def _through(
    c: Context, x: Value, scale: Scalar, zero: Scalar, low: int, high: int, spread: _Spread
) -> list[Value]:
    """What x is as codes from `low` to `high`, as floats, and where it is not saturated. A zero
    point of floats, which channels may have, is added before rounding."""
    names = ("u8", "i8", "u16", "i16")
    limits = {name: dtype(name).limits for name in names}
    fitting = [name for name, (first, last) in limits.items() if first <= low <= high <= last]
    if not fitting:
        raise UnsupportedNode(f"its codes go from {low} to {high}: use integers of up to 16 bits")
    scale, point = c.scalar(scale, "f32"), spread(c.scalar(zero, "f32"))
    rounded = _divided(c, x, scale, spread)
    if isinstance(zero, Value) and type_of(zero).dtype.is_float:
        rounded = c.op("round_even", c.op("add", rounded, point))
    else:
        rounded = c.op("add", c.op("round_even", rounded), point)
    first, last = (c.fill(each, like=rounded) for each in (low, high))
    codes = c.convert(c.op("clamp", first, rounded, last), fitting[0])
    inside = c.op("and", c.compare("ge", rounded, first), c.compare("le", rounded, last))
    return [_dequantized(c, codes, scale, zero, spread), inside]


def _of_all(c: Context, x: Value, scale: Scalar, zero: Scalar, low: int, high: int) -> list[Value]:
    return _through(c, x, scale, c.scalar(zero, "i32"), low, high, _to_all(c, x))


@lowering("aten.fake_quantize_per_tensor_affine.default",
          "aten.fake_quantize_per_tensor_affine.tensor_qparams")  # fmt: skip
def fake_quantize(c: Context, x: Value, scale: Scalar, zero: Scalar, low: int, high: int) -> Value:
    return _of_all(c, x, scale, zero, low, high)[0]


@lowering("aten.fake_quantize_per_tensor_affine_cachemask.default")
def fake_quantize_with_mask(
    c: Context, x: Value, scale: Scalar, zero: Scalar, low: int, high: int
) -> list[Value]:
    return _of_all(c, x, scale, zero, low, high)


@lowering("aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default")
def fake_quantize_if_enabled(
    c: Context, x: Value, scale: Value, zero: Value, enabled: Value, low: int, high: int
) -> list[Value]:
    return _if_enabled(c, x, enabled, *_of_all(c, x, scale, zero, low, high))


def _if_enabled(c: Context, x: Value, enabled: Value, numbers: Value, inside: Value) -> list[Value]:
    known = literal_of_value(enabled)
    if known is not None and known.array.all():
        return [numbers, inside]
    enabled = c.broadcast_to(c.reshape(c.convert(enabled, "i1"), ()), shape_of(x))
    return [c.op("select", enabled, numbers, x), c.op("or", inside, c.op("not", enabled))]


@lowering("aten.fake_quantize_per_channel_affine.default")
def fake_quantize_channels(
    c: Context, x: Value, scale: Value, zero: Value, axis: int, low: int, high: int
) -> Value:
    return _through(c, x, scale, zero, low, high, _to_channels(c, x, axis))[0]


@lowering("aten.fake_quantize_per_channel_affine_cachemask.default")
def fake_quantize_channels_with_mask(
    c: Context, x: Value, scale: Value, zero: Value, axis: int, low: int, high: int
) -> list[Value]:
    return _through(c, x, scale, zero, low, high, _to_channels(c, x, axis))


@lowering("aten.fused_moving_avg_obs_fake_quant.default",
          "aten._fused_moving_avg_obs_fq_helper.default",
          "aten._fused_moving_avg_obs_fq_helper_functional.default")  # fmt: skip
def fake_quantize_observed(
    c: Context, x: Value, observes: Value, enabled: Value, least: Value, greatest: Value,
    scale: Value, zero: Value, _: float, low: int, high: int, axis: int, by_channel: bool = False,
    *__: Any,
) -> list[Value]:  # fmt: skip
    """Its result, where it is not saturated, and the range and the numbers, which stay."""
    known = literal_of_value(observes)
    if known is None or known.array.any():
        raise UnsupportedNode(
            "its observer makes a new range at each call: before the model is exported, call "
            "model.apply(torch.ao.quantization.disable_observer)"
        )
    spread = _to_channels(c, x, axis) if by_channel else _to_all(c, x)
    made = _if_enabled(c, x, enabled, *_through(c, x, scale, zero, low, high, spread))
    return [*made, least, greatest, scale, zero][: max(len(c.declared), 1)]


# ---- torchao


@lowering("export.access_subclass_inner_tensor.default", view=False)
def inner_tensor(c: Context, x: Wrapped, attribute: str) -> Value:
    found: Value = x.part(attribute)
    return found


def _limits(element: DType, low: Any, high: Any) -> tuple[Any, Any]:
    least, greatest = element.limits
    return least if low is None else low, greatest if high is None else high


def _checked(domain: str) -> None:
    if domain not in ("INT", "NONE"):
        raise UnsupportedNode(f"its zero points are of the domain {domain}: use integers")


@lowering("torchao.quantize_affine.default")
def quantize_blocks(
    c: Context, x: Value, block: Sequence[Dim], scale: Value, zero: Value | None, element: DType,
    low: Any = None, high: Any = None, zero_point_domain: str = "INT",
) -> Value:  # fmt: skip
    _checked(zero_point_domain)
    low, high = _limits(element, low, high)
    return _quantized(c, x, scale, zero, low, high, _to_blocks(c, x, block), promoted(x, scale))


@lowering("torchao.dequantize_affine.default")
def dequantize_blocks(
    c: Context, x: Value, block: Sequence[Dim], scale: Value, zero: Value | None, element: DType,
    low: Any = None, high: Any = None, zero_point_domain: str = "INT", *_: Any, **__: Any,
) -> Value:  # fmt: skip
    _checked(zero_point_domain if isinstance(zero_point_domain, str) else "INT")
    return _dequantized(c, _packed(c, x, low, high), scale, zero, _to_blocks(c, x, block))


@lowering("torchao.choose_qparams_affine.default")
def choose_for_blocks(
    c: Context, x: Value, mapping: str, block: Sequence[Dim], element: DType, low: Any = None,
    high: Any = None, epsilon: float | None = None, *_: Any, **__: Any,
) -> list[Value]:  # fmt: skip
    low, high = _limits(element, low, high)
    if epsilon is None:
        epsilon = 2.0 ** (-14 if type_of(x).dtype.name == "f16" else -126)  # the least normal one
    split = _blocks(x, block)[1]
    least, greatest = _ends(c, c.reshape(x, split), range(1, len(split), 2))
    if mapping == "ASYMMETRIC":
        return _asymmetric(c, least, greatest, low, high, epsilon, element)
    if mapping != "SYMMETRIC":
        raise UnsupportedNode(f"its mapping is {mapping}, expected SYMMETRIC or ASYMMETRIC")
    return _symmetric(c, least, greatest, low, high, epsilon, math.floor((low + high + 1) / 2))


@lowering("aten._int_mm.default")
def integer_product(c: Context, a: Value, b: Value) -> Value:
    """[m, k] times [k, n], of bytes, summed in i32."""
    b = c.agree_on(b, 0, shape_of(a)[1])
    return c.op("dot_general", a, b, lhs_contract=(1,), rhs_contract=(0,), dtype=c.dtype)

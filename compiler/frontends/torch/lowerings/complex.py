"""Complex numbers and Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ingot.compiler.frontends.complex_numbers import BINARY, UNARY, Complex, Parts, absolute
from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.fourier import fitted, over_axes, to_real
from ingot.compiler.frontends.normalizing import mean
from ingot.compiler.frontends.torch.complex_values import (
    COMPLEX,
    ComplexValue,
    complex_lowering,
    real_dtype,
    real_type,
)
from ingot.compiler.frontends.torch.lowering import LOWERINGS, VIEWS, Context, Scalar, lowering
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim

__all__: list[str] = []

Operand = ComplexValue | Scalar | complex


def _widened(c: Context, x: Operand) -> Parts:
    """A tensor or number as parts of the dtype of the result."""
    element = real_dtype(c.dtype)
    if isinstance(x, ComplexValue):
        return c.convert(x.real, element), c.convert(x.imaginary, element)
    if isinstance(x, complex):
        return c.scalar(x.real, element), c.scalar(x.imag, element)
    real = c.scalar(x, element)
    return real, c.fill(0, like=real)


def _spread(c: Context, *operands: Operand) -> list[Parts]:
    """The parts of all operands, in one shape."""
    parts = [each for operand in operands for each in _widened(c, operand)]
    wide = c.broadcast(*parts)
    return list(zip(wide[::2], wide[1::2], strict=True))


def _binary(name: str, turned: bool = False) -> Callable[..., ComplexValue]:
    def lower(c: Context, a: Operand, b: Operand, *, alpha: Any = 1) -> ComplexValue:
        first, second = _spread(c, *((b, a) if turned else (a, b)))
        if alpha != 1:
            factor = c.fill(alpha, like=second[0])
            second = c.op("mul", second[0], factor), c.op("mul", second[1], factor)
        return ComplexValue(*BINARY[name](Complex(c.builder), first, second))

    return lower


for _op, _name in {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide",
                   "true_divide": "divide"}.items():  # fmt: skip
    complex_lowering(f"aten.{_op}.Tensor", f"aten.{_op}.Scalar")(_binary(_name))
complex_lowering("aten.rsub.Scalar", "aten.rsub.Tensor")(_binary("subtract", turned=True))
complex_lowering("aten.pow.Tensor_Tensor", "aten.pow.Scalar")(_binary("power"))


@complex_lowering("aten.pow.Tensor_Scalar")
def power(c: Context, x: ComplexValue, exponent: Scalar | complex) -> ComplexValue:
    if exponent == 2:
        return _binary("multiply")(c, x, x)
    return _binary("power")(c, x, exponent)


@complex_lowering("aten.square.default")
def square(c: Context, x: ComplexValue) -> ComplexValue:
    return _binary("multiply")(c, x, x)


@complex_lowering("aten.rms_norm.default")
def rms_norm(
    c: Context, x: ComplexValue, shape: Sequence[Dim], weight: Operand | None = None,
    eps: float | None = None,
) -> ComplexValue:  # fmt: skip
    """Of squares, which are complex numbers themselves, not of magnitudes."""
    rank = type_of(x.real).rank
    axes = list(range(rank - len(shape), rank))
    real, imaginary = (mean(c, part, axes) for part in square(c, x).parts)
    if eps is None:
        eps = 2.0**-52 if type_of(real).dtype.bits == 64 else 2.0**-23
    roots = UNARY["rsqrt"](Complex(c.builder), (c.op("add", real, eps), imaginary))
    whole = ComplexValue(*(c.broadcast_back(each, shape_of(x.real), axes) for each in roots))
    result = _binary("multiply")(c, x, whole)
    return result if weight is None else _binary("multiply")(c, result, weight)


@complex_lowering("aten.reciprocal.default")
def reciprocal(c: Context, x: ComplexValue) -> ComplexValue:
    return _binary("divide")(c, 1, x)


@complex_lowering("aten.eq.Tensor", "aten.eq.Scalar")
def equal(c: Context, a: Operand, b: Operand) -> Value:
    return c.op("not", differ(c, a, b))


@complex_lowering("aten.ne.Tensor", "aten.ne.Scalar")
def differ(c: Context, a: Operand, b: Operand) -> Value:
    known = next(each for each in (a, b) if isinstance(each, ComplexValue))
    inner = c.declaring(type_of(known.real))
    first, second = _spread(inner, a, b)
    real, imaginary = (c.compare("ne", *pair) for pair in zip(first, second, strict=True))
    return c.op("or", real, imaginary)


@complex_lowering("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(c: Context, x: ComplexValue, mask: Value, value: Operand) -> ComplexValue:
    found = [c.broadcast(mask, *pair) for pair in zip(_widened(c, value), x.parts, strict=True)]
    return ComplexValue(*(c.op("select", *each) for each in found))


@complex_lowering("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf",
                  "aten.where.Scalar")  # fmt: skip
def where(c: Context, condition: Value, a: Operand, b: Operand) -> ComplexValue:
    pairs = zip(_widened(c, a), _widened(c, b), strict=True)
    found = [c.broadcast(c.convert(condition, "i1"), *pair) for pair in pairs]
    return ComplexValue(*(c.op("select", *each) for each in found))


@complex_lowering("aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout",
                  "aten.to.device")  # fmt: skip
def convert(c: Context, x: Operand, *_: Any, **__: Any) -> Any:
    """To a real dtype it is the real part."""
    if c.dtype.is_complex:
        return ComplexValue(*_widened(c, x))
    assert isinstance(x, ComplexValue)
    return c.convert(x.real, c.dtype)


def _filled(c: Context, number: Operand) -> Any:
    """One number in every element; real if the result is, as where a complex tensor is the model
    of a real one."""
    parts = [c.broadcast_to(each, c.shape) for each in _widened(c, number)]
    return ComplexValue(*parts) if c.dtype.is_complex else parts[0]


@complex_lowering("aten.full.default", "aten.new_full.default", "aten.full_like.default",
                  "aten.scalar_tensor.default", "aten.fill.Scalar", "aten.fill.Tensor")  # fmt: skip
def full(c: Context, *given: Any, **__: Any) -> Any:
    return _filled(c, given[-1])


@complex_lowering("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default",
                  "aten.zero.default")  # fmt: skip
def zeros(c: Context, *_: Any, **__: Any) -> Any:
    return _filled(c, 0)


@complex_lowering("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(c: Context, *_: Any, **__: Any) -> Any:
    return _filled(c, 1)


@complex_lowering("aten.eye.default", "aten.eye.m")
def eye(c: Context, *_: Any, **__: Any) -> Any:
    return _filled(c, LOWERINGS["aten.eye.default"](_of_parts(c)))


def _of_parts(c: Context) -> Context:
    """The node as that of one part."""
    return c.declaring(*(each and real_type(each) for each in c.declared))


@complex_lowering("aten.linspace.default")
def linspace(
    c: Context, start: complex | Scalar, end: complex | Scalar, steps: Dim, **__: Any
) -> ComplexValue:
    ends = ((each.real, each.imag) if isinstance(each, complex) else (each, 0.0)
            for each in (start, end))  # fmt: skip
    between = LOWERINGS["aten.linspace.default"]
    return ComplexValue(*(between(_of_parts(c), *pair, steps) for pair in zip(*ends, strict=True)))


@complex_lowering("aten.complex.default")
def complex_of_parts(c: Context, real: Value, imaginary: Value) -> ComplexValue:
    return ComplexValue(*c.broadcast(real, imaginary))


@complex_lowering("aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default")
def empty(c: Context, *_: Any, **__: Any) -> Any:
    return _filled(c, 0)


@complex_lowering("aten.exp2.default")
def power_of_two(c: Context, x: ComplexValue) -> ComplexValue:
    numbers = Complex(c.builder)
    scaled = tuple(numbers.scale(math.log(2), each) for each in x.parts)
    return ComplexValue(*UNARY["exponential"](numbers, (scaled[0], scaled[1])))


@complex_lowering("aten.ldexp.Tensor")
def load_exponent(c: Context, a: Operand, b: Operand) -> ComplexValue:
    return _binary("multiply")(c, a, power_of_two(c, ComplexValue(*_widened(c, b))))


@complex_lowering("aten.logsumexp.default")
def log_sum_exp(c: Context, x: ComplexValue, dim: Any, keepdim: bool = False) -> ComplexValue:
    numbers, axes, shape = Complex(c.builder), c.axes(dim, x.real), shape_of(x.real)
    greatest = c.reduce(x.real, axes, "max")
    middle = c.op("select", c.op("is_finite", greatest), greatest, 0)
    shifted = c.op("sub", x.real, c.broadcast_back(middle, shape, axes))
    powers = UNARY["exponential"](numbers, (shifted, x.imaginary))
    real, imaginary = (c.reduce(each, axes, "add") for each in powers)
    size, turn = UNARY["log"](numbers, (real, imaginary))
    found = c.op("add", size, middle), turn
    return ComplexValue(*(c.keep_axes(each, shape, axes) if keepdim else each for each in found))


def _logarithm(base: float) -> Callable[..., ComplexValue]:
    def lower(c: Context, x: ComplexValue) -> ComplexValue:
        found = UNARY["log"](Complex(c.builder), x.parts)
        return ComplexValue(*(c.op("div", each, math.log(base)) for each in found))

    return lower


for _base in (2, 10):
    complex_lowering(f"aten.log{_base}.default")(_logarithm(_base))
for _op, _join in {"isnan": "or", "isinf": "or", "isfinite": "and"}.items():
    complex_lowering(f"aten.{_op}.default")(
        lambda c, x, name=f"is_{_op[2:]}", join=_join: c.op(
            join, *(c.op(name, each) for each in x.parts)
        )
    )


def _of_size(name: str) -> None:
    """A norm is that of the sizes of elements."""

    def lower(c: Context, x: ComplexValue, *given: Any, **named: Any) -> Any:
        named.pop("dtype", None)
        return LOWERINGS[name](c, size(c, x), *given, **named)

    complex_lowering(name)(lower)


for _name in ("linalg_vector_norm.default", "norm.Scalar", "norm.ScalarOpt_dim"):
    _of_size(f"aten.{_name}")


def _difference(c: Context, a: Operand, b: Operand) -> ComplexValue:
    known = next(each for each in (a, b) if isinstance(each, ComplexValue))
    less = _binary("subtract")(c.declaring(known.type), a, b)
    assert isinstance(less, ComplexValue)
    return less


@complex_lowering("aten.dist.default")
def distance(c: Context, a: Operand, b: Operand, p: float = 2) -> Any:
    length = size(c, _difference(c, a, b))
    return LOWERINGS["aten.dist.default"](c, length, c.fill(0, like=length), p)


@complex_lowering("aten.pairwise_distance.default")
def distance_of_pairs(
    c: Context, a: Operand, b: Operand, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    less = _difference(c, a, b)
    away = ComplexValue(c.op("add", less.real, eps), less.imaginary)
    return LOWERINGS["aten.linalg_vector_norm.default"](c, size(c, away), p, [-1], keepdim)


def _of_truth(name: str) -> None:
    """What asks whether elements are 0."""

    def lower(c: Context, x: ComplexValue, *given: Any, **named: Any) -> Any:
        return LOWERINGS[name](c, differ(c, x, 0), *given, **named)

    complex_lowering(name)(lower)


for _name in ("all.default", "all.dim", "all.dims", "any.default", "any.dim", "any.dims",
              "argwhere.default", "count_nonzero.default", "count_nonzero.dim_IntList",
              "nonzero.default", "nonzero_numpy.default", "nonzero_static.default",
              "where.default"):  # fmt: skip
    _of_truth(f"aten.{_name}")


def _of_real(name: str) -> None:
    """What torch takes of complex numbers only if it gives real ones: those of real parts."""

    def lower(c: Context, x: ComplexValue, *given: Any, **named: Any) -> Any:
        if c.dtype.is_complex:
            raise UnsupportedNode("complex numbers have no order: torch refuses them, too")
        return LOWERINGS[name](c, x.real, *given, **named)

    complex_lowering(name)(lower)


for _name in ("softmax.int", "log_softmax.int"):
    _of_real(f"aten.{_name}")


def _variance(name: str) -> None:
    """The sum of the variances of both parts, and the mean of each."""

    def lower(c: Context, x: ComplexValue, *given: Any, **named: Any) -> Any:
        inner = _of_parts(c)
        found = [LOWERINGS[name](inner, each, *given, **named) for each in x.parts]
        if "var_mean" not in name:
            return c.op("add", *found)
        (first, real), (second, imaginary) = found
        return [c.op("add", first, second), ComplexValue(real, imaginary)]

    complex_lowering(name)(lower)


for _name in ("var.correction", "var.dim", "var.default", "var_mean.correction"):
    _variance(f"aten.{_name}")


def _by_parts(function: Callable[..., Value], *operands: Parts) -> Parts:
    real, imaginary = (function(*each) for each in zip(*operands, strict=True))
    return real, imaginary


@complex_lowering("aten.cumprod.default")
def cumulative_product(c: Context, x: Operand, dim: int, **__: Any) -> ComplexValue:
    """After step k each element is the product of 2^k up to it."""
    parts = _widened(c, x)
    rank, element = type_of(parts[0]).rank, type_of(parts[0]).dtype
    axis = c.axis(dim, parts[0]) if rank else 0
    size, shift = _length(parts[0], axis), 1
    one = c.full(1, element, ()), c.full(0, element, ())
    while shift < size:
        low, high = ([sign * shift * (at == axis) for at in range(rank)] for sign in (1, -1))
        known = {"low": tuple(low), "high": tuple(high), "interior": (0,) * rank}
        before = _by_parts(lambda part, number, known=known: c.op("pad", part, number, **known),
                           parts, one)  # fmt: skip
        parts = BINARY["multiply"](Complex(c.builder), parts, before)
        shift *= 2
    return ComplexValue(*parts)


@complex_lowering("aten.prod.default", "aten.prod.dim_int")
def product(
    c: Context, x: Operand, dim: int | None = None, keepdim: bool = False, **__: Any
) -> Any:
    """Of halves, and of their halves."""
    parts = _widened(c, x)
    if dim is None:
        parts = _by_parts(c.flat, parts)
    axis = c.axis(dim or 0, parts[0]) if type_of(parts[0]).rank else 0
    if _length(parts[0], axis) == 0:
        return _filled(c, 1)
    while (size := _length(parts[0], axis)) > 1:
        half = size // 2
        ends = ((0, half), (half, 2 * half), (2 * half, size))
        left, right, rest = (
            _by_parts(lambda part, pair=pair: c.sliced(part, axis, *pair), parts) for pair in ends
        )
        parts = BINARY["multiply"](Complex(c.builder), left, right)
        if size % 2:
            parts = _by_parts(lambda *pair: c.op("concatenate", *pair, axis=axis), parts, rest)
    return ComplexValue(*(c.reshape(each, c.shape) for each in parts))


def _length(x: Value, axis: int) -> int:
    size = shape_of(x)[axis] if type_of(x).rank else 1
    if not isinstance(size, int):
        raise UnsupportedNode("the length of its lines is symbolic, which is not supported: fix it")
    return size


def _deviation(kind: str) -> Callable[..., Value]:
    def lower(c: Context, x: ComplexValue, *given: Any, **named: Any) -> Value:
        return c.op("sqrt", COMPLEX[f"aten.var.{kind}"](c, x, *given, **named))

    return lower


for _kind in ("correction", "dim", "default"):
    complex_lowering(f"aten.std.{_kind}")(_deviation(_kind))


@complex_lowering("aten.polar.default")
def polar(c: Context, size: Value, angle: Value) -> ComplexValue:
    size, angle = c.broadcast(size, angle)
    return ComplexValue(*(c.op("mul", size, c.op(name, angle)) for name in ("cos", "sin")))


@complex_lowering("aten.real.default")
def real(c: Context, x: ComplexValue) -> Value:
    return x.real


@complex_lowering("aten.imag.default")
def imaginary(c: Context, x: ComplexValue) -> Value:
    return x.imaginary


@complex_lowering("aten.abs.default")
def size(c: Context, x: ComplexValue) -> Value:
    return absolute(Complex(c.builder), x.parts)


@complex_lowering("aten.angle.default")
def angle(c: Context, x: ComplexValue) -> Value:
    return c.op("atan2", x.imaginary, x.real)


@lowering("aten.angle.default")
def angle_of_real(c: Context, x: Value) -> Value:
    """pi below zero; not a number stays that."""
    x = c.convert(x, c.dtype)
    zero = c.fill(0, like=x)
    found = c.op("select", c.compare("lt", x, zero), math.pi, zero)
    return c.op("select", c.op("is_nan", x), x, found)


@complex_lowering("aten.resolve_conj.default", "aten.resolve_neg.default")
@lowering("aten.resolve_conj.default", "aten.resolve_neg.default", "aten.real.default",
          "aten._conj.default", "aten.conj.default", "aten._conj_physical.default",
          "aten.conj_physical.default")  # fmt: skip
def same(c: Context, x: Any) -> Any:
    """The conjugate of a real number is itself."""
    return x


VIEWS.update({f"aten.{each}.default": False for each in (
    "_conj", "imag", "real", "view_as_complex", "view_as_real")})  # fmt: skip


@complex_lowering("aten.view_as_real.default")
def as_pairs(c: Context, x: ComplexValue) -> Value:
    """[...] -> [..., 2]."""
    columns = [c.reshape(each, (*shape_of(each), 1)) for each in x.parts]
    return c.op("concatenate", *columns, axis=type_of(x.real).rank)


@complex_lowering("aten.view_as_complex.default")
def as_complex(c: Context, x: Value) -> ComplexValue:
    """[..., 2] -> [...]."""
    axis, shape = type_of(x).rank - 1, shape_of(x)[:-1]
    return ComplexValue(*(c.reshape(c.sliced(x, axis, at, at + 1), shape) for at in (0, 1)))


# ---- Fourier transforms


def _scaled(c: Context, x: Value, lengths: Sequence[Dim], normalization: int) -> Value:
    """Divided by the count of points, or by its root, as torch numbers normalizations."""
    if normalization == 0:
        return x
    count = c.size(dims.product(lengths), type_of(x).dtype)
    divisor = c.op("sqrt", count) if normalization == 1 else count
    return c.op("div", x, c.broadcast_to(divisor, shape_of(x)))


def _normalized(
    c: Context, parts: Parts, lengths: Sequence[Dim], normalization: int
) -> ComplexValue:
    return ComplexValue(*(_scaled(c, each, lengths, normalization) for each in parts))


@complex_lowering("aten._fft_c2c.default")
def transformed(
    c: Context, x: ComplexValue, axes: Sequence[int], normalization: int, forward: bool
) -> ComplexValue:
    found = [c.axis(axis, x.real) for axis in axes]
    lengths = [shape_of(x.real)[axis] for axis in found]
    parts = over_axes(c, x.parts, found, inverse=not forward)
    return _normalized(c, parts, lengths, normalization)


@complex_lowering("aten._fft_r2c.default")
def transformed_real(
    c: Context, x: Value, axes: Sequence[int], normalization: int, onesided: bool
) -> ComplexValue:
    found = [c.axis(axis, x) for axis in axes]
    lengths = [shape_of(x)[axis] for axis in found]
    parts = over_axes(c, (x, None), found, one_sided=onesided)
    return _normalized(c, parts, lengths, normalization)


@complex_lowering("aten._fft_c2r.default")
def transformed_to_real(
    c: Context, x: ComplexValue, axes: Sequence[int], normalization: int, length: Dim
) -> Value:
    """The inverse of what is of one side; the last of the axes gets `length` points."""
    found = [c.axis(axis, x.real) for axis in axes]
    lengths = [*(shape_of(x.real)[axis] for axis in found[:-1]), length]
    return _scaled(c, to_real(c, x.parts, found, length), lengths, normalization)


_NORMS = {"ortho": 1, "forward": 2, "backward": 0}


def _transform(kind: str, default: Sequence[int] | None) -> Callable[..., Any]:
    """A function of torch.fft: fft, ifft, rfft or irfft, along the axes `default`; None: all."""
    inverse = kind.startswith("i")

    def lower(c: Context, x: Any, n: Any = None, dim: Any = None, norm: Any = None, *,
              s: Any = None) -> Any:  # fmt: skip
        parts = _widened(c, x)  # of integers as of floats
        given, lengths = dim if dim is not None else default, n if s is None else s
        if given is None:
            rank = type_of(parts[0]).rank
            given = range(rank if lengths is None else len(lengths))
            given = [axis - len(given) for axis in given]
        axes = [c.axis(axis, parts[0]) for axis in ([given] if isinstance(given, int) else given)]
        if lengths is None or not isinstance(lengths, list):
            lengths = [lengths] * len(axes)
        points = [None if each == -1 else each for each in lengths]
        length = points[-1]
        if kind == "irfft":
            length = 2 * (shape_of(parts[0])[axes[-1]] - 1) if length is None else length
            points[-1] = dims.floordiv(length, 2) + 1
        for axis, wanted in zip(axes, points, strict=True):
            parts = (fitted(c, parts[0], axis, wanted), fitted(c, parts[1], axis, wanted))
        scale = _NORMS[norm or "backward"]
        scale = 2 - scale if inverse else scale
        if kind == "irfft":
            return transformed_to_real(c, ComplexValue(*parts), axes, scale, length)
        if kind == "rfft":
            return transformed_real(c, parts[0], axes, scale, True)
        return transformed(c, ComplexValue(*parts), axes, scale, not inverse)

    return lower


for _kind in ("fft", "ifft", "rfft", "irfft"):
    for _count, _axes in {"": (-1,), "2": (-2, -1), "n": None}.items():
        complex_lowering(f"aten.fft_{_kind}{_count}.default")(_transform(_kind, _axes))

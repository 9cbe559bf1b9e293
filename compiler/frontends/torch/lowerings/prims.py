"""The ops of `torch._prims`, of which torch's references are made. Most are an op of ATen; operands
have one dtype and one shape, or are numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.emitter import shape_of
from ingot.compiler.frontends.torch.complex_values import ComplexValue, complex_lowering
from ingot.compiler.frontends.torch.lowering import (
    ALIASES,
    Context,
    Scalar,
    lowering,
)
from ingot.compiler.frontends.torch.lowerings.arithmetic import divide, divide_by_mode
from ingot.compiler.frontends.torch.lowerings.complex import (
    transformed,
    transformed_real,
    transformed_to_real,
)
from ingot.compiler.frontends.torch.lowerings.creation import count
from ingot.compiler.frontends.torch.lowerings.linalg import singular
from ingot.compiler.frontends.torch.lowerings.random import normal
from ingot.compiler.frontends.torch.lowerings.reductions import variance
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim

__all__: list[str] = []

_SAME = (
    "abs acos acosh amax amin as_strided as_strided_scatter asin asinh atan atan2 atanh "
    "bitwise_not cat ceil clone conj conj_physical cos cosh digamma empty_permuted empty_strided "
    "erf erfc exp exp2 expm1 floor fmax fmin full full_like gcd hypot igamma igammac imag isfinite "
    "item lgamma log log10 log1p log2 maximum minimum neg nextafter real reciprocal round rsqrt "
    "scalar_tensor sign signbit sin sinh sqrt tan tanh trunc uniform"
)
_OTHERS = {
    **{name: f"{name}.Tensor" for name in (
        "add", "sub", "mul", "eq", "ge", "gt", "le", "lt", "ne", "fmod", "remainder", "frexp",
        "bitwise_and", "bitwise_or", "bitwise_xor")},
    "bessel_i0": "i0.default", "bessel_i0e": "special_i0e.default",
    "bessel_i1": "special_i1.default", "bessel_i1e": "special_i1e.default",
    "bessel_j0": "special_bessel_j0.default", "bessel_j1": "special_bessel_j1.default",
    "collapse": "view_copy.default", "collapse_view": "view.default",
    "copy_strided": "clone.default", "device_put": "to.device", "empty": "empty.memory_format",
    "erf_inv": "erfinv.default", "erfcx": "special_erfcx.default", "fill": "fill.Scalar",
    "ndtri": "special_ndtri.default", "pow": "pow.Tensor_Tensor", "prod": "prod.dim_int",
    "reshape": "view_copy.default", "sum": "sum.dim_IntList",
    "rev": "flip.default", "shift_left": "bitwise_left_shift.Tensor",
    "shift_right_arithmetic": "bitwise_right_shift.Tensor",
    "spherical_bessel_j0": "special_spherical_bessel_j0.default", "split_dim": "view.default",
    "squeeze": "squeeze.dims", "transpose": "permute.default", "view_of": "alias.default",
    "view_of_dtype": "view.dtype", "where": "where.self", "zeta": "special_zeta.default",
}  # fmt: skip
ALIASES.update({f"prims.{name}.default": f"aten.{name}.default" for name in _SAME.split()})
ALIASES.update({f"prims.{name}.default": f"aten.{other}" for name, other in _OTHERS.items()})


@lowering("prims.broadcast_in_dim.default", view=False)
def broadcast(c: Context, x: Value, shape: Sequence[Dim], places: Sequence[int]) -> Value:
    """Axis k of x becomes axis `places[k]`; those of one element are repeated."""
    wide: list[Dim] = [1] * len(shape)
    for size, place in zip(shape_of(x), places, strict=True):
        wide[place] = size
    return c.broadcast_to(c.reshape(x, wide), c.shape)


@lowering("prims.div.default")
def quotient(c: Context, a: Scalar, b: Scalar) -> Value:
    """Of integers it is cut."""
    return divide_by_mode(c, a, b, rounding_mode="trunc") if c.dtype.is_integer else divide(c, a, b)


@lowering("prims.cbrt.default")
def cube_root(c: Context, x: Value) -> Value:
    return c.op("cbrt", x)


@lowering("prims.iota.default")
def places(c: Context, length: Dim, *, start: Dim, step: Dim, **__: Any) -> Value:
    return count(c, start, start + length * step, step)


@lowering("prims.normal.default")
def normally_drawn(c: Context, shape: Any, *, mean: float, std: float, **__: Any) -> Value:
    return normal(c, shape, mean, std)


@lowering("prims.svd.default")
def singular_values(c: Context, x: Value, *, full_matrices: bool) -> Any:
    return singular(c, x, full_matrices)


@lowering("prims.var.default")
def variance_over(c: Context, x: Value, axes: Any, correction: Any = 1, **__: Any) -> Value:
    return variance(c, x, axes, correction=correction)


@lowering("prims.xor_sum.default")
def exclusive_sum(c: Context, x: Value, axes: Any, **__: Any) -> Value:
    return c.reduce(x, c.axes(axes, x), "xor")


# ---- transforms, of which none is scaled


@complex_lowering("prims.fft_c2c.default")
def fourier(c: Context, x: ComplexValue, *, dim: Sequence[int], forward: bool) -> Any:
    return transformed(c, x, dim, 0, forward)


@complex_lowering("prims.fft_r2c.default")
def fourier_of_real(c: Context, x: Value, *, dim: Sequence[int], onesided: bool) -> Any:
    return transformed_real(c, x, dim, 0, onesided)


@complex_lowering("prims.fft_c2r.default")
def fourier_to_real(c: Context, x: ComplexValue, *, dim: Sequence[int], last_dim_size: Dim) -> Any:
    return transformed_to_real(c, x, dim, 0, last_dim_size)

"""Special functions of torch, and the bits of floats, against eager torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.read_source import read_source
from tests.support.torch_calls import Calls, check, drawn, torch

S = torch.special
WHOLE = torch.arange(-4.0, 5.0)
REAL = torch.cat([drawn(60) * 4, torch.tensor([0.5, 20.0, -20.0])])
POSITIVE = torch.cat([REAL.abs() + 1e-3, torch.tensor([1.0, 2.0])])
UNIT = torch.cat([torch.linspace(-1, 1, 41), torch.tensor([1 - 1e-6, 1.5])])
SPECIAL: dict[str, tuple[Any, ...]] = {
    "lgamma": (torch.lgamma, torch.cat([REAL, WHOLE])),
    "digamma": (lambda x: (S.digamma(x), S.digamma(x[:3].long().abs() + 1)), REAL),
    "digamma_poles": (torch.digamma, WHOLE),
    "polygamma": (lambda x: (S.polygamma(1, x), torch.polygamma(0, x)), REAL[:60]),
    "higher_polygamma": (lambda x: (S.polygamma(2, x), S.polygamma(3, x)), POSITIVE[5:] + 0.5),
    "multigammaln": (lambda x: S.multigammaln(x + 2, 3), POSITIVE),
    "zeta": (lambda x: S.zeta(x + 1.1, x * 3), POSITIVE),
    "negative_zeta": (lambda x: S.zeta(torch.full_like(x, 3.0), x), REAL),
    "i0": (lambda x: (torch.i0(x), S.i0e(x), S.i1(x), S.i1e(x)), REAL),
    "erf": (lambda x: (torch.erfc(x), S.erfcx(x / 3), S.ndtr(x), S.log_ndtr(x)), REAL),
    "erfinv": (torch.erfinv, UNIT),
    "ndtri": (S.ndtri, torch.cat([UNIT, torch.tensor([1e-30])])),
    "gammainc": (lambda a: (S.gammainc(a, a.flip(0)), S.gammaincc(a, a.flip(0))), POSITIVE),
    "entr": (lambda x: (S.entr(x), S.xlog1py(x, x), torch.xlogy(x, x), torch.sinc(x)), POSITIVE),
    "half": (lambda x: (torch.lgamma(x.half()), torch.erfc(x.half())), POSITIVE),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions_agree(name: str) -> None:
    function, *tensors = SPECIAL[name]
    check(function, *tensors, near={"half": 4e-3, "polygamma": 1e-4}.get(name, 2e-5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_incomplete_gamma_functions_of_large_orders_agree(dtype: Any) -> None:
    a = torch.tensor([11, 13.0, 1e4, 1e5, 1.0e6, 1e7, 1e8, 1e12], dtype=torch.float64)
    a, away = a[:, None], torch.tensor([-4.0, -0.2, 0, 1e-3, 1.5, 5], dtype=torch.float64)
    a, x = (each.to(dtype) for each in (a.expand(-1, 6), (a + away * a.sqrt()).clamp(0.1)))
    near = 1e-5 if dtype is torch.float32 else 1e-9  # torch itself is off by 2e-10
    for function in (S.gammainc, S.gammaincc):
        expected = function(a.double(), x.double()).to(dtype)
        program = torch.export.export(Calls(function), (a, x), strict=False)
        with np.errstate(all="ignore"):
            (found,) = interpret(read_source(program), "main", [a.numpy(), x.numpy()])
        np.testing.assert_allclose(found, expected.numpy(), near, 0)
    far = torch.tensor([1e-10, 1e-30, 0.5, 1e30, 0], dtype=dtype)
    check(S.gammainc, torch.tensor([12, 1e7, 3e38, 1e8, 2e6], dtype=dtype), far, near=1e-12)


def test_small_values_of_incomplete_gamma_functions_keep_their_digits() -> None:
    a = torch.tensor([1e-30, 1e-30, 1e-10, 1e-10, 1e-3], dtype=torch.float64)
    x = torch.tensor([1e-30, 1.0, 0.05, 1.0, 0.3], dtype=torch.float64)
    program = torch.export.export(Calls(S.gammaincc), (a, x), strict=False)
    (found,) = interpret(read_source(program), "main", [a.numpy(), x.numpy()])
    expected = [6.850033712491985e-29, 2.193839343955203e-31, 2.467898488282848e-10,
                2.1938393441796778e-11, 0.000905838088306647]  # fmt: skip
    np.testing.assert_allclose(found, expected, 1e-13, 0)


ENDS_AND_MIDDLE = [0, 1e-8, 0.49, 1.99, 2.01, 24.9, 25.1, 1e4, torch.inf, -torch.inf, torch.nan]
AROUND = torch.cat([torch.linspace(-30, 60, 61), torch.tensor(ENDS_AND_MIDDLE)]).double()


@pytest.mark.parametrize(
    "name",
    ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0", "airy_ai",
     "modified_bessel_k1", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
     "spherical_bessel_j0", "modified_bessel_i0", "modified_bessel_i1"],
)  # fmt: skip
def test_functions_of_bessel_and_airy_agree(name: str) -> None:
    function = getattr(S, name)
    program = torch.export.export(Calls(function), (AROUND,), strict=False)
    with np.errstate(all="ignore"):
        (found,) = interpret(read_source(program), "main", [AROUND.numpy()])
    np.testing.assert_allclose(found, function(AROUND).numpy(), 1e-8, 1e-6)  # as torch's are


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_orthogonal_polynomials_agree(dtype: Any) -> None:
    names = [f"{start}chebyshev_polynomial_{kind}" for start in ("", "shifted_") for kind in "tuvw"]
    names += ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l"]
    functions = [getattr(S, name) for name in [*names, "legendre_polynomial_p"]]
    points = torch.tensor([-2.5, -1, -0.7, 0, 0.3, 1, 1.7, torch.nan], dtype=dtype)
    degrees = torch.tensor([-1, 0, 1, 2, 2.7, 3, 5, 6, 7, 8, 9, 12], dtype=dtype)
    x, n = points.repeat_interleave(len(degrees)), degrees.repeat(len(points))
    near = 1e-9 if dtype is torch.float64 else 2e-4
    check(lambda x, n: [each(x, n) for each in functions], x, n, near=near)
    check(lambda x: [each(x, 5) for each in functions], points, near=near)


ENDS = [0.0, -0.0, 1.0, -1.5, 1e-42, 3e38, torch.inf, -torch.inf, torch.nan]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_bits_of_floats_agree(dtype: Any) -> None:
    x = torch.tensor(ENDS, dtype=dtype)
    wide, other = x.repeat_interleave(len(ENDS)), x.repeat(len(ENDS))
    check(torch.nextafter, wide, other, near=0)
    check(torch.hypot, wide, other, near=1e-6)
    check(lambda a: (torch.frexp(a), torch.signbit(a)), x, near=0)

"""Special functions: those of gamma, of Bessel, and of the normal distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ingot.compiler.frontends import special
from ingot.compiler.frontends.bessel import BESSEL
from ingot.compiler.frontends.matrices import Array, Scope
from ingot.compiler.frontends.polynomials import POLYNOMIALS
from ingot.compiler.frontends.torch.lowering import Context, Scalar, lowering
from ingot.compiler.frontends.torch.lowerings.arithmetic import at_least_single, together
from ingot.compiler.ir import Value

__all__: list[str] = []

_Function = Callable[..., Array]


def _register(function: _Function, *names: str) -> None:
    """An op of tensors or numbers, computed in f32 at least."""

    def lower(c: Context, *operands: Scalar) -> Value:
        return _applied(c, function, *operands)

    lowering(*(f"aten.{name}" if "." in name else f"aten.{name}.default" for name in names))(lower)


def _applied(c: Context, function: _Function, *operands: Scalar) -> Value:
    scope = Scope(c.builder)
    arrays = [scope.real(each) for each in together(c, at_least_single(c.dtype), *operands)]
    return c.convert(function(*arrays).value, c.dtype)


def _scaled(function: Callable[..., Array]) -> _Function:
    return lambda x: function(x, scaled=True)


_register(special.lgamma, "lgamma", "special_gammaln")
_register(special.digamma, "digamma", "special_digamma", "special_psi")
_register(special.bessel_i0, "i0", "special_i0", "special_modified_bessel_i0")
_register(special.bessel_i1, "special_i1", "special_modified_bessel_i1")
_register(_scaled(special.bessel_i0), "special_i0e")
_register(_scaled(special.bessel_i1), "special_i1e")
_register(special.erfc, "erfc", "special_erfc")
_register(special.erfcx, "special_erfcx")
_register(special.erfinv, "erfinv", "special_erfinv")
_register(special.ndtri, "special_ndtri")
_register(special.zeta, "special_zeta", "special_zeta.other_scalar", "special_zeta.self_scalar")
_register(lambda a, x: special.igamma(a, x, upper=False), "igamma", "special_gammainc")
_register(lambda a, x: special.igamma(a, x, upper=True), "igammac", "special_gammaincc")


for _name, _function in BESSEL.items():
    _register(_function, f"special_{_name}")
for _name, _polynomial in POLYNOMIALS.items():
    _register(
        _polynomial, *(f"special_{_name}.{kind}" for kind in ("default", "x_scalar", "n_scalar"))
    )


@lowering("aten.polygamma.default", "aten.special_polygamma.default")
def polygamma(c: Context, order: Any, x: Value) -> Value:
    return _applied(c, lambda array: special.polygamma(int(order), array), x)

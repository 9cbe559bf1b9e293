"""Functions where complex numbers take part. A complex tensor is two of real numbers; what only
moves or adds elements is done with each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ingot.compiler.frontends.complex_numbers import (
    BINARY,
    UNARY,
    Complex,
    Parts,
    absolute,
)
from ingot.compiler.frontends.emitter import UnsupportedNode, type_of
from ingot.compiler.frontends.ordering import sort_by
from ingot.compiler.frontends.program import (  # noqa: F401 - they register what is done with parts
    creation,
    manipulation,
    reductions,
    searching,
)
from ingot.compiler.frontends.program.dtypes import complex_dtype, element_type, real_dtype
from ingot.compiler.frontends.program.elementwise import common_dtype
from ingot.compiler.frontends.program.searching import axis_of_sort
from ingot.compiler.frontends.program.tensor import (
    COMPLEX,
    FUNCTIONS,
    ComplexTensor,
    Tensor,
    current,
    given,
    public,
    value_of,
)
from ingot.compiler.ir import Value
from ingot.hal.spec import DType

__all__ = ["of_parts", "part_dtype", "parts_of"]

_BY_PARTS = (
    "_index", "_transposed", "broadcast_arrays", "broadcast_to", "cumulative_sum", "diff",
    "dynamic_slice", "empty", "empty_like", "expand_dims", "flip", "matrix_transpose", "mean",
    "moveaxis", "negative", "permute_dims", "positive", "repeat", "reshape", "roll", "round",
    "squeeze", "sum", "take", "take_along_axis", "tile", "tril", "triu", "unstack", "zeros",
    "zeros_like",
)  # fmt: skip
_REAL = ("arange", "eye", "linspace", "ones", "ones_like")
_UNARY = {
    "cbrt": "cbrt", "cos": "cosine", "exp": "exponential", "expm1": "exponential_minus_one",
    "log": "log", "log1p": "log_plus_one", "rsqrt": "rsqrt", "sigmoid": "logistic",
    "sign": "sign", "sin": "sine", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh",
    **{name: f"chlo.{name}" for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh")},
}  # fmt: skip
_TRUTHS = ("all", "any", "count_nonzero", "logical_not", "nonzero")


def of_parts(parts: Parts) -> ComplexTensor:
    """The complex tensor of the innermost block that has these parts."""
    return ComplexTensor(parts, current())


def parts_of(x: Any, element: DType | None = None) -> Parts:
    """The real and the imaginary part of a tensor, a number or an array, in a dtype."""
    trace = current()
    if isinstance(x, complex) and not isinstance(x, np.generic):
        element = element or part_dtype(x)
        real, imaginary = (trace.full(part, element, ()) for part in (x.real, x.imag))
    elif isinstance(x, ComplexTensor):
        real, imaginary = x.parts
    elif isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind == "c":
        real, imaginary = value_of(x.real), value_of(x.imag)
    elif isinstance(x, (list, tuple)):
        joined = FUNCTIONS["stack"]([of_parts(parts_of(each, element)) for each in x])
        real, imaginary = joined.parts
    else:
        real = trace.convert(value_of(x, element), element or part_dtype(x))
        imaginary = trace.fill(0, like=real)
    element = element or type_of(real).dtype
    return trace.convert(real, element), trace.convert(imaginary, element)


def part_dtype(*operands: Any) -> DType:
    """Of the parts that the operands have together as complex numbers."""
    return real_dtype(complex_dtype(common_dtype(*operands)))


def _together(*operands: Any) -> list[Parts]:
    """The parts of the operands in the dtype to which they promote, and in one shape."""
    element = part_dtype(*operands)
    parts = [part for each in operands for part in parts_of(each, element)]
    wide = current().broadcast(*parts)
    return list(zip(wide[::2], wide[1::2], strict=True))


def _numbers() -> Complex:
    return Complex(current().builder)


def _form(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function for complex arguments of these."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        COMPLEX.update(dict.fromkeys(names, function))
        return function

    return register


def _part(x: Any, place: int) -> Any:
    if isinstance(x, ComplexTensor):
        return given(x.parts[place])
    if isinstance(x, (list, tuple)):
        return type(x)(_part(each, place) for each in x)
    if isinstance(x, (complex, np.ndarray, np.generic)) and _is_complex(x):
        return (x.real, x.imag)[place]
    return x


def _is_complex(x: Any) -> bool:
    return np.asarray(x).dtype.kind == "c"


def _real_names(named: dict[str, Any]) -> dict[str, Any]:
    """Keywords with the dtype of parts in place of a complex one."""
    if named.get("dtype") is None:
        return named
    return {**named, "dtype": real_dtype(element_type(named["dtype"]))}


def _by_parts(name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        named = _real_names(named)
        both = [
            FUNCTIONS[name](*(_part(each, place) for each in arguments),
                            **{key: _part(each, place) for key, each in named.items()})
            for place in (0, 1)
        ]  # fmt: skip
        if isinstance(both[0], Tensor):
            return of_parts((value_of(both[0]), value_of(both[1])))
        pairs = zip(*both, strict=True)
        return type(both[0])(of_parts((value_of(a), value_of(b))) for a, b in pairs)

    return call


def _of_reals(name: str) -> Callable[..., Any]:
    """What has no imaginary part."""

    def call(*arguments: Any, **named: Any) -> ComplexTensor:
        return of_parts(
            parts_of(FUNCTIONS[name](*(_part(each, 0) for each in arguments), **_real_names(named)))
        )

    return call


def _unary(name: str) -> Callable[..., Any]:
    return lambda x, /: of_parts(UNARY[name](_numbers(), parts_of(x)))


def _binary(name: str) -> Callable[..., Any]:
    return lambda x1, x2, /: of_parts(BINARY[name](_numbers(), *_together(x1, x2)))


def _register() -> None:
    COMPLEX.update({name: _by_parts(name) for name in _BY_PARTS})
    COMPLEX.update({name: _of_reals(name) for name in _REAL})
    COMPLEX.update({name: _unary(form) for name, form in _UNARY.items()})
    COMPLEX.update({name: _binary(name) for name in ("add", "divide", "multiply", "subtract")})
    for name in _TRUTHS:
        COMPLEX[name] = lambda x, /, _name=name, **named: FUNCTIONS[_name](_differ(x, 0), **named)


_register()


@public
def conj(x: Any, /) -> Tensor:
    """The conjugate of complex numbers; a real tensor itself."""
    return given(value_of(x))


@_form("conj")
def _conj(x: Any, /) -> ComplexTensor:
    real, imaginary = parts_of(x)
    return of_parts((real, current().op("neg", imaginary)))


@public
def real(x: Any, /) -> Tensor:
    """The real part; a real tensor itself."""
    return given(value_of(x))


@_form("real")
def _real(x: Any, /) -> Tensor:
    return given(parts_of(x)[0])


@public
def imag(x: Any, /) -> Tensor:
    """The imaginary part; 0 of a real tensor."""
    return FUNCTIONS["zeros_like"](x)  # type: ignore[no-any-return]


@_form("imag")
def _imag(x: Any, /) -> Tensor:
    return given(parts_of(x)[1])


@_form("abs")
def _abs(x: Any, /) -> Tensor:
    return given(absolute(_numbers(), parts_of(x)))


@_form("square")
def _square(x: Any, /) -> Any:
    return COMPLEX["multiply"](x, x)


@_form("reciprocal")
def _reciprocal(x: Any, /) -> Any:
    return COMPLEX["divide"](1, x)


def _repeated(x: Any, count: int) -> Any:
    """The product of as many x, exact where products are."""
    half = x if count < 4 else _repeated(x, count // 2)
    whole = half if count == 1 else COMPLEX["multiply"](half, half)
    return COMPLEX["multiply"](whole, x) if count > 1 and count % 2 else whole


@_form("pow")
def _pow(x1: Any, x2: Any, /) -> Any:
    if isinstance(x2, int) and 0 < x2 < 100:
        return _repeated(x1, x2)
    return _binary("power")(x1, x2)


def _log_to(base: int) -> Callable[..., Any]:
    """Each part by the real number: a complex quotient of an infinite part is NaN."""

    def call(x: Any, /) -> ComplexTensor:
        parts = UNARY["log"](_numbers(), parts_of(x))
        trace, scale = current(), math.log(base)
        real, imaginary = (trace.op("div", y, scale) for y in parts)
        return of_parts((real, imaginary))

    return call


COMPLEX.update({"log2": _log_to(2), "log10": _log_to(10)})


@_form("equal")
def _equal(x1: Any, x2: Any, /) -> Tensor:
    return given(current().op("not", value_of(_differ(x1, x2))))


@_form("not_equal")
def _differ(x1: Any, x2: Any, /) -> Tensor:
    a, b = _together(x1, x2)
    return given(
        current().op("or", *(current().compare("ne", *pair) for pair in zip(a, b, strict=True)))
    )


def _test(name: str, joined: str) -> Callable[..., Any]:
    return lambda x, /: given(
        current().op(joined, *(current().op(name, part) for part in parts_of(x)))
    )


COMPLEX.update(
    {"isfinite": _test("is_finite", "and"), "isinf": _test("is_inf", "or"),
     "isnan": _test("is_nan", "or")}
)  # fmt: skip


@_form("sort")
def _sort(
    x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> ComplexTensor:
    return of_parts(_sorted(x, axis, descending)[0])


@_form("argsort")
def _argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    return given(_sorted(x, axis, descending)[1])


def _sorted(x: Any, axis: int, descending: bool) -> tuple[Parts, Value]:
    """Imaginary parts decide where real ones are equal; what has a NaN stands behind."""
    trace, parts = current(), parts_of(x)
    no_number = trace.op("or", *(trace.op("is_nan", part) for part in parts))
    at = axis_of_sort(parts[0], axis)
    _, real, imaginary, places = sort_by(trace, [no_number, *parts], at, descending)
    return (real, imaginary), places


@_form("where")
def _where(condition: Any, x1: Any, x2: Any, /) -> ComplexTensor:
    a, b = _together(x1, x2)
    pairs = (FUNCTIONS["where"](condition, given(x), given(y)) for x, y in zip(a, b, strict=True))
    real, imaginary = map(value_of, pairs)
    return of_parts((real, imaginary))


@_form("concat")
def _concat(arrays: Any, /, *, axis: int | None = 0) -> ComplexTensor:
    element = real_dtype(common_dtype(*arrays))
    columns = zip(*(parts_of(each, element) for each in arrays), strict=True)
    real, imaginary = (
        value_of(FUNCTIONS["concat"]([given(each) for each in column], axis=axis))
        for column in columns
    )
    return of_parts((real, imaginary))


@_form("stack")
def _stack(arrays: Any, /, *, axis: int = 0) -> Any:
    return _concat([FUNCTIONS["expand_dims"](each, axis=axis) for each in arrays], axis=axis)


@_form("pad")
def _pad(x: Any, /, pad_width: Any, *, mode: str = "constant", constant_values: Any = 0) -> Any:
    parts, fillings = parts_of(x), parts_of(constant_values)
    made = (
        FUNCTIONS["pad"](given(part), pad_width, mode=mode, constant_values=given(filling))
        for part, filling in zip(parts, fillings, strict=True)
    )
    real, imaginary = map(value_of, made)
    return of_parts((real, imaginary))


@_form("astype")
def _astype(x: Any, dtype: Any, /, *, copy: bool = True) -> Tensor:
    element = element_type(dtype)
    if element.is_complex:
        return of_parts(parts_of(x, real_dtype(element)))
    raise UnsupportedNode(f"complex numbers are no {element}: take ops.real(x) or ops.abs(x)")


@_form("asarray")
def _asarray(obj: Any, /, *, dtype: Any = None, copy: bool | None = None) -> Tensor:
    return of_parts(parts_of(obj)) if dtype is None else _astype(obj, dtype)


@_form("full")
def _full(shape: Any, fill_value: Any, *, dtype: Any = None) -> ComplexTensor:
    parts = parts_of(fill_value, None if dtype is None else real_dtype(element_type(dtype)))
    real, imaginary = (value_of(FUNCTIONS["full"](shape, given(each))) for each in parts)
    return of_parts((real, imaginary))


@_form("full_like")
def _full_like(x: Any, /, fill_value: Any, *, dtype: Any = None) -> ComplexTensor:
    like = given(value_of(x))
    made: ComplexTensor = _full(like.shape, fill_value, dtype=dtype or like.dtype)
    return made


def _product(name: str) -> Callable[..., ComplexTensor]:
    """Products of parts, summed as those of numbers are."""

    def call(x1: Any, x2: Any, /, **named: Any) -> ComplexTensor:
        element = real_dtype(common_dtype(x1, x2))
        (a, b), (c, d) = (map(given, parts_of(each, element)) for each in (x1, x2))
        of = FUNCTIONS[name]
        real = of(a, c, **named) - of(b, d, **named)
        return of_parts((value_of(real), value_of(of(a, d, **named) + of(b, c, **named))))

    return call


COMPLEX.update({name: _product(name) for name in ("matmul", "outer", "tensordot")})


@_form("vecdot")
def _vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Of the conjugates of x1 with x2."""
    return _product("vecdot")(FUNCTIONS["conj"](x1), x2, axis=axis)

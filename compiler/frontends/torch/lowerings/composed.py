"""Ops that are a few others. Of a program in memory torch decomposes them itself; these are for a
program that was saved as it was exported."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ingot.compiler.frontends.binary_functions import log_of_sum
from ingot.compiler.frontends.emitter import shape_of, type_of
from ingot.compiler.frontends.indexed import rolled, scatter_elements
from ingot.compiler.frontends.normalizing import widen
from ingot.compiler.frontends.torch.complex_values import ComplexValue
from ingot.compiler.frontends.torch.lowering import ALIASES, COMPOSED, LOWERINGS, Context, Scalar
from ingot.compiler.frontends.torch.lowering import lowering as own_lowering
from ingot.compiler.frontends.torch.lowerings.arithmetic import computed, promoted, together
from ingot.compiler.frontends.torch.lowerings.contractions import matmul
from ingot.compiler.frontends.torch.lowerings.indexing import diagonal, nonzero
from ingot.compiler.frontends.torch.lowerings.shapes import concatenate, flip, split, transpose
from ingot.compiler.ir import TensorType, Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")

ALIASES.update(
    {
        f"aten.{name}.default": f"aten.{other}.default"
        for name, other in {
            "absolute": "abs", "adjoint": "mH", "arccos": "acos", "arccosh": "acosh",
            "arcsin": "asin", "arcsinh": "asinh", "arctan2": "atan2", "arctanh": "atanh",
            "linalg_matmul": "matmul", "matrix_H": "mH", "matrix_exp": "linalg_matrix_exp",
            "negative": "neg", "orgqr": "linalg_householder_product", "row_stack": "vstack",
            "special_erf": "erf", "special_exp2": "exp2", "special_expit": "sigmoid",
            "special_expm1": "expm1", "special_log1p": "log1p", "special_logit": "logit",
            "special_logsumexp": "logsumexp", "special_round": "round", "special_sinc": "sinc",
            "unsafe_chunk": "chunk", "unsafe_split_with_sizes": "split_with_sizes",
        }.items()
    }
)  # fmt: skip
ALIASES.update(
    {
        f"aten.{name}": f"aten.{other}"
        for name, other in {
            "divide.Scalar": "div.Scalar", "divide.Scalar_mode": "div.Scalar_mode",
            "divide.Tensor_mode": "div.Tensor_mode", "moveaxis.int": "movedim.int",
            "moveaxis.intlist": "movedim.intlist", "swapdims.default": "transpose.int",
            "special_softmax.default": "softmax.int", "unsafe_split.Tensor": "split.Tensor",
            "special_xlogy.default": "xlogy.Tensor", "special_xlogy.other_scalar":
            "xlogy.Scalar_Other", "special_xlogy.self_scalar": "xlogy.Scalar_Self",
            "tensor_split.indices": "tensor_split.sections",
        }.items()
    }
)  # fmt: skip


def _composed(*names: str, view: bool | None = None) -> Callable[[Any], Any]:
    full = [f"aten.{name}" if "." in name else f"aten.{name}.default" for name in names]
    COMPOSED.update(full)
    return own_lowering(*full, view=view)


def _conjugated(c: Context, x: Any) -> Any:
    return ComplexValue(x.real, c.op("neg", x.imaginary)) if isinstance(x, ComplexValue) else x


# ---- shapes


@_composed("atleast_1d", "atleast_2d", "atleast_3d", "ravel", view=False)
def reshape(c: Context, x: Value) -> Value:
    return c.reshaped(x, c.shape)


def _stack(name: str, rank: int, axis: int) -> None:
    """Joined along an axis, of as many dims at least. The first of new ones stand in front, but
    the third, and all of columns, behind."""

    def lower(c: Context, tensors: Sequence[Value]) -> Value:
        values = []
        for each in tensors:
            shape = list(shape_of(each))
            while len(shape) < rank:
                is_behind = len(shape) == 2 or (name == "column_stack" and shape)
                shape = [*shape, 1] if is_behind else [1, *shape]
            values.append(c.reshape(each, shape))
        return concatenate(c, values, min(axis, type_of(values[0]).rank - 1))

    _composed(name)(lower)


_stack("hstack", 1, 1)
_stack("vstack", 2, 0)
_stack("dstack", 3, 2)
_stack("column_stack", 2, 1)


@_composed("hsplit.int", "hsplit.array", view=False)
def split_columns(c: Context, x: Value, parts: Any) -> list[Value]:
    return split(c, x, parts, min(1, type_of(x).rank - 1))


@_composed("vsplit.int", "vsplit.array", view=False)
def split_rows(c: Context, x: Value, parts: Any) -> list[Value]:
    return split(c, x, parts, 0)


@_composed("dsplit.int", "dsplit.array", view=False)
def split_depth(c: Context, x: Value, parts: Any) -> list[Value]:
    return split(c, x, parts, 2)


@_composed("broadcast_tensors")
def broadcast(c: Context, tensors: Sequence[Value]) -> list[Value]:
    return [c.broadcast_to(each, c.shape) for each in tensors]


@_composed("sum_to_size")
def sum_to(c: Context, x: Value, size: Sequence[Dim]) -> Value:
    shape = shape_of(x)
    own = [1] * (len(shape) - len(size)) + list(size)
    axes = [at for at, (a, b) in enumerate(zip(shape, own, strict=True)) if a != b]
    return c.reshape(c.reduce(x, axes, "add"), c.shape) if axes else x


@_composed("fliplr")
def flip_columns(c: Context, x: Value) -> Value:
    return flip(c, x, [1])


@_composed("flipud")
def flip_rows(c: Context, x: Value) -> Value:
    return flip(c, x, [0])


@_composed("rot90")
def rotate(c: Context, x: Value, k: int = 1, axes: Sequence[int] = (0, 1)) -> Value:
    a, b = axes
    if k % 4 == 1:
        return transpose(c, flip(c, x, [b]), a, b)
    if k % 4 == 3:
        return flip(c, transpose(c, x, a, b), [b])
    return flip(c, x, [a, b]) if k % 4 else x


@_composed("mH", view=False)
def adjoint(c: Context, x: Any) -> Any:
    return _conjugated(c, transpose(c, x, -2, -1))


# ---- elements


@_composed("frac")
def fraction(c: Context, x: Value) -> Value:
    return c.op("sub", x, c.op("trunc", x))


def _factor(name: str, factor: float) -> None:
    def lower(c: Context, x: Value) -> Value:
        x = widen(c, c.convert(x, c.dtype))
        return c.op("mul", x, factor)

    _composed(name)(lower)


_factor("deg2rad", math.pi / 180)
_factor("rad2deg", 180 / math.pi)


@_composed("sinc")
def sinc(c: Context, x: Value) -> Value:
    x = widen(c, c.convert(x, c.dtype))
    zero = c.compare("eq", x, 0)
    angle = c.op("mul", x, math.pi)
    safe = c.op("select", zero, 1, angle)
    return c.op("select", zero, c.fill(1, like=x), c.op("div", c.op("sin", angle), safe))


@_composed("heaviside")
def heaviside(c: Context, x: Value, values: Value) -> Value:
    x, values = c.broadcast(x, values)
    zero = c.fill(0, like=x)
    above = c.convert(c.compare("gt", x, zero), type_of(x).dtype)
    return c.op("select", c.compare("eq", x, zero), values, above)


@_composed("xlogy.Tensor", "xlogy.Scalar_Other", "xlogy.Scalar_Self")
def product_with_log(c: Context, a: Scalar, b: Scalar) -> Value:
    a, b = (widen(c, each) for each in together(c, c.dtype, a, b))
    product = c.op("mul", a, c.op("log", b))
    zero = c.fill(0, like=a)
    found = c.op("select", c.compare("eq", a, zero), zero, product)
    return c.op("select", c.op("is_nan", b), b, found)


@_composed("logaddexp")
def log_add_exp(c: Context, a: Value, b: Value) -> Value:
    return log_of_sum(c, *(widen(c, each) for each in together(c, c.dtype, a, b)))


@_composed("special_xlog1py", "special_xlog1py.other_scalar", "special_xlog1py.self_scalar")
def product_with_log1p(c: Context, a: Scalar, b: Scalar) -> Value:
    a, b = (widen(c, each) for each in together(c, c.dtype, a, b))
    zero = c.fill(0, like=a)
    product = c.op("mul", a, c.op("log1p", b))
    found = c.op("select", c.compare("eq", a, zero), zero, product)
    return c.op("select", c.op("is_nan", b), b, found)


@_composed("special_ndtr")
def normal_distribution(c: Context, x: Value) -> Value:
    x = widen(c, c.convert(x, c.dtype))
    below = c.op("mul", x, -math.sqrt(0.5))
    return c.op("mul", LOWERINGS["aten.erfc.default"](c, below), 0.5)


@_composed("float_power.Tensor_Tensor", "float_power.Tensor_Scalar", "float_power.Scalar")
def float_power(c: Context, a: Scalar, b: Scalar) -> Value:
    return c.op("pow", *together(c, c.dtype, a, b))


@_composed("nan_to_num")
def numbers_only(
    c: Context, x: Value, nan: float | None = None, posinf: float | None = None,
    neginf: float | None = None,
) -> Value:  # fmt: skip
    element = type_of(x).dtype
    if not element.is_float:
        return x
    most = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38}
    end = most.get(element.name, 1.7976931348623157e308)
    for number, given, usual in ((math.inf, posinf, end), (-math.inf, neginf, -end)):
        is_end = c.compare("eq", x, number)
        x = c.op("select", is_end, usual if given is None else given, x)
    return c.op("select", c.op("is_nan", x), nan or 0.0, x)


def _infinite(name: str, sign: int) -> None:
    def lower(c: Context, x: Value) -> Value:
        if not type_of(x).dtype.is_float:
            return c.filled(False, "i1", shape_of(x))
        return c.compare("eq", x, sign * math.inf)

    _composed(name)(lower)


_infinite("isposinf", 1)
_infinite("isneginf", -1)


@_composed("isclose")
def close(
    c: Context, a: Value, b: Value, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Value:
    element = promoted(a, b)
    wide = element if element.is_float and element.bits >= 32 else dtype("f32")
    same = c.compare("eq", *together(c, element, a, b))
    a, b = together(c, wide, a, b)
    away = c.op("abs", c.op("sub", a, b))
    part = c.op("abs", c.op("mul", b, rtol))
    near = c.compare("le", away, c.op("add", atol, part))
    found = c.op("or", same, c.op("and", near, c.op("is_finite", away)))
    if equal_nan:
        found = c.op("or", found, c.op("and", c.op("is_nan", a), c.op("is_nan", b)))
    return found


@_composed("isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor")
def is_among(
    c: Context, x: Scalar, others: Scalar, *, assume_unique: bool = False, invert: bool = False
) -> Value:
    x, others = (c.scalar(each, promoted(x, others)) for each in (x, others))
    line = c.flat(others)
    equal = c.compare("eq", *c.broadcast(c.reshape(x, (*shape_of(x), 1)), line))
    found = c.reduce(equal, [type_of(equal).rank - 1], "or")
    return c.op("not", found) if invert else found


# ---- places


@_composed("take")
def take(c: Context, x: Value, places: Value) -> Value:
    flat = c.flat(x)
    return c.op("take", flat, places, axis=0, mode="wrap_check")


@_composed("argwhere")
def places_of(c: Context, x: Value) -> Value:
    return nonzero(c, x)


@_composed("where", "nonzero_numpy")
def places_by_axis(c: Context, x: Value) -> list[Value]:
    x = x if type_of(x).rank else c.reshape(x, (1,))
    places = nonzero(c, x)
    columns = (c.sliced(places, 1, at, at + 1) for at in range(type_of(x).rank))
    return [c.reshape(each, shape_of(places)[:1]) for each in columns]


@_composed("linalg_diagonal", view=False)
def diagonal_of_matrices(
    c: Context, x: Value, *, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> Value:
    return diagonal(c, x, offset, dim1, dim2)


@_composed("trace")
def trace(c: Context, x: Value) -> Value:
    rows, columns = shape_of(x)
    inner = c.declaring(TensorType(type_of(x).dtype, (dims.minimum(rows, columns),)))
    return c.convert(c.reduce(c.convert(diagonal(inner, x), c.dtype), [0], "add"), c.dtype)


@_composed("diag_embed")
def embed_diagonal(c: Context, x: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """[..., n]: zeros but for a diagonal of two axes."""
    *batch, length = shape_of(x)
    size = length + abs(offset)
    at = c.op("iota", dtype=_I64, shape=(length,), axis=0)
    row, column = (c.op("add", at, max(sign * offset, 0)) for sign in (-1, 1))
    place = c.op("add", c.op("mul", row, c.filled(size, _I64, (length,))), column)
    wide = (*batch, length)
    place = c.op("broadcast", place, shape=wide, dimensions=(len(batch),))
    flat = c.full(0, type_of(x).dtype, (*batch, size * size))
    flat = scatter_elements(c, flat, len(batch), place, x, "set")
    found = c.reshape(flat, (*batch, size, size))
    rank = len(batch) + 2
    a, b = c.axis(dim1, rank), c.axis(dim2, rank)
    rest = iter(range(len(batch)))
    named = {a: len(batch), b: len(batch) + 1}
    return c.transpose(found, [named[each] if each in named else next(rest)
                               for each in range(rank)])  # fmt: skip


@_composed("diag", view=False)
def diag(c: Context, x: Value, offset: int = 0) -> Value:
    """The diagonal of a matrix, or the matrix of a diagonal."""
    return diagonal(c, x, offset) if type_of(x).rank == 2 else embed_diagonal(c, x, offset)


@_composed("diagflat")
def diagonal_of_all(c: Context, x: Value, offset: int = 0) -> Value:
    found: Value = embed_diagonal(c, c.flat(x), offset)
    return found


@_composed("max_unpool2d", "max_unpool3d")
def unpool(c: Context, x: Value, places: Value, size: Sequence[Dim], *_: Any) -> Value:
    """Zeros of `size`, with x at these places of the last axes, counted row by row."""
    kept = shape_of(x)[: -len(size)]
    flat = c.full(0, type_of(x).dtype, (*kept, dims.product(size)))
    row = (*kept, dims.product(shape_of(x)[len(kept) :]))
    places, x = c.reshape(places, row), c.reshape(x, row)
    return c.reshape(scatter_elements(c, flat, len(kept), places, x, "set"), c.shape)


# ---- sums and products


@_composed("nanmean")
def mean_of_numbers(
    c: Context, x: Value, dim: Any = None, keepdim: bool = False, **__: Any
) -> Value:
    x = widen(c, c.convert(x, c.dtype))
    none, axes = c.op("is_nan", x), c.axes(dim, x)
    total = c.reduce(c.op("select", none, 0, x), axes, "add", keepdim)
    count = c.reduce(c.convert(c.op("not", none), type_of(x).dtype), axes, "add", keepdim)
    return c.op("div", total, count)


@_composed("pairwise_distance")
def distance(
    c: Context, a: Value, b: Value, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Value:
    a, b = (widen(c, each) for each in together(c, c.dtype, a, b))
    away = c.op("add", c.op("sub", a, b), eps)
    found: Value = LOWERINGS["aten.linalg_vector_norm.default"](c, away, p, [-1], keepdim)
    return found


@_composed("linalg_vecdot")
def dot_of_vectors(c: Context, a: Value, b: Value, *, dim: int = -1) -> Value:
    products = c.op("mul", *c.broadcast(_conjugated(c, a), b))
    return c.reduce(products, [dim % len(c.common_shape(shape_of(a), shape_of(b)))], "add")


@_composed("cross")
def cross_product_somewhere(c: Context, a: Value, b: Value, dim: int | None = None) -> Value:
    """Without an axis it is the first one of three elements."""
    found: Value = cross_product(c, a, b, dim=c.shape.index(3) if dim is None else dim)
    return found


@_composed("linalg_cross")
def cross_product(c: Context, a: Value, b: Value, *, dim: int = -1) -> Value:
    a, b = together(c, c.dtype, a, b)
    axis = c.axis(dim, a)

    def products(first: int, second: int) -> Value:
        return c.op("mul", rolled(c, a, axis, first), rolled(c, b, axis, second))

    return c.op("sub", products(-1, -2), products(-2, -1))


def _with_mean(name: str) -> None:
    def lower(c: Context, x: Value, *given: Any, **named: Any) -> list[Value]:
        kind = name.partition("_")[0]
        form = name.partition(".")[2] or "default"
        if form == "default":
            found = LOWERINGS[f"aten.{kind}.default"](c, x, *given, **named)
            return [found, LOWERINGS["aten.mean.default"](c, x)]
        axes, rest = (given[0] if given else named.pop("dim", None)), given[1:]
        keep = rest[1] if len(rest) > 1 else named.get("keepdim", False)
        found = LOWERINGS[f"aten.{kind}.{form}"](c, x, axes, *rest, **named)
        return [found, LOWERINGS["aten.mean.dim"](c, x, axes, keep)]

    _composed(name)(lower)


for _name in ("std_mean", "std_mean.dim", "std_mean.correction", "var_mean", "var_mean.dim"):
    _with_mean(_name)


@_composed("aminmax")
def ends(c: Context, x: Value, *, dim: int | None = None, keepdim: bool = False) -> list[Value]:
    axes = [] if dim is None else [dim]
    kept = keepdim
    return [LOWERINGS[f"aten.{name}.default"](c, x, axes, kept) for name in ("amin", "amax")]


@_composed("vdot")
def dot_of_conjugate(c: Context, a: Value, b: Value) -> Value:
    return matmul(c, _conjugated(c, a), b)


@_composed("inner")
def inner(c: Context, a: Value, b: Value) -> Value:
    if not type_of(a).rank or not type_of(b).rank:
        return c.op("mul", *c.broadcast(a, b))
    return _dot(c, a, b, [type_of(a).rank - 1], [type_of(b).rank - 1])


@_composed("tensordot")
def tensordot(c: Context, a: Value, b: Value, axes: Sequence[int], others: Sequence[int]) -> Value:
    left, right = ([c.axis(at, x) for at in given] for x, given in ((a, axes), (b, others)))
    for one, other in zip(left, right, strict=True):  # a dim of 1 is spread
        if shape_of(a)[one] == 1 != shape_of(b)[other]:
            b = c.reduce(b, [other], "add", keep=True)
        elif shape_of(b)[other] == 1 != shape_of(a)[one]:
            a = c.reduce(a, [one], "add", keep=True)
    return _dot(c, a, b, left, right)


def _dot(c: Context, a: Value, b: Value, left: list[int], right: list[int]) -> Value:
    return c.op("dot_general", a, b, lhs_contract=tuple(left),
                rhs_contract=tuple(right), dtype=type_of(a).dtype)  # fmt: skip


@_composed("addr")
def add_outer(c: Context, x: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    element = computed(c, x, beta)
    rows = c.reshape(a, (*shape_of(a), 1))
    rows, columns, total = together(c, element, rows, b, x)
    found = c.op("mul", rows, columns)
    if alpha != 1:
        found = c.op("mul", found, alpha)
    if beta == 0:
        return found
    return c.op("add", found, total if beta == 1 else c.op("mul", total, beta))


@_composed("kron")
def kronecker(c: Context, a: Value, b: Value) -> Value:
    rank = max(type_of(a).rank, type_of(b).rank)
    own, other = ([*[1] * (rank - type_of(x).rank), *shape_of(x)] for x in (a, b))
    left = c.reshape(c.convert(a, c.dtype), [dim for each in own for dim in (each, 1)])
    right = c.reshape(c.convert(b, c.dtype), [dim for each in other for dim in (1, each)])
    return c.reshape(c.op("mul", *c.broadcast(left, right)), c.shape)

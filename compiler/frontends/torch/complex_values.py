"""Complex tensors, which are kept as their real and imaginary parts.

What only moves elements, or adds them, is lowered once for each part, as the op on real numbers
that it would be. Arguments and results of the program are complex tensors: `take_apart` and
`join` go from one form to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ingot.compiler.frontends.complex_numbers import UNARY, Complex, Parts
from ingot.compiler.frontends.emitter import UnsupportedNode, type_of
from ingot.compiler.frontends.torch.lowering import LOWERINGS, Context
from ingot.compiler.ir import TensorType, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.spec import DType, dtype

__all__ = [
    "COMPLEX",
    "ComplexValue",
    "complex_lowering",
    "lower_complex",
    "real_dtype",
    "real_type",
]

_REAL = {"c64": "f32", "c128": "f64"}
_ADVICE = "compute with real and imaginary parts (torch.view_as_real)"

_BY_PARTS = frozenset(
    f"aten.{name}"
    for name in (
        "_reshape_alias.default", "_unsafe_index.Tensor",
        "_unsafe_view.default", "alias.default", "as_strided.default", "broadcast_to.default",
        "cat.default", "chunk.default", "clone.default", "constant_pad_nd.default",
        "contiguous.default", "copy.default", "cumsum.default", "detach.default",
        "diagonal.default", "expand.default", "expand_as.default", "flatten.using_ints",
        "flip.default", "gather.default", "index.Tensor", "index_put.default",
        "index_select.default", "lift_fresh.default", "lift_fresh_copy.default", "mT.default",
        "masked_select.default", "mean.default", "mean.dim", "movedim.int", "movedim.intlist",
        "narrow.default", "neg.default", "permute.default", "repeat.default", "reshape.default",
        "roll.default", "select.int", "select_scatter.default", "slice.Tensor",
        "slice_scatter.default", "split.Tensor", "split_with_sizes.default", "squeeze.default",
        "squeeze.dim", "squeeze.dims", "stack.default", "sum.default", "sum.dim_IntList",
        "t.default", "transpose.int", "unbind.int", "unflatten.int",
        "unfold.default", "unsqueeze.default", "view.default",
    )
)  # fmt: skip
"""Ops whose real result is that of the real parts, and whose imaginary one that of the others."""
_PRODUCTS = frozenset(f"aten.{name}.default" for name in ("bmm", "dot", "matmul", "mm", "mv"))


_UNARY = {
    "aten.cos.default": "cosine",
    "aten.exp.default": "exponential",
    "aten.expm1.default": "exponential_minus_one",
    "aten.log.default": "log",
    "aten.log1p.default": "log_plus_one",
    "aten.rsqrt.default": "rsqrt",
    "aten.sgn.default": "sign",
    "aten.sigmoid.default": "logistic",
    "aten.sin.default": "sine",
    "aten.sqrt.default": "sqrt",
    "aten.tan.default": "tan",
    "aten.tanh.default": "tanh",
    "aten._conj.default": "chlo.conj",
    "aten.conj.default": "chlo.conj",
    "aten._conj_physical.default": "chlo.conj",
    "aten.conj_physical.default": "chlo.conj",
}


@dataclass(frozen=True)
class ComplexValue:
    """A complex tensor; both parts have one type."""

    real: Value
    imaginary: Value

    @property
    def parts(self) -> Parts:
        return self.real, self.imaginary

    @property
    def type(self) -> TensorType:
        """Of the complex tensor."""
        type = type_of(self.real)
        return TensorType(dtype("c64" if type.dtype.bits == 32 else "c128"), type.shape)


Lowering = Callable[..., Any]
COMPLEX: dict[str, Lowering] = {}
"""Lowerings of ops that take or give complex tensors, beside those that are of parts."""


def complex_lowering(*names: str) -> Callable[[Lowering], Lowering]:
    """Register the decorated function for these ops where complex tensors take part."""

    def register(function: Lowering) -> Lowering:
        COMPLEX.update(dict.fromkeys(names, function))
        return function

    return register


def real_dtype(element: DType) -> DType:
    """Of the parts of a complex dtype; another dtype itself."""
    return dtype(_REAL.get(element.name, element.name))


def real_type(type: TensorType) -> TensorType:
    """The type of the parts of a complex tensor; that of another tensor itself."""
    return TensorType(real_dtype(type.dtype), type.shape)


def lower_complex(c: Context, name: str, arguments: Sequence[Any], keywords: Any) -> Any:
    """What an op gives where complex tensors are among its arguments or its results."""
    if name in COMPLEX:
        return COMPLEX[name](c, *arguments, **keywords)
    if name in _UNARY:
        return ComplexValue(*UNARY[_UNARY[name]](Complex(c.builder), arguments[0].parts))
    if name in _PRODUCTS:
        return _product(c, name, arguments, keywords)
    if name not in _BY_PARTS:
        raise UnsupportedNode(f"complex numbers in it are not supported: {_ADVICE}")
    columns, inner = [], _real_context(c)
    for place in (0, 1):
        given = [_part(c, each, place) for each in arguments]
        named = {key: _part(c, each, place) for key, each in keywords.items()}
        made = LOWERINGS[name](inner, *given, **named)
        columns.append(list(made) if isinstance(made, (list, tuple)) else [made])
    pairs = [ComplexValue(a, b) for a, b in zip(*columns, strict=True)]
    return pairs[0] if len(pairs) == 1 else pairs


def _real_context(c: Context) -> Context:
    return c.declaring(*(None if each is None else real_type(each) for each in c.declared))


def _part(c: Context, x: Any, place: int) -> Any:
    """The real (0) or imaginary (1) part of tensors and numbers; dtypes become real ones. Masks,
    places and sizes are as they were."""
    if isinstance(x, ComplexValue):
        return x.parts[place]
    if isinstance(x, (list, tuple)):
        return [_part(c, each, place) for each in x]
    if isinstance(x, DType):
        return real_dtype(x)
    if place and isinstance(x, float):
        return 0.0
    if place and isinstance(x, Value) and type_of(x).dtype.is_float:
        return c.fill(0, like=x)
    return x


def _product(c: Context, name: str, arguments: Sequence[Any], keywords: Any) -> ComplexValue:
    """Products of parts, summed as those of numbers are."""
    inner = _real_context(c)
    a, b, *rest = arguments

    def of(x: Value, y: Value) -> Value:
        found: Value = LOWERINGS[name](inner, x, y, *rest, **keywords)
        return found

    real = c.op("sub", of(a.real, b.real), of(a.imaginary, b.imaginary))
    return ComplexValue(real, c.op("add", of(a.real, b.imaginary), of(a.imaginary, b.real)))

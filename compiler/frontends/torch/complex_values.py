"""Complex tensors, which are kept as their real and imaginary parts.

What only moves elements, or adds them, is lowered once for each part, as the op on real numbers
that it would be. Arguments and results of the program are complex tensors: `take_apart` and
`join` go from one form to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, cast

from ingot.compiler.frontends.complex_numbers import BINARY, UNARY, Complex, Parts
from ingot.compiler.frontends.emitter import UnsupportedNode, type_of
from ingot.compiler.frontends.torch.lowering import COMPOSED, LOWERINGS, Context
from ingot.compiler.ir import TensorType, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, Expr
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
        "_reshape_alias.default", "_unsafe_index.Tensor", "_unsafe_index_put.default",
        "_unsafe_view.default", "alias.default", "as_strided.default", "broadcast_to.default",
        "cat.default", "channel_shuffle.default", "chunk.default", "clone.default",
        "col2im.default",
        "contiguous.default", "copy.default", "cumsum.default", "detach.default",
        "diagonal.default", "expand.default", "expand_as.default", "flatten.using_ints",
        "flip.default", "gather.default", "im2col.default", "index.Tensor", "index_put.default",
        "index_select.default", "lift_fresh.default", "lift_fresh_copy.default", "mT.default",
        "masked_select.default", "mean.default", "mean.dim", "movedim.int", "movedim.intlist",
        "narrow.default", "neg.default", "permute.default",
        "pixel_shuffle.default", "pixel_unshuffle.default", "repeat.default", "reshape.default",
        "roll.default", "select.int", "select_scatter.default", "slice.Tensor",
        "slice_scatter.default", "split.Tensor", "split_with_sizes.default", "squeeze.default",
        "squeeze.dim", "squeeze.dims", "stack.default", "sum.default", "sum.dim_IntList",
        "t.default", "transpose.int", "unbind.int", "unflatten.int",
        "unfold.default", "unsqueeze.default", "view.default",
    )
)  # fmt: skip
"""Ops whose real result is that of the real parts, and whose imaginary one that of the others."""
_AS_REAL = frozenset(
    f"aten.{name}"
    for name in (
        "addbmm.default", "addcdiv.default", "addcmul.default", "addmm.default", "addmv.default",
        "alias_copy.default", "as_strided_copy.default", "as_strided_scatter.default",
        "baddbmm.default", "bmm.default", "concat.default", "concatenate.default",
        "conv1d.default", "conv1d.padding", "conv2d.default", "conv2d.padding", "conv3d.default",
        "conv3d.padding", "conv_transpose1d.default", "conv_transpose2d.input",
        "conv_transpose3d.input", "constant_pad_nd.default", "convolution.default",
        "diagonal_copy.default",
        "diagonal_scatter.default", "diff.default", "dot.default", "einsum.default",
        "expand_copy.default", "ger.default", "index_add.default", "index_copy.default",
        "index_fill.int_Scalar", "index_fill.int_Tensor", "lerp.Scalar", "lerp.Tensor",
        "linear.default",
        "logical_and.default", "logical_not.default", "logical_or.default", "logical_xor.default",
        "masked_scatter.default", "matmul.default", "meshgrid.default", "meshgrid.indexing",
        "mm.default", "mv.default", "narrow_copy.default", "numel.default", "outer.default",
        "pad.default", "permute_copy.default", "put.default", "repeat_interleave.self_int",
        "reshape_as.default", "scatter.reduce", "scatter.src", "scatter_add.default",
        "select_copy.int",
        "silu.default", "size.int", "slice_copy.Tensor", "split_copy.Tensor",
        "split_with_sizes_copy.default", "squeeze_copy.dim", "squeeze_copy.dims",
        "storage_offset.default", "stride.int", "sym_numel.default", "sym_size.int",
        "sym_storage_offset.default", "sym_stride.int", "take_along_dim.default",
        "tanhshrink.default",
        "tensor_split.sections", "tile.default", "tril.default", "triu.default",
        "unbind_copy.int", "unfold_copy.default", "unsqueeze_copy.default", "view_as.default",
        "view_copy.default",
    )
)  # fmt: skip
"""Ops whose lowering for real numbers holds for complex ones, of which it makes ops as if graph ops
took them."""
_BOTH_PARTS = frozenset(
    ("add", "broadcast", "concatenate", "dynamic_slice", "dynamic_update_slice", "gather", "neg",
     "pad", "reshape", "reverse", "scatter", "select", "slice", "sub", "take", "transpose")
)  # fmt: skip
"""Graph ops of both parts alike; a scatter only of kind add or set."""
_GRAPH_BINARY = {"mul": "multiply", "div": "divide", "pow": "power"}
_GRAPH_UNARY = {"exp": "exponential", "log": "log", "logistic": "logistic", "tanh": "tanh"}


_UNARY = {
    **{f"aten.{name}.default": f"chlo.{name}" for name in (
        "acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh")},
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
}  # fmt: skip


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

    def typed(self, _: object) -> TensorType:
        """As `Value.typed`, so that lowerings may ask either."""
        return self.type


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
    if name in _AS_REAL or name in COMPOSED:
        return LOWERINGS[name](_ComplexContext.of(c), *arguments, **keywords)
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


class _ComplexContext(Context):
    """A node whose lowering makes graph ops of complex values."""

    @classmethod
    def of(cls, c: Context) -> _ComplexContext:
        made = copy(c)
        made.__class__ = cls
        assert isinstance(made, _ComplexContext)
        return made

    def op(self, name: str, *operands: Any, **attributes: Any) -> Any:
        operands = self.tensors_of(operands)
        wanted = attributes.get("dtype")
        gives = isinstance(wanted, DType) and wanted.is_complex
        if not gives and not any(isinstance(each, ComplexValue) for each in operands):
            return super().op(name, *operands, **attributes)
        if name == "convert":
            return self._converted(operands[0], attributes["dtype"])
        if name in _BOTH_PARTS and attributes.get("kind", "add") in ("add", "set"):
            return self._parts(name, operands, attributes)
        if name == "reduce" and attributes["kind"] == "add":
            return self._parts(name, operands, attributes)
        if name in _GRAPH_BINARY:
            pair = [self._whole(each).parts for each in operands]
            return ComplexValue(*BINARY[_GRAPH_BINARY[name]](Complex(self.builder), *pair))
        if name in _GRAPH_UNARY:
            x = self._whole(operands[0]).parts
            return ComplexValue(*UNARY[_GRAPH_UNARY[name]](Complex(self.builder), x))
        if name in ("dot_general", "convolution"):
            return self._product(name, *operands, **attributes)
        raise UnsupportedNode(f"{name} of complex numbers is not supported: {_ADVICE}")

    def _whole(self, x: Any) -> ComplexValue:
        return x if isinstance(x, ComplexValue) else ComplexValue(x, self.fill(0, like=x))

    def _parts(self, name: str, operands: Sequence[Any], attributes: Any) -> ComplexValue:
        """Masks and places are the same for both parts; other operands have two."""
        numbers = [each for each in operands if isinstance(each, ComplexValue)]
        element = type_of(numbers[0].real).dtype
        made = []
        for place in (0, 1):
            given = [
                self._whole(each).parts[place] if _is_number(each, element) else each
                for each in operands
            ]
            made.append(super().op(name, *given, **attributes))
        return ComplexValue(*made)

    def _product(self, name: str, a: Any, b: Any, **attributes: Any) -> ComplexValue:
        """Products of parts, summed as those of numbers are."""
        left, right = self._whole(a), self._whole(b)
        if "dtype" in attributes:
            attributes["dtype"] = type_of(left.real).dtype

        def of(x: Value, y: Value) -> Value:
            return super(_ComplexContext, self).op(name, x, y, **attributes)

        real, imaginary = left.parts
        parts = (
            ("sub", of(real, right.real), of(imaginary, right.imaginary)),
            ("add", of(real, right.imaginary), of(imaginary, right.real)),
        )
        return ComplexValue(*(super(_ComplexContext, self).op(*each) for each in parts))

    def _converted(self, x: Any, element: DType) -> Any:
        part = real_dtype(element)
        if element.is_complex:
            return ComplexValue(*(self.convert(each, part) for each in self._whole(x).parts))
        if not element.is_boolean:
            raise UnsupportedNode(f"it makes {element.name} of complex numbers: {_ADVICE}")
        return super().op("or", *(self.convert(each, element) for each in x.parts))

    def broadcast_to(self, value: Any, shape: Sequence[Dim]) -> Any:
        if isinstance(value, ComplexValue):
            return ComplexValue(*(super(_ComplexContext, self).broadcast_to(each, shape)
                                  for each in value.parts))  # fmt: skip
        return super().broadcast_to(value, shape)

    def fill(self, number: Any, like: Any) -> Any:
        if not isinstance(like, ComplexValue):
            return super().fill(number, like)
        real, imaginary = (number.real, number.imag)
        fill = super().fill
        return ComplexValue(fill(real, like.real), fill(imaginary, like.real))

    def full(self, number: Any, dtype: DType | str, shape: Sequence[Dim]) -> Any:
        part = real_dtype(dtype) if isinstance(dtype, DType) else dtype
        if part is dtype:
            return super().full(number, dtype, shape)
        full = super().full
        return ComplexValue(full(number.real, part, shape), full(number.imag, part, shape))

    def scalar(self, x: Any, element: DType | str) -> Any:
        if isinstance(x, ComplexValue):
            return self.convert(cast("Any", x), element)
        if isinstance(element, str) or not element.is_complex or isinstance(x, Value):
            return super().scalar(x, element)
        if isinstance(x, Expr):
            return self._converted(self.size(x, real_dtype(element)), element)
        return self.full(x, element, ())


def _is_number(x: Any, element: DType) -> bool:
    """Whether an operand has parts: it is complex, or of the dtype of these."""
    return isinstance(x, ComplexValue) or type_of(x).dtype is element

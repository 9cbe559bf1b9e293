"""Lowerings of contractions: dot_general, dot and convolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ingot.compiler.frontends.convolutions import MOST_SPATIAL, convolve
from ingot.compiler.frontends.stablehlo.lowering import Context, ints, lowering
from ingot.compiler.frontends.stablehlo.reading.program import SourceOp, SourceProgram
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType, dtype

__all__: list[str] = []

_LISTED = (
    *(f"{each}_spatial_dimensions" for each in ("input", "kernel", "output")),
    *("window_strides", "lhs_dilation", "rhs_dilation", "window_reversal"),
)


_Algorithm = tuple[str, int, str]

_PARTS: Mapping[_Algorithm | None, int] = {
    ("bf16", 1, "f32"): 2,
    ("bf16", 3, "f32"): 2,
    ("bf16", 6, "f32"): 3,
    ("tf32", 1, "f32"): 2,
    ("tf32", 3, "f32"): 3,
    ("f16", 1, "f32"): 2,
}
"""bf16 whose sums f32 factors may be taken as, for products at least as exact as an algorithm
asks for; with others they are of f32, or f64."""


@lowering("dot_general")
def dot_general(context: Context, op: SourceOp) -> Value:
    """Batched contraction: result [batch, free of lhs, free of rhs]."""
    numbers = [
        ints(op.attributes[f"{side}_{kind}_dimensions"])
        for kind in ("batching", "contracting")
        for side in ("lhs", "rhs")
    ]
    return _dot(context, op, *numbers)


@lowering("dot")
def dot(context: Context, op: SourceOp) -> Value:
    rank = tensor_type(context.operand(op, 0)).rank
    return _dot(context, op, (), (), (rank - 1,), (0,))


def _dot(
    context: Context,
    op: SourceOp,
    lhs_batch: tuple[int, ...],
    rhs_batch: tuple[int, ...],
    lhs_contract: tuple[int, ...],
    rhs_contract: tuple[int, ...],
) -> Value:
    a, b, wanted = _operands(context, op)
    shape = list(tensor_type(b).shape)
    for i, j in zip((*lhs_batch, *lhs_contract), (*rhs_batch, *rhs_contract), strict=True):
        shape[j] = tensor_type(a).shape[i]
    b = context.agree(op, b, shape)
    asked, are_f32 = _algorithm(op), tensor_type(a).dtype is tensor_type(b).dtype is dtype("f32")
    if are_f32 and asked is not None and asked[2] == "f64":
        a, b = (context.builder.value("convert", each, dtype=dtype("f64")) for each in (a, b))
    product = context.builder.value(
        "dot_general",
        a,
        b,
        lhs_batch=lhs_batch,
        rhs_batch=rhs_batch,
        lhs_contract=lhs_contract,
        rhs_contract=rhs_contract,
        dtype=wanted,
        exact=_is_exact(op) or (asked is not None and asked not in _PARTS),
        bf16_parts=_PARTS.get(asked, 0) if are_f32 and wanted is dtype("f32") else 0,
    )
    return _as_declared(context, op, product)


def _algorithm(op: SourceOp) -> _Algorithm | None:
    """The types of factors and sums and how many products one is made of; None: that is left
    open."""
    found = op.attributes.get
    count = found("num_primitive_operations")
    if not isinstance(count, int):
        return None
    kinds = {str(found(f"{side}_precision_type")) for side in ("lhs", "rhs")}
    parts = {found(f"{side}_component_count") for side in ("lhs", "rhs")}
    is_known = len(kinds) == 1 and parts == {1}
    return kinds.pop() if is_known else "", count, str(found("accumulation_type"))


def _as_declared(context: Context, op: SourceOp, product: Value) -> Value:
    """A product in the dtype of the result: booleans are computed as integers."""
    type = op.results[0].tensor
    if type.element != "i1":
        return product
    return context.builder.value("convert", product, dtype=dtype("i1"))


def _is_exact(op: SourceOp) -> bool:
    """Whether the program asks for more than the default precision of factors."""
    asked = op.attributes.get("precision_config")
    return isinstance(asked, tuple) and not {"HIGH", "HIGHEST"}.isdisjoint(asked)


def _operands(context: Context, op: SourceOp) -> tuple[Value, Value, DType]:
    """The two operands in one dtype, and the dtype of the result."""
    type = op.results[0].tensor
    a, b, wanted = context.operand(op, 0), context.operand(op, 1), dtype(type.element)
    if wanted.is_boolean:  # and, or: products of 0 and 1, and whether their sum is 0
        whole = dtype("i32")
        a, b = (context.builder.value("convert", each, dtype=whole) for each in (a, b))
        return a, b, whole
    if tensor_type(a).dtype.is_boolean and tensor_type(b).dtype.is_boolean:
        a, b = (context.builder.value("convert", each, dtype=wanted) for each in (a, b))
    one, other = tensor_type(a).dtype, tensor_type(b).dtype
    if one is not other and not (one.is_integer and other.is_integer):
        wider = one if one.bits > other.bits else other if other.bits > one.bits else wanted
        a = a if one is wider else context.builder.op("convert", a, dtype=wider)
        b = b if other is wider else context.builder.op("convert", b, dtype=wider)
    return a, b, wanted


def _check_convolution(op: SourceOp, program: SourceProgram) -> str | None:
    if len(ints(op.attributes["input_spatial_dimensions"])) > MOST_SPATIAL:
        return f"more than {MOST_SPATIAL} spatial dims"
    return None


@lowering("convolution", "dynamic_conv", check=_check_convolution)
def convolution(context: Context, op: SourceOp) -> Value:
    x, w, wanted = _operands(context, op)
    listed = {name: ints(op.attributes.get(name, ())) for name in _LISTED}
    padding: Sequence[Dim] = ints(op.attributes.get("padding", ()))
    if op.name == "dynamic_conv":
        padding = context.sizes(op, 2, low=None)
    x = _agreed_features(context, op, x, w)
    numbers = {**op.attributes, **listed}
    product = convolve(context.builder, x, w, numbers, padding, wanted, _is_exact(op))
    return _as_declared(context, op, product)


def _agreed_features(context: Context, op: SourceOp, x: Value, w: Value) -> Value:
    """x with as many features as w takes in all groups."""
    shape = list(tensor_type(x).shape)
    taken = tensor_type(w).shape[op.attributes["kernel_input_feature_dimension"]]
    shape[op.attributes["input_feature_dimension"]] = taken * op.attributes["feature_group_count"]
    return context.agree(op, x, shape)

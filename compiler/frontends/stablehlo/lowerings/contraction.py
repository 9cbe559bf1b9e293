"""Lowerings of contractions: dot_general, dot and convolution."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.stablehlo.lowering import Context, ints, lowering
from ingot.compiler.frontends.stablehlo.reading.program import SourceOp, SourceProgram
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType, dtype

__all__: list[str] = []

_SPATIAL = {1: "w", 2: "hw", 3: "dhw"}
_LETTERS = "0123456789"


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
    product = context.builder.value(
        "dot_general",
        a,
        b,
        lhs_batch=lhs_batch,
        rhs_batch=rhs_batch,
        lhs_contract=lhs_contract,
        rhs_contract=rhs_contract,
        dtype=wanted,
        exact=_is_exact(op),
    )
    return _as_declared(context, op, product)


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
    one, other = tensor_type(a).dtype, tensor_type(b).dtype
    if one is not other and not (one.is_integer and other.is_integer):
        wider = one if one.bits > other.bits else other if other.bits > one.bits else wanted
        a = a if one is wider else context.builder.op("convert", a, dtype=wider)
        b = b if other is wider else context.builder.op("convert", b, dtype=wider)
    return a, b, wanted


def _check_convolution(op: SourceOp, program: SourceProgram) -> str | None:
    if len(ints(op.attributes["input_spatial_dimensions"])) > len(_LETTERS):
        return "more than 10 spatial dims"
    return None


@lowering("convolution", "dynamic_conv", check=_check_convolution)
def convolution(context: Context, op: SourceOp) -> Value:
    """A window moved over the spatial axes; the layout names all axes, nothing is transposed."""
    x, w, wanted = _operands(context, op)
    groups, x = _batch_groups(context, op, _agreed_features(context, op, x, w))
    count = len(ints(op.attributes["input_spatial_dimensions"]))
    reversed_axes = _reversed_axes(op)
    if reversed_axes:
        w = context.builder.op("reverse", w, axes=reversed_axes)
    product = context.builder.value(
        "convolution",
        x,
        w,
        layout=_layout(op),
        strides=_steps(op, "window_strides", count),
        padding=_padding(context, op, count),
        lhs_dilation=_steps(op, "lhs_dilation", count),
        rhs_dilation=_steps(op, "rhs_dilation", count),
        groups=op.attributes["feature_group_count"] * groups,
        dtype=wanted,
        exact=_is_exact(op),
    )
    return _as_declared(context, op, product)


def _agreed_features(context: Context, op: SourceOp, x: Value, w: Value) -> Value:
    """x with as many features as w takes in all groups."""
    shape = list(tensor_type(x).shape)
    taken = tensor_type(w).shape[op.attributes["kernel_input_feature_dimension"]]
    shape[op.attributes["input_feature_dimension"]] = taken * op.attributes["feature_group_count"]
    return context.agree(op, x, shape)


def _batch_groups(context: Context, op: SourceOp, x: Value) -> tuple[int, Value]:
    """How many groups the batch is in, and x with them as groups of features."""
    groups = int(op.attributes.get("batch_group_count", 1))
    if groups == 1:
        return 1, x
    batch = op.attributes["input_batch_dimension"]
    feature = op.attributes["input_feature_dimension"]
    shape = tensor_type(x).shape
    split = (*shape[:batch], groups, dims.floordiv(shape[batch], groups), *shape[batch + 1 :])
    x = context.builder.value("reshape", x, shape=split)
    order = [axis for axis in range(len(split)) if axis != batch]
    order.insert(order.index(feature + (feature > batch)), batch)
    x = context.builder.value("transpose", x, permutation=tuple(order))
    merged = list(shape)
    merged[batch] = split[batch + 1]
    merged[feature] = shape[feature] * groups
    return groups, context.builder.value("reshape", x, shape=tuple(merged))


def _reversed_axes(op: SourceOp) -> tuple[int, ...]:
    flags = ints(op.attributes.get("window_reversal", ()))
    axes = ints(op.attributes["kernel_spatial_dimensions"])
    return tuple(axis for axis, flag in zip(axes, flags, strict=False) if flag)


def _steps(op: SourceOp, name: str, count: int) -> tuple[int, ...]:
    return ints(op.attributes.get(name, ())) or (1,) * count


def _padding(context: Context, op: SourceOp, count: int) -> tuple[tuple[Dim, Dim], ...]:
    flat: Sequence[Dim]
    if op.name == "dynamic_conv":
        flat = context.sizes(op, 2, low=None)
    else:
        flat = ints(op.attributes["padding"]) or (0,) * (2 * count)
    return tuple((flat[2 * axis], flat[2 * axis + 1]) for axis in range(count))


def _layout(op: SourceOp) -> str:
    """The axes as text, such as "nhwc,hwio->nhwc"."""

    def axes(first: str, second: str, prefix: str, one: str, two: str) -> str:
        spatial = ints(op.attributes[f"{prefix}_spatial_dimensions"])
        letters = _SPATIAL.get(len(spatial), _LETTERS[: len(spatial)])
        order = dict(zip(spatial, letters, strict=True))
        order[op.attributes[f"{prefix}_{one}_dimension"]] = first
        order[op.attributes[f"{prefix}_{two}_dimension"]] = second
        return "".join(order[axis] for axis in sorted(order))

    x = axes("n", "c", "input", "batch", "feature")
    w = axes("i", "o", "kernel", "input_feature", "output_feature")
    return f"{x},{w}->{axes('n', 'c', 'output', 'batch', 'feature')}"

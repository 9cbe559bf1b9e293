"""Lowerings of element-wise ops: arithmetic, comparisons, selection, conversions."""

from __future__ import annotations

from ingot.compiler.frontends.stablehlo.lowering import Context, lowering
from ingot.compiler.frontends.stablehlo.reading.program import SourceOp
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Value
from ingot.hal.spec import DType, dtype

__all__ = ["SCALAR_OPS", "ordered_bits"]

_UNARY = {
    "abs": "abs",
    "cbrt": "cbrt",
    "ceil": "ceil",
    "cosine": "cos",
    "count_leading_zeros": "count_leading_zeros",
    "exponential": "exp",
    "exponential_minus_one": "expm1",
    "floor": "floor",
    "is_finite": "is_finite",
    "log": "log",
    "log_plus_one": "log1p",
    "logistic": "logistic",
    "negate": "neg",
    "not": "not",
    "popcnt": "popcount",
    "round_nearest_afz": "round_away",
    "round_nearest_even": "round_even",
    "rsqrt": "rsqrt",
    "sign": "sign",
    "sine": "sin",
    "sqrt": "sqrt",
    "tan": "tan",
    "tanh": "tanh",
}
_BINARY = {
    "add": "add",
    "and": "and",
    "atan2": "atan2",
    "divide": "div",
    "maximum": "max",
    "minimum": "min",
    "multiply": "mul",
    "or": "or",
    "power": "pow",
    "remainder": "rem",
    "shift_left": "shift_left",
    "shift_right_arithmetic": "shift_right_arithmetic",
    "shift_right_logical": "shift_right_logical",
    "subtract": "sub",
    "xor": "xor",
}
SCALAR_OPS = frozenset(
    {
        *_UNARY,
        *_BINARY,
        *("bitcast_convert", "clamp", "compare", "complex", "convert", "imag", "real"),
        *("reduce_precision", "select"),
    }
)
"""Ops that compute each element by itself."""

_ON_BOOLEANS = {"add": "or", "mul": "and", "max": "or", "min": "and"}


@lowering(*_UNARY)
def unary(context: Context, op: SourceOp) -> Value:
    return context.builder.op(_UNARY[op.name], context.operand(op, 0))  # type: ignore[no-any-return]


@lowering(*_BINARY)
def binary(context: Context, op: SourceOp) -> Value:
    a, b = context.same_shape(op, context.operands(op))
    name = _BINARY[op.name]
    if _element(a).is_boolean:
        name = _ON_BOOLEANS.get(name, name)
    return context.builder.op(name, a, b)  # type: ignore[no-any-return]


@lowering("compare")
def compare(context: Context, op: SourceOp) -> Value:
    a, b = context.same_shape(op, context.operands(op))
    if op.attributes.get("compare_type") == "TOTALORDER" and _element(a).is_float:
        a, b = _total_order(context, a), _total_order(context, b)
    direction = str(op.attributes["comparison_direction"]).lower()
    return context.builder.op("compare", a, b, direction=direction)  # type: ignore[no-any-return]


def _total_order(context: Context, x: Value) -> Value:
    """Signed integers that are ordered as IEEE's total order of the floats x."""
    if _element(x).bits < 16:  # kernels have no bits of these
        x = context.builder.op("convert", x, dtype=dtype("f32"))
    signed = dtype(f"i{_element(x).bits}")
    return ordered_bits(context, context.builder.op("bitcast", x, dtype=signed))


def ordered_bits(context: Context, bits: Value) -> Value:
    """The bits of floats as integers in the same order; applied again, the bits.

    Those of a float with the sign set run backwards, so all but the sign flip there.
    """
    builder, element = context.builder, _element(bits)
    shape = getattr(bits.type, "shape", ())
    places = builder.full(element.bits - 1, element, shape)
    sign = builder.op("shift_right_arithmetic", bits, places)
    flips = builder.op("shift_right_logical", sign, builder.full(1, element, shape))
    return builder.op("xor", bits, flips)  # type: ignore[no-any-return]


@lowering("select")
def select(context: Context, op: SourceOp) -> Value:
    predicate, *choices = context.operands(op)
    a, b = context.same_shape(op, choices)
    predicate = _like(context, op, predicate, a)
    return context.builder.op("select", predicate, a, b)  # type: ignore[no-any-return]


@lowering("clamp")
def clamp(context: Context, op: SourceOp) -> Value:
    low, x, high = context.operands(op)
    low, high = _like(context, op, low, x), _like(context, op, high, x)
    if _element(x).is_boolean:
        return context.builder.value("and", context.builder.value("or", low, x), high)
    return context.builder.op("clamp", low, x, high)  # type: ignore[no-any-return]


def _like(context: Context, op: SourceOp, scalar: Value, x: Value) -> Value:
    """An operand that may have rank 0 in the shape of x."""
    if not isinstance(x.type, type(scalar.type)) or not hasattr(x.type, "shape"):
        return scalar
    if tensor_type(scalar).rank == 0:
        return context.builder.broadcast_to(scalar, tensor_type(x).shape)
    return context.same_shape(op, (x, scalar))[1]


@lowering("convert")
def convert(context: Context, op: SourceOp) -> Value:
    x, wanted = context.operand(op, 0), _result_dtype(op)
    return x if _element(x) is wanted else context.builder.op("convert", x, dtype=wanted)


@lowering("real", "imag")
def part(context: Context, op: SourceOp) -> Value:
    """Of a real number: itself, and 0."""
    x = context.operand(op, 0)
    if op.name == "real":
        return x
    return context.builder.full(0, _element(x), getattr(x.type, "shape", ()))


@lowering("batch_norm_inference")
def batch_norm_inference(context: Context, op: SourceOp) -> Value:
    """scale * (x - mean) / sqrt(variance + epsilon) + offset, each along the feature axis."""
    x, *per_feature = context.operands(op)
    builder, axis, shape = context.builder, op.attributes["feature_index"], tensor_type(x).shape
    per_feature = [context.agree(op, each, (shape[axis],)) for each in per_feature]
    scale, offset, mean, variance = per_feature
    epsilon = builder.full(op.attributes["epsilon"], _element(x), tensor_type(variance).shape)
    deviation = builder.op("sqrt", builder.op("add", variance, epsilon))
    scale, offset, mean, deviation = (
        builder.op("broadcast", each, shape=shape, dimensions=(axis,))
        for each in (scale, offset, mean, deviation)
    )
    normal = builder.op("div", builder.op("sub", x, mean), deviation)
    return builder.op("add", builder.op("mul", scale, normal), offset)  # type: ignore[no-any-return]


def _element(x: Value) -> DType:
    """The element type of a tensor, or of a scalar in the region of a sort."""
    return x.dtype


def _result_dtype(op: SourceOp) -> DType:
    type = op.results[0].tensor
    return dtype(type.element)

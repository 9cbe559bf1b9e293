"""Arithmetic, comparisons and conversions, element by element."""

from __future__ import annotations

from ingot.compiler.frontends.division import floor_divide, floor_remainder
from ingot.compiler.frontends.emitter import shape_of, type_of
from ingot.compiler.frontends.tflite.lowering import Context, lowering
from ingot.compiler.frontends.tflite.quantized import dequantize
from ingot.compiler.ir import Value

__all__ = ["COMPARISONS"]

COMPARISONS = ("eq", "ne", "ge", "gt", "le", "lt")
"""The directions of STABLEHLO_COMPARE by their numbers."""

_UNARY = {
    "abs": "ABS STABLEHLO_ABS",
    "cbrt": "STABLEHLO_CBRT",
    "ceil": "CEIL",
    "cos": "COS STABLEHLO_COSINE",
    "exp": "EXP STABLEHLO_EXPONENTIAL",
    "floor": "FLOOR STABLEHLO_FLOOR",
    "log": "LOG STABLEHLO_LOG",
    "logistic": "LOGISTIC STABLEHLO_LOGISTIC",
    "neg": "NEG STABLEHLO_NEGATE",
    "not": "LOGICAL_NOT",
    "round_even": "ROUND",
    "rsqrt": "RSQRT STABLEHLO_RSQRT",
    "sign": "SIGN",
    "sin": "SIN",
    "sqrt": "SQRT",
    "tanh": "TANH STABLEHLO_TANH",
}
_BINARY = {
    "add": "ADD STABLEHLO_ADD",
    "and": "LOGICAL_AND STABLEHLO_AND",
    "atan2": "ATAN2",
    "div": "DIV STABLEHLO_DIVIDE",
    "max": "MAXIMUM STABLEHLO_MAXIMUM",
    "min": "MINIMUM STABLEHLO_MINIMUM",
    "mul": "MUL STABLEHLO_MULTIPLY",
    "or": "LOGICAL_OR STABLEHLO_OR",
    "pow": "POW STABLEHLO_POWER",
    "rem": "STABLEHLO_REMAINDER",
    "shift_left": "STABLEHLO_SHIFT_LEFT",
    "sub": "SUB STABLEHLO_SUBTRACT",
    "xor": "BITWISE_XOR",
}
_COMPARED = {
    "eq": "EQUAL",
    "ne": "NOT_EQUAL",
    "lt": "LESS",
    "le": "LESS_EQUAL",
    "gt": "GREATER",
    "ge": "GREATER_EQUAL",
}


def _register_unary(op: str, names: str) -> None:
    lowering(*names.split())(lambda c, x: c.op(op, x))


def _register_binary(op: str, names: str) -> None:
    lowering(*names.split())(lambda c, a, b: c.op(op, *c.broadcast(a, b)))


def _register_compared(direction: str, name: str) -> None:
    lowering(name)(lambda c, a, b: c.compare(direction, *c.broadcast(a, b)))


for _op, _names in _UNARY.items():
    _register_unary(_op, _names)
for _op, _names in _BINARY.items():
    _register_binary(_op, _names)
for _op, _names in _COMPARED.items():
    _register_compared(_op, _names)


@lowering("STABLEHLO_COMPARE")
def compare(c: Context, a: Value, b: Value) -> Value:
    return c.compare(COMPARISONS[c.options.comparison_direction], *c.broadcast(a, b))


@lowering("STABLEHLO_CLAMP")
def clamp(c: Context, low: Value, x: Value, high: Value) -> Value:
    return c.op("clamp", c.broadcast_to(low, shape_of(x)), x, c.broadcast_to(high, shape_of(x)))


@lowering("SQUARE")
def square(c: Context, x: Value) -> Value:
    return c.op("mul", x, x)


@lowering("SQUARED_DIFFERENCE")
def squared_difference(c: Context, a: Value, b: Value) -> Value:
    return square(c, c.op("sub", *c.broadcast(a, b)))


@lowering("ADD_N")
def add_n(c: Context, first: Value, *others: Value) -> Value:
    for each in others:
        first = c.op("add", first, each)
    return first


@lowering("FLOOR_DIV")
def floor_div(c: Context, a: Value, b: Value) -> Value:
    a, b = c.broadcast(a, b)
    if type_of(a).dtype.is_float:
        return c.op("floor", c.op("div", a, b))
    return floor_divide(c, a, b)


@lowering("FLOOR_MOD")
def floor_mod(c: Context, a: Value, b: Value) -> Value:
    return floor_remainder(c, *c.broadcast(a, b))


@lowering("RIGHT_SHIFT")
def right_shift(c: Context, a: Value, b: Value) -> Value:
    """LiteRT shifts by at most all bits but one."""
    a, b = c.broadcast(a, b)
    element = type_of(a).dtype
    kind = "shift_right_arithmetic" if element.kind == "i" else "shift_right_logical"
    amount = c.op("clamp", 0, b, element.bits - 1)
    return c.op(kind, a, amount)


@lowering("SELECT", "SELECT_V2", "STABLEHLO_SELECT")
def select(c: Context, condition: Value, a: Value, b: Value) -> Value:
    if c.operator.name == "SELECT" and type_of(condition).rank == 1 < type_of(a).rank:
        ones = [1] * (type_of(a).rank - 1)  # it chooses rows
        condition = c.reshape(condition, (*shape_of(condition), *ones))
    return c.op("select", *c.broadcast(condition, a, b))


@lowering("CAST", "STABLEHLO_CONVERT", raw=True)
def cast(c: Context, x: Value) -> Value:
    return c.convert(x, c.outputs[0].dtype)


@lowering("BITCAST", raw=True)
def bitcast(c: Context, x: Value) -> Value:
    target = c.outputs[0].dtype
    if target.bits == type_of(x).dtype.bits:
        return c.op("bitcast", x, dtype=target)
    return c.op("reinterpret", x, dtype=target)


@lowering("QUANTIZE")
def quantize(c: Context, x: Value) -> Value:
    is_wide = type_of(x).dtype.bits > 16 and not type_of(x).dtype.is_float
    return c.number(0, x) if is_wide else c.convert(x, "f32")


@lowering("DEQUANTIZE", raw=True)
def dequantize_one(c: Context, x: Value) -> Value:
    tensor = c.inputs[0]
    q = None if tensor is None else tensor.quantization
    if q is None:
        return c.convert(x, c.outputs[0].dtype)
    return c.convert(dequantize(c, x, q), c.outputs[0].dtype)


@lowering("ZEROS_LIKE")
def zeros_like(c: Context, x: Value) -> Value:
    return c.fill(0, like=x)


@lowering("BUCKETIZE")
def bucketize(c: Context, x: Value) -> Value:
    """How many boundaries are not above each element."""
    limits = c.constant(c.options.boundaries, "f32")
    shape = (*shape_of(x), len(c.options.boundaries))
    axis = len(shape) - 1
    wide = c.op("broadcast", c.convert(x, "f32"), shape=shape, dimensions=tuple(range(axis)))
    reached = c.compare("ge", wide, c.broadcast_to(limits, shape))
    return c.reduce(c.convert(reached, "i32"), [axis], "add")

"""Unary, binary and logic ops, conversions and selections. Operands broadcast by NumPy's rules."""

from __future__ import annotations

import math
from collections.abc import Callable

from ml_dtypes import finfo  # onnx depends on it
from onnx import TensorProto

from ingot.compiler.frontends.division import floor_remainder
from ingot.compiler.frontends.normalizing import narrow, widen
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, type_of, unsupported
from ingot.compiler.frontends.onnx.numerals import write_numbers
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.frontends.onnx.structures import Structure
from ingot.compiler.frontends.onnx.tensors import dtype_of, element_type_name
from ingot.compiler.ir import Value
from ingot.hal.spec import DType, dtype

__all__ = ["narrow", "widen"]

_UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseNot": "not",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "is_nan",
    "Log": "log",
    "Neg": "neg",
    "Not": "not",
    "Round": "round_even",
    "Sigmoid": "logistic",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
_BINARY = {
    "Add": "add",
    "And": "and",
    "BitwiseAnd": "and",
    "BitwiseOr": "or",
    "BitwiseXor": "xor",
    "Div": "div",
    "Mul": "mul",
    "Or": "or",
    "Sub": "sub",
    "Xor": "xor",
}
_VARIADIC = {"Max": "max", "Min": "min", "Sum": "add"}
_COMPARISONS = {
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
}


def _register_tables() -> None:
    """One lowering for each op that is one graph op."""
    for op_type, name in _UNARY.items():
        lowering(op_type)(_unary(name))
    for op_type, name in _BINARY.items():
        lowering(op_type)(_binary(name))
    for op_type, name in _VARIADIC.items():
        lowering(op_type)(_variadic(name))
    for op_type, direction in _COMPARISONS.items():
        lowering(op_type)(_comparison(direction))


def _unary(name: str) -> Callable[[Node], Value]:
    return lambda node: node.op(name, node.input(0))


def _binary(name: str) -> Callable[[Node], Value]:
    return lambda node: node.op(name, *node.broadcast(node.input(0), node.input(1)))


def _variadic(name: str) -> Callable[[Node], Value]:
    def lower(node: Node) -> Value:
        first, *rest = node.broadcast(*node.present())
        for value in rest:
            first = node.op(name, first, value)
        return first

    return lower


def _comparison(direction: str) -> Callable[[Node], Value]:
    def lower(node: Node) -> Value:
        return node.compare(direction, *node.broadcast(node.input(0), node.input(1)))

    return lower


_register_tables()


@lowering("Mean")
def mean(node: Node) -> Value:
    values = [widen(node, value) for value in node.broadcast(*node.present())]
    total = values[0]
    for value in values[1:]:
        total = node.op("add", total, value)
    result = node.op("div", total, len(values))
    return narrow(node, result, node.input(0))


@lowering("Reciprocal")
def reciprocal(node: Node) -> Value:
    x = node.input(0)
    return node.op("div", 1, x)


@lowering("Pow")
def power(node: Node) -> Value:
    """The exponent may have another dtype; the result has that of the base."""
    base, exponent = node.broadcast(node.input(0), node.input(1))
    known = node.known_number(1)
    if known == 2:
        return node.op("mul", base, base)
    if known == 0.5 and type_of(base).dtype.is_float:
        root = node.op("sqrt", node.op("add", base, 0))
        infinity = node.fill(math.inf, like=base)
        # pow(-inf, 0.5) is inf, sqrt(-inf) is not a number
        minus = node.compare("eq", base, -math.inf)
        return node.op("select", minus, infinity, root)
    element = type_of(base).dtype
    if type_of(exponent).dtype.is_float and not element.is_float:
        wide = node.op("pow", node.convert(base, "f64"), node.convert(exponent, "f64"))
        return node.convert(_whole_if_near(node, wide), element)
    return node.op("pow", base, node.convert(exponent, element))


def _whole_if_near(node: Node, x: Value) -> Value:
    """x, or the whole number that it misses by a rounding error: 9 ** 3.0 is 729, not 728."""
    whole = node.op("round_even", x)
    error = node.op("abs", node.op("sub", x, whole))
    allowed = node.op("mul", node.op("abs", x), 2.0**-49)
    return node.op("select", node.compare("le", error, allowed), whole, x)


@lowering("Mod")
def modulus(node: Node) -> Value:
    """The remainder with the sign of the dividend if fmod=1, else with that of the divisor."""
    a, b = node.broadcast(node.input(0), node.input(1))
    return node.op("rem", a, b) if node.integer("fmod", 0) else floor_remainder(node, a, b)


@lowering("BitShift")
def bit_shift(node: Node) -> Value:
    """A right shift of a signed integer keeps its sign."""
    kind = "arithmetic" if type_of(node.input(0)).dtype.kind == "i" else "logical"
    left = node.text("direction", "") == "LEFT"
    name = "shift_left" if left else f"shift_right_{kind}"
    return node.op(name, *node.broadcast(node.input(0), node.input(1)))


@lowering("IsInf")
def is_infinite(node: Node) -> Value:
    x = node.input(0)
    result = node.op("is_inf", x)
    zero = node.fill(0, like=x)
    if not node.integer("detect_negative", 1):
        result = node.op("and", result, node.compare("gt", x, zero))
    if not node.integer("detect_positive", 1):
        result = node.op("and", result, node.compare("lt", x, zero))
    return result


@lowering("Where")
def where(node: Node) -> Value:
    return node.op("select", *node.broadcast(node.input(0), node.input(1), node.input(2)))


@lowering("Clip")
def clip(node: Node) -> Value:
    """min and max are inputs since opset 11, attributes before; either may be left out."""
    x = node.input(0)
    element = type_of(x).dtype
    low, high = node.optional(1), node.optional(2)
    if low is None and node.has("min"):
        low = node.constant(node.number("min", 0), element)
    if high is None and node.has("max"):
        high = node.constant(node.number("max", 0), element)
    if low is not None:
        x = node.op("max", *node.broadcast(x, node.reshape(low, ())))
    if high is not None:
        x = node.op("min", *node.broadcast(x, node.reshape(high, ())))
    return x


@lowering("Cast")
def cast(node: Node) -> Structure:
    if node.integer("to", 0) == TensorProto.STRING:
        return write_numbers(node, node.input(0))
    target = dtype_of(node.integer("to", 0))
    if target is None:
        name = element_type_name(node.integer("to", 0))
        raise UnsupportedNode(f"casts to {name}, which has no counterpart: use a numeric type")
    return _cast(node, node.input(0), target)


@lowering("CastLike")
def cast_like(node: Node) -> Value:
    return _cast(node, node.input(0), type_of(node.input(1)).dtype)


def _cast(node: Node, x: Value, target: DType) -> Value:
    """Casts to 8-bit floats saturate unless the attribute says otherwise; 4-bit integers wrap."""
    if target.name == "f8e8m0fnu":
        return _cast_to_power_of_two(node, x, target)
    if target.is_integer and target.bits < 8:
        x = node.convert(x, "i32")
    if target.name.startswith("f8") and node.integer("saturate", 1):
        if not type_of(x).dtype.is_float or type_of(x).dtype.bits < 16:
            x = node.convert(x, "f32")  # which holds the greatest one
        greatest = float(finfo(target.numpy).max)
        low, high = (node.fill(bound, like=x) for bound in (-greatest, greatest))
        x = node.op("clamp", low, x, high)
    return node.convert(x, target)


def _cast_to_power_of_two(node: Node, x: Value, target: DType) -> Value:
    """The exponent of x alone, rounded up unless `round_mode` says otherwise; no sign, no 0."""
    mode = node.text("round_mode", "up")
    carries = {"down": 0, "nearest": 1 << 22, "up": (1 << 23) - 1}
    if mode not in carries:
        raise UnsupportedNode(f"round_mode '{mode}' is not known")
    bits = node.op("bitcast", node.convert(x, "f32"), dtype=dtype("u32"))
    magnitude = node.op("and", bits, 0x7FFFFFFF)
    moved = node.op("add", magnitude, carries[mode])
    exponent = node.op("shift_right_logical", moved, 23)
    exponent = node.op("min", exponent, 254)
    if not node.integer("saturate", 1):
        beyond = node.compare("ge", moved, 0x7F800000)
        exponent = node.op("select", beyond, 255, exponent)
    no_number = node.compare("gt", magnitude, 0x7F800000)
    exponent = node.op("select", no_number, 255, exponent)
    return node.op("bitcast", node.convert(exponent, "u8"), dtype=target)


@lowering("Identity")
def identity(node: Node) -> Structure:
    return node.given(0)


@lowering("BitCast", since=26)
def bit_cast(node: Node) -> Value:
    """The same bits as another dtype of the same width; i1 is a byte of 0 or 1."""
    x, code = node.input(0), node.integer("to", 0)
    target = dtype_of(code)
    own = type_of(x).dtype
    if target is None:
        raise UnsupportedNode(
            f"casts to {element_type_name(code)}, which has no counterpart: use a numeric type"
        )
    if own is target:
        return x
    if own.is_boolean and target.bits == 8:
        byte = node.convert(x, "u8")
        return byte if target.name == "u8" else node.op("bitcast", byte, dtype=target)
    unsupported(
        own.bits != target.bits or target.is_boolean or own.is_boolean,
        f"casts the bits of {own.name} to {target.name}: the widths must be equal",
    )
    return node.op("bitcast", x, dtype=target)

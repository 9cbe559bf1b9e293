"""Element-wise ops. Tensors and numbers promote as in torch: the program notes the dtype of each
result, and only comparisons have to find the one that they compute in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ingot.compiler.frontends import division
from ingot.compiler.frontends.binary_functions import next_after
from ingot.compiler.frontends.complex_numbers import Complex, absolute
from ingot.compiler.frontends.emitter import UnsupportedNode, type_of
from ingot.compiler.frontends.matrices import Array, Scope
from ingot.compiler.frontends.torch.lowering import Context, Scalar, lowering
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Expr
from ingot.hal.spec import DType, dtype

__all__ = ["at_least_single", "computed", "promoted", "together"]

_UNARY = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp",
    "exp2", "expm1", "floor", "log", "log1p", "neg", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh",
    "trunc",
)  # fmt: skip
_OTHER_UNARY = {
    "bitwise_not": "not",
    "isinf": "is_inf",
    "isnan": "is_nan",
    "round": "round_even",
    "sigmoid": "logistic",
    "sign": "sign",
    "sgn": "sign",
    "fix": "trunc",
    "arctan": "atan",
}
_WHOLE = ("ceil", "floor", "round", "trunc", "fix")  # of integers they are these
_COMPARISONS = {
    "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "not_equal": "ne",
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge",
}  # fmt: skip
_KINDS = "buifc"


def promoted(*operands: Scalar) -> DType:
    """The dtype in which torch computes with these: tensors of rank 0 and numbers only count
    where they are of a higher kind (boolean, integer, float) than the tensors."""
    groups: list[list[DType]] = [[], [], []]
    for each in operands:
        if isinstance(each, Value):
            groups[0 if type_of(each).rank else 1].append(type_of(each).dtype)
        elif isinstance(each, bool):
            groups[2].append(dtype("i1"))
        else:
            groups[2].append(dtype("i64" if isinstance(each, (int, Expr)) else "f32"))
    result: DType | None = None
    for group in groups:
        for found in group[:1]:
            highest = found
            for other in group[1:]:
                highest = _joined(highest, other)
            if result is None or _rank(highest) > _rank(result):
                result = highest
    assert result is not None
    return result


def _rank(element: DType) -> int:
    return {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}[element.kind]


def _joined(a: DType, b: DType) -> DType:
    """The dtype that holds both."""
    if a is b:
        return a
    if _rank(a) != _rank(b):
        return a if _rank(a) > _rank(b) else b
    if a.is_float:
        if a.bits == b.bits:  # f16 and bf16
            return dtype("f32")
        return a if a.bits > b.bits else b
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    return signed if signed.bits > unsigned.bits else dtype(f"i{min(2 * unsigned.bits, 64)}")


def computed(c: Context, *operands: Scalar) -> DType:
    """What the result of a node is computed in: floats of 16 bits in f32 where a number, which is
    not rounded to 16 bits, takes part."""
    is_half = c.dtype.is_float and c.dtype.bits < 32
    numbers = any(not isinstance(each, Value) for each in operands)
    return dtype("f32") if is_half and numbers else c.dtype


def together(c: Context, element: DType, *operands: Scalar) -> list[Value]:
    """The operands in one dtype and shape."""
    return c.broadcast(*(c.scalar(each, element) for each in operands))


def _binary(name: str) -> Callable[..., Value]:
    def lower(c: Context, a: Scalar, b: Scalar, *, alpha: Any = 1) -> Value:
        element = computed(c, a, b)
        if alpha != 1:
            (b,) = together(c, element, b)
            b = c.op("mul", b, c.filled(alpha, element, type_of(b).shape))
        if element.is_boolean:
            logical = {"add": "or", "mul": "and", "max": "or", "min": "and"}.get(name, name)
            return c.op(logical, *together(c, element, a, b))
        return c.op(name, *together(c, element, a, b))

    return lower


def _number_of_two(name: str) -> Callable[..., Value]:
    """The greater or the lesser one, of a NaN and a number the number."""

    def lower(c: Context, a: Scalar, b: Scalar) -> Value:
        made = _binary(name)(c, a, b)
        if not c.dtype.is_float:
            return made
        a, b = together(c, c.dtype, a, b)
        made = c.op("select", c.op("is_nan", b), a, made)
        return c.op("select", c.op("is_nan", a), b, made)

    return lower


def _unary(op: str, name: str) -> Callable[..., Value]:
    def lower(c: Context, x: Value) -> Value:
        element = type_of(x).dtype
        if op in _WHOLE and not element.is_float:
            return x
        if name in ("is_inf", "is_nan"):
            return c.op(name, x) if element.is_float else c.filled(False, "i1", type_of(x).shape)
        if element.is_boolean and name in ("abs", "sign"):
            return x
        return c.op(name, x if element is c.dtype else c.convert(x, c.dtype))

    return lower


def _comparison(direction: str) -> Callable[..., Value]:
    def lower(c: Context, a: Scalar, b: Scalar) -> Value:
        element = promoted(a, b)
        if element.is_float and element.bits < 32:
            element = dtype("f32")
        return c.compare(direction, *together(c, element, a, b))

    return lower


def _logical(name: str) -> Callable[..., Value]:
    return lambda c, a, b: c.op(name, *together(c, dtype("i1"), a, b))


def _register() -> None:
    for name in _UNARY:
        lowering(f"aten.{name}.default")(_unary(name, name))
    for op, name in _OTHER_UNARY.items():
        lowering(f"aten.{op}.default")(_unary(op, name))
    for op, name in {"add": "add", "sub": "sub", "mul": "mul", "subtract": "sub",
                     "multiply": "mul"}.items():  # fmt: skip
        lowering(f"aten.{op}.Tensor", f"aten.{op}.Scalar")(_binary(name))
    for op, name in {"maximum": "max", "minimum": "min", "atan2": "atan2",
                     "logical_xor": "xor"}.items():  # fmt: skip
        if op != "logical_xor":
            lowering(f"aten.{op}.default")(_binary(name))
    for op, direction in _COMPARISONS.items():
        lowering(f"aten.{op}.Tensor", f"aten.{op}.Scalar")(_comparison(direction))
    for name in ("and", "or", "xor"):
        lowering(f"aten.logical_{name}.default")(_logical(name))
        kinds = ("Tensor", "Scalar")
        names = [f"aten.bitwise_{name}.{kind}" for kind in kinds]
        names += [f"aten.__{name}__.{kind}" for kind in kinds]
        lowering(*names)(_binary(name))


_register()
lowering("aten.max.other")(_binary("max"))
lowering("aten.fmax.default")(_number_of_two("max"))
lowering("aten.fmin.default")(_number_of_two("min"))
lowering("aten.min.other")(_binary("min"))


@lowering("aten.rsub.Scalar", "aten.rsub.Tensor")
def reverse_subtract(c: Context, a: Value, b: Scalar, alpha: Any = 1) -> Value:
    element = computed(c, a, b)
    left, right = together(c, element, a, b)
    return c.op("sub", right, c.op("mul", left, alpha))


@lowering("aten.logical_not.default")
def logical_not(c: Context, x: Value) -> Value:
    return c.op("not", c.convert(x, "i1"))


@lowering("aten.reciprocal.default")
def reciprocal(c: Context, x: Value) -> Value:
    x = c.convert(x, c.dtype)
    return c.op("div", 1, x)


@lowering("aten.square.default")
def square(c: Context, x: Value) -> Value:
    x = c.convert(x, c.dtype)
    return c.op("mul", x, x)


@lowering("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", "aten.divide.Tensor")
def divide(c: Context, a: Scalar, b: Scalar) -> Value:
    return c.op("div", *together(c, computed(c, a, b), a, b))


@lowering("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def divide_by_mode(c: Context, a: Scalar, b: Scalar, *, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return divide(c, a, b)
    if rounding_mode == "floor":
        return floor_divide(c, a, b)
    quotient = c.op("div", *together(c, computed(c, a, b), a, b))
    return c.op("trunc", quotient) if type_of(quotient).dtype.is_float else quotient


@lowering("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(c: Context, a: Scalar, b: Scalar) -> Value:
    return division.floor_divide(c, *together(c, computed(c, a, b), a, b))


@lowering("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(c: Context, a: Scalar, b: Scalar) -> Value:
    return division.floor_remainder(c, *together(c, computed(c, a, b), a, b))


@lowering("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(c: Context, a: Scalar, b: Scalar) -> Value:
    return c.op("rem", *together(c, computed(c, a, b), a, b))


@lowering("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def power(c: Context, a: Scalar, b: Scalar) -> Value:
    element = computed(c, a, b)
    if isinstance(a, Value) and not isinstance(b, Value) and element.is_float:
        x = c.convert(a, element)
        if b == 2:
            return c.op("mul", x, x)
        if b == 3:
            return c.op("mul", c.op("mul", x, x), x)
        if b == 1:
            return x
        if b == -1:
            return c.op("div", 1, x)
        if b == 0.5:
            return c.op("sqrt", x)
        if b == -0.5:
            return c.op("rsqrt", x)
    return c.op("pow", *together(c, element, a, b))


@lowering("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf",
          "aten.where.Scalar")  # fmt: skip
def where(c: Context, condition: Value, a: Scalar, b: Scalar) -> Value:
    chosen = c.convert(condition, "i1")
    return c.op("select", *c.broadcast(chosen, c.scalar(a, c.dtype), c.scalar(b, c.dtype)))


@lowering("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(c: Context, x: Value, mask: Value, value: Scalar) -> Value:
    filling = c.scalar(value, type_of(x).dtype)
    if type_of(filling).rank:
        filling = c.reshape(filling, ())
    return c.op("select", *c.broadcast(c.convert(mask, "i1"), filling, x))


@lowering("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default", "aten.clip.Tensor")
def clamp(c: Context, x: Value, min: Scalar | None = None, max: Scalar | None = None) -> Value:
    x = c.convert(x, c.dtype)
    if min is not None:
        x = c.op("max", *c.broadcast(x, c.scalar(min, c.dtype)))
    return x if max is None else c.op("min", *c.broadcast(x, c.scalar(max, c.dtype)))


@lowering("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(c: Context, x: Value, min: Scalar) -> Value:
    return clamp(c, x, min, None)


@lowering("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(c: Context, x: Value, max: Scalar) -> Value:
    return clamp(c, x, None, max)


@lowering("aten.isfinite.default")
def is_finite(c: Context, x: Value) -> Value:
    if type_of(x).dtype.is_float:
        return c.op("is_finite", x)
    return c.filled(True, "i1", type_of(x).shape)


@lowering("aten.lerp.Scalar", "aten.lerp.Tensor")
def lerp(c: Context, a: Value, b: Value, weight: Scalar) -> Value:
    left, right, ratio = together(c, computed(c, a, b, weight), a, b, weight)
    return c.op("add", left, c.op("mul", ratio, c.op("sub", right, left)))


@lowering("aten.addcmul.default")
def add_product(c: Context, x: Value, a: Value, b: Value, *, value: Any = 1) -> Value:
    total, left, right, factor = together(c, computed(c, x, value), x, a, b, value)
    return c.op("add", total, c.op("mul", factor, c.op("mul", left, right)))


@lowering("aten.addcdiv.default")
def add_quotient(c: Context, x: Value, a: Value, b: Value, *, value: Any = 1) -> Value:
    total, left, right, factor = together(c, computed(c, x, value), x, a, b, value)
    return c.op("add", total, c.op("mul", factor, c.op("div", left, right)))


@lowering("aten.copysign.Tensor", "aten.copysign.Scalar")
def copy_sign(c: Context, a: Scalar, b: Scalar) -> Value:
    """The size of a with the sign of b, also of a zero."""
    size, sign = together(c, c.dtype, a, b)
    bits = c.op("bitcast", sign, dtype=dtype(f"i{c.dtype.bits}"))
    negative = c.compare("lt", bits, 0)
    size = c.op("abs", size)
    return c.op("select", negative, c.op("neg", size), size)


@lowering("aten.hypot.default")
def hypotenuse(c: Context, a: Value, b: Value) -> Value:
    """The root of the sum of squares, none of which overflows."""
    left, right = together(c, at_least_single(c.dtype), a, b)
    return c.convert(absolute(Complex(c.builder), (left, right)), c.dtype)


@lowering("aten.signbit.default")
def has_sign(c: Context, x: Value) -> Value:
    """Whether it is below zero, or a zero with a sign."""
    if type_of(x).dtype.is_boolean:
        return c.filled(False, "i1", type_of(x).shape)
    if type_of(x).dtype.is_float:
        x = c.op("bitcast", x, dtype=dtype(f"i{type_of(x).dtype.bits}"))
    return c.compare("lt", x, 0)


@lowering("aten.nextafter.default")
def neighbour(c: Context, a: Value, b: Value) -> Value:
    return next_after(c, *together(c, c.dtype, a, b))


@lowering("aten.frexp.Tensor")
def take_exponent(c: Context, x: Value) -> list[Value]:
    """From 1/2 to below 1, and the power of 2 that it is times."""
    half = type_of(x).dtype
    x = c.convert(x, at_least_single(half))
    bits, fraction = (32, 23) if type_of(x).dtype.bits == 32 else (64, 52)
    whole, most = dtype(f"i{bits}"), (1 << (bits - 1 - fraction)) - 1
    scale = float(1 << (fraction + 1))
    is_small = c.compare("lt", c.op("abs", x), 2.0 ** -((most >> 1) - 1))
    wide = c.op("select", is_small, c.op("mul", x, scale), x)
    word = c.op("bitcast", wide, dtype=whole)
    exponent = c.op("shift_right_logical", word, fraction)
    exponent = c.op("and", exponent, most)
    kept = c.op("and", word, ~(most << fraction))
    middle = (most >> 1) - 1
    found = c.op("bitcast", c.op("or", kept, middle << fraction), dtype=type_of(x).dtype)
    moved = c.op("select", is_small, c.fill(fraction + 1, like=word), c.fill(0, like=word))
    power = c.op("sub", c.op("sub", exponent, middle), moved)
    stays = c.op("or", c.compare("eq", x, 0), c.op("not", c.op("is_finite", x)))
    power = c.op("select", stays, 0, power)
    return [c.convert(c.op("select", stays, x, found), half), c.convert(power, "i32")]


def at_least_single(element: DType) -> DType:
    return element if element.bits >= 32 else dtype("f32")


@lowering("aten.gcd.default")
def greatest_divisor(c: Context, a: Value, b: Value) -> Value:
    """By Euclid's algorithm, of all pairs until none has a rest."""
    scope = Scope(c.builder)

    def goes_on(a: Array, b: Array) -> Array:
        left = ~b.equals(0)
        for _ in b.shape:
            left = left.reduce("or", 0)
        return left

    def step(a: Array, b: Array) -> list[Array]:
        none = b.equals(0)
        rest = a.each("rem", scope.where(none, 1, b).value)
        return [scope.where(none, a, b), scope.where(none, 0, rest)]

    pair = [scope.real(each) for each in together(c, c.dtype, a, b)]
    found = scope.repeat(pair, goes_on, step)[0]
    return (found.abs() if c.dtype.kind == "i" else found).value


@lowering("aten.lcm.default")
def least_multiple(c: Context, a: Value, b: Value) -> Value:
    divisor = greatest_divisor(c, a, b)
    a, b = together(c, c.dtype, a, b)
    none = c.compare("eq", divisor, 0)
    found = c.op("mul", c.op("div", a, c.op("select", none, 1, divisor)), b)
    return c.op("abs", found) if c.dtype.kind == "i" else found


@lowering("aten.round.decimals")
def round_decimals(c: Context, x: Value, *, decimals: int = 0) -> Value:
    """To that many decimal places, halves to even."""
    if not type_of(x).dtype.is_float or decimals == 0:
        return c.op("round_even", x) if type_of(x).dtype.is_float else x
    factor = c.fill(float(10 ** abs(decimals)), like=x)
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    return c.op(back, c.op("round_even", c.op(there, x, factor)), factor)


@lowering("aten.ldexp.Tensor")
def load_exponent(c: Context, a: Value, b: Value) -> Value:
    """a times 2 to the power b."""
    size, exponent = together(c, computed(c, a, b), a, b)
    return c.op("mul", size, c.op("exp2", exponent))


@lowering("aten.log2.default")
def log2(c: Context, x: Value) -> Value:
    x = c.op("log", _wide(c, x))
    return c.op("div", x, math.log(2))


@lowering("aten.log10.default")
def log10(c: Context, x: Value) -> Value:
    x = c.op("log", _wide(c, x))
    return c.op("div", x, math.log(10))


def _wide(c: Context, x: Value) -> Value:
    return c.convert(x, "f64" if c.dtype.bits == 64 else "f32")


@lowering("aten.bitwise_left_shift.Tensor", "aten.bitwise_left_shift.Tensor_Scalar",
          "aten.__lshift__.Scalar", "aten.__lshift__.Tensor")  # fmt: skip
def shift_left(c: Context, a: Scalar, b: Scalar) -> Value:
    return c.op("shift_left", *together(c, c.dtype, a, b))


@lowering("aten.bitwise_right_shift.Tensor", "aten.bitwise_right_shift.Tensor_Scalar",
          "aten.__rshift__.Scalar", "aten.__rshift__.Tensor")  # fmt: skip
def shift_right(c: Context, a: Scalar, b: Scalar) -> Value:
    kind = "logical" if c.dtype.kind == "u" else "arithmetic"
    return c.op(f"shift_right_{kind}", *together(c, c.dtype, a, b))


@lowering("aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device",
          "aten.type_as.default", "aten.to.other",
          "prims.convert_element_type.default")  # fmt: skip
def convert(c: Context, x: Scalar, *_: Any, **__: Any) -> Value:
    """The dtype is that of the result; devices and layouts are nothing here. A number is one that
    torch took for a tensor."""
    if not isinstance(x, Value):
        return c.scalar(x, c.dtype)
    if type_of(x).dtype.is_float and c.dtype.is_integer and c.dtype.bits < 32:
        x = c.convert(x, "i64")
    return c.convert(x, c.dtype)


@lowering("aten.view.dtype")
def bit_cast(c: Context, x: Value, element: DType) -> Value:
    if type_of(x).dtype is element:
        return x
    if type_of(x).dtype.bits != element.bits or "b" in (type_of(x).dtype.kind, element.kind):
        raise UnsupportedNode("it reads the bits of a dtype as one of another width")
    return c.op("bitcast", x, dtype=element)

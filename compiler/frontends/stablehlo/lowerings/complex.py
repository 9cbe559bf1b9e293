"""Lowerings of ops on complex numbers, which are kept as their real and imaginary parts.

What only moves elements, or adds them, is lowered once for each part, as the op on real
numbers that it would be. Arguments, results, and what loops and branches carry are complex
tensors: `Context.value` and `Context.complex_parts` go from one form to the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from ingot.compiler.frontends.complex_numbers import (
    BINARY,
    UNARY,
    Complex,
    Parts,
    absolute,
    ordered,
)
from ingot.compiler.frontends.emitter import Emitter
from ingot.compiler.frontends.fourier import Pair, over_axes, to_real
from ingot.compiler.frontends.stablehlo import bodies
from ingot.compiler.frontends.stablehlo.lowering import LOWERINGS, Context, Lowered, ints
from ingot.compiler.frontends.stablehlo.lowerings.rare import COLLECTIVES
from ingot.compiler.frontends.stablehlo.reading.program import (
    SourceOp,
    SourceProgram,
    SourceType,
    SourceValue,
    TensorType,
)
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__ = ["complex_problem", "is_complex", "lower_complex"]

_REAL = {"c64": "f32", "c128": "f64"}
_WHOLE = frozenset(
    {
        *("call", "case", "composite", "constant", "get_dimension_size", "get_tuple_element"),
        *("if", "optimization_barrier", "return", "sharding_constraint", "tuple"),
        *("unrealized_conversion_cast", "while"),
    }
)
"""Ops that take complex tensors as they are."""
_MOVES = frozenset(
    {
        *(*COLLECTIVES, "collective_permute"),
        *("broadcast", "broadcast_in_dim", "concatenate", "dynamic_broadcast_in_dim"),
        *("dynamic_gather", "dynamic_pad", "dynamic_reshape", "dynamic_slice"),
        *("dynamic_update_slice", "gather", "pad", "real_dynamic_slice", "reshape", "reverse"),
        *("select", "set_dimension_size", "slice", "torch_index_select", "transpose"),
        "unary_einsum",
    }
)
_SUMS = frozenset({"reduce", "reduce_window"})
_PAIRED = frozenset(
    {
        *("cholesky", "custom_call", "map", "scatter", "select_and_scatter", "sort"),
        "triangular_solve",
        *_SUMS,
    }
)
"""Ops whose lowerings take complex numbers as pairs."""
_PRODUCTS = frozenset({"convolution", "dot", "dot_general", "dynamic_conv", "einsum"})


def _is_complex_type(type: SourceType) -> bool:
    return isinstance(type, TensorType) and type.element in _REAL


def is_complex(op: SourceOp) -> bool:
    """Whether this file lowers the op."""
    values = (*op.operands, *op.results)
    return op.name not in _WHOLE and any(_is_complex_type(value.type) for value in values)


def complex_problem(op: SourceOp, program: SourceProgram) -> str | None:
    """Why an op on complex numbers cannot be lowered; None if it can."""
    name = op.full_name
    if name in (*_MOVES, *_PRODUCTS, *_PAIRED, *_TABLE, *UNARY, *BINARY):
        row = LOWERINGS.get(name)
        return row.check(op, program) if row is not None and row.check is not None else None
    return "complex numbers in it are not supported: compute with real and imaginary parts"


def lower_complex(context: Context, op: SourceOp) -> list[Lowered]:
    """What an op on complex numbers gives."""
    c, name = Complex(context.builder), op.full_name
    if name in _TABLE:
        return [_TABLE[name](context, op, c)]
    if name in UNARY:
        return [_lowered(UNARY[name](c, context.complex_parts(op, 0)))]
    if name in BINARY:
        return [_lowered(BINARY[name](c, *_operands(context, op)))]
    if name in _PRODUCTS:
        return [_product(context, op, c)]
    if name in _PAIRED and (name not in _SUMS or bodies.reduction_kinds(op) is None):
        made = LOWERINGS[name].lower(context, op)
        several = [made] if isinstance(made, (Value, Lowered)) else made
        return [Lowered(each) if isinstance(each, Value) else each for each in several]
    columns = [_part(context, op, [part] * len(op.operands)) for part in (0, 1)]
    return [
        _lowered((a, b)) if _is_complex_type(result.type) else Lowered(a)
        for result, a, b in zip(op.results, *columns, strict=True)
    ]


def _lowered(parts: Parts) -> Lowered:
    return Lowered(parts=parts)


def _operands(context: Context, op: SourceOp) -> list[Parts]:
    """The parts of all operands, in one shape."""
    parts = [context.complex_parts(op, place) for place in range(len(op.operands))]
    same = context.same_shape(op, [each for pair in parts for each in pair])
    return list(zip(same[::2], same[1::2], strict=True))


def _part(context: Context, op: SourceOp, picks: Sequence[int]) -> list[Value]:
    """The op on the real (0) or imaginary (1) part of each operand."""
    parts = [
        context.parts_of(context.values[operand])[pick] if _is_complex_type(operand.type) else None
        for operand, pick in zip(op.operands, picks, strict=True)
    ]
    return context.lower_as(op, parts, _real_type)


def _real_type(type: SourceType) -> SourceType:
    if isinstance(type, TensorType) and type.element in _REAL:
        return replace(type, element=_REAL[type.element])
    return type


def _product(context: Context, op: SourceOp, c: Complex) -> Lowered:
    """Products of parts, summed as those of numbers are."""
    both = all(_is_complex_type(value.type) for value in op.operands)
    if not both:
        (a,), (b,) = _part(context, op, [0, 0]), _part(context, op, [1, 1])
        return _lowered((a, b))
    parts = {(i, j): _part(context, op, [i, j])[0] for i in (0, 1) for j in (0, 1)}
    real = c.op("sub", parts[0, 0], parts[1, 1])
    return _lowered((real, c.op("add", parts[0, 1], parts[1, 0])))


def _complex(context: Context, op: SourceOp, c: Complex) -> Lowered:
    a, b = context.same_shape(op, context.operands(op))
    return _lowered((a, b))


def _convert(context: Context, op: SourceOp, c: Complex) -> Lowered:
    """Between complex dtypes by parts; a real number has no imaginary part."""
    result, builder = op.results[0].tensor, context.builder
    if _is_complex_type(op.operands[0].type):
        parts = context.complex_parts(op, 0)
    else:
        x = context.operand(op, 0)
        parts = (x, c.like(0, x))
    wanted = dtype(_REAL.get(result.element, result.element))

    def converted(x: Value) -> Value:
        same = c.dtype(x) is wanted
        return x if same else builder.value("convert", x, dtype=wanted)

    if not _is_complex_type(result):
        return Lowered(converted(parts[0]))  # also as a boolean: the imaginary part is ignored
    return _lowered((converted(parts[0]), converted(parts[1])))


def _differs(c: Complex, a: Parts, b: Parts) -> Value:
    return c.op("or", c.compare("ne", a[0], b[0]), c.compare("ne", a[1], b[1]))


def _compare(context: Context, op: SourceOp, c: Complex) -> Lowered:
    """Equality, and the order by real and then by imaginary parts."""
    a, b = _operands(context, op)
    direction = str(op.attributes["comparison_direction"]).lower()
    if direction in ("eq", "ne"):
        differs = _differs(c, a, b)
        return Lowered(differs if direction == "ne" else c.op("not", differs))
    return Lowered(ordered(c, direction, a, b))


def _clamp(context: Context, op: SourceOp, c: Complex) -> Lowered:
    low, x, high = (context.complex_parts(op, place) for place in range(3))
    shape = tensor_type(x[0]).shape
    low, high = (
        (context.builder.broadcast_to(real, shape), context.builder.broadcast_to(imaginary, shape))
        for real, imaginary in (low, high)
    )
    return _lowered(BINARY["minimum"](c, BINARY["maximum"](c, low, x), high))


def _bitcast(context: Context, op: SourceOp, c: Complex) -> Lowered:
    """The same bytes: two c64 are one c128."""
    own, result = op.operands[0].tensor, op.results[0].tensor
    if own.element == result.element:
        return context.lowered(op, 0)
    value = context.value(context.lowered(op, 0))
    return Lowered(context.builder.value("reinterpret", value, dtype=dtype(result.element)))


def _iota(context: Context, op: SourceOp, c: Complex) -> Lowered:
    shadow = replace(op, results=[SourceValue(_real_type(op.results[0].type))])
    made = LOWERINGS[op.full_name].lower(context, shadow)
    assert isinstance(made, Lowered)
    real = context.value(made)
    return _lowered((real, c.like(0, real)))


def _fourier(context: Context, op: SourceOp, c: Complex) -> Lowered:
    """FFT and IFFT over the last axes, RFFT of real numbers, IRFFT back to them."""
    kind, lengths = str(op.attributes["fft_type"]), ints(op.attributes["fft_length"])
    emitter, scale = Emitter(context.builder), 1 / max(math.prod(lengths), 1)
    if kind == "RFFT":
        x: Pair = (context.operand(op, 0), None)
    else:
        x = context.complex_parts(op, 0)
    rank = tensor_type(x[0]).rank
    axes = range(rank - len(lengths), rank)
    if kind == "IRFFT":
        real = to_real(emitter, context.complex_parts(op, 0), axes, lengths[-1])
        return Lowered(c.scale(scale, real))
    inverse = kind == "IFFT"
    parts = over_axes(emitter, x, axes, inverse=inverse, one_sided=kind == "RFFT")
    return _lowered((c.scale(scale, parts[0]), c.scale(scale, parts[1])) if inverse else parts)


_TABLE: dict[str, Callable[[Context, SourceOp, Complex], Lowered]] = {
    "bitcast_convert": _bitcast,
    "clamp": _clamp,
    "abs": lambda context, op, c: Lowered(absolute(c, context.complex_parts(op, 0))),
    "compare": _compare,
    "complex": _complex,
    "convert": _convert,
    "dynamic_iota": _iota,
    "fft": _fourier,
    "imag": lambda context, op, c: Lowered(context.complex_parts(op, 0)[1]),
    "iota": _iota,
    "real": lambda context, op, c: Lowered(context.complex_parts(op, 0)[0]),
}

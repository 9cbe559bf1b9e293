"""Lowerings that look at the bits of numbers: bitcasts of any widths, reduced precision."""

from __future__ import annotations

from collections.abc import Callable

from ingot.compiler.frontends.stablehlo.lowering import Context, lowering
from ingot.compiler.frontends.stablehlo.program import SourceOp, SourceProgram, TensorType
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType, dtype

__all__: list[str] = []

_BYTE = dtype("u8")
_MANTISSAS = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}


def _check_bitcast(op: SourceOp, program: SourceProgram) -> str | None:
    types = [value.type for value in (*op.operands, *op.results)]
    if any(isinstance(type, TensorType) and type.element == "i1" for type in types):
        return "a bitcast of booleans; convert them"
    return None


@lowering("bitcast_convert", check=_check_bitcast)
def bitcast_convert(context: Context, op: SourceOp) -> Value:
    """The same bits as elements of another width: a wider one takes the last dim, a narrower
    one adds it, the lowest bits first."""
    type = op.results[0].type
    assert isinstance(type, TensorType)
    x, wanted = context.operand(op, 0), dtype(type.element)
    own = x.type.dtype  # type: ignore[union-attr]
    builder = context.builder
    if own is wanted:
        return x
    if own.bits == wanted.bits:
        return builder.value("bitcast", x, dtype=wanted)
    if own.bits < 8:
        x = _joined(builder, x, wanted)
        own = _BYTE
    if wanted.bits >= 8:
        return x if own is wanted else _reinterpreted(builder, x, wanted)
    if own.bits > 8:
        x = builder.value("reinterpret", x, dtype=_BYTE)
    return _split(builder, x, own, wanted)


def _reinterpreted(builder: Builder, x: Value, wanted: DType) -> Value:
    same = tensor_type(x).dtype.bits == wanted.bits
    return builder.value("bitcast" if same else "reinterpret", x, dtype=wanted)


def _joined(builder: Builder, x: Value, wanted: DType) -> Value:
    """Elements below 8 bits as bytes; the last dim holds those of one element of the result."""
    type = tensor_type(x)
    unsigned = dtype(f"u{type.dtype.bits}")
    codes = x if type.dtype is unsigned else builder.value("bitcast", x, dtype=unsigned)
    codes = builder.value("convert", codes, dtype=_BYTE)
    parts, bytes = 8 // type.dtype.bits, wanted.bits // 8
    shape: tuple[Dim, ...] = (*type.shape[:-1], bytes, parts)
    codes = builder.value("reshape", codes, shape=shape)
    total: Value | None = None
    for place in range(parts):
        start = (*(0 for _ in shape[:-1]), place)
        part = builder.value("slice", codes, start=start, limit=(*shape[:-1], place + 1))
        part = builder.value("reshape", part, shape=shape[:-1])
        steps = builder.full(place * type.dtype.bits, _BYTE, shape[:-1])
        part = builder.value("shift_left", part, steps)
        total = part if total is None else builder.value("or", total, part)
    assert total is not None
    return builder.value("reshape", total, shape=shape[:-2]) if bytes == 1 else total


def _split(builder: Builder, x: Value, own: DType, wanted: DType) -> Value:
    """Bytes as elements below 8 bits; those of one element of the operand are the last dim."""
    codes = x if tensor_type(x).dtype is _BYTE else builder.value("bitcast", x, dtype=_BYTE)
    shape = tensor_type(codes).shape
    columns = []
    for place in range(8 // wanted.bits):
        part = builder.value(
            "shift_right_logical", codes, builder.full(place * wanted.bits, _BYTE, shape)
        )
        columns.append(builder.value("reshape", part, shape=(*shape, 1)))
    parts = builder.value("concatenate", *columns, axis=len(shape))
    if own.bits > 8:
        parts = builder.value("reshape", parts, shape=(*shape[:-1], own.bits // wanted.bits))
    parts = builder.value("convert", parts, dtype=dtype(f"u{wanted.bits}"))
    same = tensor_type(parts).dtype is wanted
    return parts if same else builder.value("bitcast", parts, dtype=wanted)


def _check_precision(op: SourceOp, program: SourceProgram) -> str | None:
    type = op.operands[0].type
    if isinstance(type, TensorType) and type.element not in _MANTISSAS:
        return f"a reduced precision of {type.element}; convert to f32 first"
    exponent = op.attributes.get("exponent_bits")
    return None if isinstance(exponent, int) and exponent >= 1 else "no exponent bits"


@lowering("reduce_precision", check=_check_precision)
def reduce_precision(context: Context, op: SourceOp) -> Value:
    """x with fewer bits of mantissa, rounded to even, and of exponent: what is beyond becomes
    infinite, what is below the least normal number 0."""
    x, builder = context.operand(op, 0), context.builder
    own: DType = x.type.dtype  # type: ignore[union-attr]
    mantissa = _MANTISSAS[own.name]
    kept, exponent = int(op.attributes["mantissa_bits"]), int(op.attributes["exponent_bits"])
    width = own.bits
    shape = getattr(x.type, "shape", ())
    unsigned = dtype(f"u{width}")

    def number(value: int) -> Value:
        return builder.full(value, unsigned, shape)

    bits = builder.value("bitcast", x, dtype=unsigned)
    if kept < mantissa:
        bits = _rounded(builder, bits, mantissa - kept, number)
    if exponent < width - 1 - mantissa:
        bits = _limited(builder, bits, (mantissa, width - 1 - mantissa, exponent), number)
    result = builder.value("bitcast", bits, dtype=own)
    is_nan = builder.value("is_nan", x)
    return builder.value("select", is_nan, x, result)


def _rounded(builder: Builder, bits: Value, drop: int, number: Callable[[int], Value]) -> Value:
    """The lowest bits rounded away; a carry goes on into the exponent."""
    last = builder.value("shift_right_logical", bits, number(drop))
    last = builder.value("and", last, number(1))
    moved = builder.value("add", bits, builder.value("add", last, number((1 << (drop - 1)) - 1)))
    return builder.value("and", moved, number(((1 << _width(bits)) - 1) & ~((1 << drop) - 1)))


def _width(bits: Value) -> int:
    return bits.type.dtype.bits  # type: ignore[union-attr]


def _limited(
    builder: Builder, bits: Value, sizes: tuple[int, int, int], number: Callable[[int], Value]
) -> Value:
    """Exponents beyond those of fewer bits as infinity and 0, with the sign."""
    mantissa, own, wanted = sizes
    bias, limit = (1 << (own - 1)) - 1, (1 << (wanted - 1)) - 1
    exponent = builder.value("and", bits, number(((1 << own) - 1) << mantissa))
    sign = builder.value("and", bits, number(1 << (own + mantissa)))
    infinite = builder.value("or", sign, number(((1 << own) - 1) << mantissa))
    above = builder.value("compare", exponent, number((bias + limit) << mantissa), direction="gt")
    below = builder.value("compare", exponent, number((bias - limit) << mantissa), direction="le")
    bits = builder.value("select", above, infinite, bits)
    return builder.value("select", below, sign, bits)

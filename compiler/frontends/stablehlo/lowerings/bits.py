"""Lowerings that look at the bits of numbers: bitcasts of any widths, reduced precision."""

from __future__ import annotations

from collections.abc import Callable

from ingot.compiler.frontends.stablehlo.lowering import Context, lowering
from ingot.compiler.frontends.stablehlo.reading.program import SourceOp, SourceProgram, TensorType
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DTYPES, DType, dtype

__all__: list[str] = []

_BYTE = dtype("u8")
_WIDER = dict.fromkeys(["f8e5m2", "f8e5m2fnuz"], "f16")
"""Floats of a byte whose precision XLA reduces as that of halves, and not as that of f32."""


@lowering("bitcast_convert")
def bitcast_convert(context: Context, op: SourceOp) -> Value:
    """The same bits as elements of another width: a wider one takes the last dim, a narrower
    one adds it, the lowest bits first. A boolean has one bit."""
    type = op.results[0].tensor
    x, wanted = context.operand(op, 0), dtype(type.element)
    own: DType = x.dtype
    builder = context.builder
    if own is wanted:
        return x
    before, after = _width_of(own), _width_of(wanted)
    if before == after:
        return builder.value("bitcast", x, dtype=wanted)
    if before < 8:
        x = _joined(builder, x, before, after) if before < after else _codes(builder, x)
    elif before == 8 and own is not _BYTE:
        x = builder.value("bitcast", x, dtype=_BYTE)
    elif after <= 8:
        x = builder.value("reinterpret", x, dtype=_BYTE) if before > 8 else x
    if after < 8:
        return _decoded(builder, x if before < after else _split(builder, x, before, after), wanted)
    found = x.dtype
    if found is wanted:
        return x
    return builder.value("bitcast" if found.bits == after else "reinterpret", x, dtype=wanted)


def _width_of(dtype: DType) -> int:
    return 1 if dtype.is_boolean else dtype.bits


def _codes(builder: Builder, x: Value) -> Value:
    """The bits of elements below 8 bits as bytes."""
    own = x.dtype
    unsigned = own if own.is_boolean else dtype(f"u{own.bits}")
    codes = x if own is unsigned else builder.value("bitcast", x, dtype=unsigned)
    return builder.value("convert", codes, dtype=_BYTE)


def _decoded(builder: Builder, codes: Value, wanted: DType) -> Value:
    """The elements whose bits are the lowest ones of bytes."""
    if wanted.is_boolean:
        ones = builder.full(1, _BYTE, tensor_type(codes).shape)
        return builder.value("convert", builder.value("and", codes, ones), dtype=wanted)
    parts = builder.value("convert", codes, dtype=dtype(f"u{wanted.bits}"))
    same = tensor_type(parts).dtype is wanted
    return parts if same else builder.value("bitcast", parts, dtype=wanted)


def _joined(builder: Builder, x: Value, own: int, wanted: int) -> Value:
    """Elements below 8 bits as bytes, or as one where the result has fewer bits; the last dim
    holds those of one element of the result."""
    parts, bytes = min(wanted, 8) // own, max(wanted // 8, 1)
    shape: tuple[Dim, ...] = (*tensor_type(x).shape[:-1], bytes, parts)
    codes = builder.value("reshape", _codes(builder, x), shape=shape)
    total: Value | None = None
    for place in range(parts):
        start = (*(0 for _ in shape[:-1]), place)
        part = builder.value("slice", codes, start=start, limit=(*shape[:-1], place + 1))
        part = builder.value("reshape", part, shape=shape[:-1])
        steps = builder.full(place * own, _BYTE, shape[:-1])
        part = builder.value("shift_left", part, steps)
        total = part if total is None else builder.value("or", total, part)
    assert total is not None
    return builder.value("reshape", total, shape=shape[:-2]) if bytes == 1 else total


def _split(builder: Builder, codes: Value, own: int, wanted: int) -> Value:
    """Bytes with the bits of elements of `wanted` bits at their low end; those of one element
    of the operand are the last dim."""
    shape = tensor_type(codes).shape
    columns = []
    for place in range(min(own, 8) // wanted):
        part = builder.value(
            "shift_right_logical", codes, builder.full(place * wanted, _BYTE, shape)
        )
        columns.append(builder.value("reshape", part, shape=(*shape, 1)))
    parts = builder.value("concatenate", *columns, axis=len(shape))
    return builder.value("reshape", parts, shape=(*shape[:-1], own // wanted)) if own > 8 else parts


def _check_precision(op: SourceOp, program: SourceProgram) -> str | None:
    type = op.operands[0].type
    if isinstance(type, TensorType) and not (
        type.element in DTYPES and dtype(type.element).kind == "f"
    ):
        return f"a reduced precision of {type.element}, which is no real float"
    exponent = op.attributes.get("exponent_bits")
    return None if isinstance(exponent, int) and exponent >= 1 else "no exponent bits"


@lowering("reduce_precision", check=_check_precision)
def reduce_precision(context: Context, op: SourceOp) -> Value:
    """x with fewer bits of mantissa, rounded to even, and of exponent: what is beyond becomes
    infinite, what is below the least normal number 0."""
    x, builder = context.operand(op, 0), context.builder
    kept, exponent = int(op.attributes["mantissa_bits"]), int(op.attributes["exponent_bits"])
    own: DType = x.dtype
    if own.fraction:
        return _reduced(builder, x, kept, exponent)
    wide = builder.value("convert", x, dtype=dtype(_WIDER.get(own.name, "f32")))
    return builder.value("convert", _reduced(builder, wide, kept, exponent), dtype=own)


def _reduced(builder: Builder, x: Value, kept: int, exponent: int) -> Value:
    own: DType = x.dtype
    mantissa, width = own.fraction, own.bits
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
    return bits.dtype.bits


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

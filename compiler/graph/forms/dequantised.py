"""Tensors that are integers of 8 or 16 bits with a scale and a zero point: (codes - zero) * scale.

However a program spells them: sub and mul on converted codes, in f32 or in i32, with their
elements moved before or behind that. What multiplies such tensors is `multiply_codes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.moves import moved, moved_from
from ingot.compiler.graph.forms.repeats import repeated, repeats_of, static_shape
from ingot.compiler.graph.ops import Broadcast, Transpose
from ingot.compiler.graph.references.leaves import array_of
from ingot.compiler.graph.rewriter import defined_by, literal_of_value, splat_of
from ingot.compiler.ir import Op, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import product
from ingot.hal.spec import DType, dtype

__all__ = [
    "BYTES",
    "PAIRS",
    "Dequantised",
    "Refused",
    "as_signed",
    "as_unsigned",
    "dtype_of_codes",
    "extent",
    "halves",
    "is_dequantised",
    "is_plain",
    "read_rows",
    "read_tensor",
    "read_weight",
]

_I8, _U8, _U16, _I32, _F32 = map(dtype, ("i8", "u8", "u16", "i32", "f32"))
BYTES, PAIRS = frozenset((_I8, _U8)), frozenset((dtype("i16"), _U16))
"""The dtypes of codes, of one byte and of two."""

_FLOATS = frozenset(map(dtype, ("bf16", "f16", "f32")))
_WIDE = {  # hold codes less zero points
    BYTES: _FLOATS | frozenset(map(dtype, ("i16", "i32", "i64"))),
    PAIRS: frozenset(map(dtype, ("f32", "i32", "i64"))),
}
_MOVES = ("broadcast", "reshape", "transpose")
_MIDDLE = 128


class Refused(Exception):
    """The tensor is quantised, but not as kernels take it; the text says how."""


@dataclass(frozen=True)
class Dequantised:
    """(codes - zero) * scale. `codes`: of `BYTES` or `PAIRS`. `zero`: i32, one of the numbers that
    codes may be, None for 0; `scale`: f32, None for 1. Both have rank 0, or one number per index of
    the axes that are not summed, in their order."""

    codes: Value
    zero: Value | None
    scale: Value | None


def is_dequantised(x: Value, kinds: frozenset[DType] = BYTES) -> bool:
    """Whether the tensor is one of codes of these dtypes, whatever its scale and zero point."""
    return _parts_of(x, kinds) is not None


def dtype_of_codes(x: Value) -> DType | None:
    """Of the integers of up to 16 bits that floats stand for; None if there are none."""
    names = ("convert", "mul", "reverse", "reshape", "sub", "transpose")
    while (op := defined_by(x, *names)) is not None:
        x = op.operands[0]
        if op.name == "convert" and _element(x).is_integer:
            return _element(x) if 1 < _element(x).bits <= 16 else None
    return None


def is_plain(x: Value) -> bool:
    """Whether a tensor's codes lie as its elements do, in its own dtype."""
    parts = _parts_of(x)
    return parts is not None and not parts.inner and not parts.outer


def read_tensor(x: Value, builder: Builder, kinds: frozenset[DType] = BYTES) -> Dequantised | None:
    """An activation, with one scale and one zero point; None if it is not quantised."""
    parts = _parts_of(x, kinds)
    if parts is None:
        return None
    zero, scale = (_single(each, builder) for each in (parts.zero, parts.scale))
    codes = moved(parts.codes, parts.outer + parts.inner, builder)
    return Dequantised(codes, _converted(zero, _I32, builder), _converted(scale, _F32, builder))


def read_rows(
    x: Value, summed: Sequence[int], builder: Builder, kinds: frozenset[DType] = BYTES
) -> Dequantised | None:
    """As `read_tensor`, with scales and zero points that do not change along the axes that are
    summed."""
    parts = _parts_of(x, kinds)
    if parts is None:
        return None
    zero, scale = (
        None if each is None else _per_row(moved(each, parts.outer, builder), summed, builder)
        for each in (parts.zero, parts.scale)
    )
    codes = moved(parts.codes, parts.outer + parts.inner, builder)
    return Dequantised(codes, _converted(zero, _I32, builder), _converted(scale, _F32, builder))


def read_weight(w: Value, summed: Sequence[int], builder: Builder) -> Dequantised:
    """A weight whose scale and zero point do not change along the axes that are summed; it is
    `is_dequantised`."""
    parts = _parts_of(w)
    assert parts is not None
    codes = moved(parts.codes, parts.outer + parts.inner, builder)
    zero, scale = (
        None if each is None else _per_column(moved(each, parts.outer, builder), summed, builder)
        for each in (parts.zero, parts.scale)
    )
    return Dequantised(codes, _converted(zero, _I32, builder), _converted(scale, _F32, builder))


def extent(x: Dequantised) -> int:
    """The most that a code differs from the zero point."""
    low, high = map(int, _element(x.codes).limits)
    zero = 0 if x.zero is None else splat_of(x.zero)
    return high - low if zero is None else max(high - int(zero), int(zero) - low)


def as_unsigned(x: Dequantised, builder: Builder) -> Dequantised:
    """The same numbers with codes of u8."""
    return x if tensor_type(x.codes).dtype is _U8 else _turned(x, 1, builder)


def as_signed(w: Dequantised, builder: Builder) -> Dequantised:
    """The same numbers with codes of i8, if they fit without a zero point."""
    codes = literal_of_value(w.codes)
    zero = None if w.zero is None else splat_of(w.zero)
    if codes is not None and zero is not None:
        numbers = codes.array.astype(np.int32) - int(zero)
        if numbers.size and numbers.min() >= -_MIDDLE and numbers.max() < _MIDDLE:
            signed = builder.constant(numbers.astype(np.int8), _I8)
            return replace(w, codes=signed, zero=None)
    return w if tensor_type(w.codes).dtype is _I8 else _turned(w, -1, builder)


def halves(x: Dequantised, builder: Builder) -> tuple[Dequantised, Dequantised]:
    """The high and the low bytes of codes of two, with zero points of their own and no scale: x is
    the scale times (256 times the first plus the second)."""
    element, shape = tensor_type(x.codes).dtype, tensor_type(x.codes).shape
    codes, zero = builder.value("bitcast", x.codes, dtype=_U16), x.zero
    if element is not _U16:
        codes = builder.value("xor", codes, builder.full(1 << 15, _U16, shape))
        zero = _shifted(zero, 1 << 15, builder)
    high = builder.value("shift_right_logical", codes, builder.full(8, _U16, shape))
    parts = (builder.value("convert", each, dtype=_U8) for each in (high, codes))
    first, second = (
        Dequantised(part, None if zero is None else _byte_of(zero, place, builder), None)
        for part, place in zip(parts, (8, 0), strict=True)
    )
    return first, second


def _byte_of(zero: Value, place: int, builder: Builder) -> Value | None:
    """Eight bits of a zero point; None if they are 0."""
    shape, known = tensor_type(zero).shape, splat_of(zero)
    if known is not None:
        number = int(known) >> place & 255
        return builder.full(number, _I32, shape) if number else None
    high = builder.value("shift_right_logical", zero, builder.full(place, _I32, shape))
    return builder.value("and", high, builder.full(255, _I32, shape))


def _turned(x: Dequantised, sign: int, builder: Builder) -> Dequantised:
    """Codes and zero moved by half of their range, to the other kind of bytes."""
    codes = builder.value("bitcast", x.codes, dtype=_U8)
    middle = builder.full(_MIDDLE, _U8, tensor_type(codes).shape)
    codes = builder.value("xor", codes, middle)
    if sign < 0:
        codes = builder.value("bitcast", codes, dtype=_I8)
    return replace(x, codes=codes, zero=_shifted(x.zero, sign * _MIDDLE, builder))


def _shifted(zero: Value | None, by: int, builder: Builder) -> Value | None:
    """The zero point and a number; None if that is 0."""
    known = 0 if zero is None else splat_of(zero)
    if known is not None:
        shape = () if zero is None else tensor_type(zero).shape
        return builder.full(int(known) + by, _I32, shape) if known + by else None
    assert zero is not None
    return builder.value("add", zero, builder.full(by, _I32, tensor_type(zero).shape))


# Reading.


@dataclass(frozen=True)
class _Parts:
    """What a tensor is made of, of full shape each: `outer` moves stand behind the ops on codes,
    `inner` ones before these, where there is no zero point."""

    codes: Value
    zero: Value | None
    scale: Value | None
    inner: list[Op]
    outer: list[Op]


def _parts_of(x: Value, kinds: frozenset[DType] = BYTES) -> _Parts | None:
    x, outer = moved_from(x)
    while (op := defined_by(x, "convert")) and {_element(x), _element(op.operands[0])} <= _FLOATS:
        x, more = moved_from(op.operands[0])
        outer += more
    factors: list[tuple[Value, Value | None]] = [(x, None)]
    if (op := defined_by(x, "mul")) is not None and _element(x) in _FLOATS:
        a, b = op.operands
        factors = [(a, b), (b, a)]
    for rest, scale in factors:
        rest, moves = moved_from(rest)
        if moves and scale is not None:
            continue  # the scale would have to be moved back
        op = defined_by(rest, "sub") if _element(rest) in _WIDE[kinds] else None
        source, more = moved_from(rest if op is None else op.operands[0])
        codes = _codes_of(source, kinds)
        if codes is None or (op is not None and more):
            continue
        zero = None if op is None else _integers_of(op.operands[1], codes)
        if op is not None and zero is None:
            continue
        zero = None if zero is not None and splat_of(zero) == 0 else zero
        return _Parts(codes, zero, scale, more, outer + moves)
    return None


def _element(x: Value) -> DType:
    return tensor_type(x).dtype


def _codes_of(x: Value, kinds: frozenset[DType]) -> Value | None:
    """The integers that wider numbers are converted from, or that the value is."""
    if _element(x) in kinds:
        return x
    op = defined_by(x, "convert")
    if op is None or _element(x) not in _WIDE[kinds] or _element(op.operands[0]) not in kinds:
        return None
    return op.operands[0]


def _integers_of(x: Value, codes: Value) -> Value | None:
    """Zero points, or what they are converted from, that are numbers which codes may be."""
    op, source = defined_by(x, "convert"), x
    found = op.operands[0] if op is not None and _element(op.operands[0]).is_integer else x
    wide = _WIDE[BYTES if _element(codes) in BYTES else PAIRS]
    while _element(source) in wide and (op := defined_by(source, "convert", *_MOVES)):
        source = op.operands[0]
    if _element(source) is _element(codes):
        return found
    literal = literal_of_value(source)
    if literal is None or _element(source) not in wide:
        return None
    low, high = _element(codes).limits
    numbers = array_of(literal).astype(np.float64)
    fit = (low <= numbers) & (numbers <= high) & (numbers == np.rint(numbers))
    return found if fit.all() else None


def _single(x: Value | None, builder: Builder) -> Value | None:
    """The one number that all elements are, as rank 0. Refused: they may differ."""
    if x is None:
        return None
    converts: list[Op] = []
    while product(tensor_type(x).shape) != 1:
        op = defined_by(x, "broadcast", "reshape", "convert", "transpose")
        if op is None:
            raise Refused("scales or zero points of its input are not one number for all elements")
        converts += [op] if op.name == "convert" else []
        x = op.operands[0]
    x = x if not tensor_type(x).rank else builder.value("reshape", x, shape=())
    return moved(x, converts, builder)


def _per_row(x: Value, summed: Sequence[int], builder: Builder) -> Value:
    """The numbers of the free axes, or the one that all elements are. Refused: they change."""
    try:
        one = _single(x, builder)
        assert one is not None
        return one
    except Refused:
        pass
    found = _without(x, frozenset(summed), builder)
    if found is None:
        raise Refused("scales or zero points of its input change along what is summed")
    return found


def _without(x: Value, axes: frozenset[int], builder: Builder) -> Value | None:
    """x without axes along which it does not change; None: it may."""
    shape = tensor_type(x).shape
    free = [axis for axis in range(len(shape)) if axis not in axes]
    kept = tuple(shape[axis] for axis in free)
    if all(shape[axis] == 1 for axis in axes):
        return builder.value("reshape", x, shape=kept)
    op = defined_by(x, "convert", "broadcast", "transpose", "reshape")
    if op is None:
        return None
    (source,) = op.operands
    if op.name == "convert":
        found = _without(source, axes, builder)
        return None if found is None else builder.like(op, found)
    if op.name == "reshape":
        last, own = len(shape) - 1, tensor_type(source)
        if axes != {last} or not own.rank or own.shape[-1] != shape[last]:
            return None
        found = _without(source, frozenset({own.rank - 1}), builder)
        return None if found is None else builder.value("reshape", found, shape=kept)
    is_wide = op.name == "broadcast"
    places = Broadcast.of(op).dimensions if is_wide else Transpose.of(op).permutation
    if is_wide:
        inner = frozenset(axis for axis, place in enumerate(places) if place in axes)
    else:
        inner = frozenset(places[axis] for axis in axes)
    found = _without(source, inner, builder)
    if found is None:
        return None
    rest = [axis for axis in range(tensor_type(source).rank) if axis not in inner]
    if is_wide:
        dimensions = tuple(free.index(places[axis]) for axis in rest)
        return builder.value("broadcast", found, shape=kept, dimensions=dimensions)
    order = tuple(rest.index(places[axis]) for axis in free)
    return builder.value("transpose", found, permutation=order)


def _per_column(x: Value, summed: Sequence[int], builder: Builder) -> Value:
    """The numbers of the free axes, or one of rank 0. Refused: they change along others."""
    found = repeats_of(x, builder)
    if any(found.lengths[axis] < found.shape[axis] for axis in summed):
        raise Refused("scales or zero points of its weight change along what is summed")
    if product(static_shape(found.source)) == 1:
        return builder.value("reshape", found.source, shape=())
    source, free = found.source, [axis for axis in range(len(found.shape)) if axis not in summed]
    for axis in free:
        length = min(found.lengths[axis], found.shape[axis])
        source = repeated(source, axis, length, found.shape[axis], builder)
    return builder.value("reshape", source, shape=tuple(found.shape[axis] for axis in free))


def _converted(x: Value | None, wanted: DType, builder: Builder) -> Value | None:
    if x is None or _element(x) is wanted:
        return x
    number = splat_of(x)
    if number is not None:
        number = int(number) if wanted.is_integer else float(number)
        return builder.full(number, wanted, tensor_type(x).shape)
    return builder.value("convert", x, dtype=wanted)

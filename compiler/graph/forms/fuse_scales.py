"""Keeps quantised weights of matrix products as codes: `x @ ((codes - zeros) * scales)`.

Such a product becomes `dot_coded`, whose kernels decode in registers. Scales and zeros may be
numbers, one per column, or one per group of steps of K; scales that are bytes times factors of
several groups stay that. Rows that are looked up are decoded from the same panels. What does not
fit is computed as floats, by `init`, as any weight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import gcd
from typing import Any, cast

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.moves import moved, moved_from
from ingot.compiler.graph.forms.multiply_codes import IN_INTEGERS, LEFT_IN_FLOAT
from ingot.compiler.graph.forms.narrow_codes import CODE, is_narrow
from ingot.compiler.graph.forms.pack_weights import Columns, multiply_rows
from ingot.compiler.graph.forms.panel_rows import PanelRows
from ingot.compiler.graph.forms.repeats import Repeats, repeated, repeats_of, static_shape
from ingot.compiler.graph.forms.round_rows import (
    ROUNDED,
    RoundedRows,
    part_of_group,
    quantised_rows,
    rounded_rows,
    why_not_rounded,
)
from ingot.compiler.graph.forms.weight_functions import Made, WeightFunctions
from ingot.compiler.graph.ops import (
    FLOAT_CODES,
    PANEL,
    DotGeneral,
    Take,
    Unpack,
    code_lines,
    code_planes,
    code_steps,
)
from ingot.compiler.graph.rewriter import (
    defined_by,
    literal_of_value,
    rewrite,
    splat_of,
    weights_of,
)
from ingot.compiler.ir import Module, Op, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import known_dim
from ingot.hal.spec import DType, dtype

__all__ = ["fuse_scales"]

_FLOATS = ("f32", "f16", "bf16")
_NARROW = (2, 4)
"""Bits of codes that have a dtype of their own; others are bits of bytes."""
_WORD = dtype("u32")


Part = Callable[[int], int]


def fuse_scales(module: Module) -> Module:
    """Keep the codes of weights in every function; returns the module."""

    def part(group: int) -> int:
        return part_of_group(module, group)

    functions = WeightFunctions(module, lambda w, builder: _made_of(w, part, builder))
    for function in list(module.functions.values()):
        weights = weights_of(function)

        def rule(op: Op, builder: Builder, weights: set[Value] = weights) -> Sequence[Value] | None:
            if op.name == "take" and op.operands[0] in weights:
                return _looked_up_rows(op, functions, builder)
            if op.name != "dot_general" or DotGeneral.of(op).dtype.name not in _FLOATS:
                return None
            product = _Product(module, functions, op, builder)
            return multiply_rows(op, builder, weights, product.multiply)

        rewrite(function.block, rule)
    functions.finish()
    return module


def _looked_up_rows(op: Op, functions: WeightFunctions, builder: Builder) -> Sequence[Value] | None:
    """Rows of a table that is made of codes, from panels that products with it read, too."""
    table, ids = map(tensor_type, op.operands)
    if table.rank != 2 or table.dtype.name != "f32" or not ids.rank or Take.of(op).axis:
        return None
    columns = builder.value("transpose", op.operands[0], permutation=(1, 0))
    made = functions.made(columns, builder)
    return None if made is None else [PanelRows(op, builder).numbers(made)]


class _Product:
    """A contraction that may keep the codes of its weight."""

    def __init__(
        self, module: Module, functions: WeightFunctions, op: Op, builder: Builder
    ) -> None:
        self.module, self.functions, self.op, self.builder = module, functions, op, builder
        self.rounded: RoundedRows | None = None
        self.columns, self.n = Columns(), 0
        self.dtype = DotGeneral.of(op).dtype

    def multiply(self, rows: Value, w: Value, columns: Columns) -> Value | None:
        """rows [m, k] times columns of the weight [k, n]; None if that is not made of codes."""
        if tensor_type(rows).dtype.name not in _FLOATS:
            return None
        made = self.functions.made(w, self.builder)
        if made is None:
            return None
        first, *others = made
        self.columns, self.n = columns, columns.count_of(w)
        if not others:
            product = self._of_quantised(rows, w, first)
            if product is not None:
                return product
        self.rounded = self._rounded(rows, first.attributes)
        joined = [each for each in others if self._is_joined(each, first)]
        product = self._times(rows, first, self.rounded, joined)
        for minima in others[len(joined) :]:
            product = self.builder.value("sub", product, self._sums_times(rows, minima))
        return product

    def _is_joined(self, minima: Made, weight: Made) -> bool:
        """Whether a product with codes takes these minima in: unsigned codes with scales alone, of
        the groups of rows that are rounded."""
        found = minima.attributes
        if self.rounded is None or minima.k * weight.attributes["group"] != weight.k or not found:
            return False
        plain = not (found["bits"] or found["block"] or found["table"])
        return plain and found["coding"].kind == "u" and len(minima.values) == 2

    def _times(
        self,
        rows: Value,
        weight: Made,
        rounded: RoundedRows | None = None,
        minima: Sequence[Made] = (),
    ) -> Value:
        """The rows times the columns of a coded weight, less those of minima, at most one."""
        builder = self.builder
        codes, *small = (self.columns.of_panels(each, builder) for each in weight.values)
        attributes = {**weight.attributes, "n": self.n, "dtype": self.dtype}
        if rounded is None:
            return builder.value("dot_coded", rows, codes, *small, **attributes)
        scales, *others = small
        for each in minima:
            others += (self.columns.of_panels(value, builder) for value in each.values)
            attributes["minima"] = (each.attributes["coding"].bits, each.attributes["group"])
        left = (rounded.codes, codes, scales, rounded.scales, rounded.sums)
        return builder.value("dot_scaled", *left, *others, **attributes)

    def _of_quantised(self, rows: Value, w: Value, weight: Made) -> Value | None:
        """The product in integers, where the program has the rows as codes; less what their zero
        points are times the sums of the columns."""
        builder, wide = self.builder, dtype("f32")
        coding, group = weight.attributes["coding"], weight.attributes["group"]
        found = quantised_rows(rows, group, coding, builder)
        if found is None:
            return None
        codes, zeros = found
        own, self.dtype = self.dtype, wide
        product = self._times(rows, weight, codes)
        if zeros is not None:
            columns = builder.value("convert", w, dtype=wide)
            columns = builder.value("reduce", columns, axes=(0,), kind="add")
            columns = builder.value("reshape", columns, shape=(1, *tensor_type(columns).shape))
            columns = self.columns.of_columns(columns, builder)
            shape = tensor_type(product).shape
            lines = tuple(range(len(shape) - 1))
            spread = builder.value("broadcast", zeros, shape=shape, dimensions=lines)
            times = builder.value("mul", spread, builder.broadcast_to(columns, shape))
            product = builder.value("sub", product, times)
        _note_integers(self.module, self.op.location)
        return product if own is wide else builder.value("convert", product, dtype=own)

    def _rounded(self, rows: Value, weight: Mapping[str, Any]) -> RoundedRows | None:
        """The rows as codes, where they are to be and can be."""
        group, attributes = weight["group"], self.module.attributes
        why = why_not_rounded(self.module, rows, group, weight["coding"])
        if why is None:
            attributes[ROUNDED] += 1  # type: ignore[operator]
            return rounded_rows(rows, group, self.builder)
        if why:
            left = cast(tuple[tuple[str, str], ...], attributes.get(LEFT_IN_FLOAT, ()))
            attributes[LEFT_IN_FLOAT] = (*left, (self.op.location, why))
        return None

    def _sums_times(self, rows: Value, minima: Made) -> Value:
        """The sums of the rows' groups times the minima of these, which may be codes."""
        builder, type, groups = self.builder, tensor_type(rows), minima.k
        if groups == type.shape[-1]:
            return self._times(rows, minima, self.rounded)
        if self.rounded is not None and tensor_type(self.rounded.sums).shape[-1] == groups:
            sums = self.rounded.numbers_of_sums(builder)
            sums = builder.value("convert", sums, dtype=type.dtype)
        else:
            *outer, k = type.shape
            sums = builder.value("reshape", rows, shape=(*outer, groups, known_dim(k) // groups))
            sums = builder.value("reduce", sums, axes=(type.rank,), kind="add")
        if minima.attributes:
            return self._times(sums, minima)
        small = builder.value("convert", minima.values[0], dtype=type.dtype)
        small = self.columns.of_columns(small, builder)
        return builder.value(
            "dot_general", sums, small, lhs_contract=(type.rank - 1,), rhs_contract=(0,)
        )


def _note_integers(module: Module, layer: str) -> None:
    """That a product which was left in floats is one of integers."""
    left = cast(tuple[tuple[str, str], ...], module.attributes.pop(LEFT_IN_FLOAT, ()))
    rest = tuple(each for each in left if each[0] != layer)
    if rest:
        module.attributes[LEFT_IN_FLOAT] = rest
    done = cast(tuple[str, ...], module.attributes.get(IN_INTEGERS, ()))
    module.attributes[IN_INTEGERS] = (*done, *({layer} - set(done)))


def _made_of(w: Value, part: Part, builder: Builder) -> Sequence[Made] | None:
    """The codes of a weight [k, n], and the minima of groups of K, if it has some, as codes or
    [groups, n]; minima of its elements are further codes. `part`: what part of a group is taken as
    one. None: it is not made of codes."""
    split = _without_minima(w, builder)
    coded = _coded(w if split is None else split[0], builder, part=part)
    if split is None or coded is None:
        return None if coded is None else [coded]
    minima = repeats_of(split[1], builder)
    k, group = minima.shape[0], min(minima.lengths[0], minima.shape[0])
    if group == 1:
        rest = _coded(split[1], builder, part=part)
        return None if rest is None else [coded, rest]
    if k % group:
        return None
    small = _small(_narrowed(minima, builder), group, builder)
    return [coded, _coded(small, builder, in_planes=False) or Made((small,), k // group, {})]


def _coded(w: Value, builder: Builder, in_planes: bool = True, part: Part = int) -> Made | None:
    """The panels of a weight [k, n] that is made of codes."""
    weight = _weight_of(w, builder)
    if weight is None:
        return None
    k, _ = static_shape(w)
    group = part(_group_of(weight, k))
    bits = _bits_of(weight, group, k, in_planes)
    if bits is None:
        return None
    small, block = _scales(weight, group, builder)
    if weight.zeros is not None:
        small.append(_small(_narrowed(weight.zeros, builder), group, builder))
    panels = [_code_panels(weight, bits, builder)]
    panels += [_scale_panels(each, builder) for each in small]
    is_byte = bits not in _NARROW
    attributes = {
        "coding": weight.element or dtype(f"{weight.kind}{8 if is_byte else bits}"),
        "group": group,
        "bits": bits if is_byte and bits < 8 else 0,
        "block": block,
        "table": weight.table,
    }
    return Made(tuple(panels), k, attributes)


def _without_minima(w: Value, builder: Builder) -> tuple[Value, Value] | None:
    """The weight as (codes * scales) - minima, both [k, n]."""
    root, moves = moved_from(w)
    op = defined_by(root, "sub")
    if op is None or defined_by(moved_from(op.operands[0])[0], "mul") is None:
        return None
    first, second = (moved(each, moves, builder) for each in op.operands)
    return first, second


@dataclass(frozen=True)
class _Weight:
    """(codes - zeros) * scales of [k, n]. `codes`: i8 or u8 that hold numbers of `bits` bits,
    signed ones ("i") or not ("u")."""

    codes: Value
    kind: str
    bits: int
    scales: Repeats
    zeros: Repeats | None
    middle: int | None = None  # what to take from codes of u8 for signed numbers
    table: tuple[int, ...] = ()  # the numbers that they are places of
    element: DType | None = None  # the floats of 8 bits that they are

    @property
    def repeats(self) -> list[Repeats]:
        return [each for each in (self.scales, self.zeros) if each is not None]


def _weight_of(w: Value, builder: Builder) -> _Weight | None:
    """What the weight is made of, seen through moves and roundings to narrower floats."""
    w, moves = moved_from(w)
    while (op := defined_by(w, "convert")) and tensor_type(op.operands[0]).dtype.is_float:
        w, more = moved_from(op.operands[0])
        moves += more
    if not tensor_type(w).dtype.is_float:
        return None
    for rest, scales in _factors(w, builder):
        rest, inner = moved_from(rest)
        op = defined_by(rest, "sub")
        source, inmost = moved_from(rest if op is None else op.operands[0])
        codes, element = _float_codes(source) or (_codes_of(source), None)
        if codes is None:
            continue
        codes, table = (codes, ()) if element else _looked_up(codes)
        zeros = None
        if op is not None:
            zeros = repeats_of(moved(op.operands[1], moves + inner, builder), builder)
        coding = _coding_of(codes)
        return _without_middle(
            _Weight(
                moved(codes, moves + inner + inmost, builder),
                coding.kind,
                min(_width(codes), coding.bits),
                repeats_of(moved(scales, moves, builder), builder),
                zeros,
                table=table,
                element=element,
            )
        )
    return None


def _float_codes(x: Value) -> tuple[Value, DType] | None:
    """The bytes of floats of 8 bits, as `store_narrow` left them, and their dtype."""
    op = defined_by(x, "take")
    table = literal_of_value(op.operands[0]) if op is not None else None
    if op is None or table is None or table.shape != (256,):
        return None
    places = defined_by(op.operands[1], "convert")
    if places is None or tensor_type(places.operands[0]).dtype is not CODE:
        return None
    for name in FLOAT_CODES:
        numbers = np.arange(256, dtype=np.uint8).view(dtype(name).numpy)
        if np.array_equal(table.array, numbers.astype(table.array.dtype), equal_nan=True):
            return places.operands[0], dtype(name)
    return None


def _looked_up(codes: Value) -> tuple[Value, tuple[int, ...]]:
    """Codes of at most 4 bits that are places in a table, and its 16 numbers of i8, where it saves
    bits; other codes and no numbers."""
    op = defined_by(codes, "take")
    table = literal_of_value(op.operands[0]) if op is not None else None
    if (
        op is None
        or table is None
        or len(table.shape) != 1
        or tensor_type(codes).dtype.name != "i8"
    ):
        return codes, ()
    places = defined_by(op.operands[1], "convert")
    source = None if places is None else places.operands[0]
    if source is None or tensor_type(source).dtype is not CODE:
        return codes, ()
    count = 1 << min(_width(source), _coding_of(source).bits)
    if count > min(table.size, 16) or count >= 1 << _width(codes):
        return codes, ()
    numbers = table.array[:count].tolist()
    return source, tuple(numbers + [0] * (16 - count))


def _without_middle(weight: _Weight) -> _Weight:
    """The weight without zeros that are all 0, or that all make signed numbers of unsigned ones."""
    zero = weight.zeros and splat_of(weight.zeros.source)
    if zero is None:
        return weight
    if not zero:
        return replace(weight, zeros=None)
    if weight.kind == "i" or weight.table or zero != int(zero) or not 0 < zero < 1 << weight.bits:
        return weight
    middle = int(zero)
    bits = 1 + max(middle - 1, (1 << weight.bits) - 1 - middle).bit_length()
    if bits > weight.bits and bits not in _NARROW:
        return weight
    return replace(weight, kind="i", bits=bits, zeros=None, middle=middle)


def _width(codes: Value) -> int:
    """How many of the low bits of 8-bit integers may be set, as the ops that make them say; of
    signed ones, how many bits they have."""
    op = codes.owner
    if not isinstance(op, Op):
        return 8
    if op.name in ("reshape", "transpose", "slice", "broadcast"):
        return _width(op.operands[0])
    table = literal_of_value(op.operands[0]) if op.name == "take" else None
    if table is not None and table.size:
        least, greatest = int(table.array.min()), int(table.array.max())
        sign = tensor_type(codes).dtype.kind == "i"
        return max(greatest.bit_length(), (-least - 1).bit_length() if least < 0 else 0) + sign
    if op.name == "take" and Take.of(op).mode == "clamp":  # codes in another order
        return _width(op.operands[0])
    if tensor_type(codes).dtype.name != "u8":
        return 8
    if op.name in ("concatenate", "or"):
        return max(map(_width, op.operands))
    number = splat_of(op.operands[1]) if len(op.operands) == 2 else None
    if number is not None and op.name == "and":
        return min(_width(op.operands[0]), int(number).bit_length())
    if number is not None and op.name == "shift_left":
        return min(_width(op.operands[0]) + int(number), 8)
    if number is not None and op.name == "shift_right_logical":
        return max(_width(op.operands[0]) - int(number), 0)
    return 8


def _factors(w: Value, builder: Builder) -> Sequence[tuple[Value, Value]]:
    """The weight as what may hold codes, times what may be scales."""
    op = defined_by(w, "mul")
    if op is None:
        return [(w, builder.full(1.0, tensor_type(w).dtype, tensor_type(w).shape))]
    a, b = op.operands
    return [(a, b), (b, a)]


def _codes_of(x: Value) -> Value | None:
    """The 8-bit integers that a float is converted from."""
    op = defined_by(x, "convert")
    if op is None:
        return None
    source = tensor_type(op.operands[0]).dtype
    return op.operands[0] if source.is_integer and source.bits == 8 else None


def _coding_of(codes: Value) -> DType:
    """The dtype that the source has for them, as `store_narrow` left it."""
    own = tensor_type(codes).dtype
    op = defined_by(codes, "unpack", "reinterpret", "shift_right_arithmetic", "bitcast")
    if op is None:
        return own
    if op.name == "unpack":
        return Unpack.of(op).dtype
    if op.name == "reinterpret":
        type = tensor_type(op.operands[0])
        return type.dtype if is_narrow(type.dtype) and type.dtype.kind == own.kind else own
    is_signed = op.name == "shift_right_arithmetic" and own.kind == "i"  # others copy a bit, too
    places = splat_of(op.operands[1]) if is_signed else None
    return dtype(f"i{8 - int(places)}") if places in (4, 6) else own


def _bits_of(weight: _Weight, group: int, k: int, in_planes: bool) -> int | None:
    """The bits of a code in panels, of which a group holds whole lines: as few as can be, or those
    of a byte's part."""
    whole = next(each for each in (*_NARROW, 8) if each >= weight.bits)
    least = max(weight.bits, _NARROW[0]) if in_planes and weight.bits != 7 else whole
    widths = (each for each in (least, whole) if group == k or group % code_steps(each) == 0)
    return next(widths, None)


def _group_of(weight: _Weight, k: int) -> int:
    """Steps of K for which neither scales nor zeros change; all of K, where they never do."""
    group = k
    for each in weight.repeats:
        length = each.lengths[0]
        if length < k:
            group = length if group == k else gcd(group, length)
    return group


def _scales(weight: _Weight, group: int, builder: Builder) -> tuple[list[Value], int]:
    """The scales of groups [groups, n], of floats, and 0; or as bytes, their factors
    [blocks, n], and the steps of a block."""
    wide = _small(weight.scales, group, builder)
    inner = _weight_of(wide, builder)
    groups, _ = static_shape(wide)
    if inner is not None and inner.zeros is None and inner.middle is None:
        length = _group_of(inner, groups)
        if length > 1:
            factors = _small(_narrowed(inner.scales, builder), length, builder)
            return [inner.codes, factors], group * length
    return [_small(_narrowed(weight.scales, builder), group, builder)], 0


def _small(x: Repeats, group: int, builder: Builder) -> Value:
    """The tensor as [groups, n]."""
    k, n = x.shape
    source = x.source
    length = min(x.lengths[0], k)
    source = repeated(source, 0, -(-length // group), -(-k // group), builder)
    return repeated(source, 1, min(x.lengths[1], n), n, builder)


def _narrowed(x: Repeats, builder: Builder) -> Repeats:
    """The same numbers in the narrower dtype that they were converted from, if they were."""
    element = tensor_type(x.source).dtype
    root, is_negated = x.source, False
    while (op := defined_by(root, "reshape", "transpose", "slice", "neg", "convert")) is not None:
        root = op.operands[0]
        own = tensor_type(root).dtype
        is_negated |= op.name == "neg"  # of an integer it may have no room
        if own is not element:
            is_half = own.is_float and own.bits == 16 and element.bits > 16
            if is_half or (own.is_integer and own.bits == 8 and not is_negated):
                return replace(x, source=builder.value("convert", x.source, dtype=own))
            return x
    return x


def _code_panels(weight: _Weight, bits: int, builder: Builder) -> Value:
    """Codes [k, n] as [panels, lines, 16, 4]: 32 bits of a column are steps of K, four of them in
    the low bits of the four bytes, the next four above, and so on."""
    codes, (k, n) = weight.codes, static_shape(weight.codes)
    # Columns that are rows where they come from become words there, and then move as such.
    turned = defined_by(codes, "transpose")
    codes = turned.operands[0] if turned else codes
    is_wide = tensor_type(codes).dtype is not CODE  # the bits above are the sign
    if is_wide:
        codes = builder.value("bitcast", codes, dtype=CODE)
    added = (1 << (bits - 1)) - (weight.middle or 0) if weight.kind == "i" else 0
    if added:
        codes = builder.value("add", codes, builder.full(added, CODE, static_shape(codes)))
    planes, panels = code_planes(bits), -(-n // PANEL)
    runs, lines = -(-k * planes[-1] // 32), code_lines(bits, k)
    k, n = runs * 32 // planes[-1], panels * PANEL
    codes = _padded(codes, (n, k) if turned else (k, n), builder)
    if turned and len(planes) > 1:  # codes of one plane are made where words are
        codes = builder.value("reshape", codes, shape=(n, k // 4, 4))
        codes = builder.value("reinterpret", codes, dtype=_WORD)
    steps = (n, k // tensor_type(codes).dtype.bytes, 1)
    codes = builder.value("reshape", codes, shape=steps if turned else (1, k, n))
    words: list[Value] = []
    at = 0
    for width in planes:
        others = width < bits or (is_wide and bits < 8)
        words.insert(0, _words(codes, at, width, others, runs, builder))
        at += width
    total = words[0] if len(words) == 1 else builder.value("concatenate", *words, axis=2)
    if not turned:
        total = builder.value("reshape", total, shape=(lines, 4, panels, PANEL))
        return builder.value("transpose", total, permutation=(2, 0, 3, 1))
    if tensor_type(total).dtype is CODE:
        total = builder.value("reshape", total, shape=(panels, PANEL, lines, 4))
        total = builder.value("reinterpret", total, dtype=_WORD)
    total = builder.value("reshape", total, shape=(panels, PANEL, lines))
    total = builder.value("transpose", total, permutation=(0, 2, 1))
    return builder.value("reinterpret", total, dtype=CODE)


def _words(codes: Value, at: int, bits: int, others: bool, runs: int, builder: Builder) -> Value:
    """So many bits of codes [rows, k, columns] from one on, in the bytes of words
    [rows, runs, words, 4, columns]; of words of four codes each [rows, k / 4, 1] as such, with 1
    for 4. `others`: of the codes may be set, too."""
    element = tensor_type(codes).dtype
    rows, k, columns = static_shape(codes)
    four, per = 4 // element.bytes, 8 // bits
    count = k // (four * per * runs)
    codes = builder.value("reshape", codes, shape=(rows, runs * count, per, four, columns))
    shape = (rows, runs * count, four, columns)
    mask = int.from_bytes(bytes([((1 << bits) - 1) << at] * element.bytes), "little")
    total: Value | None = None
    for place in range(per):
        start, limit = (0, 0, place, 0, 0), (rows, runs * count, place + 1, four, columns)
        part = builder.value("slice", codes, start=start, limit=limit)
        part = builder.value("reshape", part, shape=shape)
        up = place * bits - at
        if others:
            part = builder.value("and", part, builder.full(mask, element, shape))
        if up:
            name = "shift_left" if up > 0 else "shift_right_logical"
            part = builder.value(name, part, builder.full(abs(up), element, shape))
        total = part if total is None else builder.value("or", total, part)
    assert total is not None
    return builder.value("reshape", total, shape=(rows, runs, count, four, columns))


def _scale_panels(x: Value, builder: Builder) -> Value:
    """[groups, n] as [panels, groups, 16]."""
    groups, n = static_shape(x)
    panels = -(-n // PANEL)
    x = _padded(x, (groups, panels * PANEL), builder)
    x = builder.value("reshape", x, shape=(groups, panels, PANEL))
    return builder.value("transpose", x, permutation=(1, 0, 2))


def _padded(x: Value, shape: tuple[int, int], builder: Builder) -> Value:
    own = static_shape(x)
    if own == shape:
        return x
    high = (shape[0] - own[0], shape[1] - own[1])
    zero = builder.constant(0, tensor_type(x).dtype)
    return builder.value("pad", x, zero, low=(0, 0), high=high)

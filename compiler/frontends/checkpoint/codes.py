"""How quantised weights lie in folders: what tensors a product's weight has in each form, and its
numbers as graph ops on their bytes.

A form says what parts there are, and what shape they give. Its numbers - codes, less zeros, times
scales - are what `fuse_scales` keeps packed in panels; nothing is decoded in this file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import gcd, prod
from typing import ClassVar

from ingot.compiler.frontends.gguf.blocks import TWICE_F4, decode
from ingot.compiler.frontends.gguf.fields import Fields
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.graph.forms.repeats import repeated
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import known_dim, known_dims
from ingot.hal.gguf import GgufTensor
from ingot.hal.spec import dtype

__all__ = [
    "ORDER",
    "Awq",
    "Floats",
    "Form",
    "FourBits",
    "Gptq",
    "Integers",
    "Mxfp4",
    "Packed",
    "Parts",
    "Ternary",
    "Values",
    "WrongPartsError",
]

Parts = Mapping[str, GgufTensor]
Values = Mapping[str, Value]
Shape = tuple[int, ...]

_FLOATS = ("F32", "F16", "BF16")
_WORDS = ("I32",)
ORDER = "order"
"""The part that gives each step of K its group, whatever a form calls it."""


class WrongPartsError(Exception):
    """The tensors of a weight do not fit together; the text says how."""


class Form:
    """A way in which weights [..., n, k] lie as several tensors."""

    title: ClassVar[str]
    needed: ClassVar[Mapping[str, tuple[str, ...]]]
    """Names of parts behind the module's, the first one telling the form, and their dtypes."""
    optional: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    unread: ClassVar[tuple[str, ...]] = ()
    """Names of tensors that say nothing more."""
    weight: ClassVar[str] = ".weight"
    """What the float weight has behind the module's name."""
    mark: ClassVar[str] = "."
    """What stands between the module's name and a part's."""

    def settled(self, parts: Parts) -> Form:
        """The form of these parts, some of which may tell more than config.json does.
        WrongPartsError: what they tell is wrong."""
        return self

    def shape(self, parts: Parts) -> Shape:
        """[..., n, k]. WrongPartsError: the parts do not fit together."""
        raise NotImplementedError

    def used(self, parts: Parts) -> tuple[str, ...]:
        """The parts whose bytes count."""
        raise NotImplementedError

    def order(self, parts: Parts) -> str | None:
        """The part by whose groups steps of K are to be sorted; None: they are in order."""
        return None

    def numbers(self, values: Values, parts: Parts, f: Fields) -> Value:
        """f32[..., n, k], steps of K sorted by their groups, of the parts that are used."""
        raise NotImplementedError


def _expect(name: str, parts: Parts, shape: Shape) -> None:
    found = parts[name].shape
    if found != shape:
        raise WrongPartsError(f"its {name} has the shape {list(found)}, expected {list(shape)}")


def _groups(name: str, count: int, k: int) -> None:
    if count < 1 or k % count:
        raise WrongPartsError(f"its {name} has {count} groups, which do not divide {k} elements")


def floats(name: str, values: Values, parts: Parts, f: Fields) -> Value:
    """A part of floats, as f32."""
    return decode(parts[name].type.name, values[name], f.b)


def wide(x: Value, shape: Shape, block: tuple[int, int], f: Fields) -> Value:
    """x with each element of its last two axes as often as the block says, cut to the shape."""
    for axis, length in enumerate(block, len(shape) - 2):
        x = repeated(x, axis, length, shape[axis], f.b)
    return x


def scaled(
    codes: Value, scales: Value, zeros: Value | int, f: Fields, block: tuple[int, int] | None = None
) -> Value:
    """(codes [..., n, k] - zeros) * scales, of which the latter count for blocks of elements: of
    equal lengths unless they are given."""
    shape = known_dims(tensor_type(codes).shape)

    def spread(x: Value) -> Value:
        own = known_dims(tensor_type(x).shape)
        lengths = block or (shape[-2] // own[-2], shape[-1] // own[-1])
        return wide(x, shape, lengths, f)

    x = f.float(codes)
    if isinstance(zeros, Value):
        x = f.b.value("sub", x, spread(f.float(zeros)))
    elif zeros:
        x = f.apply("sub", x, zeros)
    return f.b.value("mul", x, spread(scales))


def words_of(x: Value, f: Fields) -> Value:
    """The bytes of words [..., rows, 4 * columns] that lie below each other, in the order of a
    column: u8[..., columns, 4 * rows]."""
    *outer, rows, length = known_dims(tensor_type(x).shape)
    x = f.reshape(x, (*outer, rows, length // 4, 4))
    rank = len(outer) + 3
    order = (*range(rank - 3), rank - 2, rank - 3, rank - 1)
    x = f.b.value("transpose", x, permutation=order)
    return f.reshape(x, (*outer, length // 4, rows * 4))


def permutation(groups: Value, f: Fields) -> Value:
    """The steps of K, those of a group side by side: i64[k] of the groups' bytes u8[4 * k]."""
    (length,) = known_dims(tensor_type(groups).shape)
    x = f.b.value("reinterpret", f.reshape(groups, (length // 4, 4)), dtype=dtype("i32"))
    options = {"k": length // 4, "axis": 0, "largest": False, "dtype": dtype("i64")}
    places: Value = f.b.op("top_k", x, **options)[1]
    return places


def _in_order(codes: Value, values: Values, f: Fields) -> Value:
    """The codes with steps of K sorted, if an order is given."""
    if ORDER not in values:
        return codes
    axis = tensor_type(codes).rank - 1
    return f.b.value("take", codes, values[ORDER], axis=axis, mode="clamp")


@dataclass(frozen=True)
class Gptq(Form):
    """Words hold codes of consecutive steps of K; zeros lie beside each other in words, one less
    than they are in the first version. Symmetric weights have the middle as zero."""

    bits: int
    is_symmetric: bool
    has_order: bool
    is_first_version: bool

    title = "GPTQ"
    needed: ClassVar = {"qweight": _WORDS, "scales": _FLOATS}
    optional: ClassVar = {"qzeros": _WORDS, "g_idx": _WORDS}

    def shape(self, parts: Parts) -> Shape:
        *outer, rows, n = parts["qweight"].shape
        k = rows * 32 // self.bits
        groups = parts["scales"].shape[-2] if len(parts["scales"].shape) > 1 else 0
        _groups("scales", groups, k)
        _expect("scales", parts, (*outer, groups, n))
        if not self.is_symmetric:
            if "qzeros" not in parts:
                raise WrongPartsError("its qzeros are missing, and it is not symmetric")
            _expect("qzeros", parts, (*outer, groups, n * self.bits // 32))
        if self.order(parts):
            if outer:
                raise WrongPartsError("its experts have orders of their own (desc_act)")
            _expect("g_idx", parts, (k,))
        return (*outer, n, k)

    def used(self, parts: Parts) -> tuple[str, ...]:
        order = ("g_idx",) if self.order(parts) else ()
        return ("qweight", "scales", *(() if self.is_symmetric else ("qzeros",)), *order)

    def order(self, parts: Parts) -> str | None:
        has_groups = parts["scales"].shape[-2] > 1
        return "g_idx" if self.has_order and has_groups and "g_idx" in parts else None

    def numbers(self, values: Values, parts: Parts, f: Fields) -> Value:
        codes = f.stream(words_of(values["qweight"], f), self.bits)
        zeros: Value | int = 1 << (self.bits - 1)
        if not self.is_symmetric:
            zeros = f.stream(values["qzeros"], self.bits)
            if self.is_first_version:
                zeros = f.apply("and", f.apply("add", zeros, 1), (1 << self.bits) - 1)
            zeros = f.swapped(zeros)
        scales = f.swapped(floats("scales", values, parts, f))
        return scaled(_in_order(codes, values, f), scales, zeros, f)


@dataclass(frozen=True)
class Awq(Form):
    """Words hold eight columns of 4 bits, even ones in front of odd ones; zeros lie as codes."""

    has_zeros: bool

    title = "AWQ"
    needed: ClassVar = {"qweight": _WORDS, "scales": _FLOATS}
    optional: ClassVar = {"qzeros": _WORDS}

    def shape(self, parts: Parts) -> Shape:
        *outer, k, words = parts["qweight"].shape
        groups = parts["scales"].shape[-2] if len(parts["scales"].shape) > 1 else 0
        _groups("scales", groups, k)
        _expect("scales", parts, (*outer, groups, words * 8))
        if self.has_zeros:
            if "qzeros" not in parts:
                raise WrongPartsError("its qzeros are missing")
            _expect("qzeros", parts, (*outer, groups, words))
        return (*outer, words * 8, k)

    def used(self, parts: Parts) -> tuple[str, ...]:
        return ("qweight", "scales", *(("qzeros",) if self.has_zeros else ()))

    def numbers(self, values: Values, parts: Parts, f: Fields) -> Value:
        zeros: Value | int = 8
        if self.has_zeros:
            zeros = f.swapped(self._columns(values["qzeros"], f))
        codes = f.swapped(self._columns(values["qweight"], f))
        return scaled(codes, f.swapped(floats("scales", values, parts, f)), zeros, f)

    def _columns(self, x: Value, f: Fields) -> Value:
        """The codes of words [..., rows, 4 * words], in order: the halves of the four bytes are
        columns 0 and 2, 4 and 6, 1 and 3, 5 and 7."""
        *outer, rows, length = known_dims(tensor_type(x).shape)
        x = f.fields(f.reshape(x, (*outer, rows, length // 4, 4)), 2, 4)
        x = f.reshape(x, (*outer, rows, length // 4, 2, 2, 2))
        rank = len(outer) + 5
        order = (*range(rank - 3), rank - 1, rank - 3, rank - 2)
        return f.reshape(f.b.value("transpose", x, permutation=order), (*outer, rows, length * 2))


@dataclass(frozen=True)
class Packed(Form):
    """compressed-tensors' pack-quantized: codes of a row one behind another, half of their range
    more; zeros as columns of such codes."""

    bits: int
    has_zeros: bool
    has_order: bool

    title = "pack-quantized"
    needed: ClassVar = {"weight_packed": _WORDS, "weight_scale": _FLOATS}
    optional: ClassVar = {"weight_zero_point": ("I32", "I8"), "weight_g_idx": _WORDS}
    unread: ClassVar = ("weight_shape", "input_scale", "input_zero_point")

    def shape(self, parts: Parts) -> Shape:
        *outer, n, words = parts["weight_packed"].shape
        k = words * 32 // self.bits
        groups = parts["weight_scale"].shape[-1]
        _groups("weight_scale", groups, k)
        _expect("weight_scale", parts, (*outer, n, groups))
        if self.has_zeros:
            if "weight_zero_point" not in parts:
                raise WrongPartsError("its weight_zero_point is missing, and it is not symmetric")
            is_packed = parts["weight_zero_point"].type.name == "I32"
            rows = -(-n * self.bits // 32) if is_packed else n
            _expect("weight_zero_point", parts, (*outer, rows, groups))
        if self.order(parts):
            if outer:
                raise WrongPartsError("its experts have orders of their own (actorder)")
            _expect("weight_g_idx", parts, (k,))
        return (*outer, n, k)

    def used(self, parts: Parts) -> tuple[str, ...]:
        zeros = ("weight_zero_point",) if self.has_zeros else ()
        order = ("weight_g_idx",) if self.order(parts) else ()
        return ("weight_packed", "weight_scale", *zeros, *order)

    def order(self, parts: Parts) -> str | None:
        has_groups = parts["weight_scale"].shape[-1] > 1
        return "weight_g_idx" if self.has_order and has_groups and "weight_g_idx" in parts else None

    def numbers(self, values: Values, parts: Parts, f: Fields) -> Value:
        codes = f.stream(values["weight_packed"], self.bits)
        zeros: Value | int = 1 << (self.bits - 1)
        if self.has_zeros:
            n = known_dim(tensor_type(codes).shape[-2])
            zeros = self._zeros(values["weight_zero_point"], parts, n, f)
        scales = floats("weight_scale", values, parts, f)
        return scaled(_in_order(codes, values, f), scales, zeros, f)

    def _zeros(self, x: Value, parts: Parts, n: int, f: Fields) -> Value:
        if parts["weight_zero_point"].type.name == "I8":
            return f.apply("add", x, 1 << (self.bits - 1))
        x = f.stream(words_of(x, f), self.bits)
        return f.swapped(f.part(x, 0, n))


@dataclass(frozen=True)
class Floats(Form):
    """Numbers of f8e4m3fn, with one scale, one for each row, or one for each block of so many rows
    and columns."""

    block: tuple[int, int]

    title = "numbers of f8e4m3fn"
    main: ClassVar[str] = "weight"
    needed: ClassVar = {"weight": ("F8_E4M3",)}
    optional: ClassVar = {"weight_scale": _FLOATS, "weight_scale_inv": _FLOATS}
    unread: ClassVar[tuple[str, ...]] = ("input_scale", "activation_scale")

    def shape(self, parts: Parts) -> Shape:
        shape = parts[self.main].shape
        if len(parts) < 2:
            raise WrongPartsError(f"its {' or '.join(self.optional)} is missing")
        self._scales(parts)
        return shape

    def used(self, parts: Parts) -> tuple[str, ...]:
        return (self.main, next(each for each in parts if each != self.main))

    def _scales(self, parts: Parts) -> tuple[Shape, tuple[int, int]]:
        """The shape of the scales, and of the blocks that they count for."""
        (*outer, n, k), (_, name) = parts[self.main].shape, self.used(parts)
        own, shape = parts[name].shape, parts[name].shape
        length, count = prod(own), max(prod(outer), 1)
        rows, columns = self.block
        blocks = (*outer, -(-n // rows), -(-k // columns))
        if own == blocks:
            return blocks, (min(rows, n), min(columns, k))
        if length == count:
            return (*outer, 1, 1), (n, k)
        if length == count * n and own[-1] in (1, n):
            return (*outer, n, 1), (1, k)
        raise WrongPartsError(
            f"its {name} has the shape {list(shape)}, expected one scale, one for each of {n} rows "
            f"or {list(blocks)} of blocks"
        )

    def numbers(self, values: Values, parts: Parts, f: Fields) -> Value:
        (_, name), (shape, block) = self.used(parts), self._scales(parts)
        scales = f.reshape(floats(name, values, parts, f), shape)
        x = f.b.value("bitcast", values[self.main], dtype=dtype("f8e4m3fn"))
        return scaled(x, scales, 0, f, block)


@dataclass(frozen=True)
class Mxfp4(Form):
    """Pairs of f4e2m1fn in bytes, 32 numbers of a row with one exponent."""

    title = "MXFP4"
    needed: ClassVar = {"blocks": ("U8",), "scales": ("U8",)}
    weight = ""
    mark = "_"

    def shape(self, parts: Parts) -> Shape:
        shape = parts["blocks"].shape
        if len(shape) < 3 or shape[-1] != _MX_BYTES:
            raise WrongPartsError(
                f"its blocks have the shape {list(shape)}, expected rows of groups of {_MX_BYTES} "
                "bytes"
            )
        *outer, n, groups, _ = shape
        _expect("scales", parts, (*outer, n, groups))
        return (*outer, n, groups * 2 * _MX_BYTES)

    def used(self, parts: Parts) -> tuple[str, ...]:
        return ("blocks", "scales")

    def numbers(self, values: Values, parts: Parts, f: Fields) -> Value:
        *outer, groups, length = known_dims(tensor_type(values["blocks"]).shape)
        bytes = f.reshape(values["blocks"], (*outer, groups * length))
        codes = f.of_table(f.stream(bytes, 4), TWICE_F4)
        return scaled(codes, f.half_power(values["scales"]), 0, f)


@dataclass(frozen=True)
class FourBits(Form):
    """bitsandbytes' nf4 and fp4: pairs of codes of all rows one behind another, the first high,
    that are places in a table; runs of `block` elements have a scale, which may be codes, too."""

    rows: Shape = ()
    block: int = 0
    table: tuple[float, ...] = ()
    scale_block: int = 0  # scales that share a factor; 0: they are floats
    offset: float = 0.0  # of scales that are codes

    title = "codes of 4 bits"
    needed: ClassVar = {
        "weight": ("U8",), "weight.absmax": ("F32", "U8"), "weight.quant_map": ("F32",),
    }  # fmt: skip
    optional: ClassVar = {
        "weight.nested_absmax": ("F32",), "weight.nested_quant_map": ("F32",),
        **{f"weight.quant_state.bitsandbytes__{kind}": ("U8",) for kind in ("nf4", "fp4")},
    }  # fmt: skip

    def settled(self, parts: Parts) -> Form:
        state = next((parts[each] for each in parts if "quant_state" in each), None)
        try:
            told = {} if state is None else json.loads(state.data[:_MAX_STATE].tobytes())
            (n, k), block = told["shape"], told["blocksize"]
            table = tuple(float(each) for each in parts["weight.quant_map"].rows.reshape(-1))
            is_coded = parts["weight.absmax"].type.name == "U8"
            scale_block = told["nested_blocksize"] if is_coded else 0
            offset = float(told["nested_offset"]) if is_coded else 0.0
            sizes = (n, k, block, scale_block) if is_coded else (n, k, block)
            if not all(type(each) is int and each > 0 for each in sizes):
                raise ValueError("sizes are positive integers")
            if max(sizes[2:]) > _MAX_BLOCK:
                raise ValueError(f"blocks have at most {_MAX_BLOCK} elements")
            if k % 2:
                raise ValueError(f"rows have {k} elements, which are no pairs")
            if len(table) != 16 or not all(abs(each) <= 1 for each in table):
                raise ValueError("the table has 16 numbers of at most 1")
            if not abs(offset) < _GREATEST:
                raise ValueError("the offset is a number")
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise WrongPartsError(f"what is told of its codes is wrong: {error}") from None
        return FourBits((n, k), block, table, scale_block, offset)

    def shape(self, parts: Parts) -> Shape:
        n, k = self.rows
        scales = -(-n * k // self.block)
        _expect("weight", parts, (n * k // 2, 1))
        _expect("weight.absmax", parts, (scales,))
        if self.scale_block:
            for name, length in zip(
                self.used(parts)[2:], (-(-scales // self.scale_block), 256), strict=True
            ):
                if name not in parts:
                    raise WrongPartsError(f"its {name} is missing")
                _expect(name, parts, (length,))
        return self.rows

    def used(self, parts: Parts) -> tuple[str, ...]:
        nested = ("weight.nested_absmax", "weight.nested_quant_map") if self.scale_block else ()
        return ("weight", "weight.absmax", *nested)

    def numbers(self, values: Values, parts: Parts, f: Fields) -> Value:
        """Numbers of the table are those of two tables of i8: the second has what the first
        rounds away."""
        n, k = self.rows
        bytes = f.reshape(values["weight"], (n, k // 2))
        high = f.apply("shift_right_logical", bytes, 4)
        codes = f.stream(f.b.value("or", high, f.apply("shift_left", bytes, 4)), 4)
        run = gcd(k, self.block)  # elements of a row with one scale
        scales = repeated(self._scales(values, f), 0, self.block // run, n * k // run, f.b)
        scales = f.reshape(scales, (n, k // run))
        coarse = [round(each * _TOP) for each in self.table]
        fine = [
            round((c - each * _TOP) * 2 * _TOP) for c, each in zip(coarse, self.table, strict=True)
        ]
        first, rest = (
            scaled(f.of_table(codes, numbers), f.apply("div", scales, unit), 0, f)
            for numbers, unit in ((coarse, _TOP), (fine, 2 * _TOP * _TOP))
        )
        return f.b.value("sub", first, rest)

    def _scales(self, values: Values, f: Fields) -> Value:
        """f32[scales]."""
        scales = values["weight.absmax"]
        if not self.scale_block:
            return scales
        (count,) = known_dims(tensor_type(scales).shape)
        places = f.b.value("convert", scales, dtype=dtype("i32"))
        shares = f.b.value("take", values["weight.nested_quant_map"], places, axis=0, mode="clamp")
        factors = repeated(values["weight.nested_absmax"], 0, self.scale_block, count, f.b)
        return f.apply("add", f.b.value("mul", shares, factors), self.offset)


_TOP = 127
"""The greatest number of a table of i8."""

_GREATEST = 1e30
_MAX_STATE = 1 << 16  # bytes that tell of codes of 4 bits
_MAX_BLOCK = 4096  # elements, or scales

_MX_BYTES = 16
"""Bytes of a block."""


@dataclass(frozen=True)
class Integers(Form):
    """Codes of 8 bits, signed, with a scale for each row, for groups of it, or one; `divisor`: what
    scales are divided by."""

    scale: str
    divisor: int = 1

    title = "codes of 8 bits"
    main: ClassVar[str] = "weight"
    zeros: ClassVar[str] = "weight_zero_point"
    needed: ClassVar = {"weight": ("I8",)}
    optional: ClassVar = {
        "weight_scale": _FLOATS, "SCB": _FLOATS, "weight_zero_point": ("I8",),
    }  # fmt: skip
    unread: ClassVar[tuple[str, ...]] = ("weight_format", "input_scale", "input_zero_point")

    def shape(self, parts: Parts) -> Shape:
        *outer, n, k = shape = parts[self.main].shape
        if self.scale not in parts:
            raise WrongPartsError(f"its {self.scale} is missing")
        length = prod(parts[self.scale].shape) // max(prod(outer), 1)
        if length != 1:
            _groups(self.scale, length // n if length % n == 0 else 0, k)
        if self.zeros in parts:
            _expect(self.zeros, parts, parts[self.scale].shape)
        return shape

    def used(self, parts: Parts) -> tuple[str, ...]:
        zeros = (self.zeros,) if self.zeros in parts else ()
        return (self.main, self.scale, *zeros)

    def numbers(self, values: Values, parts: Parts, f: Fields) -> Value:
        *outer, n, _ = known_dims(tensor_type(values[self.main]).shape)

        def grouped(x: Value) -> Value:
            length = prod(known_dims(tensor_type(x).shape)) // max(prod(outer), 1)
            return f.reshape(x, (*outer, *((1, 1) if length == 1 else (n, length // n))))

        scales = grouped(floats(self.scale, values, parts, f))
        if self.divisor != 1:
            scales = f.apply("div", scales, self.divisor)
        codes, zeros = self.codes(values, f)
        return scaled(codes, scales, grouped(zeros) if isinstance(zeros, Value) else zeros, f)

    def codes(self, values: Values, f: Fields) -> tuple[Value, Value | int]:
        """The codes, and the zeros that they have in the same range."""
        zeros = f.signed(values[self.zeros]) if self.zeros in values else 0
        return f.signed(values[self.main]), zeros


@dataclass(frozen=True)
class Ternary(Form):
    """Codes -1, 0 and 1: of each byte u8[n / 4, k] that of a row of each quarter, the first one in
    the low bits, one more; with one scale, by which they are multiplied or `divides` them."""

    divides: bool

    title = "codes of -1, 0 and 1"
    needed: ClassVar = {"weight": ("U8",), "weight_scale": _FLOATS}

    def shape(self, parts: Parts) -> Shape:
        if prod(parts["weight_scale"].shape) != 1:
            _expect("weight_scale", parts, (1,))
        *outer, rows, k = parts["weight"].shape
        if outer:
            _expect("weight", parts, (rows, k))
        return 4 * rows, k

    def used(self, parts: Parts) -> tuple[str, ...]:
        return ("weight", "weight_scale")

    def numbers(self, values: Values, parts: Parts, f: Fields) -> Value:
        rows, k = known_dims(tensor_type(values["weight"]).shape)
        codes = f.b.value("transpose", f.fields(values["weight"], 4, 2), permutation=(1, 0, 2))
        scale = f.reshape(floats("weight_scale", values, parts, f), (1, 1))
        if self.divides:
            scale = f.b.value("div", f.b.full(1.0, "f32", (1, 1)), scale)
        return scaled(f.reshape(codes, (4 * rows, k)), scale, 1, f)

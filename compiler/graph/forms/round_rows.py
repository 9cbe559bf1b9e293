"""Rows of activations rounded to 8 bits: with `precision="int8"`, what meets a coded weight.

A group of steps of K has the weight's length. Its numbers become round(x / scale), scale being the
greatest magnitude / 127, so none is off by more than 1/254 of that. `dot_scaled` multiplies the
codes; all else of the program sees the rows as they were.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.dequantised import Refused, as_signed, is_dequantised, read_rows
from ingot.compiler.graph.ops import DotCoded, DotScaled
from ingot.compiler.graph.rewriter import rewrite, tensor_ops
from ingot.compiler.ir import Module, Op, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import known_dim
from ingot.hal.errors import InvalidArgument
from ingot.hal.spec import DType, dtype

__all__ = [
    "AS_FLOATS",
    "ROUNDED",
    "RoundedRows",
    "expand_scaled",
    "has_tiles",
    "part_of_group",
    "precision_of",
    "quantised_rows",
    "rounded_rows",
    "set_precision",
    "why_not_rounded",
]

_PRECISIONS = ("f32", "int8", "bf16", "f16", "bf16x3", "bf16x6")
ROUNDED = "rounded_rows"
"""Attribute of a module: how many products have rounded rows."""

AS_FLOATS = "as_floats"
"""Attribute of a module for one target: layers whose rows of codes it multiplies as floats."""

_PRECISION, _TILES = "precision", "tiles"
_GREATEST, _LONGEST_GROUP, _PART = 127, 256, 128
_LONGEST_SUM = ((1 << 31) - 1) // (128 * 255)
"""Products of codes whose sums always fit 32 bits."""
_LEAST = 1e-30
"""Groups of smaller numbers are zeros: beyond, 127 / x would not be finite."""


def set_precision(module: Module, precision: str, tiles: bool = False) -> None:
    """Note what activations become when they meet weights: bf16, or 8 bits where weights are codes
    with scales of groups. `tiles`: the module is also for processors that multiply tiles of such.
    InvalidArgument: that is not known."""
    if precision not in _PRECISIONS:
        known = ", ".join(map(repr, _PRECISIONS))
        raise InvalidArgument(f"precision={precision!r} is not known; there are {known}")
    if precision != _PRECISIONS[0]:
        module.attributes[_PRECISION] = precision
        module.attributes[ROUNDED] = 0
    if tiles:
        module.attributes[_TILES] = True


def precision_of(module: Module) -> str:
    """What `set_precision` noted."""
    return str(module.attributes.get(_PRECISION, _PRECISIONS[0]))


def has_tiles(module: Module) -> bool:
    """Whether `set_precision` noted tiles."""
    return bool(module.attributes.get(_TILES))


def part_of_group(module: Module, group: int) -> int:
    """In groups of how many steps of K a weight is taken whose scale is for so many: activations
    that are to be rounded need shorter ones than all of a long row."""
    is_long = group > _LONGEST_GROUP and group % _PART == 0
    return _PART if is_long and precision_of(module) == "int8" else group


def why_not_rounded(module: Module, rows: Value, group: int, coding: DType) -> str | None:
    """Why rows of a product with such groups of codes stay as they are, "" where nobody asked for
    more; None: they are to be rounded."""
    if precision_of(module) != "int8":
        return ""
    if coding.is_float:
        return f"weights of {coding} are multiplied as floats"
    k = known_dim(tensor_type(rows).shape[-1])
    if k % group or group % 4:
        return f"groups of {group} do not divide rows of {k} in words of 4"
    if group > _LONGEST_GROUP:
        return f"a scale for {group} elements is too coarse for activations of 8 bits"
    return None


@dataclass(frozen=True)
class RoundedRows:
    """i8[..., k], f32[..., groups], and the sums of the codes of each group, f32[..., groups]."""

    codes: Value
    scales: Value
    sums: Value

    def numbers_of_sums(self, builder: Builder) -> Value:
        """The sums of the groups' numbers, f32[..., groups]."""
        return builder.value("mul", self.sums, self.scales)


def rounded_rows(rows: Value, group: int, builder: Builder) -> RoundedRows:
    """The rows [..., k] as codes with a scale for each group."""
    outer, k = tensor_type(rows).shape[:-1], known_dim(tensor_type(rows).shape[-1])
    x = builder.value("convert", rows, dtype=dtype("f32"))
    x = builder.value("reshape", x, shape=(*outer, k // group, group))
    shape, small = tensor_type(x).shape, (*outer, k // group)
    most = builder.value("reduce", builder.value("abs", x), axes=(len(outer) + 1,), kind="max")
    most = builder.value("max", builder.full(_LEAST, "f32", small), most)
    greatest = builder.full(_GREATEST, "f32", small)
    times = builder.value("div", greatest, most)
    times = builder.value("broadcast", times, shape=shape, dimensions=tuple(range(len(small))))
    numbers = builder.value("round_even", builder.value("mul", x, times))
    codes = builder.value("convert", numbers, dtype=dtype("i8"))
    sums = builder.value("reduce", numbers, axes=(len(outer) + 1,), kind="add")
    codes = builder.value("reshape", codes, shape=(*outer, k))
    return RoundedRows(codes, builder.value("div", most, greatest), sums)


def quantised_rows(
    rows: Value, group: int, coding: DType, builder: Builder
) -> tuple[RoundedRows, Value | None] | None:
    """Rows [..., k] that the program itself has as codes with one scale each, and what their zero
    points stand for, f32[...]; None: they are not, or the weight's codes or groups are none of
    `dot_scaled`."""
    k = known_dim(tensor_type(rows).shape[-1])
    is_taken = not (coding.is_float or k % group or group % 4 or group > _LONGEST_SUM)
    if not is_taken or not is_dequantised(rows):
        return None
    try:
        found = read_rows(rows, (tensor_type(rows).rank - 1,), builder)
    except Refused:
        return None
    if found is None or found.scale is None:
        return None
    scale, found = found.scale, as_signed(found, builder)
    outer = tensor_type(rows).shape[:-1]
    small = (*outer, k // group)
    axes = tuple(range(len(outer))) if tensor_type(scale).rank else ()
    scales = builder.value("broadcast", scale, shape=small, dimensions=axes)
    numbers = builder.value("convert", found.codes, dtype=dtype("f32"))
    numbers = builder.value("reshape", numbers, shape=(*small, group))
    sums = builder.value("reduce", numbers, axes=(len(small),), kind="add")
    zeros = None
    if found.zero is not None:
        zeros = builder.value("convert", found.zero, dtype=dtype("f32"))
        zeros = builder.value("mul", builder.broadcast_to(zeros, outer),
                              builder.broadcast_to(scale, outer))  # fmt: skip
    return RoundedRows(found.codes, scales, sums), zeros


def expand_scaled(module: Module) -> Module:
    """Make products with rounded rows products of floats, for targets that have no instruction
    for products of bytes; returns the module, whose attribute AS_FLOATS names the layers."""
    layers: dict[str, None] = {}
    for function in module.functions.values():
        found = (op for op in tensor_ops(function.block) if isinstance(op.attributes, DotScaled))
        layers.update((op.location, None) for op in found)
        rewrite(function.block, _expand)
    if layers:
        module.attributes[AS_FLOATS] = tuple(layers)
    return module


def _expand(op: Op, builder: Builder) -> Sequence[Value] | None:
    if not isinstance(op.attributes, DotScaled):
        return None
    a, codes, scales, a_scales, a_sums, *rest = op.operands
    others, minima = op.attributes.without_minima(rest)
    shape, small = tensor_type(a).shape, tensor_type(a_scales).shape
    grouped = (*small, op.attributes.group)
    x = builder.value("convert", a, dtype=dtype("f32"))
    x = builder.value("reshape", x, shape=grouped)
    wide = builder.value("broadcast", a_scales, shape=grouped, dimensions=tuple(range(len(small))))
    x = builder.value("reshape", builder.value("mul", x, wide), shape=shape)
    attributes = DotCoded(**op.attributes.of_weight)
    total = builder.append("dot_coded", (x, codes, scales, *others), (), attributes).result
    if minima:
        bits, group = op.attributes.minima
        sums = builder.value("mul", a_sums, a_scales)
        less = builder.value(
            "dot_coded", sums, *minima,
            n=op.attributes.n, coding=dtype(f"u{bits}"), group=group, dtype=op.attributes.dtype,
        )  # fmt: skip
        total = builder.value("sub", total, less)
    return [total]

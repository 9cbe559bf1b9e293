"""Rows of contractions of codes: dot_coded and dot_scaled, whose weights are codes in panels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, TypeVar

from ingot.compiler.graph.ops.contraction import PANEL
from ingot.compiler.graph.ops.table import OpRow, RuleError, dims_text, register, require
from ingot.compiler.ir import TensorType
from ingot.compiler.ir.attributes import LEFT_OUT, Attributes, Ints, by_operands
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, ceildiv
from ingot.hal.spec import DType

__all__ = ["FLOAT_CODES", "DotCoded", "DotScaled", "code_lines", "code_planes", "code_steps"]

_T = TypeVar("_T")


def _dtype_of(x: TensorType, *_: TensorType) -> DType:
    return x.dtype


FLOAT_CODES = ("f8e4m3fn",)
"""Floats that codes may be. What is NaN there counts as 480."""


def code_planes(bits: int) -> tuple[int, ...]:
    """The parts of codes of 2, 3, 4, 5, 6 or 8 bits that lie in words of their own, low bits
    first: of numbers of bits that divide those of a byte."""
    return {3: (2, 1), 5: (4, 1), 6: (4, 2)}.get(bits, (bits,))


def code_steps(bits: int) -> int:
    """K-steps whose codes share a word of their low bits in a column of a panel."""
    return 32 // code_planes(bits)[0]


def code_lines(bits: int, k: int) -> int:
    """Words of the k codes of a column: in front of every few words of low bits the word of the
    upper bits of their steps, if there is one."""
    planes = code_planes(bits)
    steps = 32 // planes[-1]
    return -(-k // steps) * (steps * bits // 32)


@dataclass(frozen=True, kw_only=True)
class DotCoded(Attributes):
    """[..., k] times a packed [k, n] weight of (code - zero) * scale: [..., n]. The codes of a
    column lie as 32-bit words of steps of k: four in the low bits of the four bytes, the next four
    above (`code_planes`, where `bits` of those of `coding` are used), signed ones as unsigned, half
    of the range more; scales and zeros are [ceil(n/16), ceil(k/group), 16]. Scales may be bytes,
    which count times the factor of `block` steps of k, in panels as they are. With a `table` of 16
    numbers of i8 codes are places in it. Codes of `coding` f8e4m3fn are its bits, NaN is 480."""

    n: Dim
    coding: DType
    group: int
    bits: int = field(default=0, metadata=LEFT_OUT)
    block: int = field(default=0, metadata=LEFT_OUT)
    table: Ints = field(default=(), metadata=LEFT_OUT)
    dtype: DType = field(metadata=by_operands(_dtype_of))

    @property
    def width(self) -> int:
        """Bits of a code."""
        return self.bits or self.coding.bits

    def result(
        self, a: TensorType, codes: TensorType, scales: TensorType, *others: TensorType
    ) -> TensorType:
        coding, group = self.coding, self.group
        require(a.rank >= 1, "a must have at least one dim")
        require(
            (coding.is_integer and coding.bits <= 8) or coding.name in FLOAT_CODES,
            f"codes are integers of 8 bits or {', '.join(FLOAT_CODES)}, not {coding}",
        )
        require(
            not self.bits or (coding.bits == 8 and self.bits in (3, 5, 6)),
            f"codes of {coding} have no {self.bits} bits: of 8 bits, 3, 5 or 6 may be used",
        )
        fits = len(self.table) == 16 and all(-128 <= each < 128 for each in self.table)
        require(
            not self.table or (fits and coding.kind == "u"),
            f"codes of {coding} have no table {self.table}: unsigned ones have 16 numbers of i8",
        )
        k, steps, panels = a.shape[-1], code_steps(self.width), ceildiv(self.n, PANEL)
        if not isinstance(k, int):
            raise RuleError(f"the last dim of {a} is not known")
        wanted = (panels, code_lines(self.width, k), PANEL, 4)
        require(
            codes.dtype.name == "u8" and codes.shape == wanted,
            f"codes is {codes}, expected u8{dims_text(wanted)}",
        )
        require(
            group > 0 and (group % steps == 0 or group == k),
            f"a group of {group} steps does not hold whole lines of {steps}, and is not all of {k}",
        )
        small = {"scales": (scales, group)}
        if self.block:
            require(
                scales.dtype.name in ("i8", "u8") and self.block % group == 0,
                f"blocks of {self.block} steps take scales of i8 or u8 for groups that divide "
                f"them, got {scales} for groups of {group}",
            )
            require(bool(others), "takes factors of the scales of a block")
            factors, others = others[0], others[1:]
            require(factors.dtype.is_float, f"factors is {factors}, expected floats")
            small["factors"] = (factors, self.block)
        else:
            require(scales.dtype.is_float, f"scales is {scales}, expected floats")
        require(len(others) <= 1, f"takes one tensor of zeros, got {len(others)}")
        if others:
            small["zeros"] = (others[0], group)
        for name, (each, length) in small.items():
            shape = (panels, ceildiv(k, length), PANEL)
            require(each.shape == shape, f"{name} is {each}, expected {dims_text(shape)}")
        return TensorType(self.dtype, (*a.shape[:-1], self.n))


@dataclass(frozen=True, kw_only=True)
class DotScaled(DotCoded):
    """As `dot_coded`, of rows that are codes, too: [..., k] of i8, times a_scales
    [..., k/group]. a_sums are the sums of the codes of each group. With `minima`, bits and group
    of codes [k/group, n] as those of `dot_coded`, the weight is less these times their scales, the
    last two operands."""

    minima: Ints = field(default=(), metadata=LEFT_OUT)

    @property
    def of_weight(self) -> dict[str, Any]:
        """The attributes of a `dot_coded` with this weight, but for minima."""
        return {name: value for name, value in vars(self).items() if name != "minima"}

    def without_minima(self, others: Sequence[_T]) -> tuple[Sequence[_T], Sequence[_T]]:
        """Operands behind those of a: of codes and scales, and of minima."""
        count = len(others) - (2 if self.minima else 0)
        return others[:count], others[count:]

    def result(
        self, a: TensorType, codes: TensorType, scales: TensorType, *others: TensorType
    ) -> TensorType:
        require(len(others) >= 2, "takes scales and sums of the groups of a")
        a_scales, a_sums, *rest = others
        kept, minima = self.without_minima(rest)
        k, group = a.shape[-1] if a.rank else 0, self.group
        require(a.dtype.name == "i8", f"a is {a}, expected codes of i8")
        require(
            isinstance(k, int) and group > 0 and k % group == 0 and group % 4 == 0,
            f"a group of {group} steps is no multiple of 4 that divides {k}",
        )
        per_group = (*a.shape[:-1], k // group)
        for name, each in (("a_scales", a_scales), ("a_sums", a_sums)):
            require(
                each.dtype.name == "f32" and each.shape == per_group,
                f"{name} is {each}, expected f32{dims_text(per_group)}",
            )
        if self.minima and isinstance(k, int):
            self._check_minima(k // group, minima)
        return super().result(a, codes, scales, *kept)

    def _check_minima(self, groups: int, minima: Sequence[TensorType]) -> None:
        require(
            len(self.minima) == 2 and self.minima[0] in (2, 4, 8) and self.minima[1] > 0,
            f"minima are codes of 2, 4 or 8 bits, and a scale for a group of them, "
            f"not {self.minima}",
        )
        require(len(minima) == 2, "takes minima and their scales")
        (bits, group), (codes, scales) = self.minima, minima
        steps = code_steps(bits)
        require(
            group % steps == 0 or group == groups,
            f"a group of {group} minima does not hold whole lines of {steps}, and is not all of "
            f"{groups}",
        )
        wanted = (ceildiv(self.n, PANEL), code_lines(bits, groups), PANEL, 4)
        require(
            codes.dtype.name == "u8" and codes.shape == wanted,
            f"minima is {codes}, expected u8{dims_text(wanted)}",
        )
        small = (wanted[0], ceildiv(groups, group), PANEL)
        require(
            scales.dtype.is_float and scales.shape == small,
            f"the scales of minima are {scales}, expected floats{dims_text(small)}",
        )


for _row in (
    OpRow(
        "dot_coded",
        "contraction",
        ("a: float", "codes", "scales: number", "*others: number"),
        DotCoded,
        ulp=4,
    ),
    OpRow(
        "dot_scaled",
        "contraction",
        ("a", "codes", "scales: number", "a_scales: float", "a_sums: float", "*others: number"),
        DotScaled,
        ulp=4,
    ),
):
    register(_row)

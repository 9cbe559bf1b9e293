"""A weight as codes with scales, in NumPy and in graph ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.narrow_codes import packed
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.spec import dtype

__all__ = ["Codes", "Halves"]

_F32 = dtype("f32")
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Halves:
    """A matrix [n, k] of bf16 or f16."""

    matrix: _Array
    bits, groups, zeros = 16, 1, None

    @property
    def length(self) -> int:
        """Bytes."""
        return self.matrix.nbytes

    def numbers(self) -> _Array:
        """f32[n, k]."""
        return np.asarray(self.matrix.astype(np.float32))


@dataclass(frozen=True, eq=False)
class Codes:
    """A matrix [n, k] as (codes - zeros) * scales.

    `codes`: i8[n, k] or u8[n, k], of numbers of 8, 4, 3 or 2 bits; `scales`: f32 or f16, and
    `zeros`: u8 or None for 0, are [n, groups], each for as many codes of a row.
    """

    codes: _Array
    bits: int
    scales: _Array
    zeros: _Array | None = None

    @property
    def groups(self) -> int:
        return int(self.scales.shape[1])

    @property
    def length(self) -> int:
        """Bytes."""
        zeros = 0 if self.zeros is None else self.zeros.nbytes
        return -(-self.codes.size * self.bits // 8) + self.scales.nbytes + zeros

    def numbers(self) -> _Array:
        """f32[n, k]."""
        n, k = self.codes.shape
        grouped = self.codes.reshape(n, self.groups, k // self.groups).astype(np.float32)
        if self.zeros is not None:
            grouped -= self.zeros[:, :, None]
        grouped *= self.scales[:, :, None].astype(np.float32)
        return grouped.reshape(n, k)

    def dequantised(self, builder: Builder) -> Value:
        """f32[n, k]."""
        return self._scaled(builder, self._codes(builder), self._scales(builder))

    def rows(self, builder: Builder, take: Any) -> Value:
        """f32[..., k], of rows that `take` looks up in a value [n, ...]."""
        zeros = None if self.zeros is None else take(builder.constant(self.zeros))
        return self._scaled(builder, take(self._codes(builder)), take(self._scales(builder)), zeros)

    @property
    def _middle(self) -> int:
        """What is added to signed codes of 3 bits: they lie in u4."""
        return 4 if self.bits == 3 and self.codes.dtype == np.int8 else 0

    def _codes(self, builder: Builder) -> Value:
        if self.bits == 8:
            return builder.constant(self.codes)
        kind = "u" if self.bits == 3 or self.codes.dtype == np.uint8 else "i"
        element = dtype(f"{kind}{4 if self.bits == 3 else self.bits}")
        codes = self.codes.view(np.uint8).reshape(-1) + np.uint8(self._middle)
        codes = packed(codes & ((1 << self.bits) - 1), element.bits)
        made = builder.constant(codes, "u8")
        made = builder.value("unpack", made, dtype=element, shape=self.codes.shape)
        if self.bits == 3:  # so that panels leave out the bit that is never set
            made = builder.value("and", made, builder.full(7, "u8", self.codes.shape))
        return made

    def _scales(self, builder: Builder) -> Value:
        return builder.constant(self.scales)

    def _scaled(
        self, builder: Builder, codes: Value, scales: Value, zeros: Value | None = None
    ) -> Value:
        wide = builder.value("convert", codes, dtype=_F32)
        if zeros is None and self.zeros is not None:
            zeros = builder.constant(self.zeros)
        if self._middle:
            middle = builder.full(self._middle, _F32, tensor_type(wide).shape)
            wide = builder.value("sub", wide, middle)
        if zeros is not None:
            wide = builder.value("sub", wide, self._spread(builder, zeros, wide))
        return builder.value("mul", wide, self._spread(builder, scales, wide))

    def _spread(self, builder: Builder, x: Value, like: Value) -> Value:
        """[..., groups] as f32 in the shape [..., k]."""
        *outer, k = tensor_type(like).shape
        if tensor_type(x).dtype is not _F32:
            x = builder.value("convert", x, dtype=_F32)
        count = self.groups
        if count == 1:
            x = builder.value("reshape", x, shape=tuple(outer))
            dimensions = tuple(range(len(outer)))
            return builder.value("broadcast", x, shape=(*outer, k), dimensions=dimensions)
        wide = (*outer, count, int(k) // count)  # type: ignore[arg-type]
        x = builder.value("broadcast", x, shape=wide, dimensions=tuple(range(len(outer) + 1)))
        return builder.value("reshape", x, shape=(*outer, k))

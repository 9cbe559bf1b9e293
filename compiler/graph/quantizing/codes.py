"""A weight as codes with scales, in NumPy and in graph ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.narrow_codes import packed
from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.spec import DType, dtype

__all__ = ["Codes"]

_F32 = dtype("f32")
_Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Codes:
    """A matrix [n, k] as (codes - zeros) * scales.

    `codes`: i8[n, k] or u8[n, k], whose numbers `coding` holds; `scales`: f32 or f16, and `zeros`:
    u8 or None for 0, are [n, groups], each for as many codes of a row.
    """

    codes: _Array
    coding: DType
    scales: _Array
    zeros: _Array | None = None

    @property
    def groups(self) -> int:
        return int(self.scales.shape[1])

    @property
    def length(self) -> int:
        """Bytes."""
        zeros = 0 if self.zeros is None else self.zeros.nbytes
        return -(-self.codes.size * self.coding.bits // 8) + self.scales.nbytes + zeros

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

    def _codes(self, builder: Builder) -> Value:
        if self.coding.bits == 8:
            return builder.constant(self.codes, self.coding)
        bits = self.coding.bits
        codes = packed(self.codes.view(np.uint8).reshape(-1) & ((1 << bits) - 1), bits)
        shape = self.codes.shape
        return builder.value(
            "unpack", builder.constant(codes, "u8"), dtype=self.coding, shape=shape
        )

    def _scales(self, builder: Builder) -> Value:
        return builder.constant(self.scales)

    def _scaled(
        self, builder: Builder, codes: Value, scales: Value, zeros: Value | None = None
    ) -> Value:
        wide = builder.value("convert", codes, dtype=_F32)
        if zeros is None and self.zeros is not None:
            zeros = builder.constant(self.zeros)
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

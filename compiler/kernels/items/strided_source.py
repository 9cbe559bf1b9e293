"""A matrix where it lies as a source of tiles: strides along lines and depth."""

from __future__ import annotations

from ingot.compiler.ir import Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.items.group_tile import Source, load_where
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.hal.spec import DType

__all__ = ["Matrix", "strided_source"]


@dataclass(frozen=True)
class Matrix:
    """Memory, the element where it begins, strides along lines and along depth, and what is read
    there (`load_where`)."""

    memory: Value
    base: Index
    line_stride: Dim
    depth_stride: Dim
    dtype: DType


def strided_source(
    b: LoopBuilder, matrix: Matrix, first: Index, bound: Dim | None, element: DType
) -> Source:
    """Lines from `first` on, as `element`; lines from `bound` on repeat the last one (None:
    there are none)."""
    known: dict[Index, Index] = {}

    def prepare(line: Index, offset: int) -> tuple[Index, Index]:
        if bound is not None:
            line, offset = b.add(line, offset), 0
        if line not in known:
            number = b.add(first, line)
            if bound is not None:
                number = b.min(number, b.sub(b.dim(bound), 1))
            known[line] = b.add(matrix.base, b.mul(number, b.dim(matrix.line_stride)))
        return known[line], b.mul(offset, b.dim(matrix.line_stride))

    def fetch(line: tuple[Index, Index], depth: Index, offset: int, live: Value | None) -> Value:
        stride = b.dim(matrix.depth_stride)
        at = b.add(line[0], b.mul(depth, stride))
        at = b.add(at, b.add(line[1], b.mul(offset, stride)))
        return load_where(b, live, matrix.memory, at, matrix.dtype)

    along_lines = matrix.line_stride == 1 and matrix.depth_stride != 1
    order = "lines" if along_lines else "depth"
    return Source(order, prepare, fetch, lambda raw: [b.convert(raw, element)])

"""What a dot_general or dot_packed computes, as strides: batch x rows x columns x depth.

The one place that reads dimension numbers of contractions. Dims of a group (rows, say)
that are adjacent in memory become one dim with one stride; a group that is not one run of
memory is refused here, and `graph/forms/arrange_contractions.py` puts a transpose in front of
such operands before dispatches are formed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.graph.forms.arrange_contractions import run_stride
from ingot.compiler.graph.ops import ConvPacked, DotGeneral
from ingot.compiler.ir import Op, TensorType, Value, tensor_type
from ingot.compiler.ir.attributes import Ints
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, product, row_major_strides
from ingot.hal.spec import DType

__all__ = ["Operand", "Product", "is_pointwise", "product_of"]


@dataclass(frozen=True)
class Operand:
    """One side: element strides of its own dim, of depth, and of each batch dim."""

    value: Value
    dtype: DType
    stride: Dim  # along rows (left) or columns (right)
    depth_stride: Dim
    batch_strides: tuple[Dim, ...]
    packed: bool = False  # panels of 16 columns; the strides do not apply


@dataclass(frozen=True)
class Product:
    """result[batch, row, column] = sum over depth of left * right."""

    batch: tuple[Dim, ...]
    rows: Dim
    columns: Dim
    depth: Dim
    left: Operand
    right: Operand
    dtype: DType

    @property
    def is_tall(self) -> bool:
        """Whether it is known to have more rows than columns."""
        rows, columns = self.rows, self.columns
        return isinstance(rows, int) and isinstance(columns, int) and rows > columns


def is_pointwise(op: Op) -> bool:
    """Whether a conv_packed looks at one pixel for one pixel: a product over channels."""
    packed = ConvPacked.of(op)
    ones = all(step == 1 for step in (*packed.window, *packed.strides))
    return ones and all(pair == (0, 0) for pair in packed.padding)


def product_of(op: Op) -> Product:
    """The product that a dot op computes. Raises ValueError where a group is no one run."""
    result = tensor_type(op.result)
    a, b = tensor_type(op.operands[0]), tensor_type(op.operands[1])
    if op.name in ("dot_packed", "dot_coded", "dot_scaled", "conv_packed"):
        if op.name == "conv_packed" and not is_pointwise(op):
            raise ValueError("a convolution whose window has neighbours is no product")
        left = Operand(op.operands[0], a.dtype, a.shape[-1], 1, ())
        right = Operand(op.operands[1], b.dtype, 0, 0, (), packed=True)
        rows = product(a.shape[:-1])
        return Product((), rows, result.shape[-1], a.shape[-1], left, right, result.dtype)
    dot = DotGeneral.of(op)
    lhs_free = [i for i in range(a.rank) if i not in (*dot.lhs_batch, *dot.lhs_contract)]
    rhs_free = [i for i in range(b.rank) if i not in (*dot.rhs_batch, *dot.rhs_contract)]
    return Product(
        tuple(a.shape[axis] for axis in dot.lhs_batch),
        product(a.shape[axis] for axis in lhs_free),
        product(b.shape[axis] for axis in rhs_free),
        product(a.shape[axis] for axis in dot.lhs_contract),
        _operand(op.operands[0], a, lhs_free, dot.lhs_contract, dot.lhs_batch),
        _operand(op.operands[1], b, rhs_free, dot.rhs_contract, dot.rhs_batch),
        result.dtype,
    )


def _operand(
    value: Value, type: TensorType, free: Sequence[int], contract: Ints, batch: Ints
) -> Operand:
    strides = row_major_strides(type.shape)
    return Operand(
        value,
        type.dtype,
        run_stride(type, free),
        run_stride(type, contract),
        tuple(strides[axis] for axis in batch),
    )

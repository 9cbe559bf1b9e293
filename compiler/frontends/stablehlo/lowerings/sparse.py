"""The product with a sparse matrix of compressed rows (`jax.experimental.sparse.BCSR`)."""

from __future__ import annotations

from ingot.compiler.frontends.complex_numbers import BINARY, Complex
from ingot.compiler.frontends.emitter import Emitter, shape_of, type_of
from ingot.compiler.frontends.indexed import scatter_slices
from ingot.compiler.frontends.stablehlo.lowering import Context, Lowered
from ingot.compiler.frontends.stablehlo.reading.program import SourceOp, TensorType
from ingot.compiler.ir import Value

__all__ = ["SPARSE_PRODUCT", "check_sparse_product", "sparse_product"]

SPARSE_PRODUCT = "_csr_sparse_dense_ffi"
"""What follows the name of a device in that of the custom call."""


def check_sparse_product(op: SourceOp) -> str | None:
    types = [each.type for each in (*op.operands[:4], *op.results)]
    ranks = [len(each.shape) for each in types if isinstance(each, TensorType)]
    if ranks in ([1, 1, 1, 1, 1], [1, 1, 1, 2, 2]):
        return None
    return f"a product with a sparse matrix of tensors of the ranks {ranks}"


def sparse_product(context: Context, op: SourceOp) -> Lowered:
    """Elements [n], where each row begins and the last one ends [rows + 1], and columns [n], with a
    tensor [columns] or [columns, m]. Elements behind the last row fill the tensor up."""
    e = Emitter(context.builder)
    bounds, columns = context.operand(op, 1), context.operand(op, 2)
    ends = e.sliced(bounds, 0, 1, shape_of(bounds)[0])
    zeros = e.full(0, type_of(ends).dtype, shape_of(columns))
    marks = _add_rows(e, zeros, ends, e.fill(1, like=ends))
    rows = e.op("cumulative", marks, axis=0, kind="add")

    def taken(dense: Value) -> Value:
        return e.op("take", dense, columns, axis=0, mode="clamp")

    def spread(elements: Value, dense: Value) -> Value:
        return e.op("broadcast", elements, shape=shape_of(dense), dimensions=(0,))

    def added(products: Value) -> Value:
        shape = (*shape_of(ends), *shape_of(products)[1:])
        return _add_rows(e, e.full(0, type_of(products).dtype, shape), rows, products)

    if op.operands[0].tensor.element[0] != "c":
        dense = taken(context.operand(op, 3))
        return Lowered(added(e.op("mul", spread(context.operand(op, 0), dense), dense)))
    real, imaginary = (taken(each) for each in context.complex_parts(op, 3))
    a, b = (spread(each, real) for each in context.complex_parts(op, 0))
    products = BINARY["multiply"](Complex(context.builder), (a, b), (real, imaginary))
    return Lowered(parts=(added(products[0]), added(products[1])))


def _add_rows(e: Emitter, x: Value, places: Value, updates: Value) -> Value:
    """Updates added to x at places of its first axis; those out of range are left out."""
    column = e.reshape(places, (*shape_of(places), 1))
    return scatter_slices(e, x, column, updates, "add", "skip")

"""Tensors of an entry seen as strided views of its arguments.

Transposes, slices and reshapes in front of a kernel's root cost nothing where the kernel
can read with other strides. `view_of` resolves such a chain to the argument, an element
offset and one stride per dim, or raises ValueError where memory cannot be read so.
"""

from __future__ import annotations

from ingot.compiler.graph.ops import Slice, Transpose
from ingot.compiler.ir import Function, Op, TensorType, Value, defined_by, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, row_major_strides

__all__ = ["View", "view_of"]


@dataclass(frozen=True)
class View:
    """Element [i, j, ...] lies at offset + i * strides[0] + j * strides[1] + ..."""

    argument: int
    offset: Dim
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]


def view_of(function: Function, value: Value) -> View:
    """`value` as a view of an argument. Raises ValueError where it is none."""
    if isinstance(value.type, TensorType) and value in function.arguments:
        shape = value.type.shape
        return View(function.arguments.index(value), 0, shape, row_major_strides(shape))
    op = defined_by(value, "transpose", "slice", "reshape")
    if op is None:
        raise ValueError(f"{value} is no view of an argument")
    inner = view_of(function, op.operands[0])
    if op.name == "transpose":
        return _transpose(inner, op)
    return _slice(inner, op) if op.name == "slice" else _reshape(inner, op)


def _transpose(inner: View, op: Op) -> View:
    order = Transpose.of(op).permutation
    return View(
        inner.argument,
        inner.offset,
        tuple(inner.shape[axis] for axis in order),
        tuple(inner.strides[axis] for axis in order),
    )


def _slice(inner: View, op: Op) -> View:
    offset = inner.offset
    for start, stride in zip(Slice.of(op).start, inner.strides, strict=True):
        offset = offset + start * stride
    strides = tuple(a * b for a, b in zip(inner.strides, Slice.of(op).stride, strict=True))
    return View(inner.argument, offset, tensor_type(op.result).shape, strides)


def _reshape(inner: View, op: Op) -> View:
    """Dims are matched from the left; a group must be one run of the argument's memory."""
    old = [(size, stride) for size, stride in zip(inner.shape, inner.strides, strict=True)]
    runs = _runs([pair for pair in old if pair[0] != 1])
    new = tensor_type(op.result).shape
    strides: list[Dim] = [0] * len(new)
    place = len(new) - 1
    for size, stride in reversed(runs):
        covered: Dim = 1
        while covered != size:
            if place < 0:
                raise ValueError(f"reshape to {op.result.type} is no view")
            strides[place] = stride * covered
            covered = covered * new[place]
            place -= 1
    if any(size != 1 for size in new[: place + 1]):
        raise ValueError(f"reshape to {op.result.type} is no view")
    return View(inner.argument, inner.offset, new, tuple(strides))


def _runs(dims: list[tuple[Dim, Dim]]) -> list[tuple[Dim, Dim]]:
    """Adjacent (size, stride) pairs merged where the outer continues the inner."""
    runs: list[tuple[Dim, Dim]] = []
    for size, stride in dims:
        if runs and runs[-1][1] == stride * size:
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    return runs

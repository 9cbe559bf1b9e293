"""Rows of ops that read or write at computed indices: gather, take, scatter, sort and so on.

Dimension numbers of gather and scatter mean what they mean in StableHLO.
"""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from ingot.compiler.graph.ops.shape import AlongAxis, check_axes
from ingot.compiler.graph.ops.table import OpRow, dims_text, register, require
from ingot.compiler.ir import TensorType
from ingot.compiler.ir.attributes import Attributes, Dims, Ints, by_operands
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType

__all__ = ["DynamicSlice", "Gather", "IndexMode", "Scatter", "Sort", "Take", "TopK"]

IndexMode = Literal["clamp", "check", "wrap_check"]
ScatterKind = Literal["set", "add", "mul", "min", "max"]
ScatterMode = Literal["skip", "wrap_check"]


def _nothing(*_: TensorType) -> tuple[int, ...]:
    return ()


def _batch_dims(indices: TensorType, index_vector_dim: int) -> list[int]:
    """The axes of `indices` that do not hold the index vector."""
    require(
        0 <= index_vector_dim <= indices.rank,
        f"index_vector_dim is {index_vector_dim}, expected 0 ... {indices.rank}",
    )
    return [axis for axis in range(indices.rank) if axis != index_vector_dim]


def _index_count(indices: TensorType, index_vector_dim: int) -> Dim:
    return 1 if index_vector_dim == indices.rank else indices.shape[index_vector_dim]


def _check_wrapping(mode: str, index_map: tuple[int, ...], single: tuple[int, ...]) -> None:
    """Counting from the end needs a bound, which windows of more than one element blur."""
    require(
        mode != "wrap_check" or set(index_map) <= set(single),
        f"mode 'wrap_check' needs windows of one element in the indexed dims {index_map}",
    )


@dataclass(frozen=True)
class Gather(Attributes):
    """Slices of the operand at index vectors; dimension numbers as in StableHLO. `mode` clamps a
    start into range, or checks it (outside is a run-time error), or counts negative ones from the
    end and checks them."""

    offset_dims: Ints
    collapsed_slice_dims: Ints
    operand_batching_dims: Ints = field(metadata=by_operands(_nothing))
    start_indices_batching_dims: Ints = field(metadata=by_operands(_nothing))
    start_index_map: Ints
    index_vector_dim: int
    slice_sizes: Dims
    mode: IndexMode = "clamp"

    def result(self, operand: TensorType, indices: TensorType) -> TensorType:
        removed = (*self.collapsed_slice_dims, *self.operand_batching_dims)
        check_axes(removed, operand.rank, "collapsed_slice_dims and operand_batching_dims")
        check_axes(self.start_index_map, operand.rank, "start_index_map")
        require(
            len(self.slice_sizes) == operand.rank,
            f"slice_sizes needs {operand.rank} entries, got {len(self.slice_sizes)}",
        )
        require(
            all(self.slice_sizes[axis] == 1 for axis in removed),
            f"slice_sizes {dims_text(self.slice_sizes)} must be 1 in the dims {removed}",
        )
        _check_wrapping(self.mode, self.start_index_map, removed)
        batch = _batch_dims(indices, self.index_vector_dim)
        count = _index_count(indices, self.index_vector_dim)
        require(
            count == len(self.start_index_map),
            f"the index vectors have {count} entries, but start_index_map has "
            f"{len(self.start_index_map)}",
        )
        require(
            len(self.operand_batching_dims) == len(self.start_indices_batching_dims),
            "operand_batching_dims and start_indices_batching_dims differ in count",
        )
        for a, b in zip(self.operand_batching_dims, self.start_indices_batching_dims, strict=True):
            require(operand.shape[a] == indices.shape[b], f"batch dims {a} and {b} differ")
        offsets = [size for axis, size in enumerate(self.slice_sizes) if axis not in removed]
        require(
            len(self.offset_dims) == len(offsets),
            f"offset_dims needs {len(offsets)} entries, got {len(self.offset_dims)}",
        )
        check_axes(self.offset_dims, len(batch) + len(offsets), "offset_dims")
        batch_sizes = iter([indices.shape[axis] for axis in batch])
        offset_sizes = iter(offsets)
        rank = len(batch) + len(offsets)
        shape = [
            next(offset_sizes if axis in self.offset_dims else batch_sizes) for axis in range(rank)
        ]
        return TensorType(operand.dtype, tuple(shape))


@dataclass(frozen=True)
class Take(AlongAxis):
    """Elements of one axis at indices of any rank, as numpy.take. `mode` clamps an index into
    range, checks it, or counts negative ones from the end and checks it."""

    mode: IndexMode = "clamp"

    def result(self, operand: TensorType, indices: TensorType) -> TensorType:
        check_axes((self.axis,), operand.rank, "axis")
        shape = (*operand.shape[: self.axis], *indices.shape, *operand.shape[self.axis + 1 :])
        return TensorType(operand.dtype, shape)


def _check_starts(x: TensorType, starts: tuple[TensorType, ...]) -> None:
    require(len(starts) == x.rank, f"needs {x.rank} start indices for {x}, got {len(starts)}")
    for place, start in enumerate(starts):
        require(
            start.rank == 0 and start.dtype.is_integer,
            f"start index {place} is {start}, expected an integer of rank 0",
        )


@dataclass(frozen=True)
class DynamicSlice(Attributes):
    """A block of `sizes` at start indices, which are clamped so that it fits."""

    sizes: Dims

    def result(self, x: TensorType, *starts: TensorType) -> TensorType:
        _check_starts(x, starts)
        require(
            len(self.sizes) == x.rank,
            f"sizes needs {x.rank} entries for {x}, got {len(self.sizes)}",
        )
        for axis, (size, dim) in enumerate(zip(self.sizes, x.shape, strict=True)):
            over = size - dim
            require(
                not isinstance(over, int) or over <= 0, f"axis {axis}: size {size} exceeds {dim}"
            )
        return TensorType(x.dtype, self.sizes)


def _dynamic_update_slice(x: TensorType, update: TensorType, *starts: TensorType) -> TensorType:
    _check_starts(x, starts)
    require(
        update.dtype is x.dtype and update.rank == x.rank,
        f"the update {update} must have the dtype and rank of {x}",
    )
    for axis, (size, dim) in enumerate(zip(update.shape, x.shape, strict=True)):
        over = size - dim
        require(not isinstance(over, int) or over <= 0, f"axis {axis}: update exceeds {dim}")
    return x


@dataclass(frozen=True)
class Scatter(Attributes):
    """The operand with updates combined into it by `kind` in index order; dimension numbers as in
    StableHLO. `mode` leaves windows out that do not fit, or counts negative indices from the end
    and makes one outside a run-time error."""

    update_window_dims: Ints
    inserted_window_dims: Ints
    input_batching_dims: Ints = field(metadata=by_operands(_nothing))
    scatter_indices_batching_dims: Ints = field(metadata=by_operands(_nothing))
    scatter_dims_to_operand_dims: Ints
    index_vector_dim: int
    kind: ScatterKind = "set"
    mode: ScatterMode = "skip"

    def result(self, operand: TensorType, indices: TensorType, updates: TensorType) -> TensorType:
        require(indices.dtype.is_integer, f"the indices {indices} must be integers")
        require(
            updates.dtype is operand.dtype, f"updates {updates} must have the dtype of {operand}"
        )
        removed = (*self.inserted_window_dims, *self.input_batching_dims)
        check_axes(removed, operand.rank, "inserted_window_dims and input_batching_dims")
        check_axes(self.scatter_dims_to_operand_dims, operand.rank, "scatter_dims_to_operand_dims")
        check_axes(self.update_window_dims, updates.rank, "update_window_dims")
        _check_wrapping(self.mode, self.scatter_dims_to_operand_dims, removed)
        batch = _batch_dims(indices, self.index_vector_dim)
        require(
            _index_count(indices, self.index_vector_dim) == len(self.scatter_dims_to_operand_dims),
            "the index vectors and scatter_dims_to_operand_dims differ in length",
        )
        require(
            len(self.input_batching_dims) == len(self.scatter_indices_batching_dims),
            "input_batching_dims and scatter_indices_batching_dims differ in count",
        )
        for a, b in zip(self.input_batching_dims, self.scatter_indices_batching_dims, strict=True):
            require(operand.shape[a] == indices.shape[b], f"batch dims {a} and {b} differ")
        window_count = operand.rank - len(removed)
        require(
            len(self.update_window_dims) == window_count
            and updates.rank == len(batch) + window_count,
            f"updates {updates} must have {len(batch)} batch and {window_count} window dims",
        )
        batch_shape = [
            dim for a, dim in enumerate(updates.shape) if a not in self.update_window_dims
        ]
        require(
            batch_shape == [indices.shape[axis] for axis in batch],
            f"the batch dims of updates {updates} differ from those of indices {indices}",
        )
        return operand


@dataclass(frozen=True)
class Sort(AlongAxis):
    """The operands sorted together along `axis`, stable; the region takes two elements of each
    operand (a0, b0, a1, b1, ...) and yields whether the a's come before the b's."""

    def result(self, *xs: TensorType) -> tuple[TensorType, ...]:
        require(len(xs) >= 1, "needs at least one operand")
        check_axes((self.axis,), xs[0].rank, "axis")
        for place, x in enumerate(xs):
            require(
                x.shape == xs[0].shape, f"operand {place} is {x}: its shape differs from {xs[0]}"
            )
        return xs


@dataclass(frozen=True, kw_only=True)
class TopK(Attributes):
    """The `k` greatest elements along `axis` in descending order (or the least, ascending) and
    their indices; of equal ones the first comes first, NaN is greater than all others."""

    k: Dim
    axis: int
    largest: bool = True
    dtype: DType

    def result(self, x: TensorType) -> tuple[TensorType, TensorType]:
        check_axes((self.axis,), x.rank, "axis")
        require(self.dtype.is_integer, f"an index has an integer dtype, not {self.dtype}")
        over = self.k - x.shape[self.axis]
        require(
            not isinstance(over, int) or over <= 0,
            f"k is {self.k}, but axis {self.axis} has {x.shape[self.axis]}",
        )
        require(not isinstance(self.k, int) or self.k >= 0, f"k is {self.k}, expected 0 or more")
        shape = (*x.shape[: self.axis], self.k, *x.shape[self.axis + 1 :])
        return TensorType(x.dtype, shape), TensorType(self.dtype, shape)


for _row in (
    OpRow("gather", "indexed", ("operand", "indices: integer"), Gather),
    OpRow("take", "indexed", ("operand", "indices: integer"), Take),
    OpRow("dynamic_slice", "indexed", ("x", "*starts: integer"), DynamicSlice),
    OpRow(
        "dynamic_update_slice",
        "indexed",
        ("x", "update", "*starts: integer"),
        _dynamic_update_slice,
        "x with a block replaced at start indices, which are clamped so that it fits.",
    ),
    OpRow("scatter", "indexed", ("operand", "indices", "updates"), Scatter),
    OpRow("top_k", "indexed", ("x: ordered",), TopK),
    OpRow("sort", "indexed", ("*xs",), Sort, region_count=1),
):
    register(_row)

"""Rows of ops that read or write at computed indices: gather, take, scatter, sort and so on.

Dimension numbers of gather and scatter mean what they mean in StableHLO.
"""

from __future__ import annotations

from ingot.compiler.graph.ops.shape import check_axes
from ingot.compiler.graph.ops.table import OpRow, attribute, dims_text, register, require
from ingot.compiler.ir import TensorType
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType

__all__: list[str] = []


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


def _gather(
    operand: TensorType,
    indices: TensorType,
    *,
    offset_dims: tuple[int, ...],
    collapsed_slice_dims: tuple[int, ...],
    operand_batching_dims: tuple[int, ...],
    start_indices_batching_dims: tuple[int, ...],
    start_index_map: tuple[int, ...],
    index_vector_dim: int,
    slice_sizes: tuple[Dim, ...],
    mode: str,
) -> TensorType:
    removed = (*collapsed_slice_dims, *operand_batching_dims)
    check_axes(removed, operand.rank, "collapsed_slice_dims and operand_batching_dims")
    check_axes(start_index_map, operand.rank, "start_index_map")
    require(
        len(slice_sizes) == operand.rank,
        f"slice_sizes needs {operand.rank} entries, got {len(slice_sizes)}",
    )
    require(
        all(slice_sizes[axis] == 1 for axis in removed),
        f"slice_sizes {dims_text(slice_sizes)} must be 1 in the dims {removed}",
    )
    _check_wrapping(mode, start_index_map, removed)
    batch = _batch_dims(indices, index_vector_dim)
    count = _index_count(indices, index_vector_dim)
    require(
        count == len(start_index_map),
        f"the index vectors have {count} entries, but start_index_map has {len(start_index_map)}",
    )
    require(
        len(operand_batching_dims) == len(start_indices_batching_dims),
        "operand_batching_dims and start_indices_batching_dims differ in count",
    )
    for a, b in zip(operand_batching_dims, start_indices_batching_dims, strict=True):
        require(operand.shape[a] == indices.shape[b], f"batch dims {a} and {b} differ")
    offsets = [size for axis, size in enumerate(slice_sizes) if axis not in removed]
    require(
        len(offset_dims) == len(offsets),
        f"offset_dims needs {len(offsets)} entries, got {len(offset_dims)}",
    )
    check_axes(offset_dims, len(batch) + len(offsets), "offset_dims")
    batch_sizes = iter([indices.shape[axis] for axis in batch])
    offset_sizes = iter(offsets)
    rank = len(batch) + len(offsets)
    shape = [next(offset_sizes if axis in offset_dims else batch_sizes) for axis in range(rank)]
    return TensorType(operand.dtype, tuple(shape))


def _take(operand: TensorType, indices: TensorType, *, axis: int, mode: str) -> TensorType:
    check_axes((axis,), operand.rank, "axis")
    shape = (*operand.shape[:axis], *indices.shape, *operand.shape[axis + 1 :])
    return TensorType(operand.dtype, shape)


def _check_starts(x: TensorType, starts: tuple[TensorType, ...]) -> None:
    require(len(starts) == x.rank, f"needs {x.rank} start indices for {x}, got {len(starts)}")
    for place, start in enumerate(starts):
        require(
            start.rank == 0 and start.dtype.is_integer,
            f"start index {place} is {start}, expected an integer of rank 0",
        )


def _dynamic_slice(x: TensorType, *starts: TensorType, sizes: tuple[Dim, ...]) -> TensorType:
    _check_starts(x, starts)
    require(len(sizes) == x.rank, f"sizes needs {x.rank} entries for {x}, got {len(sizes)}")
    for axis, (size, dim) in enumerate(zip(sizes, x.shape, strict=True)):
        over = size - dim
        require(not isinstance(over, int) or over <= 0, f"axis {axis}: size {size} exceeds {dim}")
    return TensorType(x.dtype, sizes)


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


def _scatter(
    operand: TensorType,
    indices: TensorType,
    updates: TensorType,
    *,
    update_window_dims: tuple[int, ...],
    inserted_window_dims: tuple[int, ...],
    input_batching_dims: tuple[int, ...],
    scatter_indices_batching_dims: tuple[int, ...],
    scatter_dims_to_operand_dims: tuple[int, ...],
    index_vector_dim: int,
    kind: str,
    mode: str,
) -> TensorType:
    require(indices.dtype.is_integer, f"the indices {indices} must be integers")
    require(updates.dtype is operand.dtype, f"updates {updates} must have the dtype of {operand}")
    removed = (*inserted_window_dims, *input_batching_dims)
    check_axes(removed, operand.rank, "inserted_window_dims and input_batching_dims")
    check_axes(scatter_dims_to_operand_dims, operand.rank, "scatter_dims_to_operand_dims")
    check_axes(update_window_dims, updates.rank, "update_window_dims")
    _check_wrapping(mode, scatter_dims_to_operand_dims, removed)
    batch = _batch_dims(indices, index_vector_dim)
    require(
        _index_count(indices, index_vector_dim) == len(scatter_dims_to_operand_dims),
        "the index vectors and scatter_dims_to_operand_dims differ in length",
    )
    require(
        len(input_batching_dims) == len(scatter_indices_batching_dims),
        "input_batching_dims and scatter_indices_batching_dims differ in count",
    )
    for a, b in zip(input_batching_dims, scatter_indices_batching_dims, strict=True):
        require(operand.shape[a] == indices.shape[b], f"batch dims {a} and {b} differ")
    window_count = operand.rank - len(removed)
    require(
        len(update_window_dims) == window_count and updates.rank == len(batch) + window_count,
        f"updates {updates} must have {len(batch)} batch and {window_count} window dims",
    )
    batch_shape = [dim for a, dim in enumerate(updates.shape) if a not in update_window_dims]
    require(
        batch_shape == [indices.shape[axis] for axis in batch],
        f"the batch dims of updates {updates} differ from those of indices {indices}",
    )
    return operand


def _sort(*xs: TensorType, axis: int) -> tuple[TensorType, ...]:
    require(len(xs) >= 1, "needs at least one operand")
    check_axes((axis,), xs[0].rank, "axis")
    for place, x in enumerate(xs):
        require(x.shape == xs[0].shape, f"operand {place} is {x}: its shape differs from {xs[0]}")
    return xs


def _top_k(
    x: TensorType, *, k: Dim, axis: int, largest: bool, dtype: DType
) -> tuple[TensorType, TensorType]:
    check_axes((axis,), x.rank, "axis")
    require(dtype.is_integer, f"an index has an integer dtype, not {dtype}")
    over = k - x.shape[axis]
    require(
        not isinstance(over, int) or over <= 0, f"k is {k}, but axis {axis} has {x.shape[axis]}"
    )
    require(not isinstance(k, int) or k >= 0, f"k is {k}, expected 0 or more")
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return TensorType(x.dtype, shape), TensorType(dtype, shape)


def _nothing(*_: TensorType) -> tuple[int, ...]:
    return ()


_MODES = ("clamp", "check", "wrap_check")

for _row in (
    OpRow(
        "gather",
        "indexed",
        ("operand", "indices: integer"),
        _gather,
        "Slices of the operand at index vectors; dimension numbers as in StableHLO. `mode` clamps "
        "a start into range, or checks it (outside is a run-time error), or counts negative ones "
        "from the end and checks them.",
        {
            "offset_dims": attribute("ints"),
            "collapsed_slice_dims": attribute("ints"),
            "operand_batching_dims": attribute("ints", _nothing),
            "start_indices_batching_dims": attribute("ints", _nothing),
            "start_index_map": attribute("ints"),
            "index_vector_dim": attribute("int"),
            "slice_sizes": attribute("dims"),
            "mode": attribute("string", "clamp", _MODES),
        },
    ),
    OpRow(
        "take",
        "indexed",
        ("operand", "indices: integer"),
        _take,
        "Elements of one axis at indices of any rank, as numpy.take. `mode` clamps an index into "
        "range, checks it, or counts negative ones from the end and checks it.",
        {
            "axis": attribute("int"),
            "mode": attribute("string", "clamp", _MODES),
        },
    ),
    OpRow(
        "dynamic_slice",
        "indexed",
        ("x", "*starts: integer"),
        _dynamic_slice,
        "A block of `sizes` at start indices, which are clamped so that it fits.",
        {"sizes": attribute("dims")},
    ),
    OpRow(
        "dynamic_update_slice",
        "indexed",
        ("x", "update", "*starts: integer"),
        _dynamic_update_slice,
        "x with a block replaced at start indices, which are clamped so that it fits.",
    ),
    OpRow(
        "scatter",
        "indexed",
        ("operand", "indices", "updates"),
        _scatter,
        "The operand with updates combined into it by `kind` in index order; dimension numbers as "
        "in StableHLO. `mode` leaves windows out that do not fit, or counts negative indices from "
        "the end and makes one outside a run-time error.",
        {
            "update_window_dims": attribute("ints"),
            "inserted_window_dims": attribute("ints"),
            "input_batching_dims": attribute("ints", _nothing),
            "scatter_indices_batching_dims": attribute("ints", _nothing),
            "scatter_dims_to_operand_dims": attribute("ints"),
            "index_vector_dim": attribute("int"),
            "kind": attribute("string", "set", ("set", "add", "mul", "min", "max")),
            "mode": attribute("string", "skip", ("skip", "wrap_check")),
        },
    ),
    OpRow(
        "top_k",
        "indexed",
        ("x: ordered",),
        _top_k,
        "The `k` greatest elements along `axis` in descending order (or the least, ascending) and "
        "their indices; of equal ones the first comes first, NaN is greater than all others.",
        {
            "k": attribute("dim"),
            "axis": attribute("int"),
            "largest": attribute("bool", True),
            "dtype": attribute("dtype"),
        },
    ),
    OpRow(
        "sort",
        "indexed",
        ("*xs",),
        _sort,
        "The operands sorted together along `axis`, stable; the region takes two elements of each "
        "operand (a0, b0, a1, b1, ...) and yields whether the a's come before the b's.",
        {"axis": attribute("int")},
        region_count=1,
    ),
):
    register(_row)

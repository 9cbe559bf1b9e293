"""Rows of ops that move elements and compute none: broadcast, reshape, slice, pad and so on."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.graph.ops.table import OpRow, attribute, dims_text, register, require
from ingot.compiler.ir import MemoryType, TensorType
from ingot.compiler.ir.dims import Call, Dim, bounds, ceildiv, product, symbols_of
from ingot.hal.spec import DType

__all__ = ["can_broadcast", "check_axes"]


def check_axes(axes: Sequence[int], rank: int, name: str) -> None:
    """Raise RuleError unless `axes` are different and in 0 ... rank - 1."""
    for axis in axes:
        require(0 <= axis < rank, f"{name} has {axis}, which is not in 0 ... {rank - 1}")
    require(len(set(axes)) == len(axes), f"{name} {tuple(axes)} has an axis twice")


def can_broadcast(source: Dim, target: Dim) -> bool:
    """Whether a dim `source` may broadcast to `target`: it is 1 or equal, now or in the call."""
    if source == 1:
        return True
    return bounds(source - target)[0] <= 0 <= bounds(source - target)[1] or (
        bounds(source)[0] <= 1 <= bounds(source)[1]
    )


def _broadcast(x: TensorType, *, shape: tuple[Dim, ...], dimensions: tuple[int, ...]) -> TensorType:
    require(len(dimensions) == x.rank, f"needs {x.rank} dimensions for {x}, got {dimensions}")
    check_axes(dimensions, len(shape), "dimensions")
    for axis, place in enumerate(dimensions):
        require(
            can_broadcast(x.shape[axis], shape[place]),
            f"dim {axis} of {x} does not broadcast to dim {place} of {dims_text(shape)}: "
            f"expected 1 or {shape[place]}",
        )
    return TensorType(x.dtype, shape)


def _reshape(x: TensorType, *, shape: tuple[Dim, ...]) -> TensorType:
    old, new = product(x.shape), product(shape)
    require(
        old == new or _may_be_equal(old, new),
        f"{x} has {old} elements, but {dims_text(shape)} has {new}",
    )
    return TensorType(x.dtype, shape)


def _unpack(x: TensorType, *, dtype: DType, shape: tuple[Dim, ...]) -> TensorType:
    memory = MemoryType(dtype)
    require(memory.is_packed, f"{dtype.name} does not lie packed: expected i4, u4, i2 or u2")
    length = ceildiv(product(shape) * dtype.bits, 8)
    require(
        (x.dtype.name, x.shape) == ("u8", (length,)),
        f"{dims_text(shape)} of {dtype.name} is {length} bytes as u8, not {x}",
    )
    return TensorType(memory.element, shape)


def _may_be_equal(a: Dim, b: Dim) -> bool:
    """Whether two counts that are not proven equal are left to a check at the call.

    Polynomials over the same symbols that differ are taken for a mistake.
    """
    difference = a - b
    if isinstance(difference, int):
        return False
    calls = any(isinstance(atom, Call) for term, _ in difference.terms for atom, _ in term)
    return calls or symbols_of(a) != symbols_of(b)


def _transpose(x: TensorType, *, permutation: tuple[int, ...]) -> TensorType:
    require(
        sorted(permutation) == list(range(x.rank)),
        f"permutation {permutation} is not one of the {x.rank} axes of {x}",
    )
    return TensorType(x.dtype, tuple(x.shape[axis] for axis in permutation))


def _slice(
    x: TensorType, *, start: tuple[Dim, ...], limit: tuple[Dim, ...], stride: tuple[Dim, ...]
) -> TensorType:
    for name, each in (("start", start), ("limit", limit), ("stride", stride)):
        require(len(each) == x.rank, f"{name} needs {x.rank} entries for {x}, got {len(each)}")
    shape: list[Dim] = []
    for axis, dim in enumerate(x.shape):
        low, high, step = start[axis], limit[axis], stride[axis]
        require(
            not _known_less(low, 0) and not _known_less(high, low) and not _known_less(dim, high),
            f"axis {axis}: 0 <= start {low} <= limit {high} <= dim {dim} does not hold",
        )
        require(not _known_less(step, 1), f"axis {axis}: the stride is {step}, expected 1 or more")
        shape.append(ceildiv(high - low, step))
    return TensorType(x.dtype, tuple(shape))


def _known_less(a: Dim, b: Dim) -> bool:
    difference = a - b
    return isinstance(difference, int) and difference < 0


def _pad(
    x: TensorType,
    value: TensorType,
    *,
    low: tuple[Dim, ...],
    high: tuple[Dim, ...],
    interior: tuple[Dim, ...],
) -> TensorType:
    require(
        value == TensorType(x.dtype), f"the padding value is {value}, expected {x.dtype.name}[]"
    )
    for name, each in (("low", low), ("high", high), ("interior", interior)):
        require(len(each) == x.rank, f"{name} needs {x.rank} entries for {x}, got {len(each)}")
    shape: list[Dim] = []
    for axis, dim in enumerate(x.shape):
        require(not _known_less(interior[axis], 0), f"axis {axis}: interior is negative")
        inside = 0 if dim == 0 else dim + (dim - 1) * interior[axis]
        size = inside + low[axis] + high[axis]
        require(not _known_less(size, 0), f"axis {axis}: the padded dim would be {size}")
        shape.append(size)
    return TensorType(x.dtype, tuple(shape))


def _concatenate(*xs: TensorType, axis: int) -> TensorType:
    require(len(xs) >= 1, "needs at least one operand")
    first = xs[0]
    check_axes((axis,), first.rank, "axis")
    total: Dim = 0
    for place, x in enumerate(xs):
        same = x.dtype is first.dtype and x.rank == first.rank
        same = same and all(a == axis or x.shape[a] == first.shape[a] for a in range(x.rank))
        require(same, f"operand {place} is {x}: it may differ from {first} in dim {axis} only")
        total = total + x.shape[axis]
    return TensorType(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :]))


def _reverse(x: TensorType, *, axes: tuple[int, ...]) -> TensorType:
    check_axes(axes, x.rank, "axes")
    return x


def _ones(x: TensorType, *_: TensorType) -> tuple[int, ...]:
    return (1,) * x.rank


def _reinterpret(x: TensorType, *, dtype: DType) -> TensorType:
    own, wanted = x.dtype.bytes, dtype.bytes
    if own == wanted:
        return TensorType(dtype, x.shape)
    if own > wanted:
        return TensorType(dtype, (*x.shape, own // wanted))
    parts = wanted // own
    require(
        x.rank > 0 and x.shape[-1] == parts,
        f"the last dim of {x} must be {parts}, which are the bytes of one {dtype}",
    )
    return TensorType(dtype, x.shape[:-1])


def _zeros(x: TensorType, *_: TensorType) -> tuple[int, ...]:
    return (0,) * x.rank


for _row in (
    OpRow(
        "broadcast",
        "shape",
        ("x",),
        _broadcast,
        "Axis i of x becomes axis `dimensions[i]` of the result; a dim of 1 is repeated.",
        {"shape": attribute("dims"), "dimensions": attribute("ints")},
    ),
    OpRow(
        "reshape",
        "shape",
        ("x",),
        _reshape,
        "The same elements in row-major order.",
        {"shape": attribute("dims")},
    ),
    OpRow(
        "transpose",
        "shape",
        ("x",),
        _transpose,
        "Axis i of the result is axis `permutation[i]` of x.",
        {"permutation": attribute("ints")},
    ),
    OpRow(
        "slice",
        "shape",
        ("x",),
        _slice,
        "Elements start, start + stride, ... below limit of each axis.",
        {
            "start": attribute("dims"),
            "limit": attribute("dims"),
            "stride": attribute("dims", _ones),
        },
    ),
    OpRow(
        "pad",
        "shape",
        ("x", "value"),
        _pad,
        "`value` before (`low`), after (`high`) and between (`interior`) elements of each axis; "
        "negative low and high cut elements off.",
        {
            "low": attribute("dims"),
            "high": attribute("dims"),
            "interior": attribute("dims", _zeros),
        },
    ),
    OpRow(
        "concatenate",
        "shape",
        ("*xs",),
        _concatenate,
        "The operands one after another on `axis`.",
        {"axis": attribute("int")},
    ),
    OpRow(
        "reinterpret",
        "shape",
        ("x",),
        _reinterpret,
        "The bytes of x in memory as another dtype: a wider one takes the last dim, a narrower "
        "one adds it.",
        {"dtype": attribute("dtype")},
    ),
    OpRow(
        "unpack",
        "shape",
        ("x",),
        _unpack,
        "The elements of a tensor of i4, u4, i2 or u2, as i8 or u8, from the bytes in which they "
        "lie packed, the first one in the low bits.",
        {"dtype": attribute("dtype"), "shape": attribute("dims")},
    ),
    OpRow(
        "reverse",
        "shape",
        ("x",),
        _reverse,
        "The elements of `axes` in opposite order.",
        {"axes": attribute("ints")},
    ),
):
    register(_row)

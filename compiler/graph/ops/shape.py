"""Rows of ops that move elements and compute none: broadcast, reshape, slice, pad and so on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from ingot.compiler.graph.ops.table import OpRow, dims_text, register, require
from ingot.compiler.ir import MemoryType, TensorType
from ingot.compiler.ir.attributes import Attributes, Dims, Ints, by_operands
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Call, Dim, bounds, ceildiv, product, symbols_of
from ingot.hal.spec import DType

__all__ = [
    "AlongAxis",
    "Broadcast",
    "Concatenate",
    "Pad",
    "Reinterpret",
    "Reshape",
    "Reverse",
    "Slice",
    "Transpose",
    "Unpack",
    "can_broadcast",
    "check_axes",
    "picked",
]


def _ones(x: TensorType, *_: TensorType) -> tuple[int, ...]:
    return (1,) * x.rank


def _zeros(x: TensorType, *_: TensorType) -> tuple[int, ...]:
    return (0,) * x.rank


def check_axes(axes: Sequence[int], rank: int, name: str) -> None:
    """Raise RuleError unless `axes` are different and in 0 ... rank - 1."""
    for axis in axes:
        require(0 <= axis < rank, f"{name} has {axis}, which is not in 0 ... {rank - 1}")
    require(len(set(axes)) == len(axes), f"{name} {tuple(axes)} has an axis twice")


def picked(attributes: Attributes, order: Sequence[int]) -> Attributes:
    """The attributes with the entries of each tuple, which are per axis, in another order."""
    tuples = {name: each for name, each in vars(attributes).items() if isinstance(each, tuple)}
    moved = {name: tuple(each[axis] for axis in order) for name, each in tuples.items()}
    return replace(attributes, **moved)


def can_broadcast(source: Dim, target: Dim) -> bool:
    """Whether a dim `source` may broadcast to `target`: it is 1 or equal, now or in the call."""
    if source == 1:
        return True
    return bounds(source - target)[0] <= 0 <= bounds(source - target)[1] or (
        bounds(source)[0] <= 1 <= bounds(source)[1]
    )


@dataclass(frozen=True)
class Broadcast(Attributes):
    """Axis i of x becomes axis `dimensions[i]` of the result; a dim of 1 is repeated."""

    shape: Dims
    dimensions: Ints

    def result(self, x: TensorType) -> TensorType:
        require(
            len(self.dimensions) == x.rank,
            f"needs {x.rank} dimensions for {x}, got {self.dimensions}",
        )
        check_axes(self.dimensions, len(self.shape), "dimensions")
        for axis, place in enumerate(self.dimensions):
            require(
                can_broadcast(x.shape[axis], self.shape[place]),
                f"dim {axis} of {x} does not broadcast to dim {place} of {dims_text(self.shape)}: "
                f"expected 1 or {self.shape[place]}",
            )
        return TensorType(x.dtype, self.shape)


@dataclass(frozen=True)
class Reshape(Attributes):
    """The same elements in row-major order."""

    shape: Dims

    def result(self, x: TensorType) -> TensorType:
        old, new = product(x.shape), product(self.shape)
        require(
            old == new or _may_be_equal(old, new),
            f"{x} has {old} elements, but {dims_text(self.shape)} has {new}",
        )
        return TensorType(x.dtype, self.shape)


@dataclass(frozen=True)
class Unpack(Attributes):
    """The elements of a tensor of i4, u4, i2 or u2, as i8 or u8, from the bytes in which they lie
    packed, the first one in the low bits."""

    dtype: DType
    shape: Dims

    def result(self, x: TensorType) -> TensorType:
        name, memory = self.dtype.name, MemoryType(self.dtype)
        require(memory.is_packed, f"{name} does not lie packed: expected i4, u4, i2 or u2")
        length = ceildiv(product(self.shape) * self.dtype.bits, 8)
        require(
            (x.dtype.name, x.shape) == ("u8", (length,)),
            f"{dims_text(self.shape)} of {name} is {length} bytes as u8, not {x}",
        )
        return TensorType(memory.element, self.shape)


def _may_be_equal(a: Dim, b: Dim) -> bool:
    """Whether two counts that are not proven equal are left to a check at the call.

    Polynomials over the same symbols that differ are taken for a mistake.
    """
    difference = a - b
    if isinstance(difference, int):
        return False
    calls = any(isinstance(atom, Call) for term, _ in difference.terms for atom, _ in term)
    return calls or symbols_of(a) != symbols_of(b)


@dataclass(frozen=True)
class Transpose(Attributes):
    """Axis i of the result is axis `permutation[i]` of x."""

    permutation: Ints

    def result(self, x: TensorType) -> TensorType:
        require(
            sorted(self.permutation) == list(range(x.rank)),
            f"permutation {self.permutation} is not one of the {x.rank} axes of {x}",
        )
        return TensorType(x.dtype, tuple(x.shape[axis] for axis in self.permutation))


@dataclass(frozen=True)
class Slice(Attributes):
    """Elements start, start + stride, ... below limit of each axis."""

    start: Dims
    limit: Dims
    stride: Dims = field(metadata=by_operands(_ones))

    def result(self, x: TensorType) -> TensorType:
        for name, each in (("start", self.start), ("limit", self.limit), ("stride", self.stride)):
            require(len(each) == x.rank, f"{name} needs {x.rank} entries for {x}, got {len(each)}")
        shape: list[Dim] = []
        for axis, dim in enumerate(x.shape):
            low, high, step = self.start[axis], self.limit[axis], self.stride[axis]
            require(
                not _known_less(low, 0)
                and not _known_less(high, low)
                and not _known_less(dim, high),
                f"axis {axis}: 0 <= start {low} <= limit {high} <= dim {dim} does not hold",
            )
            require(
                not _known_less(step, 1), f"axis {axis}: the stride is {step}, expected 1 or more"
            )
            shape.append(ceildiv(high - low, step))
        return TensorType(x.dtype, tuple(shape))


def _known_less(a: Dim, b: Dim) -> bool:
    difference = a - b
    return isinstance(difference, int) and difference < 0


@dataclass(frozen=True)
class Pad(Attributes):
    """`value` before (`low`), after (`high`) and between (`interior`) elements of each axis;
    negative low and high cut elements off."""

    low: Dims
    high: Dims
    interior: Dims = field(metadata=by_operands(_zeros))

    def result(self, x: TensorType, value: TensorType) -> TensorType:
        require(
            value == TensorType(x.dtype), f"the padding value is {value}, expected {x.dtype.name}[]"
        )
        for name, each in (("low", self.low), ("high", self.high), ("interior", self.interior)):
            require(len(each) == x.rank, f"{name} needs {x.rank} entries for {x}, got {len(each)}")
        shape: list[Dim] = []
        for axis, dim in enumerate(x.shape):
            require(not _known_less(self.interior[axis], 0), f"axis {axis}: interior is negative")
            inside = 0 if dim == 0 else dim + (dim - 1) * self.interior[axis]
            size = inside + self.low[axis] + self.high[axis]
            require(not _known_less(size, 0), f"axis {axis}: the padded dim would be {size}")
            shape.append(size)
        return TensorType(x.dtype, tuple(shape))


@dataclass(frozen=True)
class AlongAxis(Attributes):
    """What ops say that work along one axis."""

    axis: int


class Concatenate(AlongAxis):
    """The operands one after another on `axis`."""

    def result(self, *xs: TensorType) -> TensorType:
        require(len(xs) >= 1, "needs at least one operand")
        first = xs[0]
        check_axes((self.axis,), first.rank, "axis")
        total: Dim = 0
        for place, x in enumerate(xs):
            same = x.dtype is first.dtype and x.rank == first.rank
            same = same and all(
                a == self.axis or x.shape[a] == first.shape[a] for a in range(x.rank)
            )
            require(
                same, f"operand {place} is {x}: it may differ from {first} in dim {self.axis} only"
            )
            total = total + x.shape[self.axis]
        return TensorType(
            first.dtype, (*first.shape[: self.axis], total, *first.shape[self.axis + 1 :])
        )


@dataclass(frozen=True)
class Reverse(Attributes):
    """The elements of `axes` in opposite order."""

    axes: Ints

    def result(self, x: TensorType) -> TensorType:
        check_axes(self.axes, x.rank, "axes")
        return x


@dataclass(frozen=True)
class Reinterpret(Attributes):
    """The bytes of x in memory as another dtype: a wider one takes the last dim, a narrower one
    adds it."""

    dtype: DType

    def result(self, x: TensorType) -> TensorType:
        own, wanted = x.dtype.bytes, self.dtype.bytes
        if own == wanted:
            return TensorType(self.dtype, x.shape)
        if own > wanted:
            return TensorType(self.dtype, (*x.shape, own // wanted))
        parts = wanted // own
        require(
            x.rank > 0 and x.shape[-1] == parts,
            f"the last dim of {x} must be {parts}, which are the bytes of one {self.dtype}",
        )
        return TensorType(self.dtype, x.shape[:-1])


for _row in (
    OpRow("broadcast", "shape", ("x",), Broadcast),
    OpRow("reshape", "shape", ("x",), Reshape),
    OpRow("transpose", "shape", ("x",), Transpose),
    OpRow("slice", "shape", ("x",), Slice),
    OpRow("pad", "shape", ("x", "value"), Pad),
    OpRow("concatenate", "shape", ("*xs",), Concatenate),
    OpRow("reinterpret", "shape", ("x",), Reinterpret),
    OpRow("unpack", "shape", ("x",), Unpack),
    OpRow("reverse", "shape", ("x",), Reverse),
):
    register(_row)

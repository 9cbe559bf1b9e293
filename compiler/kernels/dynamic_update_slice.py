"""The class of dynamic_update_slice: a block of a tensor replaced at a place known at run time.

Where the result takes the operand's memory only the block is written; otherwise the rest is
copied. Workgroups share the result, so each writes what the block has in its share.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.ir import Function, Op, Value, dims, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.box import Range, Target, walk_box
from ingot.compiler.kernels.emit import Emitter
from ingot.compiler.kernels.entry import finish_kernel
from ingot.compiler.kernels.indexing import Axis, Index, linearize, strides_of
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lines import root_of
from ingot.compiler.kernels.loop import Index as LoopIndex
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.kernels.schedule import Grid, Merged, guess, power_of_two
from ingot.compiler.kernels.trace import Checked, Load, Node, Tracer
from ingot.compiler.kernels.work_group import WorkGroup
from ingot.hal.spec import dtype

__all__ = ["UpdateSchedule", "lower_dynamic_update_slice"]

# Not measured: most workgroups have no part of the block, and return.
_SHARE = 1 << 18  # bytes of the result per workgroup
_GROUP_SHARE = 1 << 16  # the same where a workgroup is several work items


@dataclass(frozen=True)
class UpdateSchedule:
    """The decisions of one kernel, for people to read."""

    extents: tuple[Dim, ...]  # of the result, neighbours merged
    sizes: tuple[Dim, ...]  # of the block
    lanes: int
    tile: tuple[int, int, int]
    in_place: bool  # where the operand dies


@dataclass(frozen=True)
class _Side:
    """One dim, or several that are walked as one."""

    extent: Dim
    size: Dim
    start: Node | None  # in steps of `scale`; None: 0
    scale: Dim


def lower_dynamic_update_slice(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry with one `dynamic_update_slice` and what feeds it."""
    return _Lowering(function, target, root_of(function, "dynamic_update_slice")).lower()


class _Lowering:
    def __init__(self, function: Function, target: TargetInfo, op: Op) -> None:
        self.function = function
        self.type = tensor_type(op.result)
        self.tracer = Tracer(function, may_split=False)
        self.sides = self._sides(op)
        self.axes = [Axis(side.extent) for side in self.sides]
        self.block_axes = [Axis(side.size) for side in self.sides]
        self.out = _dense(self.axes, [side.extent for side in self.sides])
        self.block_out = _place(self.block_axes, [side.extent for side in self.sides])
        self.update = self._trace(op.operands[1], self.block_axes)
        self.builder = b = LoopBuilder()
        starts = [side.start for side in self.sides if side.start is not None]
        self.target = Target(
            b.binding(len(function.arguments), self.type.dtype),
            self._trace(op.operands[0], self.axes),
            self.out,
            (self.update, *starts),
        )
        self.lanes = target.lanes(self.type.dtype)
        extent = self.sides[-1].extent
        if isinstance(extent, int) and extent < min(self.lanes, 4):
            self.lanes = 1
        merged = [Merged(axis, axis.extent) for axis in self.axes]
        self.group = WorkGroup(b, self._items(target.group_size))
        share = _SHARE if self.group.count == 1 else _GROUP_SHARE
        self.grid = Grid.of(merged, share // self.type.dtype.bytes, function.symbols, self.lanes)
        self.shared = {each.axis: each for each in self.grid.shared}

    def _items(self, items: int) -> tuple[int, int, int]:
        """The work items along the last side and the one before it."""
        *outer, inner = (guess(each.extent, self.function.symbols) for each in self.sides)
        width = min(power_of_two(-(-inner // self.lanes)), items)
        height = min(power_of_two(outer[-1]), items // width) if outer else 1
        return width, height, 1

    def _sides(self, op: Op) -> list[_Side]:
        """The dims, outermost first; whole ones are merged with the dim before them where
        operand and update are memory or one number."""
        x, update, *starts = op.operands
        shape, sizes = tensor_type(x).shape, tensor_type(update).shape
        merges = self._is_plain(x) and self._is_plain(update)
        sides: list[_Side] = []
        inner: Dim = 1
        for place in reversed(range(len(shape))):
            dim, size = shape[place], sizes[place]
            if merges and dim == size:
                inner = inner * dim
                continue
            bound = dim - size + 1
            value = self.tracer.trace(starts[place], ())
            ordinal = self.tracer.ordinal_of(starts[place])
            start = Checked(dtype("i64"), value, bound, "clamp", ordinal)
            sides.insert(0, _Side(dim * inner, size * inner, start, inner))
            inner = 1
        if inner != 1 or not sides:
            sides.insert(0, _Side(inner, inner, None, 1))
        return sides

    def _is_plain(self, value: Value) -> bool:
        node = self.tracer.trace(value, [Index.of(Axis(d)) for d in tensor_type(value).shape])
        return value in self.tracer.ordinals or not node.axes

    def _trace(self, value: Value, axes: Sequence[Axis]) -> Node:
        type = tensor_type(value)
        if value in self.tracer.ordinals:
            index = _dense(axes, [axis.extent for axis in axes])
            return Load(type.dtype, self.tracer.ordinals[value], index)
        if len(axes) != type.rank:  # merged, so all elements are one number
            return self.tracer.trace(value, [Index()] * type.rank)
        return self.tracer.trace(value, [Index.of(axis) for axis in axes])

    def lower(self) -> Kernel:
        """The kernel."""
        b = self.builder
        shares = [self._share(place) for place in range(len(self.axes))]
        self.target.copy(self.group, shares, self.lanes)
        self.group.barrier()
        self._write_block()
        function = self.function
        operand = self.target.operand
        count = dims.product(tensor_type(function.block.terminator.operands[0]).shape)
        written = dims.product(side.size for side in self.sides)
        return finish_kernel(
            function,
            b,
            workload=self.grid.workload,
            tile=self.grid.tile,
            flops=written,
            local_size=self.group.size,
            local_length=self.group.local_length,
            in_place=() if operand is None else ((operand, 0),),
            untouched=(2 * count - written) * self.type.dtype.bytes,
            schedule=UpdateSchedule(
                tuple(side.extent for side in self.sides),
                tuple(side.size for side in self.sides),
                self.lanes,
                self.grid.tile,
                operand is not None,
            ),
        )

    def _share(self, place: int) -> Range:
        """What this workgroup has of a dim of the result."""
        b, axis = self.builder, self.axes[place]
        if axis in self.shared:
            return Range(axis, *self.grid.bounds(b, self.shared[axis]))
        return Range(axis, 0, b.dim(axis.extent))

    def _write_block(self) -> None:
        """Write the part of the block that lies in this workgroup's share."""
        b = self.builder
        emitter = Emitter(b, {})
        emitter.clamps = self.group.count > 1
        base: LoopIndex = 0
        ranges = []
        strides = strides_of([side.extent for side in self.sides])
        for place, side in enumerate(self.sides):
            share = self._share(place)
            first, end = share.first, share.end
            if side.start is not None:
                start = b.mul(emitter.emit(side.start), b.dim(side.scale))
                base = b.add(base, b.mul(start, b.dim(strides[place])))
                first = b.max(b.sub(first, start), 0)
                end = b.min(b.sub(end, start), b.dim(side.size))
            ranges.append(Range(self.block_axes[place], first, end))

        def store(count: LoopIndex | None) -> None:
            value = emitter.emit_vector(self.update)
            place = b.add(base, emitter.index(self.block_out))
            b.store(self.target.memory, place, value, count)

        walk_box(emitter, ranges, self.lanes, store, self.group)


def _dense(axes: Sequence[Axis], extents: Sequence[Dim]) -> Index:
    """The place of an element in a dense array; axes of size 1 do not count."""
    indices = [
        Index() if extent == 1 else Index.of(axis)
        for axis, extent in zip(axes, extents, strict=True)
    ]
    return linearize(indices, extents)


def _place(axes: Sequence[Axis], extents: Sequence[Dim]) -> Index:
    """The place in a dense array of `extents`, which are larger than those of the axes."""
    return linearize([Index.of(axis) for axis in axes], extents)

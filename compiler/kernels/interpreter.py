"""Runs any kernel on NumPy memory, work item beside work item: the oracle for printed kernels.

All items of some workgroups go through the ops together, each value an array with one row per
item; those that a branch leaves out, or whose loop is over, wait. So barriers need nothing:
whatever was stored before an op is there to be read. But who reads what another item stored
without a barrier in between is told, as is who leaves its memory.
Made to be right, not fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from ingot.compiler.graph.ops import OPS
from ingot.compiler.graph.references.numbers import Array, narrow, quiet
from ingot.compiler.ir import Block, MemoryType, Op, Value, VectorType, walk
from ingot.compiler.ir.dims import evaluate
from ingot.compiler.kernels import table
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.loop import dtype_of, lanes_of
from ingot.compiler.kernels.loop_rules import TILE
from ingot.compiler.kernels.math.functions import math_function
from ingot.compiler.kernels.references import REFERENCES
from ingot.compiler.kernels.table import Axis, Constant, Offset, Ordinal
from ingot.hal.errors import InvalidArgument

__all__ = ["Fault", "run_kernel"]

Fault = tuple[int, int, int]
"""Operand, index, bound."""

_ITEMS = 1 << 12  # that go together
_FILL = 0xA5  # memory "of any content" has this


@quiet
def run_kernel(kernel: Kernel, arrays: Sequence[Array], symbols: Mapping[str, int]) -> Fault | None:
    """Run the grid on the bindings, C-contiguous arrays, of which results and workspaces are
    written. Gives what the first workgroup with a fault says, if any.

    InvalidArgument: the kernel touches what is not its own, or what a barrier should guard.
    """
    workload = [evaluate(dim, symbols) for dim in kernel.workload]
    grid = [-(-work // tile) for work, tile in zip(workload, kernel.tile, strict=True)]
    numbers = [evaluate(dim, symbols) for dim in kernel.constants]
    bindings = [_Memory.of(array) for array in arrays]
    items, count = int(np.prod(kernel.local_size)), int(np.prod(grid))
    batch = max(_ITEMS // items, 1)
    for first in range(0, count, batch):
        groups = np.arange(first, min(first + batch, count)).repeat(items)
        fault = _Run(kernel, bindings, numbers, workload, grid, groups).run()
        if fault is not None:
            return fault
    return None


class _Memory:
    """Bytes, cut into parts of which each workgroup has one; a binding is one part for all."""

    def __init__(self, parts: Array, shared: bool) -> None:
        self.parts = parts  # bytes, one row per part
        self.shared = shared
        self.writer = np.full(parts.shape, -1)  # the item that stored since the last barrier

    @staticmethod
    def of(array: Array) -> _Memory:
        return _Memory(array.reshape(-1).view(np.uint8)[None], shared=True)


class _Run:
    def __init__(
        self,
        kernel: Kernel,
        bindings: Sequence[_Memory],
        numbers: Sequence[int],
        workload: Sequence[int],
        grid: Sequence[int],
        groups: Array,
    ) -> None:
        self.kernel, self.numbers, self.workload = kernel, numbers, workload
        self.bindings = bindings
        count = len(groups)
        self.part = groups - groups[0]  # the row of a group's own memory
        within = np.arange(count) % int(np.prod(kernel.local_size))
        self.group = _folded(groups, grid)
        self.item = _folded(within, kernel.local_size)
        parts = int(self.part[-1]) + 1
        own = (kernel.scratch_length, kernel.local_length)
        self.scratch, self.local = (
            _Memory(np.full((parts, length), _FILL, np.uint8), shared=False) for length in own
        )
        self.values: dict[Value, Any] = {}
        self.active = np.ones(count, bool)
        self.ended = np.zeros(count, bool)  # by a fault
        self.faults: dict[int, Fault] = {}
        self.has_barrier = any(op.name == "loop.barrier" for op in walk(kernel.loops))
        self.tiles = np.zeros((count, 2, TILE, TILE), np.int32)
        self.meet()

    def run(self) -> Fault | None:
        self.block(self.kernel.loops.block)
        return self.faults[min(self.faults)] if self.faults else None

    def block(self, block: Block) -> list[Value]:
        """Run the ops for the active items; gives the operands of the terminator."""
        for op in block.ops[:-1]:
            special = _SPECIAL.get(op.name)
            if special is not None:
                special(self, op)
            else:
                self.values[op.result] = self.compute(op)
        return block.terminator.operands

    def compute(self, op: Op) -> Array:
        """An op on registers: by its function if it has one, else by the reference."""
        operands = [self.values[value] for value in op.operands]
        element = dtype_of(op.result)
        function = math_function(op.name, element, lanes_of(op.result))
        if function is not None:
            for argument, value in zip(function.arguments, operands, strict=True):
                self.values[argument] = value.astype(dtype_of(argument).numpy)
            (result,) = self.block(function.block)
            return narrow(self.values[result], element)
        reference = REFERENCES.get(op.name) or OPS[op.name].reference
        extra = dict(vars(op.attributes))
        if op.name == "loop.broadcast":
            extra["lanes"] = lanes_of(op.result)
        return np.asarray(reference(*operands, **extra))

    def fill(self, value: Value, number: Any) -> None:
        """The same number in all items and lanes."""
        lanes = (value.type.lanes,) if isinstance(value.type, VectorType) else ()
        shape = (len(self.active), *lanes)
        self.values[value] = np.full(shape, number).astype(dtype_of(value).numpy)

    def take(self, targets: Sequence[Value], values: Sequence[Value], mask: Array) -> None:
        """The values in the items of the mask; others keep what they have."""
        fresh = []
        for target, value in zip(targets, values, strict=True):
            new, old = self.values[value], self.values.get(target)
            lanes = mask.reshape(-1, *[1] * (new.ndim - 1))
            fresh.append(new if old is None else np.where(lanes, new, old).astype(new.dtype))
        self.values.update(zip(targets, fresh, strict=True))

    # Leaves.

    def leaf(self, op: Op) -> None:
        match op.name:
            case "loop.constant":
                self.fill(op.result, Constant.of(op).value)
            case "loop.dim":
                self.fill(op.result, self.numbers[Ordinal.of(op).ordinal])
            case "loop.workload":
                self.fill(op.result, self.workload[Axis.of(op).axis])
            case "loop.workgroup":
                self.values[op.result] = self.group[Axis.of(op).axis]
            case "loop.local_id":
                self.values[op.result] = self.item[Axis.of(op).axis]
            case "loop.lanes":
                lanes = op.result.typed(VectorType).lanes
                self.fill(op.result, np.arange(lanes))
            case "loop.binding":
                self.values[op.result] = self.bindings[Ordinal.of(op).ordinal], 0
            case "loop.scratch" | "loop.local":
                memory = self.scratch if op.name == "loop.scratch" else self.local
                self.values[op.result] = memory, Offset.of(op).offset

    # Memory.

    def bytes_of(
        self, op: Op, indices: Array, mask: Array, operand: int = 0
    ) -> tuple[_Memory, Array, Array]:
        """The memory, and for every item and lane of the mask its part, and where its bytes lie."""
        memory, offset = cast("tuple[_Memory, int]", self.values[op.operands[operand]])
        type = op.operands[operand].typed(MemoryType)
        length = type.element.bytes
        chosen = indices[mask].astype(np.int64)
        bits = type.dtype.bits if type.is_packed else 8 * length
        starts = offset + chosen * bits // 8
        outside = (chosen < 0) | (starts + length > memory.parts.shape[1])
        if outside.any():
            size = (memory.parts.shape[1] - offset) * 8 // bits
            raise InvalidArgument(
                f"kernel '{self.kernel.name}': {op.name} at index {chosen[outside][0]} of "
                f"{size} elements of {op.operands[operand].type}"
            )
        rows = np.zeros_like(self.part) if memory.shared else self.part
        part = np.broadcast_to(rows.reshape(-1, *[1] * (mask.ndim - 1)), mask.shape)[mask]
        return memory, part[:, None], starts[:, None] + np.arange(length)

    def items_of(self, mask: Array) -> Array:
        """Per item and lane of the mask the number of the item."""
        numbers = np.arange(len(mask)).reshape(-1, *[1] * (mask.ndim - 1))
        return np.broadcast_to(numbers, mask.shape)[mask][:, None]

    def require_barrier(self, op: Op, memory: _Memory, place: Any, items: Array) -> None:
        """What was stored since the last barrier is the business of its writer alone."""
        writer = memory.writer[place]
        if ((writer >= 0) & (writer != items)).any():
            raise InvalidArgument(
                f"kernel '{self.kernel.name}': {op.name} meets what another work item stored, "
                f"without a barrier in between ({op.operands[0].type})"
            )

    def lanes_of(self, value: Value, op: Op, count: int) -> tuple[Array, Array]:
        """The index of every lane from that of lane 0 on, and which lanes are touched."""
        first = self.values[op.operands[1]]
        if not isinstance(value.type, VectorType):
            return first, self.active
        lanes = np.arange(value.type.lanes)
        mask = np.broadcast_to(self.active[:, None], (len(first), len(lanes)))
        if len(op.operands) > count:
            mask = mask & (lanes < self.values[op.operands[count]][:, None])
        return first[:, None] + lanes, mask

    def load(self, op: Op) -> None:
        if op.name == "loop.gather":
            indices = self.values[op.operands[1]].astype(np.int64)
            mask = np.broadcast_to(self.active[:, None], indices.shape)
        else:
            indices, mask = self.lanes_of(op.result, op, 2)
        memory, *place = self.bytes_of(op, indices, mask)
        self.require_barrier(op, memory, tuple(place), self.items_of(mask))
        element = dtype_of(op.result).numpy
        found = np.ascontiguousarray(memory.parts[tuple(place)])
        stored = op.operands[0].typed(MemoryType)
        if stored.is_packed:
            found = _unpacked(found, indices[mask][:, None], stored)
        result = np.zeros(mask.shape, element)
        result[mask] = found.view(element)[:, 0]
        self.values[op.result] = result

    def store(self, op: Op) -> None:
        value = op.operands[2]
        indices, mask = self.lanes_of(value, op, 3)
        self.write(op, indices, mask, self.values[value].astype(dtype_of(value).numpy))

    def write(self, op: Op, indices: Array, mask: Array, values: Array, operand: int = 0) -> None:
        """Store the values of the mask."""
        memory, *place = self.bytes_of(op, indices, mask, operand)
        data = np.ascontiguousarray(values[mask])
        memory.parts[tuple(place)] = data[:, None].view(np.uint8)
        memory.writer[tuple(place)] = self.items_of(mask)

    def dot_tiles(self, op: Op) -> None:
        """Sums of products of single words: [item, segment, word, row or column] on the way."""
        dot = table.DotTiles.of(op)
        at = [
            np.reshape(0 if isinstance(each.type, MemoryType) else self.values[each], (-1, 1, 1, 1))
            for each in op.operands
        ]
        at[10] = at[10] * dot.lines
        rows, words, segments = (np.arange(max(int(np.max(each)), 0)) for each in at[10:])
        segment, word, column = segments[:, None, None], words[:, None], np.arange(16 * dot.panels)
        alive = self.active.reshape(-1, 1, 1, 1) & (segment < at[12]) & (word < at[11])
        line, row = np.divmod(rows, np.maximum(at[10] // dot.lines, 1))
        places = at[1] + segment * at[4] + word + row * at[2] + line * at[3]
        a = self.words_of(op, 0, places, alive & (rows < at[10]))
        places = at[6] + segment * at[8] + 16 * word + column // 16 * at[7] + column % 16
        b = self.words_of(op, 5, places, alive & (column >= 0))
        sums = np.zeros((len(a), len(rows), len(column)), dtype_of(op.operands[9]).numpy)
        for s, k in np.ndindex(len(segments), len(words)):
            left = a[:, s, k, :, None].repeat(len(column), 2)
            right = b[:, s, k, None].repeat(len(rows), 1)
            sums = _dot_words(left, right, sums, dot)
        indices = np.zeros((len(a), 1, 1), int) + rows[:, None] * 16 * dot.width + column
        alive = self.active[:, None, None] & (rows[:, None] < at[10][:, 0])
        self.write(op, indices, np.broadcast_to(alive, indices.shape), sums, 9)

    def dot_parts(self, op: Op) -> None:
        """As `dot_tiles`: [item, word, row or column] on the way."""
        dot = table.DotParts.of(op)
        at = [
            np.reshape(0 if isinstance(each.type, MemoryType) else self.values[each], (-1, 1, 1))
            for each in op.operands
        ]
        rows = np.arange(max(int(np.max(at[11])), 0))
        word = np.arange(max(int(np.max(at[12] * at[13])), 0))[:, None]
        column, words = np.arange(16 * dot.panels), np.maximum(at[12], 1)
        segment = word // words
        alive = self.active.reshape(-1, 1, 1) & (segment < at[13])
        starts = at[10] + rows[:, None] * 16 * dot.width + column
        stored = self.active[:, None, None] & (rows[:, None] < at[11])
        dtype = dtype_of(op.operands[9]).numpy
        found = np.zeros(np.broadcast_shapes(starts.shape, stored.shape), dtype)
        sums = self.words_of(op, 9, starts, stored).view(dtype) if dot.adds else found
        pairs = [(i, j) for i in range(dot.parts) for j in range(dot.parts - i)]
        for i, j in pairs:
            places = at[1] + i * at[3] + segment * at[4] + word % words + rows * at[2]
            a = self.words_of(op, 0, places, alive & (rows < at[11]))
            places = at[6] + j * at[8] + 16 * word + column // 16 * at[7] + column % 16
            b = self.words_of(op, 5, places, alive & (column >= 0))
            for k in range(len(word)):
                left = a[:, k, :, None].repeat(len(column), 2)
                right = b[:, k, None].repeat(len(rows), 1)
                sums = REFERENCES["loop.dot2"](left, right, sums)
        places, stored = (np.broadcast_to(each, sums.shape) for each in (starts, stored))
        self.write(op, places, stored, sums, 9)

    def multiply_tile(self, op: Op) -> None:
        dot, lines = table.MultiplyTile.of(op), np.arange(TILE)
        left, pitch, right = (self.values[op.operands[each]][:, None, None] for each in (1, 2, 4))
        count, active = self.values[op.operands[5]], self.active[:, None, None]
        words = np.arange(max(int(np.max(count)), 0))
        alive = active & (words < count[:, None, None])
        a = self.words_of(op, 0, left + lines[:, None] * pitch + words, alive)
        b = self.words_of(op, 3, right + TILE * words[:, None] + lines, alive.swapaxes(1, 2))
        sums = np.zeros((len(left), TILE, TILE), np.int32)
        for k in range(len(words)):
            pair = np.broadcast_arrays(a[:, :, k, None], b[:, k, None])
            sums = REFERENCES["loop.dot4"](*pair, sums, left=dot.left, right=dot.right)
        self.tiles[self.active, dot.tile] = sums[self.active]

    def store_tile(self, op: Op) -> None:
        sums = self.tiles[:, table.Tile.of(op).tile].reshape(len(self.active), -1)
        indices = np.broadcast_to(np.arange(sums.shape[1]), sums.shape)
        self.write(op, indices, np.broadcast_to(self.active[:, None], sums.shape), sums)

    def words_of(self, op: Op, operand: int, indices: Array, mask: Array) -> Array:
        """The words of a memory, 0 beside the mask."""
        indices, mask = np.broadcast_arrays(indices, mask)
        memory, *place = self.bytes_of(op, indices, mask, operand)
        self.require_barrier(op, memory, tuple(place), self.items_of(mask))
        result = np.zeros(indices.shape, np.int32)
        result[mask] = np.ascontiguousarray(memory.parts[tuple(place)]).view(np.int32)[:, 0]
        return result

    def same(self, op: Op) -> None:
        addresses = []
        for value in op.operands:
            memory, offset = cast("tuple[_Memory, int]", self.values[value])
            addresses.append(memory.parts.ctypes.data + offset)
        self.fill(op.result, addresses[0] == addresses[1])

    def poll(self, op: Op) -> None:
        """Nobody ends this call."""

    def barrier(self, op: Op) -> None:
        self.meet()

    def meet(self) -> None:
        """From here on all items may read what each has stored."""
        for memory in (self.scratch, self.local, *self.bindings):
            memory.writer[:] = -1

    # Control.

    def fault(self, op: Op) -> None:
        condition, index, bound = (self.values[value] for value in op.operands)
        bad = condition.reshape(len(self.active), -1) & self.active[:, None]
        for item in np.flatnonzero(bad.any(axis=1)):
            lane = int(np.argmax(bad[item]))
            wrong = index.reshape(len(self.active), -1)[item, lane]
            operand = table.Fault.of(op).operand
            self.faults.setdefault(int(item), (operand, int(wrong), int(bound[item])))
        if not self.has_barrier:
            self.ended |= bad.any(axis=1)
            self.active = self.active & ~self.ended

    def if_(self, op: Op) -> None:
        before, condition = self.active, self.values[op.operands[0]]
        for region, chosen in zip(op.regions, (condition, ~condition), strict=True):
            self.active = before & chosen & ~self.ended
            if self.active.any():
                values = self.block(region.block)
                self.take(op.results, values, before & chosen)
        for result in op.results:
            if result not in self.values:
                self.fill(result, 0)
        self.active = before & ~self.ended

    def for_(self, op: Op) -> None:
        lower, upper, step = (self.values[value] for value in op.operands[:3])
        body = op.regions[0].block
        index, carried = body.arguments[0], body.arguments[1:]
        for argument, initial in zip(carried, op.operands[3:], strict=True):
            self.values[argument] = self.values[initial]
        before, place = self.active, lower
        while (alive := before & (place < upper) & ~self.ended).any():
            self.active = alive
            self.values[index] = place
            self.take(carried, self.block(body), alive)
            place = place + step
        self.active = before & ~self.ended
        for argument, result in zip(carried, op.results, strict=True):
            self.values[result] = self.values[argument]


def _dot_words(a: Array, b: Array, sums: Array, dot: table.DotTiles) -> Array:
    if dot.left.is_float:
        return REFERENCES["loop.dot2"](a, b, sums)
    return REFERENCES["loop.dot4"](a, b, sums, left=dot.left, right=dot.right)


def _unpacked(found: Array, indices: Array, stored: MemoryType) -> Array:
    """The elements at these indices, of the bytes in which they lie."""
    bits = stored.dtype.bits
    high = (found << (8 - bits - indices * bits % 8)).astype(np.uint8)
    return np.asarray(high.view(stored.element.numpy) >> (8 - bits))


def _folded(numbers: Array, size: Sequence[int]) -> list[Array]:
    """The x, y and z of numbers that count along x first."""
    x, rest = numbers % size[0], numbers // size[0]
    return [x, rest % size[1], rest // size[1]]


_SPECIAL: dict[str, Callable[[_Run, Op], None]] = {
    **{
        f"loop.{name}": _Run.leaf
        for name in (
            "constant", "dim", "workload", "workgroup", "local_id", "lanes", "binding",
            "scratch", "local",
        )
    },
    "loop.load": _Run.load,
    "loop.gather": _Run.load,
    "loop.store": _Run.store,
    "loop.shape_tiles": lambda run, op: None,
    "loop.multiply_tile": _Run.multiply_tile,
    "loop.store_tile": _Run.store_tile,
    "loop.dot_tiles": _Run.dot_tiles,
    "loop.dot_parts": _Run.dot_parts,
    "loop.same": _Run.same,
    "loop.poll": _Run.poll,
    "loop.prefetch": lambda run, op: None,
    "loop.barrier": _Run.barrier,
    "loop.fault": _Run.fault,
    "loop.if": _Run.if_,
    "loop.for": _Run.for_,
}  # fmt: skip

"""The element-wise tail of a contraction, computed on the register tile that was just made.

A contraction's result is seen as a matrix [rows, columns]: all leading dims are one row
index, the last dim runs along the lanes. `Epilogue.store` takes the accumulators of one
vector of a row, runs the region's remaining ops on it, and stores every result of the
entry at its place. Operands may have the result's shape or broadcast into it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from ingot.compiler.graph.ops import Broadcast, Constant, Convert, DimValue
from ingot.compiler.ir import Function, Op, Value, defined_by, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, product, row_major_strides
from ingot.compiler.kernels.loop import I64, Index, LoopBuilder, lanes_of
from ingot.compiler.kernels.register_tile import PANEL, TileShape, panel_tile

__all__ = ["Epilogue", "Position", "apply_elementwise"]

MOST_TWICE = 12
"""Ops of an epilogue that is printed once for whole vectors and once for parts of them."""

EPILOGUE_LEAVES = frozenset({"constant", "broadcast", "reshape", "dim"})


def apply_elementwise(builder: LoopBuilder, op: Op, operands: Sequence[Value]) -> Value:
    """One element-wise graph op on loop values."""
    if isinstance(op.attributes, Convert):
        return builder.convert(operands[0], op.attributes.dtype)
    return builder.op(op.name, *operands, attributes=op.attributes)


@dataclass(frozen=True)
class Position:
    """Where a vector of the result lies: its row, its first column, and its live lanes."""

    row: Index
    column: Index
    lanes: int
    count: Index | None = None  # lanes from here on lie beyond the last column


class Epilogue:
    """Evaluates the ops behind `root` and stores the results of `function`."""

    def __init__(self, builder: LoopBuilder, function: Function, root: Op) -> None:
        self._builder = builder
        self._root = root.result
        self.shape = tensor_type(self._root).shape
        self._arguments = {value: at for at, value in enumerate(function.arguments)}
        self._results = function.block.terminator.operands
        self._memory: dict[int, Value] = {}
        self._shared: dict[tuple[object, ...], Value] | None = None
        self._live = self._reach(len(self._results))

    def _reach(self, count: int) -> set[Value]:
        """The values between the root and the first results."""
        seen: set[Value] = set()
        pending = list(self._results[:count])
        while pending:
            value = pending.pop()
            if value in seen or value is self._root:
                continue
            seen.add(value)
            if isinstance(value.owner, Op):
                pending.extend(value.owner.operands)
        return seen

    def in_place(self, taken: set[int]) -> tuple[tuple[int, int], ...]:
        """(argument, result) pairs that may share memory: same type, read only in place, and for
        the first time before the result is stored."""
        pairs = []
        used: set[int] = set(taken)
        for result, value in enumerate(self._results):
            known = self._reach(result + 1)
            for argument, at in self._arguments.items():
                free = at not in used and argument in known
                if free and argument.type == value.type and self._read_in_place(argument):
                    pairs.append((at, result))
                    used.add(at)
                    break
        return tuple(pairs)

    def _read_in_place(self, argument: Value) -> bool:
        """No broadcast, reshape or look-up reads the argument: element i is read for element i."""
        for value in self._live:
            op = value.owner
            if not isinstance(op, Op) or argument not in op.operands:
                continue
            if op.name in EPILOGUE_LEAVES or op.name == "take":
                return False
        return True

    def store(self, accumulator: Value, position: Position) -> None:
        """Run the ops on one vector of the root's values and store all results."""
        known: dict[Value, Value] = {}
        root = tensor_type(self._root)
        known[self._root] = self._builder.convert(accumulator, root.dtype)
        for ordinal, result in enumerate(self._results):
            value = self._evaluate(result, position, known)
            at = self._linear(position)
            memory = self._bind(len(self._arguments) + ordinal, result)
            value = self._builder.broadcast(value, position.lanes)
            self._builder.store(memory, at, value, position.count)

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Stores in here read what rows have in common once. The first one may not stand in a
        branch of its own."""
        self._shared = {}
        try:
            yield
        finally:
            self._shared = None

    def store_tile(
        self,
        sums: Sequence[Value],
        tile: TileShape,
        row: Index,
        panel: Index,
        rows: Index | None = None,
    ) -> None:
        """The same for a register tile from `row` and `panel` on, of which only the first `rows`,
        if given, two or more, are there. Only the tile with the last column stores parts of
        vectors, which is slow."""
        b, columns = self._builder, self.shape[-1]
        first, width = b.mul(panel, PANEL), tile.panels * PANEL
        live: Index = b.sub(b.dim(columns), first)
        if isinstance(columns, int):
            live = width - PANEL + (columns % PANEL or PANEL)
        elif columns % PANEL == 0:
            live = width
        put = partial(self._put, sums, tile, row, first, rows)
        if live == width:
            put(width)
        elif live == columns or len(self._live) > MOST_TWICE:
            put(live if live == columns else b.sub(b.dim(columns), first))
        else:
            whole = b.compare("le", b.add(first, width), b.dim(columns))
            b.if_(whole, lambda: put(width), lambda: put(live))

    def store_panels(
        self, sums: Sequence[Value], tile: TileShape, row: Index, panels: Sequence[Index]
    ) -> None:
        """The same for a tile of whole rows whose panels are not side by side."""
        single = panel_tile(tile.rows, 1, tile.lanes)
        for j, panel in enumerate(panels):
            places = range(j * single.vectors, len(sums), tile.vectors)
            own = [value for at in places for value in sums[at : at + single.vectors]]
            self.store_tile(own, single, row, panel)

    def _put(
        self,
        sums: Sequence[Value],
        tile: TileShape,
        row: Index,
        column: Index,
        rows: Index | None,
        live: Index,
    ) -> None:
        """Store a tile of which only the first `live` columns are there."""
        b, lanes = self._builder, tile.lanes
        counts = [b.max(b.min(b.sub(live, v * lanes), lanes), 0) for v in range(tile.vectors)]

        def part(i: int, vector: int) -> None:
            at, count = b.add(column, vector * lanes), counts[vector]
            position = Position(b.add(row, i), at, lanes, None if count == lanes else count)
            self.store(sums[i * tile.vectors + vector], position)

        def line(i: int) -> None:
            for vector in vectors:
                part(i, vector)

        vectors = [vector for vector, count in enumerate(counts) if count != 0]
        there: Index = tile.rows if rows is None else rows
        sure = tile.rows if rows is None else min(tile.rows, 2)
        with self.sharing():
            for vector in vectors:
                for i in range(sure):
                    part(i, vector)
            for i in range(sure, tile.rows):
                b.if_(b.compare("lt", i, there), partial(line, i))

    def _bind(self, ordinal: int, value: Value) -> Value:
        if ordinal not in self._memory:
            self._memory[ordinal] = self._builder.binding(ordinal, tensor_type(value).dtype)
        return self._memory[ordinal]

    def _linear(self, position: Position) -> Index:
        b = self._builder
        columns = b.dim(self.shape[-1])
        return b.add(b.mul(position.row, columns), position.column)

    def _evaluate(self, value: Value, position: Position, known: dict[Value, Value]) -> Value:
        """The vector of `value` (of the result's shape) at `position`."""
        if value in known:
            return known[value]
        op = value.owner
        if value in self._arguments:
            memory = self._bind(self._arguments[value], value)
            at = self._linear(position)
            result = self._builder.load(memory, at, position.lanes, position.count)
        elif isinstance(op, Op) and op.name == "broadcast":
            result = self._broadcast(op, position)
        elif isinstance(op, Op) and op.name == "take":
            result = self._look_up(op, position, known)
        elif isinstance(op, Op) and op.name not in EPILOGUE_LEAVES:
            parts = self._factors(op)
            operands = [self._evaluate(part, position, known) for part in parts or op.operands]
            if parts:
                a, b, c = operands
                result = self._builder.fma(a, b, c)
            else:
                result = apply_elementwise(self._builder, op, operands)
        else:
            result = self._small(value, (None,) * len(self.shape), position)
        known[value] = result
        return result

    def _look_up(self, op: Op, position: Position, known: dict[Value, Value]) -> Value:
        """Bytes of a table at places that bytes are."""
        b, (table, places) = self._builder, op.operands
        memory = self._bind(self._arguments[table], table)
        at = self._evaluate(places, position, known)
        if lanes_of(at) > 1:
            return b.gather(memory, at)
        return b.load(memory, b.convert(at, I64))

    def _factors(self, op: Op) -> Sequence[Value] | None:
        """a, b and c of a * b + c behind a sum of integers, where factors are rounded in any
        order; None: it is something else."""
        if op.name != "add" or not tensor_type(self._root).dtype.is_integer:
            return None
        if tensor_type(op.result).dtype.name != "f32":
            return None
        for part, rest in (op.operands, op.operands[::-1]):
            factors = defined_by(part, "mul")
            if factors is not None:
                return [*factors.operands, rest]
        return None

    def _broadcast(self, op: Op, position: Position) -> Value:
        operand = op.operands[0]
        dimensions = Broadcast.of(op).dimensions
        axes = [
            None if size == 1 and self.shape[axis] != 1 else axis
            for axis, size in zip(dimensions, tensor_type(operand).shape, strict=True)
        ]
        return self._small(operand, tuple(axes), position)

    def _small(self, value: Value, axes: tuple[int | None, ...], position: Position) -> Value:
        """`value`, whose dim i follows the result's axis axes[i] (None: always index 0)."""
        b = self._builder
        if value in self._arguments:
            return self._load_small(value, axes, position)
        op = value.op
        if op.name == "constant":
            literal = Constant.of(op).value
            assert literal.size == 1
            return b.constant(literal.array.reshape(-1)[0].item(), literal.dtype, 1)
        if op.name == "dim":
            scalar = b.value(b.dim(DimValue.of(op).value))
            return b.convert(scalar, tensor_type(value).dtype)
        if op.name == "broadcast":
            operand = op.operands[0]
            dimensions = Broadcast.of(op).dimensions
            inner = tuple(
                None if size == 1 else axes[axis]
                for axis, size in zip(dimensions, tensor_type(operand).shape, strict=True)
            )
            return self._small(operand, inner, position)
        if op.name == "reshape":
            return self._small_reshape(op, axes, position)
        operands = [self._small(operand, axes, position) for operand in op.operands]
        lanes = max(lanes_of(operand) for operand in operands)
        return apply_elementwise(b, op, [b.broadcast(operand, lanes) for operand in operands])

    def _small_reshape(self, op: Op, axes: tuple[int | None, ...], position: Position) -> Value:
        """A reshape that only adds or drops dims of size one."""
        operand = op.operands[0]
        result = op.result
        kept = [
            axis for axis, size in zip(axes, tensor_type(result).shape, strict=True) if size != 1
        ]
        following = iter(kept)
        inner = tuple(None if size == 1 else next(following) for size in tensor_type(operand).shape)
        return self._small(operand, inner, position)

    def _load_small(self, value: Value, axes: tuple[int | None, ...], position: Position) -> Value:
        b = self._builder
        memory = self._bind(self._arguments[value], value)
        at: Index = 0
        lane_stride: Dim = 0
        for axis, stride in zip(axes, row_major_strides(tensor_type(value).shape), strict=True):
            if axis is None:
                continue
            if axis == len(self.shape) - 1:
                lane_stride = stride
                at = b.add(at, b.mul(position.column, b.dim(stride)))
            else:
                at = b.add(at, b.mul(self._row_index(axis, position), b.dim(stride)))
        if lane_stride not in (0, 1):
            raise ValueError(f"epilogue operand {value} has no unit stride along the last dim")
        lanes, count = (position.lanes, position.count) if lane_stride else (1, None)
        of_rows = any(axis not in (None, len(self.shape) - 1) for axis in axes)
        if self._shared is None or of_rows:
            return b.load(memory, at, lanes, count)
        key = (value, at, lanes, count)
        if key not in self._shared:
            self._shared[key] = b.load(memory, at, lanes, count)
        return self._shared[key]

    def _row_index(self, axis: int, position: Position) -> Index:
        """The index along a leading axis that the row number stands for."""
        b = self._builder
        leading = self.shape[:-1]
        index = b.div(position.row, b.dim(product(leading[axis + 1 :])))
        return index if axis == 0 else b.rem(index, b.dim(leading[axis]))

"""The element-wise tail of a contraction, computed on the register tile that was just made.

A contraction's result is seen as a matrix [rows, columns]: all leading dims are one row
index, the last dim runs along the lanes. `Epilogue.store` takes the accumulators of one
vector of a row, runs the region's remaining ops on it, and stores every result of the
entry at its place. Operands may have the result's shape or broadcast into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from ingot.compiler.graph.ops import COSTLY, Broadcast, Constant, Convert, DimValue
from ingot.compiler.ir import Function, Op, Value, defined_by, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, product, row_major_strides
from ingot.compiler.kernels.loop import I64, Index, LoopBuilder, dtype_of, lanes_of
from ingot.compiler.kernels.loop_attributes import Offset
from ingot.compiler.kernels.register_tile import PANEL, TileShape, panel_tile
from ingot.compiler.kernels.schedule import MOST_BEFORE_SUMS, SUMS_LENGTH
from ingot.hal.spec import DType

__all__ = ["Epilogue", "Position", "apply_elementwise"]

MOST_TWICE = 12
"""Ops of an epilogue that is printed once for whole vectors and once for parts of them."""

LEAST_LOOPED, MOST_UNROLLED = 8, 64
"""Ops of an epilogue, and on all vectors of a tile, from which the sums wait in scratch, and a loop
takes them row by row: MobileNetV3 takes .98 of the time with AMX and .99 to 1.01 with VNNI, in .77
of the bytes. If five ops are enough, products of 16 bytes take 1.1 times as long."""

_FUNCTION = 16  # ops that one of COSTLY counts as

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
        ops = [op for op in function.block.ops if op.results and op.result in self._live]
        computed = [op for op in ops if op.name not in EPILOGUE_LEAVES]
        self._cost = sum(_FUNCTION if op.name in COSTLY else 1 for op in computed)
        read = {value for op in computed for value in op.operands}.union(self._results)
        leaves = (op for op in ops if op.name in EPILOGUE_LEAVES)
        self._leaves = [op for op in leaves if op.result in read]
        self._waiting: dict[DType, Value] = {}  # memory of sums

    @property
    def is_long(self) -> bool:
        """Whether a loop takes the rows of a tile."""
        return self._cost >= LEAST_LOOPED

    def place_sums(self, scratch_length: int) -> int:
        """Put the sums that wait in scratch behind so many bytes of it; returns how many there are
        then."""
        if not self._waiting:
            return scratch_length
        place = -(-scratch_length // 64) * 64
        for memory in self._waiting.values():
            memory.op.attributes = Offset(place)
        return place + SUMS_LENGTH

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
        if given, two or more, are there."""
        if self._is_short(tile.rows, tile.vectors):
            self._by_columns(
                tile, row, panel, lambda places: self._put(sums, tile.vectors, places, rows)
            )
        else:
            count = tile.rows if rows is None else rows
            self.store_rows((self._keep(sums), 0), tile, row, panel, count)

    def store_rows(
        self, sums: tuple[Value, Index], tile: TileShape, row: Index, panel: Index, count: Index
    ) -> None:
        """The same for `count` rows as wide as a tile's, whose sums lie in memory from an element
        on, row by row."""
        pitch = tile.vectors * tile.lanes
        self._by_columns(
            tile, row, panel, lambda places: self._put_rows(sums, pitch, places, count)
        )

    def store_column(self, sums: Sequence[Value], place: Position) -> None:
        """The same for vectors of neighbouring rows, the first at `place`."""
        if self._is_short(len(sums), 1):
            self._put(sums, 1, [place], None)
        else:
            self._put_rows((self._keep(sums), 0), place.lanes, [place], len(sums))

    def _is_short(self, rows: int, vectors: int) -> bool:
        """Whether so many vectors of each of so many rows are stored by ops of their own."""
        fits = rows * vectors * 64 <= SUMS_LENGTH
        is_short = not self.is_long or self._cost * rows * vectors <= MOST_UNROLLED
        return rows < 3 or not fits or is_short

    def _keep(self, sums: Sequence[Value]) -> Value:
        """Scratch memory with these vectors, one after another."""
        b, element = self._builder, dtype_of(sums[0])
        # behind all that a schedule may have, until it is known what it has
        memory = self._waiting.setdefault(element, b.scratch(MOST_BEFORE_SUMS, element))
        for place, value in enumerate(sums):
            b.store(memory, place * lanes_of(value), value)
        return memory

    def _by_columns(
        self,
        tile: TileShape,
        row: Index,
        panel: Index,
        put: Callable[[Sequence[Position]], None],
    ) -> None:
        """`put` with the vectors of a tile's first row, as far as they are there. Only the tile
        with the last column stores parts of vectors, which is slow."""
        b, columns, lanes = self._builder, self.shape[-1], tile.lanes
        first, width = b.mul(panel, PANEL), tile.panels * PANEL
        live: Index = b.sub(b.dim(columns), first)
        if isinstance(columns, int):
            live = width - PANEL + (columns % PANEL or PANEL)
        elif columns % PANEL == 0:
            live = width

        def put_live(live: Index) -> None:
            places = []
            for at in range(0, width, lanes):
                count = b.max(b.min(b.sub(live, at), lanes), 0)
                some = None if count == lanes else count
                places.append(Position(row, b.add(first, at), lanes, some))
            put([place for place in places if place.count != 0])

        if live == width:
            put_live(width)
        elif live == columns or len(self._live) > MOST_TWICE:
            put_live(live if live == columns else b.sub(b.dim(columns), first))
        else:
            whole = b.compare("le", b.add(first, width), b.dim(columns))
            b.if_(whole, lambda: put_live(width), lambda: put_live(live))

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
        self, sums: Sequence[Value], width: int, places: Sequence[Position], rows: Index | None
    ) -> None:
        """Store the vectors of a tile, `width` in a row, that are there in its first row at these
        places, and in its first `rows` rows."""
        b, height = self._builder, len(sums) // width

        def part(i: int, vector: int) -> None:
            place = places[vector]
            self.store(sums[i * width + vector], replace(place, row=b.add(place.row, i)))

        def line(i: int) -> None:
            for vector in range(len(places)):
                part(i, vector)

        there: Index = height if rows is None else rows
        sure = height if rows is None else min(height, 2)
        with self.sharing():
            for vector in range(len(places)):
                for i in range(sure):
                    part(i, vector)
            for i in range(sure, height):
                b.if_(b.compare("lt", i, there), partial(line, i))

    def _put_rows(
        self,
        sums: tuple[Value, Index],
        pitch: int,
        places: Sequence[Position],
        count: Index,
    ) -> None:
        """Store `count` rows, of which the first one's vectors are at these places."""
        b, (memory, start) = self._builder, sums
        whole = [(vector, each) for vector, each in enumerate(places) if each.count is None]
        parts = [(vector, each) for vector, each in enumerate(places) if each.count is not None]
        # a vector of the next row is not read before a part that is stored in front of it is
        # there, so parts come in a loop of their own
        for group in filter(None, (whole, parts)):
            with self.sharing():
                for _, place in group:
                    self._read_shared(place)
                # what a loop carries keeps compilers from unrolling it
                with b.for_(0, count, 1, [b.value(start)]) as loop:
                    (at,) = loop.carried
                    for vector, place in group:
                        value = b.load(memory, b.add(at, vector * place.lanes), place.lanes)
                        self.store(value, replace(place, row=b.add(place.row, loop.index)))
                    loop.yield_(b.value(b.add(at, pitch)))

    def _read_shared(self, place: Position) -> None:
        """Read what rows have in common; what they have not is read for nothing, and goes."""
        for op in self._leaves:
            if op.name == "broadcast":
                self._broadcast(op, place)
            else:
                self._small(op.result, (None,) * len(self.shape), place)

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

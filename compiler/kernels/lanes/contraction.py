"""Kernels for dot_packed and dot_general: a packed matrix product with an epilogue.

The left side is read in place; where its elements are narrower than the sums, the rows of a
tile are converted into scratch. The right side is a weight in panels of 16 columns, read as
it lies, or any matrix, which each workgroup packs into such panels in its scratch, as it does
with narrow weights that meet more rows than one tile has. Grid: x
blocks of rows (fastest, so that a panel stays in cache), y blocks of columns, z batch.
Depth is blocked only where the panels would not fit scratch; partial sums then wait in
scratch, and the epilogue runs once at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.ir import Function, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, ceildiv, known_dim, product
from ingot.compiler.kernels.coding import coding_of
from ingot.compiler.kernels.contraction_entry import argument_of, batch_offset, kernel_of, root_of
from ingot.compiler.kernels.epilogue import Epilogue
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.coded import coded_products, decode_panels, few_rows, few_tile
from ingot.compiler.kernels.lanes.columns import Columns
from ingot.compiler.kernels.lanes.contraction_parts import in_parts
from ingot.compiler.kernels.lanes.contraction_tiles import in_tiles
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.panel import (
    Turn,
    interleaved,
    interleaved_length,
    panel_lines,
    streamed_tile,
    unpack_panels,
    unpacked_lines,
)
from ingot.compiler.kernels.product import Operand, Product, product_of
from ingot.compiler.kernels.register_tile import (
    PANEL,
    TileShape,
    accumulation_dtype,
    choose_columns,
    choose_rows,
    for_any_rows,
    for_panels_apart,
    for_row_tiles,
    multiply,
    panel_tile,
    pitch_of,
    rows_of_workgroup,
    side_by_side,
    tail_heights,
    zero_tile,
)
from ingot.compiler.kernels.schedule import MOST_BEFORE_SUMS, WANTED_WORKGROUPS, shared_blocks
from ingot.compiler.kernels.words import Parts, copy_words, product_in_words, unit_of
from ingot.hal.spec import dtype

__all__ = ["ContractionSchedule", "lower_contraction"]

BLOCK_ELEMENTS = 1 << 14
"""Result elements of a workgroup, about: some tens of microseconds at common depths.
On one thread, 4 times more or fewer are as fast (512 cubed, AVX-512: 1138 to 1144 us)."""

MAXIMUM_BLOCK_ROWS = 256

WIDE_BLOCK = 256 << 10
"""Bytes of panels side by side, about, that share converted rows."""

FEW_ROWS, MOST_FEW_ROWS = 2, 8
"""Rows, where only the call knows how many, that read coded panels as they lie at once, and so
many in turns: for more, making numbers of the panels first costs less."""

PACKED_BLOCK_ROWS = 1024
"""Rows of a workgroup that packs its right side: packing is 1 / rows of its work.
512 cubed with AVX-512: 1168 us, with 256 rows 1184, with 64 1315."""


@dataclass(frozen=True)
class ContractionSchedule:
    """Register tile, rows of a workgroup, depth of a packed block (0: not packed), and tiles of
    columns that share the converted rows of the left side."""

    tile: TileShape
    block_rows: int
    depth_block: int
    block_tiles: int = 1


def lower_contraction(function: Function, target: TargetInfo, by_threads: bool = True) -> Kernel:
    """The kernel of an entry around one dot_packed or dot_general. `by_threads`: its grid is in the
    order in which threads share it, which is not that of work-groups."""
    as_asked = function, target, by_threads
    made = in_tiles(*as_asked) or in_parts(*as_asked)
    return made or _Contraction(*as_asked).lower()


class _Contraction:
    """State while one kernel is made."""

    def __init__(self, function: Function, target: TargetInfo, by_threads: bool) -> None:
        self.function = function
        self.root = root_of(function)
        whole = product_of(self.root)
        self.product: Product
        self.parts: Parts | None
        self.product, self.parts = product_in_words(whole, target) or (whole, None)
        self.whole = whole
        # The axis that changes last is shared: rows that a thread reads are those that it made.
        self.row_axis = int(by_threads and whole.is_tall)
        self.flops = 2 * product(whole.batch) * whole.rows * whole.columns * whole.depth
        left, right = self.product.left, self.product.right
        self.element = accumulation_dtype(left.dtype, right.dtype, self.product.dtype)
        self.factor = dtype("i32") if self.parts else self.element
        self.lanes = min(target.lanes(self.element), PANEL)
        self.coding = coding_of(function, self.root)
        self.registers = target.register_count
        self.streamed = streamed_tile(self.product, self.registers, self.lanes)
        self.few_rows = few_rows(target.register_count, self.lanes)
        self.builder = LoopBuilder()
        self.epilogue = Epilogue(self.builder, function, self.root)
        self.schedule = self._choose(target)
        self.panels = ceildiv(self.product.columns, PANEL)

    def _choose(self, target: TargetInfo) -> ContractionSchedule:
        p = self.product
        panels = choose_columns(ceildiv(p.columns, PANEL), target, self.lanes)
        rows = choose_rows(p.rows, panels, target, self.lanes, self.parts is not None)
        tile = panel_tile(rows, panels, self.lanes)
        if self.coding and isinstance(p.rows, int) and 0 < p.rows <= self.few_rows:
            few = few_tile(p.rows, panels, self.registers, self.lanes)
            return ContractionSchedule(few, p.rows, 0)
        if self.streamed:
            return ContractionSchedule(self.streamed, self.streamed.rows, 0)
        narrow = self._narrow_tile(target)
        if narrow and self._interleaved(narrow) <= MOST_BEFORE_SUMS:
            return ContractionSchedule(narrow, narrow.rows, 0)
        in_place = p.right.packed and p.right.dtype.bytes >= 4
        block = min(max(BLOCK_ELEMENTS // (panels * PANEL), 1), MAXIMUM_BLOCK_ROWS)
        wanted = block if in_place else PACKED_BLOCK_ROWS
        if isinstance(p.rows, int) and p.rows:
            blocks = -(-p.rows // wanted)
            if in_place and not p.batch and isinstance(p.columns, int) and isinstance(p.depth, int):
                splits = -(-p.columns // (panels * PANEL))
                steps = p.rows * panels * PANEL * p.depth
                weight = p.columns * p.depth * p.right.dtype.bytes
                blocks = shared_blocks(blocks, splits, weight, steps)
            wanted = -(-p.rows // (blocks * rows)) * rows
        block_rows = rows * max(1, wanted // rows)
        if in_place:
            return ContractionSchedule(tile, block_rows, 0)
        most = self._most_depth(tile, block_rows)
        depth = min(p.depth, most) if isinstance(p.depth, int) else most
        is_wide = depth == p.depth and not (self.coding and not isinstance(p.rows, int))
        tiles = self._block_tiles(tile, block_rows) if is_wide else 1
        return ContractionSchedule(tile, block_rows, max(depth, 1), tiles)

    def _most_depth(self, tile: TileShape, block_rows: int) -> int:
        """Lines of panels that fit scratch, with partial sums and the rows of a tile."""
        width = tile.panels * PANEL
        left = MOST_BEFORE_SUMS // self.element.bytes - block_rows * width
        most = left // width
        if not self._reads_left_in_place():
            most = left // (width + tile.rows) - PANEL  # rows begin at lines of the cache
        return most - most % PANEL

    def _block_tiles(self, tile: TileShape, block_rows: int) -> int:
        """Tiles of columns for which rows are converted once: as many as L2 holds, but enough
        workgroups stay."""
        p = self.product
        if self._reads_left_in_place() or not isinstance(p.columns, int):
            return 1
        panels = -(-p.columns // PANEL)
        if panels % tile.panels or not isinstance(p.depth, int) or not p.depth:
            return 1
        blocks = -(-p.rows // block_rows) if isinstance(p.rows, int) else 1
        share = WIDE_BLOCK // (p.depth * tile.panels * PANEL * self.element.bytes)
        return max(1, min(share, panels // tile.panels * blocks // WANTED_WORKGROUPS))

    def _narrow_tile(self, target: TargetInfo) -> TileShape | None:
        """A tile of all rows, if narrow panels are best read as they lie: see `interleaved`."""
        p = self.product
        if self.coding or not p.right.packed or p.left.depth_stride != 1 or p.rows == 0:
            return None
        if not (isinstance(p.rows, int) and isinstance(p.columns, int)) or p.right.dtype.bytes >= 4:
            return None
        sums = p.rows * (PANEL // self.lanes) * (4 // p.right.dtype.bytes)  # of a panel
        panels = min((target.register_count - 4) // sums, 4, -(-p.columns // PANEL))
        return panel_tile(p.rows, panels, self.lanes) if panels else None

    def lower(self) -> Kernel:
        b, p, schedule = self.builder, self.product, self.schedule
        row, rows = rows_of_workgroup(b, self.row_axis, p.rows, schedule.block_rows)
        width = schedule.tile.panels
        panel = b.mul(b.workgroup(1 - self.row_axis), width * schedule.block_tiles)
        if schedule.block_tiles > 1:
            self._wide_block(row, rows, panel)
        elif self.panels % width == 0:
            self._column_block(row, rows, panel, schedule.tile)
        else:
            self._uneven_columns(row, rows, panel)
        return self._finish()

    def _uneven_columns(self, row: Index, rows: Index, panel: Index) -> None:
        """Full blocks of columns, then the rest one panel at a time."""
        b, tile = self.builder, self.schedule.tile
        left = b.sub(b.dim(self.panels), panel)

        def full() -> None:
            self._column_block(row, rows, panel, tile)

        def rest() -> None:
            single = panel_tile(tile.rows, 1, tile.lanes)
            with b.for_(0, left) as loop:
                self._column_block(row, rows, b.add(panel, loop.index), single)

        if isinstance(self.panels, int) and self.panels < tile.panels:
            rest()
        else:
            b.if_(b.compare("ge", left, tile.panels), full, rest)

    def _column_block(self, row: Index, rows: Index, panel: Index, tile: TileShape) -> None:
        if self.schedule.depth_block == 0:
            if self.coding is not None or self.product.right.dtype.bytes < 4:
                self._direct(row, panel, tile.panels, tile)
            else:
                self._tiles(row, rows, panel, tile, None, 0, self.product.depth, "only")
            return
        if self.coding is not None and not isinstance(rows, int):
            few = self.builder.compare("le", rows, MOST_FEW_ROWS)
            self.builder.if_(
                few,
                lambda: self._few_block(row, rows, panel, tile),
                lambda: self._many_block(row, rows, panel, tile),
            )
            return
        self._many_block(row, rows, panel, tile)

    def _few_block(self, row: Index, rows: Index, panel: Index, tile: TileShape) -> None:
        """Rows too few to make numbers of the panels first."""

        def body(height: int, offset: Index, _: list[Value]) -> tuple[()]:
            shape = few_tile(height, tile.panels, self.registers, self.lanes)
            self._direct(self.builder.add(row, offset), panel, tile.panels, shape)
            return ()

        for_row_tiles(self.builder, rows, range(FEW_ROWS, 0, -1), body)

    def _direct(self, row: Index, panel: Index, count: int, tile: TileShape) -> None:
        """A tile's rows with `count` panels of less than 4 bytes an element, as they lie."""
        b, batch = self.builder, self._batch_index()
        left = self._left_rows(row, tile.rows, 0)
        first = b.add(b.mul(batch, b.dim(self.product.rows)), row)

        def element(i: int, k: Index) -> Value:
            return b.convert(b.load(left[0], b.add(left[1][i], k)), self.element)

        def body(panels: Sequence[Index]) -> None:
            if self.coding is not None:
                sums = coded_products(b, self.coding, panels, tile, element, self.element)
            else:
                right, depth = self.product.right, known_dim(self.product.depth)
                binding, memory = (self._ordinal(right), right.dtype), b.scratch(0, self.element)
                sums = interleaved(b, binding, depth, panels, tile, left, memory)
            self.epilogue.store_panels(sums, tile, first, panels)

        if self.panels % count == 0:
            for_panels_apart(b, self.panels, panel, count, tile.panels, body)
            return
        with b.for_(0, count, tile.panels) as loop:
            body(side_by_side(b, b.add(panel, loop.index), tile))

    def _many_block(self, row: Index, rows: Index, panel: Index, tile: TileShape) -> None:
        panels = self.builder.scratch(0, self.factor)
        depth, block = self.product.depth, self.schedule.depth_block
        if isinstance(depth, int) and depth <= block:
            self._pack(panels, panel, tile, 0, depth)
            self._tiles(row, rows, panel, tile, panels, 0, depth, "only")
            return
        self._blocked_depth(row, rows, panel, tile, panels)

    def _wide_block(self, row: Index, rows: Index, panel: Index) -> None:
        """Several tiles of columns, rows outside: those of the left side are converted once."""
        b, tile, depth = self.builder, self.schedule.tile, known_dim(self.product.depth)
        panels, lines = b.scratch(0, self.factor), self._lines(depth)
        count = b.min(
            b.div(b.sub(b.dim(self.panels), panel), tile.panels), self.schedule.block_tiles
        )
        with b.for_(0, count) as loop:
            place = b.add(panel, b.mul(loop.index, tile.panels))
            self._pack(panels, place, tile, 0, depth, b.mul(loop.index, lines))

        def body(height: int, offset: Index, live: Index | None) -> None:
            shape, first = TileShape(height, tile.vectors, tile.lanes), b.add(row, offset)
            left = self._left(first, height, 0, depth, live)
            with b.for_(0, count) as loop:
                line = unpacked_lines(b, panels, shape, b.mul(loop.index, lines))
                sums = zero_tile(b, self.element, shape)
                sums = multiply(b, shape, sums, depth, left, line, self.parts)
                place = b.add(panel, b.mul(loop.index, tile.panels))
                self._store(first, place, shape, sums, live)

        self._for_tiles(rows, tile, body)

    def _blocked_depth(
        self, row: Index, rows: Index, panel: Index, tile: TileShape, panels: Value
    ) -> None:
        b, block = self.builder, self.schedule.depth_block
        self._clear_partial(rows, tile)
        depth = b.dim(self.product.depth)
        with b.for_(0, depth, block) as loop:
            count = b.min(b.sub(depth, loop.index), block)
            self._pack(panels, panel, tile, loop.index, count)
            self._tiles(row, rows, panel, tile, panels, loop.index, count, "part")
        self._tiles(row, rows, panel, tile, panels, 0, 0, "last")

    # Tiles of rows.

    def _tiles(
        self,
        row: Index,
        rows: Index,
        panel: Index,
        tile: TileShape,
        panels: Value | None,
        start: Index,
        depth: Dim | Index,
        stage: str,
    ) -> None:
        """All row tiles of a block; `stage` says what becomes of the sums."""

        def body(height: int, offset: Index, live: Index | None) -> None:
            shape = TileShape(height, tile.vectors, tile.lanes)
            self._tile(row, offset, panel, shape, panels, start, depth, stage, live)

        self._for_tiles(rows, tile, body)

    def _for_tiles(
        self, rows: Index, tile: TileShape, body: Callable[[int, Index, Index | None], None]
    ) -> None:
        """`body(height, first row, live rows or None)` for the row tiles of a block."""
        known = self.product.rows
        if not isinstance(known, int):
            for_any_rows(self.builder, rows, tile.rows, body)
            return

        def whole(height: int, offset: Index, _: list[Value]) -> tuple[()]:
            body(height, offset, None)
            return ()

        tails = tail_heights(tile.rows, known % self.schedule.block_rows % tile.rows)
        for_row_tiles(self.builder, rows, (tile.rows, *tails), whole)

    def _tile(
        self,
        row: Index,
        offset: Index,
        panel: Index,
        tile: TileShape,
        panels: Value | None,
        start: Index,
        depth: Dim | Index,
        stage: str,
        live: Index | None,
    ) -> None:
        first = self.builder.add(row, offset)
        if stage == "only":
            sums = zero_tile(self.builder, self.element, tile)
        else:
            sums = self._load_partial(offset, tile)
        if stage != "last":
            sums = self._multiply(first, panel, tile, panels, start, depth, sums, live)
        if stage == "part":
            self._store_partial(offset, tile, sums)
        else:
            self._store(first, panel, tile, sums, live)

    def _multiply(
        self,
        row: Index,
        panel: Index,
        tile: TileShape,
        panels: Value | None,
        start: Index,
        depth: Dim | Index,
        sums: list[Value],
        live: Index | None,
    ) -> list[Value]:
        b, right = self.builder, self.product.right
        count = depth if isinstance(depth, Value) else b.dim(depth)
        binding = (self._ordinal(right), right.dtype)
        if panels is None:
            weight = (binding, self.factor, self.product.depth)
            is_streamed = self.streamed is not None
            line = panel_lines(b, *weight, panel, tile, 0, self._turn(row), is_streamed)
        else:
            line = unpacked_lines(b, panels, tile)
        left_side = self._left(row, tile.rows, start, count, live)
        return multiply(b, tile, sums, count, left_side, line, self.parts)

    def _turn(self, row: Index) -> Turn | None:
        """Of the tile that begins at `row`, if there may be several."""
        b, rows, height = self.builder, self.product.rows, self.schedule.tile.rows
        if isinstance(rows, int) and rows <= height:
            return None
        return Turn(b.div(row, height), b.div(b.add(b.dim(rows), height - 1), height))

    # The left side.

    def _left_rows(
        self, row: Index, rows: int, start: Index, live: Index | None = None
    ) -> tuple[Value, list[Index]]:
        """Its memory, and where step `start` of each row lies; the last live one stands for those
        that are not there."""
        b, left = self.builder, self.product.left
        base = b.add(self._batch_offset(left), b.mul(start, b.dim(left.depth_stride)))
        lines: list[Index] = [b.add(row, i) for i in range(rows)]
        if live is not None:
            last = b.add(row, b.sub(live, 1))
            lines = [*lines[:2], *(b.min(line, last) for line in lines[2:])]
        places = [b.add(base, b.mul(line, b.dim(left.stride))) for line in lines]
        return b.binding(self._ordinal(left), left.dtype), places

    def _left(
        self, row: Index, rows: int, start: Index, count: Index, live: Index | None
    ) -> Callable[[int, Index], Value]:
        """Reads row i at step start + k of `count` steps, if need be after converting them."""
        b, stride = self.builder, self.product.left.depth_stride
        memory, bases = self._left_rows(row, rows, start, live)
        if not self._reads_left_in_place():
            if self.parts:
                source = b.binding(self._ordinal(self.product.left), unit_of(self.parts[0]))
                place, pitch = self._right_length(), self._left_pitch()
                memory = copy_words(b, self.whole, (source, bases), (start, count), place, pitch)
            else:
                memory = self._convert_rows(memory, bases, count)
            bases, stride = [i * self._left_pitch() for i in range(rows)], 1

        def element(i: int, k: Index) -> Value:
            at = b.add(bases[i], b.mul(k, b.dim(stride)))
            return b.convert(b.load(memory, at), self.factor)

        return element

    def _reads_left_in_place(self) -> bool:
        left = self.product.left
        return left.dtype is self.factor or (left.depth_stride != 1 and self.parts is None)

    def _left_pitch(self) -> int:
        """Elements from row to row of the left side in scratch."""
        depth, most = self.product.depth, self.schedule.depth_block
        return pitch_of(min(most, depth) if isinstance(depth, int) else most, self.element)

    def _convert_rows(self, a: Value, bases: Sequence[Index], count: Index) -> Value:
        """Copy the rows of a tile into scratch, as the sums' dtype."""
        b, lanes, pitch = self.builder, self.lanes, self._left_pitch()
        memory = b.scratch(self._right_length(), self.element)

        def copy(k: Index, lanes: int) -> None:
            for i, base in enumerate(bases):
                value = b.convert(b.load(a, b.add(base, k), lanes), self.element)
                b.store(memory, b.add(i * pitch, k), value)

        full = b.mul(b.div(count, lanes), lanes)
        with b.for_(0, full, lanes) as loop:
            copy(loop.index, lanes)
        if full != count:
            with b.for_(full, count) as loop:
                copy(loop.index, 1)
        return memory

    def _store(
        self, row: Index, panel: Index, tile: TileShape, sums: list[Value], live: Index | None
    ) -> None:
        b = self.builder
        first = b.add(b.mul(self._batch_index(), b.dim(self.product.rows)), row)
        self.epilogue.store_tile(sums, tile, first, panel, live)

    # Packing of the right side, and partial sums.

    def _pack(
        self,
        panels: Value,
        panel: Index,
        tile: TileShape,
        start: Index,
        count: Index,
        at: Index = 0,
    ) -> None:
        """Copy depth steps [start, start + count) of the tile's columns into scratch, from line
        `at` on."""
        b, right = self.builder, self.product.right
        if self.coding is not None:
            where = side_by_side(b, panel, tile)
            decode_panels(b, self.coding, where, tile, panels, (start, count), at)
            return
        if right.packed:
            binding = (self._ordinal(right), right.dtype)
            depth = self.product.depth
            unpack_panels(b, binding, depth, panel, tile, panels, (start, count), at)
            return
        base, width = self._batch_offset(right), tile.panels * PANEL
        columns = Columns(b, self.product, self.whole, self._ordinal(right))
        with b.for_(0, count) as loop:
            for vector in range(tile.vectors):
                column = b.add(b.mul(panel, PANEL), vector * tile.lanes)
                value = columns.step(b.add(start, loop.index), base, column, tile.lanes)
                target = b.add(b.mul(b.add(at, loop.index), width), vector * tile.lanes)
                b.store(panels, target, b.convert(value, self.factor))

    def _partial(self) -> Value:
        length = self.schedule.depth_block * self.schedule.tile.panels * PANEL
        return self.builder.scratch(_align(length * self.element.bytes), self.element)

    def _clear_partial(self, rows: Index, tile: TileShape) -> None:
        b = self.builder
        zero = b.constant(0, self.element, tile.lanes)
        with b.for_(0, b.mul(rows, tile.vectors)) as loop:
            b.store(self._partial(), b.mul(loop.index, tile.lanes), zero)

    def _partial_at(self, offset: Index, i: int, vector: int, tile: TileShape) -> Index:
        b = self.builder
        row = b.mul(b.add(offset, i), tile.panels * PANEL)
        return b.add(row, vector * tile.lanes)

    def _load_partial(self, offset: Index, tile: TileShape) -> list[Value]:
        memory = self._partial()
        return [
            self.builder.load(memory, self._partial_at(offset, i, vector, tile), tile.lanes)
            for i in range(tile.rows)
            for vector in range(tile.vectors)
        ]

    def _store_partial(self, offset: Index, tile: TileShape, sums: list[Value]) -> None:
        memory = self._partial()
        for place, value in enumerate(sums):
            i, vector = divmod(place, tile.vectors)
            self.builder.store(memory, self._partial_at(offset, i, vector, tile), value)

    # Addresses and numbers.

    def _ordinal(self, operand: Operand) -> int:
        return argument_of(self.function, operand.value)

    def _right_ordinals(self) -> set[int]:
        return self.coding.ordinals if self.coding else {self._ordinal(self.product.right)}

    def _batch_index(self) -> Index:
        return self.builder.workgroup(2) if self.product.batch else 0

    def _batch_offset(self, operand: Operand) -> Index:
        """Element offset of this workgroup's batch."""
        return batch_offset(self.builder, operand, self.product.batch, self._batch_index())

    def _finish(self) -> Kernel:
        p, schedule, b = self.product, self.schedule, self.builder
        columns = self.panels, schedule.tile.panels * schedule.block_tiles
        rows = p.rows, schedule.block_rows
        x, y = (columns, rows) if self.row_axis else (rows, columns)
        return kernel_of(
            self.function, b, self.epilogue, {self._ordinal(p.left), *self._right_ordinals()},
            (x[0], y[0], product(p.batch)), (x[1], y[1], 1), self.flops, schedule,
            self._scratch_length(),
        )  # fmt: skip

    def _scratch_length(self) -> int:
        schedule = self.schedule
        if schedule.depth_block:
            rows = 0 if self._reads_left_in_place() else schedule.tile.rows
            return self._right_length() + rows * self._left_pitch() * self.element.bytes
        return self._interleaved(schedule.tile)

    def _interleaved(self, tile: TileShape) -> int:
        """Bytes of scratch of a narrow tile, or of one whose panels are read in place."""
        p = self.product
        if p.right.dtype.bytes >= 4 or self.coding is not None:
            return 0
        return interleaved_length(known_dim(p.depth), p.right.dtype, tile)

    def _lines(self, depth: int) -> int:
        """Lines of an unpacked panel: whole ones of every packed dtype."""
        steps = self.coding.steps if self.coding else 4
        return -(-depth // steps) * steps

    def _right_length(self) -> int:
        """Bytes of scratch for panels and partial sums, in front of what the left side has."""
        p, schedule = self.product, self.schedule
        width = schedule.tile.panels * PANEL * self.element.bytes
        length = _align(schedule.block_tiles * self._lines(schedule.depth_block) * width)
        if not (isinstance(p.depth, int) and p.depth <= schedule.depth_block):
            length += schedule.block_rows * width
        return length


def _align(length: int) -> int:
    return -(-length // 64) * 64

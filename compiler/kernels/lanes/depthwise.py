"""Kernels for depthwise convolution of channels-last images.

Lanes are channels. A tile is a few output pixels of one row: each input element that
several of them need is loaded once. Nothing is padded: window rows outside the image are
left out of the loops, and the few pixels at the left and right edge, whose window columns
may lie outside, are computed one at a time with the window clipped. In groups of several
channels, lanes are channels of the result, and each input of a group goes to the lanes of the
group's results: from the scalar, or by a shuffle where lanes are of several groups.

Bytes are multiplied in words of four where the target can: a word holds a channel of up to four
rows of the window, which lie below each other in the image. Rows are widened, shifted and joined
once for all pixels that they are in the windows of, and words of the weights stay in registers for
all rows of a workgroup. Rows outside the image are read at its edge and masked; of columns outside
it is known where tiles begin and end a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ingot.compiler.graph import ops
from ingot.compiler.graph.ops import lanes_of_groups
from ingot.compiler.ir import Function, Value, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, known_dim, known_dims, product
from ingot.compiler.kernels.contraction_entry import kernel_of, root_of
from ingot.compiler.kernels.convolution_entry import Window, window_of
from ingot.compiler.kernels.epilogue import Epilogue, Position
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.loop import Index, LoopBuilder, dtype_of
from ingot.compiler.kernels.register_tile import accumulation_dtype
from ingot.compiler.kernels.words import BYTES_OF_WORD, parts_of, unit_of

__all__ = ["Channels", "Depthwise", "DepthwiseSchedule", "lower_depthwise"]

MAXIMUM_COLUMNS = 7
"""Pixels of a tile, at most: 7 of 96 channels, 56 x 56, take 115 us with AVX-512, 3 take 147."""

BLOCK_ELEMENTS = 1 << 14
"""Result elements of a workgroup, about: a quarter or four times as many cost 2 to 3 %."""

MOST_WORDS = 12
"""Words of weights that registers hold beside the sums."""


@dataclass(frozen=True)
class DepthwiseSchedule:
    """Pixels of a tile, channels of a vector, output rows of a workgroup."""

    columns: int
    lanes: int
    block_rows: int


@dataclass(frozen=True)
class Lines:
    """The rows of the input under a row of the result: its image, and of each spatial dim but the
    last where the window begins and which of its steps [first, last) lie inside."""

    image: Index
    tops: tuple[Index, ...]
    steps: tuple[tuple[Index, Index], ...]


@dataclass(frozen=True)
class Channels:
    """A vector of channels of the result, its live lanes, and the channels that these read."""

    made: Index
    count: Index | None
    read: Index
    read_count: Index | None


def lower_depthwise(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry around one depthwise op."""
    words = _Words(function, target)
    return words.lower() if words.is_possible(target) else Depthwise(function, target).lower()


class Depthwise:
    """State while one kernel is made. Spatial dims are at least two: others have the size one."""

    def __init__(self, function: Function, target: TargetInfo) -> None:
        root = root_of(function)
        x, w = tensor_type(root.operands[0]), tensor_type(root.operands[1])
        result = tensor_type(root.result)
        missing = max(4 - x.rank, 0)
        ones, zeros = (1,) * missing, (0,) * missing
        window = window_of(ops.Depthwise.of(root), w.shape[: x.rank - 2])
        window = Window(
            ones + window.size, ones + window.strides, ones + window.dilation,
            zeros + window.before, zeros + window.after,
        )  # fmt: skip
        self.function, self.window = function, window
        self.element = accumulation_dtype(x.dtype, w.dtype, result.dtype)
        self.b = LoopBuilder()
        self.epilogue = Epilogue(self.b, function, root)
        self.ordinals = tuple(function.arguments.index(value) for value in root.operands)
        self.x = self.b.binding(self.ordinals[0], x.dtype)
        self.w = self.b.binding(self.ordinals[1], w.dtype)
        self.inputs, self.channels = x.shape[-1], result.shape[-1]
        self.each = (1, 1)  # inputs and outputs of a group
        if w.rank == x.rank:
            features, inputs, outputs = known_dims((x.shape[-1], *w.shape[-2:]))
            self.each = (inputs, outputs * inputs // features)
        self.images = x.shape[0]
        self.sizes, self.out_sizes = ones + x.shape[1:-1], ones + result.shape[1:-1]
        self.width, self.out_width = self.sizes[-1], self.out_sizes[-1]
        lanes = lanes_of_groups(min(target.lanes(self.element), 16), *self.each)
        row = self.out_width * self.channels
        wanted = max(1, BLOCK_ELEMENTS // row) if isinstance(row, int) and row else 1
        self.schedule = DepthwiseSchedule(self._tile_columns(), lanes, wanted)

    def _interior(self) -> tuple[Index, Index]:
        """Output columns [first, last) whose window columns all lie inside the image."""
        b, window = self.b, self.window
        stride, reach = window.strides[-1], (window.size[-1] - 1) * window.dilation[-1]
        before = b.dim(window.before[-1])
        width, out_width = b.dim(self.width), b.dim(self.out_width)
        first = b.min(b.div(b.max(b.add(before, stride - 1), 0), stride), out_width)
        room = b.add(b.sub(width, reach), b.add(before, stride - 1))
        last = b.div(b.max(room, 0), stride)
        return first, b.max(b.min(last, out_width), first)

    def _tile_columns(self) -> int:
        """Pixels of a tile: an even split of the columns inside, where they are known."""
        first, last = self._interior()
        if not isinstance(first, int) or not isinstance(last, int) or last == first:
            return 4
        tiles = -(-(last - first) // MAXIMUM_COLUMNS)
        return -(-(last - first) // tiles)

    def lower(self) -> Kernel:
        b, block = self.b, self.schedule.block_rows
        row = b.mul(b.workgroup(0), block)
        *outer, height = self.out_sizes[:-1]
        places = self.places(b.workgroup(1), outer)
        with b.for_(row, b.min(b.add(row, block), b.dim(height))) as loop:
            self.row([*places, loop.index])
        workload = (height, self.images * product(outer), 1)
        return self.kernel(workload, (block, 1, 1), self.schedule)

    def places(self, number: Index, sizes: Sequence[Dim]) -> list[Index]:
        """Image and place in it of part `number` of all images, each of which has so many."""
        b, places = self.b, []
        for size in reversed(sizes):
            places.append(b.rem(number, b.dim(size)))
            number = b.div(number, b.dim(size))
        return [number, *reversed(places)]

    def kernel(
        self,
        workload: tuple[Dim, Dim, Dim],
        tile: tuple[int, int, int],
        schedule: object,
        local_size: tuple[int, int, int] = (1, 1, 1),
    ) -> Kernel:
        """The finished kernel."""
        pixels = self.images * product(self.out_sizes)
        return kernel_of(
            self.function, self.b, self.epilogue, set(self.ordinals), workload, tile,
            2 * pixels * self.channels * product(self.window.size) * self.each[0], schedule,
            local_size=local_size,
        )  # fmt: skip

    def row(self, places: Sequence[Index]) -> None:
        """One row of the result: left edge, tiles inside, right edge."""
        b, columns, lines = self.b, self.schedule.columns, self.lines(places)
        number = places[0]
        for size, place in zip(self.out_sizes[:-1], places[1:], strict=True):
            number = b.add(b.mul(number, b.dim(size)), place)
        pixel = b.mul(number, b.dim(self.out_width))
        first, last = self._interior()
        end = b.add(first, b.mul(b.div(b.sub(last, first), columns), columns))
        self._edge(0, first, lines, pixel)
        with b.for_(first, end, columns) as loop:
            self._channels(lambda c: self._inside(loop.index, c, lines, pixel))
        self._edge(end, b.dim(self.out_width), lines, pixel)

    def lines(self, places: Sequence[Index]) -> Lines:
        """What lies under the row of the result at these places."""
        b, window, outer = self.b, self.window, range(len(places) - 1)
        tops = [
            b.sub(b.mul(places[1 + axis], window.strides[axis]), b.dim(window.before[axis]))
            for axis in outer
        ]
        steps = [
            self.clip(tops[axis], window.size[axis], window.dilation[axis], b.dim(size))
            for axis, size in zip(outer, self.sizes, strict=False)
        ]
        return Lines(places[0], tuple(tops), tuple(steps))

    def add_lines(
        self,
        lines: Lines,
        sums: Sequence[Value],
        add: Callable[[Index, Index, list[Value]], Sequence[Value]],
    ) -> list[Value]:
        """The sums with what `add` makes of them for each line: from its offset, and the number of
        its row of the window."""
        b, window = self.b, self.window
        length = b.mul(b.dim(self.width), b.dim(self.inputs))

        def walk(axis: int, line: Index, row: Index, sums: list[Value]) -> Sequence[Value]:
            if axis == len(lines.tops):
                return add(b.mul(line, length), row, sums)
            first, last = lines.steps[axis]
            with b.for_(first, last, 1, sums) as loop:
                at = b.add(lines.tops[axis], b.mul(loop.index, window.dilation[axis]))
                inner = b.add(b.mul(line, b.dim(self.sizes[axis])), at)
                step = b.add(b.mul(row, window.size[axis]), loop.index)
                loop.yield_(*walk(axis + 1, inner, step, loop.carried))
            return loop.results

        return list(walk(0, lines.image, 0, list(sums)))

    def clip(self, start: Index, size: int, dilation: int, bound: Index) -> tuple[Index, Index]:
        """Window steps [first, last) with 0 <= start + step * dilation < bound."""
        b = self.b
        first = b.div(b.max(b.add(b.sub(0, start), dilation - 1), 0), dilation)
        last = b.div(b.max(b.add(b.sub(bound, start), dilation - 1), 0), dilation)
        last = b.min(last, size)
        return b.min(first, last), last

    def _channels(self, body: Callable[[Channels], None]) -> None:
        """`body` for all channels of the result, whole vectors first."""
        b, lanes = self.b, self.schedule.lanes
        channels = b.dim(self.channels)
        full = b.mul(b.div(channels, lanes), lanes)
        with b.for_(0, full, lanes) as loop:
            body(self.channels_at(loop.index, None))
        if isinstance(channels, int) and channels % lanes == 0:
            return
        with b.for_(full, channels, lanes) as loop:
            body(self.channels_at(loop.index, b.sub(channels, loop.index)))

    def channels_at(self, made: Index, count: Index | None) -> Channels:
        """The vector of the channels from `made` on."""
        b, lanes, (inputs, outputs) = self.b, self.schedule.lanes, self.each
        if inputs == outputs and lanes % outputs == 0:
            return Channels(made, count, made, count)
        read = b.mul(b.div(made, outputs), inputs)
        live: Index = lanes if count is None else count
        return Channels(made, count, read, b.mul(b.div(live, outputs), inputs))

    def inputs_at(self, pixel: Index, channels: Channels) -> list[Value]:
        """For each input of a group a vector of it; `pixel`: offset of the pixel's channels."""
        b, lanes, (inputs, outputs) = self.b, self.schedule.lanes, self.each
        at = b.add(pixel, channels.read)
        if inputs * outputs != 1 and outputs % lanes == 0:  # all lanes are of one group
            scalars = [b.load(self.x, b.add(at, i)) for i in range(inputs)]
            return [b.broadcast(b.convert(each, self.element), lanes) for each in scalars]
        x = self.load(self.x, at, channels.read_count)
        if inputs == outputs == 1:
            return [x]
        firsts = [lane // outputs * inputs for lane in range(lanes)]
        return [b.shuffle(x, x, [first + i for first in firsts]) for i in range(inputs)]

    def load(self, memory: Value, at: Index, count: Index | None) -> Value:
        """A vector of channels, as the accumulators are."""
        return self.b.convert(self.b.load(memory, at, self.schedule.lanes, count), self.element)

    def _inside(self, column: Index, channels: Channels, lines: Lines, pixel: Index) -> None:
        """`columns` pixels whose windows lie inside; inputs that they share load once."""
        b, window, columns = self.b, self.window, self.schedule.columns
        zero = b.constant(0, self.element, self.schedule.lanes)
        left = b.sub(b.mul(column, window.strides[-1]), b.dim(window.before[-1]))

        def add(line: Index, row: Index, sums: list[Value]) -> list[Value]:
            def read(offset: int) -> Sequence[Value]:
                at = b.mul(b.add(left, offset), b.dim(self.inputs))
                return self.inputs_at(b.add(line, at), channels)

            return self.add_line(sums, read, self.weights(row, channels))

        totals = self.add_lines(lines, [zero] * columns, add)
        self.store(b.add(pixel, column), channels, totals)

    def add_line(
        self,
        sums: Sequence[Value],
        read: Callable[[int], Sequence[Value]],
        weights: Callable[[int, int], Value],
    ) -> list[Value]:
        """The sums of neighbouring pixels with what a window row adds. `read`: the inputs at a
        column from the first one's window on."""
        stride, dilation = self.window.strides[-1], self.window.dilation[-1]
        uses: dict[int, list[tuple[int, int]]] = {}
        for step in range(self.window.size[-1]):
            for pixel in range(len(sums)):
                uses.setdefault(pixel * stride + step * dilation, []).append((pixel, step))
        totals = list(sums)
        for offset, pairs in uses.items():
            for i, x in enumerate(read(offset)):
                for pixel, step in pairs:
                    totals[pixel] = self.add(x, weights(step, i), totals[pixel])
        return totals

    def _edge(self, first: Index, last: Index, lines: Lines, pixel: Index) -> None:
        """Pixels [first, last) one at a time, their windows clipped to the image."""
        b, window = self.b, self.window
        if first == last:
            return
        with b.for_(first, last) as loop:
            left = b.sub(b.mul(loop.index, window.strides[-1]), b.dim(window.before[-1]))
            steps = self.clip(left, window.size[-1], window.dilation[-1], b.dim(self.width))
            place = loop.index

            def body(channels: Channels) -> None:
                total = self._clipped(left, steps, channels, lines)
                self.store(b.add(pixel, place), channels, [total])

            self._channels(body)

    def _clipped(
        self, left: Index, steps: tuple[Index, Index], channels: Channels, lines: Lines
    ) -> Value:
        b = self.b

        def add(line: Index, row: Index, sums: list[Value]) -> list[Value]:
            weights = self.weights(row, channels)
            with b.for_(steps[0], steps[1], 1, sums) as loop:
                column = b.add(left, b.mul(loop.index, self.window.dilation[-1]))
                at = b.add(line, b.mul(column, b.dim(self.inputs)))
                total = loop.carried[0]
                for i, x in enumerate(self.inputs_at(at, channels)):
                    total = self.add(x, weights(loop.index, i), total)
                loop.yield_(total)
            return loop.results

        return self.add_lines(lines, [b.constant(0, self.element, self.schedule.lanes)], add)[0]

    def weights(self, row: Index, channels: Channels) -> Callable[[Index, int], Value]:
        """Reads the weights of window row `row` by window column and input of a group."""
        b = self.b
        known: dict[tuple[object, int], Value] = {}

        def weight(step: Index, i: int) -> Value:
            if (step, i) not in known:
                at = b.add(b.mul(row, self.window.size[-1]), step)
                at = b.add(b.mul(at, self.each[0]), i)
                at = b.add(b.mul(at, b.dim(self.channels)), channels.made)
                known[step, i] = self.load(self.w, at, channels.count)
            return known[step, i]

        return weight

    def add(self, a: Value, w: Value, total: Value) -> Value:
        """total + a * w."""
        b = self.b
        if self.element.is_float:
            return b.fma(a, w, total)
        return b.op("add", total, b.op("mul", a, w))

    def store(self, pixel: Index, channels: Channels, totals: Sequence[Value]) -> None:
        """Epilogue and store of the channels of neighbouring pixels of the whole result."""
        place = Position(pixel, channels.made, self.schedule.lanes, channels.count)
        self.epilogue.store_column(totals, place)


class _Words(Depthwise):
    """State while one kernel is made."""

    def __init__(self, function: Function, target: TargetInfo) -> None:
        super().__init__(function, target)
        self.parts = parts_of(dtype_of(self.x), dtype_of(self.w), self.element, target)
        rows = range(self.window.size[0])
        self.groups = [rows[at : at + BYTES_OF_WORD] for at in rows[::BYTES_OF_WORD]]
        if isinstance(self.out_width, int) and self.out_width:
            tiles = -(-self.out_width // MAXIMUM_COLUMNS)
            columns, old = -(-self.out_width // tiles), self.schedule
            self.schedule = DepthwiseSchedule(columns, old.lanes, old.block_rows)

    def is_possible(self, target: TargetInfo) -> bool:
        """Whether bytes are multiplied, sizes known, and but for a row's first and last tile none
        reaches out of the image."""
        are_bytes = self.parts is not None and self.parts[0].is_integer
        if not target.dot4 or not are_bytes or self.each != (1, 1):
            return False
        sizes = (*self.sizes, self.out_width)
        if len(sizes) != 3 or not all(isinstance(size, int) and size for size in sizes):
            return False
        first, last = self._interior()
        if not isinstance(first, int) or not isinstance(last, int):
            return False
        columns, end = self.schedule.columns, self._last_tile()
        is_inside = end <= columns or (first <= columns and end <= last)
        return is_inside and len(self.groups) * self.window.size[1] <= MOST_WORDS

    def lower(self) -> Kernel:
        b, block = self.b, self.schedule.block_rows
        start = b.mul(b.workgroup(0), block)
        end = b.min(b.add(start, block), b.dim(self.out_sizes[0]))

        def body(channels: Channels) -> None:
            weights = [self._weights(step, channels) for step in range(self.window.size[1])]
            with b.for_(start, end) as loop:
                self._row(b.workgroup(1), loop.index, channels, weights)

        self._channels(body)
        return self.kernel((self.out_sizes[0], self.images, 1), (block, 1, 1), self.schedule)

    def add(self, a: Value, w: Value, total: Value) -> Value:
        """total + the products of the bytes of a and w."""
        assert self.parts is not None
        return self.b.dot_words(a, w, total, self.parts)

    def _last_tile(self) -> int:
        """Where the last tile of a row begins."""
        columns = self.schedule.columns
        return (known_dim(self.out_width) - 1) // columns * columns

    def _weights(self, step: int, channels: Channels) -> list[Value]:
        """The words of a column of the window."""
        b, across = self.b, self.window.size[1]

        def at(row: int) -> Index:
            return b.add(b.mul(row * across + step, b.dim(self.channels)), channels.made)

        return [self._word(self.ordinals[1], map(at, rows), channels) for rows in self.groups]

    def _word(self, ordinal: int, places: Iterable[Index], channels: Channels) -> Value:
        """Words of the bytes of an operand at these places of the first channel."""
        b, lanes = self.b, self.schedule.lanes
        assert self.parts is not None
        memory = b.binding(ordinal, unit_of(self.parts[self.ordinals.index(ordinal)]))
        word: Value | None = None
        for place, at in enumerate(places):
            bits = b.convert(b.load(memory, at, lanes, channels.count), self.element)
            if word is None:
                word = bits
                continue
            count = b.constant(8 * place, self.element, lanes)
            word = b.op("or", word, b.op("shift_left", bits, count))
        assert word is not None
        return word

    def _row(
        self, image: Index, row: Index, channels: Channels, weights: Sequence[Sequence[Value]]
    ) -> None:
        """One output row of some channels."""
        b, window, columns, end = self.b, self.window, self.schedule.columns, self._last_tile()
        height, length = b.dim(self.sizes[0]), b.mul(b.dim(self.width), b.dim(self.inputs))
        top = b.sub(b.mul(row, window.strides[0]), b.dim(window.before[0]))
        inside = [b.add(top, step * window.dilation[0]) for step in range(window.size[0])]
        base, last = b.mul(b.mul(image, height), length), b.sub(height, 1)
        lines = [b.add(base, b.mul(b.max(b.min(at, last), 0), length)) for at in inside]
        masks = [self._mask([inside[step] for step in rows]) for rows in self.groups]
        place = b.mul(b.add(b.mul(image, b.dim(self.out_sizes[0])), row), b.dim(self.out_width))

        def tile(column: Index, count: int) -> None:
            left = b.sub(b.mul(column, window.strides[1]), b.dim(window.before[1]))

            def read(offset: int) -> Sequence[Value]:
                at = b.add(left, offset)
                if isinstance(at, int) and not 0 <= at < known_dim(self.width):
                    return ()
                pixel = b.add(b.mul(at, b.dim(self.inputs)), channels.read)
                return [
                    self._masked([b.add(lines[step], pixel) for step in rows], mask, channels)
                    for rows, mask in zip(self.groups, masks, strict=True)
                ]

            zero = b.constant(0, self.element, self.schedule.lanes)
            sums = self.add_line([zero] * count, read, lambda step, i: weights[step][i])
            self.store(b.add(place, column), channels, sums)

        if end:
            tile(0, columns)
        if end > columns:
            with b.for_(columns, end, columns) as loop:
                tile(loop.index, columns)
        tile(end, known_dim(self.out_width) - end)

    def _masked(self, places: Iterable[Index], mask: Value | None, channels: Channels) -> Value:
        word = self._word(self.ordinals[0], places, channels)
        return word if mask is None else self.b.op("and", word, mask)

    def _mask(self, rows: Sequence[Index]) -> Value | None:
        """The bits of a word whose rows are inside the image; None if all are."""
        b, window, mask = self.b, self.window, None
        if window.before[0] == window.after[0] == 0:
            return None
        none = b.constant(0, self.element)
        for place, row in enumerate(rows):
            live = b.op("and", b.compare("ge", row, 0), b.compare("lt", row, b.dim(self.sizes[0])))
            byte = b.constant(_signed(255 << 8 * place), self.element)
            bits = b.op("select", live, byte, none)
            mask = bits if mask is None else b.op("or", mask, bits)
        return mask


def _signed(bits: int) -> int:
    """The i32 of 32 bits."""
    return bits - (bits >> 31 << 32)

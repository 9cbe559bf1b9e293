"""Kernels for depthwise convolution of channels-last images.

Lanes are channels. A tile is a few output pixels of one row: each input element that
several of them need is loaded once. Nothing is padded: window rows outside the image are
left out of the loop, and the few pixels at the left and right edge, whose window columns
may lie outside, are computed one at a time with the window clipped. In groups of several
channels, lanes are channels of the result, and each input of a group goes to the lanes of the
group's results: from the scalar, or by a shuffle where lanes are of several groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.graph import ops
from ingot.compiler.graph.ops import lanes_of_groups
from ingot.compiler.ir import Function, Value, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, known_dims, product
from ingot.compiler.kernels.contraction_entry import kernel_of, root_of
from ingot.compiler.kernels.convolution_entry import Window, window_of
from ingot.compiler.kernels.epilogue import Epilogue, Position
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.register_tile import accumulation_dtype

__all__ = ["Channels", "Depthwise", "DepthwiseSchedule", "lower_depthwise"]

MAXIMUM_COLUMNS = 7
"""Pixels of a tile, at most: 7 of 96 channels, 56 x 56, take 115 us with AVX-512, 3 take 147."""

BLOCK_ELEMENTS = 1 << 14
"""Result elements of a workgroup, about: a quarter or four times as many cost 2 to 3 %."""


@dataclass(frozen=True)
class DepthwiseSchedule:
    """Pixels of a tile, channels of a vector, output rows of a workgroup."""

    columns: int
    lanes: int
    block_rows: int


@dataclass(frozen=True)
class Channels:
    """A vector of channels of the result, its live lanes, and the channels that these read."""

    made: Index
    count: Index | None
    read: Index
    read_count: Index | None


def lower_depthwise(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry around one depthwise op. Raises ValueError for other ranks."""
    return Depthwise(function, target).lower()


class Depthwise:
    """State while one kernel is made. Spatial dims are two; one is seen as height one."""

    def __init__(self, function: Function, target: TargetInfo) -> None:
        root = root_of(function)
        x, w = tensor_type(root.operands[0]), tensor_type(root.operands[1])
        result = tensor_type(root.result)
        if x.rank not in (3, 4):
            raise ValueError(f"depthwise takes one or two spatial dims, got {x}")
        window = window_of(ops.Depthwise.of(root), w.shape[: x.rank - 2])
        if x.rank == 3:
            window = Window(
                (1, *window.size), (1, *window.strides), (1, *window.dilation),
                (0, *window.before), (0, *window.after),
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
        self.height, self.width = (1, *x.shape[1:-1])[-2:]
        self.out_height, self.out_width = (1, *result.shape[1:-1])[-2:]
        lanes = lanes_of_groups(min(target.lanes(self.element), 16), *self.each)
        row = product(result.shape[2:] if x.rank == 4 else result.shape[1:])
        wanted = max(1, BLOCK_ELEMENTS // row) if isinstance(row, int) and row else 1
        self.schedule = DepthwiseSchedule(self._tile_columns(), lanes, wanted)

    def _interior(self) -> tuple[Index, Index]:
        """Output columns [first, last) whose window columns all lie inside the image."""
        b, window = self.b, self.window
        stride, reach = window.strides[1], (window.size[1] - 1) * window.dilation[1]
        before = b.dim(window.before[1])
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
        height = b.dim(self.out_height)
        with b.for_(row, b.min(b.add(row, block), height)) as loop:
            self.row(b.workgroup(1), loop.index)
        return self.kernel((self.out_height, self.images, 1), (block, 1, 1), self.schedule)

    def kernel(
        self,
        workload: tuple[Dim, Dim, Dim],
        tile: tuple[int, int, int],
        schedule: object,
        local_size: tuple[int, int, int] = (1, 1, 1),
    ) -> Kernel:
        """The finished kernel."""
        pixels = self.images * self.out_height * self.out_width
        return kernel_of(
            self.function, self.b, self.epilogue, set(self.ordinals), workload, tile,
            2 * pixels * self.channels * product(self.window.size) * self.each[0], schedule,
            local_size=local_size,
        )  # fmt: skip

    def row(self, image: Index, row: Index) -> None:
        """One output row: left edge, tiles inside, right edge."""
        b, window, columns = self.b, self.window, self.schedule.columns
        top = b.sub(b.mul(row, window.strides[0]), b.dim(window.before[0]))
        rows = self.clip(top, window.size[0], window.dilation[0], b.dim(self.height))
        base = b.mul(b.mul(image, b.dim(self.height)), b.mul(b.dim(self.width), b.dim(self.inputs)))
        place = b.mul(b.add(b.mul(image, b.dim(self.out_height)), row), b.dim(self.out_width))
        first, last = self._interior()
        end = b.add(first, b.mul(b.div(b.sub(last, first), columns), columns))
        self._edge(0, first, top, rows, base, place)
        with b.for_(first, end, columns) as loop:
            self._channels(lambda c: self._inside(loop.index, c, top, rows, base, place))
        self._edge(end, b.dim(self.out_width), top, rows, base, place)

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

    def _inside(
        self,
        column: Index,
        channels: Channels,
        top: Index,
        rows: tuple[Index, Index],
        base: Index,
        place: Index,
    ) -> None:
        """`columns` pixels whose windows lie inside; inputs that they share load once."""
        b, window, columns = self.b, self.window, self.schedule.columns
        zero = b.constant(0, self.element, self.schedule.lanes)
        left = b.sub(b.mul(column, window.strides[1]), b.dim(window.before[1]))
        with b.for_(rows[0], rows[1], 1, [zero] * columns) as loop:
            line = self.line(base, top, loop.index)

            def read(offset: int) -> Sequence[Value]:
                at = b.mul(b.add(left, offset), b.dim(self.inputs))
                return self.inputs_at(b.add(line, at), channels)

            weights = self.weights(loop.index, channels)
            loop.yield_(*self.add_line(loop.carried, read, weights))
        for pixel, total in enumerate(loop.results):
            self.store(b.add(b.add(place, column), pixel), channels, total)

    def add_line(
        self,
        sums: Sequence[Value],
        read: Callable[[int], Sequence[Value]],
        weights: Callable[[int, int], Value],
    ) -> list[Value]:
        """The sums of neighbouring pixels with what a window row adds. `read`: the inputs at a
        column from the first one's window on."""
        stride, dilation = self.window.strides[1], self.window.dilation[1]
        uses: dict[int, list[tuple[int, int]]] = {}
        for step in range(self.window.size[1]):
            for pixel in range(len(sums)):
                uses.setdefault(pixel * stride + step * dilation, []).append((pixel, step))
        totals = list(sums)
        for offset, pairs in uses.items():
            for i, x in enumerate(read(offset)):
                for pixel, step in pairs:
                    totals[pixel] = self.add(x, weights(step, i), totals[pixel])
        return totals

    def _edge(
        self,
        first: Index,
        last: Index,
        top: Index,
        rows: tuple[Index, Index],
        base: Index,
        place: Index,
    ) -> None:
        """Pixels [first, last) one at a time, their windows clipped to the image."""
        b, window = self.b, self.window
        if first == last:
            return
        with b.for_(first, last) as loop:
            left = b.sub(b.mul(loop.index, window.strides[1]), b.dim(window.before[1]))
            steps = self.clip(left, window.size[1], window.dilation[1], b.dim(self.width))
            pixel = loop.index

            def body(channels: Channels) -> None:
                total = self._clipped(left, steps, channels, top, rows, base)
                self.store(b.add(place, pixel), channels, total)

            self._channels(body)

    def _clipped(
        self,
        left: Index,
        steps: tuple[Index, Index],
        channels: Channels,
        top: Index,
        rows: tuple[Index, Index],
        base: Index,
    ) -> Value:
        b = self.b
        zero = b.constant(0, self.element, self.schedule.lanes)
        with b.for_(rows[0], rows[1], 1, [zero]) as outer:
            line = self.line(base, top, outer.index)
            weights = self.weights(outer.index, channels)
            with b.for_(steps[0], steps[1], 1, outer.carried) as inner:
                column = b.add(left, b.mul(inner.index, self.window.dilation[1]))
                at = b.add(line, b.mul(column, b.dim(self.inputs)))
                total = inner.carried[0]
                for i, x in enumerate(self.inputs_at(at, channels)):
                    total = self.add(x, weights(inner.index, i), total)
                inner.yield_(total)
            outer.yield_(*inner.results)
        return outer.results[0]

    def line(self, base: Index, top: Index, step: Index) -> Index:
        """Offset of the input row under window row `step`."""
        b = self.b
        row = b.add(top, b.mul(step, self.window.dilation[0]))
        return b.add(base, b.mul(row, b.mul(b.dim(self.width), b.dim(self.inputs))))

    def weights(self, row: Index, channels: Channels) -> Callable[[Index, int], Value]:
        """Reads the weights of window row `row` by window column and input of a group."""
        b = self.b
        known: dict[tuple[object, int], Value] = {}

        def weight(step: Index, i: int) -> Value:
            if (step, i) not in known:
                at = b.add(b.mul(row, self.window.size[1]), step)
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

    def store(self, pixel: Index, channels: Channels, total: Value) -> None:
        """Epilogue and store of the channels of a pixel of the whole result."""
        position = Position(pixel, channels.made, self.schedule.lanes, channels.count)
        self.epilogue.store(total, position)

"""An entry around one conv_winograd, as schedules see it: shapes, transforms, epilogue.

A tile is 4x4 results made of 6x6 inputs of each frame under it, or 2x2 made of 4x4. The transforms
work on vectors of features or columns, `lanes` at a time. This file chooses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ingot.compiler.graph.forms.winograd import BY_PLACES
from ingot.compiler.graph.ops import ConvWinograd
from ingot.compiler.ir import Function, Value, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, ceildiv, known_dim, known_dims, product
from ingot.compiler.kernels.contraction_entry import kernel_of, root_of
from ingot.compiler.kernels.epilogue import Epilogue, Position
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.register_tile import PANEL
from ingot.hal.spec import dtype

__all__ = ["Tile", "Vectors", "WinogradEntry"]

F32 = dtype("f32")
Vectors = list[Value]


@dataclass(frozen=True)
class Tile:
    """Where a tile lies: its image, and its first row and column of results."""

    image: Index
    row: Index
    column: Index


class WinogradEntry:
    """State while one kernel is made."""

    def __init__(self, function: Function, lanes: int) -> None:
        root = root_of(function)
        x, u = (tensor_type(operand) for operand in root.operands)
        result = tensor_type(root.result)
        self.function = function
        self.b = LoopBuilder()
        self.epilogue = Epilogue(self.b, function, root)
        self.ordinals = [function.arguments.index(value) for value in root.operands]
        self.x = self.b.binding(self.ordinals[0], x.dtype)
        self.u = self.b.binding(self.ordinals[1], F32)
        self.counts = x.shape[-1], result.shape[-1] // PANEL
        """Of features, and of panels."""
        self.features, self.panels = map(self.b.dim, self.counts)
        is_deep = x.rank == 5
        self.taps = ConvWinograd.of(root).taps(x, u)
        """Frames under a result, 1 without a depth."""
        before = known_dims(before for before, _ in ConvWinograd.of(root).padding)
        self.front, self.top, self.left = before if is_deep else (0, *before)
        self.lanes = lanes
        self.form = BY_PLACES[known_dim(u.shape[0])]
        self.size, self.places = self.form.input, self.form.places
        rows, columns = (ceildiv(size, self.form.output) for size in result.shape[-3:-1])
        self.tiles = x.shape[0] * rows * columns
        """Those of a frame of all images."""
        self.direct = 18 * product(result.shape) * x.shape[-1] * self.taps
        """Operations of the direct sum."""
        self.frames = result.shape[1] if is_deep else 1
        self.depth = self.b.dim(x.shape[1]) if is_deep else 1
        self.out_depth = self.b.dim(self.frames)
        self.leaves_depth = self.taps != 1 or self.front != 0 or x.shape[1:-3] != result.shape[1:-3]
        """Whether windows reach beyond the frames of the input."""
        self.height, self.width = map(self.b.dim, x.shape[-3:-1])
        self.out_height, self.out_width = map(self.b.dim, result.shape[-3:-1])
        self.tall, self.across = self.b.dim(rows), self.b.dim(columns)

    def tile(self, number: Index) -> Tile:
        """Where tile `number` of all images lies."""
        b = self.b
        row = b.div(number, self.across)
        return Tile(
            b.div(row, self.tall),
            b.mul(b.rem(row, self.tall), self.form.output),
            b.mul(b.rem(number, self.across), self.form.output),
        )

    def under(self, frame: Index, tap: Index) -> tuple[Index, Value | None]:
        """The frame of the input at one place of the window, and whether it is there."""
        place = self.b.sub(self.b.add(frame, tap), self.front)
        return self.clip(place, self.depth, self.leaves_depth)

    def kernel(
        self,
        workload: tuple[Dim, Dim, Dim],
        tile: tuple[int, int, int],
        schedule: object,
        scratch_length: int = 0,
        local_size: tuple[int, int, int] = (1, 1, 1),
        local_length: int = 0,
    ) -> Kernel:
        """The finished kernel; its flops are those of the direct sum."""
        return kernel_of(
            self.function, self.b, self.epilogue, set(self.ordinals), workload, tile,
            self.direct, schedule, scratch_length, local_size, local_length,
        )  # fmt: skip

    def image(self, at: Index) -> Value:
        """Some features of a pixel, or one, as the dtype of sums."""
        return self.b.convert(self.b.load(self.x, at, self.lanes), F32)

    def clip(self, index: Index, bound: Index, clipped: bool) -> tuple[Index, Value | None]:
        """The index moved into the image, and whether it lies there."""
        b = self.b
        if not clipped:
            return index, None
        inside = b.op("and", b.compare("ge", index, 0), b.compare("lt", index, bound))
        return b.max(b.min(index, b.sub(bound, 1)), 0), inside

    def times(self, factor: float, value: Value) -> Value:
        """factor * value."""
        return self.b.op("mul", value, self.b.constant(factor, F32, self.lanes))

    def plus(self, factor: float, a: Value, c: Value) -> Value:
        """factor * a + c."""
        return self.b.fma(self.b.constant(factor, F32, self.lanes), a, c)

    def forward(self, d: Sequence[Value]) -> Vectors:
        """B^T d, with what rows of opposite points share computed once."""
        b = self.b
        if self.form.output == 2:
            pairs = (("sub", 2, 0), ("add", 1, 2), ("sub", 2, 1), ("sub", 3, 1))
            return [b.op(name, d[i], d[j]) for name, i, j in pairs]
        results = [self.plus(-2.5, d[2], b.op("add", d[0], d[4]))]
        near, far = self.form.points[1], self.form.points[3]
        for point, other in ((near, far), (far, near)):
            even = self.plus(-other * other, d[2], d[4])
            odd = self.times(point, self.plus(-other * other, d[1], d[3]))
            results += [b.op("add", even, odd), b.op("sub", even, odd)]
        return [*results, self.plus(-2.5, d[3], b.op("add", d[1], d[5]))]

    def store_inside(self, row: Index, column: Index, value: Value, place: Position) -> None:
        """Store a result unless the tile reaches beyond the image there."""
        b = self.b
        tests = []
        for index, bound in ((row, self.out_height), (column, self.out_width)):
            if not isinstance(bound, int) or bound % self.form.output:
                tests.append(b.compare("lt", index, bound))
        store: Callable[[], None] = lambda: self.epilogue.store(value, place)  # noqa: E731
        if not tests:
            store()
            return
        b.if_(tests[0] if len(tests) == 1 else b.op("and", *tests), store)

    def backward(self, m: Sequence[Value]) -> Vectors:
        """A^T m."""
        b = self.b
        if self.form.output == 2:
            total = b.op("add", m[0], b.op("add", m[1], m[2]))
            return [total, b.op("add", b.op("sub", m[1], m[2]), m[3])]
        near, far = self.form.points[1], self.form.points[3]
        near_sum, near_difference = b.op("add", m[1], m[2]), b.op("sub", m[1], m[2])
        far_sum, far_difference = b.op("add", m[3], m[4]), b.op("sub", m[3], m[4])
        return [
            b.op("add", m[0], b.op("add", near_sum, far_sum)),
            self.plus(far, far_difference, self.times(near, near_difference)),
            self.plus(far**2, far_sum, self.times(near**2, near_sum)),
            self.plus(far**3, far_difference, self.plus(near**3, near_difference, m[5])),
        ]

"""Convolution for work-groups: a matrix product whose left side is looked up in the images.

Rows are the output pixels of all images, depth runs over window positions and channels;
nothing is copied beforehand. An item finds the place of its pixels once and the window
position of a step once for all of them; what lies outside an image is zero.
"""

from __future__ import annotations

from ingot.compiler.ir import Function, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, product, row_major_strides
from ingot.compiler.kernels.contraction_entry import root_of
from ingot.compiler.kernels.convolution_entry import ConvolutionEntry
from ingot.compiler.kernels.items.choose_tile import choose_tile
from ingot.compiler.kernels.items.contraction import lower_contraction, store_tile
from ingot.compiler.kernels.items.group_tile import GroupTile, Source, TileProduct, load_where
from ingot.compiler.kernels.items.panel_source import panel_source
from ingot.compiler.kernels.kernel import Kernel, TargetInfo
from ingot.compiler.kernels.lanes.convolution_direct import lower_direct_convolution
from ingot.compiler.kernels.loop import Index
from ingot.compiler.kernels.product import is_pointwise
from ingot.compiler.kernels.register_tile import PANEL
from ingot.compiler.kernels.words import unit_of
from ingot.compiler.kernels.work_group import WorkGroup

__all__ = ["GroupConvolutionSchedule", "lower_convolution"]


@dataclass(frozen=True)
class GroupConvolutionSchedule:
    """The tile of a work-group: pixels by features."""

    tile: GroupTile


@dataclass(frozen=True)
class _Pixel:
    """Where an image begins, and where an output pixel's window begins in it."""

    image: Index
    start: tuple[Index, ...]


@dataclass(frozen=True)
class _Step:
    """A depth: how far into the window, and which channel."""

    reach: tuple[Index, ...]
    channel: Index


def lower_convolution(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry around one conv_packed."""
    root = root_of(function)
    if is_pointwise(root):
        return lower_contraction(function, target)
    if target.group_size == 1:
        return lower_direct_convolution(function, target)
    entry = ConvolutionEntry(function, root, words_for=target)
    b, pixels, columns = entry.builder, product(entry.result.shape[:-1]), entry.result.shape[-1]
    tile = choose_tile(target, entry.element, pixels, columns, 1, entry.function.symbols)
    group = WorkGroup(b, (tile.across, tile.down, 1))
    row = b.mul(b.workgroup(0), tile.rows)
    panel = b.mul(b.workgroup(1), tile.columns // PANEL)
    multiplier = TileProduct(group, tile, entry.element, parts=entry.parts)
    exact = isinstance(entry.panels, int) and entry.panels * PANEL % tile.columns == 0
    weight = (entry.ordinals[1], entry.w.dtype)
    right = panel_source(
        b, weight, entry.element, entry.depth, panel, None if exact else entry.panels
    )
    left = _Images(entry, row, pixels).source()
    sums = multiplier.run(multiplier.zeros(), entry.depth, left, right)
    first = (row, b.mul(panel, PANEL))
    store_tile(multiplier, entry.epilogue, sums, first, (pixels, columns), lambda place: place)
    return entry.kernel(
        (pixels, entry.panels, 1),
        (tile.rows, tile.columns // PANEL, 1),
        GroupConvolutionSchedule(tile),
        local_size=group.size,
        local_length=group.local_length,
    )


class _Images:
    """The images as the left side of a product, from output pixel `first` on."""

    def __init__(self, entry: ConvolutionEntry, first: Index, pixels: Dim) -> None:
        self.entry, self.b, self.first, self.pixels = entry, entry.builder, first, pixels
        self.steps: dict[Index, _Step] = {}

    def source(self) -> Source:
        """Lines are pixels."""
        element = self.entry.element
        return Source("depth", self._pixel, self._fetch, lambda raw: [self.b.convert(raw, element)])

    def _pixel(self, line: Index, offset: int) -> _Pixel:
        """Pixels beyond the last one repeat it."""
        b, entry, window = self.b, self.entry, self.entry.window
        pixel = b.min(b.add(self.first, b.add(line, offset)), b.sub(b.dim(self.pixels), 1))
        shape = entry.result.shape[:-1]
        place = [b.div(pixel, b.dim(stride)) for stride in row_major_strides(shape)]
        starts = []
        for axis, (at, size) in enumerate(zip(place[1:], shape[1:], strict=True)):
            moved = b.mul(b.rem(at, b.dim(size)), window.strides[axis])
            starts.append(b.sub(moved, b.dim(window.before[axis])))
        image = b.mul(place[0], b.dim(product(entry.x.shape[1:])))
        return _Pixel(image, tuple(starts))

    def _step(self, depth: Index) -> _Step:
        """The window position of a depth; the pixels of an item share it."""
        if depth not in self.steps:
            b, window = self.b, self.entry.window
            channels = b.dim(self.entry.channels)
            position = b.div(depth, channels)
            reach: list[Index] = []
            for axis in reversed(range(len(window.size))):
                at = b.rem(position, window.size[axis]) if axis else position
                reach.insert(0, b.mul(at, window.dilation[axis]))
                position = b.div(position, window.size[axis])
            self.steps[depth] = _Step(tuple(reach), b.rem(depth, channels))
        return self.steps[depth]

    def _fetch(self, pixel: _Pixel, depth: Index, offset: int, live: Value | None) -> Value:
        b, entry = self.b, self.entry
        step = self._step(b.add(depth, offset))
        at: Index = 0
        for axis, (start, reach) in enumerate(zip(pixel.start, step.reach, strict=True)):
            place, size = b.add(start, reach), entry.x.shape[1 + axis]
            live = self._inside(axis, place, size, live)
            at = b.add(b.mul(at, b.dim(size)), place)
        at = b.add(b.mul(at, b.dim(entry.channels)), step.channel)
        memory = (
            b.binding(entry.ordinals[0], unit_of(entry.parts[0])) if entry.parts else entry.input
        )
        return load_where(b, live, memory, b.add(pixel.image, at), entry.x.dtype)

    def _inside(self, axis: int, place: Index, size: Dim, live: Value | None) -> Value | None:
        """`live`, and that the place lies in the image where padding may lead out of it."""
        b, window = self.b, self.entry.window
        tests = [] if live is None else [live]
        if not _is_none(window.before[axis]):
            tests.append(b.compare("ge", place, 0))
        if not _is_none(window.after[axis]):
            tests.append(b.compare("lt", place, b.dim(size)))
        while len(tests) > 1:
            tests[:2] = [b.op("and", tests[0], tests[1])]
        return tests[0] if tests else None


def _is_none(padding: Dim) -> bool:
    """Whether there is no padding, for sure."""
    return isinstance(padding, int) and padding <= 0

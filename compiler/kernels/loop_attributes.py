"""What loop ops say beside their operands: a class per kind, given to ops by `table.py`."""

from __future__ import annotations

from dataclasses import field

from ingot.compiler.graph.ops import ReduceKind
from ingot.compiler.ir.attributes import LEFT_OUT, Attributes, Ints, Number
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.spec import DType

__all__ = [
    "Access",
    "Axis",
    "Code",
    "Constant",
    "Dot4",
    "DotParts",
    "DotTiles",
    "Fault",
    "Fma",
    "For",
    "Lane",
    "MultiplyTile",
    "Offset",
    "Ordinal",
    "Poll",
    "Prefetch",
    "Reduce",
    "Shuffle",
    "Table4",
    "Tile",
    "Tiles",
]


@dataclass(frozen=True)
class Constant(Attributes):
    """Of `loop.constant`."""

    value: Number


@dataclass(frozen=True)
class Ordinal(Attributes):
    """Of `loop.dim` and `loop.binding`."""

    ordinal: int


@dataclass(frozen=True)
class Axis(Attributes):
    """Of `loop.workload`, `loop.workgroup` and `loop.local_id`."""

    axis: int


@dataclass(frozen=True)
class Offset(Attributes):
    """Of `loop.scratch` and `loop.local`."""

    offset: int


@dataclass(frozen=True)
class For(Attributes):
    """Of `loop.for`."""

    unroll: bool = False
    poll: int = field(default=0, metadata=LEFT_OUT)


@dataclass(frozen=True)
class Poll(Attributes):
    """Of `loop.poll`."""

    work: int


@dataclass(frozen=True)
class Fault(Attributes):
    """Of `loop.fault`."""

    operand: int


@dataclass(frozen=True)
class Fma(Attributes):
    """Of `loop.fma`."""

    exact: bool = field(default=False, metadata=LEFT_OUT)


@dataclass(frozen=True)
class Dot4(Attributes):
    """Of `loop.dot4`: i8 or u8, what the bytes of either side are."""

    left: DType
    right: DType


@dataclass(frozen=True)
class Tiles(Attributes):
    """Of `loop.shape_tiles`: words of a row on the left side, lines on the right one."""

    words: int


@dataclass(frozen=True)
class DotTiles(Attributes):
    """Of `loop.dot_tiles`: what the words of either side hold, how many lines of rows and how many
    panels there are, and the panels of a row of sums."""

    left: DType
    right: DType
    lines: int
    panels: int
    width: int


@dataclass(frozen=True)
class DotParts(Attributes):
    """Of `loop.dot_parts`: how many bf16 a number is the sum of, 2 or 3, how many panels there are,
    the panels of a row of sums, and whether these are added to."""

    parts: int
    panels: int
    width: int
    adds: bool


@dataclass(frozen=True)
class Tile(Attributes):
    """Of `loop.store_tile`: the number of a tile of sums."""

    tile: int


@dataclass(frozen=True)
class MultiplyTile(Attributes):
    """Of `loop.multiply_tile`: i8, and i8 or u8, what the bytes of either side are, and the number
    of the tile of sums."""

    left: DType
    right: DType
    tile: int


@dataclass(frozen=True)
class Table4(Attributes):
    """Of `loop.table4`: 16 bytes."""

    table: Ints


@dataclass(frozen=True)
class Code(Attributes):
    """Of `loop.code`: its lowest bit in a word, how many there are, and if the last is a sign."""

    place: int
    bits: int
    is_signed: bool


@dataclass(frozen=True)
class Access(Attributes):
    """Of `loop.load` and `loop.store`."""

    aligned: bool = field(default=False, metadata=LEFT_OUT)


@dataclass(frozen=True)
class Prefetch(Attributes):
    """Of `loop.prefetch`: whether the line is to come into L1, and not into L2 alone."""

    soon: bool = field(default=False, metadata=LEFT_OUT)


@dataclass(frozen=True)
class Lane(Attributes):
    """Of `loop.extract` and `loop.insert`."""

    lane: int


@dataclass(frozen=True)
class Shuffle(Attributes):
    """Of `loop.shuffle`."""

    lanes: Ints


@dataclass(frozen=True)
class Reduce(Attributes):
    """Of `loop.reduce`."""

    kind: ReduceKind

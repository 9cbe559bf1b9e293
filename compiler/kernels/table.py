"""The table of loop ops: what each takes and gives, what it does beside, what it means.

The builder (`loop.py`), the verifier (`level.py`), the interpreter and `docs/loops.md` go by
it. Element-wise ops have their rows in the op table of the graph level; here they take
scalars and vectors. What registers hold is computed by `references.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from ingot.compiler.graph.ops import OPS, Clamp, Compare, infer_types
from ingot.compiler.ir import IndexType, Op, ScalarType, Type
from ingot.compiler.ir.attributes import Attributes, declare
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels import loop_rules as rules
from ingot.compiler.kernels.loop_attributes import (
    Access,
    Axis,
    Code,
    Constant,
    Dot4,
    DotParts,
    DotTiles,
    Fault,
    Fma,
    For,
    Lane,
    MultiplyTile,
    Offset,
    Ordinal,
    Poll,
    Prefetch,
    Reduce,
    Shuffle,
    Table4,
    Tile,
    Tiles,
)
from ingot.compiler.kernels.references import REFERENCES
from ingot.hal.spec import dtype

__all__ = [
    "ARITHMETIC",
    "INDEX_CHOICES",
    "LOOP_OPS",
    "Access",
    "Axis",
    "Clamp",
    "Code",
    "Compare",
    "Constant",
    "Dot4",
    "DotParts",
    "DotTiles",
    "Fault",
    "Fma",
    "For",
    "Lane",
    "LoopRow",
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
    "elementwise_types",
    "has_effect",
    "is_elementwise",
]

_I1, _I64 = ScalarType(dtype("i1")), ScalarType(dtype("i64"))
_INDEX = IndexType()

ARITHMETIC = tuple(f"loop.{name}" for name in ("add", "sub", "mul", "div", "rem", "min", "max"))
"""What is made of indices alone."""

INDEX_CHOICES = frozenset({"select", "min", "max"})
"""Element-wise ops that give an index where they choose among indices."""


@dataclass(frozen=True)
class LoopRow:
    """One op.

    `operands` are names with a kind, such as "memory: memory"; "?" may be left out, "*" is any
    number of them. `rule` gives the types of the results, or raises RuleError. `effect` is what
    the op does beside its results: "reads", "writes", "hints", "faults", "waits", "polls", "ends"
    (a block).
    """

    name: str
    family: str
    operands: tuple[str, ...]
    rule: Callable[[Op], tuple[Type, ...]]
    doc: str
    results: str = ""  # how the page writes them
    attributes: type[Attributes] = Attributes
    region_count: int = 0
    effect: str = ""

    @cached_property
    def kinds(self) -> tuple[tuple[str, bool, bool], ...]:
        """Of each operand its kind, whether it may be left out, whether there may be more."""
        rows = []
        for each in self.operands:
            name, _, kind = each.partition(": ")
            rows.append((kind, name.startswith(("?", "*")), name.startswith("*")))
        return tuple(rows)

    @property
    def reference(self) -> Callable[..., Any] | None:
        """The NumPy function of an op that computes in registers; None for all others."""
        return REFERENCES.get(self.name)


LOOP_OPS: dict[str, LoopRow] = {}


def is_elementwise(name: str) -> bool:
    """Whether the op works on single elements, and has its row at the graph level."""
    return name in OPS and OPS[name].family == "elementwise"


def has_effect(name: str) -> bool:
    """Whether the op does something that others see, beside its results."""
    return name in LOOP_OPS and LOOP_OPS[name].effect not in ("", "reads")


def elementwise_types(op: Op) -> tuple[Type, ...]:
    """The types of the results of an element-wise op. An index stands where an i64 scalar may."""
    types = [_I64 if value.type == _INDEX else value.type for value in op.operands]
    wanted = infer_types(op.name, types, op.attributes)
    chosen = op.operands[1:] if op.name == "select" else op.operands
    if op.name in INDEX_CHOICES and wanted == (_I64,):
        return rules.index_or_data(op, chosen)
    return wanted


def _row(
    signature: str,
    results: str,
    rule: Callable[[Op], tuple[Type, ...]],
    doc: str,
    effect: str = "",
    region_count: int = 0,
    attributes: type[Attributes] = Attributes,
) -> None:
    name, _, inner = signature.rstrip(")").partition("(")
    operands = tuple(inner.split(", ")) if inner else ()
    row = LoopRow(name, _FAMILY[-1], operands, rule, doc, results, attributes, region_count, effect)
    LOOP_OPS[name] = row
    declare(attributes, name)


_FAMILY: list[str] = []


def _leaves() -> None:
    _FAMILY.append("Leaves")
    _row(
        "loop.constant()",
        "scalar, vector or index",
        rules.constant,
        "A number, in all lanes.",
        attributes=Constant,
    )
    _row(
        "loop.dim()",
        "index",
        rules.count,
        "Constant `ordinal` of the dispatch.",
        attributes=Ordinal,
    )
    _row(
        "loop.workload()",
        "index",
        rules.count,
        "The dispatch's workload along an axis; 0 is x.",
        attributes=Axis,
    )
    _row(
        "loop.workgroup()",
        "index",
        rules.small_count,
        "The workgroup's position in the grid.",
        attributes=Axis,
    )
    _row(
        "loop.local_id()",
        "index",
        rules.small_count,
        "The work item's position in its group.",
        attributes=Axis,
    )
    _row("loop.lanes()", "i64 vector", rules.counting, "0, 1, 2, ...")


def _leaves_of_memory() -> None:
    _row(
        "loop.binding()",
        "memory",
        rules.memory,
        "Operand, result or workspace `ordinal` of the dispatch, of any dtype. Elements of i4, "
        "u4, i2 and u2 lie packed, the first in the low bits of a byte: they are read as i8 and "
        "u8, and not stored.",
        attributes=Ordinal,
    )
    _row(
        "loop.scratch()",
        "memory",
        rules.memory,
        "Memory of the workgroup from byte `offset` on, a multiple of 64; of any content at first.",
        attributes=Offset,
    )
    _row("loop.local()", "memory", rules.memory,
         "Fast memory that the work items of a group share, from byte `offset` on, a multiple of "
         "64; of any content at first.", attributes=Offset)  # fmt: skip


def _indices() -> None:
    _FAMILY.append("Index arithmetic")
    docs = (
        "a + b.",
        "a - b.",
        "a * b.",
        "a / b of a >= 0 and b > 0.",
        "What a / b leaves, of a >= 0 and b > 0.",
        "The smaller one.",
        "The larger one.",
    )
    for name, doc in zip(ARITHMETIC, docs, strict=True):
        _row(f"{name}(a: index, b: index)", "index", rules.arithmetic, f"{doc} No overflow.")


def _control() -> None:
    _FAMILY.append("Control")
    _row(
        "loop.for(lower: index, upper: index, step: index, *initial: value)",
        "as initial",
        rules.for_loop,
        "For lower, lower + step, ... below upper: the body takes the index and what is carried, "
        "and yields what is carried on. A hint to unroll changes nothing. `poll`: behind every so "
        "many steps, but the last ones, stands a `loop.poll`; 0 for none.",
        region_count=1,
        attributes=For,
    )
    _row(
        "loop.if(condition: i1)",
        "what the branches yield",
        rules.branch,
        "The first region where the condition is true, else the second.",
        region_count=2,
    )
    _row("yield(*values: value)", "", rules.nothing, "Ends a region with its values.", "ends")
    _row(
        "return(*values: value)",
        "",
        rules.nothing,
        "Ends the kernel, or a function with its value.",
        "ends",
    )
    _row(
        "loop.fault(condition: mask, index: indices, bound: index)",
        "",
        rules.fault,
        "Where a lane of the condition is true: notes that this index of an operand lies outside "
        "of the bound, and ends the work item, or in a kernel with a barrier goes on.",
        "faults",
        attributes=Fault,
    )
    _row("loop.poll()", "", rules.nothing,
         "Notes that about so many ops were done since the last one; where that is a lot, asks "
         "whether the call is to end, which then ends the kernel. For one work item only.",
         "polls", attributes=Poll)  # fmt: skip
    _row("loop.barrier()", "", rules.nothing,
         "Waits for all work items of the group: what they stored before it, in any memory, all "
         "of them read after it. All items of a group reach it or none.", "waits")  # fmt: skip


def _memory_ops() -> None:
    _FAMILY.append("Memory")
    count = "?count: index"
    aligned = "`aligned`: the vector lies on a multiple of its length."
    _row(
        f"loop.load(memory: memory, index: index, {count})",
        "scalar or vector",
        rules.load,
        "The element at the index, or adjacent ones from there; lanes from the count on are not "
        f"touched, and 0. {aligned}",
        "reads",
        attributes=Access,
    )
    _row(
        f"loop.store(memory: memory, index: index, value: value, {count})",
        "",
        rules.store,
        f"Writes a scalar, or the lanes below the count, from the index on. {aligned}",
        "writes",
        attributes=Access,
    )
    _row(
        "loop.gather(memory: memory, indices: i64 or u8 vector)",
        "vector",
        rules.gather,
        "The elements at the indices; those of u8 are places in a table of 256 u8.",
        "reads",
    )
    _row("loop.prefetch(memory: memory, index: index)", "", rules.nothing,
         "Asks for the cache line of the element at the index, which may lie behind the last one, "
         "into L1 if `soon`, else into L2. Changes nothing.", "hints",
         attributes=Prefetch)  # fmt: skip
    _row("loop.same(a: memory, b: memory)", "i1", rules.same,
         "Whether both start at the same address: a result that lies in an operand.")  # fmt: skip


def _lane_ops() -> None:
    _FAMILY.append("Lanes")
    _row("loop.broadcast(scalar: scalar)", "vector", rules.broadcast, "Equal lanes.")
    _row("loop.extract(vector: vector)", "scalar", rules.extract, "One lane.", attributes=Lane)
    _row("loop.insert(vector: vector, scalar: scalar)", "vector", rules.insert,
         "The vector with one lane replaced.", attributes=Lane)  # fmt: skip
    _row(
        "loop.shuffle(a: vector, b: vector)",
        "vector",
        rules.shuffle,
        "Lane i is lane lanes[i] of a followed by b.",
        attributes=Shuffle,
    )
    _row(
        "loop.pick(vector: vector, places: vector)",
        "vector",
        rules.pick,
        "Lane i is lane places[i] of the vector; no place lies beside its lanes. Places are "
        "integers as wide as the elements are in registers: i32 for f16 and bf16, i8 for i1.",
    )
    _row(
        "loop.reduce(vector: vector)",
        "scalar",
        rules.reduce,
        "All lanes combined: the lower half with the upper one, until one is left.",
        attributes=Reduce,
    )
    _row("loop.any(vector: vector)", "i1", rules.any_lane, "Whether a lane is true.")
    _row(
        "loop.fma(a: value, b: value, c: value)",
        "as c",
        rules.fma,
        "a * b + c, rounded once where the target can. `exact`: where it cannot, the bits that "
        "rounding the product would lose count all the same.",
        attributes=Fma,
    )
    _row(
        "loop.dot4(a: value, b: value, c: value)",
        "as c",
        rules.dot4,
        "c + the products of the four bytes of each 32-bit word of a with those of b, modulo 2^32. "
        "`left` and `right`: i8 or u8, what the bytes are.",
        attributes=Dot4,
    )
    _row(
        "loop.dot2(a: value, b: value, c: value)",
        "as c",
        rules.dot2,
        "c, f32, + the products of the two bf16 of each 32-bit word of a with those of b, added in "
        "any order, with f32 or better between; what is subnormal may count as 0. Only for targets "
        "with an instruction for it.",
    )


def _word_ops() -> None:
    """Of words of codes, and of two f16."""
    _row(
        "loop.code(words: value)",
        "f32 as words",
        rules.code,
        "The `bits` of each 32-bit word from `place` on, up to 8, as an f32: a number with a sign "
        "or without.",
        attributes=Code,
    )
    _row(
        "loop.table4(words: value)",
        "as words",
        rules.table4,
        "Each of the four bytes of a 32-bit word, 0 to 15, becomes that byte of `table`.",
        attributes=Table4,
    )
    _row(
        "loop.fma2(a: value, b: value, c: value)",
        "as c",
        rules.fma2,
        "a * b + c of each of the two f16 of 32-bit words, rounded to f16 once. Only for targets "
        "with an instruction for it.",
    )
    _row(
        "loop.sum2(words: value, c: value)",
        "as c",
        rules.sum2,
        "c, f32, + the sum, as f16, of the two f16 of each 32-bit word. Only for targets with "
        "instructions for it.",
    )


def _tile_ops() -> None:
    _FAMILY.append("Tiles")
    _row(
        "loop.shape_tiles(rows: index)",
        "",
        rules.shape_tiles,
        "Once, in front of all products of tiles of a block and its regions: left sides have so "
        "many rows in all, and their rows are taken `words` words at a time, up to 16. Only for "
        "targets with tiles.",
        "shapes",
        attributes=Tiles,
    )
    _row(
        "loop.dot_tiles(left: memory, left_at: index, pitch: index, line_pitch: index, "
        "left_step: index, right: memory, right_at: index, panel_pitch: index, right_step: index, "
        "sums: memory, rows: index, words: index, segments: index)",
        "",
        rules.dot_tiles,
        "Stores sums of products, 16 columns for each of `panels`, of rows of each of `lines`; "
        "there is room for `width` panels in a row: sums[line, row, panel, column] = the sum over"
        " segments s and words k of left[left_at + s * left_step + line * line_pitch + row * "
        "pitch + k] times right[right_at + s * right_step + panel * panel_pitch + 16 k + column],"
        " as `loop.dot4` of bytes or `loop.dot2` multiply words. One line has 1 to 32 rows; if "
        "they are fewer than a tile has, they are the last ones of all, and 15 rows of sums in "
        "front of them may change. Two have those of a tile.",
        "writes",
        attributes=DotTiles,
    )
    _row(
        "loop.dot_parts(left: memory, left_at: index, pitch: index, left_step: index, "
        "left_line: index, right: memory, right_at: index, panel_pitch: index, right_step: index, "
        "sums: memory, sums_at: index, rows: index, words: index, segments: index)",
        "",
        rules.dot_parts,
        "As `loop.dot_tiles` of a line of 16 or 32 rows, of numbers that are sums of bf16: a part "
        "lies left_step and right_step behind the last one, a segment left_line, and on the right "
        "where the last one ends. Stores from sums_at on, or adds there, parts i + j < `parts`.",
        "writes",
        attributes=DotParts,
    )
    _row(
        "loop.multiply_tile(left: memory, left_at: index, pitch: index, right: memory, "
        "right_at: index, words: index)",
        "",
        rules.multiply_tile,
        "The product of 16 rows and a panel of bytes is left in tile 0 or 1: tile[row, column] = "
        "the sum over the words k of left[left_at + row * pitch + k] times right[right_at + 16 k + "
        "column], as `loop.dot4` multiplies them. The left side has 16 rows or more. "
        "`loop.dot_tiles` changes the tiles.",
        "writes",
        attributes=MultiplyTile,
    )
    _row(
        "loop.store_tile(sums: memory)",
        "",
        rules.store_tile,
        "Stores what `loop.multiply_tile` left in tile 0 or 1, row by row.",
        "writes",
        attributes=Tile,
    )


def _parts() -> None:
    _FAMILY.append("Parts of math functions")
    _row("loop.exp_nonpositive(x: value)", "as x", rules.part, "e to the power x, for x <= 0.")
    _row(
        "loop.exp_floor(x: value)",
        "as x",
        rules.part,
        "x, or where e to the power x is 0, a number of which that is also so, and not about to be "
        "subnormal.",
    )
    _row(
        "loop.scale(value: value, power: value)",
        "as value",
        rules.part,
        "value * 2^power: a normal value, a whole power; rounded once.",
    )
    _row(
        "loop.angle(x: value)",
        "as x",
        rules.part,
        "What is left of x, if it is not small, beside the nearest multiple of pi / 2.",
    )
    _row("loop.quadrant(x: value)", "as x", rules.part, "Which multiple that is, modulo 4.")


_OPS = (
    _leaves,
    _leaves_of_memory,
    _indices,
    _control,
    _memory_ops,
    _lane_ops,
    _word_ops,
    _tile_ops,
    _parts,
)
for _register in _OPS:
    _register()

"""A group of graph ops that become one kernel, and what each kind of kernel can take in.

A group starts at a root (a contraction, a reduction, an op whose value several others need)
and grows by its consumers. The rules here are what `form_dispatches.py` asks before it
adds an op; they say what the kernel classes can generate, and nothing of when it pays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from ingot.compiler.graph.ops import OPS, AlongAxis, Broadcast, Constant, Reduce, Take
from ingot.compiler.ir import Op, Value, defined_by, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.hal.header import constants, read

__all__ = [
    "ATTENTIONS",
    "CONTRACTIONS",
    "INDEX_OPS",
    "LOOKUPS",
    "MAXIMUM_BINDINGS",
    "ORDERED",
    "REDUCTIONS",
    "WINDOWS",
    "Group",
    "is_elementwise",
    "is_scalar_constant",
    "looks_up_bytes",
    "shape_of",
]

ATTENTIONS = frozenset({"attention", "attention_paged"})
CONTRACTIONS = frozenset(
    {
        *("dot_packed", "dot_coded", "dot_scaled", "dot_general"),
        *("conv_packed", "conv_winograd", "depthwise"),
    }
)
REDUCTIONS = frozenset({"reduce", "arg_max", "arg_min"})
WINDOWS = frozenset({"reduce_window", "conv_planar"})
INDEX_OPS = frozenset(
    {
        "broadcast",
        "reshape",
        "transpose",
        "slice",
        "pad",
        "concatenate",
        "reverse",
        "take",
        "gather",
        "dynamic_slice",
        "unpack",
    }
)
LOOKUPS = frozenset({"take", "gather", "dynamic_slice"})
"""Index ops that read where other operands say."""

ORDERED = frozenset({"cumulative", "sort", "top_k", "scatter", "dynamic_update_slice"})
"""Ops with a kernel of their own that computes cheap operands itself."""

MAXIMUM_BINDINGS = int(constants(read("module_layout.h"))["INGOT_ENTRY_MAX_BINDINGS"])
"""Of a dispatch: values in memory that it reads, and results."""

MAXIMUM_MEMBERS = 96
"""Ops of a group, which bounds its kernel's code."""

MAXIMUM_READS = 32
"""Values in memory that a group reads: half of its bindings."""

Shape = tuple[Dim, ...]


@dataclass(eq=False)
class Group:
    """Ops of one kernel. `order` says which runs first; a group depends on lower ones only.

    `shape` is that of the results; of a row group, `shape` is the row's and `outer` what is
    left of it after the reductions over `axes`.
    """

    order: int
    kind: str  # map, row, contraction, window, or the name of an op that stays alone
    shape: Shape
    axes: tuple[int, ...] = ()
    members: dict[Op, None] = field(default_factory=dict)
    owned: set[Value] = field(default_factory=set)
    reads: dict[Value, None] = field(default_factory=dict)
    exposed: dict[Value, None] = field(default_factory=dict)

    @property
    def outer(self) -> Shape:
        """The dims that the reductions of a row group keep."""
        return tuple(dim for axis, dim in enumerate(self.shape) if axis not in self.axes)

    def has_room(self, reads: int = 0) -> bool:
        """Whether another op, with so many more values in memory, leaves the kernel small, and
        within its bindings even if all that its ops make are results."""
        bindings = len(self.reads) + reads + len(self.owned)
        is_full = len(self.members) >= MAXIMUM_MEMBERS or len(self.reads) >= MAXIMUM_READS
        return not is_full and bindings < MAXIMUM_BINDINGS

    def accepts(self, op: Op, is_memory: Callable[[Value], bool]) -> bool:
        """Whether `op`, element-wise or a look-up of bytes, a consumer, may join.

        `is_memory` tells which values can be read from memory by this group's kernel.
        """
        if not self.has_room():
            return False
        check = _Acceptance(self, is_memory)
        match self.kind:
            case "contraction" | "window":
                return shape_of(op.result) == self.shape and check.epilogue(op)
            case "map":
                return shape_of(op.result) == self.shape and check.map(op)
            case "row":
                return shape_of(op.result) in (self.shape, self.outer) and check.row(op)
        return False

    def becomes_row(self, op: Op) -> bool:
        """Whether this map group may become a row group by taking the reduction `op` in."""
        return (
            self.kind == "map"
            and self.shape == shape_of(op.operands[0])
            and all(_is_row_member(member, self.shape) for member in self.members)
        )


@dataclass(frozen=True)
class _Acceptance:
    """The rules about operands of an op that wants to join `group`."""

    group: Group
    is_memory: Callable[[Value], bool]

    def epilogue(self, op: Op) -> bool:
        """Operands are of the group, of its shape, or small values that broadcast into it; a table
        of bytes lies in memory."""
        if op.name == "take":
            table, places = op.operands
            is_owned = self.group.kind == "contraction" and places in self.group.owned
            return is_owned and self.is_memory(table)
        direct = any(operand in self.group.owned for operand in op.operands)
        return direct and all(self._epilogue_operand(operand) for operand in op.operands)

    def map(self, op: Op) -> bool:
        """Operands are of the group, in memory, or computed from memory alone."""
        owned = self.group.owned
        return any(operand in owned for operand in op.operands) and all(
            operand in owned or not self._reaches_group(operand) for operand in op.operands
        )

    def row(self, op: Op) -> bool:
        """Operands are of the row's or the outer shape, or broadcast into one of them."""
        return all(self._row_operand(operand) for operand in op.operands)

    def _reaches_group(self, value: Value) -> bool:
        if value in self.group.owned:
            return True
        if self.is_memory(value) or not isinstance(value.owner, Op):
            return False
        return any(self._reaches_group(operand) for operand in value.owner.operands)

    def _epilogue_operand(self, value: Value) -> bool:
        if value in self.group.owned:
            return True
        if self.is_memory(value) or is_scalar_constant(value):
            return shape_of(value) == self.group.shape
        op = value.op
        if op.name == "broadcast":
            return self._unit_stride(op) and self._small(op.operands[0])
        if is_elementwise(op):
            return all(self._epilogue_operand(operand) for operand in op.operands)
        return False

    def _unit_stride(self, op: Op) -> bool:
        """Whether the broadcast runs along the last axis of its operand or stays put there."""
        operand = shape_of(op.operands[0])
        dimensions = Broadcast.of(op).dimensions
        last = len(shape_of(op.result)) - 1
        if not repeats_plainly(op) or list(dimensions) != sorted(dimensions):
            return False
        moving = [axis for axis, dim in enumerate(operand) if dim != 1]
        return all(dimensions[axis] != last or axis == moving[-1] for axis in moving)

    def _small(self, value: Value) -> bool:
        if value in self.group.owned:
            return False
        if self.is_memory(value) or is_scalar_constant(value):
            return True
        op = value.op
        if op.name == "dim":
            return True
        if op.name == "broadcast":
            return repeats_plainly(op) and self._small(op.operands[0])
        if op.name == "reshape":
            return self._small(op.operands[0]) and changes_ones_only(op)
        return is_elementwise(op) and all(self._small(operand) for operand in op.operands)

    def _row_operand(self, value: Value) -> bool:
        if value in self.group.owned:
            return True
        shapes = (self.group.shape, self.group.outer)
        if self.is_memory(value):
            return shape_of(value) in shapes
        op = value.op
        if op.name == "dim" or is_scalar_constant(value):
            return True
        if op.name == "broadcast":
            source = op.operands[0]
            if not repeats_plainly(op) or not self._row_source(source):
                return False
            return not self._reaches_group(source) or self._stays_in_row(op)
        if op.name == "take":
            return self._takes_columns(op)
        return (
            is_elementwise(op)
            and shape_of(value) in shapes
            and all(self._row_operand(operand) for operand in op.operands)
        )

    def _takes_columns(self, op: Op) -> bool:
        """Whether rows that indices in memory point at are reduced element by element, such as bags
        of an embedding: what they add up to is read where it lies, and not copied before."""
        table, places = op.operands
        shape, last = self.group.shape, len(self.group.shape) - 1
        is_row = Take.of(op).axis < len(shape_of(table)) - 1
        return (
            (is_row and last not in self.group.axes and shape_of(op.result) == shape)
            and self.is_memory(table)
            and self.is_memory(places)
        )

    def _stays_in_row(self, op: Op) -> bool:
        """Whether the broadcast repeats an outer value along the row that it was computed from."""
        group, dimensions = self.group, Broadcast.of(op).dimensions
        kept = [axis for axis, dim in enumerate(group.shape) if axis not in group.axes and dim != 1]
        source = shape_of(op.operands[0])
        return [dimensions[axis] for axis, dim in enumerate(source) if dim != 1] == kept

    def _row_source(self, value: Value) -> bool:
        """What may be broadcast into a row: memory, numbers, an outer value of the group."""
        if value in self.group.owned or self.is_memory(value) or is_scalar_constant(value):
            return True
        op = value.op
        if op.name == "dim":
            return True
        if op.name == "reshape":
            return changes_ones_only(op) and self._row_source(op.operands[0])
        if op.name == "broadcast":
            return repeats_plainly(op) and self._row_source(op.operands[0])
        return is_elementwise(op) and all(self._row_source(operand) for operand in op.operands)


def _is_row_member(op: Op, shape: Shape) -> bool:
    if op.name == "broadcast":
        return repeats_plainly(op)
    return op.name in ("constant", "dim") or (is_elementwise(op) and shape_of(op.result) == shape)


def is_elementwise(op: Op) -> bool:
    """Whether element i of the result depends on element i of the operands only."""
    row = OPS.get(op.name)
    return row is not None and row.family == "elementwise"


def looks_up_bytes(op: Op) -> bool:
    """Whether each element is that of a table of 256 bytes whose place a byte says."""
    if op.name != "take":
        return False
    table, places = map(tensor_type, op.operands)
    return table.shape == (256,) and table.dtype.name == places.dtype.name == "u8"


def is_scalar_constant(value: Value) -> bool:
    """Whether the value is a constant of one element, which stands in the kernel's code."""
    op = defined_by(value, "constant")
    if op is None:
        return False
    return Constant.of(op).value.size == 1


def reduced_axes(op: Op) -> tuple[int, ...]:
    """The axes of a reduce, arg_max or arg_min, sorted."""
    if op.name == "reduce":
        return tuple(sorted(Reduce.of(op).axes))
    return (AlongAxis.of(op).axis,)


def repeats_plainly(op: Op) -> bool:
    """Whether every dim that a broadcast repeats is 1 now, not only perhaps at the call."""
    operand, result = shape_of(op.operands[0]), shape_of(op.result)
    dimensions = Broadcast.of(op).dimensions
    return all(dim in (1, result[axis]) for dim, axis in zip(operand, dimensions, strict=True))


def changes_ones_only(op: Op) -> bool:
    """Whether a reshape only adds or drops dims of size one."""
    before = [dim for dim in shape_of(op.operands[0]) if dim != 1]
    return before == [dim for dim in shape_of(op.result) if dim != 1]


def shape_of(value: Value) -> Shape:
    """The shape of a tensor."""
    return tensor_type(value).shape

"""Forms dispatch regions: every graph op goes into one kernel, or is a leaf or an alias.

One walk over the ops, front to back. A contraction, a reduction or a window starts a
group, and the element-wise ops behind it join as long as the group's kind can take them
(`group.py`). Other ops float: they are computed inside whatever reads them. A floating
value becomes a group of its own where it must lie in memory: an operand of a contraction,
a result of the function, a value too costly to compute once per reader. Groups are
ordered so that each reads earlier ones only: an op joins the last group that it depends
on, or none, which keeps the order acyclic without any search.

A reshape of a value that lies in memory is an alias and never in a region. Constants of
one element go inside the regions that use them. Branches, loops, variables and scalars of
the VM stand alone, in the order of the program; the bodies of branches and loops are formed
in the same way. What a body takes from outside lies in memory, or is so cheap that it is
computed inside. `write_regions.py` writes the result.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Literal

from ingot.compiler.dispatch.group import (
    ATTENTIONS,
    CONTRACTIONS,
    INDEX_OPS,
    LOOKUPS,
    ORDERED,
    REDUCTIONS,
    WINDOWS,
    Group,
    is_elementwise,
    is_scalar_constant,
    looks_up_bytes,
    reduced_axes,
    shape_of,
)
from ingot.compiler.dispatch.ops import SLOT_OPS
from ingot.compiler.dispatch.view import view_of
from ingot.compiler.dispatch.write_regions import write_function
from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.graph.forms.waiting_codes import waiting_codes, widens_bytes
from ingot.compiler.graph.ops import CONTROL, COSTLY, Take, Transpose, defined_symbols
from ingot.compiler.graph.symbols import symbols_used
from ingot.compiler.ir import (
    Block,
    Function,
    Module,
    Op,
    Region,
    ScalarType,
    Value,
    count_uses,
    defined_by,
    dims,
    walk,
)
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, prove_le
from ingot.hal.errors import CompileError

__all__ = ["Former", "form_dispatches", "stands_alone"]

LEAVES = frozenset({"constant", "parameter", "global"})
VIEW_OPS = frozenset({"transpose", "slice", "reshape"})
NUMBERS = frozenset({"dim", "iota"})
_ALONE = frozenset(
    {
        *("size", "variable.load", "variable.store", "scalar.read", "scalar.symbol"),
        *("view", "update", "reinterpret", "native.call", "call"),
        *SLOT_OPS,
    }
)
_SUNK = frozenset({"dim", "iota", "broadcast", "reshape", "slice"})  # a loop's body computes them

# Times are those of one thread with AVX-512.
_CHEAP = 2  # cost up to which a value is computed anew for every reader: for two sums of one in
# 512 x 512, 56 us anew, 70 through memory
_LARGEST_TREE = 48  # ops that float together; it bounds the code of a kernel, and a chain of 192 on
# 64 Ki elements takes 79 us with 24 as with 192
_MOST_READS = 12  # values in memory that they read: 64 of 64 Ki elements are added in 245 us, with
# 6 in 244, with 24 in 373
_LEAST_ROW = 8  # elements of rows that are copied to lie in memory as rows before many are read
_GAP = 1 << 40  # between the orders of neighbours: room to put groups in between


def form_dispatches(module: Module) -> Module:
    """The module with all compute ops inside `dispatch.region` ops."""
    result = Module(attributes=dict(module.attributes), variables=dict(module.variables))
    for function in module.functions.values():
        former = Former(function.block)
        result.add(write_function(function, former))
    return result


@dataclass(frozen=True)
class _Float:
    """A value that is computed where it is read: what that takes."""

    cost: int
    size: int  # ops
    reads: int  # values in memory, counted once per use


class Former:
    """The groups of one block; `outer` formed the block around it."""

    def __init__(self, block: Block, outer: Former | None = None) -> None:
        self.block = block
        self.outer = outer
        self.uses: dict[Value, int] = count_uses(block) if outer is None else outer.uses
        self.groups: list[Group] = []
        self.group_of: dict[Value, Group] = {}
        self.floats: dict[Value, _Float] = {}
        # the last ones over axes of a shape
        self.rows: dict[tuple[tuple[Dim, ...], tuple[int, ...]], Group] = {}
        self.definitions: dict[str, Group] = {}  # what must run before a symbol is known
        self.bodies: dict[Op, list[Former]] = {}
        self.waiting = waiting_codes(block)
        self.reduced = {op.operands[0] for op in block.ops if op.name in REDUCTIONS}
        for op in block.ops:
            self._visit(op)

    # What a value is.

    def is_memory(self, value: Value) -> bool:
        """Whether the value lies in memory when later groups run."""
        return self.base(value) is not None

    def has_landed(self, value: Value) -> bool:
        """Whether a group, of this block or one around it, makes the value."""
        return value in self.group_of or (self.outer is not None and self.outer.has_landed(value))

    def is_inner(self, value: Value) -> bool:
        """Whether the memory of the value is made by this block."""
        base = self.base(value)
        return base in self.group_of or base in self.block.arguments

    def base(self, value: Value) -> Value | None:
        """The value in memory whose bytes `value` is, itself or through reshapes."""
        while isinstance(value.owner, Op) and not self.has_landed(value):
            if value.owner.name in LEAVES:
                return value
            if value.owner.name != "reshape":
                return None
            value = value.owner.operands[0]
        return value

    def last_read(self, value: Value) -> Group | None:
        """The last group that must run before the value can be read."""
        if value in self.group_of:
            return self.group_of[value]
        if not isinstance(value.owner, Op) or self.has_landed(value):
            return None
        # Not kept: an operand that was computed in its readers may lie in memory by now.
        return self.last_of(value.owner)

    def last_of(self, op: Op) -> Group | None:
        """The last group that must run before the op."""
        groups = [self.last_read(operand) for operand in op.operands]
        if self.definitions:
            groups += [self.definitions.get(name) for name in symbols_used(op)]
        return max((group for group in groups if group), key=_order, default=None)

    # One op after the other.

    def _visit(self, op: Op) -> None:
        if stands_alone(op):
            self._visit_alone(op)
        elif op.name in LEAVES:
            return
        elif op.name in ("return", "yield"):
            for operand in op.operands:
                self._materialise(operand)
        elif op.name in NUMBERS:
            self.floats[op.result] = _Float(0, 1, 0)
        elif is_elementwise(op):
            self._visit_elementwise(op)
        elif op.name in INDEX_OPS:
            self._visit_index(op)
        elif op.name in REDUCTIONS:
            self._visit_reduction(op)
        else:
            self._visit_root(op)

    def _visit_elementwise(self, op: Op) -> None:
        if self._widens_codes(op):
            self._float(op, 0)
        elif self._is_computed_by_reduction(op):
            self._float(op, 1)
        elif not self._join_above(op):
            self._float(op, 8 if op.name in COSTLY else 1)

    def _widens_codes(self, op: Op) -> bool:
        """Whether the op makes floats of bytes that others read, too, or that lie in memory until a
        later product: so do its readers, each for itself, and no floats lie in memory."""
        return op in self.waiting or (widens_bytes(op) and self.uses.get(op.operands[0], 0) > 1)

    def _is_computed_by_reduction(self, op: Op) -> bool:
        """Whether a reduction alone reads what a cheap op makes of a product that others read, too,
        such as squares: that reads the product, and no squares lie in memory."""
        product = op.operands[0]
        group = self.group_of.get(product)
        return (
            group is not None
            and group.kind in ("contraction", "window")
            and op.name not in COSTLY
            and op.result in self.reduced
            and self.uses[op.result] == 1
            and {*op.operands} == {product}
            and self.uses[product] > len(op.operands)
        )

    def _join_above(self, op: Op) -> bool:
        """Add an element-wise op, or a look-up of bytes, to the highest group that it reads, if
        that takes it."""
        group = self.last_of(op) if is_elementwise(op) or looks_up_bytes(op) else None
        if group is None or not group.has_room(self._tree(op, 0).reads):
            return False
        joins = group.accepts(op, lambda value: self._is_readable(value, group))
        if joins:
            self._join(group, op)
        return joins

    def _is_readable(self, value: Value, group: Group) -> bool:
        """Whether the kernel of `group` can read the value from memory."""
        base = self.base(value)
        return base is not None and base not in group.owned and not is_scalar_constant(value)

    def _visit_index(self, op: Op) -> None:
        """Slices, broadcasts, gathers and such float; what they repeat is not recomputed."""
        group = self.group_of.get(op.operands[0])
        if group is not None and self._ends_attention(group, op):
            self._join(group, op)
            return
        if looks_up_bytes(op) and self._join_above(op):
            return
        if op.name == "unpack":
            self._materialise(op.operands[0])
        if op.name == "broadcast" or op.name in LOOKUPS:
            for operand in op.operands:
                once = op.name in LOOKUPS and shape_of(operand) in ((), shape_of(op.result))
                once = once or (op.name == "take" and self._is_taken(operand))
                if operand in self.floats and self.floats[operand].cost > _CHEAP and not once:
                    self._materialise(operand)
        if op.name in ("transpose", "pad") and self._is_costly_bytes(op.operands[0]):
            self._materialise(op.operands[0])
        if op.name == "take" and _has_rows(op) and self._is_turned(op.operands[0]):
            self._materialise(op.operands[0])
        if op.name == "transpose" and _moves_last(op) and self._takes_rows(op.operands[0]):
            self._materialise(op.operands[0])
        self._float(op, 2 if op.name in LOOKUPS else 0)

    def _is_taken(self, value: Value) -> bool:
        """Whether the value is elements of memory that indices in memory point at, axis by axis:
        an index more costs less than to move all elements once more."""
        while self._floating(value) and (op := defined_by(value, "take")):
            if not self.is_memory(op.operands[1]):
                return False
            value = op.operands[0]
        return self.is_memory(value)

    def _is_costly_bytes(self, value: Value) -> bool:
        """Whether to move the elements is much less work than to compute them where they go,
        without vectors: quantised numbers."""
        tree = self._floating(value)
        element = tensor_type(value).dtype
        return tree is not None and tree.cost > _CHEAP and element.bits == 8 and element.is_integer

    def _is_turned(self, value: Value) -> bool:
        """Whether rows of the value do not lie in memory as rows."""
        while self._floating(value) and (op := defined_by(value, "transpose", "reshape")):
            if op.name == "transpose" and _moves_last(op):
                return True
            value = op.operands[0]
        return False

    def _takes_rows(self, value: Value) -> bool:
        """Whether whole rows that others point at are read for the value where it is computed."""
        if self._floating(value) is None:
            return False
        op = value.op
        return (op.name == "take" and _has_rows(op)) or any(map(self._takes_rows, op.operands))

    def _ends_attention(self, group: Group, op: Op) -> bool:
        """Whether a transpose of heads is written by the attention kernel itself."""
        alone = op.operands == list(group.owned) and self.uses[op.operands[0]] == 1
        return group.kind == "attention" and op.name == "transpose" and alone

    def _visit_reduction(self, op: Op) -> None:
        operand = op.operands[0]
        axes = reduced_axes(op)
        group = self.group_of.get(operand)
        if group is not None and group.kind == "row":
            fits = (group.shape, group.axes) == (shape_of(operand), axes)
            if not fits or not group.has_room():
                group = None
        elif group is not None and group.becomes_row(op):
            group.kind, group.axes = "row", axes
        else:
            group = None
        group = group or self._beside(operand, axes)
        if group is None:
            probe = Group(0, "row", shape_of(operand), axes)
            if not probe.accepts(_identity(operand), lambda value: self._is_readable(value, probe)):
                wide = defined_by(operand, "convert")
                is_byte = wide and tensor_type(wide.operands[0]).dtype.bits == 8
                self._materialise(wide.operands[0] if wide and is_byte else operand)
            group = self._new_group("row", shape_of(operand), axes=axes)
        self.rows[shape_of(operand), axes] = group
        self._join(group, op)

    def _beside(self, operand: Value, axes: tuple[int, ...]) -> Group | None:
        """A row group over the same axes that reads what a reduction needs already, such as that of
        the greatest numbers for the least ones: so they are read once."""
        group, needed = self.rows.get((shape_of(operand), axes)), self._bases(operand)
        if group is None or not needed or not needed <= set(map(self.base, group.reads)):
            return None
        fits = group.accepts(_identity(operand), lambda value: self._is_readable(value, group))
        return group if fits else None

    def _bases(self, value: Value) -> set[Value | None]:
        """The values in memory that a value is computed from."""
        if self.is_memory(value):
            return set() if is_scalar_constant(value) else {self.base(value)}
        return set[Value | None]().union(*map(self._bases, value.op.operands))

    def _visit_root(self, op: Op) -> None:
        """An op that reads its operands from memory: contractions, windows, and the rest."""
        for operand in op.operands:
            if op.name in ORDERED:
                stays = self._is_computed_inside(operand)
            else:
                stays = op.name in ATTENTIONS and self._is_view(operand)
            if not stays:
                self._materialise(operand)
        kind = op.name
        if op.name in CONTRACTIONS:
            kind = "contraction"
        elif op.name in ATTENTIONS:
            kind = "attention"
        elif op.name in WINDOWS:
            kind = "window"
        self._join(self._new_group(kind, shape_of(op.results[0])), op)

    def _visit_alone(self, op: Op) -> None:
        """An op that no kernel does; its operands and what its bodies take land before it."""
        if op.name in CONTROL and defined_symbols(op):
            raise CompileError(_growing(op))
        for operand in op.operands:
            self._materialise(operand)
        for value in captures_of(op):
            tree = self._floating(value)
            if tree is not None and not self._is_sunk(value, op):
                self._materialise(value)
        self.bodies[op] = [Former(region.block, self) for region in op.regions]
        # A view costs nothing, and what joins an earlier group may read it.
        before: Group | Literal[True] | None = True
        if op.name in ("view", "reinterpret"):
            before = self.last_of(op)
        group = self._new_group("alone", (), before)
        self._join(group, op)
        self.definitions.update(dict.fromkeys(defined_symbols(op), group))

    def _is_sunk(self, value: Value, op: Op) -> bool:
        """Whether the bodies of `op` compute a value themselves, perhaps in every step."""
        if self.is_memory(value):
            return True
        owner = value.op
        if op.name != "while":
            return self._tree_of(value).cost <= _CHEAP
        small = not shape_of(value) and is_elementwise(owner) and owner.name not in COSTLY
        return (small or owner.name in _SUNK) and all(
            self._is_sunk(operand, op) for operand in owner.operands
        )

    def _is_computed_inside(self, value: Value) -> bool:
        """Whether an ordered op computes the operand itself: numbers, and what costs little."""
        tree = self._floating(value)
        return tree is not None and (not shape_of(value) or tree.cost <= _CHEAP)

    def _is_view(self, value: Value) -> bool:
        """Whether a kernel that reads with strides can read the value where it lies."""
        base = value
        while not self.is_memory(base):
            if (op := defined_by(base, *VIEW_OPS)) is None:
                return False
            base = op.operands[0]
        return _is_strided(value, base)

    # Floating and landing.

    def _float(self, op: Op, cost: int) -> None:
        """Leave the op to its readers, or give it a group if that would cost too much."""
        tree = self._tree(op, cost)
        if tree.size > _LARGEST_TREE or tree.reads > _MOST_READS:
            for operand in sorted(op.operands, key=lambda value: -self._tree_of(value).size):
                if tree.size > _LARGEST_TREE or self._tree_of(operand).reads > 1:
                    self._materialise(operand)
                    tree = self._tree(op, cost)
                if tree.size <= _LARGEST_TREE and tree.reads <= _MOST_READS:
                    break
        self.floats[op.result] = tree
        if tree.cost > _CHEAP and self.uses.get(op.result, 0) > 1:
            self._materialise(op.result)

    def _tree(self, op: Op, cost: int) -> _Float:
        trees = [self._tree_of(operand) for operand in op.operands]
        return _Float(
            cost + sum(tree.cost for tree in trees),
            1 + sum(tree.size for tree in trees),
            sum(tree.reads for tree in trees),
        )

    def _tree_of(self, value: Value) -> _Float:
        if self.is_memory(value):
            return _Float(0, 0, 0 if is_scalar_constant(value) else 1)
        tree = self._floating(value)
        assert tree is not None, f"{value} is not known yet"
        return tree

    def _floating(self, value: Value) -> _Float | None:
        """What a value takes that is computed where it is read; None if it lies in memory."""
        if self.has_landed(value):
            return None
        if value in self.floats:
            return self.floats[value]
        return self.outer._floating(value) if self.outer is not None else None

    def _materialise(self, value: Value) -> None:
        """Make the value lie in memory."""
        while not self.has_landed(value) and isinstance(value.owner, Op):
            if value.owner.name in LEAVES:
                return
            if value.owner.name != "reshape":
                if not self._join_above(value.owner):
                    before = self.last_of(value.owner)
                    self._join(self._new_group("map", shape_of(value), before), value.owner)
                return
            value = value.owner.operands[0]

    def _new_group(
        self,
        kind: str,
        shape: tuple[Dim, ...],
        before: Group | Literal[True] | None = True,
        axes: tuple[int, ...] = (),
    ) -> Group:
        """A group at the end, or right behind the group `before` (None: in front of all)."""
        place = len(self.groups)
        if before is not True:
            place = 0 if before is None else bisect_right(self.groups, before.order, key=_order)
        low = self.groups[place - 1].order if place else 0
        high = self.groups[place].order if place < len(self.groups) else low + 2 * _GAP
        if high - low < 2:
            for ordinal, each in enumerate(self.groups):
                each.order = (ordinal + 1) * _GAP
            return self._new_group(kind, shape, before, axes)
        group = Group((low + high) // 2, kind, shape, axes)
        self.groups.insert(place, group)
        return group

    def _join(self, group: Group, op: Op) -> None:
        """Make `op` a member, and what it floats on."""
        self._absorb(group, op)
        for result in op.results:
            group.owned.add(result)
            self.group_of[result] = group
            self.floats.pop(result, None)

    def _absorb(self, group: Group, op: Op) -> None:
        if op in group.members:
            return
        for operand in op.operands:
            if operand in group.owned:
                continue
            if self.is_memory(operand) and not self._is_inner_view(group, operand):
                group.reads[operand] = None
            else:
                self._absorb(group, operand.op)
        group.members[op] = None

    def _is_inner_view(self, group: Group, value: Value) -> bool:
        """Whether the value is a reshape of what this very group computes."""
        return not self.has_landed(value) and self.base(value) in group.owned


def _order(group: Group) -> int:
    return group.order


def _is_strided(value: Value, base: Value) -> bool:
    """Whether `value` is `base` seen with an offset and strides."""
    block = Block()
    block.arguments = [base]
    try:
        view_of(Function("view", Region([block])), value)
    except ValueError:
        return False
    return True


def _identity(value: Value) -> Op:
    """An op that stands for reading `value` as it is."""
    return Op("abs", [value], [value.type])


def stands_alone(op: Op) -> bool:
    """Whether no kernel does the op: it branches, touches state, or works on scalars."""
    if op.name in ("return", "yield"):
        return False
    scalar = any(isinstance(value.type, ScalarType) for value in (*op.operands, *op.results))
    return op.name in CONTROL or op.name in _ALONE or scalar


def _moves_last(op: Op) -> bool:
    """Whether a transpose makes another axis the one that is contiguous."""
    return Transpose.of(op).permutation[-1] != len(Transpose.of(op).permutation) - 1


def _has_rows(op: Op) -> bool:
    """Whether a take reads rows of a vector or more, and as many as its operand has, or as many as
    only the call knows."""
    operand, result = shape_of(op.operands[0]), shape_of(op.result)
    is_long = Take.of(op).axis < len(operand) - 1 and prove_le(_LEAST_ROW, operand[-1], {})
    elements, taken = dims.product(operand), dims.product(result)
    return is_long and (prove_le(elements, taken, {}) or not prove_le(taken, elements, {}))


def _growing(op: Op) -> str:
    """Why a branch or loop with sizes that are known only when it has run is refused."""
    what = "a loop" if op.name == "while" else "branches"
    names = ", ".join(defined_symbols(op))
    return (
        f"'{op.name}' at '{op.location or 'unnamed layer'}': {what} with results of different "
        f"dims ({names}) cannot be compiled: pad them to one size in the source model"
    )


def captures_of(op: Op) -> list[Value]:
    """The values that the bodies of `op` use but do not make, each once."""
    if not op.regions:
        return []
    inner = [each for region in op.regions for each in walk(region)]
    made = {result for each in inner for result in each.results}
    for each in (op, *inner):
        made.update(value for region in each.regions for value in region.block.arguments)
    used = dict.fromkeys(operand for each in inner for operand in each.operands)
    return [value for value in used if value not in made]

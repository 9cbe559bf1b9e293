"""What a row kernel computes: its reductions in passes, and its results.

All reductions run over the same axes of one shape. A reduction waits for another one if
its element needs the other's result; that gives the number of the pass which makes it.
How the passes run is said in `row.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ingot.compiler.graph.ops import COSTLY, AlongAxis, Reduce
from ingot.compiler.ir import Function, Op, Value, dims, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.accumulate import Accumulator, accumulator_of
from ingot.compiler.kernels.entry import operand_types
from ingot.compiler.kernels.indexing import Index, delinearize, linearize
from ingot.compiler.kernels.schedule import Space, trace_with_splits
from ingot.compiler.kernels.trace import Apply, Given, Load, Node, Tracer, walk_nodes
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType

__all__ = [
    "RowPlan",
    "RowReduction",
    "RowResult",
    "in_place_rows",
    "is_costly",
    "plan_rows",
]

_REDUCTIONS = ("reduce", "arg_max", "arg_min")


@dataclass(frozen=True)
class RowReduction:
    """One reduce op: the element it takes in, and the pass that makes it."""

    op: Op
    accumulator: Accumulator
    element: Node
    stage: int


@dataclass(frozen=True)
class RowResult:
    """One result: its element, where that goes, and whether there is one per row only."""

    node: Node
    index: Index
    per_row: bool


@dataclass(frozen=True)
class RowPlan:
    space: Space
    reduced: tuple[int, ...]  # dims
    reductions: list[RowReduction]
    results: list[RowResult]
    first_result: int  # its binding

    def stored(self, per_row: bool) -> list[tuple[RowResult, int]]:
        """The results of one kind, with their bindings."""
        numbered = enumerate(self.results, self.first_result)
        return [(each, ordinal) for ordinal, each in numbered if each.per_row == per_row]

    def is_heavy(self, nodes: Sequence[Node]) -> bool:
        """Whether elements of a row cost much more than moving them."""
        inner = {axis for place in self.reduced for axis in self.space.parts[place]}
        return any(
            isinstance(node, Apply) and node.name in COSTLY - {"div"} and node.axes & inner
            for node in walk_nodes(nodes)
        )

    @property
    def roots(self) -> list[Node]:
        return [*(each.element for each in self.reductions), *(each.node for each in self.results)]

    @property
    def place(self) -> DType | None:
        """The dtype in which the position of an element runs, None where none is wanted."""
        return next(
            (each.accumulator.index for each in self.reductions if each.accumulator.index), None
        )

    @property
    def dtypes(self) -> set[DType]:
        """Of all that is computed; a position that is only stored is widened at the end."""
        places = {each.op.result for each in self.reductions if each.accumulator.index}
        dtypes = {self.place} if self.place else set()
        for node in walk_nodes(self.roots):
            if not node.dtype.is_boolean and not (isinstance(node, Given) and node.value in places):
                dtypes.add(node.dtype)
        return dtypes

    @cached_property
    def falling(self) -> frozenset[Node]:
        """Differences of an element and the greatest of its row, which are never above 0."""
        greatest = {
            each.op.result: each.element
            for each in self.reductions
            if each.accumulator.kind == "max" and not each.accumulator.index
        }
        return frozenset(
            node
            for node in walk_nodes(self.roots)
            if isinstance(node, Apply) and node.name == "sub"
            if isinstance(given := node.arguments[1], Given)
            if greatest.get(given.value) is node.arguments[0]
        )


def _axes_attribute(op: Op) -> tuple[int, ...]:
    found = op.attributes
    return tuple(sorted(found.axes)) if isinstance(found, Reduce) else (AlongAxis.of(op).axis,)


def plan_rows(function: Function) -> RowPlan:
    """The passes of an entry. CompileError: its reductions do not fit together."""
    ops = [op for op in function.block.ops if op.name in _REDUCTIONS]
    shape = tensor_type(ops[0].operands[0]).shape
    reduced = _axes_attribute(ops[0])
    for op in ops:
        if tensor_type(op.operands[0]).shape != shape or _axes_attribute(op) != reduced:
            raise CompileError(
                f"{op.location or op.name}: reductions of one kernel must run over the same axes "
                f"of one shape, got {_axes_attribute(op)} of {op.operands[0].type} beside "
                f"{reduced} of {ops[0].operands[0].type}"
            )
    space = Space(shape)

    def trace() -> RowPlan:
        tracer = Tracer(function, [op.result for op in ops])
        indices = space.indices()
        row = [index for place, index in enumerate(indices) if place not in reduced]
        flat_row = linearize(row, [dim for place, dim in enumerate(shape) if place not in reduced])
        stages: dict[Value, int] = {}
        reductions = []
        for op in ops:
            element = tracer.trace(op.operands[0], indices)
            stage = 1 + max((stages[each] for each in _givens([element])), default=-1)
            stages[op.result] = stage
            types = tensor_type(op.operands[0]).dtype, tensor_type(op.result).dtype
            accumulator = accumulator_of(op, *types, dims.product(shape[each] for each in reduced))
            reductions.append(RowReduction(op, accumulator, element, stage))
        flat = linearize(indices, shape)
        results = [
            _result(tracer, value, shape, flat, flat_row)
            for value in function.block.terminator.operands
        ]
        plan = RowPlan(space, reduced, reductions, results, len(function.arguments))
        for node in walk_nodes(plan.roots):
            if isinstance(node, Given) and node.index != flat_row:
                raise CompileError(f"{function.name}: a row kernel reads another row's reduction")
        return plan

    return trace_with_splits(space, trace)


def is_costly(node: Node) -> bool:
    """Whether keeping the value is cheaper than computing it again."""
    below = list(walk_nodes([node]))
    heavy = any(isinstance(each, Apply) and each.name in COSTLY for each in below)
    return heavy or sum(isinstance(each, Load) for each in below) > 1


def in_place_rows(function: Function, plan: RowPlan) -> tuple[tuple[int, int], ...]:
    """Operands read only at the element that a full result writes, with that result."""
    loads = [node for node in walk_nodes(plan.roots) if isinstance(node, Load)]
    types = operand_types(function)
    count = len(function.arguments)
    pairs = []
    for ordinal in range(count):
        mine = [load for load in loads if load.ordinal == ordinal]
        for place, result in enumerate(plan.results):
            fits = types[ordinal].dtype.bytes == types[count + place].dtype.bytes
            same = all(load.index == result.index for load in mine)
            if mine and fits and same and not result.per_row:
                pairs.append((ordinal, place))
    return tuple(pairs)


def _result(
    tracer: Tracer, value: Value, shape: Sequence[Dim], flat: Index, flat_row: Index
) -> RowResult:
    """A result of as many elements as there are elements, or rows."""
    mine = tensor_type(value).shape
    whole = dims.product(mine) == dims.product(shape)
    index = flat if whole else flat_row
    indices = delinearize(index, mine, tracer.bounds, tracer.may_split)
    node = tracer.trace(value, indices)
    return RowResult(node, index, not whole)


def _givens(nodes: Sequence[Node]) -> set[Value]:
    return {node.value for node in walk_nodes(nodes) if isinstance(node, Given)}

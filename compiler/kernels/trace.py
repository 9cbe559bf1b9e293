"""Graph ops seen from one element: which operand elements it needs, and what is done to them.

`Tracer.trace(value, indices)` walks from a value of an entry function up to its operands
and gives a DAG of scalar nodes; shape ops vanish into the indices. It makes no code: see
`emit.py`. Equal (value, indices) give the same node, so shared work is done once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from ingot.compiler.graph import ops
from ingot.compiler.graph.forms.reshapes import reshape_groups
from ingot.compiler.ir import Function, Literal, Op, TensorType, Value, dims, tensor_type
from ingot.compiler.ir.attributes import Attributes
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.indexing import Axis, Index, Quotient, Term, delinearize, linearize
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType, dtype

__all__ = [
    "Apply",
    "Checked",
    "Choose",
    "Constant",
    "Fetched",
    "Given",
    "InRange",
    "IndexValue",
    "Load",
    "Node",
    "Tracer",
    "axes_of_index",
    "count_chosen",
    "number_of",
    "walk_nodes",
]

_I1 = dtype("i1")
_FEW_PARTS = 8  # of a concatenation


@dataclass(frozen=True, eq=False)
class Node:
    """The value of one element. Compared by identity."""

    dtype: DType

    def operands(self) -> Sequence[Node]:
        """The nodes that this one is computed from."""
        return ()

    def indices(self) -> Sequence[Index]:
        """The indices that this node is computed from."""
        return ()

    @cached_property
    def axes(self) -> frozenset[Axis]:
        """The axes that the value depends on."""
        axes: set[Axis] = set()
        for index in self.indices():
            axes |= axes_of_index(index)
        return frozenset(axes.union(*(operand.axes for operand in self.operands())))


@dataclass(frozen=True, eq=False)
class Constant(Node):
    """A number."""

    value: bool | int | float


@dataclass(frozen=True, eq=False)
class Load(Node):
    """The element of a binding, where it lies `packed` one of that dtype."""

    ordinal: int
    index: Index
    packed: DType | None = None

    @property
    def stored(self) -> DType:
        """The dtype of the memory."""
        return self.packed or self.dtype

    def indices(self) -> Sequence[Index]:
        return (self.index,)


@dataclass(frozen=True, eq=False)
class Apply(Node):
    """An element-wise op."""

    name: str
    arguments: tuple[Node, ...]
    attributes: Attributes

    def operands(self) -> Sequence[Node]:
        return self.arguments


@dataclass(frozen=True, eq=False)
class IndexValue(Node):
    """An index as a number."""

    index: Index

    def indices(self) -> Sequence[Index]:
        return (self.index,)


@dataclass(frozen=True, eq=False)
class InRange(Node):
    """i1: low <= index < high, and where `step` is not 1 also index % step == 0 (after low)."""

    index: Index
    low: Dim
    high: Dim
    step: Dim = 1

    def indices(self) -> Sequence[Index]:
        return (self.index,)


@dataclass(frozen=True, eq=False)
class Choose(Node):
    """`then` where all conditions hold, else `otherwise`; only the chosen one is computed."""

    conditions: tuple[Node, ...]
    then: Node
    otherwise: Node

    def operands(self) -> Sequence[Node]:
        return (*self.conditions, self.then, self.otherwise)


@dataclass(frozen=True, eq=False)
class Checked(Node):
    """An integer read from operand `ordinal` as an index below `bound`.

    mode "clamp" moves it into [0, bound), "check" faults outside, "wrap_check" adds the
    bound to negative ones before.
    """

    value: Node
    bound: Dim
    mode: str
    ordinal: int

    def operands(self) -> Sequence[Node]:
        return (self.value,)


@dataclass(frozen=True, eq=False)
class Given(Node):
    """A value that the kernel class supplies, such as an accumulator or a row's maximum."""

    value: Value
    index: Index


class Fetched(Term):
    """An index that a node computes."""

    def __init__(self, node: Node, extent: Dim) -> None:
        super().__init__(extent)
        self.node = node


def axes_of_index(index: Index) -> frozenset[Axis]:
    """The axes that an index depends on."""
    axes: set[Axis] = set()
    for term in index.all_terms():
        if isinstance(term, Axis):
            axes.add(term)
        elif isinstance(term, Fetched):
            axes |= term.node.axes
    return frozenset(axes)


def walk_nodes(roots: Sequence[Node]) -> Iterator[Node]:
    """Every node below the roots once, operands first, those inside indices as well."""
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, done = stack.pop()
        if done:
            yield node
            continue
        if node in seen:
            continue
        seen.add(node)
        stack.append((node, True))
        fetched = [
            term.node
            for index in node.indices()
            for term in index.all_terms()
            if isinstance(term, Fetched)
        ]
        stack += [(each, False) for each in reversed([*node.operands(), *fetched])]


def count_chosen(roots: Sequence[Node], known: Mapping[Node, bool]) -> int:
    """How many nodes below the roots are computed where these conditions are known."""
    seen: set[Node] = set()
    computed = 0
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in seen or node in known:
            continue
        seen.add(node)
        held = [known.get(each) for each in node.conditions] if isinstance(node, Choose) else []
        if isinstance(node, Choose) and (False in held or None not in held):
            stack.append(node.otherwise if False in held else node.then)
            continue
        computed += 1
        terms = (term for index in node.indices() for term in index.all_terms())
        stack += [*node.operands(), *(each.node for each in terms if isinstance(each, Fetched))]
    return computed


class Tracer:
    """Traces values of one entry function.

    `given` holds values that the kernel class supplies. Indices of a given value that are
    not the axes it expects are the caller's to check.
    """

    def __init__(
        self, function: Function, given: Sequence[Value] = (), may_split: bool = True
    ) -> None:
        self.bounds = function.symbols
        self.ordinals = {value: place for place, value in enumerate(function.arguments)}
        self.given = set(given)
        self.may_split = may_split
        self.memo: dict[tuple[Value, tuple[Index, ...]], Node] = {}
        self.fetched: dict[tuple[Node, Dim, str], Fetched] = {}

    def axes(self, shape: Sequence[Dim]) -> list[Axis]:
        """One axis per dim."""
        return [Axis(dim) for dim in shape]

    def trace(self, value: Value, indices: Sequence[Index]) -> Node:
        """The element of `value` at `indices`. CompileError: an op has no place in a kernel."""
        key = (value, tuple(indices))
        if key not in self.memo:
            self.memo[key] = self._trace(value, key[1])
        return self.memo[key]

    def _trace(self, value: Value, indices: tuple[Index, ...]) -> Node:
        type = tensor_type(value)
        indices = tuple(
            Index() if dim == 1 and not _may_fault(index) else index
            for index, dim in zip(indices, type.shape, strict=True)
        )
        if value in self.given:
            return Given(type.dtype, value, linearize(indices, type.shape))
        if value in self.ordinals:
            return Load(type.dtype, self.ordinals[value], linearize(indices, type.shape))
        op = value.op
        if op.name in ops.OPS and ops.OPS[op.name].family == "elementwise":
            arguments = tuple(self.trace(operand, indices) for operand in op.operands)
            return Apply(type.dtype, op.name, arguments, op.attributes)
        rule = _RULES.get(op.name)
        if rule is None:
            raise CompileError(f"{op.location or op.name}: a kernel cannot contain op '{op.name}'")
        return rule(self, op, type, indices)

    # Leaves.

    def _constant(self, op: Op, type: TensorType, indices: tuple[Index, ...]) -> Node:
        literal = ops.Constant.of(op).value
        flat = literal.array.reshape(-1)
        first = flat[:1].tobytes()
        if flat.size == 0 or flat.tobytes() == first * flat.size:
            return Constant(type.dtype, number_of(literal) if flat.size else 0)
        raise CompileError(
            f"{op.location or op.name}: a kernel takes a constant of {flat.size} different "
            "elements as an operand, not in its body"
        )

    def _dim(self, op: Op, type: TensorType, indices: tuple[Index, ...]) -> Node:
        return IndexValue(type.dtype, Index((), ops.DimValue.of(op).value))

    def _iota(self, op: Op, type: TensorType, indices: tuple[Index, ...]) -> Node:
        return IndexValue(type.dtype, indices[ops.Iota.of(op).axis])

    # Shape.

    def _broadcast(self, op: Op, type: TensorType, indices: tuple[Index, ...]) -> Node:
        operand = op.operands[0]
        mapped = []
        for place, dim in zip(
            ops.Broadcast.of(op).dimensions, tensor_type(operand).shape, strict=True
        ):
            if dim == type.shape[place] or isinstance(dim, int):
                mapped.append(indices[place] if dim != 1 else Index())
            else:  # 1 while the kernel runs, perhaps: then its stride is 0
                mapped.append(indices[place].scale(dims.minimum(dim - 1, 1)))
        return self.trace(operand, mapped)

    def _reshape(self, op: Op, type: TensorType, indices: tuple[Index, ...]) -> Node:
        operand = op.operands[0]
        flat = linearize(indices, type.shape)
        shape = tensor_type(operand).shape
        if operand in self.ordinals:
            return Load(type.dtype, self.ordinals[operand], flat)
        if operand in self.given:
            return Given(type.dtype, operand, flat)
        if _renames_one_dim(shape, type.shape):
            return self.trace(operand, indices)
        mapped: list[Index] = []
        whole = (range(len(shape)), range(len(indices)))
        for old, new in reshape_groups(shape, type.shape) or [whole]:  # what stays is not divided
            part = linearize(indices[new.start : new.stop], type.shape[new.start : new.stop])
            inner = shape[old.start : old.stop]
            mapped += delinearize(part, inner, self.bounds, self.may_split)
        return self.trace(operand, mapped)

    def _transpose(self, op: Op, type: TensorType, indices: tuple[Index, ...]) -> Node:
        mapped = [Index()] * len(indices)
        for place, source in enumerate(ops.Transpose.of(op).permutation):
            mapped[source] = indices[place]
        return self.trace(op.operands[0], mapped)

    def _slice(self, op: Op, type: TensorType, indices: tuple[Index, ...]) -> Node:
        starts, strides = ops.Slice.of(op).start, ops.Slice.of(op).stride
        mapped = [
            index.scale(stride) + start
            for index, start, stride in zip(indices, starts, strides, strict=True)
        ]
        return self.trace(op.operands[0], mapped)

    def _reverse(self, op: Op, type: TensorType, indices: tuple[Index, ...]) -> Node:
        axes = ops.Reverse.of(op).axes
        mapped = [
            index.scale(-1) + (dim - 1) if place in axes else index
            for place, (index, dim) in enumerate(zip(indices, type.shape, strict=True))
        ]
        return self.trace(op.operands[0], mapped)

    def _pad(self, op: Op, type: TensorType, indices: tuple[Index, ...]) -> Node:
        operand, value = op.operands
        pad = ops.Pad.of(op)
        conditions: list[Node] = []
        mapped = []
        for place, (index, dim) in enumerate(zip(indices, tensor_type(operand).shape, strict=True)):
            step = pad.interior[place] + 1
            moved = index + pad.low[place] * -1
            if pad.low[place] != 0 or pad.high[place] != 0 or step != 1:
                limit = (dim - 1) * step + 1
                conditions.append(InRange(_I1, moved, 0, limit, step))
            mapped.append(moved if step == 1 else Index.of(_step_quotient(moved, step, dim)))
        inside = self.trace(operand, mapped)
        if not conditions:
            return inside
        return Choose(type.dtype, tuple(conditions), inside, self.trace(value, ()))

    def _concatenate(self, op: Op, type: TensorType, indices: tuple[Index, ...]) -> Node:
        axis = ops.AlongAxis.of(op).axis
        ends: list[Dim] = []
        parts: list[Node] = []
        start: Dim = 0
        for operand in op.operands:
            moved = indices[axis] + start * -1
            parts.append(self.trace(operand, (*indices[:axis], moved, *indices[axis + 1 :])))
            start = start + tensor_type(operand).shape[axis]
            ends.append(start)

        def choose(first: int, end: int) -> Node:
            """The choice among some of the parts: of few, one after another; of many, by halves,
            so that no place is asked often and nothing is nested deep."""
            if end - first == 1:
                return parts[first]
            middle = first + 1 if end - first <= _FEW_PARTS else (first + end) // 2
            condition = InRange(_I1, indices[axis], 0, ends[middle - 1])
            return Choose(type.dtype, (condition,), choose(first, middle), choose(middle, end))

        return choose(0, len(parts))

    def _unpack(self, op: Op, type: TensorType, indices: tuple[Index, ...]) -> Node:
        packed = self.trace(op.operands[0], (Index(),))
        assert isinstance(packed, Load)  # `form_dispatches` sees to it that it lies in memory
        stored = ops.Unpack.of(op).dtype
        return Load(type.dtype, packed.ordinal, linearize(indices, type.shape), stored)

    # Indexed.

    def _fetch(self, value: Node, bound: Dim, mode: str, ordinal: int, extent: Dim) -> Index:
        key = (value, bound, mode)
        if key not in self.fetched:
            node = Checked(dtype("i64"), value, bound, mode, ordinal)
            self.fetched[key] = Fetched(node, extent)
        return Index.of(self.fetched[key])

    def ordinal_of(self, value: Value) -> int:
        """The operand that indices come from, for messages."""
        while value not in self.ordinals:
            owner = value.owner
            if not isinstance(owner, Op) or not owner.operands:
                return 0
            value = owner.operands[0]
        return self.ordinals[value]

    def _take(self, op: Op, type: TensorType, indices: tuple[Index, ...]) -> Node:
        operand, picks = op.operands
        axis, mode = ops.Take.of(op).axis, ops.Take.of(op).mode
        rank = tensor_type(picks).rank
        pick = self.trace(picks, indices[axis : axis + rank])
        bound = tensor_type(operand).shape[axis]
        index = self._fetch(pick, bound, mode, self.ordinal_of(picks), bound)
        return self.trace(operand, (*indices[:axis], index, *indices[axis + rank :]))

    def _gather(self, op: Op, type: TensorType, indices: tuple[Index, ...]) -> Node:
        """StableHLO gather: batch dims pick a start, offset dims walk from there."""
        operand, starts = op.operands
        gather, shape, ordinal = (
            ops.Gather.of(op),
            tensor_type(operand).shape,
            self.ordinal_of(starts),
        )
        offset_dims, vector_dim = gather.offset_dims, gather.index_vector_dim
        batch_indices = [each for place, each in enumerate(indices) if place not in offset_dims]
        skipped = (*gather.collapsed_slice_dims, *gather.operand_batching_dims)
        walked = iter(indices[place] for place in offset_dims)
        mapped = [Index() if place in skipped else next(walked) for place in range(len(shape))]
        for part, place in enumerate(gather.start_index_map):
            at = list(batch_indices)
            if vector_dim < tensor_type(starts).rank:
                at.insert(vector_dim, Index((), part))
            start = self.trace(starts, at)
            bound = shape[place] + gather.slice_sizes[place] * -1 + 1
            mapped[place] = mapped[place] + self._fetch(start, bound, gather.mode, ordinal, bound)
        batching = zip(
            gather.operand_batching_dims, gather.start_indices_batching_dims, strict=True
        )
        for place, source in batching:
            mapped[place] = mapped[place] + batch_indices[source - (source > vector_dim)]
        return self.trace(operand, mapped)

    def _dynamic_slice(self, op: Op, type: TensorType, indices: tuple[Index, ...]) -> Node:
        operand, *starts = op.operands
        mapped = []
        shape = tensor_type(operand).shape
        for index, start, dim, size in zip(indices, starts, shape, type.shape, strict=True):
            bound = dim + size * -1 + 1
            node = self.trace(start, ())
            mapped.append(index + self._fetch(node, bound, "clamp", 0, bound))
        return self.trace(operand, mapped)


def _may_fault(index: Index) -> bool:
    """Whether it may lie outside, where that ends the call."""
    nodes = (term.node for term, _ in index.terms if isinstance(term, Fetched))
    return any(isinstance(node, Checked) and node.mode != "clamp" for node in nodes)


def _renames_one_dim(old: Sequence[Dim], new: Sequence[Dim]) -> bool:
    """Whether two shapes of as many elements differ in one dim, which then is the same number."""
    return len(old) == len(new) and sum(a != b for a, b in zip(old, new, strict=True)) == 1


def _step_quotient(index: Index, step: Dim, extent: Dim) -> Term:
    term = Quotient(index, step)
    term.extent = extent
    return term


def number_of(literal: Literal) -> bool | int | float:
    """The first element of a literal as a Python number."""
    element = literal.array.reshape(-1)[0]
    if literal.dtype.is_boolean:
        return bool(element)
    if literal.dtype.is_integer:
        return int(element)
    if literal.array.dtype.kind == "u" and literal.dtype.name == "bf16":
        return float((np.uint32(element) << np.uint32(16)).view(np.float32))
    if literal.array.dtype.kind == "u" and literal.dtype.name == "f16":
        return float(np.uint16(element).view(np.float16))
    return float(element)


_Rule = Callable[[Tracer, Op, TensorType, tuple[Index, ...]], Node]
_RULES: dict[str, _Rule] = {
    "constant": Tracer._constant,
    "dim": Tracer._dim,
    "iota": Tracer._iota,
    "broadcast": Tracer._broadcast,
    "reshape": Tracer._reshape,
    "transpose": Tracer._transpose,
    "slice": Tracer._slice,
    "unpack": Tracer._unpack,
    "reverse": Tracer._reverse,
    "pad": Tracer._pad,
    "concatenate": Tracer._concatenate,
    "take": Tracer._take,
    "gather": Tracer._gather,
    "dynamic_slice": Tracer._dynamic_slice,
}

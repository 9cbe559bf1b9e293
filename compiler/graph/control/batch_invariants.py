"""Batches work that each step of a loop does on its own slice of a sequence, before the loop.

`for t: h = f(xs[t] @ w + h @ u)` becomes `ys = xs @ w; for t: h = f(ys[t] + h @ u)`: one
large contraction for many small ones. A value of the body is *sequential* if it is B[index]
for a B that is known in front of the loop and an index that depends on the loop's counter
only. Contractions that give sequential values are batched, with the ops that they need and
the element-wise ops behind them. The slice of B has the index of the slice that it stands
for, and is clamped or checked alike, so that no step can tell the difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.loops import FREE, body_of, induction_of, trip_count
from ingot.compiler.graph.effects import effects_of
from ingot.compiler.graph.ops import (
    AlongAxis,
    Broadcast,
    DotGeneral,
    DynamicSlice,
    Slice,
    Take,
    Transpose,
    defined_symbols,
    lookup,
)
from ingot.compiler.graph.relations import is_proven, relations_of
from ingot.compiler.graph.rewriter import defined_by
from ingot.compiler.graph.symbols import inner_symbols, symbols_used
from ingot.compiler.ir import Block, Module, Op, Value, clone_op, walk
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Bounds, Dim, prove_le

__all__ = ["batch_invariants"]

_GREATEST_LENGTH = 1 << 26
"""Bytes of the largest value that is batched: a loop may have been written to save memory."""


def batch_invariants(module: Module) -> Module:
    """Batch in front of every loop of every function; returns the module."""
    for function in module.functions.values():
        _visit(function.block, function.symbols)
    return module


def _visit(block: Block, bounds: Bounds) -> None:
    ops: list[Op] = []
    for op in block.ops:
        for region in op.regions:
            _visit(region.block, bounds)
        if op.name == "while":
            ops.extend(_Batcher(op, bounds).run())
        ops.append(op)
    block.ops = ops


@dataclass(frozen=True)
class _Key:
    """Which element of a sequence a step reads: two values of one key are batched together."""

    index: Value
    count: Dim
    mode: str


class _Batcher:
    def __init__(self, loop: Op, bounds: Bounds) -> None:
        self.loop = loop
        self.bounds = bounds
        self.runs = False  # whether there is a first step for certain
        self.body = body_of(loop)
        self.inside: set[Value] = set(self.body.arguments)
        for op in self.body.ops:
            for each in walk(op):
                self.inside.update(each.results)
        self.symbols = inner_symbols(loop)
        self.keys: dict[Value, _Key] = {}
        self.front: list[Op] = []
        self.batched: dict[Value, Value] = {}
        self.copies: dict[Value, Value] = {}

    def run(self) -> list[Op]:
        """Batch what pays; the ops that are to stand in front of the loop."""
        trips = trip_count(self.loop)
        if trips is None or trips == 0:
            return []
        self.runs = prove_le(1, trips, self.bounds)
        for op in self.body.ops:
            self.note(op, trips)
        chosen = self.chosen()
        if not chosen:
            return []
        replaced: dict[Value, Value] = {}
        made: list[Op] = []
        for op in self.body.ops:
            op.operands = [replaced.get(operand, operand) for operand in op.operands]
            for each in walk(op):
                each.operands = [replaced.get(operand, operand) for operand in each.operands]
            made.append(op)
            if op in chosen:
                batched = self.batch(op)
                needed = any(user not in chosen for user in self.users[op.result])
                if needed and _sliced_axis(op) is None:
                    replaced[op.result] = self.element(op.result, batched, made)
        self.body.ops = made
        return self.front

    # What is sequential.

    def note(self, op: Op, trips: Dim) -> None:
        """Learn whether the result of the op is sequential."""
        if len(op.results) != 1 or op.regions or effects_of(op):
            return
        key = self.slice_key(op) or self.common_key(op)
        if key is None or not _is_worth(key.count, trips):
            return
        length = math.prod(
            d for d in (key.count, *tensor_type(op.result).shape) if isinstance(d, int)
        )
        if length * tensor_type(op.result).dtype.bytes <= _GREATEST_LENGTH:
            self.keys[op.result] = key

    def slice_key(self, op: Op) -> _Key | None:
        """The key of a slice of one element along one axis of a value from outside."""
        axis = _sliced_axis(op)
        if axis is None or op.operands[0] in self.inside:
            return None
        index = op.operands[1] if op.name == "take" else op.operands[1 + axis]
        if not self.is_counter(index):
            return None
        mode = op.attributes.mode if isinstance(op.attributes, Take) else "clamp"
        return _Key(index, tensor_type(op.operands[0]).shape[axis], mode)

    def is_counter(self, index: Value) -> bool:
        """Whether an index depends on the counter of the loop, and on nothing else inside."""
        if index not in self.inside:
            return False
        if index in self.body.arguments:
            return induction_of(self.loop, self.body.arguments.index(index)) is not None
        op = index.owner
        if not isinstance(op, Op) or tensor_type(index).rank != 0:
            return False
        if op.name != "constant" and lookup(op.name).family != "elementwise":
            return False
        return all(each not in self.inside or self.is_constant(each) or self.is_counter(each)
                   for each in op.operands)  # fmt: skip

    def is_constant(self, value: Value) -> bool:
        """Whether a value is known outside, perhaps by making a few free ops again there."""
        if value not in self.inside:
            return True
        op = value.owner
        if not isinstance(op, Op) or op.name not in FREE or not self.may_stand_outside(op):
            return False
        if self.symbols and symbols_used(op) & self.symbols:
            return False
        return all(map(self.is_constant, op.operands))

    def may_stand_outside(self, op: Op) -> bool:
        """Whether the op asks nothing of dims that a loop of no step would not ask."""
        return self.runs or all(is_proven(each, self.bounds) for each in relations_of(op))

    def common_key(self, op: Op) -> _Key | None:
        """The key of an op whose operands are sequential with one key, or known outside."""
        if not _can_batch(op) or defined_symbols(op) or not self.may_stand_outside(op):
            return None
        if self.symbols and symbols_used(op) & self.symbols:
            return None
        keys = {self.keys[operand] for operand in op.operands if operand in self.keys}
        rest = [operand for operand in op.operands if operand not in self.keys]
        if len(keys) != 1 or not all(map(self.is_constant, rest)):
            return None
        return keys.pop()

    def chosen(self) -> set[Op]:
        """The contractions of sequential values, what they need, and element-wise ops behind."""
        self.users: dict[Value, list[Op]] = {}
        for op in self.body.ops:
            for each in walk(op):
                for operand in each.operands:
                    self.users.setdefault(operand, []).append(op)
        chosen: set[Op] = set()
        for op in self.body.ops:
            if not op.results or op.results[0] not in self.keys or _sliced_axis(op) is not None:
                continue
            behind = any(each.owner in chosen for each in op.operands)
            if op.name == "dot_general" or behind:
                chosen.add(op)
        for op in reversed(self.body.ops):
            if op in chosen:
                owners = (each.owner for each in op.operands if each in self.keys)
                chosen.update(each for each in owners if isinstance(each, Op))
        return {op for op in chosen if op.result in self.users}

    # Building in front of the loop.

    def outside(self, value: Value) -> Value:
        """A value known outside, there."""
        if value not in self.inside:
            return value
        if value not in self.copies:
            mapping = {each: self.outside(each) for each in value.op.operands}
            self.front.append(clone_op(value.op, mapping))
            self.copies[value] = mapping[value]
        return self.copies[value]

    def batch(self, op: Op) -> Value:
        """The op on whole sequences; its result has the sequence as its first axis."""
        builder = Builder(self.front, op.location)
        count = self.keys[op.result].count
        axis = _sliced_axis(op)
        if axis is not None and op.operands[0] not in self.inside:
            value = _whole(op, axis, builder)
        else:
            operands = [
                self.batched[each] if each in self.batched else self.outside(each)
                for each in op.operands
            ]
            sequential = [each in self.batched for each in op.operands]
            value = _batch_op(op, operands, sequential, count, builder)
        self.batched[op.result] = value
        return value

    def element(self, old: Value, batched: Value, made: list[Op]) -> Value:
        """What a step reads of a batched value."""
        key = self.keys[old]
        builder = Builder(made, old.owner.location if isinstance(old.owner, Op) else "")
        return builder.value("take", batched, key.index, axis=0, mode=key.mode)


def _is_worth(count: Dim, trips: Dim) -> bool:
    """Whether most elements of the sequence will be read."""
    if isinstance(count, int) and isinstance(trips, int):
        return count <= 2 * trips
    return count == trips


def _sliced_axis(op: Op) -> int | None:
    """The axis along which the op takes one element, whole in all others."""
    if op.name == "take" and tensor_type(op.operands[1]).rank == 0:
        return Take.of(op).axis
    if op.name != "dynamic_slice":
        return None
    shape, sizes = tensor_type(op.operands[0]).shape, DynamicSlice.of(op).sizes
    cut = [axis for axis, dim in enumerate(shape) if sizes[axis] != dim]
    return cut[0] if len(cut) == 1 and sizes[cut[0]] == 1 else None


def _whole(op: Op, axis: int, builder: Builder) -> Value:
    """The source of a slice with its axis in front, and behind it the shape of the slice."""
    source = op.operands[0]
    type = tensor_type(source)
    order = (axis, *(each for each in range(type.rank) if each != axis))
    if axis != 0:
        source = builder.value("transpose", source, permutation=order)
    shape = (type.shape[axis], *tensor_type(op.result).shape)
    return (
        source
        if tensor_type(source).shape == shape
        else builder.value("reshape", source, shape=shape)
    )


_SHAPE_OPS = frozenset({"reshape", "transpose", "broadcast", "concatenate", "slice"})


def _can_batch(op: Op) -> bool:
    return op.name in ("dot_general", *_SHAPE_OPS) or lookup(op.name).family == "elementwise"


def _batch_op(
    op: Op, operands: Sequence[Value], sequential: Sequence[bool], count: Dim, builder: Builder
) -> Value:
    """The op with a first axis of `count` in its sequential operands and its result."""
    shape = (count, *tensor_type(op.result).shape)
    if op.name == "dot_general":
        return _batch_dot(op, operands, sequential, builder)
    spread = [
        each if known else _repeated(each, count, builder)
        for each, known in zip(operands, sequential, strict=True)
    ]
    if op.name == "reshape":
        return builder.value("reshape", *spread, shape=shape)
    if op.name == "transpose":
        permutation = (0, *(axis + 1 for axis in Transpose.of(op).permutation))
        return builder.value("transpose", *spread, permutation=permutation)
    if op.name == "broadcast":
        dimensions = (0, *(axis + 1 for axis in Broadcast.of(op).dimensions))
        return builder.value("broadcast", *spread, shape=shape, dimensions=dimensions)
    if op.name == "concatenate":
        return builder.value("concatenate", *spread, axis=AlongAxis.of(op).axis + 1)
    if op.name == "slice":
        old = Slice.of(op)
        new = Slice((0, *old.start), (count, *old.limit), (1, *old.stride))
        return builder.like(op, *spread, attributes=new)
    return builder.like(op, *spread)


def _repeated(value: Value, count: Dim, builder: Builder) -> Value:
    """A value that is the same in all steps, once per step; broadcasts merge."""
    type = tensor_type(value)
    shape, dimensions = (count, *type.shape), tuple(range(1, type.rank + 1))
    inner = defined_by(value, "broadcast")
    if inner is not None:
        dimensions = tuple(axis + 1 for axis in Broadcast.of(inner).dimensions)
        value = inner.operands[0]
    return builder.value("broadcast", value, shape=shape, dimensions=dimensions)


def _batch_dot(
    op: Op, operands: Sequence[Value], sequential: Sequence[bool], builder: Builder
) -> Value:
    """A contraction with a sequence on one side (a free axis) or on both (a batch axis)."""
    both = all(sequential)
    dot = DotGeneral.of(op)
    left, right = sequential
    first = (0,) if both else ()
    attributes = replace(
        dot,
        lhs_batch=(*first, *(axis + left for axis in dot.lhs_batch)),
        rhs_batch=(*first, *(axis + right for axis in dot.rhs_batch)),
        lhs_contract=tuple(axis + left for axis in dot.lhs_contract),
        rhs_contract=tuple(axis + right for axis in dot.rhs_contract),
    )
    value = builder.like(op, *operands, attributes=attributes)
    if both:
        return value
    place = len(DotGeneral.of(op).lhs_batch)
    if sequential[1]:
        lhs = tensor_type(operands[0]).rank
        place += lhs - place - len(DotGeneral.of(op).lhs_contract)
    rank = tensor_type(value).rank
    order = (place, *(axis for axis in range(rank) if axis != place))
    return value if place == 0 else builder.value("transpose", value, permutation=order)

"""If, Loop and Scan: their bodies become regions of the graph's branches and loops.

A condition that is known at import chooses its branch here, since exporters write branches
that could never run together. What a loop stacks up from its steps is written into one
tensor if it is known before the loop how many steps there are at most, and else grows by a
step at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx

from ingot.compiler.frontends.onnx.node import (
    Node,
    UnknownBody,
    UnsupportedNode,
    shape_of,
    type_of,
    unsupported,
)
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.graph.build_control import Branch, branches, while_loop
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.ops import defined_symbols
from ingot.compiler.ir import Block, TensorType, Value
from ingot.compiler.ir.dims import Dim, Expr, symbol, symbols_of

__all__: list[str] = []

_ENDLESS = 1 << 62
"""Trip counts from here on mean: until the condition fails."""


@lowering("If")
def branch(node: Node) -> tuple[Value, ...]:
    condition = node.reshape(node.input(0), ())
    graphs = [node.graph("then_branch"), node.graph("else_branch")]
    known = node.known(condition)
    if known is not None:
        graph = graphs[0 if known[()] else 1]
        return tuple(node.bodies.lower(graph, (), node.builder))
    failed: list[UnknownBody] = []

    def branch_of(index: int) -> Branch:
        def build(builder: Builder) -> Sequence[Value]:
            try:
                return node.bodies.lower(graphs[index], (), builder)
            except UnknownBody as error:
                failed.append(error)  # the other branch is still to be looked at
                return []

        return build

    builds = [branch_of(0), branch_of(1)]
    try:
        return tuple(
            branches(
                node.builder, "if", condition, builds, node.fresh_symbols(node.proto.output[0])
            )
        )
    finally:
        if failed:
            raise failed[0]


# Loops.


@dataclass(frozen=True)
class _Step:
    """What one step of a loop gives: the condition to go on, carried values, values to stack."""

    condition: Value | None
    carried: Sequence[Value]
    stacked: Sequence[Value]


@dataclass(frozen=True)
class _Loop:
    """A loop over an index from 0: how many steps at most, and what it starts with.

    `take_step(node, index, condition, carried)` emits a step into a region.
    """

    node: Node
    count: Value | None
    condition: Value | None
    initial: Sequence[Value]
    take_step: Callable[[Node, Value, Value, Sequence[Value]], _Step]

    def run(self) -> tuple[list[Value], list[Value]]:
        """Emit the loop; the last carried values and the stacked ones, steps in axis 0."""
        types, symbols, step = self.settled_types()
        capacity = self.capacity() if step.stacked else None
        elements = [type_of(value) for value in step.stacked]
        for element in elements:
            unsupported(
                bool({name for dim in element.shape for name in symbols_of(dim)} & set(symbols)),
                f"it stacks values of type {element} whose dims change from step to step",
            )
        stacks, stack_types, stack_symbols = self.empty_stacks(elements, capacity)
        node = self.node
        zero = node.constant(0, "i64")
        go_on = node.constant(True, "i1") if self.condition is None else self.condition
        count = len(self.initial)

        def condition(builder: Builder, values: Sequence[Value]) -> Value:
            if self.count is None:
                return values[1]
            below = builder.value("compare", values[0], self.count, direction="lt")
            return builder.value("and", values[1], below)

        def body(builder: Builder, values: Sequence[Value]) -> Sequence[Value]:
            inner = node.within(builder)
            index, running, *rest = values
            step = self.take_step(inner, index, running, rest[:count])
            following = inner.op("add", index, inner.constant(1, "i64"))
            grown = [
                _append(inner, stack, value, index, capacity is not None)
                for stack, value in zip(rest[count:], step.stacked, strict=True)
            ]
            return [following, running if step.condition is None else step.condition,
                    *step.carried, *grown]  # fmt: skip

        results = while_loop(
            node.builder,
            [zero, go_on, *self.initial, *stacks],
            condition,
            body,
            [type_of(zero), type_of(go_on), *types, *stack_types],
            [*symbols, *stack_symbols],
        )
        steps, carried, filled = results[0], results[2 : 2 + count], results[2 + count :]
        if capacity is not None and not self.always_goes_on(step):
            filled = [self.begin_of(stack, steps, capacity) for stack in filled]
        return carried, filled

    def begin_of(self, stack: Value, steps: Value, capacity: Dim) -> Value:
        """What the steps that were taken have written of a stack for `capacity` steps."""
        hint = f"{self.node.proto.output[0]}_steps"
        taken = self.node.define_size(steps, hint, "the count of steps", 0, capacity)
        shape = shape_of(stack)
        start, stride = (0,) * len(shape), (1,) * len(shape)
        return self.node.op("slice", stack, start=start, limit=(taken, *shape[1:]), stride=stride)

    def settled_types(self) -> tuple[list[TensorType], list[str], _Step]:
        """Types of the carried values: a dim that a step changes becomes a symbol.

        Found by trial steps, whose ops are thrown away.
        """
        types = [type_of(value) for value in self.initial]
        names = self.node.fresh_symbols("carried")
        symbols: list[str] = []
        while True:
            block = self.node.aside([self.index_type(), self.condition_type(), *types])
            index, running, *carried = block.arguments
            step = self.take_step(self.node.within(Builder(block)), index, running, carried)
            found = [type_of(value) for value in step.carried]
            changed: dict[tuple[Dim, Dim], str] = {}
            following: list[TensorType] = []
            for place, (old, new) in enumerate(zip(types, found, strict=True)):
                if old.dtype is not new.dtype or old.rank != new.rank:
                    raise UnsupportedNode(
                        f"its carried value {place} is {old} before a step and {new} after it: "
                        "dtype and rank must stay"
                    )
                shape: list[Dim] = []
                for before, after in zip(old.shape, new.shape, strict=True):
                    own = symbols_of(before) & set(symbols)
                    if before == after or own:
                        shape.append(before)
                        continue
                    if (before, after) not in changed:
                        changed[before, after] = next(names)
                    shape.append(symbol(changed[before, after]))
                following.append(TensorType(old.dtype, tuple(shape)))
            if not changed:
                return types, symbols, step
            types = following
            symbols += changed.values()

    def index_type(self) -> TensorType:
        return type_of(self.node.constant(0, "i64"))

    def condition_type(self) -> TensorType:
        return type_of(self.node.constant(True, "i1"))

    def always_goes_on(self, step: _Step) -> bool:
        """Whether the condition holds at first and after every step."""
        if self.condition is not None:
            known = self.node.known(self.condition)
            if known is None or not known[()]:
                return False
        if step.condition is None or not isinstance(step.condition.owner, Block):
            known = None if step.condition is None else self.node.known(step.condition)
            return step.condition is None or (known is not None and bool(known[()]))
        return step.condition.owner.arguments.index(step.condition) == 1  # handed on

    def capacity(self) -> Dim | None:
        """How many steps are taken at most: known from constants and shapes, else read before
        the loop; None if the loop has no such limit, or takes no step ever."""
        if self.count is None:
            return None
        known = self.node.known(self.count)
        if known is None:
            most = self.node.op("max", self.count, self.node.fill(0, like=self.count))
            hint = f"{self.node.proto.output[0]}_most"
            return self.node.define_size(most, hint, "the trip count")
        count: Any = known[()]
        if isinstance(count, Expr):
            return count
        return int(count) if 0 < int(count) < _ENDLESS else None

    def empty_stacks(
        self, elements: Sequence[TensorType], count: Dim | None
    ) -> tuple[list[Value], list[TensorType], list[str]]:
        """What stacked values are before the first step, their types in the loop, and symbols."""
        stacks = [
            self.node.full(0, each.dtype, (0 if count is None else count, *each.shape))
            for each in elements
        ]
        if count is not None or not elements:
            return stacks, [type_of(stack) for stack in stacks], []
        name = next(self.node.fresh_symbols("steps"))
        types = [TensorType(each.dtype, (symbol(name), *each.shape)) for each in elements]
        return stacks, types, [name]


def _append(node: Node, stack: Value, value: Value, index: Value, in_place: bool) -> Value:
    """The stack with the value as its element `index`, or behind its last one."""
    row = node.reshape(value, (1, *shape_of(value)))
    if not in_place:
        return node.op("concatenate", stack, row, axis=0)
    zero = node.constant(0, "i64")
    starts = [index, *(zero for _ in shape_of(value))]
    return node.op("dynamic_update_slice", stack, row, *starts)


def _as_declared(inner: Node, value: Value, declared: onnx.ValueInfoProto) -> Value:
    """The value with the sizes that the body declares for what only a step knows, checked."""
    type = type_of(value)
    sizes = [dim.dim_value for dim in declared.type.tensor_type.shape.dim]
    own = {name for op in inner.builder.ops for name in defined_symbols(op)}
    limit = list(type.shape)
    for axis, (dim, size) in enumerate(zip(type.shape, sizes, strict=False)):
        if size > 0 and symbols_of(dim) & own:
            name = next(inner.fresh_symbols(declared.name))
            what = f"dim {axis} of '{declared.name}'"
            checked = {"symbols": (name,), "low": size, "high": size, "what": what}
            inner.builder.append("size", (inner.size(dim),), (), checked)
            limit[axis] = size
    if limit == list(type.shape):
        return value
    none, ones = (0,) * type.rank, (1,) * type.rank
    return inner.op("slice", value, start=none, limit=tuple(limit), stride=ones)


@lowering("Loop")
def loop(node: Node) -> tuple[Value, ...]:
    graph = node.graph("body")
    count, condition = node.optional(0), node.optional(1)
    initial = [node.input(index) for index in range(2, len(node.inputs))]

    def take_step(inner: Node, index: Value, running: Value, carried: Sequence[Value]) -> _Step:
        results = node.bodies.lower(graph, [index, running, *carried], inner.builder)
        following, *rest = (
            _as_declared(inner, value, declared)
            for value, declared in zip(results, graph.output, strict=True)
        )
        following = inner.reshape(following, ())
        return _Step(following, rest[: len(initial)], rest[len(initial) :])

    if len(graph.output) < 1 + len(initial):
        raise UnsupportedNode(
            f"its body has {len(graph.output)} outputs for {len(initial)} carried values: "
            "fix the model"
        )
    carried, stacked = _Loop(
        node,
        None if count is None else node.convert(node.reshape(count, ()), "i64"),
        None if condition is None else node.reshape(condition, ()),
        initial,
        take_step,
    ).run()
    return (*carried, *stacked)


@lowering("Scan", since=9)
def scan(node: Node) -> tuple[Value, ...]:
    graph = node.graph("body")
    inputs = [node.input(index) for index in range(len(node.inputs))]
    sequence_count = node.integer("num_scan_inputs", 0)
    state_count = len(inputs) - sequence_count
    initial, sequences = inputs[:state_count], inputs[state_count:]
    stacked_count = len(graph.output) - state_count
    unsupported(sequence_count < 1, "it has no scan inputs: fix the model")
    axes = node.integers("scan_input_axes") or (0,) * sequence_count
    axes = tuple(
        node.normalize_axis(axis, type_of(x).rank) for axis, x in zip(axes, sequences, strict=True)
    )
    backward = node.integers("scan_input_directions") or (0,) * sequence_count
    output_backward = node.integers("scan_output_directions") or (0,) * stacked_count
    length = shape_of(sequences[0])[axes[0]]
    for x, axis in zip(sequences, axes, strict=True):
        unsupported(
            shape_of(x)[axis] != length,
            f"its scan inputs have {length} and {shape_of(x)[axis]} steps: they must be equal",
        )

    def take_step(inner: Node, index: Value, running: Value, carried: Sequence[Value]) -> _Step:
        elements = []
        for x, axis, reverse in zip(sequences, axes, backward, strict=True):
            at = inner.op("sub", inner.size(length - 1), index) if reverse else index
            elements.append(inner.op("take", x, at, axis=axis, mode="clamp"))
        results = node.bodies.lower(graph, [*carried, *elements], inner.builder)
        return _Step(None, results[:state_count], results[state_count:])

    carried, stacked = _Loop(node, node.size(length), None, initial, take_step).run()
    output_axes = node.integers("scan_output_axes") or (0,) * stacked_count
    moved = []
    for x, axis, reverse in zip(stacked, output_axes, output_backward, strict=True):
        x = node.op("reverse", x, axes=(0,)) if reverse else x
        place = node.normalize_axis(axis, type_of(x).rank)
        order = [*range(1, place + 1), 0, *range(place + 1, type_of(x).rank)]
        moved.append(node.transpose(x, order))
    return (*carried, *moved)


@lowering("Scan", since=8)
def old_scan(node: Node) -> tuple[Value, ...]:
    raise UnsupportedNode(
        "Scan of opset 8 has a batch dim of its own: convert the model to opset 9 or later"
    )

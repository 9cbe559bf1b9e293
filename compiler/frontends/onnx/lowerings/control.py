"""If, Loop and Scan: their bodies become regions of the graph's branches and loops.

A condition that is known at import chooses its branch here, since exporters write branches
that could never run together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import onnx

from ingot.compiler.frontends.onnx.branches import join_structures
from ingot.compiler.frontends.onnx.loops import Loop, Step
from ingot.compiler.frontends.onnx.node import (
    Node,
    UnknownBody,
    UnsupportedNode,
    shape_of,
    unsupported,
)
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.frontends.onnx.structures import (
    Structure,
)
from ingot.compiler.frontends.strings import Strings, move, tensor_shape
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.ops import defined_symbols
from ingot.compiler.ir import TensorType, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, symbols_of

__all__: list[str] = []


@lowering("If")
def branch(node: Node) -> tuple[Structure | None, ...]:
    condition = node.reshape(node.input(0), ())
    graphs = [node.graph("then_branch"), node.graph("else_branch")]
    known = node.known(condition)
    if known is not None:
        graph = graphs[0 if known[()] else 1]
        return tuple(node.bodies.lower(graph, (), node.builder))
    branches = []
    results: list[list[Structure]] = []
    failed: list[UnknownBody] = []
    for graph in graphs:
        block = node.aside(())
        inner = node.within(Builder(block, node.builder.location))
        branches.append((inner, block))
        try:
            results.append(node.bodies.lower(graph, (), inner.builder))
        except UnknownBody as error:
            failed.append(error)  # the other branch is still to be looked at
    if failed:
        raise failed[0]
    return join_structures(node, "if", condition, branches, results)


def _as_declared(inner: Node, value: Structure, declared: onnx.ValueInfoProto) -> Structure:
    """The value with the sizes that the body declares for what only a step knows, checked."""
    if not isinstance(value, Value) or not isinstance(value.type, TensorType):
        return value
    type = value.type
    sizes = [dim.dim_value for dim in declared.type.tensor_type.shape.dim]
    own = {name for op in inner.builder.ops for name in defined_symbols(op)}
    limit = list(type.shape)
    for axis, (dim, size) in enumerate(zip(type.shape, sizes, strict=False)):
        if size > 0 and symbols_of(dim) & own:
            inner.require(inner.size(dim), size, f"dim {axis} of '{declared.name}'")
            limit[axis] = size
    if limit == list(type.shape):
        return value
    none, ones = (0,) * type.rank, (1,) * type.rank
    return inner.op("slice", value, start=none, limit=tuple(limit), stride=ones)


@lowering("Loop")
def loop(node: Node) -> tuple[Structure, ...]:
    graph = node.graph("body")
    count, condition = node.optional(0), node.optional(1)
    initial = [node.given(index) for index in range(2, len(node.inputs))]

    def take_step(inner: Node, index: Value, running: Value, carried: Sequence[Structure]) -> Step:
        results = node.bodies.lower(graph, [index, running, *carried], inner.builder)
        following, *rest = (
            _as_declared(inner, value, declared)
            for value, declared in zip(results, graph.output, strict=True)
        )
        stacked = [_row(each) for each in rest[len(initial) :]]
        go_on = inner.reshape(_tensor(following, "condition"), ())
        return Step(go_on, rest[: len(initial)], stacked)

    if len(graph.output) < 1 + len(initial):
        raise UnsupportedNode(
            f"its body has {len(graph.output)} outputs for {len(initial)} carried values: "
            "fix the model"
        )
    carried, stacks = Loop(
        node,
        None if count is None else node.convert(node.reshape(count, ()), "i64"),
        None if condition is None else node.reshape(condition, ()),
        initial,
        take_step,
    ).run()
    return (*carried, *stacks)


def _tensor(structure: Structure, what: str) -> Value:
    """A result of a body that must be a tensor."""
    if isinstance(structure, Value) and isinstance(structure.type, TensorType):
        return structure
    raise UnsupportedNode(f"a {what} value of its body is no tensor: fix the model")


def _row(structure: Structure) -> Value | Strings:
    """A result of a body that is stacked."""
    return structure if isinstance(structure, Strings) else _tensor(structure, "stacked")


@dataclass(frozen=True)
class _Scan:
    """What a Scan reads: states, and sequences with the axis that is walked and whether from
    its end."""

    node: Node
    states: Sequence[Structure]
    sequences: Sequence[tuple[Value | Strings, int, int]]

    def run(
        self, count: Value, stack_length: Dim | None = None
    ) -> tuple[list[Structure], list[Value | Strings]]:
        """The last states, and what the steps give, stacked in axis 0."""
        node, graph = self.node, self.node.graph("body")

        def take_step(
            inner: Node, index: Value, running: Value, carried: Sequence[Structure]
        ) -> Step:
            elements = []
            for x, axis, is_backward in self.sequences:
                at = index
                if is_backward:
                    last = inner.op("sub", count, inner.constant(1, "i64"))
                    at = inner.op("sub", last, index)
                elements.append(_at(inner, x, at, axis))
            results = node.bodies.lower(graph, [*carried, *elements], inner.builder)
            stacked = [_row(each) for each in results[len(self.states) :]]
            return Step(None, results[: len(self.states)], stacked)

        return Loop(node, count, None, self.states, take_step, stack_length).run()


def _at(node: Node, x: Value | Strings, place: Value, axis: int) -> Value | Strings:
    return move(x, lambda each: node.op("take", each, place, axis=axis, mode="clamp"))


def _flags(node: Node, name: str, count: int) -> tuple[int, ...]:
    """A list attribute with one number per sequence, which are 0 if it was left out."""
    numbers = node.integers(name) or (0,) * count
    unsupported(len(numbers) != count, f"its {name} has {len(numbers)} entries, not {count}")
    return numbers


@lowering("Scan", since=9)
def scan(node: Node) -> tuple[Structure, ...]:
    sequence_count = node.integer("num_scan_inputs", 0)
    state_count = len(node.inputs) - sequence_count
    states = [node.given(index) for index in range(state_count)]
    sequences = [
        node.strings(index) or node.input(index) for index in range(state_count, len(node.inputs))
    ]
    stacked_count = len(node.graph("body").output) - state_count
    unsupported(sequence_count < 1, "it has no scan inputs: fix the model")
    axes = [
        node.normalize_axis(axis, len(tensor_shape(x)))
        for axis, x in zip(_flags(node, "scan_input_axes", sequence_count), sequences, strict=True)
    ]
    length = tensor_shape(sequences[0])[axes[0]]
    sequences = [
        move(x, partial(node.agree_on, axis=axis, dim=length))
        for x, axis in zip(sequences, axes, strict=True)
    ]
    backward = _flags(node, "scan_input_directions", sequence_count)
    read = list(zip(sequences, axes, backward, strict=True))
    carried, stacked = _Scan(node, states, read).run(node.size(length))
    output_axes = _flags(node, "scan_output_axes", stacked_count)
    output_backward = _flags(node, "scan_output_directions", stacked_count)
    moved = []
    for x, axis, is_backward in zip(stacked, output_axes, output_backward, strict=True):
        x = move(x, partial(node.op, "reverse", axes=(0,))) if is_backward else x
        rank = len(tensor_shape(x))
        place = node.normalize_axis(axis, rank)
        order = [*range(1, place + 1), 0, *range(place + 1, rank)]
        moved.append(move(x, partial(node.transpose, permutation=order)))
    return (*carried, *moved)


@lowering("Scan", since=8)
def old_scan(node: Node) -> tuple[Structure, ...]:
    """Every example of a batch by itself: axis 0 is the batch, axis 1 the one that is walked."""
    inputs = [node.input(index) for index in range(1, len(node.inputs))]
    sequence_count = node.integer("num_scan_inputs", 0)
    state_count = len(inputs) - sequence_count
    unsupported(sequence_count < 1, "it has no scan inputs: fix the model")
    batch, length = shape_of(inputs[state_count])[:2]
    inputs = [node.agree_on(x, 0, batch) for x in inputs]
    sequences = [node.agree_on(x, 1, length) for x in inputs[state_count:]]
    backward = _flags(node, "directions", sequence_count)
    lengths = node.optional(0)

    def take_step(inner: Node, index: Value, running: Value, carried: Sequence[Structure]) -> Step:
        def example(x: Value) -> Value:
            return inner.op("take", x, index, axis=0, mode="clamp")

        states = [example(x) for x in inputs[:state_count]]
        read = [(example(x), 0, each) for x, each in zip(sequences, backward, strict=True)]
        count = inner.size(length)
        if lengths is not None:
            count = inner.op("min", inner.convert(example(lengths), "i64"), count)
        last, stacked = _Scan(inner, states, read).run(count, length)
        return Step(None, (), [*(_tensor(each, "state") for each in last), *stacked])

    _, stacked = Loop(node, node.size(batch), None, (), take_step, batch).run()
    return tuple(stacked)

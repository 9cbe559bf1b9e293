"""Makes `while` ops of steps that are known only by lowering a body, as Loop and Scan have them.

A step is lowered once more whenever it shows that what it carries changes: a dim, the length
of a sequence. What was learnt is remembered for the body, so that a loop in a loop does not
learn it again in every try of the outer one; the last try is the loop's body.

What a loop stacks up from its steps is written into one tensor if it is known before how many
steps there are, or not many at most; else it grows by a step at a time. Where the dims of what
is stacked differ, as far as the types tell, the elements are kept one by one. Of strings the
lengths are stacked so, and the bytes are put one behind another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ingot.compiler.frontends.onnx.join_elements import join_elements
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.onnx.structures import (
    Flow,
    Structure,
    common_flow,
    flow_of,
    put_together,
    take_apart,
)
from ingot.compiler.frontends.strings import Strings, in_a_row, packed
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import region_of
from ingot.compiler.graph.ops.lists import ANY
from ingot.compiler.graph.symbols import inner_symbols
from ingot.compiler.ir import Block, Region, TensorType, Type, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, Expr, symbol, symbols_of
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype

__all__ = ["Loop", "Step"]

_I1, _I64 = dtype("i1"), dtype("i64")

_ENDLESS = 1 << 62
"""Trip counts from here on mean: until the condition fails."""


@dataclass(frozen=True)
class Step:
    """What one step of a loop gives: the condition to go on, carried values, values to stack."""

    condition: Value | None
    carried: Sequence[Structure]
    stacked: Sequence[Value | Strings]


@dataclass(frozen=True)
class _Change:
    """What is known of a body: how its carried values are taken apart, and which dims change
    together, by number of the value and axis."""

    flows: tuple[Flow, ...]
    groups: dict[tuple[int, int], int]


@dataclass(frozen=True)
class _Try:
    """A step that was lowered into a block: `types` of what it carries, with symbols."""

    flows: tuple[Flow, ...]
    types: list[Type]
    symbols: list[str]
    block: Block
    step: Step
    following: list[Value]


@dataclass(frozen=True)
class Loop:
    """A loop over an index from 0: how many steps at most, and what it starts with.

    `take_step(node, index, condition, carried)` emits a step into a region. With a
    `stack_length` the stacks have that length, however many steps are taken.
    """

    node: Node
    count: Value | None
    condition: Value | None
    initial: Sequence[Structure]
    take_step: Callable[[Node, Value, Value, Sequence[Structure]], Step]
    stack_length: Dim | None = None

    def run(self) -> tuple[list[Structure], list[Value | Strings]]:
        """Emit the loop; the last carried values and the stacked ones, steps in axis 0."""
        last = self.settle()
        node, builder = self.node, self.node.builder
        zero = node.constant(0, "i64")
        go_on = node.constant(True, "i1") if self.condition is None else self.condition
        values = [
            value
            for structure, flow in zip(self.initial, last.flows, strict=True)
            for value in take_apart(structure, flow, builder)
        ]
        stacks = _Stacks(self, last)
        initial = [zero, go_on, *values, *stacks.initial]
        self.finish(last, stacks)

        def test(inner: Builder, carried: Sequence[Value]) -> list[Value]:
            if self.count is None:
                return [carried[1]]
            below = inner.value("compare", carried[0], self.count, direction="lt")
            return [inner.value("and", carried[1], below)]

        types = [argument.type for argument in last.block.arguments]
        regions = (region_of(builder, types, test), Region([last.block]))
        symbols = (*last.symbols, *stacks.symbols)
        results = builder.append("while", initial, regions, {"symbols": symbols}).results
        carried = iter(results[2 : 2 + len(values)])
        structures = [put_together(flow, carried) for flow in last.flows]
        return structures, stacks.finished(results[0], results[2 + len(values) :])

    def finish(self, last: _Try, stacks: _Stacks) -> None:
        """Write the end of the body: what it carries on, and the stacks with one element more."""
        inner = self.node.within(Builder(last.block, self.node.builder.location))
        index, running = last.block.arguments[:2]
        condition = running if last.step.condition is None else last.step.condition
        grown = stacks.grown(inner, index)
        following = inner.op("add", index, inner.constant(1, "i64"))
        inner.builder.yield_(following, condition, *last.following, *grown)

    # What changes from step to step.

    def settle(self) -> _Try:
        """Lower the step until what it carries is as it should be."""
        node = self.node
        names = node.fresh_symbols("carried")
        key = ("loop", node.builder.location, *node.proto.output)
        known = node.remembered.get(key)
        flows = tuple(flow_of(each) for each in self.initial)
        groups: dict[tuple[int, int], int] = {}
        if isinstance(known, _Change) and len(known.flows) == len(flows):
            flows = self.common(flows, known.flows)
            groups = dict(known.groups)
        while True:
            found = self.lower(flows, groups, names)
            if found.flows != flows:
                flows, groups = found.flows, {}
                continue
            if not self.regroup(found, groups):
                node.remembered[key] = _Change(flows, groups)
                return found

    @staticmethod
    def common(flows: Sequence[Flow], others: Sequence[Flow]) -> tuple[Flow, ...]:
        """The flows that fit both. UnsupportedNode: one does not exist."""
        result: list[Flow] = []
        for place, (flow, other) in enumerate(zip(flows, others, strict=True)):
            try:
                result.append(common_flow(flow, other))
            except CompileError as error:
                raise UnsupportedNode(
                    f"its carried value {place} is {flow} before a step and {other} after it: "
                    f"{error}"
                ) from None
        return tuple(result)

    def lower(
        self, flows: tuple[Flow, ...], groups: dict[tuple[int, int], int], names: Iterator[str]
    ) -> _Try:
        """Lower the step with dims in the same group as one symbol. If the flows turn out to be
        others, only these are of use."""
        node, location = self.node, self.node.builder.location
        types, symbols = self.types(flows, groups, names)
        block = node.aside([TensorType(_I64), TensorType(_I1), *types])
        index, running, *values = block.arguments
        source = iter(values)
        carried = [put_together(flow, source) for flow in flows]
        inner = node.within(Builder(block, location))
        step = self.take_step(inner, index, running, carried)
        stacked = [
            packed(inner, each, inner.count) if isinstance(each, Strings) else each
            for each in step.stacked
        ]
        step = replace(step, stacked=stacked)
        common = self.common(flows, [flow_of(each) for each in step.carried])
        following: list[Value] = []
        if common == flows:
            for structure, flow in zip(step.carried, flows, strict=True):
                following += take_apart(structure, flow, inner.builder)
        return _Try(common, types, symbols, block, step, following)

    def types(
        self, flows: Sequence[Flow], groups: dict[tuple[int, int], int], names: Iterator[str]
    ) -> tuple[list[Type], list[str]]:
        """The types of what is carried, and the symbols in them. Dims of one group that start
        differently are told apart."""
        aside = Builder(self.node.aside(()))
        types: list[Type] = []
        chosen: dict[tuple[int, Dim], str] = {}
        for structure, flow in zip(self.initial, flows, strict=True):
            for value in take_apart(structure, flow, aside):
                type = value.type
                if isinstance(type, TensorType):
                    shape = [
                        self.dim(dim, groups.get((len(types), axis)), chosen, names)
                        for axis, dim in enumerate(type.shape)
                    ]
                    type = TensorType(type.dtype, tuple(shape))
                types.append(type)
        return types, list(chosen.values())

    @staticmethod
    def dim(
        first: Dim, group: int | None, chosen: dict[tuple[int, Dim], str], names: Iterator[str]
    ) -> Dim:
        """The dim of a carried value that starts as `first`: a symbol if it changes."""
        if group is None:
            return first
        if (group, first) not in chosen:
            chosen[group, first] = next(names)
        return symbol(chosen[group, first])

    def regroup(self, found: _Try, groups: dict[tuple[int, int], int]) -> bool:
        """Put dims that change into groups, and those that change differently into others;
        whether anything was to be done."""
        kinds: dict[tuple[Dim, Dim], list[tuple[int, int]]] = {}
        for leaf, (type, value) in enumerate(zip(found.types, found.following, strict=True)):
            after = value.type
            if not isinstance(type, TensorType) or not isinstance(after, TensorType):
                continue
            for axis, (dim, next_dim) in enumerate(zip(type.shape, after.shape, strict=True)):
                kinds.setdefault((dim, next_dim), []).append((leaf, axis))
        changed = False
        owner: dict[Dim, Dim] = {}  # what a symbol becomes
        for (dim, next_dim), places in kinds.items():
            moving = bool(symbols_of(dim) & set(found.symbols))
            if dim == next_dim and not moving:
                continue
            if moving and owner.setdefault(dim, next_dim) == next_dim:
                continue
            number = max(groups.values(), default=-1) + 1
            groups.update(dict.fromkeys(places, number))
            changed = True
        return changed

    # How many steps there are.

    def always_goes_on(self, step: Step) -> bool:
        """Whether the condition holds at first and after every step."""
        if self.condition is not None:
            known = self.node.known(self.condition)
            if known is None or not known[()]:
                return False
        if step.condition is None or not isinstance(step.condition.owner, Block):
            known = None if step.condition is None else self.node.known(step.condition)
            return step.condition is None or (known is not None and bool(known[()]))
        return step.condition.owner.arguments.index(step.condition) == 1  # handed on

    def capacity(self, always: bool) -> Dim | None:
        """How many steps are taken at most: known from constants and shapes, else read before
        the loop if it `always` takes them all. None if the loop has no such limit, or takes no
        step ever."""
        if self.count is None:
            return None
        known = self.node.known(self.count)
        if known is None:
            if not always:
                return None
            most = self.node.op("max", self.count, 0)
            hint = f"{self.node.proto.output[0]}_most"
            return self.node.define_size(most, hint, "the trip count")
        count: Any = known[()]
        if isinstance(count, Expr):
            return count
        return int(count) if 0 < int(count) < _ENDLESS else None


class _Stacks:
    """What a loop stacks up from its steps; `initial` is carried beside what it carries."""

    def __init__(self, loop: Loop, last: _Try) -> None:
        self.node = loop.node
        self.stacked = last.step.stacked
        self.values = [
            value
            for each in self.stacked
            for value in ((each.lengths, each.data) if isinstance(each, Strings) else (each,))
        ]
        self.bytes = [each.data for each in self.stacked if isinstance(each, Strings)]
        self.always = loop.stack_length is not None or loop.always_goes_on(last.step)
        self.capacity = loop.stack_length
        if self.values and self.capacity is None:
            self.capacity = loop.capacity(self.always)
        self.arguments: list[Value] = []
        self.initial: list[Value] = []
        self.symbols: list[str] = []
        self.steps: Dim | None = None  # so far, where stacks grow
        inside = set(last.symbols) | inner_symbols(last.block)
        names = self.node.fresh_symbols("steps")
        for value in self.values:
            argument = self._start(value, inside, names)
            self.arguments.append(Value(argument, last.block))
        last.block.arguments += self.arguments

    def _start(self, value: Value, inside: set[str], names: Iterator[str]) -> Type:
        """Begin a stack of such values; its type in the loop."""
        node, element = self.node, type_of(value)
        if value in self.bytes:
            self.symbols.append(next(names))
            self.initial.append(node.full(0, element.dtype, (0,)))
            return TensorType(element.dtype, (symbol(self.symbols[-1]),))
        if any(symbols_of(dim) & inside for dim in element.shape):
            shape = tuple(dim if isinstance(dim, int) else ANY for dim in element.shape)
            empty = node.builder.value("list.empty", dtype=element.dtype, shape=shape)
            self.initial.append(empty)
            return empty.type
        if self.capacity is not None:
            stack = node.full(0, element.dtype, (self.capacity, *element.shape))
            self.initial.append(stack)
            return stack.type
        if self.steps is None:
            self.symbols.append(next(names))
            self.steps = symbol(self.symbols[-1])
        self.initial.append(node.full(0, element.dtype, (0, *element.shape)))
        return TensorType(element.dtype, (self.steps, *element.shape))

    def grown(self, inner: Node, index: Value) -> list[Value]:
        """The stacks with the values of this step."""
        result: list[Value] = []
        for stack, value in zip(self.arguments, self.values, strict=True):
            if not isinstance(stack.type, TensorType):
                at = inner.define_size(index, "step", "the step")
                result.append(inner.op("list.insert", stack, value, index=at))
                continue
            is_bytes = value in self.bytes
            row = value if is_bytes else inner.reshape(value, (1, *shape_of(value)))
            if is_bytes or self.capacity is None:
                result.append(inner.op("concatenate", stack, row, axis=0))
                continue
            zero = inner.constant(0, "i64")
            starts = [index, *(zero for _ in shape_of(value))]
            result.append(inner.op("dynamic_update_slice", stack, row, *starts))
        return result

    def finished(self, steps: Value, stacks: Sequence[Value]) -> list[Value | Strings]:
        """The stacks behind the loop, which took so many steps."""
        result: list[Value | Strings] = []
        ends = iter(stacks)
        for each in self.stacked:
            stack = self._whole(next(ends), steps)
            is_text = isinstance(each, Strings)
            result.append(in_a_row(self.node, stack, next(ends)) if is_text else stack)
        return result

    def _whole(self, stack: Value, steps: Value) -> Value:
        if not isinstance(stack.type, TensorType):
            return join_elements(self.node, stack, 0, True)
        if self.capacity is not None and not self.always:
            return self._begin_of(stack, steps)
        return stack

    def _begin_of(self, stack: Value, steps: Value) -> Value:
        """What the steps that were taken have written of a stack for `capacity` steps."""
        hint = f"{self.node.proto.output[0]}_steps"
        taken = self.node.define_size(steps, hint, "the count of steps", 0, self.capacity)
        return self.node.sliced(stack, 0, 0, taken)

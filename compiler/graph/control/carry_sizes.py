"""Puts tensors whose dims only a branch or the steps of a loop tell into lists.

A carried value that changes its dims from step to step becomes a list of one element: a step
reads the element, and with it its dims, and ends with a list of the next one. Where the next
one is the value with rows behind it, it is extended. What a branch gives and nobody can
know in front of it comes out in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops import AlongAxis, Control, defined_symbols
from ingot.compiler.graph.ops.lists import ANY
from ingot.compiler.graph.symbols import substitute_in, symbols_used
from ingot.compiler.ir import Block, ListType, Op, Region, TensorType, Type, Value, walk
from ingot.compiler.ir.dims import Dim, symbol, symbols_of

__all__ = ["carry_branch_sizes", "carry_loop_sizes"]


def carry_branch_sizes(op: Op, names: set[str], ops: list[Op]) -> None:
    """Append the `if` or `case` to `ops`; it defines the symbols in `names` no more, but lists
    that hold the results which have them."""
    placed = [place for place, each in enumerate(op.results) if _uses(each, names)]
    patterns = {place: _pattern(op.results[place]) for place in placed}
    for region in op.regions:
        _yield_lists(region.block, patterns)
    types = [value.type for value in op.regions[0].block.terminator.operands]
    attributes = replace(Control.of(op), symbols=_without(op, names))
    new = Op(op.name, op.operands, types, attributes, op.regions, op.location)
    ops.append(new)
    _read_results(op, new, placed, names, Builder(ops, op.location))


def carry_loop_sizes(op: Op, fresh: Iterator[str], ops: list[Op]) -> None:
    """Append the `while` to `ops` with lists in place of the values that change their dims.
    `fresh` gives names of symbols."""
    names = set(defined_symbols(op))
    placed = [place for place, each in enumerate(op.results) if _uses(each, names)]
    builder = Builder(ops, op.location)
    operands = list(op.operands)
    for place in placed:
        shape = _pattern(op.results[place])
        operands[place] = builder.value("list.of", operands[place], shape=shape)
    types = [operand.type for operand in operands]
    blocks: list[Block] = []
    for region in op.regions:
        writer = _LoopRegion(region, types, placed, builder)
        extended = writer.growing() if blocks else {}
        writer.read({name: symbol(next(fresh)) for name in sorted(names)})
        writer.write(extended)
        if blocks:
            writer.give_lists()
        blocks.append(writer.block)
    regions = [Region([block]) for block in blocks]
    attributes = replace(Control.of(op), symbols=())
    new = Op(op.name, operands, types, attributes, regions, op.location)
    ops.append(new)
    _read_results(op, new, placed, names, builder)


def _uses(value: Value, names: set[str]) -> bool:
    if not isinstance(value.type, TensorType):
        return False
    return any(symbols_of(dim) & names for dim in value.type.shape)


def _pattern(value: Value) -> tuple[int, ...]:
    """The shape of a list's elements: what is no number may change."""
    return tuple(dim if isinstance(dim, int) else ANY for dim in tensor_type(value).shape)


def _pattern_of(type: ListType) -> tuple[int, ...]:
    return tuple(ANY if dim is None else dim for dim in type.shape)


def _without(op: Op, names: set[str]) -> tuple[str, ...]:
    return tuple(name for name in defined_symbols(op) if name not in names)


def _read(list: Value, shape: Sequence[Dim], unknown: set[str], builder: Builder) -> Value:
    """The only element; it defines those symbols of its shape that are `unknown`, which shrinks."""
    symbols = [name for name in sorted(unknown) if symbol(name) in shape]
    unknown.difference_update(symbols)
    return builder.value("list.get", list, index=0, shape=tuple(shape), symbols=tuple(symbols))


def _read_results(
    old: Op, new: Op, placed: Sequence[int], names: set[str], builder: Builder
) -> None:
    """Make the results of `old`, which others use, from those of `new`."""
    unknown = set(names)
    for place, (before, after) in enumerate(zip(old.results, new.results, strict=True)):
        after.name = before.name
        if place not in placed:
            before.owner, new.results[place] = new, before
            continue
        made = _read(after, tensor_type(before).shape, unknown, builder).owner
        assert isinstance(made, Op)
        before.owner, made.results[0] = made, before


def _yield_lists(block: Block, patterns: Mapping[int, tuple[int, ...]]) -> None:
    """Let a branch give lists of one element at the places in `patterns`."""
    terminator = block.ops.pop()
    builder = Builder(block, terminator.location)
    for place, shape in patterns.items():
        value = terminator.operands[place]
        terminator.operands[place] = builder.value("list.of", value, shape=shape)
    block.ops.append(terminator)


class _LoopRegion:
    """Writes a region of a loop anew: it takes lists at the places `placed`.

    `names` are the symbols of the loop, which get names of their own here.
    """

    def __init__(
        self, region: Region, types: Sequence[Type], placed: Sequence[int], builder: Builder
    ) -> None:
        self.old = region.block
        self.placed = placed
        self.block = Block(types)
        self.builder = Builder(self.block, builder.location)
        self.lists: dict[Value, Value] = {}  # by the element that was read of it
        self.replaced = dict(zip(self.old.arguments, self.block.arguments, strict=True))
        for before, argument in self.replaced.items():
            argument.name = before.name

    def read(self, renamed: Mapping[str, Dim]) -> None:
        """Read the elements that the region needs, or whose dims it needs."""
        substitute_in(self.old, renamed)
        unknown = {str(dim) for dim in renamed.values()}
        needed = {name for op in self.old.ops for name in symbols_used(op)} & unknown
        used = {operand for op in walk(self.old) for operand in op.operands}
        for place in self.placed:
            value, argument = self.old.arguments[place], self.block.arguments[place]
            shape = tensor_type(value).shape
            defines = {name for dim in shape for name in symbols_of(dim)} & unknown
            if value in used or defines & needed:
                element = _read(argument, shape, unknown, self.builder)
                self.replaced[value], self.lists[element] = element, argument

    def write(self, extended: Mapping[Op, Value]) -> None:
        """Write the ops; those in `extended` put rows behind an element, by its value before."""
        for op in self.old.ops:
            for inner in walk(op):
                inner.operands = [self.replaced.get(each, each) for each in inner.operands]
            if op in extended:
                self._extend(op)
            else:
                self.block.ops.append(op)

    def _extend(self, op: Op) -> None:
        element, *rest = op.operands
        builder = Builder(self.block, op.location)
        rows = rest[0] if len(rest) == 1 else builder.value("concatenate", *rest, axis=0)
        longer = builder.value("list.extend", self.lists[element], rows)
        after = _read(longer, tensor_type(op.result).shape, set(), builder)
        self.replaced[op.result], self.lists[after] = after, longer

    def growing(self) -> dict[Op, Value]:
        """The concatenations that make a carried value longer, by what they put behind."""
        found: dict[Op, Value] = {}
        inside = set(self.old.ops)
        for place in self.placed:
            value, chain = self.old.terminator.operands[place], []
            argument = self.old.arguments[place]
            while isinstance(value.owner, Op) and value.owner in inside:
                op = value.owner
                if op.name != "concatenate" or AlongAxis.of(op).axis != 0:
                    break
                chain.append(op)
                value = op.operands[0]
            list = self.block.arguments[place]
            if value is argument and list.typed(ListType).shape[0] is None:
                found.update(dict.fromkeys(chain, argument))
        return found

    def give_lists(self) -> None:
        """Let the body, which is written, give lists at the places."""
        terminator = self.block.ops.pop()
        for place in self.placed:
            value = terminator.operands[place]
            list = self.lists.get(value)
            if list is None or list.type != self.block.arguments[place].type:
                shape = _pattern_of(self.block.arguments[place].typed(ListType))
                list = self.builder.value("list.of", value, shape=shape)
            terminator.operands[place] = list
        self.block.ops.append(terminator)

"""Decides which values of one element live in registers of the VM, and which in memory.

Conditions are decided by the VM, so they live in its registers, and so do sizes, and what they
are computed from, as far as the VM has the ops: counters of loops above all, and counters that
are kept in variables. Such *host
scalars* have a scalar type (`i32`, not `i32[]`) from here on. The ops between the worlds:

    scalar.read(x): i32              an element of memory, read when the queue has made it
    scalar.write(s): f32[]           a register, written to memory
    scalar.symbol(s){symbols=[k]}    the number is the dim k from here on: kernels get it
                                     as one of their constants

A value is hosted if its operands are, which carried values and results of branches learn by
a fixed point. What starts a loop, what a loop captures, an argument of the function or a
variable may be read to begin with: that is once, not once per step. A program without
branches, loops, state and sizes from data is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ingot.compiler.dispatch.ops import SymbolOfScalar
from ingot.compiler.dispatch.scalar_ops import is_host_op, is_host_type
from ingot.compiler.graph.ops import CONTROL, Constant, DimValue, Reshape, defined_symbols
from ingot.compiler.ir import (
    Block,
    Function,
    Literal,
    Module,
    Op,
    Region,
    ScalarType,
    TensorType,
    Value,
    clone_op,
    tensor_type,
    walk,
)
from ingot.compiler.ir.dims import symbol

__all__ = ["loops_that_read", "place_scalars"]


_STORES = frozenset({"variable.store", "slot.set", "slot.insert", "slot.extend"})
_FLOWS = frozenset({"yield", "return", *_STORES})
"""Ops that take values on, and compute nothing."""


def place_scalars(module: Module) -> Module:
    """The module with scalars where they belong."""
    result = Module(attributes=dict(module.attributes), variables=dict(module.variables))
    for function in module.functions.values():
        if any(op.name in (*CONTROL, "variable.store", "size") for op in function.block.ops):
            choice = _Choice(function)
            function = _Rewriter(function, choice).run()
        result.add(function)
    return result


def loops_that_read(function: Function) -> list[Op]:
    """The `while` ops whose condition is read from memory in every step."""
    choice = _Choice(function)
    loops = [op for op, _ in choice.ops if op.name == "while"]
    conditions = {op: op.regions[0].block.terminator.operands[0] for op in loops}
    return [op for op, condition in conditions.items() if condition not in choice.possible]


class _Choice:
    """Which values are host scalars, and which of those memory needs as well.

    `wanted` are values that registers need: `hosted` ones are computed there, the others read.
    `in_memory` are the hosted values that kernels read, `written` those that flow as tensors:
    as results, or through loops and branches.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.loop_of: dict[Value, Op | None] = {}
        self.ops: list[tuple[Op, Op | None]] = []  # with the loop around each
        self.next_of: dict[Value, list[Value]] = {}  # what else a value is made from
        self._collect(function.block, None)
        self.possible = self._find_possible()
        self.wanted = self._find_wanted()
        self.hosted = self.wanted & self.possible
        self.in_memory = self._find_in_memory()
        self.written = self._find_written()

    def _collect(self, block: Block, loop: Op | None) -> None:
        self.loop_of.update(dict.fromkeys(block.arguments, loop))
        for op in block.ops:
            self.ops.append((op, loop))
            self.loop_of.update(dict.fromkeys(op.results, loop))
            if op.name not in CONTROL:
                continue
            for region in op.regions:
                self._collect(region.block, op if op.name == "while" else loop)
            for place, result in enumerate(op.results):
                for value, sources in _flows(op, place, result):
                    self.next_of[value] = sources

    # What can be hosted.

    def _find_possible(self) -> set[Value]:
        """The greatest set of values that can be computed from each other on the host."""
        found = {value for value in self.loop_of if is_host_type(value.type)}
        changed = True
        while changed:
            changed = False
            for op, loop in self.ops:
                for value in self._of(op):
                    if value in found and not self._can_be_made(value, op, loop, found):
                        found.discard(value)
                        changed = True
        return found

    def _of(self, op: Op) -> Iterator[Value]:
        yield from op.results
        if op.name == "while":
            for region in op.regions:
                yield from region.block.arguments

    def _can_be_made(self, value: Value, op: Op, loop: Op | None, found: set[Value]) -> bool:
        if op.name == "variable.load":
            return True
        if op.name in CONTROL:
            *initial, last = self.next_of[value]
            if op.name == "while":
                return last in found and all(is_host_type(each.type) for each in initial)
            return all(each in found for each in self.next_of[value])
        return is_host_op(op) and all(
            operand in found or self._is_read_once(operand, loop) for operand in op.operands
        )

    def _is_read_once(self, value: Value, loop: Op | None) -> bool:
        """Whether a device scalar is worth reading: it does not change in the loop."""
        if not is_host_type(value.type):
            return False
        return value in self.function.arguments or self.loop_of[value] is not loop

    # What is hosted: what a condition or a carried value is made from.

    def _find_wanted(self) -> set[Value]:
        waiting: list[Value] = []
        for op, _ in self.ops:
            if op.name == "while":
                waiting += op.regions[0].block.terminator.operands
            elif op.name in ("if", "case") or self._is_counter(op) or self._is_host_size(op):
                waiting += op.operands
            if op.name in CONTROL:
                waiting += [result for result in op.results if result in self.possible]
        wanted: set[Value] = set()
        while waiting:
            value = waiting.pop()
            if value in wanted:
                continue
            wanted.add(value)
            if value not in self.possible:
                continue  # it is read
            if value in self.next_of:
                waiting += self.next_of[value]
                owner = value.owner
                op = owner if isinstance(owner, Op) else self._loop_with(value)
                if op.name == "while":
                    place = _place_of(op, value)
                    waiting += [op.results[place], *(r.block.arguments[place] for r in op.regions)]
            elif isinstance(value.owner, Op) and value.owner.name != "variable.load":
                waiting += value.owner.operands
        return wanted

    def _is_counter(self, op: Op) -> bool:
        """Whether the op stores what is computed from registers."""
        if op.name != "variable.store" or op.operands[0] not in self.possible:
            return False
        owner = op.operands[0].owner
        return isinstance(owner, Op) and is_host_op(owner)

    def _is_host_size(self, op: Op) -> bool:
        """Whether the op makes a symbol of a number that registers can hold."""
        return op.name == "size" and op.operands[0] in self.possible

    def _loop_with(self, argument: Value) -> Op:
        loop = self.loop_of[argument]
        assert loop is not None
        return loop

    # What memory needs.

    def _find_in_memory(self) -> set[Value]:
        """Hosted values that device work reads, through ops that kernels compute again."""
        waiting: list[Value] = []
        for op, _ in self.ops:
            flows = op.name in CONTROL or op.name in _FLOWS or self._is_host_size(op)
            if not flows and not any(each in self.hosted for each in op.results):
                waiting += op.operands
        needed: set[Value] = set()
        while waiting:
            value = waiting.pop()
            if value in needed or value not in self.hosted:
                continue
            needed.add(value)
            owner = value.owner
            if isinstance(owner, Op) and owner.name not in CONTROL and not self.is_symbol(owner):
                waiting += owner.operands
        return needed

    def _find_written(self) -> set[Value]:
        found: set[Value] = set()
        for op, _ in self.ops:
            if op.name in CONTROL:
                found.update(self._flowing_tensors(op))
            elif op.name == "return" or op.name in _STORES:
                found.update(op.operands)
        return found & self.hosted

    def _flowing_tensors(self, op: Op) -> Iterator[Value]:
        """What flows through a branch or loop as a tensor."""
        for place, result in enumerate(op.results):
            if result in self.hosted:
                continue
            for region in op.regions[1:] if op.name == "while" else op.regions:
                yield region.block.terminator.operands[place]
            if op.name == "while":
                yield op.operands[place]

    def is_symbol(self, op: Op) -> bool:
        """Whether kernels get the result of a hosted op as a number, not its operands."""
        return (
            len(op.results) == 1
            and op.result in self.hosted
            and op.name not in ("constant", "dim", "variable.load")
            and becomes_symbol(op.result)
        )


def becomes_symbol(value: Value) -> bool:
    """Whether a register can be a dim: integers but i1."""
    dtype = tensor_type(value).dtype
    return dtype.is_integer and not dtype.is_boolean


def _place_of(op: Op, value: Value) -> int:
    for values in (op.results, *(region.block.arguments for region in op.regions)):
        if value in values:
            return values.index(value)
    raise ValueError(f"{value} is not carried by {op}")


def _flows(op: Op, place: int, result: Value) -> Iterator[tuple[Value, list[Value]]]:
    """The values that control flow joins, with what they are made from; a loop's next last."""
    if op.name != "while":
        yield result, [region.block.terminator.operands[place] for region in op.regions]
        return
    following = op.regions[1].block.terminator.operands[place]
    sources = [op.operands[place], following]
    yield result, sources
    for region in op.regions:
        yield region.block.arguments[place], sources


class _Rewriter:
    """Writes the function anew: host scalars beside tensors."""

    def __init__(self, function: Function, choice: _Choice) -> None:
        self.function = function
        self.choice = choice
        self.tensors: dict[Value, Value] = {}
        self.written: dict[Value, Value] = {}  # tensors that hold registers
        self.scalars: dict[Value, Value] = {}
        self.names = _fresh_names(function)

    def run(self) -> Function:
        block = self._block(self.function.block, self.function.arguments)
        return replace(self.function, body=Region([block]))

    def _block(self, old: Block, arguments: Sequence[Value]) -> Block:
        """The block anew; `arguments` of it stay tensors, the others become scalars."""
        kept = set(arguments)
        block = Block(
            value.type if value in kept else _scalar_type(value) for value in old.arguments
        )
        for value, new in zip(old.arguments, block.arguments, strict=True):
            new.name = value.name
            if value in kept:
                self._learn_tensor(value, new, block)
            else:
                self._learn_scalar(value, new, block)
        for op in old.ops:
            self._op(op, block)
        return block

    def _op(self, op: Op, block: Block) -> None:
        if op.name in CONTROL:
            self._control(op, block)
        elif op.name == "yield":
            pass  # written by the op around it, which knows what it wants
        elif op.name == "size" and op.operands[0] in self.choice.hosted:
            scalar = self._scalar(op.operands[0])
            block.append(Op("size", [scalar], [], op.attributes, location=op.location))
        elif any(each in self.choice.hosted for each in op.results) and op.name != "variable.load":
            self._host_op(op, block)
        else:
            take = self._flowing if op.name in _FLOWS else self._tensor
            operands = dict(zip(op.operands, map(take, op.operands), strict=True))
            values = {**self.tensors, **operands} if op.regions else operands
            new = block.append(clone_op(op, values))
            for old, result in zip(op.results, new.results, strict=True):
                self._learn_tensor(old, result, block)

    def _host_op(self, op: Op, block: Block) -> None:
        """The op on registers; kernels that need its value compute it again or get a symbol."""
        if not self.choice.is_symbol(op) and op.result in self.choice.in_memory:
            operands = dict(zip(op.operands, map(self._tensor, op.operands), strict=True))
            self.tensors[op.result] = block.append(clone_op(op, operands)).result
        operands_ = [self._scalar(operand) for operand in op.operands]
        attributes = op.attributes
        if isinstance(attributes, Constant):
            literal = attributes.value
            attributes = Constant(Literal(literal.array.reshape(()), literal.dtype))
        new = Op(op.name, operands_, [_scalar_type(op.result)], attributes, location=op.location)
        block.append(new).result.name = op.result.name
        self._learn_scalar(op.result, new.result, block)

    def _control(self, op: Op, block: Block) -> None:
        hosted = [result in self.choice.hosted for result in op.results]
        loop = op.name == "while"
        if loop:
            pick: list[Callable[[Value], Value]] = [
                self._scalar if each else self._flowing for each in hosted
            ]
            operands = [take(each) for take, each in zip(pick, op.operands, strict=True)]
        else:
            operands = [self._scalar(op.operands[0])]
        regions = []
        for place, region in enumerate(op.regions):
            arguments = region.block.arguments
            kept = [each for each, host in zip(arguments, hosted, strict=False) if not host]
            inner = self._block(region.block, kept)
            yields = region.block.terminator
            if loop and place == 0:
                values = [self._scalar(yields.operands[0])]
            else:
                values = [
                    self._scalar(each) if host else self._flowing(each)
                    for each, host in zip(yields.operands, hosted, strict=True)
                ]
            inner.append(Op("yield", values, location=yields.location))
            regions.append(Region([inner]))
        types = [
            _scalar_type(result) if host else result.type
            for result, host in zip(op.results, hosted, strict=True)
        ]
        new = Op(op.name, operands, types, op.attributes, regions, op.location)
        block.append(new)
        for old, result, host in zip(op.results, new.results, hosted, strict=True):
            result.name = old.name
            learn = self._learn_scalar if host else self._learn_tensor
            learn(old, result, block)

    # Values in both worlds.

    def _tensor(self, value: Value) -> Value:
        return self.tensors[value]

    def _flowing(self, value: Value) -> Value:
        return self.written.get(value) or self._tensor(value)

    def _scalar(self, value: Value) -> Value:
        return self.scalars[value]

    def _learn_tensor(self, old: Value, new: Value, block: Block) -> None:
        """`new` is a tensor; if registers want it, it is read where it is made."""
        self.tensors[old] = new
        if old in self.choice.wanted:
            read = Op("scalar.read", [new], [_scalar_type(old)], location=_location(new))
            self.scalars[old] = block.append(read).result

    def _learn_scalar(self, old: Value, new: Value, block: Block) -> None:
        """`new` is in a register; if memory needs it, a kernel gets it as number or tensor."""
        self.scalars[old] = new
        type = tensor_type(old)
        in_memory = old in self.choice.in_memory and old not in self.tensors
        needs_tensor = in_memory and not becomes_symbol(old)
        if needs_tensor or old in self.choice.written:
            write = Op("scalar.write", [new], [type], location=_location(new))
            self.written[old] = block.append(write).result
        if needs_tensor:
            self.tensors[old] = self.written[old]
        if not in_memory or needs_tensor:
            return
        name = next(self.names)
        block.append(Op("scalar.symbol", [new], [], SymbolOfScalar((name,))))
        value = DimValue(symbol(name), type.dtype)
        tensor = block.append(Op("dim", [], [TensorType(type.dtype)], value)).result
        if type.rank:
            reshape = Op("reshape", [tensor], [type], Reshape(type.shape))
            tensor = block.append(reshape).result
        self.tensors[old] = tensor


def _scalar_type(value: Value) -> ScalarType:
    return ScalarType(tensor_type(value).dtype)


def _location(value: Value) -> str:
    return value.owner.location if isinstance(value.owner, Op) else ""


def _fresh_names(function: Function) -> Iterator[str]:
    taken = set(function.symbols)
    for op in walk(function):
        taken.update(defined_symbols(op))
    number = 0
    while True:
        name = f"scalar_{number}"
        number += 1
        if name not in taken:
            yield name

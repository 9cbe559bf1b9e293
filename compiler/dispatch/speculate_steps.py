"""Runs several steps of a loop for every look at its condition.

A device runs behind the host. Where a condition is computed from tensors, the host must wait
for it before it queues the next step, and the device has nothing to do meanwhile. Here the body
of such a loop becomes several steps, each of which keeps the old values where its condition does
not hold:

    while cond(c): c = body(c)
    while cond(c): c = body(c); c = select(cond(c), body(c), c); ...

The results are the same to the bit. It costs a step or a few that nobody needs, and a select of
all that is carried; so loops whose steps are long stay as they are. A step that may fail, or
that does more than compute, never runs unasked.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ingot.compiler.dispatch.place_scalars import loops_that_read
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.effects import can_fail, is_pure
from ingot.compiler.graph.ops import CONTROL, defined_symbols
from ingot.compiler.ir import Block, Module, Op, Region, TensorType, Value, clone_op, tensor_type
from ingot.compiler.ir.dims import evaluate, symbols_of

__all__ = ["STEPS", "speculate_steps"]

STEPS = 4
"""Steps for every look at the condition. A guess: no time was measured on a GPU."""

_MOST_ELEMENTS = 1 << 20  # that a step reads and writes: 10 us at a GPU's 1 TB/s
_USUAL_SIZE = 256  # of a dim that only the call knows


def speculate_steps(module: Module) -> Module:
    """Unroll short loops whose conditions are read from the device; returns the module."""
    for function in module.functions.values():
        for loop in loops_that_read(function):
            if _may_speculate(loop):
                _unroll(loop)
    return module


def _may_speculate(loop: Op) -> bool:
    """Whether a step may run that the condition does not ask for, and is short."""
    ops = [op for region in loop.regions for op in region.block.ops]
    free = all(
        op.name not in CONTROL and is_pure(op) and not can_fail(op) and not defined_symbols(op)
        for op in ops
    )
    if not free or defined_symbols(loop):
        return False
    body = loop.regions[1].block
    carried = zip(body.arguments, body.terminator.operands, strict=True)
    if not all(_is_kept(argument, following) for argument, following in carried):
        return False
    return sum(_elements([*op.operands, *op.results]) for op in ops) <= _MOST_ELEMENTS


def _is_kept(argument: Value, following: Value) -> bool:
    """Whether a select can choose between the values of two steps."""
    type = argument.type
    return isinstance(type, TensorType) and type == following.type and type.dtype.kind != "c"


def _elements(values: Sequence[Value]) -> int:
    shapes = [value.type.shape for value in values if isinstance(value.type, TensorType)]
    usual = {name: _USUAL_SIZE for shape in shapes for dim in shape for name in symbols_of(dim)}
    return sum(prod(evaluate(dim, usual) for dim in shape) for shape in shapes)


def _unroll(loop: Op) -> None:
    """Write the body anew."""
    condition, body = (region.block for region in loop.regions)
    block = Block(argument.type for argument in body.arguments)
    for old, new in zip(body.arguments, block.arguments, strict=True):
        new.name = old.name
    builder = Builder(block)
    values = _inline(body, block.arguments, block)
    for _ in range(STEPS - 1):
        (goes_on,) = _inline(condition, values, block)
        following = _inline(body, values, block)
        values = [
            _choose(builder, goes_on, new, old) for new, old in zip(following, values, strict=True)
        ]
    block.append(Op("yield", values, location=body.terminator.location))
    loop.regions[1] = Region([block])


def _inline(source: Block, arguments: Sequence[Value], block: Block) -> list[Value]:
    """Append a block's ops; gives what it yields."""
    values = dict(zip(source.arguments, arguments, strict=True))
    for op in source.ops[:-1]:
        block.append(clone_op(op, values))
    return [values.get(each, each) for each in source.terminator.operands]


def _choose(builder: Builder, condition: Value, new: Value, old: Value) -> Value:
    if new is old:
        return new
    shape = tensor_type(new).shape
    scalar = builder.value("reshape", condition, shape=())
    return builder.value("select", builder.broadcast_to(scalar, shape), new, old)

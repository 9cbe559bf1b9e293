"""Lowerings of while, if and case: their regions become regions of the graph ops.

A carried value that the body hands on unchanged is not carried: both regions use the value
from outside, of which the sizes are known. Dims of the others may change from step to step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ingot.compiler.frontends.stablehlo.lowering import Context, Lowered, lowering
from ingot.compiler.frontends.stablehlo.reading.program import SourceBlock, SourceOp, SourceProgram
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.build_control import Branch, branches, region_of
from ingot.compiler.ir import Block, Region, TensorType, Value
from ingot.compiler.ir.dims import symbol

__all__ = ["CONTROL_OPS"]

CONTROL_OPS = frozenset({"while", "if", "case"})
"""Ops whose regions hold tensor code, which is lowered op by op."""


def _check_regions(op: SourceOp, program: SourceProgram) -> str | None:
    whole = [len(region) == 1 and bool(region[0].ops) for region in op.regions]
    wanted = {"while": 2, "if": 2}.get(op.name, len(whole))
    if not whole or not all(whole) or len(whole) != wanted:
        return "regions that are not one block each"
    return None


def _capture(context: Context, op: SourceOp) -> None:
    """Make what the regions use from outside now: made inside, it would not exist outside."""
    for region in op.regions:
        for inner in region[0].walk():
            for operand in inner.operands:
                if operand in context.values:
                    context.value(context.values[operand])


def _lower_block(context: Context, builder: Builder, block: SourceBlock) -> list[Value]:
    """Lower a region's ops with `builder`; what the region returns."""
    inner = replace(context, builder=builder)
    return [inner.value(each) for each in inner.lower_ops(inner, block)]


@lowering("if", "case", check=_check_regions)
def branch(context: Context, op: SourceOp) -> list[Value]:
    _capture(context, op)

    def branch_of(block: SourceBlock) -> Branch:
        return lambda builder: _lower_block(context, builder, block)

    def fresh() -> Iterator[str]:
        while True:
            yield context.symbols.fresh(op.name)

    builds = [branch_of(region[0]) for region in op.regions]
    return branches(context.builder, op.name, context.operand(op, 0), builds, fresh())


@lowering("while", check=_check_regions)
def loop(context: Context, op: SourceOp) -> list[Lowered]:
    condition, body = (region[0] for region in op.regions)
    returned = body.ops[-1].operands
    carried = [
        place for place, argument in enumerate(body.arguments) if returned[place] is not argument
    ]
    _capture(context, op)
    initial = [context.operand(op, place) for place in carried]
    for place in set(range(len(op.operands))) - set(carried):
        context.operand(op, place)
        for region in (condition, body):
            context.values[region.arguments[place]] = context.lowered(op, place)

    def lower(builder: Builder, block: SourceBlock, values: Sequence[Value]) -> list[Value]:
        for place, value in zip(carried, values, strict=True):
            context.values[block.arguments[place]] = Lowered(value)
        return _lower_block(context, builder, block)

    def step(builder: Builder, values: Sequence[Value]) -> list[Value]:
        results = lower(builder, body, values)
        return [results[place] for place in carried]

    builder = context.builder
    settled, symbols = _settled_body(context, op, initial, step)
    types = [argument.type for argument in settled.arguments]
    test = region_of(builder, types, lambda inner, values: lower(inner, condition, values)[:1])
    attributes = {"symbols": tuple(symbols)}
    results = builder.append("while", initial, (test, Region([settled])), attributes).results
    made = dict(zip(carried, map(Lowered, results), strict=True))
    return [made.get(place) or context.lowered(op, place) for place in range(len(op.operands))]


def _settled_body(
    context: Context,
    op: SourceOp,
    initial: Sequence[Value],
    step: Callable[[Builder, Sequence[Value]], list[Value]],
) -> tuple[Block, list[str]]:
    """The body of a loop, and the symbols of the dims that change from step to step. A dim
    changes if a step that was tried gives another one; it is then a symbol of its own, unless
    what comes behind the loop needs it to be a known one, which the call checks."""
    shapes = [list(tensor_type(value).shape) for value in initial]
    changing: dict[tuple[int, int], str] = {}
    while True:
        fixed = {
            place
            for place, name in changing.items()
            if context.symbols.resolve(symbol(name)) != symbol(name)
        }
        for (place, axis), name in changing.items():
            shapes[place][axis] = context.symbols.resolve(symbol(name))
        block = Block(
            TensorType(tensor_type(value).dtype, tuple(shape))
            for value, shape in zip(initial, shapes, strict=True)
        )
        builder = Builder(block, context.builder.location)
        following = step(builder, block.arguments)
        inner = replace(context, builder=builder)
        known = len(changing)
        for place, (value, shape) in enumerate(zip(following, shapes, strict=True)):
            for axis, (after, before) in enumerate(
                zip(tensor_type(value).shape, shape, strict=True)
            ):
                if after != before and (place, axis) not in changing:
                    changing[place, axis] = context.symbols.fresh("while")
        if len(changing) > known:
            continue
        for place, axis in fixed:
            shape = list(tensor_type(following[place]).shape)
            shape[axis] = shapes[place][axis]
            following[place] = inner.agree(op, following[place], shape)
        builder.yield_(*following)
        return block, [name for place, name in changing.items() if place not in fixed]

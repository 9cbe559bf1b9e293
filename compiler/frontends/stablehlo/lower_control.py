"""Lowerings of while, if and case: their regions become regions of the graph ops.

A carried value that the body hands on unchanged is not carried: both regions use the value
from outside, of which the sizes are known. All others keep the type that they start with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ingot.compiler.frontends.stablehlo.lowering import Context, Lowered, lowering
from ingot.compiler.frontends.stablehlo.program import SourceBlock, SourceOp, SourceProgram
from ingot.compiler.graph.build_control import Branch, branches, while_loop
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value
from ingot.hal.errors import CompileError

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
        for block in (condition, body):
            context.values[block.arguments[place]] = context.lowered(op, place)

    def lower(builder: Builder, block: SourceBlock, values: Sequence[Value]) -> list[Value]:
        for place, value in zip(carried, values, strict=True):
            context.values[block.arguments[place]] = Lowered(value)
        return _lower_block(context, builder, block)

    def step(builder: Builder, values: Sequence[Value]) -> list[Value]:
        results = lower(builder, body, values)
        following = [results[place] for place in carried]
        for place, value, before in zip(carried, following, values, strict=True):
            what = f"{context.describe(op)}, carried value {place}"
            for a, b in zip(tensor_type(value).shape, tensor_type(before).shape, strict=True):
                if not context.symbols.equate(a, b, what):
                    raise CompileError(f"{what}: its dim {b} becomes {a}; keep its shape")
        return following

    results = while_loop(
        context.builder,
        initial,
        lambda builder, values: lower(builder, condition, values)[0],
        step,
    )
    made = dict(zip(carried, map(Lowered, results), strict=True))
    return [made.get(place) or context.lowered(op, place) for place in range(len(op.operands))]

"""What graph passes share: forward rewriting of a block, and questions about values.

`rewrite` walks a block once, front to back, so an op is seen after its operands have been
rewritten, and a branch or a loop after the ops inside it; ops that a rule makes are
offered to the rules again. What a rule makes stands in the block of the op that it was
given. Dead ops stay: passes leave them to `eliminate_dead_code`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.effects import can_fail, has_effect
from ingot.compiler.graph.ops import CONTROL, Constant
from ingot.compiler.graph.references.leaves import array_of
from ingot.compiler.ir import (
    Block,
    Function,
    Literal,
    Op,
    Region,
    TensorType,
    Value,
    defined_by,
    walk,
)
from ingot.compiler.ir.dims import Dim

__all__ = [
    "Rule",
    "defined_by",
    "is_static",
    "literal_of_value",
    "rewrite",
    "splat_of",
    "tensor_ops",
    "uses_symbols",
    "weights_of",
]

Rule = Callable[[Op, Builder], "Sequence[Value] | None"]
"""Takes an op; returns values for its results, made with the builder, or None to keep it."""

_DEPTH = 16
"""How often what a rule made may be rewritten again; guards against rules that undo each other."""


def rewrite(block: Block, rule: Rule) -> bool:
    """Apply `rule` to every op of the block and its regions. Returns whether any changed."""
    replaced: dict[Value, Value] = {}
    changed = _rewrite(block, rule, replaced)
    for value in replaced:
        value.op.results.clear()  # they refer to each other: memory is free now
    return changed


def _rewrite(block: Block, rule: Rule, replaced: dict[Value, Value]) -> bool:
    done: list[Op] = []
    changed = False
    made: list[Op] = []
    builder = Builder(made)
    is_kept = replaced.keys().isdisjoint
    for first in block.ops:
        waiting = [(first, 0)]
        while waiting:
            op, depth = waiting.pop()
            if replaced and not is_kept(op.operands):
                op.operands = [_latest(replaced, operand) for operand in op.operands]
            if op.regions:
                for region in op.regions:
                    changed |= _rewrite_region(op, region, rule, replaced)
            if made:  # most rules make nothing of most ops
                made = []
                builder = Builder(made)
            builder.location = op.location
            values = rule(op, builder) if depth < _DEPTH else None
            if values is None:
                done.append(op)
                continue
            changed = True
            for old, new in zip(op.results, values, strict=True):
                if old.name and not new.name:
                    new.name = old.name
                replaced[old] = new
            waiting.extend((each, depth + 1) for each in reversed(made))
    block.ops = done
    return changed


def _rewrite_region(op: Op, region: Region, rule: Rule, replaced: dict[Value, Value]) -> bool:
    """Rewrite tensor code; of scalar code (a comparator) only what it takes from outside."""
    if op.name in CONTROL:
        return _rewrite(region.block, rule, replaced)
    for inner in walk(region):
        inner.operands = [_latest(replaced, operand) for operand in inner.operands]
    return False


def _latest(replaced: dict[Value, Value], value: Value) -> Value:
    """What stands for `value` now; replacements may have been replaced in turn."""
    while value in replaced:
        value = replaced[value]
    return value


def literal_of_value(value: Value) -> Literal | None:
    """The literal of a value that a `constant` defines."""
    op = defined_by(value, "constant")
    return None if op is None else Constant.of(op).value


def splat_of(value: Value) -> Any:
    """The one number (a NumPy scalar) that all elements of the value are, or None.

    Sees through broadcast, reshape and convert-free views of a constant.
    """
    while (op := defined_by(value, "broadcast", "reshape", "transpose")) is not None:
        value = op.operands[0]
    literal = literal_of_value(value)
    if literal is None or literal.dtype.is_complex or literal.splat is None:
        return None
    return array_of(literal.splat)[()]


def uses_symbols(op: Op) -> bool:
    """Whether an expression stands anywhere in the attributes of the op."""
    return bool(op.attributes.symbols_used)


def is_static(shape: Sequence[Dim]) -> bool:
    """Whether every dim is an integer."""
    return all(isinstance(dim, int) for dim in shape)


def weights_of(function: Function) -> set[Value]:
    """The values that depend on constants and parameters only, with static shapes.

    Also those inside branches and loops, but for ops there that may fail: whether they run
    is not known before the call. Never what native functions give: only calls may call them.
    """
    weights: set[Value] = set()
    outside = set(function.block.ops)
    for op in tensor_ops(function.block):
        if op.regions or not op.results or not weights.issuperset(op.operands) or has_effect(op):
            continue
        if op.name == "native_call" or (op not in outside and can_fail(op)):
            continue
        for result in op.results:
            if not isinstance(result.type, TensorType) or result.type.symbols:
                break
        else:
            if not uses_symbols(op):
                weights.update(op.results)
    return weights


def tensor_ops(block: Block) -> Iterator[Op]:
    """The ops of the block and of the branches and loops in it, in order of definition."""
    for op in block.ops:
        yield op
        if op.name in CONTROL:
            for region in op.regions:
                yield from tensor_ops(region.block)

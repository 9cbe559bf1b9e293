"""What is known of a `while`: its induction variables and how often it runs.

Questions only; the passes that rewrite loops ask them.
"""

from __future__ import annotations

from ingot.compiler.graph.ops import Compare, DimValue, defined_symbols
from ingot.compiler.graph.references.leaves import array_of
from ingot.compiler.graph.rewriter import defined_by, literal_of_value
from ingot.compiler.ir import Block, Op, Value, tensor_type, walk
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, ceildiv, maximum, symbols_of

__all__ = [
    "FREE",
    "Induction",
    "body_of",
    "induction_of",
    "known_integer",
    "may_not_end",
    "trip_count",
]


FREE = frozenset({"constant", "broadcast", "iota", "dim", "reshape", "global", "parameter"})
"""Ops that cost nothing where they stand: kernels make them from nothing, or they are views."""


@dataclass(frozen=True)
class Induction:
    """A carried integer that starts at `start` and grows by the constant `step` each time."""

    place: int
    start: Dim
    step: int


def body_of(op: Op) -> Block:
    """The block of a loop's body."""
    return op.regions[1].block


def known_integer(value: Value) -> Dim | None:
    """The dim that a value of rank 0 is: a constant or a `dim`, seen through conversions."""
    while (op := defined_by(value, "convert", "reshape")) is not None:
        source, target = tensor_type(op.operands[0]), tensor_type(value)
        if not source.dtype.is_integer or not target.dtype.is_integer:
            return None
        if target.dtype.bits < 32:
            return None
        value = op.operands[0]
    op = defined_by(value, "dim")
    if op is not None:
        return DimValue.of(op).value
    literal = literal_of_value(value)
    if literal is None or literal.size != 1 or not literal.dtype.is_integer:
        return None
    return int(array_of(literal).reshape(-1)[0])


def induction_of(op: Op, place: int) -> Induction | None:
    """What is known if carried value `place` of a loop is an induction variable."""
    block = body_of(op)
    argument, following = block.arguments[place], block.terminator.operands[place]
    start = known_integer(op.operands[place])
    add = defined_by(following, "add", "sub")
    if start is None or add is None or argument not in add.operands:
        return None
    if add.name == "sub" and add.operands[0] is not argument:
        return None
    other = add.operands[1] if add.operands[0] is argument else add.operands[0]
    step = known_integer(other)
    if not isinstance(step, int) or step == 0:
        return None
    return Induction(place, start, -step if add.name == "sub" else step)


def may_not_end(op: Op) -> bool:
    """Whether the op is or holds a loop of which it is not known how often it runs."""
    return any(each.name == "while" and trip_count(each) is None for each in walk(op))


def trip_count(op: Op) -> Dim | None:
    """How often the body of a `while` runs, if an induction variable alone decides that."""
    block = op.regions[0].block
    test = defined_by(block.terminator.operands[0], "compare")
    if test is None:
        return None
    a, b = test.operands
    direction: str = Compare.of(test).direction
    if b in block.arguments:
        a, b = b, a
        direction = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}.get(direction, direction)
    if a not in block.arguments:
        return None
    found, limit = induction_of(op, block.arguments.index(a)), known_integer(b)
    if found is None or limit is None or symbols_of(limit) & set(defined_symbols(op)):
        return None
    start, step = found.start, found.step
    if direction in ("gt", "ge"):
        start, limit, step = start * -1, limit * -1, -step
    if direction in ("le", "ge"):
        limit = limit + 1
    elif direction == "ne" and abs(step) == 1:
        start, limit, step = start * step, limit * step, 1
        if not isinstance(limit - start, int) or limit - start < 0:  # type: ignore[operator]
            return None
    elif direction not in ("lt", "gt"):
        return None
    if step < 1:
        return 0 if isinstance(limit - start, int) and limit - start <= 0 else None  # type: ignore[operator]
    return maximum(0, ceildiv(limit - start, step))

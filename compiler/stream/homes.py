"""Which values share one memory because each is the next state of the one before.

A *home* is memory with a name of its own: a result of the function, a variable, or the
range of a value that a loop carries or a branch gives. What is to be there in the end is
best made there. Going back from that value, its producer may write over an operand in
place, whose producer may do so in turn: this chain of values moves into the home as far as
nobody reads what the home held before when the first of them is written. What cannot move
is copied in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ingot.compiler.ir import Block, Op, TensorType, Value, defined_by, tensor_type, walk
from ingot.compiler.ir.dims import Dim, product
from ingot.compiler.stream.ops import Dispatch
from ingot.compiler.stream.scopes import ScopedRange

__all__ = [
    "MAKERS",
    "Home",
    "Uses",
    "alias_root",
    "byte_length",
    "find_chain",
    "find_rotation",
    "is_tensor",
    "is_whole",
    "make_last",
]

BRANCHES = frozenset({"if", "case"})
MAKERS = frozenset(
    {
        "stream.dispatch",
        "stream.native",
        "stream.copy",
        "update",
        "scalar.write",
        "while",
        *BRANCHES,
    }
)
"""Ops that write their results to the memory that they are given."""


@dataclass(eq=False)
class Home:
    """Memory: ("result", ordinal), ("variable", ordinal), or a range of the slab.

    A home ("carried", ordinal) is where a carried value lies in this step: one of several
    ranges, which such values exchange from step to step. Its own is where it starts.
    """

    kind: Literal["slab", "result", "variable", "carried"]
    ordinal: int = 0
    range: ScopedRange | None = None


def alias_root(value: Value) -> Value:
    """The value whose bytes `value` is, or some of them if it is a view."""
    while (op := defined_by(value, "stream.alias", "view")) is not None:
        value = op.operands[0]
    return value


def is_whole(value: Value) -> bool:
    """Whether the value is all bytes of its root."""
    while (op := defined_by(value, "stream.alias")) is not None:
        value = op.operands[0]
    return defined_by(value, "view") is None


def byte_length(value: Value) -> Dim:
    """Bytes of a tensor in memory."""
    return product(tensor_type(value).shape) * tensor_type(value).dtype.bytes


def is_tensor(value: Value) -> bool:
    """Whether the value lies in memory, not in a register."""
    return isinstance(value.type, TensorType)


class Uses:
    """Where the ops of a block, and the bodies in them, use values."""

    def __init__(self, block: Block) -> None:
        self.place = {op: place for place, op in enumerate(block.ops)}
        self.last: dict[Value, int] = {}
        self.inside: dict[Op, set[Value]] = {}  # what the bodies in ops use
        for place, op in enumerate(block.ops):
            for root in roots_below(op):
                self.last[root] = place

    def last_use(self, root: Value) -> int:
        """The place of the last op that uses the value; -1 if none does."""
        return self.last.get(root, -1)

    def only_operand(self, op: Op, root: Value) -> bool:
        """Whether the op is the last to use the value, and uses it as one operand only."""
        return (
            self.last_use(root) == self.place[op]
            and [alias_root(operand) for operand in op.operands].count(root) == 1
            and root not in self._used_inside(op)
        )

    def _used_inside(self, op: Op) -> set[Value]:
        if op not in self.inside:
            bodies = (region.block for region in op.regions)
            self.inside[op] = {root for body in bodies for root in roots_below(body)}
        return self.inside[op]


def roots_below(root: Op | Block) -> set[Value]:
    """What the op and the bodies in it use, or the ops of a block."""
    below = (root,) if isinstance(root, Op) and not root.regions else walk(root)
    return {alias_root(operand) for each in below for operand in each.operands}


def in_place_operands(op: Op, result: int) -> list[int]:
    """The operands that the op may write over with result number `result`, if they are whole."""
    if op.name == "while":
        return [result]
    if op.name == "update":
        return [0]
    found = op.attributes
    pairs = found.in_place if isinstance(found, Dispatch) else ()
    return [operand for operand, target in pairs if target == result]


def find_chain(
    last: Value, occupants: Iterable[Value], uses: Uses, taken: Mapping[Value, Home]
) -> Sequence[Value]:
    """The values that may live in a home that holds `occupants` now and `last` in the end.

    `last` comes first. Empty if not even that one may be written there.
    """
    held = set(occupants)
    chain: list[Value] = []
    joins: Value | None = None
    following: Value | None = last if _can_move(last, uses, taken) else None
    while following is not None:
        chain.append(following)
        sources = list(_sources(following, uses))
        joins = next((source for source in sources if source in held), None)
        movable = (source for source in sources if _can_move(source, uses, taken))
        following = next(movable, None) if joins is None else None
    while chain and not _is_free(chain[-1], held, joins, uses):
        chain.pop()
        joins = None
    return chain


def _can_move(value: Value, uses: Uses, taken: Mapping[Value, Home]) -> bool:
    op = value.owner
    return isinstance(op, Op) and op.name in MAKERS and op in uses.place and value not in taken


def _sources(value: Value, uses: Uses) -> Iterator[Value]:
    """What the op that makes `value` may write over with it."""
    op = value.op
    for operand in in_place_operands(op, op.results.index(value)):
        root = alias_root(op.operands[operand])
        whole = is_whole(op.operands[operand]) and byte_length(root) == byte_length(value)
        if whole and uses.only_operand(op, root):
            yield root


def _is_free(first: Value, held: set[Value], joins: Value | None, uses: Uses) -> bool:
    """Whether nobody reads what the home held any more when `first` is written."""
    op = first.op
    place = uses.place[op]
    for root in held:
        last = uses.last_use(root)
        if last < place or (last == place and root is joins):
            continue
        # A branch looks itself at what it still reads.
        passes = op.name in BRANCHES and root not in map(alias_root, op.operands)
        if last > place or not passes:
            return False
    return True


def find_rotation(op: Op) -> dict[int, int]:
    """Where the carried values of a loop go: the next value number k lies where value number
    rotation[k] has been. Only those that move; empty if each stays in its place."""
    body = op.regions[1].block
    classes: dict[Dim, list[int]] = {}
    for ordinal, argument in enumerate(body.arguments):
        if is_tensor(argument):
            classes.setdefault(byte_length(argument), []).append(ordinal)
    rotation: dict[int, int] = {}
    for ordinals in classes.values():
        sources = _handed_on(body, ordinals)
        if all(source == ordinal for ordinal, source in sources.items()):
            continue
        free = [ordinal for ordinal in ordinals if ordinal not in sources.values()]
        for ordinal in ordinals:  # new values take the places that are left
            if ordinal not in sources:
                source = ordinal if ordinal in free else free[0]
                free.remove(source)
                sources[ordinal] = source
        rotation.update((k, source) for k, source in sources.items() if k != source)
    return rotation


def _handed_on(body: Block, ordinals: Sequence[int]) -> dict[int, int]:
    """By ordinal the carried value that is handed on there as it is; each only once."""
    arguments = {body.arguments[ordinal]: ordinal for ordinal in ordinals}
    sources: dict[int, int] = {}
    moves: list[tuple[int, int]] = []
    for ordinal in ordinals:
        value = body.terminator.operands[ordinal]
        source = arguments.get(alias_root(value)) if is_whole(value) else None
        if source == ordinal:
            sources[ordinal] = ordinal
        elif source is not None:
            moves.append((ordinal, source))
    for ordinal, source in moves:
        if source not in sources.values():
            sources[ordinal] = source
    return sources


def make_last(block: Block, following: Value, current: Value, uses: Uses) -> bool:
    """Move what makes `following` behind the last op that reads `current`, if it can wait. Whether
    it was moved: `uses` are those of the block before."""
    op = following.owner
    if not isinstance(op, Op) or op not in uses.place or op.name != "stream.dispatch":
        return False
    begin, end = uses.place[op], uses.last_use(current)
    if not begin < end < len(block.ops) - 1:
        return False
    moved: list[Op] = []
    made: set[Value] = set()
    for each in block.ops[begin : end + 1]:
        if each is op or not made.isdisjoint(roots_below(each)):
            if each.name not in ("stream.dispatch", "stream.alias", "view", "update"):
                return False
            moved.append(each)
            made.update(each.results)
    if block.ops[end] in moved:
        return False
    stay = [each for each in block.ops[begin : end + 1] if each not in moved]
    block.ops[begin : end + 1] = stay + moved
    return True

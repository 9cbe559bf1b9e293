"""Grammars that a text has to follow, byte by byte.

A grammar is rules, each of some alternatives, each a row of parts: sets of bytes, and other rules.
What may follow a text is a set of stacks, as in llama.cpp: of each the top is what is left of an
alternative that begins with a set of bytes. So a byte takes every stack a step further or drops it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from ingot.hal.errors import InvalidArgument

__all__ = ["LAST", "Grammar", "Row", "Rules", "State", "characters", "literal", "outside"]

Part = tuple[str, int]
"""("bytes", a bit for each that may stand there) or ("rule", its number)."""
Row = tuple[Part, ...]
Stack = Any
"""What is left of an alternative, and the stack below it, or None: (row, stack)."""
State = frozenset[Stack]

_MOST_STACKS = 1 << 12
_MOST_KEPT = 1 << 17  # steps that are remembered
_MOST_ROWS = 1 << 16


class Rules:
    """Rules while they are made: each is a list of rows. `row` of a part makes longer ones."""

    def __init__(self) -> None:
        self.rules: list[list[Row]] = []

    def new(self, rows: Iterable[Row] = ()) -> int:
        """The number of a rule with these rows."""
        self.rules.append(list(rows))
        if len(self.rules) > _MOST_ROWS:
            raise InvalidArgument(f"the grammar has more than {_MOST_ROWS} rules: make it smaller")
        return len(self.rules) - 1

    def one_of(self, *rows: Row) -> Row:
        """A row of a new rule with these rows."""
        return rows[0] if len(rows) == 1 else (("rule", self.new(rows)),)

    def repeated(self, row: Row, least: int, most: int | None) -> Row:
        """A row that stands there so often; None: without end."""
        rest: Row = ()
        if most is None:
            again = self.new()
            self.rules[again] = [(*row, ("rule", again)), ()]
            rest = (("rule", again),)
        else:
            for _ in range(most - least):
                rest = (("rule", self.new([(*row, *rest), ()])),)
        if len(row) * least > _MOST_ROWS:
            raise InvalidArgument(f"a part is repeated {least} times: that is too often")
        return row * least + rest


LAST = 0x10FFFF  # of all characters
_OF_ONE_LENGTH = (
    *((0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF)),
    *((0xE000, 0xFFFF), (0x10000, LAST)),
)
"""Characters whose bytes are as many; halves of pairs (surrogates) are none."""


def literal(text: str) -> Row:
    """The bytes of a text."""
    return tuple(("bytes", 1 << byte) for byte in text.encode())


def characters(ranges: Sequence[tuple[int, int]]) -> list[Row]:
    """Rows of the bytes of UTF-8 of the characters in these ranges."""
    rows = []
    for low, high in ranges:
        for first, last in _OF_ONE_LENGTH:
            first, last = max(low, first), min(high, last)
            if first <= last:
                rows += _spans(chr(first).encode(), chr(last).encode())
    return rows


def outside(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges of all other characters."""
    others, first = list[tuple[int, int]](), 0
    for low, high in sorted(ranges):
        if first < low:
            others.append((first, low - 1))
        first = max(first, high + 1)
    return [*others, (first, LAST)] if first <= LAST else others


def _spans(low: bytes, high: bytes) -> list[Row]:
    """Rows of all from `low` to `high`, which are as long."""
    if len(low) == 1:
        return [(_between(low[0], high[0]),)]
    least, most = b"\x80" * (len(low) - 1), b"\xbf" * (len(low) - 1)
    if low[0] == high[0]:
        return [(_between(low[0], low[0]), *row) for row in _spans(low[1:], high[1:])]
    rows: list[Row] = []
    first, last = low[0], high[0]
    if low[1:] != least:
        rows += [(_between(first, first), *row) for row in _spans(low[1:], most)]
        first += 1
    tail: list[Row] = []
    if high[1:] != most:
        tail = [(_between(last, last), *row) for row in _spans(least, high[1:])]
        last -= 1
    if first <= last:
        rows.append((_between(first, last), *[_between(0x80, 0xBF)] * len(least)))
    return rows + tail


def _between(low: int, high: int) -> Part:
    return "bytes", (1 << (high + 1)) - (1 << low)


class Grammar:
    """Rules, of which one is that of a whole text. `start` is the state of an empty one. Whatever
    may stand can go on to a whole text. InvalidArgument, also of `after`: a rule that is met there
    begins with itself."""

    def __init__(self, rules: Rules, root: int) -> None:
        self.rules = _ending(rules.rules)
        self._steps: dict[tuple[State, int], State] = {}
        self.start = self._opened([((("rule", root),), None)])
        if not self.start:
            raise InvalidArgument("no text follows the grammar: each way to one needs itself")

    def after(self, state: State, data: bytes) -> State:
        """What may follow when these bytes do; nothing may where they cannot."""
        for byte in data:
            key = state, byte
            following = self._steps.get(key)
            if following is None:
                if len(self._steps) > _MOST_KEPT:
                    self._steps.clear()
                following = self._steps[key] = self._stepped(state, byte)
            if not following:
                return following
            state = following
        return state

    def _stepped(self, state: State, byte: int) -> State:
        stacks = (stack for stack in state if stack is not None)
        taken = [(row[1:], below) for row, below in stacks if row[0][1] >> byte & 1]
        return self._opened(taken)

    def _opened(self, stacks: Iterable[Stack]) -> State:
        """Stacks whose first part is a set of bytes, of stacks with any; None is the end."""
        found, seen, left = set[Stack](), set[Stack](), list(stacks)
        while left:
            stack = left.pop()
            while stack is not None and not stack[0]:
                stack = stack[1]
            if stack in seen:
                continue
            seen.add(stack)
            if len(seen) > _MOST_STACKS:
                raise InvalidArgument(
                    "the grammar has too many ways to go on: a rule that begins with itself is to "
                    "be written as one that repeats"
                )
            if stack is None or stack[0][0][0] == "bytes":
                found.add(stack)
                continue
            row, below = stack
            below = (row[1:], below) if row[1:] else below
            left += [(each, below) for each in self.rules[row[0][1]]]
        return frozenset(found)


def _ending(rules: Sequence[Sequence[Row]]) -> list[list[Row]]:
    """The rules with those rows alone that come to an end: behind the beginning of another one no
    text would be whole."""
    needed: dict[tuple[int, int], int] = {}  # rules of a row that may have no end
    users = defaultdict[int, list[tuple[int, int]]](list)
    left, found = list[int](), set[int]()
    for number, rows in enumerate(rules):
        for place, row in enumerate(rows):
            others = {other for kind, other in row if kind == "rule"}
            needed[number, place] = len(others)
            for other in others:
                users[other].append((number, place))
            left += [] if others else [number]
    while left:
        number = left.pop()
        if number in found:
            continue
        found.add(number)
        for user in users[number]:
            needed[user] -= 1
            left += [] if needed[user] else [user[0]]
    return [
        [row for place, row in enumerate(rows) if not needed[number, place]]
        for number, rows in enumerate(rules)
    ]

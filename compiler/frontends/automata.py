"""Regular expressions as automata over the bytes of UTF-8, each byte of which is one look-up.

The expression becomes a nondeterministic automaton, whose sets of nodes are the states of the
deterministic one (Rabin and Scott's construction). Bytes that no edge tells apart are one class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ingot.compiler.frontends.emitter import UnsupportedNode
from ingot.compiler.frontends.patterns import (
    Characters,
    Choice,
    Condition,
    Pattern,
    Repeat,
    Row,
    parse_pattern,
)
from ingot.compiler.ir.dataclass import dataclass

__all__ = ["KINDS", "Automaton", "compile_pattern", "kinds_of_bytes", "takes"]

_MOST_NODES = 50_000
_MOST_STATES = 4096
_MOST_STEPS = 50_000_000
"""Of making an automaton, each about 100 ns: repetitions of nothing make no nodes, and a few states
may be of many nodes each."""

_WORD = frozenset(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")

_Array = np.ndarray[tuple[int, ...], np.dtype[np.uint16]]


@dataclass(frozen=True)
class Automaton:
    """State 0 is lost, the first one is 1. `following` [states, classes] is the next state,
    `classes` [256] the class of each byte, `accepts` [states, KINDS] whether a match may end here,
    in front of a byte of that kind, `begins` [KINDS] the state in which one begins behind it."""

    following: _Array
    classes: _Array
    accepts: _Array
    begins: _Array


KINDS = ("edge", "word", "newline", "other")
"""Of bytes, as conditions tell them apart; the edge is the begin or end of a text."""


def kinds_of_bytes() -> _Array:
    """[256]: places among KINDS."""
    return np.array([KINDS.index(_kind(byte)) for byte in range(256)], np.uint16)


def compile_pattern(text: str) -> Automaton:
    """The automaton of whole texts, and of matches inside of them. UnsupportedNode: the pattern is
    none of RE2, or too large."""
    nodes = _Nodes()
    start = nodes.add(parse_pattern(text), nodes.new())
    return _determined(nodes, start)


def takes(automaton: Automaton, text: str) -> bool:
    """Whether the whole text is a match, in time that only its length decides."""
    edge = KINDS.index("edge")
    state = int(automaton.begins[edge])
    for byte in text.encode("utf-8", "surrogatepass"):
        state = int(automaton.following[state, automaton.classes[byte]])
    return bool(automaton.accepts[state, edge])


class _Nodes:
    """A nondeterministic automaton. Node 0 is its end. Edges read a byte of a range; jumps read
    nothing, and may have a condition."""

    def __init__(self) -> None:
        self.edges: list[list[tuple[int, int, int]]] = []
        self.jumps: list[list[tuple[str, int]]] = []
        self._chains: dict[tuple[int, int, int], int] = {}
        self._steps = 0

    def spend(self, steps: int) -> None:
        """Count steps. UnsupportedNode: they are too many."""
        self._steps += steps
        if self._steps > _MOST_STEPS:
            raise UnsupportedNode(
                "its pattern takes too long to make an automaton of: simplify it, or repeat less "
                "often"
            )

    def new(self) -> int:
        if len(self.edges) >= _MOST_NODES:
            raise UnsupportedNode(
                f"its pattern makes an automaton of more than {_MOST_NODES} nodes: simplify it, "
                "or repeat less often"
            )
        self.edges.append([])
        self.jumps.append([])
        return len(self.edges) - 1

    def add(self, pattern: Pattern, after: int) -> int:
        """The node from which the pattern leads to the node `after`."""
        self.spend(10)
        if isinstance(pattern, Row):
            for part in reversed(pattern.parts):
                after = self.add(part, after)
            return after
        if isinstance(pattern, Repeat):
            return self._add_repeat(pattern, after)
        node = self.new()
        if isinstance(pattern, Choice):
            self.jumps[node] = [("", self.add(part, after)) for part in pattern.parts]
        elif isinstance(pattern, Condition):
            self.jumps[node] = [(pattern.kind, after)]
        else:
            self._add_characters(pattern, node, after)
        return node

    def _add_repeat(self, repeat: Repeat, after: int) -> int:
        at = after
        if repeat.most is None:
            at = self.new()
            self.jumps[at] = [("", self.add(repeat.part, at)), ("", after)]
        for _ in range((repeat.most or repeat.least) - repeat.least):
            optional = self.new()
            self.jumps[optional] = [("", self.add(repeat.part, at)), ("", after)]
            at = optional
        for _ in range(repeat.least):
            at = self.add(repeat.part, at)
        return at

    def _add_characters(self, characters: Characters, node: int, after: int) -> None:
        for first, last in characters.ranges:
            self.spend(40)
            for head, *rest in _encoded(first, last):
                target = after
                for low, high in reversed(rest):
                    key = (low, high, target)
                    if key not in self._chains:
                        self._chains[key] = self.new()
                        self.edges[self._chains[key]] = [key]
                    target = self._chains[key]
                self.edges[node].append((*head, target))


def _encoded(first: int, last: int) -> Iterator[list[tuple[int, int]]]:
    """The characters of a range as sequences of ranges of bytes."""
    for low, high in ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, last)):
        if max(first, low) <= min(last, high):
            yield from _of_one_length(max(first, low), min(last, high))


def _of_one_length(first: int, last: int) -> Iterator[list[tuple[int, int]]]:
    for bits in (6, 12, 18) if last > 0x7F else ():
        mask = (1 << bits) - 1
        if first & ~mask == last & ~mask:
            continue
        if first & mask:
            yield from _of_one_length(first, first | mask)
            yield from _of_one_length((first | mask) + 1, last)
            return
        if last & mask != mask:
            yield from _of_one_length(first, (last & ~mask) - 1)
            yield from _of_one_length(last & ~mask, last)
            return
    yield list(zip(chr(first).encode(), chr(last).encode(), strict=True))


def _kind(byte: int) -> str:
    return "word" if byte in _WORD else "newline" if byte == 10 else "other"


def _holds(condition: str, before: str, behind: str) -> bool:
    """Whether a condition holds between bytes of two KINDS."""
    if condition == "text_begin":
        return before == "edge"
    if condition == "text_end":
        return behind == "edge"
    if condition == "line_begin":
        return before in ("edge", "newline")
    if condition == "line_end":
        return behind in ("edge", "newline")
    return ((before == "word") != (behind == "word")) == (condition == "edge")


_State = tuple[frozenset[int], str]
"""The nodes that may be reached, and the kind of the byte before if a condition follows."""


def _determined(nodes: _Nodes, start: int) -> Automaton:
    classes = _classes(nodes)
    count = int(classes.max()) + 1
    examples = [int(np.argmax(classes == each)) for each in range(count)]
    states: dict[_State, int] = {}
    waiting: list[_State] = []

    def number(reached: Iterable[int], before: str) -> int:
        state = _settled(nodes, reached, before)
        if state not in states:
            if len(states) >= _MOST_STATES:
                raise UnsupportedNode(
                    f"its pattern makes an automaton of more than {_MOST_STATES} states: simplify "
                    "it, or repeat less often"
                )
            states[state] = len(states)
            waiting.append(state)
        return states[state]

    number((), "edge")
    begins = [number((start,), kind) for kind in KINDS]
    rows: list[list[int]] = []
    accepts: list[list[bool]] = []
    for reached, before in waiting:
        inside = {kind: _expanded(nodes, reached, before, kind) for kind in KINDS}
        accepts.append([0 in inside[kind] for kind in KINDS])
        targets: list[set[int]] = [set() for _ in examples]
        edges = sum(len(nodes.edges[node]) for node in inside["other"])
        nodes.spend(count * (len(inside["other"]) + edges))
        for place, byte in enumerate(examples):
            for node in inside[_kind(byte)]:
                for low, high, target in nodes.edges[node]:
                    if low <= byte <= high:
                        targets[place].add(target)
        rows.append(
            [number(each, _kind(byte)) for each, byte in zip(targets, examples, strict=True)]
        )
    following = np.array(rows, np.uint16).reshape(len(rows), count)
    return Automaton(following, classes, np.array(accepts, np.uint16), np.array(begins, np.uint16))


def _classes(nodes: _Nodes) -> _Array:
    """The class of each byte: bytes of one class are in the same edges, and of one kind."""
    begins = np.zeros(257, np.int64)
    for edges in nodes.edges:
        for low, high, _ in edges:
            begins[[low, high + 1]] = 1
    if any(condition for jumps in nodes.jumps for condition, _ in jumps):
        for byte in range(1, 256):
            begins[byte] |= _kind(byte) != _kind(byte - 1)
    begins[0] = 0
    return np.cumsum(begins[:256]).astype(np.uint16)


def _settled(nodes: _Nodes, reached: Iterable[int], before: str) -> _State:
    """The state of these nodes: those of them and behind their jumps without a condition that
    read, have a condition, or are the end."""
    seen, todo = set(reached), list(reached)
    while todo:
        for condition, target in nodes.jumps[todo.pop()]:
            if not condition and target not in seen:
                seen.add(target)
                todo.append(target)
    nodes.spend(10 * len(seen))
    conditional = {node for node in seen if any(kind for kind, _ in nodes.jumps[node])}
    kept = frozenset(node for node in seen if node == 0 or nodes.edges[node]) | conditional
    return kept, before if conditional else ""


def _expanded(nodes: _Nodes, reached: frozenset[int], before: str, behind: str) -> frozenset[int]:
    """With the nodes behind conditions that hold."""
    if not before:
        return reached
    while True:
        nodes.spend(8 * len(reached))
        further = {
            target
            for node in reached
            for condition, target in nodes.jumps[node]
            if condition and _holds(condition, before, behind)
        }
        grown = reached | _settled(nodes, further, before)[0]
        if grown == reached:
            return reached
        reached = grown

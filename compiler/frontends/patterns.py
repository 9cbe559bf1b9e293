"""Regular expressions in the syntax of RE2, read as trees.

What RE2 takes is taken, but `\\C` (one byte) and the names of scripts in `\\p{...}`. What it
refuses (references to groups, lookaround) is refused too, since no automaton knows it.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from functools import cache

from ingot.compiler.frontends.emitter import UnsupportedNode
from ingot.compiler.ir.dataclass import dataclass

__all__ = ["Characters", "Choice", "Condition", "Pattern", "Repeat", "Row", "parse_pattern"]

Ranges = tuple[tuple[int, int], ...]
"""Of code points, first and last, in order and apart."""


@dataclass(frozen=True)
class Characters:
    """One character of these."""

    ranges: Ranges


@dataclass(frozen=True)
class Row:
    """One part behind the other."""

    parts: tuple[Pattern, ...]


@dataclass(frozen=True)
class Choice:
    parts: tuple[Pattern, ...]


@dataclass(frozen=True)
class Repeat:
    """The part at least and at most so often; None is without end."""

    part: Pattern
    least: int
    most: int | None


@dataclass(frozen=True)
class Condition:
    """What must hold between two characters: text_begin, text_end, line_begin, line_end, edge (of
    a word), no_edge."""

    kind: str


Pattern = Characters | Row | Choice | Repeat | Condition

_LAST = sys.maxunicode
_LAST_WITH_CASE = 0x1FFFF  # planes beyond have no letters with case
_DEEPEST = 50  # groups in groups
_MOST_REPEATS = 1000  # as RE2 has it

_CONTROLS = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_CONDITIONS = {"A": "text_begin", "z": "text_end", "b": "edge", "B": "no_edge"}


def _ranges(text: str) -> Ranges:
    """Pairs of characters: first and last of each range."""
    return tuple(zip(map(ord, text[::2]), map(ord, text[1::2]), strict=True))


_PERL = {"d": _ranges("09"), "s": _ranges("\t\n\f\r  "), "w": _ranges("09AZ__az")}
_POSIX = {
    "alnum": _ranges("09AZaz"), "alpha": _ranges("AZaz"), "ascii": _ranges("\0\x7f"),
    "blank": _ranges("\t\t  "), "cntrl": _ranges("\0\x1f\x7f\x7f"), "digit": _ranges("09"),
    "graph": _ranges("!~"), "lower": _ranges("az"), "print": _ranges(" ~"),
    "punct": _ranges("!/:@[`{~"), "space": _ranges("\t\r  "), "upper": _ranges("AZ"),
    "word": _PERL["w"], "xdigit": _ranges("09AFaf"),
}  # fmt: skip


def parse_pattern(text: str) -> Pattern:
    """UnsupportedNode: it is no regular expression of RE2; the text says where."""
    parser = _Parser(text)
    result = parser.choice(_Flags(), 0)
    if parser.place < len(text):
        raise parser.wrong("')' closes no group")
    return result


def _joined(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """In order and apart."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return tuple(result)


def _others(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """All characters but these."""
    result, start = [], 0
    for first, last in _joined(ranges):
        if start < first:
            result.append((start, first - 1))
        start = last + 1
    return (*result, (start, _LAST)) if start <= _LAST else tuple(result)


@cache
def _cases() -> dict[int, list[int]]:
    """The characters that are one when case does not count, for each that has others."""
    by_key: dict[str, list[int]] = defaultdict(list)
    for code in range(_LAST_WITH_CASE + 1):
        character = chr(code)
        key = next(
            (each for each in (character.casefold(), character.lower()) if len(each) == 1),
            character,
        )
        by_key[key].append(code)
    groups = [codes for codes in by_key.values() if len(codes) > 1]
    return {code: codes for codes in groups for code in codes}


@cache
def _codes_with_case() -> list[int]:
    return sorted(_cases())


def _any_case(ranges: Ranges) -> Ranges:
    cased = _codes_with_case()
    added = [
        (each, each)
        for first, last in ranges
        for code in cased[bisect_left(cased, first) : bisect_right(cased, last)]
        for each in _cases()[code]
    ]
    return _joined([*ranges, *added])


@cache
def _categories() -> dict[str, Ranges]:
    """The characters by their general category, such as Lu, and by its first letter."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for code in range(_LAST + 1):
        name = unicodedata.category(chr(code))
        for each in (name, name[0]) if name != "Cn" else ():
            found[each].append((code, code))
    return {name: _joined(codes) for name, codes in found.items()}


@dataclass(frozen=True)
class _Flags:
    i: bool = False  # case does not count
    m: bool = False  # ^ and $ are of lines
    s: bool = False  # . is also the end of a line
    U: bool = False  # which match is preferred, of which a full one has no choice

    def apply(self, ranges: Ranges) -> Ranges:
        """The characters that these stand for."""
        return _any_case(ranges) if self.i else ranges


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0

    def wrong(self, what: str) -> UnsupportedNode:
        shown = self.text if len(self.text) <= 60 else self.text[:60] + "..."
        return UnsupportedNode(
            f"its pattern {shown!r}, at character {self.place}: {what}; it must be a regular "
            "expression of RE2"
        )

    def _take(self, expression: str) -> re.Match[str] | None:
        """The match of a piece of syntax here, which is gone over."""
        found = re.compile(expression, re.DOTALL).match(self.text, self.place)
        if found:
            self.place = found.end()
        return found

    def choice(self, flags: _Flags, depth: int) -> Pattern:
        if depth > _DEEPEST:
            raise self.wrong(f"more than {_DEEPEST} groups in one another")
        branches: list[list[Pattern]] = [[]]
        while self.place < len(self.text) and self.text[self.place] != ")":
            if self._take(r"\|"):
                branches.append([])
            elif found := self._take(r"\(\?([imsU]*)(-[imsU]+)?\)"):
                flags = _changed(flags, found)
            else:
                branches[-1].append(self._repeated(flags, depth))
        rows = [Row(tuple(parts)) for parts in branches]
        return rows[0] if len(rows) == 1 else Choice(tuple(rows))

    def _repeated(self, flags: _Flags, depth: int) -> Pattern:
        if quoted := self._take(r"\\Q(.*?)(?:\\E|\Z)"):
            return Row(tuple(Characters(flags.apply(((ord(x), ord(x)),))) for x in quoted[1]))
        part = self._atom(flags, depth)
        found = self._take(r"([*+?]|\{(\d{1,8})(,?)(\d{0,8})\})\??")
        if found is None:
            return part
        if re.compile(r"[*+?]|\{\d{1,8},?\d{0,8}\}").match(self.text, self.place):
            raise self.wrong("a repetition of a repetition: put the first one in a group")
        if found[2] is None:
            least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[found[1]]
        else:
            least = int(found[2])
            most = int(found[4]) if found[4] else None if found[3] else least
        if max(least, most or 0) > _MOST_REPEATS or (most is not None and most < least):
            raise self.wrong(f"a repetition {found[0]}: at most {_MOST_REPEATS} times, in order")
        return Repeat(part, least, most)

    def _atom(self, flags: _Flags, depth: int) -> Pattern:
        if self._take(r"\("):
            return self._group(flags, depth)
        if self._take(r"\["):
            return self._class(flags)
        if self._take(r"\."):
            return Characters(_others(() if flags.s else _ranges("\n\n")))
        if self._take(r"\^"):
            return Condition("line_begin" if flags.m else "text_begin")
        if self._take(r"\$"):
            return Condition("line_end" if flags.m else "text_end")
        if found := self._take(r"\\([AzbB])"):
            return Condition(_CONDITIONS[found[1]])
        if self._take(r"[*+?]"):
            raise self.wrong("a repetition of nothing")
        named = self._named_class(flags)
        if named is not None:
            return Characters(named)
        code = self._character()
        return Characters(flags.apply(((code, code),)))

    def _group(self, flags: _Flags, depth: int) -> Pattern:
        found = self._take(r"\?([imsU]*)(-[imsU]+)?:")
        if found:
            flags = _changed(flags, found)
        elif not self._take(r"\?P?<\w+>") and self._take(r"\?"):
            raise self.wrong("a group of this kind, such as lookaround, is not supported")
        inner = self.choice(flags, depth + 1)
        if not self._take(r"\)"):
            raise self.wrong("a group is not closed")
        return inner

    def _class(self, flags: _Flags) -> Pattern:
        negated = self._take(r"\^") is not None
        ranges: list[tuple[int, int]] = []
        first = True
        while first or not self._take(r"\]"):
            first = False
            if self.place >= len(self.text):
                raise self.wrong("a class is not closed")
            if found := self._take(r"\[:(\^?)(\w+):\]"):
                if found[2] not in _POSIX:
                    raise self.wrong(f"no class has the name {found[2]}")
                posix = flags.apply(_POSIX[found[2]])
                ranges += _others(posix) if found[1] else posix
                continue
            named = self._named_class(flags)
            if named is not None:
                ranges += named
                continue
            low = high = self._character()
            if self._take(r"-(?!\])"):
                high = self._character()
            if high < low:
                raise self.wrong("a range of characters goes back")
            ranges += flags.apply(((low, high),))
        return Characters(_others(ranges) if negated else _joined(ranges))

    def _named_class(self, flags: _Flags) -> Ranges | None:
        r"""\d and its like, \pL, \p{Lu}."""
        if found := self._take(r"\\([dswDSW])"):
            ranges = flags.apply(_PERL[found[1].lower()])
            return _others(ranges) if found[1].isupper() else ranges
        found = self._take(r"\\([pP])(?:\{(\^?)(\w+)\}|(\w))")
        if found is None:
            return None
        name = found[3] or found[4]
        ranges = _others(()) if name == "Any" else _categories().get(name, ())
        if not ranges:
            raise self.wrong(f"characters of {name}: general categories, such as Lu, are supported")
        ranges = flags.apply(ranges)
        return _others(ranges) if (found[1] == "P") != bool(found[2]) else ranges

    def _character(self) -> int:
        if found := self._take(r"\\x(?:\{([0-9A-Fa-f]{1,8})\}|([0-9A-Fa-f]{2}))"):
            code = int(found[1] or found[2], 16)
            if code > _LAST:
                raise self.wrong("no character has this number")
            return code
        if found := self._take(r"\\(0[0-7]{0,2}|[1-7][0-7]{1,2})"):
            return int(found[1], 8)
        if found := self._take(r"\\([afnrtv])"):
            return _CONTROLS[found[1]]
        if found := self._take(r"\\([^\w]|_)"):
            return ord(found[1])
        if re.compile(r"\\[1-9]").match(self.text, self.place):
            raise self.wrong("a reference to a group is not regular")
        found = self._take(r"[^\\]")
        if found is None:
            raise self.wrong("this escape means nothing, or is not supported")
        return ord(found[0])


def _changed(flags: _Flags, found: re.Match[str]) -> _Flags:
    values = {name: getattr(flags, name) or name in found[1] for name in "imsU"}
    return _Flags(**{name: values[name] and name not in (found[2] or "") for name in values})

"""Grammars as llama.cpp writes them (GBNF): `root ::= "yes" | "no" [.!]*`."""

from __future__ import annotations

import re
from typing import NoReturn

from ingot.hal.errors import InvalidArgument
from ingot.language.grammar import LAST, Grammar, Row, Rules, characters, literal, outside

__all__ = ["read_gbnf"]

_TOKENS = re.compile(
    r"""(?P<space>[ \t]+|\#[^\n]*)|(?P<line>\n)|(?P<define>[\w-]+[ \t]*::=)|(?P<rule>[\w-]+)|
    (?P<text>"(?:[^"\\\n]|\\.)*")|(?P<set>\[(?:[^\]\\]|\\.)*\])|(?P<count>\{\d{0,9},?\d{0,9}\})|
    (?P<sign>[.()|*+?])""",
    re.VERBOSE,
)
_LETTER = re.compile(
    r"\\x([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\(.)|(.)", re.DOTALL
)
_SHORT = {"n": "\n", "r": "\r", "t": "\t"}
_MOST_DEPTH = 100


def read_gbnf(text: str) -> Grammar:
    """The grammar of a text. InvalidArgument: it is none, and where."""
    return _Reader(text).grammar()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.place, self.depth = text.replace("\r\n", "\n"), 0, 0
        self.rules, self.names = Rules(), dict[str, int]()
        self.defined = set[str]()
        self.kind = self.token = ""
        self._next()

    def grammar(self) -> Grammar:
        while self.kind != "end":
            if self.kind == "line":
                self._next()
                continue
            name = self._taken("define").removesuffix("::=").strip()
            number = self._number(name)
            if name in self.defined:
                self._fail(f"the rule '{name:.40}' is there twice")
            self.defined.add(name)
            while self.kind == "line":
                self._next()
            self.rules.rules[number] = self._rows()
            if self.kind not in ("line", "end"):
                self._fail("expected the end of a line")
        missing = [name for name in (*self.names, "root") if name not in self.defined]
        if missing:
            raise InvalidArgument(f"the grammar has no rule '{missing[0]:.40}'")
        return Grammar(self.rules, self.names["root"])

    def _number(self, name: str) -> int:
        if name not in self.names:
            self.names[name] = self.rules.new()
        return self.names[name]

    def _rows(self) -> list[Row]:
        rows = [self._row()]
        while self.kind == "sign" and self.token == "|":
            self._next()
            while self.kind == "line":
                self._next()
            rows.append(self._row())
        return rows

    def _row(self) -> Row:
        row: Row = ()
        while True:
            while self.kind == "line" and self.depth:
                self._next()
            if self.kind in ("line", "end", "define") or self.token in (")", "|"):
                return row
            part = self._part()
            while self.kind == "count" or (self.kind == "sign" and self.token in "*+?"):
                part = self.rules.repeated(self.rules.one_of(part), *self._counts())
                self._next()
            row += part

    def _counts(self) -> tuple[int, int | None]:
        if self.kind == "sign":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[self.token]
        least, comma, most = self.token[1:-1].partition(",")
        if not (least or most):
            self._fail("expected {m}, {m,} or {m,n}")
        first = int(least or 0)
        last = (int(most) if most else None) if comma else first
        if first > 1 << 16 or (last is not None and not first <= last <= 1 << 16):
            self._fail("expected counts that grow, and at most 65536")
        return first, last

    def _part(self) -> Row:
        kind, token = self.kind, self.token
        if kind == "sign" and token == "(":
            self.depth += 1
            if self.depth > _MOST_DEPTH:
                self._fail("there are too many brackets in each other")
            self._next()
            inner = self.rules.one_of(*self._rows())
            if self.token != ")":
                self._fail("expected )")
            self.depth -= 1
            self._next()
            return inner
        if kind not in ("rule", "text", "set") and token != ".":
            self._fail("expected a rule, a text, [a set], . or (")
        if kind == "rule":
            row: Row = (("rule", self._number(token)),)
        elif kind == "text":
            row = literal("".join(map(chr, self._letters(token[1:-1]))))
        else:
            rows = characters([(0, LAST)] if token == "." else self._ranges(token[1:-1]))
            if not rows:
                self._fail("the set is empty")
            row = self.rules.one_of(*rows)
        self._next()
        return row

    def _letters(self, text: str) -> list[int]:
        """The characters of a text with escapes."""
        found = []
        for match in _LETTER.finditer(text):
            *codes, short, plain = match.groups()
            if short and short.isalnum() and short not in _SHORT:
                self._fail(f"the escape {match[0]} is not known")
            code = next((int(each, 16) for each in codes if each), None)
            code = ord(plain or _SHORT.get(short, short)) if code is None else code
            if code > LAST or 0xD800 <= code < 0xE000:
                self._fail(f"{code:#x} is no character")
            found.append(code)
        return found

    def _ranges(self, text: str) -> list[tuple[int, int]]:
        """The ranges of characters of a set."""
        is_not = text.startswith("^")
        text = text[is_not:]
        spans = [match.span() for match in _LETTER.finditer(text)]
        codes, found, place = self._letters(text), list[tuple[int, int]](), 0
        while place < len(codes):
            is_range = place + 2 < len(codes) and text[slice(*spans[place + 1])] == "-"
            last = codes[place + 2] if is_range else codes[place]
            if last < codes[place]:
                self._fail(f"the range from {codes[place]:#x} to {last:#x} is empty")
            found.append((codes[place], last))
            place += 3 if is_range else 1
        return outside(found) if is_not else found

    def _taken(self, kind: str) -> str:
        if self.kind != kind:
            self._fail("expected a rule, name ::=")
        token = self.token
        self._next()
        return token

    def _next(self) -> None:
        while self.place < len(self.text):
            match = _TOKENS.match(self.text, self.place)
            if match is None:
                self.kind = "wrong"
                self._fail("expected a rule, a text, a set or a sign")
            self.place = match.end()
            self.kind, self.token = match.lastgroup or "", match[0]
            if self.kind != "space":
                return
        self.kind, self.token = "end", ""

    def _fail(self, what: str) -> NoReturn:
        line = self.text.count("\n", 0, max(self.place - len(self.token), 0)) + 1
        found = self.token or self.text[self.place : self.place + 20]
        raise InvalidArgument(f"line {line} of the grammar has {found!r:.40}: {what}")

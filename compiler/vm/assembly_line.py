"""A line of the text of a module, taken apart into tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import NoReturn, TypeVar

from ingot.hal.errors import CompileError

__all__ = ["U16", "U32", "U64", "Line", "refuse"]

U16, U32, U64 = (1 << 16) - 1, (1 << 32) - 1, (1 << 64) - 1

_Value = TypeVar("_Value")
_TOKEN = re.compile(
    r"""\s*(
      "(?:[^"\\]|\\.)*"
    | ->
    | 0x[0-9a-fA-F]+\b
    | -?(?:inf\b|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)
    | [A-Za-z_][\w.]*
    | @[A-Za-z_][\w.]*
    | [\[\](),:=+*?&]
    | \{.*\}                             # an object of JSON
    | \#.*
    | \Z
    )""",
    re.VERBOSE | re.ASCII,
)
_NAME = re.compile(r"[A-Za-z_]", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,20}|0x[0-9a-fA-F]{1,16}", re.ASCII)
_LONGEST_SHOWN = 60


class Line:
    """The tokens of a line, one after the other. Everything that it does not find as asked for is
    a CompileError with its number."""

    def __init__(self, file: str, number: int, text: str) -> None:
        self._where = f"{file}, line {number}"
        self._text = text
        self._at = 0
        self._token = ""
        self._next()

    def fail(self, message: str) -> NoReturn:
        raise CompileError(f"{self._where}: {message}")

    @property
    def is_empty(self) -> bool:
        return not self._token

    @property
    def is_string(self) -> bool:
        return self._token.startswith('"')

    @property
    def is_number(self) -> bool:
        return self._token[:1].isdigit() or (self._token[:1] == "-" and self._token != "->")

    def is_next(self, token: str) -> bool:
        return self._token == token

    def take(self, token: str) -> bool:
        """Goes on behind `token` if it is next."""
        if self._token != token:
            return False
        self._next()
        return True

    def expect(self, token: str) -> None:
        if not self.take(token):
            self._wanted(repr(token))

    def token(self) -> str:
        """The next token, whatever it is; "" at the end."""
        token = self._token
        self._next()
        return token

    def word(self) -> str:
        """A plain name."""
        if not _NAME.match(self._token):
            self._wanted("a name")
        return self.token()

    def string(self) -> str:
        if not self.is_string:
            self._wanted("a string in double quotes")
        try:
            text = json.loads(self._token)
        except ValueError as error:
            self.fail(f"{self._shown(self._token)} is no string of JSON: {error}")
        self._next()
        return str(text)

    def name(self) -> str:
        """A plain name, or any text as a string."""
        return self.string() if self.is_string else self.word()

    def number(self, least: int, most: int) -> int:
        token = self._token
        if not _INTEGER.fullmatch(token):
            self._wanted("a whole number")
        number = int(token, 0) if token.startswith("0x") else int(token)
        if not least <= number <= most:
            expected = f"from {least} to {most}" if least <= most else "of something that is there"
            self.fail(f"expected a number {expected}, got {number}")
        self._next()
        return number

    def end(self) -> None:
        if self._token:
            self._wanted("the end of the line")

    def end_with(self, value: _Value) -> _Value:
        """`value`, if the line is at its end."""
        self.end()
        return value

    def _next(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            self.fail(f"nothing is written as {self._shown(self._text[self._at :].strip())}")
        self._at = match.end()
        self._token = "" if match[1].startswith("#") else match[1]

    def _wanted(self, what: str) -> NoReturn:
        got = self._shown(self._token) if self._token else "the end of the line"
        self.fail(f"expected {what}, got {got}")

    def _shown(self, text: str) -> str:
        return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}...")


def refuse(lines: Iterable[Line]) -> None:
    """For what has nothing below it."""
    for line in lines:
        line.fail("nothing can stand here: the statement above takes one line")

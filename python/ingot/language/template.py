"""Templates of conversations, which files of language models bring as Jinja: rendered in a sandbox,
with what Hugging Face's libraries add to the language, within limits of time and memory.

Needs the package jinja2.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ingot.hal.errors import InvalidArgument
from ingot.language.bounds import Weigher, bound
from ingot.language.package import package

__all__ = ["render"]

_SECONDS = 10.0
_LENGTH = 1 << 24  # of all texts, lists and integers together that operators make


class _Limits:
    """What a template may still use."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.end, self.left = time.monotonic() + _SECONDS, _LENGTH
        self.weigh = Weigher(given)

    def step(self) -> None:
        """A turn of a loop, or a call."""
        if time.monotonic() > self.end:
            raise RuntimeError(f"it takes longer than {_SECONDS:g} seconds")

    def counted(self, items: Iterable[Any]) -> Iterator[Any]:
        for each in items:
            self.step()
            yield each

    def piece(self, value: Any) -> str:
        """A part of a text that is put together."""
        self.expect(0 if isinstance(value, str) else self.weigh(value).length)
        text = str(value)
        self.take(len(text))
        return text

    def expect(self, length: int) -> None:
        """That a call is about to make as much."""
        if length > self.left:
            self.take(length)

    def begin(self, name: str, given: Sequence[Any], options: Mapping[str, Any]) -> None:
        """A call of this method or filter."""
        self.step()
        self.expect(bound(name, given, options, self.weigh))

    def take(self, length: int) -> None:
        self.left -= length
        if self.left < 0:
            raise RuntimeError(f"its texts are longer than {_LENGTH} characters")

    def lengths(self, *values: Any) -> None:
        """Integers that a call gets: a text may become as long."""
        for each in values:
            if isinstance(each, int) and each > self.left // 8:
                self.take(_LENGTH + 1)

    def made(self, value: Any, of: Iterable[Any]) -> Any:
        """What a call made; texts and lists that it only handed on take nothing."""
        self.step()
        is_sized = isinstance(value, (str, bytes, list, tuple, dict))
        if is_sized and not any(value is each for each in of):
            self.take(len(value))
        return value

    def operate(self, operator: str, left: Any, right: Any) -> None:
        """What an operator makes of two values."""
        self.step()
        a, b = _length(left), _length(right)
        for each in (left, right):
            self.weigh(each)
        if operator == "+":
            self.take(a + b)
        elif isinstance(left, int) and isinstance(right, int):
            self.take(a * abs(right) if operator == "**" else a + b)
        elif operator == "*":
            factor = left if isinstance(left, int) else right
            self.take(max(a, b) * max(factor, 1) if isinstance(factor, int) else 0)


def _length(value: Any) -> int:
    if isinstance(value, int):
        return value.bit_length() // 8 + 1
    return len(value) if hasattr(value, "__len__") else 0


def render(template: str, values: Mapping[str, Any]) -> str:
    """The text of a template, which has the values by name. InvalidArgument: it is no template, it
    refuses the values, or it takes too much."""
    try:
        package("jinja2")
        from ingot.language.sandbox import environment  # needs jinja2

        text: str = environment(_Limits(values)).from_string(template).render(**values)
    except Exception as error:  # whatever the file's template does
        raise InvalidArgument(f"the model's template for conversations: {error}") from None
    return text

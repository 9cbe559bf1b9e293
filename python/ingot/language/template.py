"""Templates of conversations, which files of language models bring as Jinja: rendered in a sandbox,
with what Hugging Face's libraries add to the language, within limits of time and memory.

Needs the package jinja2.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from ingot.hal.errors import InvalidArgument
from ingot.language.package import package

__all__ = ["render"]

_SECONDS = 10.0
_LENGTH = 1 << 24  # of all texts, lists and integers together that operators make


class _Limits:
    """What a template may still use."""

    def __init__(self) -> None:
        self.end, self.left = time.monotonic() + _SECONDS, _LENGTH

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
        text = str(value)
        self.take(len(text))
        return text

    def take(self, length: int) -> None:
        self.left -= length
        if self.left < 0:
            raise RuntimeError(f"its texts are longer than {_LENGTH} characters")

    def operate(self, operator: str, left: Any, right: Any) -> None:
        """What an operator makes of two values."""
        self.step()
        a, b = _length(left), _length(right)
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
        text: str = _environment(_Limits()).from_string(template).render(**values)
    except Exception as error:  # whatever the file's template does
        raise InvalidArgument(f"the model's template for conversations: {error}") from None
    return text


def _environment(limits: _Limits) -> Any:
    jinja2, nodes, sandbox, ext, runtime = map(
        package, ("jinja2", "jinja2.nodes", "jinja2.sandbox", "jinja2.ext", "jinja2.runtime")
    )

    def filtered(node: Any, name: str) -> Any:
        return nodes.Filter(node, name, [], [], None, None)

    class Generation(ext.Extension):  # type: ignore[misc,name-defined]
        """`{% generation %}` marks what the model said, for those who train it."""

        tags = frozenset(("generation",))

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    class Environment(sandbox.ImmutableSandboxedEnvironment):  # type: ignore[misc,name-defined]
        intercepted_binops = frozenset(("+", "*", "**"))

        def _parse(self, *source: Any) -> Any:
            tree = super()._parse(*source)
            for loop in list(tree.find_all(nodes.For)):
                loop.iter = filtered(loop.iter, "counted")
            for joined in list(tree.find_all(nodes.Concat)):
                joined.nodes = [filtered(each, "piece") for each in joined.nodes]
            return tree

        def call(self, context: Any, function: Any, /, *arguments: Any, **options: Any) -> Any:
            limits.step()
            if isinstance(function, runtime.LoopContext) and arguments:  # a loop inside itself
                arguments = (limits.counted(arguments[0]), *arguments[1:])
            return super().call(context, function, *arguments, **options)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            limits.operate(operator, left, right)
            return super().call_binop(context, operator, left, right)

    def refuse(reason: str) -> None:
        raise jinja2.TemplateError(reason)

    made = Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )

    def counted(_: Any, items: Iterable[Any]) -> Iterator[Any]:
        return limits.counted(items)

    def piece(_: Any, value: Any) -> str:
        return limits.piece(value)

    once = jinja2.pass_context  # so that they are not evaluated while the template is read
    made.filters |= {"counted": once(counted), "piece": once(piece), "tojson": _json}
    made.globals |= {"raise_exception": refuse, "strftime_now": _now}
    return made


def _json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As models know it: nothing is escaped for pages."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _now(form: str) -> str:
    return datetime.now().strftime(form)

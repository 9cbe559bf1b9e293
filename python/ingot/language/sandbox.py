"""The environment of templates of conversations: jinja2's sandbox, which asks the limits at each
step. Imported by who renders only, since it needs jinja2.
"""

from __future__ import annotations

import functools
import json
import re
import types
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import ext, nodes, runtime, sandbox, visitor

__all__ = ["environment"]

_LAZY = {"map", "select", "reject", "selectattr", "rejectattr"}
_PASSING = _LAZY | {"default", "d", "format", "round"}  # their integers are no lengths
_WIDE = re.compile(r"\d{6}|%[-+ #0\d]*\.?\*")  # widths of a million, or such as values give


class _Generation(ext.Extension):
    """`{% generation %}` marks what the model said, for those who train it."""

    tags = frozenset(("generation",))  # type: ignore[assignment]

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Slices(visitor.NodeTransformer):
    """Parts of texts and lists count, which the environment is not asked for."""

    def visit_Getitem(self, node: Any) -> Any:  # noqa: N802 - as jinja2 calls it
        node = self.generic_visit(node)
        return _filtered(node, "sliced") if isinstance(node.arg, nodes.Slice) else node


class _Environment(sandbox.ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(("+", "*", "**", "%", "//", "/"))

    def __init__(self, limits: Any) -> None:
        self.limits = limits
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # else what constants make would become code
            extensions=[_Generation, ext.loopcontrols],
        )

    def _parse(self, *source: Any) -> Any:
        tree = super()._parse(*source)
        for loop in list(tree.find_all(nodes.For)):
            loop.iter = _filtered(loop.iter, "counted")
        joins: Any = list(tree.find_all((nodes.Concat, nodes.Output)))
        for joined in joins:
            joined.nodes = [
                each if isinstance(each, nodes.TemplateData) else _filtered(each, "piece")
                for each in joined.nodes
            ]
        for each in list(tree.find_all(nodes.Compare)):
            each.expr = _filtered(each.expr, "weighed")
            for operand in each.ops:
                operand.expr = _filtered(operand.expr, "weighed")
        return _Slices().visit(tree)

    def call(self, context: Any, function: Any, /, *arguments: Any, **options: Any) -> Any:
        self.limits.step()
        if isinstance(function, runtime.LoopContext) and arguments:  # a loop inside itself
            arguments = (self.limits.counted(arguments[0]), *arguments[1:])
        if isinstance(function, types.BuiltinMethodType):
            self.limits.lengths(*arguments, *options.values())
            arguments = self._begun(function, arguments, options)
        elif function is _now:
            self.limits.begin("strftime_now", arguments, options)
        made = super().call(context, function, *arguments, **options)
        return self.limits.made(made, arguments)

    def _begun(self, function: Any, given: tuple[Any, ...], options: Any) -> tuple[Any, ...]:
        """The arguments of a method that may begin; what it would step through is a list."""
        of, name = function.__self__, function.__name__
        if name == "join" and given:
            if not hasattr(given[0], "__len__"):
                given = (list(self.limits.counted(given[0])), *given[1:])
            self.limits.begin(name, (given[0], of), options)
        elif isinstance(of, (str, bytes)):
            self.limits.begin(name, (of, *given), options)
        else:
            for each in (of, *given, *options.values()):
                self.limits.weigh(each)
        return given

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self.limits.operate(operator, left, right)
        if operator == "%" and isinstance(left, (str, bytes)):
            _check_widths(left)
            self.limits.begin("format", (left, right), {})
        made = super().call_binop(context, operator, left, right)
        return self.limits.made(made, (left, right)) if operator == "%" else made

    def wrap_str_format(self, value: Any) -> Any:
        made = super().wrap_str_format(value)
        return made and functools.partial(_formatted, self.limits, value.__self__, made)


def _filtered(node: Any, name: str) -> Any:
    return nodes.Filter(node, name, [], [], None, None)


def _check_widths(form: Any) -> None:
    if isinstance(form, str) and _WIDE.search(form):
        raise RuntimeError("its texts have a width of more than 5 digits, or of any length")


def _formatted(
    limits: Any, form: str, made: Callable[..., Any], *values: Any, **options: Any
) -> Any:
    """What `form.format` makes; no field's width comes from a value."""
    _check_widths(form)
    if re.search(r"\{[^{}]*:[^{}]*\{", form):
        raise RuntimeError("its texts have a width that a value gives")
    limits.begin("format", (form, *values), options)
    return made(*values, **options)


def _guarded(limits: Any, name: str, function: Any) -> Any:
    """A filter whose steps and texts count."""
    first = int(hasattr(function, "jinja_pass_arg"))

    @functools.wraps(function)
    def guarded(*arguments: Any, **options: Any) -> Any:
        given = list(arguments)
        if name == "join" and not hasattr(given[first], "__len__"):
            given[first] = list(limits.counted(given[first]))
        if name == "format":
            _check_widths(given[first])
        limits.begin(name, given[first:], options)
        if name in _LAZY and given[first]:
            given[first] = limits.counted(given[first])
        if name not in _PASSING:
            limits.lengths(*given[first + 1 :], *options.values())
        return limits.made(function(*given, **options), arguments)

    return guarded


def _weighing(limits: Any, test: Any) -> Any:
    """A test, such as whether a value is among others, that walks through no more than it may."""

    @functools.wraps(test)
    def weighing(*arguments: Any) -> Any:
        for each in arguments[int(hasattr(test, "jinja_pass_arg")) :]:
            limits.weigh(each)
        return test(*arguments)

    return weighing


def environment(limits: Any) -> jinja2.Environment:
    """One for a template, which ends when the limits are reached."""
    made = _Environment(limits)

    def counted(_: Any, items: Any) -> Iterator[Any]:
        found: Iterator[Any] = limits.counted(items)
        return found

    def piece(_: Any, value: Any) -> Any:
        return limits.piece(value)

    def weighed(_: Any, value: Any) -> Any:
        limits.weigh(value)
        return value

    def sliced(_: Any, value: Any) -> Any:
        return limits.made(value, ())

    made.filters["tojson"] = _json
    made.tests = {name: _weighing(limits, each) for name, each in made.tests.items()}
    made.filters |= {name: _guarded(limits, name, each) for name, each in made.filters.items()}
    once = jinja2.pass_context  # so that they are not evaluated while the template is read
    made.filters |= {"counted": once(counted), "piece": once(piece), "weighed": once(weighed)}
    made.filters["sliced"] = once(sliced)
    made.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    del made.globals["lipsum"]
    return made


def _refuse(reason: str) -> None:
    raise jinja2.TemplateError(reason)


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
    _check_widths(form)
    return datetime.now().strftime(form)

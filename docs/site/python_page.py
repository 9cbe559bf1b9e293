"""The page of the Python API, from signatures and docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import ingot
from ingot.compiler.frontends.program.caches import Cache, Step
from ingot.compiler.report import Report
from ingot.hal import errors
from ingot.language.batch import Stream
from ingot.language.chances import Token
from ingot.language.sampling import Sampling
from ingot.quantizing.measuring import ResultError
from ingot.quantizing.report import LayerReport, QuantizationReport
from ingot.runtime.program import HostKernel
from ingot.runtime.recorded_call import Outcome
from ingot.runtime.recording import Recording
from ingot.runtime.trace import Trace, TraceEvent

__all__ = ["python_page"]

_FUNCTIONS = "Functions of programs"
SECTIONS: dict[str, tuple[str, ...]] = {
    "Compile": ("compile", "bundle", "Module", "Report"),
    "Quantise": ("quantize", "QuantizedModule", "QuantizationReport", "LayerReport", "ResultError"),
    "Programs in Python": ("program", "trace", "spec", "chain", "lowering", "Program", "Spec"),
    "State": ("state.past_present", "state.carried", "state.named", "state.cache", "Cache", "Step"),
    "Load and call": ("load", "Model", "Function", "Signature", "Value", "Array", "Fence"),
    "Functions of your application": ("Native", "should_stop", "Kernel", "Reference"),
    "Language models": (
        *("generate", "LanguageModel", "LanguageBatch", "EmbeddingModel", "Reranker"),
        *("Stream", "Sampling", "Token", "lora"),
    ),
    "Devices": ("devices", "open_device", "Device", "HostKernel"),
    "Look inside": ("explore", "Trace", "TraceEvent"),
    "Recorded calls": ("read_call", "RecordedCall", "Outcome", "Recording"),
    _FUNCTIONS: tuple(
        f"ops.{name}"
        for name in sorted(ingot.ops.__all__)
        if inspect.isfunction(getattr(ingot.ops, name))
    ),
}
# What calls give or take as keywords, and users do not make.
_CALLS = (HostKernel, Outcome, Recording, Report, Sampling, Stream, Token, Trace, TraceEvent)
_QUANTISED = (LayerReport, QuantizationReport, ResultError)
GIVEN = {each.__name__: each for each in (Cache, Step, *_CALLS, *_QUANTISED)}
MADE = (
    *("LanguageModel", "LanguageBatch", "EmbeddingModel", "Reranker", "Fence"),
    *("Native", "Kernel", "Reference"),
)
"""Classes that users make."""
WIDTH = 90
ITEM = re.compile(r"`\w+`(, `\w+`)*: |[A-Z]\w+(, [A-Z]\w+)*( or [A-Z]\w+)?: ")


def python_page() -> str:
    """Markdown. ValueError: a public name is not on it."""
    classes = [getattr(errors, name) for name in errors.__all__ if name != "error_class"]
    shown = {name.partition(".")[0] for names in SECTIONS.values() for name in names}
    shown |= {each.__name__ for each in classes} | {"__version__"}
    if missing := set(ingot.__all__) - shown:
        raise ValueError(f"docs/site/python_page.py has no place for {', '.join(sorted(missing))}")
    lines = ["# Python API", "", inspect.cleandoc(ingot.__doc__ or "").split("\n\n")[-1]]
    lines += ["", "`ingot.__version__` is the version as text."]
    for title, names in SECTIONS.items():
        anchor = " { #ingot.ops }" if title == _FUNCTIONS else ""
        lines += ["", f"## {title}{anchor}"]
        for name in names:
            lines += _entry(name)
    lines += ["", "## Errors", "", "Each has the status code of the C API as `code`."]
    lines += ["", "| class | code | raised when |", "|---|---|---|"]
    for each in sorted(classes, key=lambda each: (each.code or 0, each is not errors.Error)):
        code = "" if each.code is None else each.code
        lines.append(
            f'| <a id="ingot.{each.__name__}"></a>`{each.__name__}` | {code} | {_text(each)} |'
        )
    return "\n".join(lines) + "\n"


def _entry(name: str) -> Iterator[str]:
    target: Any = ingot
    if name in GIVEN:
        target = GIVEN[name]
    else:
        for part in name.split("."):
            target = getattr(target, part)
    full = name if name in GIVEN else f"ingot.{name}"
    yield from ("", f"### {full} {{ #{full} }}", "")
    if not inspect.isclass(target):
        yield from (*_code(_signature(full, target)), "", *markdown(inspect.getdoc(target)))
        return
    if name in MADE:
        yield from (*_code(_signature(full, target.__init__, is_bound=True)), "")
    yield from markdown(inspect.getdoc(target))
    if dataclasses.is_dataclass(target):
        yield from ("", *_code(_fields(target)))
    for member, value in vars(target).items():
        if member == "__call__" or not member.startswith("_"):
            yield from _member(full, member, value)


def _member(owner: str, name: str, value: Any) -> Iterator[str]:
    if isinstance(value, (property, cached_property)):
        getter = value.func if isinstance(value, cached_property) else value.fget
        kind = inspect.signature(getter).return_annotation  # type: ignore[arg-type]
        text = f"{owner}.{name}: {kind}"
    elif inspect.isfunction(value) or isinstance(value, (staticmethod, classmethod)):
        function = value if inspect.isfunction(value) else value.__func__
        is_bound = not isinstance(value, staticmethod)
        called = owner if name == "__call__" else f"{owner}.{name}"
        text = _signature(called, function, is_bound=is_bound)
    else:
        return
    title, anchor = ("calling it", "calling") if name == "__call__" else (name, name)
    yield from ("", f"#### {title} {{ #{owner}.{anchor} }}", "", *_code(text))
    yield from ("", *markdown(inspect.getdoc(value)))


class _Verbatim:
    """An annotation as the source has it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _signature(name: str, function: Any, *, is_bound: bool = False) -> str:
    """As one would write it; a parameter a line where it is long."""
    signature = inspect.signature(function)
    parameters = [
        each
        if each.annotation is each.empty
        else each.replace(annotation=_Verbatim(each.annotation))
        for each in signature.parameters.values()
    ][int(is_bound) :]
    result = signature.return_annotation
    arrow = "" if result in (signature.empty, "None") else f" -> {result}"
    text = str(signature.replace(parameters=parameters, return_annotation=signature.empty))
    if len(name + text + arrow) <= WIDTH:
        return name + text + arrow
    parts = [
        str(signature.replace(parameters=[each], return_annotation=signature.empty))[1:-1]
        for each in parameters
    ]
    parts = [part.removeprefix("*, ") for part in parts]
    kinds = [each.kind for each in parameters]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        parts.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){arrow}"])


def _fields(target: Any) -> str:
    """The fields of a dataclass with their comments."""
    source = inspect.getsource(target)
    names = "|".join(each.name for each in dataclasses.fields(target))
    return "\n".join(re.findall(rf"^    ((?:{names}): .*)$", source, re.MULTILINE))


def _code(text: str) -> list[str]:
    return ["```py", *text.splitlines(), "```"]


def _text(target: Any) -> str:
    return " ".join((inspect.getdoc(target) or "").split())


def markdown(docstring: str | None) -> list[str]:
    """A docstring's lines, in which what begins with a name and a colon is an item."""
    lines: list[str] = []
    for line in (docstring or "").splitlines():
        if ITEM.match(line):
            if not lines or not lines[-1].startswith(("- ", "  ")):
                lines.append("")
            lines.append(f"- {line}")
        elif lines and line and not line.startswith(" ") and lines[-1].startswith(("- ", "  ")):
            lines.append(f"  {line}")  # goes on with the item
        else:
            lines.append(line)
    return lines

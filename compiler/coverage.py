"""What of a source each target takes, found without building anything: `ingot coverage`.

The front end lists all ops with a survey, which does not end at the first that it refuses. What
can be made of the source then goes through the passes of each target up to its kernels, as loop
IR and OpenCL text; no C compiler runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ingot.compiler import ir
from ingot.compiler.check_program import check_program
from ingot.compiler.dispatch.ops import Call, entries_of
from ingot.compiler.foreign import own_errors
from ingot.compiler.frontends.survey import Survey, Use
from ingot.compiler.graph.level import GRAPH
from ingot.compiler.graph.passes import GRAPH_PASSES
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.verifier import verify
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.pipeline import DISPATCH_PASSES, QUEUE_PASSES
from ingot.compiler.read_source import copy_module, read_source
from ingot.compiler.targets.target import TARGETS, Target, choose_targets, hosted_kernels
from ingot.hal.errors import CompileError

__all__ = ["Coverage", "Row", "survey_source"]

HOST, NO, UNKNOWN, YES = "host", "no", "unknown", "yes"
_SHAPE = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True)
class Row:
    """Uses of one op with operands of one kind. A pattern has `_` for a dim that is a number and
    `?` for one that is known at the call only."""

    op: str
    patterns: tuple[str, ...]
    count: int
    layers: tuple[str, ...]
    takes: Mapping[str, str]  # by target "yes", "host", "no" or "unknown"
    reasons: tuple[str, ...]  # why not, of whichever layers


@dataclass(frozen=True)
class Coverage:
    """`problems` are all that keeps the source from being compiled, a line per cause; `hosted`
    what runs on the host of a target, by target and kernel."""

    rows: tuple[Row, ...]
    problems: tuple[str, ...]
    hosted: Mapping[str, Mapping[str, str]]


def survey_source(
    source: Any,
    targets: Sequence[str] = TARGETS,
    progress: Callable[[str], None] = lambda step: None,
) -> Coverage:
    """What becomes of every op of the source. NotFound, Unsupported, DataLoss: it cannot be read
    at all, or is no source."""
    chosen = choose_targets(targets, None, fallback=True)
    survey = Survey()
    progress("read")
    module, problems = _read(source, survey)
    uses = survey.uses or list(_uses(module))
    problems = [*survey.problems, *problems]
    findings: dict[str, _Finding] = {}
    for target in chosen:
        progress(f"lower for {target.name}")
        findings[target.name] = _examine(module, target)
    for name, finding in findings.items():
        problems += [f"{name}: {each}" for each in finding.problems]
    hosted = {name: finding.hosted for name, finding in findings.items() if finding.hosted}
    return Coverage(tuple(_rows(uses, findings)), tuple(dict.fromkeys(problems)), hosted)


def _read(source: Any, survey: Survey) -> tuple[ir.Module, list[str]]:
    """The graph-level module, which is empty where the front end made none."""
    try:
        module = read_source(source, survey=survey)
        module = copy_module(module) if module is source else module
        check_program(module)
        verify(module, GRAPH)
        for run in GRAPH_PASSES:
            with own_errors(f"compiling ({run.__name__})"):
                module = run(module)
        return module, []
    except CompileError as error:
        if not survey.uses:
            raise
        return ir.Module(), str(error).split("\n  ")[1:] or [str(error)]


def _uses(module: ir.Module) -> Iterator[Use]:
    """Those of a source that is IR already."""
    for function in module.functions.values():
        for op in ir.walk(function):
            if op.name not in ("return", "yield"):
                yield Use(op.name, tuple(str(each.type) for each in op.operands), op.location)


@dataclass(frozen=True)
class _Finding:
    """What a target says: problems, the kernels that its host runs, and by layer what is wrong."""

    problems: Sequence[str] = ()
    hosted: Mapping[str, str] | None = None
    layers: Mapping[str, tuple[str, str]] | None = None  # "host" or "no", and why


def _examine(module: ir.Module, target: Target) -> _Finding:
    """How far the module comes on its way to kernels of the target."""
    if not module.functions:
        return _Finding()
    lowered = copy_module(module)
    try:
        for run in (*(QUEUE_PASSES if target.runs_behind else ()), *DISPATCH_PASSES):
            with own_errors(f"compiling ({run.__name__})"):
                lowered = run(lowered)
    except CompileError as error:
        return _Finding([str(error)])
    problems: dict[str, str] = {}
    kernels: list[Kernel] = []
    hosted: dict[str, str] = {}
    for entry in entries_of(lowered):
        _lower(entry, target, kernels, hosted, problems)
    hosted |= hosted_kernels(target, kernels)
    layers: dict[str, tuple[str, str]] = {}
    for op in ir.walk(lowered):
        name = op.attributes.entry if isinstance(op.attributes, Call) else ""
        if name in hosted or name in problems:
            found = (NO, problems[name]) if name in problems else (HOST, hosted[name])
            layers.update(dict.fromkeys([op.location, *op.location.split(", ")], found))
    return _Finding(list(problems.values()), hosted, layers)


def _lower(
    entry: ir.Function,
    target: Target,
    kernels: list[Kernel],
    hosted: dict[str, str],
    problems: dict[str, str],
) -> None:
    """Notes the kernel of an entry, as the host's where the device has none."""
    variants = [variant.target for variant in target.variants]
    fallback = next((each for each in variants if each.is_fallback), None)
    try:
        made = [lower_entry(entry, each) for each in variants if each is not fallback]
        kernels.append(made[-1])
    except CompileError as error:
        try:
            if fallback is None:
                raise
            lower_entry(entry, fallback)
            hosted[entry.name] = str(error)
        except CompileError:
            problems[entry.name] = str(error)


def _rows(uses: Sequence[Use], findings: Mapping[str, _Finding]) -> Iterator[Row]:
    """Uses by op and pattern: refused ones first, then the most frequent."""
    groups: dict[tuple[str, tuple[str, ...]], list[Use]] = {}
    for use in uses:
        groups.setdefault((use.op, tuple(map(_pattern, use.types))), []).append(use)
    rows = [_row(op, patterns, group, findings) for (op, patterns), group in groups.items()]
    yield from sorted(rows, key=lambda row: (not row.reasons, -row.count))


def _pattern(type: str) -> str:
    if type.endswith("unknown type"):
        return "unknown"

    def dims(match: re.Match[str]) -> str:
        sizes = filter(None, match[1].split(","))
        return f"[{','.join('_' if size.isdecimal() else '?' for size in sizes)}]"

    return _SHAPE.sub(dims, type)


def _row(
    op: str, patterns: tuple[str, ...], uses: Sequence[Use], findings: Mapping[str, _Finding]
) -> Row:
    reasons = dict.fromkeys(use.problem for use in uses if use.problem)
    takes: dict[str, str] = {}
    for target, finding in findings.items():
        states = {_state(use, finding, reasons) for use in uses}
        takes[target] = next(each for each in (NO, UNKNOWN, HOST, YES) if each in states)
    layers = tuple(dict.fromkeys(use.layer for use in uses))
    return Row(op, patterns, len(uses), layers, takes, tuple(reasons))


def _state(use: Use, finding: _Finding, reasons: dict[str, None]) -> str:
    if use.problem:
        return NO
    if not use.is_seen:
        return UNKNOWN
    state, reason = (finding.layers or {}).get(use.layer, (YES, ""))
    if reason:
        reasons.setdefault(reason)
    return state

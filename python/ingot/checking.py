"""`ingot check`: every dispatch of a compiled model against the references of its operations.

The model runs once in its checking form, which gives what each dispatch read and wrote.
Then the NumPy references compute each dispatch again from what it read, so that an error
shows where it is made and nowhere else. At last the model as it is shipped is compared as
a whole with the interpreted source, which finds what no single dispatch can show: a wrong
rewrite, or two values in one place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ingot.checked_run import CheckedRun, Comparison, Difference, relative_error, run_for_checking
from ingot.compiler import compile
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.references.natives import native_functions
from ingot.compiler.read_source import copy_module
from ingot.failing_case import write_case
from ingot.hal.errors import Error
from ingot.runtime.model import Model, load

__all__ = ["CheckReport", "CheckedResult", "Mismatch", "check_model", "compare_model"]


class Mismatch(Error):
    """The compiled model gives something else than its reference."""


def check_model(what: Comparison) -> list[str]:
    """One line per result, and how many dispatches were compared.

    Mismatch: something differs; the message names the first wrong layer.
    """
    report = compare_model(what)
    if report.problem:
        raise Mismatch(report.failure)
    return report.lines()


@dataclass(frozen=True)
class CheckReport:
    """What was compared. `problem` says what is wrong, "" if all agrees; `results` are empty
    where a dispatch differs, for then they do too."""

    compared: int  # dispatches
    uncompared: int  # inside branches and loops
    differences: tuple[Difference, ...]
    results: tuple[CheckedResult, ...] = ()
    case: str = ""  # the command that runs the first one that differs alone
    own: int = 0  # dispatches of kernels of the user's, for which there is no function

    @property
    def problem(self) -> str:
        if self.differences:
            return (
                f"layer '{self.differences[0].layer}' is the first whose dispatch differs from "
                f"its reference, of {len(self.differences)} in {self.summary}"
            )
        for each in self.results:
            if each.is_wrong:
                return (
                    f"{each}; yet every dispatch that was compared agrees with its reference: the "
                    "program was changed on the way, or one inside a branch or loop is wrong"
                )
        return ""

    @property
    def failure(self) -> str:
        """The problem, and every difference."""
        alone = [f"alone: {self.case}"] if self.case else []
        return "\n".join([self.problem, *map(str, self.differences), *alone])

    def lines(self) -> list[str]:
        """One per result, and how many dispatches were compared."""
        return [*map(str, self.results), self.summary]

    @property
    def summary(self) -> str:
        text = f"{self.compared} dispatch{'' if self.compared == 1 else 'es'} compared"
        if self.uncompared:
            text += f", {self.uncompared} inside branches and loops not compared"
        if self.own:
            text += f", {self.own} of your own not compared"
        return text


@dataclass(frozen=True)
class CheckedResult:
    """The largest error of a result, relative to the largest element of its reference."""

    name: str
    error: float
    allowed: float

    @property
    def is_wrong(self) -> bool:
        return self.error > self.allowed

    def __str__(self) -> str:
        relation = "more than" if self.is_wrong else "within"
        return (
            f"result '{self.name}': relative error {self.error:.2g}, {relation} {self.allowed:.2g}"
        )


def compare_model(what: Comparison, case_folder: str | None = None) -> CheckReport:
    """What the dispatches and results of a model are, compared with their references.
    `case_folder` gets the first dispatch that differs as a program of its own."""
    what.progress("import")
    run = run_for_checking(what)
    differences: list[Difference] = []
    compared = [each for each in run.form.dispatches if each.own_kernel in {"", *run.functions}]
    for place, dispatch in enumerate(compared):
        what.progress(f"compare dispatch {place + 1} of {len(compared)}")
        found = run.difference(dispatch, run.references(dispatch), what.tolerance)
        differences += [found] if found else []
    counts = len(compared), run.form.uncompared
    own = len(run.form.dispatches) - len(compared)
    if differences:
        case = write_case(case_folder, run, differences[0].dispatch) if case_folder else ""
        return CheckReport(*counts, tuple(differences), case=case, own=own)
    what.progress("interpret")
    target = what.device.partition(":")[0]
    module = compile(
        run.source,
        target=target,
        parameters=what.kind,
        kernels=what.own.kernels,
        progress=what.progress,
    )
    natives = what.own.functions
    model = load(module, parameters=what.parameters, device=what.device, natives=natives)
    results = _compare_results(model, run, what)
    return CheckReport(*counts, (), tuple(results), own=own)


def _compare_results(model: Model, run: CheckedRun, what: Comparison) -> Iterator[CheckedResult]:
    """The model as it is shipped beside its interpreted source."""
    results = model.functions["main"].tensors(*run.arguments)
    compiled = results if isinstance(results, tuple) else (results,)
    source = eliminate_dead_code(copy_module(run.source))
    with native_functions(run.functions):
        expected = interpret(source, "main", run.arguments, run.weights)
    values = zip(model.signature.results, compiled, expected, strict=True)
    for value, ours, reference in values:
        allowed = what.tolerance_of(value.dtype)
        yield CheckedResult(value.name, _error_of(ours, reference), allowed)


def _error_of(ours: Any, reference: Any) -> float:
    """The largest relative error of a tensor, or of what is a sequence or an optional."""
    if not isinstance(reference, tuple) and reference is not None:
        return float("inf") if ours is None else relative_error(ours.numpy(), reference)
    if ours is None or reference is None or len(ours) != len(reference):
        return 0.0 if ours is reference else float("inf")
    pairs = list(zip(ours, reference, strict=True))
    if any(a.shape != b.shape for a, b in pairs):
        return float("inf")
    return max((relative_error(a.numpy(), b) for a, b in pairs), default=0.0)

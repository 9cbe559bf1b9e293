"""`ingot check`: every dispatch of a compiled model against the references of its operations.

The model runs once in its checking form, which gives what each dispatch read and wrote.
Then the NumPy references compute each dispatch again from what it read, so that an error
shows where it is made and nowhere else. At last the model as it is shipped is compared as
a whole with the interpreted source, which finds what no single dispatch can show: a wrong
rewrite, or two values in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ingot.compiler import compile, ir
from ingot.compiler.checking import CheckingForm, Dispatch, compile_for_checking
from ingot.compiler.frontends.natives import OwnOps
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.forms.round_rows import set_precision
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.references.natives import native_functions
from ingot.compiler.own_kernels import checked_kernels
from ingot.compiler.read_source import copy_module, read_source
from ingot.compiler.reference_bounds import Reference, evaluate_entry
from ingot.failing_case import write_case
from ingot.hal.errors import CompileError, Error, InvalidArgument
from ingot.hal.spec import DType
from ingot.inputs import random_inputs, read_inputs
from ingot.native_file import OwnFile
from ingot.runtime.model import Model, load
from ingot.runtime.signature import Value
from ingot.runtime.tensors import bits_of_input

__all__ = [
    "CheckReport",
    "CheckedResult",
    "CheckedRun",
    "Comparison",
    "Difference",
    "Mismatch",
    "check_model",
    "compare_model",
    "relative_error",
    "run_for_checking",
]

_QUIET = frozenset({"constant", "broadcast", "reshape", "dim", "return"})

_ROUNDED = 0.05  # how far a whole model may be off whose factors have 8 bits

_Array = npt.NDArray[Any]


class Mismatch(Error):
    """The compiled model gives something else than its reference."""


def _say_nothing(_step: str) -> None:
    """No progress is shown."""


@dataclass(frozen=True)
class Comparison:
    """What is compared with references, and how.

    `path` is a source model; `input_texts` and `sizes` are its inputs and dims, as for `ingot run`.
    `tolerance` is the largest difference allowed, relative to the largest element; without it
    dispatches may be as far off as the op table says. `parameters` are external weights, as for
    `ingot.load`; `device` is the URI of the device whose kernels are compared; `outputs` choose
    results as for `ingot.compile`; `own` are native functions, and kernels of the user's, which are
    compared where there is a function of the same name. `precision` is as for `ingot.compile`: a
    dispatch is compared with what it rounds, a result with the source as it is.
    """

    path: str
    input_texts: Sequence[str] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    tolerance: float | None = None
    progress: Callable[[str], None] = _say_nothing
    parameters: Any = None
    device: str = "cpu"
    outputs: Sequence[str] | None = None
    own: OwnFile = field(default_factory=OwnFile)
    precision: str = "f32"

    def tolerance_of(self, dtype: DType) -> float:
        """The largest error of a result, relative to its largest element."""
        if self.tolerance is not None:
            return self.tolerance
        return dtype.tolerance and max(dtype.tolerance, 0 if self.precision == "f32" else _ROUNDED)

    @property
    def own_ops(self) -> OwnOps:
        """As `read_source` takes them."""
        return OwnOps(self.own.declared, checked_kernels(self.own.kernels))

    @property
    def kind(self) -> str:
        """Of the parameters, as for `ingot.compile`."""
        return "embedded" if self.parameters is None else "external"


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


@dataclass(frozen=True, eq=False)
class CheckedRun:
    """A call of a program's checking form: what every value had.

    `arguments` are as the interpreter takes them, `weights` external ones by key, `symbols` the
    sizes of the dims of `main`.
    """

    source: ir.Module
    form: CheckingForm
    arguments: Sequence[Any]
    weights: Mapping[str, _Array]
    arrays: Mapping[ir.Value, _Array]
    symbols: Mapping[str, int]
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def references(self, dispatch: Dispatch) -> list[Reference]:
        """What the references make of what the dispatch read."""
        operands = [self.arrays[value] for value in dispatch.operands]
        sizes = dispatch.symbols(self.symbols)
        with native_functions(self.functions):
            return evaluate_entry(self.form.module, dispatch.entry, operands, sizes)

    def difference(
        self, dispatch: Dispatch, references: Sequence[Reference], tolerance: float | None
    ) -> Difference | None:
        """The largest one of the first result that is not as it should be."""
        for value, reference in zip(dispatch.results, references, strict=True):
            found = _difference(dispatch, value, self.arrays[value], reference, tolerance)
            if found is not None:
                return found
        return None


def run_for_checking(what: Comparison) -> CheckedRun:
    """Compiles the checking form of a source program and calls it."""
    _refuse_module(what.path)
    own, natives = what.own_ops, what.own.functions
    source = read_source(what.path, parameters=what.kind, outputs=what.outputs, own_ops=own)
    set_precision(source, what.precision)
    options: Any = {"target": what.device.partition(":")[0], "parameters": what.kind, "own": own}
    form = compile_for_checking(source, progress=what.progress, **options)
    model = load(form.compiled, parameters=what.parameters, device=what.device, natives=natives)
    arguments = _arguments(model, what.input_texts, what.sizes)
    what.progress("run")
    arrays = _live_arrays(form, model, arguments)
    weights = dict(what.parameters) if isinstance(what.parameters, Mapping) else {}
    weights |= {key: arrays[value] for key, value in form.parameters.items()}
    return CheckedRun(source, form, arguments, weights, arrays, form.symbols(arrays), natives)


def _refuse_module(path: str) -> None:
    """CompileError: `path` is a module file, which has no graph to compare with."""
    if Path(path).is_file():
        with Path(path).open("rb") as file:
            if file.read(5) == b"INGOT":
                raise CompileError(
                    f"'{path}' is a compiled module, which does not carry its source: "
                    "pass the source model that it was compiled from"
                )


def _arguments(model: Model, input_texts: Sequence[str], sizes: Mapping[str, int]) -> list[_Array]:
    """The inputs that are given, and random ones for the rest."""
    inputs: dict[str, Any] = random_inputs(model, model.signature, sizes)
    inputs |= read_inputs(input_texts, model.signature)
    return [_bits(inputs[value.name], value) for value in model.signature.arguments]


def _bits(given: Any, value: Value) -> Any:
    """The argument as the interpreter takes it: an array, a tuple of them, or None."""
    what = f"argument '{value.name}'"
    if given is None and value.kind.startswith("optional"):
        return None
    if not value.kind.endswith("sequence"):
        return bits_of_input(given, value.dtype, what)
    if not isinstance(given, (list, tuple)):
        raise InvalidArgument(f"{what} must be a list of arrays, not {type(given).__name__}")
    return tuple(
        bits_of_input(each, value.dtype, f"element {place} of {what}")
        for place, each in enumerate(given)
    )


# One dispatch after the other.


def _live_arrays(
    form: CheckingForm, model: Model, arguments: Sequence[_Array]
) -> dict[ir.Value, _Array]:
    """What every value has in a call of the checking form."""
    given = form.module.functions["main"].arguments
    results = model(*arguments)
    arrays = results if isinstance(results, tuple) else (results,)
    live = dict(zip(given, arguments, strict=True))
    live.update(zip(form.values, arrays, strict=True))
    return {  # no dispatch reads or writes a sequence
        value: np.asarray(each)
        for value, each in live.items()
        if isinstance(value.type, ir.TensorType)
    }


@dataclass(frozen=True)
class Difference:
    """One result of a dispatch that is not what the references give."""

    dispatch: Dispatch
    result: ir.Value
    size: float
    index: tuple[int, ...]
    got: Any
    expected: Any
    allowed: float

    @property
    def layer(self) -> str:
        return self.dispatch.layer or "without a name"

    def __str__(self) -> str:
        ops = [op.name for op in self.dispatch.entry.block.ops if op.name not in _QUIET]
        names = ", ".join(dict.fromkeys(ops)) or "copy"
        return (
            f"layer '{self.layer}' ({names}) -> {self.result.type}: differs by {self.size:.3g} "
            f"at {list(self.index)}: got {self.got}, expected {self.expected}, "
            f"allowed {self.allowed:.2g}"
        )


def _difference(
    dispatch: Dispatch,
    value: ir.Value,
    ours: _Array,
    reference: Reference,
    tolerance: float | None,
) -> Difference | None:
    """The largest difference of one result; None if all elements are as they should be."""
    if ours.shape != reference.array.shape:
        return Difference(
            dispatch, value, np.inf, (), f"shape {ours.shape}", reference.array.shape, 0.0
        )
    a, b = _widened(ours), _widened(reference.array)
    allowed = reference.allowed if tolerance is None else tolerance * _scale(b)
    with np.errstate(all="ignore"):
        distance = np.abs(a - b)
        distance = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, distance)
        distance = np.where(np.isnan(distance), np.inf, distance).astype(np.float64)
        wrong = distance > allowed
    if not wrong.any():
        return None
    worst = int(np.argmax(np.where(wrong, distance, -1.0)))
    index = tuple(int(each) for each in np.unravel_index(worst, a.shape))
    limit = float(np.broadcast_to(allowed, a.shape)[index])
    got, expected = ours[index], reference.array[index]
    return Difference(dispatch, value, float(distance[index]), index, got, expected, limit)


def _widened(array: _Array) -> _Array:
    """Elements as numbers that can be subtracted; those of 64 bits keep all of them."""
    dtype = DType.from_numpy(array.dtype)
    if dtype.is_complex:
        return array.astype(np.complex128)
    if dtype.is_integer and dtype.bits == 64:
        return array.astype(np.longdouble)
    return array.astype(np.float64)


def _scale(reference: _Array) -> float:
    """The largest finite magnitude, 1 if there is none."""
    magnitude = np.abs(reference)
    finite = magnitude[np.isfinite(magnitude)]
    return float(finite.max()) if finite.size and finite.max() > 0 else 1.0


# The model as a whole.


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


def relative_error(ours: _Array, reference: _Array) -> float:
    """The largest difference, relative to the largest element of the reference."""
    a, b = _widened(ours), _widened(np.asarray(reference))
    with np.errstate(all="ignore"):
        differs = ~((a == b) | (np.isnan(a) & np.isnan(b)))
        if not differs.any():
            return 0.0
        error = float(np.abs(a - b)[differs].max()) / _scale(b)
    return error if np.isfinite(error) else float("inf")

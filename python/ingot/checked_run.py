"""A run of a model for `ingot check`: its checking form is compiled and called once, and gives what
every value had, so that each dispatch is compared with its references by what it read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ingot.compiler import ir
from ingot.compiler.checking import CheckingForm, Dispatch, compile_for_checking
from ingot.compiler.frontends.natives import OwnOps
from ingot.compiler.graph.references.natives import native_functions
from ingot.compiler.own_kernels import checked_kernels
from ingot.compiler.pipeline import Choice
from ingot.compiler.read_source import read_source
from ingot.compiler.reference_bounds import Reference, evaluate_entry
from ingot.hal.errors import CompileError, InvalidArgument
from ingot.hal.spec import DType
from ingot.inputs import random_inputs, read_inputs
from ingot.native_file import OwnFile
from ingot.runtime.model import Model, load
from ingot.runtime.signature import Value
from ingot.runtime.tensors import bits_of_input

__all__ = ["CheckedRun", "Comparison", "Difference", "relative_error", "run_for_checking"]

_QUIET = frozenset({"constant", "broadcast", "reshape", "dim", "return"})

_ROUNDED = 0.05  # how far a whole model may be off whose factors have 8 bits
_OF_PRECISION = {"f32": 0.0, "bf16x3": 1e-3, "bf16x6": 0.0}  # the same of what is not rounded so

_Array = npt.NDArray[Any]


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
        return dtype.tolerance and max(dtype.tolerance, _OF_PRECISION.get(self.precision, _ROUNDED))

    @property
    def own_ops(self) -> OwnOps:
        """As `read_source` takes them."""
        return OwnOps(self.own.declared, checked_kernels(self.own.kernels))

    @property
    def kind(self) -> str:
        """Of the parameters, as for `ingot.compile`."""
        return "embedded" if self.parameters is None else "external"


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
    options: Any = {"target": what.device.partition(":")[0], "parameters": what.kind, "own": own}
    Choice(options["target"]).note_precision(source, what.precision)
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


def relative_error(ours: _Array, reference: _Array) -> float:
    """The largest difference, relative to the largest element of the reference."""
    a, b = _widened(ours), _widened(np.asarray(reference))
    with np.errstate(all="ignore"):
        differs = ~((a == b) | (np.isnan(a) & np.isnan(b)))
        if not differs.any():
            return 0.0
        error = float(np.abs(a - b)[differs].max()) / _scale(b)
    return error if np.isfinite(error) else float("inf")

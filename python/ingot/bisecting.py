"""`ingot bisect`: the error of every layer, against references, another device or another engine.

Two errors are told of each layer. Its *own* is what it makes of what it read, so a layer with a
large one is where something is wrong. The *whole* error is that of its result since the arguments,
so it shows how errors add up, or that none of them matters.

- Against `reference`, a layer is a dispatch; the references compute it again from what it read,
  and once more from what references made of everything before.
- Against a device, the whole error is the distance between what the two devices have; more than a
  result may be off is wrong too. They have dispatches of their own; those with equal layers and
  shapes are compared.
- Against `onnxruntime` or `jax`, a layer is a tensor of the ONNX graph or the StableHLO program,
  and it is the imported program that is compared, by the interpreter: this finds a wrong import,
  the others a wrong compile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ingot.checked_run import CheckedRun, Comparison, relative_error, run_for_checking
from ingot.compiler import ir
from ingot.compiler.checking import Dispatch
from ingot.compiler.graph.interpreter import evaluate_in
from ingot.failing_case import write_case
from ingot.hal.errors import InvalidArgument
from ingot.hal.file_kind import ARTIFACT, ONNX, START_LENGTH, file_kind
from ingot.hal.spec import DType

__all__ = ["Bisection", "LayerError", "bisect_model"]

_Array = npt.NDArray[Any]

_ENGINES = {"onnxruntime": "ONNX file", "jax": "StableHLO artifact"}
"""What they take."""

_SHAPED = frozenset({"constant", "reshape"})
"""What stands between dispatches beside branches, loops and state: ops that move nothing."""


@dataclass(frozen=True)
class LayerError:
    """The errors of one layer, relative to the largest element of what is expected; None: there
    is nothing to compare with. `is_wrong`: its own is more than is allowed."""

    layer: str
    type: str
    own: float | None
    whole: float | None
    is_wrong: bool


@dataclass(frozen=True)
class Bisection:
    """All layers in the order of the program. `case` is the command that runs the first wrong
    one alone, "" if there is none."""

    against: str
    layers: tuple[LayerError, ...]
    case: str = ""

    @property
    def first_wrong(self) -> LayerError | None:
        return next((each for each in self.layers if each.is_wrong), None)

    @property
    def summary(self) -> str:
        """One line."""
        count = f"{len(self.layers)} layer{'' if len(self.layers) == 1 else 's'}"
        first = self.first_wrong
        if first is None:
            return f"all {count} agree with {self.against}"
        wrong = sum(each.is_wrong for each in self.layers)
        return f"layer '{first.layer}' is the first that is wrong, of {wrong} in {count}"

    def lines(self) -> Iterator[str]:
        """A table: own and whole error, what it is, and a mark at what is wrong."""
        yield f"{'own':>8} {'whole':>8}    layer"
        for each in self.layers:
            mark = "*" if each.is_wrong else " "
            yield f"{_shown(each.own):>8} {_shown(each.whole):>8}  {mark} {each.layer} {each.type}"
        if self.first_wrong is None:
            yield self.summary
        if self.case:
            yield f"alone: {self.case}"


def _shown(error: float | None) -> str:
    return "-" if error is None else "0" if error == 0 else f"{error:.1e}"


def bisect_model(
    what: Comparison, against: str = "reference", folder: str | None = None
) -> Bisection:
    """The error of every layer. `against`: "reference", "onnxruntime", "jax", or the URI of another
    device. `folder` gets the first wrong layer as a case of its own.

    InvalidArgument: the engine does not take such a source. Unsupported: it is not installed, or
    does not run the program; there is no such device.
    """
    if against in _ENGINES and _ENGINES[against] != _kind(what.path):
        raise InvalidArgument(
            f"'{what.path}' is no {_ENGINES[against]}, so {against} cannot run it; "
            "--against reference takes any source"
        )
    run = run_for_checking(what)
    if against in _ENGINES:
        what.progress(f"compare with {against}")
        rows = list(_imported(against, what, run))
        return Bisection(against, tuple(rows))
    if against == "reference":
        others = _by_references(run)
    else:
        others = _on_other_device(run, run_for_checking(replace(what, device=against)))
    rows, case = [], ""
    for place, dispatch in enumerate(run.form.dispatches):
        what.progress(f"compare dispatch {place + 1} of {len(run.form.dispatches)}")
        row = _row(run, dispatch, others, what.tolerance, against != "reference")
        if row.is_wrong and folder and not case:
            case = write_case(folder, run, dispatch)
        rows.append(row)
    return Bisection(against, tuple(rows), case)


def _row(
    run: CheckedRun,
    dispatch: Dispatch,
    others: Mapping[ir.Value, _Array],
    tolerance: float | None,
    are_devices: bool,
) -> LayerError:
    references = run.references(dispatch)
    own = _largest(
        (run.arrays[value], reference.array)
        for value, reference in zip(dispatch.results, references, strict=True)
    )
    whole = _largest(
        (run.arrays[value], others[value]) for value in dispatch.results if value in others
    )
    types = ", ".join(str(value.type) for value in dispatch.results)
    is_wrong = run.difference(dispatch, references, tolerance) is not None
    if are_devices and whole is not None:
        is_wrong |= whole > max(
            _allowed(run.arrays[value], tolerance) for value in dispatch.results
        )
    return LayerError(dispatch.layer or dispatch.entry.name, types, own, whole, is_wrong)


def _allowed(array: _Array, tolerance: float | None) -> float:
    return DType.from_numpy(array.dtype).tolerance if tolerance is None else tolerance


def _largest(pairs: Iterator[tuple[_Array, _Array]]) -> float | None:
    errors = [_error(ours, expected) for ours, expected in pairs]
    return max(errors, default=None)


def _error(ours: _Array, expected: _Array) -> float:
    same = ours.shape == expected.shape and ours.dtype == expected.dtype
    return relative_error(ours, expected) if same else math.inf


def _by_references(run: CheckedRun) -> dict[ir.Value, _Array]:
    """What every value would be had references computed all dispatches. What only a device
    computes - branches, loops, lists and state - is as it was."""
    main = run.form.module.functions["main"]
    dispatches = iter(run.form.dispatches)
    values = {value: run.arrays[value] for value in main.arguments if value in run.arrays}
    for op in main.block.ops[:-1]:
        dispatch = next(dispatches) if op.name == "dispatch.call" else None
        results: Sequence[_Array] = ()
        if all(operand in values for operand in op.operands):
            if dispatch is not None and not dispatch.own_kernel:
                results = _results(run, dispatch, [values[each] for each in op.operands])
            elif op.name in _SHAPED:
                results = evaluate_in(run.form.module, op, values, run.symbols)
        values.update(zip(op.results, results, strict=False))
        for value in op.results:
            live = run.arrays.get(value)
            if live is not None and (value not in values or values[value].shape != live.shape):
                values[value] = live
    return values


def _results(run: CheckedRun, dispatch: Dispatch, operands: Sequence[_Array]) -> list[_Array]:
    values = dict(zip(dispatch.entry.arguments, operands, strict=True))
    sizes = dispatch.symbols(run.symbols)
    for op in dispatch.entry.block.ops[:-1]:
        values.update(zip(op.results, evaluate_in(run.form.module, op, values, sizes), strict=True))
    return [values[value] for value in dispatch.entry.block.terminator.operands]


def _on_other_device(run: CheckedRun, other: CheckedRun) -> dict[ir.Value, _Array]:
    """What the other device has for results of dispatches, by layers and shapes, in order."""
    found: dict[Any, list[_Array]] = {}
    for dispatch in other.form.dispatches:
        for value in dispatch.results:
            array = other.arrays[value]
            found.setdefault((dispatch.layer, array.dtype, array.shape), []).append(array)
    values = {}
    for dispatch in run.form.dispatches:
        for value in dispatch.results:
            array = run.arrays[value]
            same = found.get((dispatch.layer, array.dtype, array.shape))
            if same:
                values[value] = same.pop(0)
    return values


def _kind(path: str) -> str:
    """What an engine calls a source."""
    with Path(path).open("rb") as file:
        start = file.read(START_LENGTH)
    kind = file_kind(start, Path(path).name)
    if kind is None or kind is ONNX:  # as they are read
        return "ONNX file"
    return "StableHLO artifact" if kind is ARTIFACT else "known source"


def _imported(against: str, what: Comparison, run: CheckedRun) -> Iterator[LayerError]:
    if against == "jax":
        from ingot import jax_peer

        tensors = jax_peer.compare_import(what.path, run.arguments)
    else:
        from ingot import onnx_peer

        tensors = onnx_peer.compare_import(
            what.path, run.source, run.arguments, run.weights, what.outputs
        )
    for tensor in tensors:
        own = _error(tensor.own, tensor.expected)
        shape = ",".join(map(str, tensor.expected.shape))
        dtype = DType.from_numpy(tensor.expected.dtype)
        whole = _error(tensor.whole, tensor.expected)
        is_wrong = own > _allowed(tensor.expected, what.tolerance)
        yield LayerError(tensor.name, f"{dtype.name}[{shape}]", own, whole, is_wrong)

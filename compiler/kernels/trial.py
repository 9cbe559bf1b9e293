"""Trials: one small run per kernel, by which a device's compiler is tested.

When a program is first made ready on a device, its driver runs each kernel once on small
random data and compares what it wrote with what plain C writes. Here is decided at which
sizes and on which data. A kernel whose program is static runs at those sizes, unless that
takes too long: then it has no trial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import cast

from ingot.compiler.dispatch.collect_checks import collect_checks
from ingot.compiler.dispatch.level import DISPATCH
from ingot.compiler.graph.ops import Gather, Scatter, Take
from ingot.compiler.graph.symbols import substitute_symbols
from ingot.compiler.ir import (
    Function,
    Module,
    Op,
    TensorType,
    Value,
    clone_region,
    tensor_type,
    verify,
    walk,
)
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Call, Dim, evaluate, known_dims
from ingot.compiler.kernels.kernel import Kernel
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType

__all__ = ["Trial", "TrialBinding", "plan_trial"]

_MOST_FLOPS = 1 << 26  # of one trial; plain C takes 50 ms for them
_MOST_BYTES = 1 << 26  # of all bindings of one trial
_SIZES: tuple[tuple[int, ...], ...] = (
    (131, 35, 19, 13, 11, 9),
    (5, 6, 7, 9, 10, 11),
    *((size,) for size in (64, 128, 256, 16, 32, 8, 2, 1)),
)
"""Numbers for the symbols of an entry, tried in this order: the first that fit are taken.
Different ones first, which show mixed-up dims and tails; large ones first, which fill tiles."""

_POSITIVE = frozenset({"log", "log1p", "sqrt", "rsqrt", "pow", "div", "acosh"})
"""Entries with one of these are tested away from their singular points."""


@dataclass(frozen=True)
class TrialBinding:
    """What a binding holds before the run, and how it is compared after it if it is written.

    `fill` is "zero", "uniform" (floats in [-1, 1), booleans, small integers), "index"
    (integers in [0, bound)) or "positive" (floats in [0.5, 1.5), integers in [1, 8)).
    """

    length: int  # bytes
    dtype: DType
    fill: str
    bound: int = 1
    tolerance: float = 0.0  # |a - b| <= tolerance * max(1, |a|, |b|); below 0: not compared


@dataclass(frozen=True)
class Trial:
    """One call of a kernel: numbers in the order of the kernel's constants and bindings."""

    workload: tuple[int, int, int]
    constants: tuple[int, ...]
    bindings: tuple[TrialBinding, ...]


def plan_trial(entry: Function, kernel: Kernel) -> Trial | None:
    """The trial of an entry's kernel; None where no small call of it is known to be valid."""
    if any(op.name == "locate_true" for op in walk(entry)):
        return None  # its operands must fit each other
    for sizes in _SIZES if entry.symbols else ((),):
        values = _values(entry, sizes)
        if values is None:
            continue
        trial = _trial_at(entry, kernel, values)
        if trial is not None:
            return trial
    return None


def _values(entry: Function, sizes: tuple[int, ...]) -> dict[str, int] | None:
    """Numbers for the entry's symbols, within their bounds; None if there are too few."""
    if len(sizes) > 1 and len(entry.symbols) > len(sizes):
        return None
    values: dict[str, int] = {}
    for place, (name, (low, high)) in enumerate(entry.symbols.items()):
        size = max(sizes[place % len(sizes)], low)
        values[name] = size if high is None else min(size, high)
    return values


def _trial_at(entry: Function, kernel: Kernel, values: Mapping[str, int]) -> Trial | None:
    """The trial at these sizes; None if they do not fit each other, or are too large."""
    static = _at(entry, values)
    if static is None:
        return None
    try:
        outside = (*entry.arguments, *entry.block.terminator.operands)
        shapes = (dim for value in outside for dim in tensor_type(value).shape)
        dims = (*kernel.constants, *kernel.workload, *shapes)
        if not all(_broadcasts(dim, values) for dim in dims):
            return None
        workload = tuple(evaluate(dim, values) for dim in kernel.workload)
        constants = tuple(evaluate(dim, values) for dim in kernel.constants)
        flops = evaluate(kernel.flops, values)
        bindings = _bindings(static, kernel, values)
    except (ZeroDivisionError, ValueError):  # dims that do not divide or broadcast
        return None
    length = sum(each.length for each in bindings)
    is_small = flops <= _MOST_FLOPS and length <= _MOST_BYTES
    runs = all(size > 0 for size in workload) and all(each.length > 0 for each in bindings)
    if not (is_small and runs):
        return None
    return Trial(cast("tuple[int, int, int]", workload), constants, tuple(bindings))


def _broadcasts(dim: Dim, values: Mapping[str, int]) -> bool:
    """Whether all dims that broadcast in this one do so at these sizes."""
    if isinstance(dim, int):
        return True
    calls = (atom for monomial, _ in dim.terms for atom, _ in monomial if isinstance(atom, Call))
    for call in calls:
        sizes = {evaluate(each, values) for each in call.operands} - {1}
        if call.function == "broadcast" and len(sizes) > 1:
            return False
        if not all(_broadcasts(each, values) for each in call.operands):
            return False
    return True


def _at(entry: Function, values: Mapping[str, int]) -> Function | None:
    """The entry with numbers for its symbols; None if a call with these would be refused."""
    if not entry.symbols:
        return entry
    static = replace(entry, body=clone_region(entry.body, {}), symbols={})
    try:
        substitute_symbols(static, values)
        module = Module()
        module.add(static)
        verify(module, DISPATCH)
        checked = collect_checks(module).functions[static.name]
    except (CompileError, ZeroDivisionError, ValueError):
        return None
    return static if checked.attributes is static.attributes else None


def _bindings(static: Function, kernel: Kernel, values: Mapping[str, int]) -> list[TrialBinding]:
    bounds = dict(_index_bounds(static))
    names = {op.name for op in walk(static)}
    floats = "positive" if names & _POSITIVE else "uniform"
    found: list[TrialBinding] = []
    for value in static.arguments:
        type = tensor_type(value)
        if value in bounds:
            found.append(TrialBinding(_length(type, values), type.dtype, "index", bounds[value]))
        else:
            fill = floats if type.dtype.is_float else "uniform"
            found.append(TrialBinding(_length(type, values), type.dtype, fill))
    for result in static.block.terminator.operands:
        type = tensor_type(result)
        length, tolerance = _length(type, values), type.dtype.tolerance
        found.append(TrialBinding(length, type.dtype, "zero", tolerance=tolerance))
    for type in kernel.workspaces:
        found.append(TrialBinding(_length(type, values), type.dtype, "zero", tolerance=-1))
    return found


def _length(type: TensorType, values: Mapping[str, int]) -> int:
    """The tensor's bytes."""
    return prod(evaluate(dim, values) for dim in type.shape) * type.dtype.bytes


# Indices: arguments that must stay below a dim.


def _index_bounds(entry: Function) -> Iterator[tuple[Value, int]]:
    """The integer arguments of an entry that computes with indices, and their bound: every
    one of them stays inside every dim that is indexed."""
    extents = [each for op in walk(entry) for each in _indexed_extents(op)]
    if not extents:
        return
    bound = max(min(extents), 1)
    for value in entry.arguments:
        dtype = tensor_type(value).dtype
        if dtype.is_integer and not dtype.is_boolean:
            yield value, bound


def _indexed_extents(op: Op) -> Iterator[int]:
    """How many values each index of the op may take."""
    if op.name not in ("take", "gather", "scatter", "dynamic_slice", "dynamic_update_slice"):
        return
    shape = known_dims(tensor_type(op.operands[0]).shape)
    match op.attributes:
        case Take(axis=axis):
            yield shape[axis]
        case Gather(start_index_map=indexed, slice_sizes=sizes):
            for dim in indexed:
                yield shape[dim] - known_dims(sizes)[dim] + 1
        case Scatter(scatter_dims_to_operand_dims=indexed, inserted_window_dims=inserted):
            for dim in indexed:
                yield shape[dim] if dim in inserted else 1
        case _:
            part = op.operands[1] if op.name == "dynamic_update_slice" else op.result
            sizes = known_dims(tensor_type(part).shape)
            yield from (whole - size + 1 for whole, size in zip(shape, sizes, strict=True))

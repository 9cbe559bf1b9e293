"""Makes the report of what was compiled for one target."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from ingot.compiler import ir
from ingot.compiler.graph.forms.round_rows import AS_FLOATS
from ingot.compiler.graph.init_functions import is_init
from ingot.compiler.graph.ops import Size
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.report import DispatchReport, FunctionReport, TargetReport
from ingot.compiler.stream.allocation import Allocation
from ingot.compiler.stream.ops import Dispatch, PlannedFunction
from ingot.compiler.vm.build_module import TargetCode

__all__ = ["kernel_kind", "report_target"]

_CLASS = re.compile("^(Gpu|Group)|Schedule$")
_WORD = re.compile("(?<=[a-z])(?=[A-Z])")


def report_target(
    code: TargetCode, allocations: Mapping[str, Sequence[Allocation]], host: Mapping[str, str]
) -> TargetReport:
    """`allocations` are what the slab of each function held, `host` the kernels that the host
    runs for the device, with reasons."""
    kinds = {name: kernel_kind(kernel) for name, kernel in code.kernels.items()}
    functions = {
        name: FunctionReport(
            tuple(_dispatches(function, kinds)),
            PlannedFunction.of(function).slab_length,
            tuple(allocations[name]),
            {**function.symbols, **_defined(function)},
            is_init(name),
        )
        for name, function in code.planned.functions.items()
    }
    lengths = {variant.name: 0 for variant in code.variants if code.executables}
    for executable in code.executables:
        for variant, data in zip(executable.variants, executable.objects, strict=True):
            lengths[variant.name] += len(data)
    floats = cast(tuple[str, ...], code.entries.attributes.get(AS_FLOATS, ()))
    return TargetReport(functions, Counter(kinds.values()), lengths, host, floats)


def kernel_kind(kernel: Kernel) -> str:
    """The class of the kernel's schedule, on every target alike: "few_rows"."""
    return _WORD.sub("_", _CLASS.sub("", type(kernel.schedule).__name__)).lower()


def _dispatches(function: ir.Function, kinds: Mapping[str, str]) -> Iterator[DispatchReport]:
    for op in ir.walk(function):
        if op.name == "stream.dispatch":
            entry, call = Dispatch.of(op).entry, Dispatch.of(op).call
            yield DispatchReport(entry, kinds[entry], op.location, call.flops, call.bytes)


def _defined(function: ir.Function) -> dict[str, tuple[int, int | None]]:
    """The bounds of symbols that data defines, where an op says them."""
    found: dict[str, tuple[int, int | None]] = {}
    for op in ir.walk(function):
        if isinstance(op.attributes, Size) and isinstance(op.attributes.high, int):
            low, high = op.attributes.low, op.attributes.high
            bounds = (low if isinstance(low, int) else 0, high)
            found.update(dict.fromkeys(op.attributes.symbols, bounds))
    return found

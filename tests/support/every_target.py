"""The targets that a kernel class has schedules for, so that one test checks both: the lanes of
the CPU's vectors, and the work items of OpenCL with the plain C beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from ingot.compiler.ir import Function
from ingot.compiler.kernels.classes import kernel_class, lower_entry
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.targets.cpu.own_printer import print_kernel
from tests.support import entries, kernel_runner, work_items

__all__ = ["CPU", "OPENCL", "Target", "on_every_target", "on_targets"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Target:
    """The CPU, or OpenCL, which has work items."""

    name: str
    has_items: bool

    def __str__(self) -> str:
        return self.name

    def lower(self, function: Function) -> Kernel:
        """The kernel of an entry for the best variant."""
        return lower_entry(function, work_items.LARGE if self.has_items else kernel_runner.V4)

    def check(
        self,
        function: Function,
        operands: Sequence[Array] | None = None,
        tolerance: float = 3e-6,
        one: bool = False,
        **symbols: int,
    ) -> None:
        """Assert that all variants, or `one`, give what the interpreter of graph IR gives, on
        random operands if none."""
        if self.has_items:
            targets = [work_items.LARGE] if one else [work_items.LARGE, work_items.SMALL]
            work_items.check(function, lower_entry, operands, tolerance, targets, **symbols)
        else:
            check_words(function)
            variants = ["x86-64"] if one else None
            entries.check(function, lower_entry, operands, variants, tolerance, **symbols)

    def fault(
        self,
        function: Function,
        operands: Sequence[Array],
        results: Sequence[Array],
        **symbols: int,
    ) -> tuple[int, int, int] | None:
        """The (operand, index, bound) that a call reports, if any."""
        kernel = self.lower(function)
        if self.has_items:
            return work_items.run(kernel, operands, results, **symbols)
        try:
            kernel_runner.run(kernel, operands, results, **symbols)
        except kernel_runner.IndexFault as fault:
            return fault.args[0]
        return None


@lru_cache(maxsize=1)
def check_words(function: Function) -> None:
    """Assert that a class whose kernels variants share does not ask what products of words they
    have."""
    found = kernel_class(function)
    if found is None or found.in_words:
        return
    variants = (replace(kernel_runner.V4, dot4=each, dot2=each) for each in (False, True))
    a, b = (print_kernel(lower_entry(function, each)).text for each in variants)
    assert a == b, found.name


CPU, OPENCL = Target("cpu", has_items=False), Target("opencl", has_items=True)


def on_targets(names: str, cpu: Iterable[Any], opencl: Iterable[Any]) -> pytest.MarkDecorator:
    """Runs a test for cases of each target, which are tuples of what `names` says: the argument
    `target` and these."""
    cases = [pytest.param(CPU, *case) for case in cpu]
    cases += [pytest.param(OPENCL, *case, marks=work_items.needs_device) for case in opencl]
    return pytest.mark.parametrize(f"target, {names}".split(", "), cases, ids=str)


on_every_target = pytest.mark.parametrize(
    "target", [CPU, pytest.param(OPENCL, marks=work_items.needs_device)], ids=str
)
"""Runs a test once per target, which it takes as the argument `target`."""

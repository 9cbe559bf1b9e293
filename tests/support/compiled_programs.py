"""Programs for end-to-end tests: built once, compiled once, run at drawn shapes.

`Program` compiles a graph for this machine and compares calls on all its devices with the
interpreter, which is the oracle; it says nothing of how fast anything is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import ingot
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Literal, Module, TensorType, Value, Variable, clone_region
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype
from tests.support.assembly import assert_assembles
from tests.support.devices import best_variant, load_everywhere, targets
from tests.support.programs import program
from tests.support.results import arrays_of, assert_same

__all__ = ["Program", "build"]

Array = np.ndarray[Any, Any]
Shape = tuple[Dim, ...]


def build(
    make: Callable[..., Sequence[Value]],
    *arguments: tuple[str, Shape],
    symbols: dict[str, tuple[int, int | None]] | None = None,
    variables: Mapping[str, tuple[TensorType, Any]] | None = None,
) -> Module:
    """A module whose `main` takes tensors of (dtype, shape) and returns what `make` returns.
    `variables`: the type and the first value of each."""
    types = [TensorType(dtype(name), shape) for name, shape in arguments]
    held = {
        name: Variable(type, Literal(np.asarray(initial), type.dtype))
        for name, (type, initial) in (variables or {}).items()
    }
    return program(make, *types, symbols=symbols, variables=held)


class Program:
    """A compiled module beside the graph that it came from, on the CPU and on OpenCL."""

    def __init__(self, module: Module, **options: Any) -> None:
        self.reference = Module()
        for function in module.functions.values():
            self.reference.add(replace(function, body=clone_region(function.body, {})))
        options = {"variants": [best_variant()], **options}
        self.module = ingot.compile(module, target=targets(), **options)
        assert_assembles(bytes(self.module))
        self.models = load_everywhere(self.module)
        self.model = self.models["cpu"]

    @property
    def dispatches(self) -> int:
        """Kernels that one call queues."""
        return self.module.report.dispatches["main"]

    def call(self, *arrays: Array, target: str = "cpu") -> list[Array]:
        """The results of the compiled module."""
        return arrays_of(self.models[target](*arrays))

    def check(self, *arrays: Array, tolerance: float = 0.0, atol: float = 0.0) -> None:
        """Compare with the interpreter: exactly, or to a relative `tolerance`."""
        with np.errstate(all="ignore"):
            expected = interpret(self.reference, "main", arrays)
        for target in self.models:
            found = self.call(*arrays, target=target)
            for place, (got, wanted) in enumerate(zip(found, expected, strict=True)):
                what = f"result {place} on {target}"
                assert_same(got, wanted, tolerance, atol, what)

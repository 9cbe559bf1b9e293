"""A kernel's contract as the steps of an OpenCL object, which the driver computes at each
dispatch: `ingot_opencl_step_t` of `csrc/include/ingot/opencl_object.h`."""

from __future__ import annotations

from typing import Any

from ingot.compiler.kernels.contract_steps import Number, contract_steps
from ingot.compiler.kernels.kernel import Kernel
from ingot.hal.errors import CompileError
from ingot.hal.spec import layout

__all__ = ["misfit_steps"]


def misfit_steps(kernel: Kernel) -> list[dict[str, Any]]:
    """The rows of the kernel's steps. CompileError: there are more values than drivers take."""
    constants = layout().constants
    first = {"length": 0, "constant": len(kernel.bindings)}
    first["workload"] = first["constant"] + len(kernel.constants)
    count = first["workload"] + 3
    rows: list[dict[str, Any]] = []
    places: dict[Number, int] = {}

    def add(function: str, a: int, b: int) -> None:
        code = constants[f"INGOT_OPENCL_STEP_{function.upper()}"]
        rows.append({"function": code, "a": a, "b": b})

    def place(number: Number) -> int:
        nonlocal count
        if number.kind in first:
            return first[number.kind] + number.value
        if number not in places:  # a literal: steps stand before those that use them
            add("number", 0, number.value)
            places[number], count = count, count + 1
        return places[number]

    for ordinal, step in enumerate(contract_steps(kernel)):
        add(step.function, place(step.a), place(step.b))
        if not step.is_test:
            places[Number("step", ordinal)], count = count, count + 1
    if count > constants["INGOT_OPENCL_MAX_VALUES"]:
        raise CompileError(
            f"checking its sizes takes {count} numbers, an OpenCL driver takes "
            f"{constants['INGOT_OPENCL_MAX_VALUES']}"
        )
    return rows

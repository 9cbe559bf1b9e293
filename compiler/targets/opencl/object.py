"""The object of the "opencl-c" variant: what the driver must know of each kernel, and the
OpenCL C source of all of them. Its layout is `csrc/include/ingot/opencl_object.h`.

A kernel that cannot be printed is left out and marked: the host runs its C variant instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.trial import Trial
from ingot.compiler.targets.opencl.misfit_steps import misfit_steps
from ingot.compiler.targets.opencl.opencl_printer import PrintedKernel, aligned, print_kernel
from ingot.compiler.targets.opencl.prelude import Prelude, guard_f64
from ingot.hal.errors import CompileError
from ingot.hal.spec import layout

__all__ = ["OpenclObject", "build_object", "print_source"]

_HEAD = """#ifndef INGOT_INDEX
#define INGOT_INDEX int
#endif
typedef INGOT_INDEX index_t;
#ifdef INGOT_OPENCL_FP64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#ifdef INGOT_OPENCL_FP16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif
#ifdef __opencl_c_integer_dot_product_input_4x8bit_packed
#pragma OPENCL EXTENSION cl_khr_integer_dot_product : enable
#endif
#pragma OPENCL FP_CONTRACT OFF
"""


@dataclass(frozen=True)
class OpenclObject:
    """The bytes of an object, and the kernels that it does not have."""

    data: bytes
    host: Mapping[str, str]  # name of a kernel -> why the host runs it


def build_object(
    kernels: Sequence[Kernel], trials: Mapping[str, Trial] | None = None
) -> OpenclObject:
    """The object of these kernels, in the order of the module's entries; `trials` by kernel
    name. Equal kernels and trials give equal bytes."""
    prelude = Prelude()
    printed: dict[str, PrintedKernel] = {}
    steps: dict[str, list[dict[str, Any]]] = {}
    host = {kernel.name: kernel.host for kernel in kernels if kernel.host}
    for kernel in kernels:
        if not kernel.host:
            try:
                steps[kernel.name] = misfit_steps(kernel)
                printed[kernel.name] = _print(kernel, prelude)
            except CompileError as error:
                host[kernel.name] = str(error)
    writer = _Writer()
    for kernel in kernels:
        if kernel.name in printed:
            trial = (trials or {}).get(kernel.name)
            writer.entry(kernel, printed[kernel.name], steps[kernel.name], trial)
        else:
            writer.entry(kernel, None, [], None)
    return OpenclObject(writer.finish(_source(prelude, printed.values())), host)


def print_source(kernels: Sequence[Kernel]) -> str:
    """The OpenCL C text of kernels. CompileError: one of them cannot be printed."""
    prelude = Prelude()
    return _source(prelude, [_print(kernel, prelude) for kernel in kernels])


def _print(kernel: Kernel, prelude: Prelude) -> PrintedKernel:
    """The kernel's text; what it calls is in the prelude from now on."""
    printed = print_kernel(kernel)
    for name in printed.functions:
        prelude.need(name)
    return printed


def _source(prelude: Prelude, kernels: Iterable[PrintedKernel]) -> str:
    printed = list(kernels)
    own = dict.fromkeys(each.own for each in printed if each.own)
    bodies = [guard_f64(each.text) if each.has_f64 else each.text for each in printed]
    return "\n".join([_HEAD, prelude.text(), *own, *bodies])


@dataclass
class _Writer:
    """The rows of the object's tables, in the order of its entries."""

    entries: list[dict[str, Any]] = field(default_factory=list)
    bindings: list[dict[str, Any]] = field(default_factory=list)
    tests: list[dict[str, Any]] = field(default_factory=list)
    test_bindings: list[dict[str, Any]] = field(default_factory=list)
    test_constants: list[int] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)

    def entry(
        self,
        kernel: Kernel,
        printed: PrintedKernel | None,
        steps: Sequence[dict[str, Any]],
        trial: Trial | None,
    ) -> None:
        """One kernel; `printed` is None for one that the host runs."""
        constants = layout().constants
        self.entries.append(
            {
                "features": constants["INGOT_OPENCL_FP64"] if printed and printed.has_f64 else 0,
                "flags": 0 if printed else constants["INGOT_OPENCL_HOST"],
                "binding_count": len(kernel.bindings),
                "first_binding": len(self.bindings),
                "constant_count": len(kernel.constants),
                "tile": list(kernel.tile),
                "local_size": list(kernel.local_size),
                "step_count": len(steps),
                "written": kernel.written,
                "local_length": aligned(kernel.local_length),
                "scratch_length": aligned(kernel.scratch_length),
            }
        )
        self.steps += steps
        self.bindings += [
            {"element_length": element.bytes, "alignment": alignment}
            for element, alignment in zip(kernel.bindings, kernel.alignments, strict=True)
        ]
        if trial is not None:
            self._test(len(self.entries) - 1, trial)

    def _test(self, entry: int, trial: Trial) -> None:
        self.tests.append(
            {
                "entry": entry,
                "first_binding": len(self.test_bindings),
                "first_constant": len(self.test_constants),
                "workload": list(trial.workload),
            }
        )
        self.test_constants += trial.constants
        constants = layout().constants
        for each in trial.bindings:
            self.test_bindings.append(
                {
                    "length": each.length,
                    "dtype": each.dtype.code,
                    "fill": constants[f"INGOT_OPENCL_FILL_{each.fill.upper()}"],
                    "bound": each.bound,
                    "tolerance": each.tolerance,
                }
            )

    def finish(self, source: str) -> bytes:
        """The whole object."""
        known = layout()
        text = source.encode()
        tables = {
            "entry": known.pack("ingot_opencl_entry_t", self.entries),
            "binding": known.pack("ingot_opencl_binding_t", self.bindings),
            "test": known.pack("ingot_opencl_test_t", self.tests),
            "test_binding": known.pack("ingot_opencl_test_binding_t", self.test_bindings),
            "test_constant": b"".join(
                each.to_bytes(8, "little", signed=True) for each in self.test_constants
            ),
            "source": text,
            "step": known.pack("ingot_opencl_step_t", self.steps),
        }
        header: dict[str, Any] = {
            "magic": list(known.constants["INGOT_OPENCL_OBJECT_MAGIC"]),
            "version": known.constants["INGOT_OPENCL_OBJECT_VERSION"],
            "entry_count": len(self.entries),
            "binding_count": len(self.bindings),
            "test_count": len(self.tests),
            "test_binding_count": len(self.test_bindings),
            "test_constant_count": len(self.test_constants),
            "source_length": len(text),
            "step_count": len(self.steps),
        }
        offset = known.size("ingot_opencl_header_t")
        parts = []
        for name, data in tables.items():
            header[f"{name}_offset"] = offset
            parts.append(data + bytes(-len(data) % 8))
            offset += len(parts[-1])
        return known.pack("ingot_opencl_header_t", [header]) + b"".join(parts)

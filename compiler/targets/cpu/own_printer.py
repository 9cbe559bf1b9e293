"""Kernels as C functions: those of loop IR, and those around what a user has written."""

from __future__ import annotations

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.kernel import Kernel, OwnSchedule, checked_name
from ingot.compiler.targets.cpu import c_printer
from ingot.compiler.targets.cpu.c_printer import PrintedKernel, prototype
from ingot.compiler.targets.cpu.c_text import MEMORY_TYPES

__all__ = ["OwnPrinted", "print_kernel"]


@dataclass(frozen=True)
class OwnPrinted(PrintedKernel):
    """With text of a user, which is to be in a file of its own."""


def print_kernel(kernel: Kernel) -> PrintedKernel:
    """The C function of one kernel."""
    if kernel.own is None:
        return c_printer.print_kernel(kernel)
    return OwnPrinted(_own_text(kernel, kernel.own), {}, frozenset(), {})


def _own_text(kernel: Kernel, own: OwnSchedule) -> str:
    """The user's function, under a name that no other has, and the kernel around it."""
    arguments = []
    for ordinal, place in enumerate(own.places):
        const = "const " * (ordinal < own.operand_count)
        element = MEMORY_TYPES[kernel.bindings[place].name]
        arguments.append(f"({const}{element} *)dispatch->bindings[{place}]")
    arguments += [
        f"INT64_C({dim})"
        if isinstance(dim, int)
        else f"dispatch->constants[{kernel.constants.index(dim)}]"
        for dim in own.symbols
    ]
    arguments += ["x", "y", "z"][: own.axes]
    entry, name = checked_name(own.entry), checked_name(kernel.name)
    return (
        f"#define {entry} {name}_own\n{own.source}\n"
        f"{prototype(name)};\n{prototype(name)} {{\n"
        "  (void)dispatch, (void)x, (void)y, (void)z, (void)scratch, (void)fault;\n"
        f"  {entry}({', '.join(arguments)});\n  return 0;\n}}\n#undef {entry}\n"
    )

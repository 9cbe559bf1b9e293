"""A file of C: printed kernels, what they need of the headers, and functions that they share."""

from __future__ import annotations

from collections.abc import Iterable

from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.kernels.kernel import checked_name
from ingot.compiler.targets.cpu.headers import read_header

__all__ = ["PrintedKernel", "print_source", "prototype"]

_PROTOTYPE = """uint32_t INGOT_KERNEL_CALL
{name}(const ingot_kernel_dispatch_t *dispatch, int64_t x, int64_t y, int64_t z, void *scratch,
    ingot_kernel_fault_t *fault)"""


def prototype(name: str) -> str:
    """The C declaration of a kernel's function, without a semicolon."""
    return _PROTOTYPE.format(name=checked_name(name))


# What INGOT_USE_ of kernel.h is said of: elements, also with a number of lanes, and words.
_ELEMENTS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f64", "i1", "f16", "bf16")
_WORDS = ("convert", "packed", "reduce", "rem")
_OWN_HEADERS = ("code", "dot2", "dot4", "half2", "table4")
"""Parts that have a header of their own."""
_HEADERS = ("kernel_vector.h", "kernel_arithmetic.h", "kernel_rounding.h")


@dataclass(frozen=True)
class PrintedKernel:
    """The function of a kernel, and what it needs: of the headers, and of the math library."""

    text: str
    headers: dict[int, int]  # by lanes, how many of _HEADERS
    parts: frozenset[str]  # those of `read_header`
    functions: dict[str, str]  # text by name, those that others call first


def print_source(kernels: Iterable[PrintedKernel]) -> str:
    """A whole C file with these kernels."""
    bodies: list[str] = []
    functions: dict[str, str] = {}
    headers: dict[int, int] = {}
    used: set[str] = set()
    for kernel in kernels:
        bodies.append(kernel.text)
        functions |= kernel.functions
        used |= kernel.parts
        for lanes, count in kernel.headers.items():
            headers[lanes] = max(count, headers.get(lanes, 0))
    suffixes = ["", *(f"x{lanes}" for lanes in sorted(headers))]
    parts = [each + suffix for suffix in suffixes for each in _ELEMENTS]
    lines = [f"#define INGOT_USE_{part} {int(part in used)}" for part in (*_WORDS, *parts)]
    lines.append(read_header("kernel.h", used))
    if "tiles" in used:
        lines.append(read_header("kernel_tiles.h", used))
    if "parts" in used:
        lines.append(read_header("kernel_parts.h", used))
    for lanes, count in sorted(headers.items()):
        words = [f"kernel_{part}.h" for part in _OWN_HEADERS if part in used and count > 1]
        needed = [*_HEADERS[:count], *words]
        for header in needed:
            lines += [f"#define INGOT_LANES {lanes}", read_header(header, used, lanes)]
    return "\n".join([*lines, "", *functions.values(), *bodies])

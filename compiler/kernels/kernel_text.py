"""A kernel as text that reads back: its loop IR, with what a caller must know as attributes.

The schedule is a comment for people: nothing below the kernel classes reads it.
"""

from __future__ import annotations

from dataclasses import replace

from ingot.compiler.graph.relations import Relation
from ingot.compiler.ir import Function, TensorType, parse_function, to_text
from ingot.compiler.ir.attributes import NO_ATTRIBUTES, Attributes, Dims, Ints, declare, rows_of
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.kernel import Kernel, checked_name
from ingot.compiler.kernels.level import verify_kernel
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType

__all__ = ["described", "kernel_text", "parse_kernel"]

_Three = tuple[int, int, int]


@dataclass(frozen=True)
class KernelAttributes(Attributes):
    """What a kernel is beside its loop IR and its schedule."""

    bindings: tuple[DType, ...]
    result_count: int
    constants: Dims
    workload: tuple[Dim, Dim, Dim]
    tile: _Three
    flops: Dim
    bytes: Dim
    scratch_length: int
    local_size: _Three
    local_length: int
    workspaces: tuple[TensorType, ...]
    in_place: tuple[tuple[int, int], ...]
    untouched: Dim
    host: str
    contract: tuple[Relation, ...]

    @property
    def counts(self) -> dict[str, tuple[int, Ints]]:
        """The numbers that have a least value, with it."""
        pairs = tuple(number for pair in self.in_place for number in pair)
        return {
            "result_count": (0, (self.result_count,)),
            "tile": (1, self.tile),
            "scratch_length": (0, (self.scratch_length,)),
            "local_size": (1, self.local_size),
            "local_length": (0, (self.local_length,)),
            "in_place": (0, pairs),
        }


declare(KernelAttributes, "func")


def described(kernel: Kernel) -> Function:
    """The loop IR with all else that the kernel is, but its schedule, as attributes."""
    values = {name: getattr(kernel, name) for name in rows_of(KernelAttributes)}
    return replace(kernel.loops, attributes=KernelAttributes(**values))


def kernel_text(kernel: Kernel) -> str:
    """The kernel as text."""
    return to_text(described(kernel))


def parse_kernel(text: str) -> Kernel:
    """Read a kernel. CompileError: the text is none, or its loop IR breaks a rule."""
    function = parse_function(text)
    checked_name(function.name)
    given = function.attributes
    if not isinstance(given, KernelAttributes):
        listed = ", ".join(rows_of(KernelAttributes))
        raise CompileError(f"kernel '{function.name}' needs the attributes ({listed})")
    for name, (least, numbers) in given.counts.items():
        if any(number < least for number in numbers):
            raise CompileError(
                f"kernel '{function.name}': attribute '{name}' has {min(numbers)}, expected "
                f"{least} or more"
            )
    loops = replace(function, attributes=NO_ATTRIBUTES)
    kernel = Kernel(name=function.name, loops=loops, **vars(given))
    verify_kernel(kernel)
    return kernel

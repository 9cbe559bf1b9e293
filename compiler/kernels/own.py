"""Kernels that the user of the compiler has written: an entry that is one op `kernel_call`.

The text is C or whatever language the target takes. It has one function, which gets a pointer per
tensor of the signature, an i64 per symbol of it, and the position of its workgroup, an i64 per axis
of the workload. Printers write the kernel around it. It comes with the call of the compiler, never
with a source program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from ingot.compiler.graph.native_signature import NativeSignature, parse_signature
from ingot.compiler.graph.ops import KernelCall
from ingot.compiler.ir import Block, Function, Op, Region, Value, tensor_type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, substitute, symbols_of
from ingot.compiler.kernels.entry import byte_count
from ingot.compiler.kernels.kernel import Kernel, OwnSchedule, TargetInfo

__all__ = ["OwnKernel", "given_kernels", "lower_own"]


@dataclass(frozen=True)
class OwnKernel:
    """The text of a kernel in one language; `workload` and `flops` are over the symbols of the
    signature, `tile` is the workload of one workgroup."""

    signature: str
    language: str
    source: str
    entry: str
    workload: tuple[Dim, Dim, Dim]
    axes: int  # of the workload, which the function is told the position on
    tile: tuple[int, int, int]
    local_size: tuple[int, int, int]
    flops: Dim

    @property
    def types(self) -> NativeSignature:
        return parse_signature(self.signature)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols of the signature, in the order in which they occur."""
        dims = [dim for type in self.types.arguments for dim in type.shape]
        return tuple(dict.fromkeys(str(dim) for dim in dims if _is_symbol(dim)))


def _is_symbol(dim: Dim) -> bool:
    return not isinstance(dim, int) and symbols_of(dim) == {str(dim)}


_given: ContextVar[Mapping[str, Sequence[OwnKernel]]] = ContextVar("own kernels", default={})  # noqa: B039


@contextmanager
def given_kernels(kernels: Mapping[str, Sequence[OwnKernel]]) -> Iterator[None]:
    """Inside, ops `kernel_call` of these names have these kernels, at most one per language."""
    token = _given.set(kernels)
    try:
        yield
    finally:
        _given.reset(token)


def lower_own(function: Function, target: TargetInfo) -> Kernel:
    """The kernel of an entry for one variant. ValueError: nobody has written one."""
    op = next(op for op in function.block.ops if op.name == "kernel_call")
    found = _find(KernelCall.of(op), target)
    operands = [tensor_type(operand) for operand in op.operands]
    named = found.types.bind(operands)
    returned = function.block.terminator.operands
    unused = [result for result in op.results if result not in returned]
    bindings: list[Value] = [*function.arguments, *returned, *unused]
    places = tuple(bindings.index(value) for value in (*op.operands, *op.results))
    symbols = tuple(named[name] for name in found.symbols)
    x, y, z = (substitute(dim, named) for dim in found.workload)
    block = Block()
    block.append(Op("return"))
    own = OwnSchedule(found.source, found.entry, places, symbols, found.axes, len(operands))
    return Kernel(
        name=function.name,
        loops=Function(function.name, Region([block])),
        bindings=tuple(tensor_type(value).dtype for value in bindings),
        result_count=len(returned) + len(unused),
        constants=tuple(dict.fromkeys(dim for dim in symbols if not isinstance(dim, int))),
        workload=(x, y, z),
        tile=found.tile,
        flops=substitute(found.flops, named),
        bytes=byte_count(function),
        local_size=found.local_size if target.has_items else (1, 1, 1),
        workspaces=tuple(map(tensor_type, unused)),
        schedule=own,
    )


def _find(call: KernelCall, target: TargetInfo) -> OwnKernel:
    kernels = _given.get().get(call.name)
    if kernels is None:
        raise ValueError(
            f"the program calls the kernel '{call.name}', which is not given: pass it as "
            f"ingot.compile(..., kernels={{{call.name!r}: ingot.Kernel(...)}})"
        )
    for kernel in kernels:
        if kernel.language == target.language:
            if str(kernel.types) != call.signature:
                raise ValueError(
                    f"the program calls the kernel '{call.name}' as {call.signature}, but it is "
                    f"given as {kernel.types}"
                )
            return kernel
    languages = ", ".join(kernel.language for kernel in kernels)
    raise ValueError(
        f"the kernel '{call.name}' is written in {languages}, and {target.variant} takes "
        f"{target.language}: give one for this target too"
        + ", or compile with fallback=False"
        * target.is_fallback
    )

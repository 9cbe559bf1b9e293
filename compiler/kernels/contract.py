"""What the numbers of a dispatch must be like, so that its kernel stays in its memory.

A kernel is made for all values of its entry's symbols within their bounds for which the
relations hold that its ops rely on; then constants, workload and the bytes of its bindings
follow from the symbols. The bytecode passes all of these, and bytecode may be damaged, so
the kernel's object says what belongs together, and each dispatch is compared with that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ingot.compiler.graph.relations import Relation, is_proven, relations_of
from ingot.compiler.ir import Function
from ingot.compiler.ir.dims import Dim, product, symbol
from ingot.compiler.kernels.entry import operand_types
from ingot.compiler.kernels.kernel import Kernel

__all__ = ["with_contract"]


def with_contract(kernel: Kernel, entry: Function) -> Kernel:
    """The kernel with its contract; all symbols of the entry are constants of it."""
    constants = tuple(dict.fromkeys([*kernel.constants, *map(symbol, entry.symbols)]))
    kernel = replace(kernel, constants=constants)
    return replace(kernel, contract=tuple(dict.fromkeys(_relations(kernel, entry))))


def _relations(kernel: Kernel, entry: Function) -> Iterator[Relation]:
    """Relations over the entry's symbols and the numbers `constant.0`, `workload.0` and
    `length.0` that a caller passes."""
    known = entry.symbols
    for name, (low, high) in known.items():
        yield "le", low, symbol(name)
        if high is not None:
            yield "le", symbol(name), high
    symbols: set[Dim] = {symbol(name) for name in known}
    for ordinal, dim in enumerate(kernel.constants):
        if dim not in symbols:
            yield "equal", symbol(f"constant.{ordinal}"), dim
    for axis, dim in enumerate(kernel.workload):
        yield "equal", symbol(f"workload.{axis}"), dim
    for ordinal, type in enumerate([*operand_types(entry), *kernel.workspaces]):
        relations: list[Relation] = [("le", 0, dim) for dim in type.shape]
        yield from (each for each in relations if not is_proven(each, known))
        yield "le", product(type.shape) * type.dtype.bytes, symbol(f"length.{ordinal}")
    for op in entry.block.ops:
        yield from (each for each in relations_of(op) if not is_proven(each, known))

"""What kernel classes share: an entry's bindings, its bytes, what may share memory, its kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.ir import Function, TensorType, dims, tensor_type
from ingot.compiler.ir.dims import Dim
from ingot.compiler.kernels.indexing import Index
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.kernels.schedule import loads_of
from ingot.compiler.kernels.trace import Node

__all__ = ["byte_count", "finish_kernel", "in_place_pairs", "operand_types"]


def operand_types(function: Function) -> list[TensorType]:
    """The types of the bindings: arguments, then results."""
    values = [*function.arguments, *function.block.terminator.operands]
    return [tensor_type(value) for value in values]


def byte_count(function: Function) -> Dim:
    """What an entry reads and writes if it touches every element once."""
    total: Dim = 0
    for each in operand_types(function):
        total = total + dims.product(each.shape) * each.dtype.bytes
    return total


def finish_kernel(
    function: Function,
    builder: LoopBuilder,
    workspaces: Sequence[TensorType] = (),
    **others: Any,
) -> Kernel:
    """The kernel of an entry, whose loops are what was built. `others` are the fields of `Kernel`
    that do not follow from that."""
    types = [*operand_types(function), *workspaces]
    return Kernel(
        name=function.name,
        loops=builder.finish(function.name),
        bindings=tuple(each.dtype for each in types),
        result_count=len(types) - len(function.arguments),
        constants=tuple(builder.constants),
        bytes=byte_count(function),
        workspaces=tuple(workspaces),
        **others,
    )


def in_place_pairs(
    function: Function, roots: Sequence[Node], out: Index
) -> tuple[tuple[int, int], ...]:
    """Operands that are read only at the element that a result writes, with that result."""
    loads = loads_of(roots)
    pairs = []
    types = operand_types(function)
    count = len(function.arguments)
    for ordinal in range(count):
        mine = [load for load in loads if load.ordinal == ordinal]
        if not mine or any(load.index != out or load.packed for load in mine):
            continue
        for result in range(count, len(types)):
            if types[result].dtype.bytes == types[ordinal].dtype.bytes:
                pairs.append((ordinal, result - count))
    return tuple(pairs)

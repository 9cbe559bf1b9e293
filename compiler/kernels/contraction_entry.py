"""What the kernel classes around one contraction share, on every target.

The root op of the entry, the arguments that hold its operands, addresses of batches, and
the finished `Kernel`. No schedule: those are in the classes.
"""

from __future__ import annotations

from ingot.compiler.dispatch.group import ATTENTIONS, CONTRACTIONS
from ingot.compiler.ir import Function, Op, Value, defined_by
from ingot.compiler.ir.dims import Dim, product
from ingot.compiler.kernels.entry import finish_kernel
from ingot.compiler.kernels.epilogue import Epilogue
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.loop import Index, LoopBuilder
from ingot.compiler.kernels.product import Operand

__all__ = ["argument_of", "batch_offset", "kernel_of", "root_of"]

ROOTS = ATTENTIONS | CONTRACTIONS


def root_of(function: Function) -> Op:
    """The one contraction of an entry."""
    roots = [op for op in function.block.ops if op.name in ROOTS]
    if len(roots) != 1:
        raise ValueError(f"entry @{function.name} has {len(roots)} contractions, expected one")
    return roots[0]


def argument_of(function: Function, value: Value) -> int:
    """The argument that holds a value, seen through reshapes."""
    while (op := defined_by(value, "reshape")) is not None:
        value = op.operands[0]
    return function.arguments.index(value)


def batch_offset(
    builder: LoopBuilder, operand: Operand, batch: tuple[Dim, ...], number: Index
) -> Index:
    """Element offset of batch `number`, split into its dims."""
    offset: Index = 0
    for axis, stride in enumerate(operand.batch_strides):
        inner = product(batch[axis + 1 :])
        index = builder.div(number, builder.dim(inner))
        if axis:
            index = builder.rem(index, builder.dim(batch[axis]))
        offset = builder.add(offset, builder.mul(index, builder.dim(stride)))
    return offset


def kernel_of(
    function: Function,
    builder: LoopBuilder,
    epilogue: Epilogue | None,
    read: set[int],
    workload: tuple[Dim, Dim, Dim],
    tile: tuple[int, int, int],
    flops: Dim,
    schedule: object,
    scratch_length: int = 0,
    local_size: tuple[int, int, int] = (1, 1, 1),
    local_length: int = 0,
) -> Kernel:
    """The finished kernel; `read` are operands that no result of the epilogue may overwrite."""
    if epilogue is not None:
        scratch_length = epilogue.place_sums(scratch_length)
    return finish_kernel(
        function,
        builder,
        workload=workload,
        tile=tile,
        flops=flops,
        scratch_length=scratch_length,
        local_size=local_size,
        local_length=local_length,
        in_place=epilogue.in_place(read) if epilogue is not None else (),
        schedule=schedule,
    )

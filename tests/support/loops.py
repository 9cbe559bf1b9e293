"""Small kernels of hand-written loop IR."""

from __future__ import annotations

from dataclasses import replace

from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.hal.spec import dtype

__all__ = ["kernel_of"]

F32 = dtype("f32")


def kernel_of(b: LoopBuilder, **fields: object) -> Kernel:
    """A kernel of one operand and one result of f32, of groups of four items."""
    kernel = Kernel(
        name="small",
        loops=b.finish("small"),
        bindings=(F32, F32),
        result_count=1,
        constants=tuple(b.constants),
        workload=(1, 1, 1),
        tile=(1, 1, 1),
        flops=0,
        bytes=0,
        scratch_length=128,
        local_size=(4, 1, 1),
        local_length=64,
    )
    return replace(kernel, **fields)  # type: ignore[arg-type]

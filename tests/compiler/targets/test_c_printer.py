"""Loop IR printed as C computes what it says."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runner import host_variants, run

from ingot.compiler.dispatch.kernel import Kernel
from ingot.compiler.dispatch.loop import LoopBuilder
from ingot.compiler.ir.dims import symbol
from ingot.hal.spec import dtype

F32 = dtype("f32")


def kernel_of(b: LoopBuilder, name: str, bindings: list[str], result_count: int = 1) -> Kernel:
    return Kernel(
        name=name,
        loops=b.finish(name),
        bindings=tuple(map(dtype, bindings)),
        result_count=result_count,
        constants=tuple(b.constants),
        workload=(1, 1, 1),
        tile=(1, 1, 1),
        flops=0,
        bytes=0,
    )


@pytest.mark.parametrize("variant", host_variants())
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_vector_loop_with_a_partial_tail_and_a_reduction(variant: str, lanes: int) -> None:
    b = LoopBuilder()
    x, y, total = (b.binding(ordinal, F32) for ordinal in range(3))
    length = b.dim(symbol("n"))
    full = b.mul(b.div(length, lanes), lanes)
    zero = b.constant(0.0, F32, lanes)
    with b.for_(0, full, lanes, [zero]) as loop:
        value = b.fma(b.load(x, loop.index, lanes), b.constant(2.0, F32), loop.carried[0])
        b.store(y, loop.index, value)
        loop.yield_(value)
    rest = b.sub(length, full)
    last = b.fma(b.load(x, full, lanes, rest), b.constant(2.0, F32), loop.results[0])
    b.store(y, full, last, rest)
    b.store(total, 0, b.reduce(last, "add"))
    kernel = kernel_of(b, "sum", ["f32", "f32", "f32"], 2)
    for n in (0, 3, lanes, 50):
        data = np.arange(1, n + 1, dtype=np.float32)
        guard = np.full(n + 1, 7, np.float32)
        result, sums = run(kernel, [data], [guard, np.zeros(1, np.float32)], variant, n=n)
        assert sums[0] == 2 * data.sum()
        assert result[n] == 7


def test_carried_values_are_assigned_at_once() -> None:
    b = LoopBuilder()
    one, two = b.constant(1.0, F32), b.constant(2.0, F32)
    with b.for_(0, 3, 1, [one, two]) as loop:
        loop.yield_(loop.carried[1], loop.carried[0])
    out = b.binding(0, F32)
    b.store(out, 0, loop.results[0])
    b.store(out, 1, loop.results[1])
    (result,) = run(kernel_of(b, "swap", ["f32"]), [], [np.zeros(2, np.float32)])
    assert result.tolist() == [2.0, 1.0]


def test_branches_give_values() -> None:
    b = LoopBuilder()
    out = b.binding(0, F32)
    with b.for_(0, 4) as loop:
        condition = b.compare("lt", loop.index, 2)
        (value,) = b.if_(condition, lambda: [b.constant(1.0, F32)], lambda: [b.constant(5.0, F32)])
        b.store(out, loop.index, value)
    (result,) = run(kernel_of(b, "branch", ["f32"]), [], [np.zeros(4, np.float32)])
    assert result.tolist() == [1, 1, 5, 5]

"""Work items of a group on a device: shared loops, reductions, scans, copies."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.loop import I64, LoopBuilder
from ingot.compiler.kernels.work_group import WorkGroup, combine_kind, in_halves
from ingot.hal.spec import dtype
from tests.support import opencl_runner
from tests.support.work_items import needs_device

F32 = dtype("f32")
SIZES = [(2, 1, 1), (16, 4, 1), (256, 1, 1), (1, 64, 1), (8, 4, 2)]


def run(group: WorkGroup, *arrays: np.ndarray) -> None:
    """Run what the group's builder holds, in one work-group."""
    names = {"float32": F32, "int64": I64}
    kernel = Kernel(
        name="items",
        loops=group.builder.finish("items"),
        bindings=tuple(names[array.dtype.name] for array in arrays),
        result_count=1,
        constants=(),
        workload=(1, 1, 1),
        tile=(1, 1, 1),
        flops=1,
        bytes=1,
        local_size=group.size,
        local_length=group.local_length,
    )
    assert opencl_runner.run(kernel, list(arrays)) is None


@needs_device
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("size", SIZES)
def test_a_reduction_gives_every_item_the_total_of_its_line(size, axis) -> None:
    group = WorkGroup(LoopBuilder(), size)
    b = group.builder

    def both(left, right):
        return [b.op("add", left[0], right[0]), b.op("max", left[1], right[1])]

    value = b.load(b.binding(0, F32), group.ordinal())
    total, top = group.reduce([value, value], both, axis)
    (again,) = group.reduce([b.op("add", total, value)], combine_kind(b, "max"), axis)
    b.store(b.binding(1, F32), group.ordinal(), b.op("add", b.op("add", total, top), again))
    x = np.random.default_rng(0).integers(-9, 9, size[::-1]).astype(np.float32)
    result = np.zeros_like(x)
    run(group, x, result)
    line = None if axis is None else 2 - axis
    total = x.sum(axis=line, keepdims=True)
    again = (x + total).max(axis=line, keepdims=True)
    expected = total + x.max(axis=line, keepdims=True) + again
    np.testing.assert_array_equal(result, np.broadcast_to(expected, x.shape))


@needs_device
@pytest.mark.parametrize("along_x", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_a_scan_gives_what_stands_before_an_item(size, along_x: bool) -> None:
    group = WorkGroup(LoopBuilder(), size)
    b = group.builder
    value = b.load(b.binding(0, I64), group.ordinal())
    zero = [b.constant(0, I64)]
    (before,), (total,) = group.scan([value], combine_kind(b, "add"), zero, along_x)
    scaled = b.op("mul", total, b.constant(1000, I64))
    b.store(b.binding(1, I64), group.ordinal(), b.op("add", before, scaled))
    x = np.random.default_rng(0).integers(0, 9, size[::-1])
    result = np.zeros_like(x)
    run(group, x, result)
    lines = x.reshape(-1, size[0] if along_x else x.size)
    expected = lines.cumsum(axis=1) - lines + 1000 * lines.sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(result.reshape(lines.shape), expected)


@needs_device
def test_a_copy_and_what_only_one_item_does() -> None:
    group = WorkGroup(LoopBuilder(), (16, 4, 1))
    b = group.builder
    local = group.allocate(200, F32)
    group.copy(b.binding(0, F32), 0, local, 0, 200, lanes=4)
    group.barrier()
    group.once(lambda: b.store(local, 7, b.constant(-1, F32)))
    group.barrier()
    with group.each(0, 200) as loop:
        b.store(b.binding(1, F32), loop.index, b.load(local, b.sub(199, loop.index)))
    x = np.arange(200, dtype=np.float32)
    result = np.zeros_like(x)
    run(group, x, result)
    x[7] = -1
    np.testing.assert_array_equal(result, x[::-1])


def test_one_item_needs_no_memory_and_no_barrier() -> None:
    group = WorkGroup(LoopBuilder())
    b = group.builder
    value = b.constant(1, F32)
    assert group.reduce([value], combine_kind(b, "add")) == [value]
    assert group.scan([value], combine_kind(b, "add"), [value]) == ([value], [value])
    group.barrier()
    assert group.local_length == 0
    assert [op.name for op in group.builder.finish("one").block.ops] == ["return"]


def test_sizes_are_powers_of_two() -> None:
    with pytest.raises(ValueError, match="power of two"):
        WorkGroup(LoopBuilder(), (48, 1, 1))


def test_a_tree_combines_neighbours_in_order() -> None:
    combined = in_halves([[each] for each in "abcde"], lambda p, q: [f"({p[0]}{q[0]})"])
    assert combined == ["(((ab)(cd))e)"]

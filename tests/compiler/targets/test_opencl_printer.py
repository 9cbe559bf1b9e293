"""Loop IR printed as OpenCL C: what stands in the text, and what work items of a group do."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.lanes.map import lower_map
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.targets.opencl.object import print_source
from ingot.compiler.targets.opencl.opencl_printer import print_kernel
from ingot.compiler.targets.opencl.prelude import Prelude
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype
from tests.support import opencl_runner
from tests.support.entries import entry
from tests.support.kernel_runner import VARIANTS, IndexFault, run

needs_device = pytest.mark.skipif(
    opencl_runner.queue() is None, reason="no OpenCL device: install pocl-opencl-icd"
)
TARGET = VARIANTS["opencl-c"].target
F32, I32, I64, F16, BF16 = map(dtype, ("f32", "i32", "i64", "f16", "bf16"))


def kernel_of(
    b: LoopBuilder,
    bindings: list[str],
    local_size: tuple[int, int, int] = (1, 1, 1),
    local_length: int = 0,
    scratch_length: int = 0,
    groups: int = 1,
) -> Kernel:
    return Kernel(
        name="test",
        loops=b.finish("test"),
        bindings=tuple(map(dtype, bindings)),
        result_count=1,
        constants=tuple(b.constants),
        workload=(groups, 1, 1),
        tile=(1, 1, 1),
        flops=0,
        bytes=0,
        scratch_length=scratch_length,
        local_size=local_size,
        local_length=local_length,
    )


def body_of(kernel: Kernel) -> str:
    return print_kernel(kernel).text


@needs_device
def test_work_items_share_local_memory() -> None:
    b = LoopBuilder()
    x, y = b.binding(0, F32), b.binding(1, F32)
    shared = b.local(64, F32)
    item, group = b.local_id(0), b.workgroup(0)
    first = b.mul(group, 32)
    b.store(shared, item, b.load(x, b.add(first, item)))
    b.barrier()
    b.store(y, b.add(first, item), b.load(shared, b.sub(31, item)))
    kernel = kernel_of(b, ["f32", "f32"], (32, 1, 1), 64 + 32 * 4, groups=3)
    data = np.arange(96, dtype=np.float32)
    (got,) = run(kernel, [data], [np.zeros(96, np.float32)], "opencl-c")
    np.testing.assert_array_equal(got, data.reshape(3, 32)[:, ::-1].reshape(-1))
    assert "barrier(CLK_LOCAL_MEM_FENCE);" in body_of(kernel)
    assert "reqd_work_group_size(32, 1, 1)" in body_of(kernel)


@needs_device
@pytest.mark.parametrize("element", ["f16", "bf16", "i1", "i64"])
def test_local_memory_of_any_dtype(element: str) -> None:
    b = LoopBuilder()
    type = dtype(element)
    x, y, shared = b.binding(0, type), b.binding(1, type), b.local(0, type)
    item = b.local_id(0)
    b.store(shared, b.mul(item, 4), b.load(x, b.mul(item, 4), 4))
    b.barrier()
    b.store(y, item, b.load(shared, b.sub(31, item)))
    kernel = kernel_of(b, [element] * 2, (8, 1, 1), 32 * type.bytes)
    data = (np.arange(32) % 7).astype(type.numpy)
    (got,) = run(kernel, [data], [np.zeros(32, type.numpy)], "opencl-c")
    np.testing.assert_array_equal(got[:8], data[::-1][:8])


@needs_device
def test_lines_that_are_asked_for_ahead_change_nothing() -> None:
    b = LoopBuilder()
    x, y = b.binding(0, F32), b.binding(1, F32)
    with b.for_(0, 8) as loop:
        b.prefetch(x, b.add(loop.index, 64), soon=True)
        b.store(y, loop.index, b.load(x, loop.index))
    data = np.arange(8, dtype=np.float32)
    (got,) = run(kernel_of(b, ["f32"] * 2), [data], [np.zeros(8, np.float32)], "opencl-c")
    np.testing.assert_array_equal(got, data)


@needs_device
def test_groups_own_their_scratch() -> None:
    b = LoopBuilder()
    y, scratch = b.binding(0, F32), b.scratch(64, F32)
    group, item = b.workgroup(0), b.local_id(0)
    b.store(scratch, item, b.convert(b.add(group, item), F32))  # type: ignore[arg-type]
    b.barrier()
    value = b.load(scratch, b.sub(3, item))
    b.store(y, b.add(b.mul(group, 4), item), value)
    kernel = kernel_of(b, ["f32"], (4, 1, 1), scratch_length=64 + 16, groups=5)
    (got,) = run(kernel, [], [np.zeros(20, np.float32)], "opencl-c")
    np.testing.assert_array_equal(got.reshape(5, 4), np.arange(5)[:, None] + np.arange(3, -1, -1))
    assert "CLK_GLOBAL_MEM_FENCE" in body_of(kernel)


def checked_gather(with_barrier: bool) -> Kernel:
    """y[i] = x[indices[i]], with the index checked, then clamped."""
    b = LoopBuilder()
    x, indices, y = b.binding(0, F32), b.binding(1, I32), b.binding(2, F32)
    item = b.local_id(0)
    bound = b.dim(symbol("n"))
    index = b.convert(b.load(indices, item), I64)
    zero = b.constant(0, I64)
    outside = b.op(
        "or",
        b.op("compare", index, zero, direction="lt"),
        b.op("compare", index, b.value(bound), direction="ge"),
    )
    b.fault(outside, index, bound, 1)
    if with_barrier:
        index = b.op("select", outside, zero, index)
        b.barrier()
    b.store(y, item, b.load(x, index))
    return kernel_of(b, ["f32", "i32", "f32"], (8, 1, 1))


@needs_device
@pytest.mark.parametrize("with_barrier", [False, True])
def test_a_fault_is_noted_and_nothing_outside_is_touched(with_barrier: bool) -> None:
    kernel = checked_gather(with_barrier)
    assert ("return;" in body_of(kernel)) == (not with_barrier)
    data, indices = np.arange(5, dtype=np.float32), np.array([0, 4, 2, 1, 3, 0, 1, 2], np.int32)
    (got,) = run(kernel, [data, indices], [np.full(8, 9, np.float32)], "opencl-c", n=5)
    np.testing.assert_array_equal(got, data[indices])
    indices[3] = 2**31 - 1
    with pytest.raises(IndexFault) as caught:
        run(kernel, [data, indices], [np.full(8, 9, np.float32)], "opencl-c", n=5)
    assert caught.value.args[0] == (1, 2**31 - 1, 5)


@needs_device
def test_lanes_are_moved() -> None:
    b = LoopBuilder()
    x, y = b.binding(0, F32), b.binding(1, F32)
    first, second = b.load(x, 0, 4), b.load(x, 4, 4)
    mixed = b.shuffle(first, second, [7, 0, 5, 2])
    b.store(y, 0, b.insert(mixed, b.extract(second, 2), 1))
    b.store(y, 4, b.shuffle(first, second, [3, 2, 1, 0]))
    mask = b.op("compare", first, b.constant(1.5, F32, 4), direction="gt")
    mask = b.insert(mask, b.constant(True, dtype("i1")), 0)
    b.store(y, 8, b.op("select", mask, first, b.constant(-1.0, F32, 4)))
    b.store(y, 12, b.convert(b.any(mask), F32))
    data = np.arange(8, dtype=np.float32)
    (got,) = run(kernel_of(b, ["f32"] * 2), [data], [np.zeros(13, np.float32)], "opencl-c")
    assert got.tolist() == [7, 6, 5, 2, 3, 2, 1, 0, 0, -1, 2, 3, 1]


@needs_device
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
@pytest.mark.parametrize("element", ["f32", "f16", "bf16", "i8", "u16", "i64"])
def test_partial_loads_and_stores_and_reductions(element: str, lanes: int) -> None:
    b = LoopBuilder()
    type = dtype(element)
    x, y = b.binding(0, type), b.binding(1, type)
    for count in range(lanes + 1):
        value = b.load(x, 3, lanes, count)
        b.store(y, count * lanes, value, count)
    vector = b.load(x, 0, lanes)
    end = (lanes + 1) * lanes
    b.store(y, end, b.reduce(vector, "add"))
    b.store(y, end + 1, b.reduce(vector, "max"))
    b.store(y, end + 2, b.reduce(b.load(x, 3, lanes, 1), "min"))
    indices = b.op("mul", b.lanes(lanes), b.constant(2, I64, lanes))
    b.store(y, end + 3, b.gather(x, indices))
    data = (np.arange(40) % 9 + 1).astype(type.numpy)
    out = np.zeros(end + 3 + lanes, type.numpy)
    (got,) = run(kernel_of(b, [element] * 2), [data], [out], "opencl-c")
    got = got.astype(np.float64)
    for count in range(lanes + 1):
        row = got[count * lanes :][:lanes]
        np.testing.assert_array_equal(row[:count], data[3 : 3 + count].astype(np.float64))
        np.testing.assert_array_equal(row[count:], 0)
    head = data[:lanes].astype(np.float64)
    assert got[end : end + 3].tolist() == [head.sum(), head.max(), 0]
    np.testing.assert_array_equal(got[end + 3 :], data[: 2 * lanes : 2].astype(np.float64))


def test_indices_are_index_t_and_data_is_long() -> None:
    b = LoopBuilder()
    x, y = b.binding(0, I64), b.binding(1, I64)
    with b.for_(0, b.dim(symbol("n"))) as loop:
        data = b.load(x, loop.index)
        b.store(y, b.mul(loop.index, 2), b.op("mul", data, loop.index))
        b.store(y, b.add(data, 1), b.constant(2**40, I64))
    text = body_of(kernel_of(b, ["i64"] * 2))
    assert re.search(r"for \(index_t (v\d+) = 0;", text)
    assert re.search(r"const index_t v\d+ = v\d+ \* 2;", text)
    assert re.search(r"const long v\d+ = mul_i64\(", text)
    assert re.search(r"const long v\d+ = v\d+ \+ 1;", text)
    assert f"{2**40}l" in text


def test_an_index_carried_by_a_loop_is_long_once_data_goes_in() -> None:
    b = LoopBuilder()
    x, y = b.binding(0, I64), b.binding(1, I64)
    with b.for_(0, 9, 1, [b.value(0), b.data(0)]) as loop:
        loop.yield_(loop.index, b.load(x, loop.carried[0]))
    b.store(y, loop.results[0], b.load(x, loop.results[1]))
    text = body_of(kernel_of(b, ["i64"] * 2))
    assert re.findall(r"^  (index_t|long) v\d+ = 0;", text, re.M) == ["index_t", "long"]


@needs_device
def test_an_index_that_becomes_data_keeps_its_bits() -> None:
    """2^40 + 10^9 i, and the greatest of two such: as iota and scalars of the caller give."""
    b = LoopBuilder()
    y, z = b.binding(0, I64), b.binding(1, F32)
    start = b.dim(symbol("start"))
    with b.for_(0, 6, 1, [b.constant(0, I64)]) as loop:
        number = b.add(start, b.mul(loop.index, 10**9))
        b.store(y, loop.index, b.value(number))
        b.store(z, loop.index, b.convert(b.value(b.mul(loop.index, 10**9)), F32))
        late = b.compare("ge", loop.index, 3)
        loop.yield_(b.op("select", late, b.value(number), loop.carried[0]))
    b.store(y, 6, loop.results[0])
    kernel = replace(kernel_of(b, ["i64", "f32"]), result_count=2)
    out = [np.zeros(7, np.int64), np.zeros(6, np.float32)]
    got, floats = run(kernel, [], out, "opencl-c", start=2**40)
    wanted = 2**40 + 10**9 * np.arange(6)
    np.testing.assert_array_equal(got, [*wanted, wanted[-1]])
    np.testing.assert_array_equal(floats, (10**9 * np.arange(6)).astype(np.float32))
    assert "for (index_t" in body_of(kernel)


@needs_device
def test_long_indices_give_the_same() -> None:
    data, indices = np.arange(5, dtype=np.float32), np.array([4, 0, 2, 1, 3, 0, 1, 2], np.int32)
    out = np.zeros(8, np.float32)
    assert opencl_runner.run(checked_gather(False), [data, indices, out], index="long", n=5) is None
    np.testing.assert_array_equal(out, data[indices])


@needs_device
@pytest.mark.parametrize("steps", [-3, 1, 3])
def test_division_and_root_are_exact_where_the_device_is_not(steps: int) -> None:
    """A device that errs by some units in the last place, as OpenCL allows: one that steps
    away from what this one finds."""
    prelude = Prelude()
    prelude.need("div_f32")
    prelude.need("sqrt_f32")

    def wrong(text: str, by: int) -> str:
        for _ in range(abs(by)):
            text = f"nextafter({text}, {'' if by > 0 else '-'}INFINITY)"
        return text

    text = prelude.text().replace("INGOT_OPENCL_EXACT_DIVISION", "NEVER")
    for found, by in (("a / b", steps), ("sqrt(scaled)", steps), ("(float)(1.0f) / b", -steps)):
        assert found in text
        text = text.replace(found, wrong(found, by))
    text += """__kernel void test(__global float *a, __global float *b, __global float *c) {
      size_t i = get_global_id(0);
      c[2 * i] = div_f32(a[i], b[i]);
      c[2 * i + 1] = sqrt_f32(a[i]);
    }"""
    rng = np.random.default_rng(0)
    a, b = np.exp(rng.uniform(-15, 15, (2, 4096))).astype(np.float32)
    device = opencl_runner.queue()
    assert device is not None
    result = device.buffer(np.zeros(8192, np.float32))
    kernel = device.build(text, "test", "int")
    kernel(device.queue, (4096,), None, device.buffer(a), device.buffer(b), result)
    got = device.read(result, np.zeros((4096, 2), np.float32))
    np.testing.assert_array_equal(got[:, 0], a / b)
    np.testing.assert_array_equal(got[:, 1], np.sqrt(a))


@pytest.mark.skipif(shutil.which("clang") is None, reason="no clang, which reads OpenCL C")
@pytest.mark.parametrize("features", ["", "FP64", "FP16", "EXACT_DIVISION"])
@pytest.mark.parametrize("index", ["int", "long"])
def test_the_source_is_valid_for_every_kind_of_device(
    tmp_path: Path, features: str, index: str
) -> None:
    names = ["f16", "bf16", "f32", "f64", "i8", "u64"]
    functions = ["neg", "abs", "sign"]
    real = ["exp", "exp2", "log", "sin", "tan", "atan", "sqrt", "erf", "logistic", "is_nan"]

    def body(b: Any, *x: Any) -> list[Any]:
        results = [b.op(name, each) for each in x for name in functions]
        results += [b.op(name, each) for each in x[:4] for name in real]
        results += [b.op("pow", each, each) for each in x]
        results += [b.op("div", each, each) for each in x]
        return results

    kernel = lower_map(entry([f"{name}[n]" for name in names], body), TARGET)
    path = tmp_path / "kernel.cl"
    path.write_text(print_source([kernel, checked_gather(True)]))
    command = ["clang", "-x", "cl", "-cl-std=CL1.2", "-target", "spir64", "-fsyntax-only"]
    command += ["-Xclang", "-finclude-default-header", "-Wall", "-Wextra", "-Werror"]
    command += ["-Wno-unused-parameter", f"-DINGOT_INDEX={index}", "-DINGOT_GROUP_SIZE=256"]
    command += ["-DINGOT_LOCAL_LENGTH=32768"]
    command += [f"-DINGOT_OPENCL_{features}"] if features else []
    done = subprocess.run([*command, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]


def barrier_in(condition: Callable[[LoopBuilder, Value], Value]) -> Kernel:
    """A barrier in a branch; the condition is made of memory of i32."""
    b = LoopBuilder()
    b.if_(condition(b, b.binding(0, I32)), b.barrier)
    return kernel_of(b, ["i32"], (8, 1, 1))


def test_a_barrier_that_work_items_may_miss_is_refused() -> None:
    def of_item(b: LoopBuilder, memory: Value) -> Value:
        return b.compare("lt", b.local_id(0), 3)

    def of_element(b: LoopBuilder, memory: Value) -> Value:
        zero = b.constant(0, I32)
        with b.for_(0, 4, 1, [zero]) as loop:
            loop.yield_(b.load(memory, b.add(b.local_id(0), loop.index)))
        return b.op("compare", loop.results[0], zero, direction="eq")

    def of_group(b: LoopBuilder, memory: Value) -> Value:
        element = b.load(memory, b.workgroup(0))
        return b.op("compare", element, b.constant(0, I32), direction="eq")

    for condition in (of_item, of_element):
        with pytest.raises(CompileError, match="barrier"):
            print_kernel(barrier_in(condition))
    assert "barrier(" in body_of(barrier_in(of_group))


def test_f64_stands_behind_its_check() -> None:
    function = entry(["f64[8]"], lambda b, x: b.op("sin", x))
    source = print_source([lower_map(function, TARGET)])
    rest = re.sub(r"#ifdef INGOT_OPENCL_FP64\n.*?#endif\n", "", source, flags=re.S)
    assert "double" in source
    assert "double" not in rest


def test_only_functions_that_are_called_are_printed() -> None:
    function = entry(["f32[8]"], lambda b, x: b.op("exp", x))
    source = print_source([lower_map(function, TARGET)])
    assert "exp_f32" in source
    assert "sin_f32" not in source
    assert "double" not in source


def test_operands_are_const_and_restricted_unless_a_result_takes_their_place() -> None:
    function = entry(["f32[8]", "f32[]"], lambda b, x, y: b.op("add", x, b.broadcast_to(y, (8,))))
    kernel = lower_map(function, TARGET)
    text = body_of(kernel)
    assert kernel.in_place == ((0, 0),)
    assert "__global const float *b0," in text
    assert "__global const float *restrict b1," in text
    assert "__global float *b2," in text


def test_a_dtype_that_kernels_lack_is_refused_by_name() -> None:
    kernel = lower_map(entry(["f8e5m2[8]"], lambda b, x: b.op("neg", x)), TARGET)
    with pytest.raises(CompileError, match="f8e5m2"):
        print_kernel(kernel)

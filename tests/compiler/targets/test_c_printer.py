"""Loop IR printed as C computes what it says."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.lanes.map import lower_map
from ingot.compiler.kernels.loop import LoopBuilder
from ingot.compiler.targets.cpu import c_printer
from ingot.compiler.targets.cpu.compilers import COMMON_FLAGS
from ingot.compiler.targets.cpu.misfit_printer import print_misfit
from ingot.hal.errors import CompileError
from ingot.hal.header import INCLUDE_FOLDER
from ingot.hal.spec import dtype
from tests.support.entries import entry
from tests.support.kernel_runner import HEADERS, VARIANTS, build, host_variants, run

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


def a_part_of_bytes(lanes: int) -> Kernel:
    """Copies the first n bytes of a vector."""
    b = LoopBuilder()
    x, y = (b.binding(ordinal, dtype("u8")) for ordinal in range(2))
    count = b.dim(symbol("n"))
    b.store(y, 0, b.load(x, 0, lanes, count), count)
    return kernel_of(b, "part", ["u8", "u8"])


@pytest.mark.parametrize("variant", host_variants())
@pytest.mark.parametrize("lanes", [16, 32, 64])
def test_a_part_of_a_vector_of_bytes_is_all_that_is_touched(variant: str, lanes: int) -> None:
    data = np.arange(1, 65, dtype=np.uint8)
    for n in (0, 1, 7, lanes - 1, lanes):
        (result,) = run(a_part_of_bytes(lanes), [data[:n]], [np.zeros(64, np.uint8)], variant, n=n)
        assert result[:n].tolist() == data[:n].tolist()
        assert not result[n:].any()


@pytest.mark.parametrize("lanes", [16, 32, 64])
def test_parts_of_vectors_of_bytes_are_one_instruction(lanes: int) -> None:
    """Lane by lane, rows of 96 bytes took 16 times as long."""
    source = c_printer.print_source([c_printer.print_kernel(a_part_of_bytes(lanes))])
    command = ["gcc", *COMMON_FLAGS, *VARIANTS["x86-64-v4"].flags, f"-I{HEADERS}"]
    command += [f"-I{INCLUDE_FOLDER}", "-xc", "-S", "-o", "-", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    assert len(re.findall(r"vmovdqu8.*\{%k", done.stdout)) == 2


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


def test_a_rounded_vector_is_made_before_what_it_is_made_of_changes() -> None:
    b = LoopBuilder()
    start = b.constant(0.625, F32, 4)
    with b.for_(0, 2, 1, [start, start]) as loop:
        value, _ = loop.carried
        loop.yield_(b.op("add", value, start), b.op("round_even", value))
    b.store(b.binding(0, F32), 0, loop.results[1])
    (result,) = run(kernel_of(b, "rounded", ["f32"]), [], [np.zeros(4, np.float32)])
    assert result.tolist() == [1.0] * 4


@pytest.mark.parametrize("name", ["bf16", "f16"])
def test_what_is_only_stored_is_rounded_once(name: str) -> None:
    b = LoopBuilder()
    out, half = b.binding(1, dtype(name)), dtype(name)
    value = b.convert(b.load(b.binding(0, F32), 0, 16), half)
    b.store(out, 0, value)
    b.store(out, 16, b.op("add", value, value))
    kernel = kernel_of(b, "stored", ["f32", name])
    assert c_printer.print_kernel(kernel).text.count(f"round_{name}x16(") == 1
    x = np.float32([1 + 2**-9, 3 * 2**-9 + 1, 1e-40, *np.arange(13) / 3])
    _, got = run(kernel, [], [x, np.zeros(32, half.numpy)])
    wanted = x.astype(half.numpy)
    np.testing.assert_array_equal(got.astype(np.float32)[:16], wanted.astype(np.float32))
    np.testing.assert_array_equal(got.astype(np.float32)[16:], (wanted + wanted).astype(np.float32))


def test_branches_give_values() -> None:
    b = LoopBuilder()
    out = b.binding(0, F32)
    with b.for_(0, 4) as loop:
        condition = b.compare("lt", loop.index, 2)
        (value,) = b.if_(condition, lambda: [b.constant(1.0, F32)], lambda: [b.constant(5.0, F32)])
        b.store(out, loop.index, value)
    (result,) = run(kernel_of(b, "branch", ["f32"]), [], [np.zeros(4, np.float32)])
    assert result.tolist() == [1, 1, 5, 5]


@pytest.mark.parametrize("variant", ["x86-64-v4", "x86-64-v3"])
def test_narrow_integers_and_roundings_take_vector_instructions(variant: str) -> None:
    """Never lane by lane: to f32, to whole numbers, and from f32 back with saturation."""
    types = ["u8", "i8", "u16", "i16"]

    def body(b, *x):
        wide = [b.op("convert", each, dtype=F32) for each in x]
        names = ["round_even", "floor", "ceil", "trunc"]
        return [b.op(name, each) for name, each in zip(names, wide, strict=True)]

    kernel = lower_map(entry([f"{each}[4096]" for each in types], body), VARIANTS[variant].target)
    path = build(c_printer.print_source([c_printer.print_kernel(kernel)]), variant)
    code = subprocess.run(["objdump", "-d", path], capture_output=True, text=True, check=True)
    for lane_by_lane in ("pextr", "pinsr", "cvtsi2s"):
        assert lane_by_lane not in code.stdout, code.stdout
    assert "vrndscaleps" in code.stdout or "vroundps" in code.stdout


def narrowed(b, x, number):
    """Floats and integers to the integers of a quarter of their width and less, and masks."""
    targets = [*(dtype(name) for name in ("u8", "i8")), dtype("i16"), dtype("u16")]
    results = [b.op("convert", each, dtype=type) for each in (x, number) for type in targets]
    return [*results, b.op("compare", number, b.op("neg", number), direction="gt")]


@pytest.mark.parametrize("variant", ["x86-64-v4", "x86-64-v3"])
def test_bytes_are_made_by_vector_instructions(variant: str) -> None:
    for wide in ("i32", "i64"):
        kernel = lower_map(
            entry(["f32[4096]", f"{wide}[4096]"], narrowed), VARIANTS[variant].target
        )
        path = build(c_printer.print_source([c_printer.print_kernel(kernel)]), variant)
        code = subprocess.run(["objdump", "-d", path], capture_output=True, text=True, check=True)
        assert "pextr" not in code.stdout, code.stdout


@pytest.mark.parametrize("variant", host_variants())
@pytest.mark.parametrize("wide", ["i32", "u32", "i64", "u64"])
def test_integers_wrap_to_narrow_ones(variant: str, wide: str) -> None:
    rng = np.random.default_rng(1)
    limits = np.iinfo(dtype(wide).numpy)
    number = rng.integers(limits.min, limits.max, 71, limits.dtype, endpoint=True)
    number[:4] = limits.min, limits.max, 128, 32768
    x = rng.uniform(-(2**17), 2**17, 71).astype(np.float32)
    function = entry(["f32[71]", f"{wide}[71]"], narrowed)
    kernel = lower_map(function, VARIANTS[variant].target)
    types = [value.type.dtype.numpy for value in function.block.terminator.operands]
    results = run(kernel, [x, number], [np.empty(71, type) for type in types], variant)
    for type, result in zip(types[4:8], results[4:8], strict=True):
        assert result.tolist() == number.astype(type).tolist()
    assert results[8].tolist() == (number > -number).tolist()


@pytest.mark.parametrize("variant", host_variants())
@pytest.mark.parametrize("wide", ["f32", "f64"])
def test_floats_saturate_to_integers(variant: str, wide: str) -> None:
    types = [dtype(f"{sign}{bits}") for bits in (8, 16, 32, 64) for sign in "ui"]
    ends = np.array([0, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 1e30, np.inf])
    x = np.concatenate([ends, ends - 0.5, ends + 0.5, [np.nan, 1e-40]])
    whole = [float(2**bits) for bits in (31, 32, 53, 63, 64)]
    near = [np.nextafter(whole, to, dtype=dtype(wide).numpy) for to in (0, np.inf)]
    x = np.concatenate([x, whole, *near]).astype(dtype(wide).numpy)
    x = np.resize(np.concatenate([x, -x]), 96 + 7)
    function = entry(
        [f"{wide}[{len(x)}]"], lambda b, x: [b.op("convert", x, dtype=t) for t in types]
    )
    kernel = lower_map(function, VARIANTS[variant].target)
    results = run(kernel, [x], [np.empty(len(x), t.numpy) for t in types], variant)
    for type, result in zip(types, results, strict=True):
        limits = np.iinfo(type.numpy)
        finite = np.nan_to_num(x.astype(np.float64))
        assert result.tolist() == [min(max(int(n), limits.min), limits.max) for n in finite]


@pytest.mark.parametrize("variant", ["x86-64-v4", "x86-64-v3"])
def test_floats_become_wide_integers_without_a_branch_per_lane(variant: str) -> None:
    function = entry(["f32[4096]"], lambda b, x: [b.op("convert", x, dtype=dtype("i64"))])
    kernel = lower_map(function, VARIANTS[variant].target)
    path = build(c_printer.print_source([c_printer.print_kernel(kernel)]), variant)
    code = subprocess.run(["objdump", "-d", path], capture_output=True, text=True, check=True)
    assert "comis" not in code.stdout, code.stdout


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63) - 1, 1 << 100])
def test_a_contract_with_a_number_of_more_than_64_bits_is_refused(number: int) -> None:
    b = LoopBuilder()
    n = symbol("n")
    b.dim(n)
    kernel = kernel_of(b, "empty", [], 0)
    for dim in (number, n * number, n + number):
        with pytest.raises(CompileError, match=f"number {number}, which has more than 63 bits"):
            print_misfit(replace(kernel, contract=(("le", dim, n),)), "fits")
    ends = (1 << 63) - 1, -(1 << 63)
    text = print_misfit(replace(kernel, contract=tuple(("le", n * end, n) for end in ends)), "fits")
    assert f"{ends[0]}ll" in text
    assert "INT64_MIN" in text

"""Memory whose elements lie packed: interpreter, C and OpenCL read it alike, from any element."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.compiler.ir.dims import symbol
from ingot.compiler.kernels.interpreter import run_kernel
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.kernel_text import kernel_text, parse_kernel
from ingot.compiler.kernels.loop import LoopBuilder, dtype_of
from ingot.hal.errors import CompileError, InvalidArgument
from ingot.hal.spec import dtype
from tests.support import kernel_runner
from tests.support.drawn import examples
from tests.support.kernel_runner import all_variants
from tests.support.loops import kernel_of

LANES = (1, 2, 4, 8, 16)
PACKED = ("i4", "u4", "i2", "u2")
U8, I32 = dtype("u8"), dtype("i32")
RESULTS = 3 * sum(LANES)


def pack(values: np.ndarray, bits: int) -> np.ndarray:
    """The numbers `bits` bits each, little end first, by way of single bits."""
    codes = (values.astype(np.uint8)[:, None] >> np.arange(bits)) & 1
    return np.packbits(codes.reshape(-1), bitorder="little")


@lru_cache
def reader(name: str) -> Kernel:
    """Per number of lanes: those from `start` on, the first `count` of them, and every `step`th."""
    b = LoopBuilder()
    memory, result = b.binding(0, dtype(name)), b.binding(1, I32)
    start, count, step = (b.dim(symbol(each)) for each in ("start", "count", "step"))
    at = 0
    for lanes in LANES:
        values = [b.load(memory, start, lanes)]
        if lanes > 1:
            indices = b.op("mul", b.lanes(lanes), b.value(step))
            values.append(b.load(memory, start, lanes, count))
            values.append(b.gather(memory, b.op("add", indices, b.value(start))))
        for value in values:
            b.store(result, at, b.convert(value, I32))
            at += lanes
    fields = {"bindings": (U8, I32), "scratch_length": 0, "local_length": 0}
    return kernel_of(b, local_size=(1, 1, 1), **fields)


def expected(values: np.ndarray, start: int, count: int, step: int) -> np.ndarray:
    rows = [values[start : start + 1]]
    for lanes in LANES[1:]:
        whole = values[start : start + lanes]
        rows += [whole, np.where(np.arange(lanes) < count, whole, 0)]
        rows.append(values[start + step * np.arange(lanes)])
    return np.concatenate(rows).astype(np.int32)


@examples(60)
@given(st.data(), st.sampled_from(PACKED), st.integers(0, 9), st.integers(0, 17), st.integers(1, 3))
def test_packed_elements_are_read_from_any_place_in_a_byte(data, name, start, count, step) -> None:
    element = dtype(name)
    length = start + step * max(LANES) + data.draw(st.integers(0, 5))
    low = -(1 << (element.bits - 1)) if element.kind == "i" else 0
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 30)))
    values = rng.integers(low, low + (1 << element.bits), length)
    kernel, packed = reader(name), pack(values, element.bits)
    wanted = expected(values, start, count, step)
    symbols = {"start": start, "count": count, "step": step}
    own = np.zeros(wanted.shape, np.int32)
    assert run_kernel(kernel, [packed, own], symbols) is None
    np.testing.assert_array_equal(own, wanted)
    for variant in all_variants():
        (got,) = kernel_runner.run(kernel, [packed], [np.zeros_like(wanted)], variant, **symbols)
        np.testing.assert_array_equal(got, wanted, err_msg=variant)


def test_packed_memory_reads_back_and_gives_elements_of_eight_bits() -> None:
    text = kernel_text(reader("i4"))
    assert "memory<i4>" in text
    assert kernel_text(parse_kernel(text)) == text
    b = LoopBuilder()
    assert dtype_of(b.load(b.binding(0, dtype("u2")), 0, 4)) is U8


def test_the_interpreter_says_where_packed_memory_ends() -> None:
    kernel, packed = reader("i4"), np.zeros(8, np.uint8)
    out = np.zeros(RESULTS, np.int32)
    with pytest.raises(InvalidArgument, match=r"index 16 of 16 elements of memory<i4>"):
        run_kernel(kernel, [packed, out], {"start": 1, "count": 1, "step": 1})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (r"memory<i32>", "memory<i4>", "stores into memory<i4>, whose elements share bytes"),
        (r"memory<i4>", "memory<f4e2m1fn>", "kernels have no memory<f4e2m1fn>"),
        ("loop.binding() {ordinal=0}", "loop.scratch() {offset=0}", "only a binding has them"),
    ],
)
def test_what_packed_memory_cannot_do_is_named(old, new, message) -> None:
    text = kernel_text(reader("i4"))
    assert old in text
    with pytest.raises(CompileError, match=message):
        parse_kernel(text.replace(old, new))

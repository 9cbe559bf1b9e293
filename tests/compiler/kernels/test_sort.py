"""Sort kernels: stable, of any length and axis, with any comparator, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.compiler.frontends.emitter import Emitter
from ingot.compiler.frontends.ordering import sort_by
from ingot.compiler.kernels.classes import lower_entry
from ingot.hal.spec import dtype
from tests.support.comparators import by, sorter
from tests.support.drawn import examples
from tests.support.entries import entry
from tests.support.every_target import CPU, OPENCL, on_every_target
from tests.support.kernel_runner import PLAIN, Loaded, host_variants, run
from tests.support.work_items import SMALL, needs_device


@on_every_target
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", ["f32", "bf16", "i8", "i1", "u64"])
def test_every_axis_of_every_dtype(target, name: str, axis: int) -> None:
    function = entry([f"{name}[2,b,9]"], sorter(axis, [name]), {"b": (0, None)})
    for size in (0, 1, 17) if axis == 1 else (3,):
        target.check(function, b=size, one=True)


def test_lengths_around_blocks_and_passes() -> None:
    function = entry(["i16[b]"], sorter(0, ["i16"]), {"b": (0, None)})
    kernel = lower_entry(function, PLAIN)
    assert kernel.workspaces, "the length has no bound"
    for size in (0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 1000, 4097):
        x = np.random.default_rng(size).integers(-99, 99, size).astype(np.int16)
        result = np.full(size, 77, np.int16)
        run(kernel, [x], [result], "x86-64", b=size)
        np.testing.assert_array_equal(result, np.sort(x))


@needs_device
def test_lengths_around_blocks_and_merges_of_groups() -> None:
    function = entry(["i32[b]"], sorter(0, ["i32"]), {"b": (0, None)})
    assert lower_entry(function, SMALL).schedule.merges
    for size in (0, 1, 2, 3, 64, 65, 2048, 2049, 4097, 13000):
        x = np.random.default_rng(size).integers(-99, 99, size).astype(np.int32)
        OPENCL.check(function, [x], b=size)


STABLE = entry(
    ["i8[b,c]", "i32[b,c]", "f16[b,c]"],
    sorter(0, ["i8", "i32", "f16"], direction="gt"),
    {"b": (0, None), "c": (0, None)},
)
"""Sorts columns by i8 keys, and takes the others along."""


def equal_keys(rows: int, columns: int, seed: int) -> list[Any]:
    """Operands of `STABLE`: keys of five values, and where they were."""
    random = np.random.default_rng(seed)
    shape = (rows, columns)
    return [
        random.integers(-2, 3, shape).astype(np.int8),
        np.arange(rows * columns, dtype=np.int32).reshape(shape),
        random.standard_normal(shape).astype(np.float16),
    ]


@examples(25)
@given(st.integers(0, 70), st.integers(0, 5), st.integers(0, 2**31))
def test_equal_keys_keep_their_order(rows: int, columns: int, seed: int) -> None:
    CPU.check(STABLE, equal_keys(rows, columns, seed), one=True, b=rows, c=columns)


KINDS = ("f32", "f64", "f16", "bf16", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")


@pytest.mark.parametrize("kind", KINDS)
@examples(8)
@given(
    descending=st.booleans(),
    size=st.sampled_from([0, 1, 2, 3, 31, 255, 256, 257]),
    spread=st.sampled_from([1, 3, 300, 1 << 62]),
    seed=st.integers(0, 2**31),
)
def test_numbers_of_every_dtype_in_order(
    kind: str, descending: bool, size: int, spread: int, seed: int
) -> None:
    """Stable, with NaN behind all others, or in front; of floats both zeros are one."""
    element, random = dtype(kind), np.random.default_rng(seed)
    if element.is_float:
        x = (random.standard_normal(size) * min(spread, 10.0**4)).round(2)
        x[random.random(size) < 0.2] = -0.0
        x[random.random(size) < 0.1] = np.nan
        x[random.random(size) < random.choice([0.1, 0.9])] = -np.inf
    else:
        low, high = (-1 if element.kind == "i" else 0), 1
        span = min(spread, 2 ** (element.bits - 2))
        x = random.integers(low * span, high * span, size, endpoint=True)
    x = x.astype(element.numpy)

    def body(b: Any, x: Any) -> Any:
        return sort_by(Emitter(b), [x], 0, descending)

    function = entry([f"{kind}[b]"], body, {"b": (0, None)})
    assert lower_entry(function, PLAIN).schedule.by == "bytes"
    CPU.check(function, [x], one=True, b=size)


@needs_device
@pytest.mark.parametrize("rows", [5, 3000])
def test_equal_keys_keep_their_order_in_short_and_long_lines(rows: int) -> None:
    OPENCL.check(STABLE, equal_keys(rows, 3, rows), b=rows, c=3)


def test_known_short_lines_stay_in_scratch_and_may_be_sorted_in_place() -> None:
    function = entry(["f32[50,100]"], sorter(1, ["f32"]))
    kernel = CPU.lower(function)
    assert kernel.schedule.in_scratch
    assert kernel.in_place == ((0, 0),)
    assert 0 < kernel.scratch_length <= 1 << 20
    CPU.check(function)
    x = np.random.default_rng(0).standard_normal((50, 100)).astype(np.float32)
    expected = np.sort(x, 1)
    Loaded(kernel, host_variants()[0])([x, x])
    np.testing.assert_array_equal(x, expected)


def test_long_lines_use_a_workspace() -> None:
    function = entry(["f32[2,200000]"], sorter(1, ["f32"]))
    kernel = lower_entry(function, PLAIN)
    assert not kernel.schedule.in_scratch
    x = np.random.default_rng(0).standard_normal((2, 200000)).astype(np.float32)
    (got,) = run(kernel, [x], [np.empty_like(x)], "x86-64")
    np.testing.assert_array_equal(got, np.sort(x, 1))


def test_only_what_is_wanted_moves() -> None:
    """An arg sort by a function of the values: one key and the indices."""

    def body(b, x):
        count = b.op("iota", dtype=dtype("i32"), shape=(4, 30), axis=1)
        region = by(["f32", "i32"], name="abs")
        return b.op("sort", x, count, regions=[region], axis=1)[1]

    function = entry(["f32[4,30]"], body)
    kernel = CPU.lower(function)
    assert kernel.schedule.columns == 2
    assert len(kernel.bindings) == 2
    CPU.check(function)


@on_every_target
@pytest.mark.parametrize("size", [300, 9000])
def test_a_comparator_that_is_no_order_still_gives_a_permutation(target, size: int) -> None:
    function = entry(["f32[b]"], sorter(0, ["f32"]), {"b": (0, None)})
    random = np.random.default_rng(0)
    x = random.standard_normal(size).astype(np.float32)
    x[random.random(size) < 0.3] = np.nan
    result = np.empty_like(x)
    assert target.fault(function, [x], [result], b=size) is None
    assert sorted(result.view(np.uint32)) == sorted(x.view(np.uint32))


@needs_device
def test_short_lines_share_a_group() -> None:
    function = entry(["f32[700,10]"], sorter(1, ["f32"]))
    assert OPENCL.lower(function).schedule.shape.size == (8, 32, 1)
    OPENCL.check(function)


@needs_device
def test_keys_are_made_once() -> None:
    OPENCL.check(entry(["f32[5000]"], sorter(0, ["f32"], name="abs")), one=True)

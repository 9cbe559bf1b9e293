"""Scatter kernels: dimension numbers of every kind, in place and not, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.compiler.graph.ops import Scatter
from ingot.compiler.ir.dims import evaluate
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.targets.cpu import c_printer
from ingot.hal.spec import dtype
from tests.support.drawn import examples
from tests.support.entries import assert_close, entry, make, reference
from tests.support.every_target import CPU, OPENCL, on_every_target, on_targets
from tests.support.kernel_runner import PLAIN, Loaded, build
from tests.support.scatters import CASES, ROWS, elements
from tests.support.work_items import needs_device

UNDEFINED = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")


@on_targets("kind", cpu=[("set",), ("add",), ("mul",), ("min",), ("max",)], opencl=[("add",)])
@pytest.mark.parametrize("case", CASES)
def test_dimension_numbers(target, kind: str, case: str) -> None:
    types, numbers, (low, high) = CASES[case]
    function = entry(
        types,
        lambda b, x, i, u: b.op("scatter", x, i, u, kind=kind, **numbers),
        {"b": (0, None), "n": (0, None)},
    )
    random = np.random.default_rng(5)
    for n in (0, 1, 11):
        symbols = {"b": 10, "n": n}
        operands = [make(each.type, random, symbols) for each in function.arguments]
        operands[1] = random.integers(low, high, operands[1].shape).astype(operands[1].dtype)
        one = target is CPU and (kind, n) != ("add", 11)
        target.check(function, operands, one=one, **symbols)
        if target is CPU:
            in_place(function, operands, **symbols)


def _kind(function: Any) -> str:
    return next(Scatter.of(op).kind for op in function.block.ops if op.name == "scatter")


def in_place(function: Any, operands: list[Any], **symbols: int) -> None:
    """The kernel gives the same where the result takes the operand's memory."""
    kernel = lower_entry(function, PLAIN)
    assert kernel.in_place == ((0, 0),)
    places = operands[2].size * (1 if _kind(function) == "set" else 2)
    touched = operands[1].nbytes + operands[2].nbytes + places * operands[0].itemsize
    assert evaluate(kernel.bytes - kernel.untouched, symbols) == touched
    (expected,) = reference(function, operands)
    memory = operands[0].copy()
    Loaded(kernel, "x86-64")([memory, *operands[1:], memory], **symbols)
    assert_close(memory, expected, 1e-6)


@examples(30)
@given(st.integers(0, 9), st.integers(0, 40), st.integers(1, 70), st.integers(0, 2**31))
def test_drawn_rows(rows: int, updates: int, columns: int, seed: int) -> None:
    function = entry(
        ["f32[b,c]", "i32[n,1]", "f32[n,c]"],
        lambda b, x, i, u: b.op("scatter", x, i, u, kind="add", **ROWS),
        {"b": (0, None), "n": (0, None), "c": (0, None)},
    )
    random = np.random.default_rng(seed)
    symbols = {"b": rows, "n": updates, "c": columns}
    operands = [make(each.type, random, symbols) for each in function.arguments]
    operands[1] = random.integers(-2, rows + 2, (updates, 1)).astype(np.int32)
    CPU.check(function, operands, one=True, **symbols)


def test_workgroups_share_columns_and_batches() -> None:
    wide = entry(
        ["f32[1000,4096]", "i32[n,1]", "f32[n,4096]"],
        lambda b, x, i, u: b.op("scatter", x, i, u, **ROWS),
        {"n": (0, None)},
    )
    kernel = CPU.lower(wide)
    assert kernel.schedule.owned == (4096,)
    assert kernel.tile[0] < 4096
    batched = entry(
        ["f32[1000,64]", "i64[1000,8]", "f32[1000,8]"],
        lambda b, x, i, u: b.op("scatter", x, i, u, **elements(1)),
    )
    assert CPU.lower(batched).schedule.owned == (1000,)


@needs_device
@pytest.mark.parametrize("kind", ["set", "mul", "min", "max"])
def test_kinds_with_many_updates_of_one_row(kind: str) -> None:
    function = entry(
        ["f32[700,130]", "i32[90,1]", "f32[90,130]"],
        lambda b, x, i, u: b.op("scatter", x, i, u, kind=kind, **ROWS),
    )
    random = np.random.default_rng(1)
    operands = [make(each.type, random, {}) for each in function.arguments]
    operands[1] = (random.integers(0, 9, (90, 1)) * 70).astype(np.int32)
    OPENCL.check(function, operands, tolerance=1e-5)


@needs_device
def test_points_of_a_long_line_keep_their_order() -> None:
    numbers = {**ROWS, "update_window_dims": ()}
    function = entry(
        ["f32[30000]", "i32[500,1]", "f32[500]"],
        lambda b, x, i, u: b.op("scatter", x, i, u, kind="set", **numbers),
    )
    assert OPENCL.lower(function).schedule.size == (1, 256, 1)
    random = np.random.default_rng(1)
    operands = [make(each.type, random, {}) for each in function.arguments]
    operands[1] = (random.integers(0, 60, (500, 1)) * 499).astype(np.int32)
    OPENCL.check(function, operands)


@on_every_target
@pytest.mark.parametrize("index", [5, -6, 2**40])
def test_an_index_outside_is_a_fault_that_names_it(target, index: int) -> None:
    function = entry(
        ["f32[b,8]", "i64[n,1]", "f32[n,8]"],
        lambda b, x, i, u: b.op("scatter", x, i, u, mode="wrap_check", **ROWS),
        {"b": (0, None), "n": (0, None)},
    )
    operands = [np.ones((5, 8), "f4"), np.array([[-5], [index]]), np.ones((2, 8), "f4")]
    assert target.fault(function, operands, [np.zeros((5, 8), "f4")], b=5, n=2) == (1, index, 5)


@pytest.mark.parametrize("name", ["i64", "i8", "u64"])
def test_hostile_indices_are_left_out_without_undefined_behaviour(name: str) -> None:
    function = entry(
        ["f32[6,8,3]", f"{name}[n,2]", "f32[n,2,3]"],
        lambda b, x, i, u: b.op(
            "scatter",
            *(x, i, u),
            update_window_dims=(1, 2),
            inserted_window_dims=(0,),
            scatter_dims_to_operand_dims=(0, 1),
            index_vector_dim=1,
        ),
        {"n": (0, None)},
    )
    info = np.iinfo(dtype(name).numpy)
    some = [info.min, info.max, 0, 5, 6, 7, 127]
    pairs = np.array([(a, b) for a in some for b in some], info.dtype)
    random = np.random.default_rng(0)
    operands = [
        random.standard_normal((6, 8, 3)).astype(np.float32),
        pairs,
        random.standard_normal((len(pairs), 2, 3)).astype(np.float32),
    ]
    kernel = lower_entry(function, PLAIN)
    path = build(c_printer.print_source([c_printer.print_kernel(kernel)]), "x86-64", UNDEFINED)
    (expected,) = reference(function, operands)
    result = np.empty_like(expected)
    Loaded(kernel, "x86-64", path=path)([*operands, result], n=len(pairs))
    np.testing.assert_array_equal(result, expected)


@on_every_target
def test_an_update_made_from_the_operand_is_not_in_place(target) -> None:
    def body(b, x, i):
        update = b.op("slice", x, start=(0, 0), limit=(2, 8))
        return b.op("scatter", x, i, update, **ROWS)

    function = entry(["f32[5,8]", "i32[2,1]"], body)
    assert target.lower(function).in_place == ()
    random = np.random.default_rng(0)
    x = random.standard_normal((5, 8)).astype(np.float32)
    target.check(function, [x, np.array([[1], [0]], np.int32)])


@needs_device
def test_the_result_may_take_the_memory_of_the_operand() -> None:
    function = entry(
        ["f32[5,8]", "i32[2,1]", "f32[2,8]"], lambda b, x, i, u: b.op("scatter", x, i, u, **ROWS)
    )
    assert OPENCL.lower(function).in_place == ((0, 0),)


@on_every_target
def test_a_number_as_the_operand_needs_no_memory(target) -> None:
    def body(b, i, u):
        return b.op("scatter", b.full(0, "f32", (30, 40)), i, u, kind="add", **ROWS)

    function = entry(["i32[9,1]", "f32[9,40]"], body)
    assert len(target.lower(function).bindings) == 3
    indices = np.array([[3], [29], [3], [0], [7], [8], [9], [3], [30]], np.int32)
    target.check(function, [indices, np.ones((9, 40), np.float32)])

"""Scatter kernels: dimension numbers of every kind, in place and not, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.compiler.graph.ops import Scatter
from ingot.compiler.ir.dims import evaluate
from ingot.compiler.kernels.lanes.scatter import lower_scatter
from ingot.compiler.targets.cpu import c_printer
from ingot.hal.spec import dtype
from tests.support.drawn import examples
from tests.support.entries import assert_close, check, entry, make, reference
from tests.support.kernel_runner import (
    PLAIN,
    V4,
    VARIANTS,
    IndexFault,
    Loaded,
    build,
    run,
)
from tests.support.scatters import CASES, ROWS, elements

ONE = ["x86-64"]
UNDEFINED = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["set", "add", "mul", "min", "max"])
def test_dimension_numbers(case: str, kind: str) -> None:
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
        variants = None if (kind, n) == ("add", 11) else ONE
        check(function, lower_scatter, operands, variants=variants, **symbols)
        in_place(function, operands, **symbols)


def _kind(function: Any) -> str:
    return next(Scatter.of(op).kind for op in function.block.ops if op.name == "scatter")


def in_place(function: Any, operands: list[Any], **symbols: int) -> None:
    """The kernel gives the same where the result takes the operand's memory."""
    kernel = lower_scatter(function, VARIANTS["x86-64"].target)
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
    check(function, lower_scatter, operands, variants=ONE, **symbols)


def test_workgroups_share_columns_and_batches() -> None:
    wide = entry(
        ["f32[1000,4096]", "i32[n,1]", "f32[n,4096]"],
        lambda b, x, i, u: b.op("scatter", x, i, u, **ROWS),
        {"n": (0, None)},
    )
    kernel = lower_scatter(wide, V4)
    assert kernel.schedule.owned == (4096,)
    assert kernel.tile[0] < 4096
    batched = entry(
        ["f32[1000,64]", "i64[1000,8]", "f32[1000,8]"],
        lambda b, x, i, u: b.op("scatter", x, i, u, **elements(1)),
    )
    assert lower_scatter(batched, V4).schedule.owned == (1000,)


@pytest.mark.parametrize("index", [5, -6, 2**40])
def test_an_index_outside_is_a_fault_that_names_it(index: int) -> None:
    function = entry(
        ["f32[b,8]", "i64[n,1]", "f32[n,8]"],
        lambda b, x, i, u: b.op("scatter", x, i, u, mode="wrap_check", **ROWS),
        {"b": (0, None), "n": (0, None)},
    )
    operands = [np.ones((5, 8), "f4"), np.array([[-5], [index]]), np.ones((2, 8), "f4")]
    kernel = lower_scatter(function, VARIANTS["x86-64"].target)
    with pytest.raises(IndexFault, match=rf"\(1, {index}, 5\)"):
        run(kernel, operands, [np.zeros((5, 8), "f4")], "x86-64", b=5, n=2)


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
    kernel = lower_scatter(function, PLAIN)
    path = build(c_printer.print_source([c_printer.print_kernel(kernel)]), "x86-64", UNDEFINED)
    (expected,) = reference(function, operands)
    result = np.empty_like(expected)
    Loaded(kernel, "x86-64", path=path)([*operands, result], n=len(pairs))
    np.testing.assert_array_equal(result, expected)


def test_an_update_made_from_the_operand_is_not_in_place() -> None:
    def body(b, x, i):
        update = b.op("slice", x, start=(0, 0), limit=(2, 8))
        return b.op("scatter", x, i, update, **ROWS)

    function = entry(["f32[5,8]", "i32[2,1]"], body)
    assert lower_scatter(function, V4).in_place == ()
    random = np.random.default_rng(0)
    x = random.standard_normal((5, 8)).astype(np.float32)
    check(function, lower_scatter, [x, np.array([[1], [0]], np.int32)])


def test_a_number_as_the_operand_needs_no_memory() -> None:
    def body(b, i, u):
        return b.op("scatter", b.full(0, "f32", (30, 40)), i, u, kind="add", **ROWS)

    function = entry(["i32[9,1]", "f32[9,40]"], body)
    assert len(lower_scatter(function, V4).bindings) == 3
    check(function, lower_scatter)

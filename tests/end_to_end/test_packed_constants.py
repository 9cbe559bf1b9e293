"""Constants of i4, u4, i2, u2 and f4 lie packed in a module, whoever reads them, at odd counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Value
from ingot.compiler.ir.dims import symbol
from ingot.hal.spec import dtype
from tests.support.comparators import sorter
from tests.support.compiled_programs import Program, build

NAMES = ("i4", "u4", "i2", "u2", "f4e2m1fn")
S = symbol("s")
ROWS, COLUMNS = 13, 37  # no row but the first begins a byte


def drawn(name: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    codes = np.random.default_rng(seed).integers(0, 1 << dtype(name).bits, shape, np.uint8)
    if dtype(name).is_float:
        return codes.view(dtype(name).numpy)
    signed = (codes << (8 - dtype(name).bits)).view(f"{dtype(name).kind}1")
    return (signed >> (8 - dtype(name).bits)).astype(dtype(name).numpy)


def wide(b: Builder, x: Value) -> Value:
    return b.op("convert", x, dtype=dtype("i32"))


def read_by_every_class(name: str) -> Program:
    """Results of ops of each kernel class on a constant; s rows are asked for."""

    def make(b: Builder, ids: Value, x: Value, y: Value, at: Value) -> Sequence[Value]:
        def table(seed: int) -> Value:
            return b.constant(drawn(name, (ROWS, COLUMNS), seed))

        starts = b.op("reshape", ids, shape=(S, 1))
        zero = b.constant(0, "i32")
        fitting = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (1,), "rhs_contract": (1,)}
        return [
            b.op("take", table(0), ids, axis=0, mode="clamp"),
            wide(b, b.op("take", table(1), ids, axis=1, mode="clamp")),
            b.op(
                "gather", table(2), starts, offset_dims=(1,), collapsed_slice_dims=(0,),
                operand_batching_dims=(), start_indices_batching_dims=(), start_index_map=(0,),
                index_vector_dim=1, slice_sizes=(1, 21), mode="clamp",
            ),
            wide(b, b.op("dynamic_slice", table(3), at, zero, sizes=(3, COLUMNS))),
            b.op("select", b.op("compare", x, y, direction="lt"), table(4), y),
            b.op("add", table(5), x),
            b.op("concatenate", x, b.op("transpose", b.op("transpose", table(6),
                 permutation=(1, 0)), permutation=(1, 0)), axis=0),
            b.op("dot_general", x, table(7), dtype=dtype("f32" if name[0] == "f" else "i32"),
                 **fitting),
            b.op("dynamic_update_slice", table(8), b.op("slice", x, start=(0, 0), limit=(2, 5)),
                 at, zero),
            sorter(1, [name])(b, b.op("max", table(9), x)),
            table(10),
            b.op("reduce", wide(b, b.op("max", table(11), x)), axes=(0,), kind="add"),
        ]  # fmt: skip

    arguments = (("i32", (S,)), (name, (ROWS, COLUMNS)), (name, (ROWS, COLUMNS)), ("i32", ()))
    return Program(build(make, *arguments, symbols={"s": (1, None)}))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["i4", "u2"])
def test_every_class_reads_packed_constants(name: str) -> None:
    program = read_by_every_class(name)
    rng = np.random.default_rng(1)
    for count in (1, 5, 16):
        ids = rng.integers(0, ROWS, count, np.int32)
        x, y = (drawn(name, (ROWS, COLUMNS), 20 + place) for place in range(2))
        at = np.array(rng.integers(0, ROWS - 2), np.int32)
        program.check(ids, x, y, at, tolerance=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_module_has_a_packed_constant_once(name: str) -> None:
    values = drawn(name, (1001, 7))

    def make(b: Builder, ids: Value) -> list[Value]:
        table = b.constant(values)
        return [b.op("take", table, ids, axis=0, mode="clamp"), table]

    program = Program(build(make, ("i32", (S,)), symbols={"s": (1, None)}))
    program.check(np.array([0, 1000, 500], np.int32))
    assert program.module.report.constant_length <= -(-values.size * dtype(name).bits // 8) + 64


def test_loops_and_branches_read_packed_constants() -> None:
    def make(b: Builder, x: Value, n: Value) -> list[Value]:
        table, other = b.constant(drawn("i4", (9, 15))), b.constant(drawn("u2", (9, 15)))

        def step(inner: Builder, index: Value, before: Sequence[Value]) -> list[Value]:
            row = inner.value("take", table, index, axis=0, mode="clamp")
            codes = inner.value("convert", other, dtype=dtype("i32"))
            low = inner.value("slice", codes, start=(0, 0), limit=(1, 15))
            low = inner.value("reshape", low, shape=(15,))
            row = inner.value("convert", row, dtype=dtype("i32"))
            return [inner.value("add", inner.value("add", before[0], row), low)]

        return list(counted_loop(b, n, [x], step))

    program = Program(build(make, ("i32", (15,)), ("i64", ())))
    for steps in (0, 1, 9):
        program.check(np.arange(15, dtype=np.int32), np.array(steps))

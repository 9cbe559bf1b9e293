"""The steps of an OpenCL object say what a kernel's contract says, number for number."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from ingot.compiler.graph.relations import Relation
from ingot.compiler.ir.dims import (
    Dim,
    broadcast,
    evaluate,
    floordiv,
    maximum,
    minimum,
    modulo,
    symbol,
)
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.targets.opencl.misfit_steps import misfit_steps
from ingot.hal.errors import CompileError
from ingot.hal.spec import layout
from tests.support.entries import entry
from tests.support.kernel_runner import VARIANTS

N, M = symbol("n"), symbol("m")
TESTS: dict[str, Callable[[int, int], bool]] = {
    "le": lambda a, b: a <= b,
    "equal": lambda a, b: a == b,
    "broadcast": lambda a, b: a in (1, b),
}
TARGET = VARIANTS["opencl-c"].target


def kernel(*contract: Relation) -> Kernel:
    """A kernel of two bindings and the constants n and m, with this contract."""
    return replace(plain(), constants=(N, M), contract=contract)


@cache
def plain() -> Kernel:
    return lower_entry(entry(["f32[n,m]"], lambda b, x: b.op("neg", x)), TARGET)


def fits(rows: list[dict[str, Any]], values: list[int]) -> bool:
    """What the driver finds; numbers here have no end."""
    names = {
        value: name.rpartition("_")[2].lower()
        for name, value in layout().constants.items()
        if name.startswith("INGOT_OPENCL_STEP_")
    }
    dims = {
        "add": lambda a, b: a + b, "mul": lambda a, b: a * b, "floordiv": floordiv, "mod": modulo,
        "min": minimum, "max": maximum, "broadcast": broadcast,
    }  # fmt: skip
    tests = {"le": TESTS["le"], "equal": TESTS["equal"], "fits": TESTS["broadcast"]}
    for row in rows:
        name = names[row["function"]]
        if name == "number":
            values = [*values, row["b"]]
        elif name in dims:
            values = [*values, evaluate(dims[name](values[row["a"]], values[row["b"]]), {})]
        elif not tests[name](values[row["a"]], values[row["b"]]):
            return False
    return True


def test_steps_are_the_relations() -> None:
    dims: list[Dim] = [
        N, M, 3, -7, N * M * M - 2 * N + 5, floordiv(N + 3, 4) * M, modulo(N, 5),
        minimum(minimum(N, M), 7), maximum(N - M, 2), floordiv(minimum(N * 2, M), 3) + N,
        broadcast(N, N), symbol("length.1"), symbol("workload.0"), symbol("workload.2") * 2,
        symbol("constant.1"),
    ]  # fmt: skip
    draw = random.Random(0)
    outcomes = []
    for _ in range(400):
        relations = [
            (draw.choice(["le", "le", "equal", "broadcast"]), draw.choice(dims), draw.choice(dims))
            for _ in range(draw.randrange(1, 4))
        ]
        rows = misfit_steps(kernel(*relations))
        for _ in range(10):
            values = [draw.randrange(12) for _ in range(7)]
            names = ("length.0", "length.1", "n", "m", "workload.0", "workload.1", "workload.2")
            known = {
                **dict(zip(names, values, strict=True)),
                "constant.0": values[2],
                "constant.1": values[3],
            }
            expected = all(
                TESTS[kind](evaluate(a, known), evaluate(b, known)) for kind, a, b in relations
            )
            assert fits(rows, values) == expected, (relations, values)
            outcomes.append(expected)
    assert 0.1 < sum(outcomes) / len(outcomes) < 0.9


def test_what_is_computed_alike_is_one_step() -> None:
    rows = misfit_steps(
        kernel(("le", N * M * 4, symbol("length.0")), ("le", N * M * 4, symbol("length.1")))
    )
    assert len(rows) == 5  # 4, n * m, that * 4, and two tests


def test_more_values_than_a_driver_takes_are_refused() -> None:
    many = layout().constants["INGOT_OPENCL_MAX_VALUES"] - 7
    assert len(misfit_steps(kernel(*(("le", each, N) for each in range(many))))) == 2 * many
    with pytest.raises(CompileError, match="takes 1025 numbers"):
        misfit_steps(kernel(*(("le", each, N) for each in range(many + 1))))

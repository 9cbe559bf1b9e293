"""Polls: they change no result, a stop ends the kernel there, and none is far from the next."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ingot.compiler.ir import Function, Op, walk
from ingot.compiler.ir.dims import evaluate
from ingot.compiler.kernels import place_polls
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.kernels.entry import operand_types
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.kernels.kernel_text import kernel_text, parse_kernel
from ingot.compiler.kernels.table import For
from ingot.compiler.targets.cpu import c_printer
from ingot.hal.spec import dtype
from tests.support.class_entries import ENTRIES, interpret
from tests.support.comparators import sorter
from tests.support.entries import assert_close, entry, make, reference
from tests.support.kernel_runner import POLL, VARIANTS, Loaded, build, host_variants

BEST = host_variants()[0]
TARGET = VARIANTS[BEST].target
I64 = dtype("i64")
UNBOUNDED = {"n": (1, None)}


def polls_of(kernel: Kernel) -> list[Op]:
    return [op for op in walk(kernel.loops) if op.name == "loop.poll" or _has_polls(op)]


def _has_polls(loop: Op) -> bool:
    return isinstance(loop.attributes, For) and loop.attributes.poll > 0


def written(kernel: Kernel, function: Function, n: int) -> list[np.ndarray[Any, Any]]:
    """Results and workspaces."""
    types = [*operand_types(function)[len(function.arguments) :], *kernel.workspaces]
    shapes = [[evaluate(dim, {"n": n}) for dim in type.shape] for type in types]
    return [
        np.full(shape, 77).astype(type.dtype.numpy)
        for shape, type in zip(shapes, types, strict=True)
    ]


class Asked:
    """What a kernel asks: how often, the longest time of the processor in between, and when to
    say that the call ends."""

    def __init__(self, last: int | None = None) -> None:
        self.count, self.longest, self.last = 0, 0.0, last
        self.begin = time.thread_time()
        self.poll = POLL(self._answer)

    def _answer(self, _dispatch: int) -> int:
        self.count += 1
        self._note()
        return int(self.last is not None and self.count >= self.last)

    def _note(self) -> None:
        now = time.thread_time()
        self.longest, self.begin = max(self.longest, now - self.begin), now

    def run(self, kernel: Kernel, arrays: list[np.ndarray[Any, Any]], **symbols: int) -> None:
        source = c_printer.print_source([c_printer.print_kernel(kernel)])
        loaded = Loaded(kernel, BEST, path=build(source, BEST, ["-O1"]))
        loaded.poll = self.poll
        self.begin = time.thread_time()
        loaded(arrays, **symbols)
        self._note()


@pytest.mark.parametrize("name", ENTRIES)
def test_polls_change_no_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place_polls, "PART", 40)
    monkeypatch.setattr(place_polls, "_FREE", 0)
    function = ENTRIES[name]()
    kernel = parse_kernel(kernel_text(lower_entry(function, TARGET)))
    assert polls_of(kernel)
    for n in (37, 4) if function.symbols else (0,):
        operands = [
            make(each.type, np.random.default_rng(n), {"n": n})  # type: ignore[arg-type]
            for each in function.arguments
        ]
        expected = reference(function, operands)
        results = written(kernel, function, n)
        Asked().run(kernel, [*operands, *results], n=n)
        interpreted = [np.full(each.shape, 77).astype(each.dtype) for each in expected]
        interpret(kernel, operands, interpreted, n=n)
        for mine, other, theirs in zip(results, interpreted, expected, strict=False):
            assert_close(mine, theirs, 3e-6)
            assert_close(other, theirs, 3e-6)


def test_a_workgroup_of_little_work_has_no_polls() -> None:
    for name, make_entry in ENTRIES.items():
        function = make_entry()
        if not function.symbols:
            assert not polls_of(lower_entry(function, TARGET)), name


LONG: dict[str, tuple[Callable[[], Any], int, int]] = {
    "sort": (lambda: entry(["f32[n]"], sorter(0, ["f32"]), UNBOUNDED), 1_000_000, 10),
    "a few of many": (
        lambda: entry(
            ["f32[n]"],
            lambda b, x: b.op("top_k", x, k=4, axis=0, largest=True, dtype=I64),
            {"n": (4, None)},
        ),
        4_000_000,
        4,
    ),
    "many of many": (
        lambda: entry(
            ["f32[n]"],
            lambda b, x: b.op("top_k", x, k=400, axis=0, largest=True, dtype=I64),
            {"n": (400, None)},
        ),
        1_000_000,
        4,
    ),
    "running sum": (
        lambda: entry(
            ["f32[n]"], lambda b, x: b.op("cumulative", x, axis=0, kind="add"), UNBOUNDED
        ),
        2_000_000,
        10,
    ),
    "sum": (
        lambda: entry(["f32[n]"], lambda b, x: b.op("reduce", x, axes=(0,), kind="add"), UNBOUNDED),
        8_000_000,
        4,
    ),
    "known length": (
        lambda: entry(["f32[2000000]"], lambda b, x: b.op("cumulative", x, axis=0, kind="add")),
        0,
        4,
    ),
    "dot": (
        lambda: entry(
            ["f32[1,n]", "f32[n,1]"],
            lambda b, x, y: b.op(
                "dot_general", x, y, lhs_batch=(), rhs_batch=(), lhs_contract=(1,),
                rhs_contract=(0,), dtype=dtype("f32"),
            ),
            UNBOUNDED,
        ),
        2_000_000,
        10,
    ),
    "attention": (
        lambda: entry(
            ["f32[1,1,1,8]", "f32[1,1,n,8]", "f32[1,1,n,8]"],
            lambda b, *x: b.op("attention", *x, scale=0.3),
            UNBOUNDED,
        ),
        500_000,
        4,
    ),
    "scatter": (
        lambda: entry(
            ["f32[9]", "i32[n,1]", "f32[n]"],
            lambda b, *x: b.op(
                "scatter", *x, kind="add", mode="skip", update_window_dims=(),
                inserted_window_dims=(0,), input_batching_dims=(), scatter_indices_batching_dims=(),
                scatter_dims_to_operand_dims=(0,), index_vector_dim=1,
            ),
            UNBOUNDED,
        ),
        2_000_000,
        4,
    ),
    "window": (
        lambda: entry(
            ["f32[2000000]"],
            lambda b, x: b.op(
                "reduce_window", x, kind="max", window=(1999990,), strides=(1,), padding=((0, 0),)
            ),
        ),
        0,
        4,
    ),
    "many long axes": (
        lambda: entry(
            ["f32[1,1,1,n]", "f32[n,1,1,1]"],
            lambda b, x, y: b.op("add", *b.broadcast_together(x, y)),
            UNBOUNDED,
        ),
        2000,
        0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_a_long_workgroup_asks_every_few_milliseconds(name: str) -> None:
    make_entry, n, least = LONG[name]
    function = make_entry()
    rng = np.random.default_rng(0)
    operands = [make(each.type, rng, {"n": n}) for each in function.arguments]  # type: ignore[arg-type]
    results = []
    asked = Asked()
    for target, each in ((TARGET, asked), (replace(TARGET, polls=False), Asked())):
        kernel = lower_entry(function, target)
        arrays = written(kernel, function, n)
        each.run(kernel, [*operands, *arrays], n=n)
        results.append(arrays[: len(arrays) - len(kernel.workspaces)])
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert asked.count >= least
    assert asked.longest < 0.02  # by far less where the machine has nothing else to do
    stopped, kernel = Asked(last=2), lower_entry(function, TARGET)
    stopped.run(kernel, [*operands, *written(kernel, function, n)], n=n)
    assert stopped.count <= max(asked.count // 2, 2)

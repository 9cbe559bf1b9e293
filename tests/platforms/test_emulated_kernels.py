"""Kernels of every class and dtype, built for other machines and run there under an emulator, give
what the interpreter of graph IR gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Function, TensorType, Value, walk
from ingot.compiler.kernels.classes import lower_entry
from ingot.compiler.targets.cpu.variants import VARIANTS
from ingot.hal.spec import dtype
from tests.support.class_entries import ENTRIES
from tests.support.emulators import EMULATED, Job, converts_vectors, need_emulator, run_jobs
from tests.support.entries import assert_close, coded, entry, make, reference

Array = np.ndarray[Any, Any]
Case = tuple[Function, Sequence[Array], dict[str, int]]
INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f32", "f64", "f16", "bf16")


def of_every_class() -> Iterator[Case]:
    for build in ENTRIES.values():
        function = build()
        for n in (37, 4) if function.symbols else (0,):
            rng = np.random.default_rng(n)
            yield (
                function,
                [make(each.type, rng, {"n": n}) for each in function.arguments],
                {"n": n},
            )


def of_integers() -> Iterator[Case]:
    """Quotients and remainders of 0, and shifts by more than the width, too."""

    def body(b: Any, x: Any, y: Any) -> list[Any]:
        binary = ("add", "mul", "div", "rem", "max", "shift_left", "shift_right_arithmetic")
        results = [b.op(name, x, y) for name in binary]
        return [*results, *(b.op("convert", x, dtype=dtype(name)) for name in FLOATS[:2])]

    for name in INTEGERS:
        limits, rng = np.iinfo(dtype(name).numpy), np.random.default_rng(5)
        x = rng.integers(limits.min, limits.max, 21, dtype=limits.dtype, endpoint=True)
        y = rng.integers(max(-3, limits.min), 70, 21).astype(limits.dtype)
        x[:3] = limits.min, limits.max, limits.max - 1
        yield entry([f"{name}[21]"] * 2, body), [x, y], {}


def of_floats() -> Iterator[Case]:
    """Also what is rounded to the format, and functions of the math library."""

    def body(b: Any, x: Any, y: Any) -> list[Any]:
        binary = [b.op(name, x, y) for name in ("add", "mul", "div", "max", "min")]
        names = ("exp", "tanh", "sin", "sqrt", "floor", "round_even", "abs", "sign")
        return [*binary, *(b.op(name, x) for name in names)]

    for name in FLOATS:
        rng, type = np.random.default_rng(6), dtype(name).numpy
        x, y = (np.asarray(rng.standard_normal(21) * 3, type) for _ in range(2))
        x[:5] = np.asarray([np.inf, -np.inf, np.nan, 2.5, 0], type)
        yield entry([f"{name}[21]"] * 2, body), [x, y], {}


BYTES = ("u8", "i8")


def of_conversions() -> Iterator[Case]:
    """Floats saturate; f16 has numbers below its normal ones."""
    x = np.asarray([0, -1.5, 127.5, 3e4, -7e4, 3e9, -2e10, 1e19, -1e30, np.inf, np.nan, 5e-7, 1e-5])
    to_integers = [*INTEGERS, "f16", "bf16"]
    for name in FLOATS[:2]:
        given = x.astype(dtype(name).numpy)
        yield (
            entry(
                [f"{name}[{len(x)}]"],
                lambda b, x: [
                    *(b.op("convert", x, dtype=dtype(to)) for to in to_integers),
                    *(b.op("convert", b.op("round_even", x), dtype=dtype(to)) for to in BYTES),
                ],
            ),
            [given],
            {},
        )
    with np.errstate(over="ignore"):
        halves = x.astype(np.float16)
    yield (
        entry([f"f16[{len(x)}]"], lambda b, x: b.op("convert", x, dtype=dtype("f32"))),
        [halves],
        {},
    )


def _of_bytes(kind: str, attributes: dict[str, Any], b: Builder, x: Value, w: Value) -> Value:
    return b.value(kind, x, w, dtype=dtype("i32"), **attributes)


def of_products() -> Iterator[Case]:
    """Of bytes, as extreme as they get, and of the narrow floats."""
    rng = np.random.default_rng(3)
    for left, right in (("u8", "i8"), ("i8", "i8"), ("u8", "u8"), ("i8", "u8")):
        for kind, x, w, attributes in (
            ("dot_packed", [9, 36], [3, 9, 16, 4], {"n": 40}),
            ("dot_general", [9, 32], [40, 32], {"lhs_contract": (1,), "rhs_contract": (1,)}),
            ("dot_general", [9, 13], [13, 40], {"lhs_contract": (1,), "rhs_contract": (0,)}),
        ):
            limits = [np.iinfo(dtype(name).numpy) for name in (left, right)]
            given = [
                rng.choice([each.min, each.min + 1, 0, 77, each.max], shape).astype(each.dtype)
                for each, shape in zip(limits, (x, w), strict=True)
            ]
            types = [TensorType(dtype(left), tuple(x)), TensorType(dtype(right), tuple(w))]
            product = partial(_of_bytes, kind, attributes)
            yield entry(types, product), given, {}
    function = entry(
        ["bf16[9,36]", "bf16[3,18,16,2]"],
        lambda b, x, w: b.op("dot_packed", x, w, n=40, dtype=dtype("f32")),
    )
    yield function, [make(each.type, rng, {}) for each in function.arguments], {}
    function = entry(
        ["f16[9,36]", "f16[3,18,16,2]"],
        lambda b, x, w: b.op("dot_packed", x, w, n=40, dtype=dtype("f32")),
    )
    x, w = (rng.integers(-4, 5, each.type.shape) / 4 for each in function.arguments)
    yield function, [x.astype(np.float16), w.astype(np.float16)], {}  # exact in f16
    function = entry(
        ["u8[2,5,9,20]", "i8[3,3,20]"],
        partial(_of_bytes, "depthwise", {"strides": (1, 2), "padding": ((1, 1), (1, 1))}),
    )
    yield function, [make(each.type, rng, {}) for each in function.arguments], {}
    for name in FLOATS:
        function = entry(
            [f"{name}[7,18]", f"{name}[18,21]"],
            lambda b, x, y: b.op("dot_general", x, y, lhs_contract=(1,), rhs_contract=(0,)),
        )
        yield function, [make(each.type, rng, {}) for each in function.arguments], {}
    function = entry(
        ["f32[2,64]", "u8[2,8,16,4]", "f16[2,2,16]"],
        lambda b, *x: b.op("dot_coded", *x, n=21, group=32, dtype=dtype("f32"), **coded("t4")),
    )
    yield function, [make(each.type, rng, {}) for each in function.arguments], {}


def run_cases(variant: str, cases: Sequence[Case]) -> None:
    need_emulator(variant)
    jobs, wanted = [], []
    for function, operands, symbols in cases:
        wanted.append(reference(function, operands))
        results = [np.full(each.shape, 77).astype(each.dtype) for each in wanted[-1]]
        kernel = lower_entry(function, VARIANTS[variant].target)
        jobs.append(Job(kernel, operands, results, symbols))
    run_jobs(variant, jobs)
    for job, expected in zip(jobs, wanted, strict=True):
        for mine, theirs in zip(job.results, expected, strict=True):
            assert_close(mine, theirs, 3e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    # Those of riscv64 are plain C, as every class of kernels is below.
    [pytest.param(each, marks=[pytest.mark.long] * (each == "riscv64")) for each in EMULATED],
)
def test_products_on_other_machines_are_what_the_graph_gives(variant: str) -> None:
    cases = list(of_products())
    kernels = [lower_entry(each[0], VARIANTS[variant].target) for each in cases[:12]]
    assert all(any(op.name == "loop.dot4" for op in walk(each.loops)) for each in kernels)
    halves = lower_entry(cases[12][0], VARIANTS[variant].target)
    assert any(op.name == "loop.dot2" for op in walk(halves.loops)) == variant.endswith("bf16")
    halves = lower_entry(cases[13][0], VARIANTS[variant].target)
    assert any(op.name == "loop.fma2" for op in walk(halves.loops)) == variant.endswith("fp16")
    run_cases(variant, cases)


BASES = ("aarch64", "armv7-neon", "riscv64", "riscv64-v", "wasm32-simd128")
GROUPS: list[Callable[[], Iterator[Case]]] = [
    of_every_class, of_integers, of_floats, of_conversions
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("variant", BASES)
def test_kernels_of_every_class_and_dtype_run_on_other_machines(variant: str) -> None:
    need_emulator(variant)
    groups = GROUPS if variant != "riscv64-v" or converts_vectors() else GROUPS[:2]
    run_cases(variant, [case for group in groups for case in group()])

"""Matrix multiplication in f32 against NumPy's OpenBLAS, on one thread, in turns.

The second operand is an argument in one row, as for NumPy, and a constant of the module in the
other, where the compiler packs it once.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before NumPy is imported

import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np
from table import format_seconds, print_table

import ingot

SIZES = (512, 1024)
ROUNDS = 12
CALLS = 4  # in a turn


def main() -> int:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    rows: list[list[str]] = []
    for size in SIZES:
        rows += compare(size)
    head = ("f32 matmul", "median", "minimum", "GFLOP/s", "ratio", "error")
    print_table(head, rows)
    return 0


def compare(size: int) -> list[list[str]]:
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((size, size), np.float32) for _ in range(2))
    result = np.empty_like(a)
    shape = f"f32[{size},{size}]"
    product = (
        "dot_general(%a, %b) {lhs_batch=[], rhs_batch=[], lhs_contract=[1], rhs_contract=[0], "
        f"dtype=f32}} : {shape}"
    )
    dynamic = ingot.compile(
        f'module {{}} {{ func @main(%a: {shape} "a", %b: {shape} "b") -> ({shape} "c") '
        f"{{ %0 = {product} return(%0) }} }}"
    )
    packed = ingot.compile(
        f'module {{}} {{ func @main(%a: {shape} "a") -> ({shape} "c") '
        f'{{ %b = parameter() {{scope="", key="b", dtype=f32, shape=[{size}, {size}]}} : {shape} '
        f"%0 = {product} return(%0) }} }}"
    )
    both = ingot.load(dynamic, threads=1)
    constant = ingot.load(packed, threads=1, parameters={"b": b})
    runs: dict[str, Callable[[], Any]] = {
        f"numpy {size}": lambda: np.matmul(a, b, out=result),
        f"ingot {size}": lambda: both(a, b, out=result),
        f"ingot {size}, b packed": lambda: constant(a, out=result),
    }
    reference = a.astype(np.float64) @ b.astype(np.float64)
    return measure(runs, result, reference)


def measure(runs: dict[str, Callable[[], Any]], result: Any, reference: Any) -> list[list[str]]:
    """A row per run; ratios are to the first."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    errors: dict[str, float] = {}
    for name, run in runs.items():
        run()
        errors[name] = float(np.abs(result - reference).max() / np.abs(reference).max())
    for _ in range(ROUNDS):
        for name, run in runs.items():
            for _ in range(CALLS):
                start = time.perf_counter()
                run()
                seconds[name].append(time.perf_counter() - start)
    return [row(name, seconds, errors[name], len(reference)) for name in runs]


def row(name: str, seconds: dict[str, list[float]], error: float, size: int) -> Sequence[str]:
    first = next(iter(seconds.values()))
    best = min(seconds[name])
    return [
        name,
        format_seconds(median(seconds[name])),
        format_seconds(best),
        f"{2 * size**3 / best / 1e9:.1f}",
        f"{best / min(first):.3f}",
        f"{error:.1e}",
    ]


if __name__ == "__main__":
    sys.exit(main())

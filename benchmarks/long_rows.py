"""How late a call ends that is in the middle of one long workgroup.

One row of 10 million f32 on one core: the time of the whole call, and how long after its timeout
a call ended that was given a third of that time; the median and the worst of some calls.
"""

from __future__ import annotations

import contextlib
import sys
import time

import numpy as np
from table import format_seconds, print_table

import ingot

LENGTH, REPEATS = 10_000_000, 8
PROGRAM = """
module {{producer="benchmarks/long_rows.py"}} {{
  func @main(%x: f32[n] "x") -> ({type} "y") symbols {{n in [100, {length}]}} {{
    {op}
    return(%y)
  }}
}}
"""
OPS = {
    "sort": (
        "f32[n]",
        """%y = sort(%x) {axis=0} : f32[n] ({
    ^(%a: f32, %b: f32):
      %less = compare(%a, %b) {direction="lt"} : i1
      yield(%less)
    })""",
    ),
    "100 greatest": (
        "f32[100]",
        "%y, %z = top_k(%x) {k=100, axis=0, largest=true, dtype=i64} : f32[100], i64[100]",
    ),
    "argmax": ("i64[]", "%y = arg_max(%x) {axis=0, dtype=i64, last=false} : i64[]"),
    "running sum": (
        "f32[n]",
        '%y = cumulative(%x) {axis=0, kind="add", exclusive=false, reverse=false} : f32[n]',
    ),
    "sum": ("f32[]", '%y = reduce(%x) {axes=[0], kind="add"} : f32[]'),
}


def main() -> int:
    x = np.random.default_rng(0).standard_normal(LENGTH).astype(np.float32)
    rows = []
    for name, (type, op) in OPS.items():
        module = ingot.compile(PROGRAM.format(type=type, op=op, length=LENGTH))
        with ingot.load(module, threads=1) as model:
            seconds = min(_seconds(model, x) for _ in range(REPEATS // 2))
            late = sorted(_lateness(model, x, seconds / 3) for _ in range(REPEATS))
        times = (seconds, late[REPEATS // 2], late[-1])
        rows.append([name, *map(format_seconds, times), f"{seconds / LENGTH * 1e9:.2f}"])
    print_table(["one row of 10 million f32", "time", "late", "at most", "ns per element"], rows)
    return 0


def _seconds(model: ingot.Model, x: np.ndarray) -> float:
    start = time.process_time()
    model(x)
    return time.process_time() - start


def _lateness(model: ingot.Model, x: np.ndarray, timeout: float) -> float:
    """Seconds from the end of a call's time to the call's end."""
    start = time.perf_counter()
    with contextlib.suppress(ingot.DeadlineExceeded):
        model.call(x, timeout=timeout)
    return time.perf_counter() - start - timeout


if __name__ == "__main__":
    sys.exit(main())

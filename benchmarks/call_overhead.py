"""What one call costs beside the work: x + 1 on f32[4], one dispatch, all checks on.

From Python, with and without memory for the result. From C, the same is measured by
`call_overhead.c`, which this program builds against the C library's sources if a C compiler is
there. Also measured: how much longer `import ingot` takes than `import numpy`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from table import format_seconds, print_table

import ingot

ROOT = Path(__file__).resolve().parents[1]
REPEATS, CALLS = 20, 2000


def main() -> int:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    module = ingot.compile(ROOT / "samples" / "hello" / "hello.onnx")
    model = ingot.load(module, threads=1)
    x, y = np.arange(4, dtype=np.float32), np.empty(4, np.float32)
    rows = [
        ["Python, model(x)", format_seconds(seconds_per_call(lambda: model(x)))],
        ["Python, model(x, out=y)", format_seconds(seconds_per_call(lambda: model(x, out=y)))],
        ["NumPy, x + 1", format_seconds(seconds_per_call(lambda: x + 1))],
        ["C, ingot_session_call", *map(format_seconds, calls_from_c(module)[:1])],
        ["import ingot after numpy", format_seconds(import_seconds())],
    ]
    print_table(("call overhead", "minimum"), rows)
    return 0


def seconds_per_call(run: Callable[[], Any]) -> float:
    """The mean of the fastest batch of calls."""
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(CALLS):
            run()
        best = min(best, (time.perf_counter() - start) / CALLS)
    return best


def calls_from_c(module: ingot.Module) -> list[float]:
    """The seconds that `call_overhead.c` prints; nothing without a C compiler."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "hello.ingot"
        module.save(path)
        figures = run_c(["call_overhead.c", "../csrc/ingot.c"], path)
    return [figure * 1e-9 for figure in figures]


def run_c(sources: Sequence[str], *arguments: str | Path) -> list[float]:
    """The numbers that a program of this folder prints; nothing without a C compiler."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return []
    with TemporaryDirectory() as folder:
        program = Path(folder) / "program"
        files = [ROOT / "benchmarks" / source for source in sources]
        flags = ["-std=c11", "-O2", f"-I{ROOT / 'csrc' / 'include'}", f"-I{ROOT / 'csrc'}"]
        command = [compiler, *flags, *map(str, files), "-o", str(program), "-lpthread", "-ldl"]
        subprocess.run(command, check=True)
        output = subprocess.run([program, *arguments], check=True, capture_output=True, text=True)
    return [float(line) for line in output.stdout.split()]


def import_seconds() -> float:
    """The least of several fresh processes; what numpy takes is not counted."""
    code = (
        "import time, numpy; start = time.perf_counter(); import ingot; "
        "print(time.perf_counter() - start)"
    )
    command = [sys.executable, "-c", code]
    return min(
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(5)
    )


if __name__ == "__main__":
    sys.exit(main())

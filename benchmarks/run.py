"""Runs all benchmarks one after another: what `make bench` calls.

Arguments go to `compare.py`. A benchmark that fails does not stop the others.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAMS = (
    "matmul.py",
    "call_overhead.py",
    "compile_time.py",
    "first_result.py",
    "dynamic.py",
    "compare.py",
    "web.py",
)


def main() -> int:
    failed: list[str] = []
    for program in PROGRAMS:
        print(f"\n== {program}", flush=True)
        extra = sys.argv[1:] if program == "compare.py" else []
        command = [sys.executable, str(Path(__file__).with_name(program)), *extra]
        if subprocess.run(command).returncode != 0:
            failed.append(program)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())

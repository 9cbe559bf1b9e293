"""Measures what an application builds on: calls beside bare kernels, beside other runtimes.

    python benchmarks/runtime.py [GROUP ...]

A group is a file of benchmarks/runtime_rows, whose function `rows` gives a Row for each figure.
Sides of a row take turns and are kept by their least time. Rows of other engines are left out
where those are not installed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from runtime_rows.row import measure  # noqa: E402
from table import print_table  # noqa: E402

GROUPS = sorted(
    path.stem for path in (ROOT / "benchmarks/runtime_rows").glob("*.py") if path.stem != "row"
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    options = parser.parse_args()
    unknown = sorted(set(options.groups) - set(GROUPS))
    if unknown:
        parser.error(f"no group {', '.join(unknown)}; there are {', '.join(GROUPS)}")
    for group in options.groups or GROUPS:
        print(f"\n{group}")
        rows = importlib.import_module(f"runtime_rows.{group}").rows()
        print_table(("", "", ""), [cells for row in rows for cells in measure(row)])


if __name__ == "__main__":
    main()

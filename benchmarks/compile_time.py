"""How long compilation takes with an empty cache, and with what it left, per model.

Each measurement is a fresh process, which imports everything anew; default variants.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from table import format_seconds, print_table

from tests.models import graphs

MODELS = ("mlp", "minilm_128", "minilm", "mobilenetv2", "resnet50")
CODE = (
    "import sys, time; start = time.perf_counter(); import ingot; "
    "module = ingot.compile(sys.argv[1]); "
    "print(time.perf_counter() - start, len(bytes(module)))"
)


def main() -> int:
    rows: list[list[str]] = []
    failed = False
    for name in MODELS:
        with TemporaryDirectory() as folder:
            model = Path(folder) / f"{name}.onnx"
            model.write_bytes(graphs.load(name, seed=0).SerializeToString())
            row = [compile_once(model, Path(folder) / "cache") for _ in range(2)]
        failed |= any(error for _, _, error in row)
        (cold, length, error), (warm, _, _) = row
        times = [error, ""] if error else [format_seconds(cold), format_seconds(warm)]
        rows.append([name, *times, f"{length / 1e6:.2f} MB"])
    print_table(("compile time", "empty cache", "full cache", "module"), rows)
    return int(failed)


def compile_once(model: Path, cache: Path) -> tuple[float, int, str]:
    """Seconds, bytes of the module, and what went wrong; from a process of its own."""
    environment = {**os.environ, "INGOT_CACHE": str(cache)}
    command = [sys.executable, "-c", CODE, str(model)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        return 0.0, 0, (done.stderr.strip().splitlines() or ["no message"])[-1]
    seconds, length = done.stdout.split()
    return float(seconds), int(length), ""


if __name__ == "__main__":
    sys.exit(main())

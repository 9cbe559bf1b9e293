"""Compares Ingot with every other engine that is installed, on whole models.

    python benchmarks/compare.py [--threads 1] [--rounds 10] [MODEL ...]

One interleaved run, one process per engine, pinned to the same cores; results are checked
against the float64 references that are committed with the graphs. Prints median and minimum per
call and the ratios to onnxruntime's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engines import installed_engines
from table import format_seconds, print_table
from workers import Measurement, measure

from tests.models import graphs

BASELINE = "onnxruntime"
TOLERANCE = 5e-6  # max |d| / max |ref|
MODELS = ("mlp", "mobilenetv2", "minilm_128", "resnet50")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compares Ingot with other engines.")
    parser.add_argument("models", nargs="*", help=f"of {', '.join(graphs.NAMES)}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--turn", type=float, default=0.5, help="seconds per engine and round")
    options = parser.parse_args(arguments)
    rows: list[list[str]] = []
    failed = False
    for name in options.models or MODELS:
        measurements = run_model(name, options.threads, options.rounds, options.turn)
        rows += [row(name, each, measurements) for each in measurements]
        failed |= any(each.error for each in measurements if each.engine == "ingot")
        failed |= any(error_of(name, each) > TOLERANCE for each in measurements if each.results)
    print(f"{options.threads} thread(s), f32, error as max |d| / max |ref| against float64")
    head = ("model", "engine", "median", "minimum", "ratio", "ratio of minima", "error", "prepare")
    print_table(head, rows)
    return int(failed)


def run_model(name: str, threads: int, rounds: int, turn: float) -> list[Measurement]:
    """All engines on one model, filled from seed 0."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        path.write_bytes(graphs.load(name, seed=0).SerializeToString())
        inputs = graphs.sample(name, 0, **graphs.REFERENCE_DIMS.get(name, {}))
        return measure(
            installed_engines(),
            path,
            inputs,
            threads=threads,
            rounds=rounds,
            seconds_per_turn=turn,
        )


def error_of(name: str, measurement: Measurement) -> float:
    """How far the first result is from the reference, relative to its greatest element."""
    expected = graphs.reference(name)
    difference = np.abs(measurement.results[0] - expected).max()
    return float(difference / np.abs(expected).max())


def row(name: str, measurement: Measurement, all_of_model: Sequence[Measurement]) -> list[str]:
    if measurement.error:
        return [name, measurement.engine, *[""] * 4, "", measurement.error]
    baseline = next((each for each in all_of_model if each.engine == BASELINE), measurement)
    ratios = ["", ""]
    if baseline.seconds:
        ratios = [
            f"{median(measurement.seconds) / median(baseline.seconds):.3f}",
            f"{min(measurement.seconds) / min(baseline.seconds):.3f}",
        ]
    return [
        name,
        measurement.engine,
        format_seconds(median(measurement.seconds)),
        format_seconds(min(measurement.seconds)),
        *ratios,
        f"{error_of(name, measurement):.1e}",
        format_seconds(measurement.prepare_seconds),
    ]


if __name__ == "__main__":
    sys.exit(main())

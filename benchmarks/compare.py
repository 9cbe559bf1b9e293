"""Compares Ingot with every other engine that is installed, on whole models.

    python benchmarks/compare.py [--threads 1] [--rounds 10] [--json FILE] [MODEL ...]

One interleaved run, one process per engine, pinned to the same cores; results are checked
against the float64 references that are committed with the graphs. Prints median and minimum per
call and the ratios to onnxruntime's. `MODEL_int8` is a model whose products onnxruntime's tool has
quantized. docs/pictures/make_benchmarks.py draws the JSON.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engines import installed_engines
from table import format_seconds, print_table
from workers import Measurement, measure

from tests.models import graphs

BASELINE = "onnxruntime"
TOLERANCE = 5e-6  # max |d| / max |ref|
INT8 = "_int8"
INT8_TOLERANCE = 0.1
MODELS = ("mlp", "mobilenetv2", "minilm_128", "resnet50")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compares Ingot with other engines.")
    parser.add_argument("models", nargs="*", help=f"of {', '.join(graphs.NAMES)}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--turn", type=float, default=0.5, help="seconds per engine and round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    options = parser.parse_args(arguments)
    rows: list[list[str]] = []
    recorded: list[dict[str, Any]] = []
    failed = False
    for name in options.models or MODELS:
        measurements = run_model(name, options.threads, options.rounds, options.turn)
        rows += [row(name, each, measurements) for each in measurements]
        recorded += [record(name, each) for each in measurements if each.seconds]
        failed |= any(each.error for each in measurements if each.engine == "ingot")
        limit = INT8_TOLERANCE if name.endswith(INT8) else TOLERANCE
        failed |= any(error_of(name, each) > limit for each in measurements if each.results)
    print(f"{options.threads} thread(s), f32, error as max |d| / max |ref| against float64")
    head = ("model", "engine", "median", "minimum", "ratio", "ratio of minima", "error", "prepare")
    print_table(head, rows)
    if options.json is not None:
        results = {**circumstances(options.threads), "results": recorded}
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return int(failed)


def circumstances(threads: int) -> dict[str, Any]:
    """When, where and with what it was measured."""
    names = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return {
        "date": datetime.date.today().isoformat(),
        "machine": names[0].partition(": ")[2] if names else "unknown",
        "threads": threads,
        "versions": {each.name: version(each.package) for each in installed_engines()},
    }


def record(name: str, measurement: Measurement) -> dict[str, Any]:
    """Times in seconds."""
    return {
        "model": name,
        "engine": measurement.engine,
        "median": median(measurement.seconds),
        "minimum": min(measurement.seconds),
        "error": error_of(name, measurement),
        "prepare": measurement.prepare_seconds,
    }


def run_model(name: str, threads: int, rounds: int, turn: float) -> list[Measurement]:
    """All engines on one model, filled from seed 0."""
    graph = name.removesuffix(INT8)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"{graph}.onnx"
        path.write_bytes(graphs.load(graph, seed=0).SerializeToString())
        if graph != name:
            from onnxruntime.quantization import quantize_dynamic

            path, source = path.with_stem(name), path
            quantize_dynamic(source, path)
        inputs = graphs.sample(graph, 0, **graphs.REFERENCE_DIMS.get(graph, {}))
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
    expected = graphs.reference(name.removesuffix(INT8))
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

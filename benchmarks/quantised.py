"""Compares Ingot with other engines, and with its own f32, on models of fewer bits.

    python benchmarks/quantised.py [--threads 1] [--rounds 10] [--turn 0.3] [MODEL ...]

onnxruntime.quantization makes each model of the f32 one: "static" with scales from random
calibration data (DequantizeLinear, op, QuantizeLinear), "dynamic" with scales of the call; "bf16"
and "f16" are the f32 model, which Ingot and OpenVINO multiply so, and onnxruntime in f32. All
engines run in one process in turns. Ratios are to Ingot's time on the model of fewer bits; "off" is
how far results are from onnxruntime's, relative to the greatest, where every code that falls on the
other side of a rounding counts. The time to compile is with an empty cache.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dynamic import Program, Run, distance, measure, options_of_models
from engines import installed_engines
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from table import print_table

import ingot
from tests.models import graphs

MODELS = (
    *("resnet50 static", "mobilenetv2 static", "minilm_128 static", "minilm_128 dynamic"),
    *("resnet50 bf16", "mobilenetv2 bf16", "minilm_128 bf16", "resnet50 f16", "minilm_128 f16"),
)
SAMPLES = 2
TOLERANCE = 0.1  # of results from onnxruntime's; weights are random, so roundings do not even out


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """Random inputs of a model, for its calibration."""

    def __init__(self, name: str) -> None:
        self.rest = iter([inputs_of(name, seed) for seed in range(SAMPLES)])

    def get_next(self) -> Mapping[str, Any] | None:
        return next(self.rest, None)


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of_models("Measures quantised models.", MODELS, arguments)
    rows: list[list[str]] = []
    failed = False
    for model in options.models or MODELS:
        with TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = folder
            runs, seconds, length = prepare(model, Path(folder), options.threads)
            inputs = inputs_of(model.split()[0], 0)
            added, _ = measure(Program(model, runs, inputs), options.rounds, options.turn)
            off = distance(runs["ingot"](inputs), runs["onnxruntime"](inputs))
            failed |= not off <= TOLERANCE
            for row in added:
                is_ours = row[1] == "ingot"
                made = [f"{seconds:.1f} s", f"{length:.2f}", f"{off:.1e}"] if is_ours else [""] * 3
                rows.append([*row[:6], *made])
    print(f"{options.threads} thread(s); bytes: of the module, relative to the source's")
    head = ("model", "engine", "median", "minimum", "ratio", "ratio of minima", "compile", "bytes")
    print_table((*head, "off"), rows)
    return int(failed)


def inputs_of(name: str, seed: int) -> dict[str, Any]:
    """Random inputs of a model, at the sizes that it is measured with."""
    return dict(graphs.sample(name, seed, **graphs.REFERENCE_DIMS.get(name, {})))


def prepare(model: str, folder: Path, threads: int) -> tuple[dict[str, Run], float, float]:
    """The engines with the quantised model, and Ingot with the f32 one; seconds of the compile
    and bytes of the module relative to the source's."""
    name, _, kind = model.partition(" ")
    plain, quantised = folder / "f32.onnx", folder / "int8.onnx"
    plain.write_bytes(graphs.load(name, seed=0).SerializeToString())
    precision = kind if kind in ("bf16", "f16") else "f32"
    if precision != "f32":
        quantised = plain
    else:
        quantise(name, kind, plain, quantised)
    start = time.perf_counter()
    module = ingot.compile(quantised, precision=precision)
    seconds = time.perf_counter() - start
    engines = {each.name: each for each in installed_engines()}
    runs = {each: engine.prepare(quantised, threads, precision) for each, engine in engines.items()}
    runs["ingot, f32"] = engines["ingot"].prepare(plain, threads)
    return runs, seconds, len(bytes(module)) / quantised.stat().st_size


def quantise(name: str, kind: str, source: Path, target: Path) -> None:
    """Write the model with weights of i8 per channel."""
    options = {"per_channel": True, "weight_type": QuantType.QInt8}
    if kind == "dynamic":
        quantize_dynamic(source, target, **options)
        return
    quantize_static(
        source,
        target,
        Samples(name),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        **options,
    )


if __name__ == "__main__":
    sys.exit(main())

"""One small adapter per inference engine, all with the same face.

An adapter prepares an ONNX file for a number of threads and returns a function that runs it on
a dict of arrays and gives the list of results. Engines are imported only when they are used; one
that is not installed is left out of a comparison. All run with every optimisation on, in f32
unless they are asked for bf16 or f16 and have it (onnxruntime has not).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ENGINES", "Engine", "installed_engines"]

Run = Callable[[Mapping[str, Any]], list[Any]]


@dataclass(frozen=True)
class Engine:
    """`package` is what must be importable; `prepare(path, threads, precision)` compiles and
    loads."""

    name: str
    package: str
    prepare: Callable[..., Run]


def _prepare_ingot(path: Path, threads: int, precision: str = "f32") -> Run:
    import ingot

    model = ingot.load(ingot.compile(path, precision=precision), threads=threads)

    def run(inputs: Mapping[str, Any]) -> list[Any]:
        results = model(**inputs)
        return list(results) if isinstance(results, tuple) else [results]

    return run


def _prepare_onnxruntime(path: Path, threads: int, precision: str = "f32") -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda inputs: list(session.run(None, dict(inputs)))


def _prepare_openvino(path: Path, threads: int, precision: str = "f32") -> Run:
    import openvino

    core = openvino.Core()
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": precision,
    }
    request = core.compile_model(str(path), "CPU", options).create_infer_request()

    def run(inputs: Mapping[str, Any]) -> list[Any]:
        results = request.infer(dict(inputs), share_inputs=True)
        return list(results.values())

    return run


ENGINES = (
    Engine("ingot", "ingot", _prepare_ingot),
    Engine("onnxruntime", "onnxruntime", _prepare_onnxruntime),
    Engine("openvino", "openvino", _prepare_openvino),
)


def installed_engines() -> list[Engine]:
    """The engines whose package is there, Ingot first."""
    return [engine for engine in ENGINES if importlib.util.find_spec(engine.package)]

"""Programs whose shapes or steps are known only at the call, on one thread, in turns.

    python benchmarks/dynamic.py [--rounds 10] [--turn 0.3]

MiniLM compiled once for any sequence, against Ingot's own compile for each sequence and against
onnxruntime with the same dynamic file; an LSTM against onnxruntime; a loop of a million small
steps against jax. All of a program's engines run in one process in turns; results are compared.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engines import Engine, installed_engines
from table import format_seconds, print_table
from workers import time_calls

import ingot
from tests.models import graphs

SEQUENCES = (16, 64, 200)
HIDDEN, STEPS = 256, 100
LOOP_STEPS, ELEMENTS = 1_000_000, 1024
TOLERANCE = 2e-5  # max |d| / max |first|

Run = Callable[[Mapping[str, Any]], list[Any]]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Program:
    """What is measured: one work on the same inputs by several engines, the first of which the
    ratios refer to. `steps`: the table also gives the time of one of so many steps."""

    name: str
    runs: Mapping[str, Run]
    inputs: Mapping[str, Array]
    steps: int = 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measures dynamic programs.")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--turn", type=float, default=0.3, help="seconds per engine and round")
    options = parser.parse_args(arguments)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    rows: list[list[str]] = []
    failed = False
    with TemporaryDirectory() as folder:
        for program in (*minilm(Path(folder)), *lstm(Path(folder)), *loop()):
            added, error = measure(program, options.rounds, options.turn)
            rows += added
            failed |= not error <= TOLERANCE
    print("one thread; ratio: to the first of its group; error: max |d| / max |first|")
    head = ("program", "engine", "median", "minimum", "ratio", "ratio of minima", "step", "error")
    print_table(head, rows)
    return int(failed)


def options_of_models(
    description: str, models: Sequence[str], arguments: Sequence[str] | None
) -> argparse.Namespace:
    """Those of a benchmark of models, which gets as many cores as threads, and no warnings."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(models)}")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--turn", type=float, default=0.3, help="seconds per engine and round")
    options = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    return options


def measure(program: Program, rounds: int, turn: float) -> tuple[list[list[str]], float]:
    """A row per engine, and how far results are from those of the first one at most."""
    results = {name: run(program.inputs) for name, run in program.runs.items()}
    first = next(iter(results.values()))
    seconds: dict[str, list[float]] = {name: [] for name in program.runs}
    names = list(program.runs)
    for number in range(rounds):
        for place in range(len(names)):
            name = names[(place + number) % len(names)]
            seconds[name] += time_calls(program.runs[name], program.inputs, turn)
    errors = {name: distance(each, first) for name, each in results.items()}
    rows = [
        [program.name, name, *times(each, seconds[names[0]], program.steps), f"{errors[name]:.1e}"]
        for name, each in seconds.items()
    ]
    return rows, max(errors.values())


def times(seconds: Sequence[float], base: Sequence[float], steps: int) -> list[str]:
    """Median, minimum, the ratios of both to those of `base`, and the least time of a step."""
    ratios = [median(seconds) / median(base), min(seconds) / min(base)]
    step = format_seconds(min(seconds) / steps) if steps > 1 else ""
    cells = [format_seconds(median(seconds)), format_seconds(min(seconds))]
    return [*cells, *(f"{ratio:.3f}" for ratio in ratios), step]


def distance(results: Sequence[Any], expected: Sequence[Any]) -> float:
    """The greatest difference of any result, relative to its greatest element."""
    pairs = [
        (np.asarray(a, np.float64), np.asarray(b, np.float64))
        for a, b in zip(results, expected, strict=True)
    ]
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


def engine(name: str) -> Engine | None:
    """The adapter of an engine, if it is installed."""
    return next((each for each in installed_engines() if each.name == name), None)


def prepare(path: Path, names: Sequence[str]) -> dict[str, Run]:
    """The installed ones of these engines with the model at `path`."""
    found = [each for each in map(engine, names) if each is not None]
    return {each.name: each.prepare(path, 1) for each in found}


def minilm(folder: Path) -> list[Program]:
    """The dynamic model at several sequences, beside one that is compiled for each."""
    model = graphs.load("minilm", seed=0)
    path = folder / "minilm.onnx"
    path.write_bytes(model.SerializeToString())
    dynamic = prepare(path, ("ingot", "onnxruntime"))
    programs = []
    for sequence in SEQUENCES:
        sizes = {"batch": 1, "sequence": sequence}
        path.write_bytes(with_sizes(model, sizes).SerializeToString())
        static = prepare(path, ("ingot",))["ingot"]
        runs = {"ingot, static": static, "ingot, dynamic": dynamic["ingot"]}
        runs |= {name: run for name, run in dynamic.items() if name != "ingot"}
        programs.append(Program(f"minilm s={sequence}", runs, graphs.sample("minilm", 0, **sizes)))
    return programs


def with_sizes(model: onnx.ModelProto, sizes: Mapping[str, int]) -> onnx.ModelProto:
    """A copy of the model in which the named dims have these sizes."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for value in (*fixed.graph.input, *fixed.graph.output, *fixed.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    return fixed


def lstm(folder: Path) -> list[Program]:
    """One direction, batch 1, with constant weights: all hidden states, and the last ones."""
    generator = np.random.default_rng(0)
    scale = HIDDEN**-0.5
    shapes = {"w": (1, 4 * HIDDEN, HIDDEN), "r": (1, 4 * HIDDEN, HIDDEN), "b": (1, 8 * HIDDEN)}
    weights = [
        onnx.numpy_helper.from_array(
            (scale * generator.standard_normal(shape)).astype(np.float32), name
        )
        for name, shape in shapes.items()
    ]
    outputs = {"y": (STEPS, 1, 1, HIDDEN), "h": (1, 1, HIDDEN), "c": (1, 1, HIDDEN)}
    node = onnx.helper.make_node("LSTM", ["x", *shapes], [*outputs], "lstm", hidden_size=HIDDEN)
    f32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        [node],
        "lstm",
        [onnx.helper.make_tensor_value_info("x", f32, (STEPS, 1, HIDDEN))],
        [onnx.helper.make_tensor_value_info(name, f32, shape) for name, shape in outputs.items()],
        weights,
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    path = folder / "lstm.onnx"
    path.write_bytes(
        onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    )
    x = generator.standard_normal((STEPS, 1, HIDDEN)).astype(np.float32)
    return [Program("lstm", prepare(path, ("onnxruntime", "ingot")), {"x": x}, STEPS)]


def loop() -> list[Program]:
    """`s += a[i % 1024]`, a million times, from a `while` of jax; nothing without jax."""
    try:
        import jax
    except ImportError:
        return []

    def sum_elements(a: Any) -> Any:
        zero = jax.numpy.float32(0)
        return jax.lax.fori_loop(0, LOOP_STEPS, lambda i, s: s + a[i % ELEMENTS], zero)

    compiled = jax.jit(sum_elements)
    a = np.random.default_rng(0).random(ELEMENTS, np.float32)
    exported = jax.export.export(compiled, platforms=["cpu"])(a)
    model = ingot.load(ingot.compile(exported), threads=1)
    runs: dict[str, Run] = {
        "jax": lambda inputs: [compiled(inputs["a"]).block_until_ready()],
        "ingot": lambda inputs: [model(inputs["a"])],
    }
    return [Program("while", runs, {"a": a}, LOOP_STEPS)]


if __name__ == "__main__":
    sys.exit(main())

"""What a program pays until its first result: time and peak of memory, each in a fresh process.

    python benchmarks/first_result.py [--threads N] [--rounds N] [MODEL ...]

From the first import to the first result: an image's, or the logits behind a prompt of 16 tokens.
Ingot loads a module that is compiled already, beside the GGUF file for language models; others
read the source; "shared" has its weights as a load before left them. The files are in the system's
cache. A MODEL is one of tests/models, or a size and
type of language.py, such as 1B-Q4_0.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import language
from table import format_seconds, print_table

import ingot
from tests.models import graphs

MODELS = ("minilm_128", "resnet50", "135M-Q4_K_M", "1B-Q4_0")
START = """
import sys, time
start = time.perf_counter()
import numpy as np
model, module, inputs, threads = *sys.argv[1:4], int(sys.argv[4])
"""
END = """
seconds = time.perf_counter() - start
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(seconds, int(peak) * 1024)
"""
OF_NETWORKS = {
    "ingot": """
import ingot
ingot.load(module, threads=threads)(**np.load(inputs))
""",
    "onnxruntime": """
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
session.run(None, dict(np.load(inputs)))
""",
    "openvino": """
import openvino
options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
request = openvino.Core().compile_model(model, "CPU", options).create_infer_request()
request.infer(dict(np.load(inputs)))
""",
}
OF_LANGUAGE = {
    "ingot": """
import ingot
ingot.load(module, parameters=model, threads=threads).prefill(np.arange(16, dtype=np.int32))
""",
    "ingot, shared": """
import ingot
model = ingot.load(module, parameters=model, threads=threads, share_weights=True)
model.prefill(np.arange(16, dtype=np.int32))
""",
    "llama_cpp": f"""
import llama_cpp
options = dict(n_threads=threads, n_threads_batch=threads, verbose=False)
llama_cpp.Llama(model, n_ctx={language.CAPACITY}, **options).eval(list(range(16)))
""",
}
"""A program for each engine, by the package that must be there and how it is used."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures the first result.")
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rows: list[list[str]] = []
    for name in options.models:
        with TemporaryDirectory() as folder:
            rows += measure(name, Path(folder), options.threads, options.rounds)
    print_table(("first result", "engine", "seconds", "peak", "source"), rows)
    return int(any(row[1] == "ingot" and not row[3] for row in rows))


def measure(name: str, folder: Path, threads: int, rounds: int) -> list[list[str]]:
    """A row for each engine, in turns: the least time of the rounds, and the least peak."""
    module, inputs = folder / "model.ingot", folder / "inputs.npz"
    if name in graphs.NAMES:
        programs, model = OF_NETWORKS, folder / "model.onnx"
        model.write_bytes(graphs.load(name, seed=0).SerializeToString())
        arrays: dict[str, Any] = graphs.sample(name, 0, **graphs.REFERENCE_DIMS.get(name, {}))
        np.savez(inputs, **arrays)
        ingot.compile(model).save(module)
    else:
        programs, model = OF_LANGUAGE, folder / "model.gguf"
        size, _, mix = name.partition("-")
        language.write(model, mix, language.SIZES[size])
        ingot.compile(model, capacity=language.CAPACITY, precision="int8").save(module)
    arguments = [str(each) for each in (model, module, inputs, threads)]
    found: dict[str, list[tuple[float, int]]] = {
        each: [] for each in programs if find_spec(each.partition(",")[0])
    }
    environment = {**os.environ, "INGOT_CACHE": str(folder / "cache")}
    errors: dict[str, str] = {}
    for _ in range(rounds):
        for engine, runs in found.items():
            command = [sys.executable, "-c", START + programs[engine] + END, *arguments]
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env=environment
            )
            if done.returncode:
                errors[engine] = (done.stderr.strip().splitlines() or ["no message"])[-1]
                continue
            seconds, peak = done.stdout.split()[-2:]
            runs.append((float(seconds), int(peak)))
    length = f"{model.stat().st_size / 1e6:.1f} MB"
    return [
        [
            name,
            engine,
            format_seconds(min(runs)[0]),
            f"{min(p for _, p in runs) / 1e6:.0f} MB",
            length,
        ]
        if runs
        else [name, engine, errors[engine], "", length]
        for engine, runs in found.items()
    ]


if __name__ == "__main__":
    sys.exit(main())

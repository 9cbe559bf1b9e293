"""Compares Ingot with onnxruntime-web in one page of Chromium, on one thread.

    python benchmarks/web.py [--rounds 5] [--turn 0.5] [--variants browser] [MODEL ...]

npm installs onnxruntime-web into build/web. Prints median and minimum per call, the time to the
first result from the page's cache, the error against the float64 references, and what a page has to
download of each engine, plain and compressed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from compare import TOLERANCE
from table import format_seconds, print_table

import ingot
from ingot.hal.spec import DType
from tests.models import graphs
from tests.support.browser import ISOLATED, Browser, serve

ROOT = Path(__file__).resolve().parents[1]
MODELS = ("mlp", "mobilenetv2", "minilm_128")
WORK = ROOT / "build" / "web"
ORT_FILES = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compares Ingot with onnxruntime-web.")
    parser.add_argument("models", nargs="*", help=f"of {', '.join(graphs.NAMES)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--turn", type=float, default=0.5, help="seconds per engine and round")
    parser.add_argument("--variants", default="browser")
    options = parser.parse_args(arguments)
    rows: list[list[str]] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        sizes = write_engines(folder)
        for model in options.models or MODELS:
            write_model(folder, model, options.variants)
            with serve(folder, ISOLATED) as url, Browser() as browser:
                browser.open(f"{url}/index.html", "Boolean(window.compare)")
                call = f"compare({json.dumps(model)}, {options.rounds}, {1e3 * options.turn})"
                found = browser.evaluate(call)
            rows += [row(model, engine, found) for engine in found]
    print("one thread, one page; error as max |d| / max |ref| against float64")
    print_table(("model", "engine", "median", "minimum", "faster", "first", "error"), rows)
    print_table(("download of the engine", "bytes", "compressed"), sizes)
    return int(any(float(each[-1]) > TOLERANCE for each in rows))


def write_engines(folder: Path) -> list[list[str]]:
    """Both engines and the page, as a server has them; what they take of a network."""
    package = folder / "ingot-runtime"
    subprocess.run([sys.executable, ROOT / "web" / "build.py", package], check=True)
    command = ["npm", "install", "--silent", "--no-save", "--no-audit", "--no-fund"]
    subprocess.run([*command, "--prefix", str(WORK), "onnxruntime-web"], check=True)
    shutil.copytree(WORK / "node_modules" / "onnxruntime-web" / "dist", folder / "onnxruntime-web")
    shutil.copy(ROOT / "benchmarks" / "web.html", folder / "index.html")
    engines = {
        "ingot": [*folder.glob("ingot-runtime/*.js"), folder / "ingot-runtime" / "ingot.wasm"],
        "onnxruntime-web": [folder / "onnxruntime-web" / each for each in ORT_FILES],
    }
    sizes = []
    for engine, files in engines.items():
        texts = [each.read_bytes() for each in files]
        plain, small = sum(map(len, texts)), sum(len(gzip.compress(each)) for each in texts)
        sizes.append([engine, str(plain), str(small)])
    return sizes


def write_model(folder: Path, name: str, variants: str) -> None:
    """The model for both, and its inputs."""
    onnx = folder / f"{name}.onnx"
    onnx.write_bytes(graphs.load(name, seed=0).SerializeToString())
    ingot.compile(onnx, variants=variants.split(",")).save(folder / f"{name}.ingot")
    about, data = [], b""
    for key, value in graphs.sample(name, 0, **graphs.REFERENCE_DIMS.get(name, {})).items():
        array = np.ascontiguousarray(value)
        about.append(
            {
                "name": key,
                "dtype": DType.from_numpy(array.dtype).name,
                "dims": array.shape,
                "offset": len(data),
                "count": array.size,
            }
        )
        data += array.tobytes() + bytes(-array.nbytes % 8)
    (folder / f"{name}.json").write_text(json.dumps(about), encoding="utf-8")
    (folder / f"{name}.bin").write_bytes(data)


def row(name: str, engine: str, found: dict[str, Any]) -> list[str]:
    about, other = found[engine], found["onnxruntime-web"]
    expected = graphs.reference(name)
    error = np.abs(np.reshape(about["result"], expected.shape) - expected).max()
    return [
        name,
        engine,
        format_seconds(median(about["times"]) / 1e3),
        format_seconds(min(about["times"]) / 1e3),
        f"{median(other['times']) / median(about['times']):.2f}",
        format_seconds(about["first"] / 1e3),
        f"{float(error / np.abs(expected).max()):.1e}",
    ]


if __name__ == "__main__":
    sys.exit(main())

"""Reads handwritten digits with a compiled network and says how well and how fast it does.

The network comes by two routes, as an ONNX file and as a StableHLO artifact; both give one
module each, for any batch size. `train.py` made the files, `digits.c` does the same in C.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import ingot

FOLDER = Path(__file__).resolve().parent
ROUTES = {"ONNX": "digits.onnx", "StableHLO": "digits.stablehlo"}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path, help="keep the modules in this folder")
    options = parser.parse_args(arguments)
    images = np.load(FOLDER / "images.npy").astype(np.float32)[:, None]
    labels = np.load(FOLDER / "labels.npy")
    for name, file in ROUTES.items():
        module = ingot.compile(FOLDER / file)
        if options.save is not None:
            options.save.mkdir(parents=True, exist_ok=True)
            module.save(options.save / f"{Path(file).suffix[1:]}.ingot")
        print(f"{name}: {describe(module, images, labels)}")
    return 0


def describe(module: ingot.Module, images: Any, labels: Any) -> str:
    """Accuracy on the images, time for one and for all of them, and the module's size."""
    model = ingot.load(module)
    answers = np.argmax(model(images), axis=1)
    correct = int((answers == labels).sum())
    one, many = shortest_call(model, images[:1]), shortest_call(model, images)
    return (
        f"{correct} of {len(labels)} right ({100 * correct / len(labels):.2f} %), "
        f"{1e6 * one:.1f} us for one image, {1e3 * many:.2f} ms for {len(images)}, "
        f"module of {len(bytes(module)) / 1000:.1f} kB"
    )


def shortest_call(model: ingot.Model, images: Any, count: int = 20) -> float:
    """Seconds of the fastest of `count` calls."""
    times: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        model(images)
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    sys.exit(main())

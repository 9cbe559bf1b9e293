"""Continues a text with a small GPT-2 whose key-value cache is the state of the model.

    python generate.py "The compiler " --save generate.ingot

Two sources become one module, in which `prefill(ids)` and `decode(id)` share the cache and the
weights; a third has the whole loop inside. `generate.c` does the same in C.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import ingot

FOLDER = Path(__file__).resolve().parent
CAPACITY = 256  # positions that the network knows
COUNT = 200


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompt", nargs="?", default="The compiler ")
    parser.add_argument("--save", type=Path, help="keep the module in this file")
    options = parser.parse_args(arguments)
    module = compile_model()
    if options.save is not None:
        module.save(options.save)
    model = ingot.load(module)
    print(model)
    ids = np.frombuffer(options.prompt.encode("ascii"), np.uint8).astype(np.int32)
    for name, run in (("calls", step_by_step), ("one call", in_one_call)):
        text, seconds = measure(run, model, ids)
        print(f"{name}, {1e6 * seconds / COUNT:.0f} us for a character:\n{options.prompt}{text}")
    return 0


def compile_model() -> ingot.Module:
    """One module with three functions; the cache of the first two is state."""
    sources = {name: FOLDER / f"{name}.stablehlo" for name in ("prefill", "decode", "generate")}
    return ingot.compile(sources, state=ingot.state.carried("cache", capacity=CAPACITY))


def step_by_step(model: ingot.Model, ids: Any) -> list[int]:
    """The characters that follow, one call for each."""
    id = model.prefill(ids)
    result = [int(id)]
    while len(result) < COUNT:
        id = model.decode(id)
        result.append(int(id))
    return result


def in_one_call(model: ingot.Model, ids: Any) -> list[int]:
    """The same with the loop inside of the module."""
    return [int(id) for id in np.asarray(model.generate(ids))]


def measure(
    run: Callable[[ingot.Model, Any], list[int]], model: ingot.Model, ids: Any
) -> tuple[str, float]:
    """What `run` gives, as text, and the seconds it took."""
    start = time.perf_counter()
    result = run(model, ids)
    return bytes(result).decode("ascii"), time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())

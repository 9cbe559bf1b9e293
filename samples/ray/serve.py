"""A service with Ray Serve: replicas of a model, requests of one row each answered in batches.

    pip install "ray[serve]"
    python serve.py --replicas 2            # serves until it is interrupted
    curl -d "$(python -c 'print([0.5] * 512)')" localhost:8000
    python serve.py --replicas 2 --measure  # sends requests to itself, and ends

Rows that wait at the same time become one batch, along the symbolic dim of the model. A request
of a wrong shape is refused before that, so it fails alone.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ray
from model import FEATURES, rows, write_model
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse

import ingot


@serve.deployment(ray_actor_options={"num_cpus": 1}, max_ongoing_requests=64)
class Classifier:
    """A replica: one loaded model."""

    def __init__(self, model: ingot.Model) -> None:
        self.model = model

    @serve.batch(max_batch_size=32, batch_wait_timeout_s=0.002)
    async def classify(self, features: list[Any]) -> list[int]:
        labels = np.asarray(self.model(np.stack(features))).argmax(axis=1)
        return [int(label) for label in labels]

    async def label(self, features: Any) -> int:
        """The class of one row. ValueError: it is no row."""
        row = np.asarray(features, np.float32)
        if row.shape != (FEATURES,):
            raise ValueError(f"features have shape {row.shape}, expected ({FEATURES},)")
        return await self.classify(row)

    async def __call__(self, request: Request) -> JSONResponse:
        try:
            return JSONResponse({"label": await self.label(await request.json())})
        except ValueError as error:
            return JSONResponse({"error": str(error)}, status_code=400)


async def measure(handle: Any, count: int, at_once: int) -> None:
    """Sends `count` rows, so many at once, and prints what it took."""
    features, times = rows(0, count), []

    async def send(place: int) -> None:
        async with gate:
            start = time.perf_counter()
            await handle.label.remote(features[place])
            times.append(time.perf_counter() - start)

    gate = asyncio.Semaphore(at_once)
    start = time.perf_counter()
    await asyncio.gather(*(send(place) for place in range(count)))
    seconds = time.perf_counter() - start
    middle, late = (1e3 * float(np.quantile(times, part)) for part in (0.5, 0.99))
    print(
        f"{at_once} at once: {count / seconds:.0f} requests a second, "
        f"p50 {middle:.1f} ms, p99 {late:.1f} ms"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Serves a classifier with Ray Serve.")
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--measure", type=int, nargs="?", const=2000, metavar="COUNT")
    options = parser.parse_args(arguments)
    ray.init(num_cpus=options.replicas + 1, include_dashboard=False, logging_level="ERROR")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "classifier.ingot"
        write_model(path)
        model = ingot.load(path, threads=1)
        deployment = Classifier.options(num_replicas=options.replicas).bind(model)
        handle = serve.run(deployment, blocking=options.measure is None)
        if options.measure is not None:
            expected = int(np.asarray(model(rows(0, 1))).argmax())
            assert handle.label.remote(rows(0, 1)[0]).result() == expected
            for at_once in (1, 32):
                asyncio.run(measure(handle, options.measure // (1 if at_once > 1 else 10), at_once))
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()

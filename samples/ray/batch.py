"""Batch inference with Ray Data: workers take blocks of a data set, each with the model loaded.

    pip install "ray[data]"
    python batch.py --workers 2

The model reaches a worker as a pickle of some hundred bytes; its weights are mapped from the
module's file, so all workers of a machine hold one copy.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ray
from model import rows, write_model

import ingot

COUNT, BATCH = 131_072, 8192  # what Ray does for a batch is the same for any


class Classifier:
    """What a worker does; Ray makes one per worker."""

    def __init__(self, model: ingot.Model) -> None:
        self.model = model

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        began = time.time()
        labels = np.asarray(self.model(batch["features"])).argmax(axis=1)
        times = {"began": began, "ended": time.time()}
        return {"id": batch["id"], "label": labels} | {
            name: np.full(len(labels), value) for name, value in times.items()
        }


@dataclass(frozen=True)
class Figures:
    """Seconds: all, from the first batch to the last, and in the model, summed over workers."""

    workers: int
    total: float
    working: float
    inside: float


def data_set(count: int) -> ray.data.Dataset:
    """Rows with `id` and `features`, in Ray's memory, a block for each batch."""

    def make(batch: dict[str, Any]) -> dict[str, Any]:
        return {"id": batch["id"], "features": rows(int(batch["id"][0]), len(batch["id"]))}

    blocks = ray.data.range(count, override_num_blocks=count // BATCH)
    return blocks.map_batches(make, batch_size=BATCH).materialize()


def classify(
    model: ingot.Model, workers: int, data: ray.data.Dataset
) -> tuple[Figures, np.ndarray]:
    """What it took, and the labels in the order of the rows."""
    mapped = data.map_batches(
        Classifier,
        fn_constructor_args=(model,),
        compute=ray.data.ActorPoolStrategy(size=workers),
        num_cpus=1,
        batch_size=BATCH,
    )
    start = time.perf_counter()
    found = mapped.to_pandas().sort_values("id")
    total = time.perf_counter() - start
    working = found["ended"].max() - found["began"].min()
    inside = (found["ended"] - found["began"]).sum() / BATCH
    return Figures(workers, total, working, inside), found["label"].to_numpy()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Classifies a data set with Ray Data.")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rows", type=int, default=COUNT)
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args(arguments)
    cores = max(options.workers) + 1  # one for what reads the data
    ray.init(num_cpus=cores, include_dashboard=False, logging_level="ERROR")
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.wait_for_min_actors_s = 60  # workers begin together
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "classifier.ingot"
        write_model(path)
        model = ingot.load(path, threads=1)
        expected = np.asarray(model(rows(0, BATCH))).argmax(axis=1)
        data = data_set(options.rows)
        for workers in options.workers:
            each, labels = classify(model, workers, data)
            assert (labels[:BATCH] == expected).all()
            figures.append(asdict(each))
            beside = each.working - each.inside / workers
            print(
                f"{workers} workers: {options.rows / each.working:.0f} rows a second, "
                f"{1e3 * beside * workers * BATCH / options.rows:.1f} ms of Ray's per batch; "
                f"{each.total - each.working:.1f} s to start and gather"
            )
    if options.json:
        options.json.write_text(json.dumps(figures), encoding="utf-8")
    ray.shutdown()


if __name__ == "__main__":
    main()

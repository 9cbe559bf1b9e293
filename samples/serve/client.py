"""Asks a model that serve.py serves, and measures it with a bounded load.

python client.py http://127.0.0.1:8080 digits --requests 2000 --at-once 32
"""

from __future__ import annotations

import argparse
import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np


class Client:
    """A model behind the Open Inference Protocol, over REST."""

    def __init__(self, server: str, model: str) -> None:
        self.url = f"{server}/v2/models/{model}"
        self.inputs = json.loads(urllib.request.urlopen(self.url).read())["inputs"]

    def __call__(self, **arrays: Any) -> dict[str, Any]:
        """The results by name. HTTPError: the server refused."""
        kinds = {each["name"]: each["datatype"] for each in self.inputs}
        inputs = [
            {
                "name": name,
                "shape": array.shape,
                "datatype": kinds.get(name, "FP32"),
                "data": array.ravel().tolist(),
            }
            for name, array in arrays.items()
        ]
        request = urllib.request.Request(
            f"{self.url}/infer",
            json.dumps({"inputs": inputs}).encode(),
            {"Content-Type": "application/json"},
        )
        found = json.loads(urllib.request.urlopen(request).read())["outputs"]
        return {each["name"]: np.array(each["data"]).reshape(each["shape"]) for each in found}

    def sample(self, random: np.random.Generator) -> dict[str, Any]:
        """Arguments of one row."""
        return {
            each["name"]: random.random([1 if dim < 0 else dim for dim in each["shape"]])
            for each in self.inputs
        }


def load(client: Client, requests: int, at_once: int) -> dict[str, Any]:
    """Sends requests of one row from so many threads; what became of them, and how long it took."""
    arguments = client.sample(np.random.default_rng(0))
    answers: Counter[int] = Counter()
    times: list[float] = []
    lock = threading.Lock()

    def ask(_: int) -> None:
        start, status = time.perf_counter(), 200
        try:
            client(**arguments)
        except urllib.error.HTTPError as error:
            status = error.code
        with lock:
            answers[status] += 1
            times.append(time.perf_counter() - start)

    start = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(ask, range(requests)))
    return {
        "answers": dict(answers),
        "requests a second": requests / (time.perf_counter() - start),
        "p50": float(np.quantile(times, 0.5)),
        "p99": float(np.quantile(times, 0.99)),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measures a model that is served.")
    parser.add_argument("server")
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 32])
    options = parser.parse_args(arguments)
    client = Client(options.server, options.model)
    for at_once in options.at_once:
        found = load(client, options.requests, at_once)
        print(
            f"{at_once} at once: {found['requests a second']:.0f} requests a second, "
            f"p50 {1e3 * found['p50']:.1f} ms, p99 {1e3 * found['p99']:.1f} ms, "
            f"answers {found['answers']}"
        )


if __name__ == "__main__":
    main()

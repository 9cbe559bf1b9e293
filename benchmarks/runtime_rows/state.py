"""State of 100 MB: forks of a session, and state as a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from runtime_rows.row import Row

import ingot

LENGTH = 25_000_000  # of f32


def rows() -> Iterator[Row]:
    def add(cache: ingot.ops.Tensor, x: ingot.ops.Tensor) -> dict[str, ingot.ops.Tensor]:
        return {"next": cache + x}

    program = ingot.trace(add, ingot.spec(f"f32[{LENGTH}]"), ingot.spec("f32[]"))
    model = ingot.load(ingot.compile(program, state={"next": "cache"}), threads=1)
    model(1)
    yield Row("fork", {"fork": model.fork, "state and load_state": lambda: _copy(model)})
    yield Row(
        "a call that changes all",
        {"first of a fork": lambda: model.fork()(1), "later": lambda: model(1)},
    )
    half = model.fork()
    half.load_state({"cache": np.repeat(np.float32([1, 0]), LENGTH // 2)})
    with tempfile.TemporaryDirectory() as folder:
        for name, each in (("all used", model), ("half used", half)):
            path = Path(folder, name)
            each.save_state(path)
            sides = {
                "save_state": lambda each=each, path=path: each.save_state(path),
                "load_state": lambda each=each, path=path: each.load_state(path),
            }
            yield Row(f"file, {name}", sides, facts={"MB": f"{path.stat().st_size / 1e6:.0f}"})


def _copy(model: ingot.Model) -> None:
    model.fork(state=False).load_state(model.state())

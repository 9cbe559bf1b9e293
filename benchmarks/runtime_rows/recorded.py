"""What a recorded list of device work could win against the VM: calls, and their kernels alone.

`recorded.c` records one call and plays it; docs/design/0028-command-lists.md says what came of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from call_overhead import run_c
from runtime_rows.row import Row
from table import format_seconds

import ingot
from tests.models import graphs

LAYERS = 20
CPU, OPENCL = "cpu://?threads=1", "opencl://0"
SIDES = ("call", "list", "command buffer")


def rows() -> Iterator[Row]:
    has_opencl = any(device.uri.startswith("opencl") for device in ingot.devices())
    for width in (16, 64, 256):
        source, argument = _perceptron(width), f"f32:1,{width}:0.5"
        for device in [CPU, OPENCL] if has_opencl else [CPU]:
            yield _row(f"MLP, {LAYERS} x {width}", device, source, [argument])
    ids = ["i64:1,8:3", "i64:1,8:1", "i64:1,8:0"]
    yield _row("MiniLM, 8 tokens", CPU, graphs.load("minilm", seed=0), ids)


def _perceptron(width: int) -> ingot.ops.Program:
    """f32[1,width] -> f32[1,width], a dispatch for each layer."""
    random = np.random.default_rng(0)
    shape = (width, width)
    weights = [random.normal(0, width**-0.5, shape).astype("f4") for _ in range(LAYERS)]

    def apply(x: ingot.ops.Tensor) -> ingot.ops.Tensor:
        for weight in weights:
            x = ingot.ops.maximum(x @ weight, 0)
        return x

    return ingot.trace(apply, ingot.spec(f"f32[1,{width}]"))


def _row(name: str, device: str, source: object, arguments: Sequence[str]) -> Row:
    target = device.partition(":")[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.ingot")
        ingot.compile(source, target=target).save(path)
        figures = run_c(["recorded.c"], device, path, *arguments)
    if not figures:
        return Row(f"{name}, {target}", facts={"no C compiler": ""})
    count, *times = figures
    facts = {
        side: format_seconds(time * 1e-9)
        for side, time in zip(SIDES, times, strict=True)
        if np.isfinite(time)
    }
    gain = max(times[0] - min(times[1:]), 0)
    each = format_seconds(gain / count * 1e-9)
    facts[f"won at most, {count:.0f} dispatches"] = f"{gain / times[0]:.1%}, {each} each"
    return Row(f"{name}, {target}", facts=facts)

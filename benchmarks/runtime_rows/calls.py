"""A call of y = x + 1 on four floats: what a runtime adds to the work of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from runtime_rows.row import Row

import ingot

SOURCE = Path(__file__).resolve().parents[2] / "samples/hello/hello.onnx"


def rows() -> Iterator[Row]:
    x = np.arange(4, dtype=np.float32)
    model = ingot.load(ingot.compile(SOURCE), threads=1)
    out = model(x)
    sides = {"ingot": lambda: model(x), "ingot, out=": lambda: model(x, out=out)}
    yield Row("call", sides | _onnxruntime(x))


def _onnxruntime(x: np.ndarray) -> Mapping[str, Callable[[], object]]:
    if find_spec("onnxruntime") is None:
        return {}
    import onnxruntime

    session = onnxruntime.InferenceSession(SOURCE, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    binding = session.io_binding()
    binding.bind_cpu_input(name, x)
    binding.bind_output(session.get_outputs()[0].name)
    return {
        "onnxruntime": lambda: session.run(None, {name: x}),
        "onnxruntime, io_binding": lambda: session.run_with_iobinding(binding),
    }

"""Calls of y = x + 1 that do not wait, and what the application does meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from call_overhead import calls_from_c
from runtime_rows.row import Row
from table import format_seconds

import ingot

SOURCE = Path(__file__).resolve().parents[2] / "samples/hello/hello.onnx"
IREE_SOURCE = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %one = arith.constant dense<1.0> : tensor<4xf32>
  %y = arith.addf %x, %one : tensor<4xf32>
  return %y : tensor<4xf32>
}
"""
MANY = 200
C_FIGURES = ("ingot_session_call", "submit alone", "submitted, of many", "submit to fence")


def rows() -> Iterator[Row]:
    x = np.arange(4, dtype=np.float32)
    module = ingot.compile(SOURCE)
    yield Row("C", facts=dict(zip(C_FIGURES, map(format_seconds, calls_from_c(module)))))  # noqa: B905
    model = ingot.load(module, threads=1)
    pool = ThreadPoolExecutor(1)

    def many() -> None:
        for future in [model.submit(x) for _ in range(MANY)]:
            future.result()

    def many_in_pool() -> None:
        for future in [pool.submit(model, x) for _ in range(MANY)]:
            future.result()

    sides: dict[str, Callable[[], object]] = {
        "ingot": lambda: model.submit(x).result(),
        "ingot, ThreadPoolExecutor": lambda: pool.submit(model, x).result(),
    }
    yield Row("submit to result", sides | _onnxruntime(x) | _iree(x))
    yield Row("of many", {"ingot": many, "ingot, ThreadPoolExecutor": many_in_pool}, count=MANY)
    if any(device.uri.startswith("opencl") for device in ingot.devices()):
        yield _overlap()


def _onnxruntime(x: np.ndarray) -> Mapping[str, Callable[[], object]]:
    if find_spec("onnxruntime") is None:
        return {}
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2  # with one, run_async is refused
    session = onnxruntime.InferenceSession(SOURCE, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name

    def call() -> None:
        done = threading.Event()
        session.run_async(None, {name: x}, lambda _results, _user, _error: done.set(), None)
        done.wait()

    return {"onnxruntime, run_async": call}


def _iree(x: np.ndarray) -> Mapping[str, Callable[[], object]]:
    """IREE's call puts the work on its own threads, and waits for a fence of theirs."""
    if find_spec("iree") is None:
        return {}
    from iree import compiler, runtime

    binary = compiler.compile_str(IREE_SOURCE, target_backends=["llvm-cpu"])
    config = runtime.Config("local-task")
    module = runtime.load_vm_module(
        runtime.VmModule.copy_buffer(config.vm_instance, binary), config
    )
    return {"iree, local-task": lambda: module.main(x).to_host()}


def _overlap() -> Row:
    """A product on the OpenCL device and Python on the host, one after the other and at once."""
    n = 256
    program = ingot.trace(lambda a, b: a @ b, *[ingot.spec(f"f32[{n},{n}]")] * 2)
    model = ingot.load(ingot.compile(program, target="opencl"), device="opencl://0")
    a = np.random.default_rng(0).random((n, n), np.float32)

    def host() -> int:
        return sum(range(80_000))

    def apart() -> None:
        model(a, a)
        host()

    def together() -> None:
        future = model.submit(a, a)
        host()
        future.result()

    sides = {
        "device": lambda: model(a, a),
        "host": host,
        "one after the other": apart,
        "submit, host, result": together,
    }
    return Row("OpenCL and host", sides)


# PoCL leaves a processor to the host: set before the device is opened.
os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", "1")
os.environ.setdefault("POCL_CPU_MAX_CU_COUNT", "1")

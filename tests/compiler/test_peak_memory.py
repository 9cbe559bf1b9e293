"""How much memory compiling takes beside the weights: a module has them once, and what it is made
of is read and packed one by one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.support.tflite_models import Model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the peak of memory")

_WIDTH, _COUNT = 1024, 16
_LENGTH = 4 * _WIDTH * _WIDTH * _COUNT

_PROGRAM = """
import sys
from pathlib import Path
import ingot
def told(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if name in line)
kind, path, small = sys.argv[1:]
ingot.compile(small)
source = Path(path).read_bytes() if kind == "bytes" else path
open("/proc/self/clear_refs", "w").write("5")
before = told("VmRSS")
module = ingot.compile(source)
print(told("VmHWM") - before, len(module))
"""


def _weights(count: int) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    return [random.random((_WIDTH, _WIDTH), np.float32) for _ in range(count)]


def _write_onnx(path: Path, count: int, external: bool = False) -> None:
    """A chain of products with weights of their own, half of which lie the other way round."""
    weights = [numpy_helper.from_array(each, f"w{n}") for n, each in enumerate(_weights(count))]
    nodes = [
        helper.make_node("Gemm", [f"x{n}", f"w{n}"], [f"x{n + 1}"], transB=n % 2)
        for n in range(count)
    ]
    ends = [helper.make_tensor_value_info(f"x{n}", 1, [8, _WIDTH]) for n in (0, count)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.save(model, path, save_as_external_data=external, location=f"{path.name}.data")


def _write_torch(path: Path, count: int, norms: bool = False) -> None:
    """Products, or convolutions with norms that scale their weights."""
    torch = pytest.importorskip("torch")
    layers = [torch.nn.Linear(_WIDTH, _WIDTH, bias=False) for _ in range(count)]
    x = torch.zeros(8, _WIDTH)
    if norms:
        ends = _WIDTH, _WIDTH, 1
        layers = [(torch.nn.Conv2d(*ends), torch.nn.BatchNorm2d(_WIDTH)) for _ in range(count)]
        layers, x = [layer for pair in layers for layer in pair], x[:1, :, None, None]
    model = torch.nn.Sequential(*layers).eval()
    torch.export.save(torch.export.export(model, (x,)), path)


def _write_jax(path: Path, count: int, text: bool = False) -> None:
    weights = _weights(count)

    def chain(x: Any) -> Any:
        for each in weights:
            x = x @ each
        return x

    x = jax.ShapeDtypeStruct((8, _WIDTH), np.float32)
    exported = jax.export.export(jax.jit(chain))(x)
    path.write_bytes(exported.mlir_module().encode() if text else exported.serialize())


def _write_tflite(path: Path, count: int) -> None:
    model = Model()
    graph = model.main
    given = x = graph.tensor("float32", (8, _WIDTH), name="x")
    for each in _weights(count):
        y = graph.tensor("float32", (8, _WIDTH))
        graph.op("FULLY_CONNECTED", [x, graph.constant(each)], [y], "FullyConnectedOptions")
        x = y
    graph.ends([given], [x])
    path.write_bytes(bytes(model))


_WRITERS: dict[str, Callable[[Path, int], None]] = {
    "file.onnx": _write_onnx,
    "bytes.onnx": _write_onnx,
    "external.onnx": partial(_write_onnx, external=True),
    "program.pt2": _write_torch,
    "norms.pt2": partial(_write_torch, norms=True),
    "exported.stablehlo": _write_jax,
    "text.mlir": partial(_write_jax, text=True),
    "model.tflite": _write_tflite,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _WRITERS)
def test_compiling_takes_the_weights_once_and_little_more(name: str, tmp_path: Path) -> None:
    path, small = tmp_path / name, tmp_path / f"small.{name}"
    _WRITERS[name](path, _COUNT)
    _WRITERS[name](small, 2)
    command = [sys.executable, "-c", _PROGRAM, name.partition(".")[0], str(path), str(small)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kilobytes, length = map(int, done.stdout.split())
    assert length >= _LENGTH  # the module has them
    assert 1024 * kilobytes < 1.1 * _LENGTH

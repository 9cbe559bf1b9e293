"""How much memory compiling takes beside the weights: a module has them once, and what it is made
of is read and packed one by one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

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


def _write(path: Path, count: int, external: bool = False) -> None:
    """A chain of products with weights of their own, half of which lie the other way round."""
    random = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(random.random((_WIDTH, _WIDTH), np.float32), f"w{n}")
        for n in range(count)
    ]
    nodes = [
        helper.make_node("Gemm", [f"x{n}", f"w{n}"], [f"x{n + 1}"], transB=n % 2)
        for n in range(count)
    ]
    ends = [helper.make_tensor_value_info(f"x{n}", 1, [8, _WIDTH]) for n in (0, count)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    onnx.save(model, path, save_as_external_data=external, location=f"{path.name}.data")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "external", "bytes"])
def test_compiling_onnx_takes_the_weights_once_and_little_more(kind: str, tmp_path: Path) -> None:
    _write(tmp_path / "small.onnx", 2)
    _write(tmp_path / "model.onnx", _COUNT, kind == "external")
    paths = [tmp_path / "model.onnx", tmp_path / "small.onnx"]
    command = [sys.executable, "-c", _PROGRAM, kind, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kilobytes, length = map(int, done.stdout.split())
    assert length >= _LENGTH  # the module has them
    assert 1024 * kilobytes < 1.4 * _LENGTH

"""Tiles, which a process must ask its system for: a module is loaded with or without them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot.compiler.targets.cpu.variants import VARIANTS, default_variants
from ingot.hal.device import open_device
from tests.support.products import extremes

NAMES = ("x86-64-v4-amx", "x86-64-v4-vnni")
AMX = VARIANTS[NAMES[0]]
needs_tiles = pytest.mark.skipif(
    not open_device("cpu").runs(AMX.format, AMX.feature_bits), reason="the processor has no tiles"
)

LOAD = """
import ctypes, logging, sys
import numpy as np
import ingot

class Stack(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("length", ctypes.c_size_t))

length = int(sys.argv[3])
memory = ctypes.create_string_buffer(max(length, 1))
if length:
    stack = Stack(ctypes.addressof(memory), 0, length)
    assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
model = ingot.load(sys.argv[1], threads=2)
x, wanted = (np.load(sys.argv[2])[name] for name in ("x", "wanted"))
np.testing.assert_array_equal(model(x), wanted)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module that multiplies bytes, for both variants, and what it gives."""
    folder = tmp_path_factory.mktemp("tiles")
    x, w = extremes("u8", 40, 64), extremes("i8", 64, 80)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "bytes",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [40, 80])],
        [numpy_helper.from_array(w, "w")],
    )
    onnx.save(helper.make_model(graph), folder / "bytes.onnx")
    module = ingot.compile(folder / "bytes.onnx", variants=[*NAMES])
    (folder / "bytes.ingot").write_bytes(bytes(module))
    np.savez(folder / "arrays.npz", x=x, wanted=x.astype(np.int32) @ w.astype(np.int32))
    return folder


def loaded(folder: Path, stack: int) -> str:
    """What a new process logs whose main thread has a stack of that length for signals."""
    arguments = [folder / "bytes.ingot", folder / "arrays.npz", str(stack)]
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_tiles
def test_the_system_is_asked_for_tiles_when_a_module_is_loaded(folder: Path) -> None:
    log = loaded(folder, 0)
    assert f"variant '{NAMES[0]}'" in log
    assert "left out" not in log


@needs_tiles
def test_where_the_system_refuses_tiles_the_next_variant_is_taken(folder: Path) -> None:
    log = loaded(folder, 4096)
    assert f"does not permit variant '{NAMES[0]}', which is left out" in log
    assert f"kernels 'kernels': variant '{NAMES[1]}'" in log


def test_a_program_of_bytes_is_for_processors_with_tiles_and_without() -> None:
    assert [each.name for each in default_variants("x86_64", {"i8"})][:2] == [*NAMES]
    assert AMX.levels[1:] == tuple(
        VARIANTS[name] for name in ("x86-64-v4-vnni", "x86-64-v4", "x86-64-v3")
    )

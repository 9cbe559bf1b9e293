"""Sources: objects of other packages that hold an ONNX model."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper

import ingot
from tests.support.devices import best_variant


def _model() -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _doubles(module: object) -> bool:
    return bool((np.asarray(ingot.load(module)(np.float32([1, 2]))) == [2, 4]).all())


def test_a_model_of_onnx_ir_is_compiled() -> None:
    assert _doubles(ingot.compile(onnx_ir.from_proto(_model()), variants=[best_variant()]))


def test_what_torch_onnx_export_returns_is_compiled() -> None:
    # The class as torch names it; torch itself is no dependency of the tests.
    program = type("ONNXProgram", (), {"__module__": "torch.onnx._internal.exporter"})()
    program.model_proto = _model()
    assert _doubles(ingot.compile(program, variants=[best_variant()]))


def test_other_objects_of_onnx_are_told_what_is_taken() -> None:
    with pytest.raises(
        ingot.CompileError, match=r"compile a source of type GraphProto.*onnx_ir.Model, what torch"
    ):
        ingot.compile(_model().graph)


def test_what_is_no_file_is_called_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(ingot.InvalidArgument, match="is a folder, expected a file"):
        ingot.compile(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ingot.InvalidArgument, match=r"'.*pipe' is no regular file"):
        ingot.compile(tmp_path / "pipe")
    with pytest.raises(ingot.InvalidArgument, match="a character that no path can have"):
        ingot.compile("model.onnx\0")


def test_compiled_modules_are_no_sources_of_others() -> None:
    module = ingot.compile(_model(), target="opencl", fallback=False)
    with pytest.raises(ingot.CompileError, match="'a': the program is a compiled Ingot module"):
        ingot.compile({"a": module, "b": module})
    with pytest.raises(ingot.InvalidArgument, match=r"cannot load a list.* several by name"):
        ingot.load([module, module])

"""Names of onnxruntime beside `run`: devices, initializers, values, back ends, and `install`."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import ingot.onnxruntime as ours
from ingot.onnxruntime import backend
from tests.support.devices import opencl_uri

theirs = pytest.importorskip("onnxruntime")

MODEL = """
<ir_version: 10, opset_import: ["": 20]>
model (float[?, 4] x) => (float[?, 3] y)
<float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> { y = MatMul(x, w) }
"""
X = np.arange(8, dtype=np.float32).reshape(2, 4)
W = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
# What belongs to other devices, to training, to packages of models or to sparse tensors.
LEFT_OUT = {
    "AdapterFormat", "LoraAdapter", "ModelCompiler", "ModelPackage", "ModelPackageComponentContext",
    "ModelPackageContext", "ModelPackageOptions", "ModelPackageWriteMode", "OrtCompileApiFlags",
    "OrtEpAssignedNode", "OrtEpAssignedSubgraph", "OrtEpContextData", "OrtEpContextDataBuffer",
    "OrtExternalInitializerInfo", "OrtSparseFormat", "OrtSyncStream", "SparseTensor", "contextlib",
    "create_and_register_allocator_v2", "import_capi_exception", "onnxruntime_validation",
    "register_execution_provider_library", "unregister_execution_provider_library",
}  # fmt: skip


def outside(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """The model with its weights in a file, which is not written."""
    weight = model.graph.initializer[0]
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight), weight.name))
    onnx.external_data_helper.set_external_data(weight, path.name, 16, 48)
    weight.ClearField("raw_data")
    return model


def test_every_name_is_there_or_left_out_on_purpose() -> None:
    public = {name for name in dir(theirs) if not name.startswith("_")}
    names = {name for name in public if not isinstance(getattr(theirs, name), ModuleType)}
    assert {name for name in names if not hasattr(ours, name)} <= LEFT_OUT


def test_weights_are_given_by_name_or_as_files(tmp_path: Path) -> None:
    model = outside(onnx.parser.parse_model(MODEL), tmp_path / "w.bin")
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    for engine in (theirs, ours):
        options = engine.SessionOptions()
        value = engine.OrtValue.ortvalue_from_numpy(2 * W)
        options.add_external_initializers(["w"], [value])
        session = engine.InferenceSession(
            str(tmp_path / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X @ (2 * W))
        options = engine.SessionOptions()
        data = bytes(16) + (3 * W).tobytes()
        options.add_external_initializers_from_files_in_memory(["w.bin"], [data], [len(data)])
        session = engine.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X @ (3 * W))


def test_values_of_other_libraries_and_copies() -> None:
    for engine in (theirs, ours):
        value = engine.OrtValue.from_dlpack(np.array(X))
        assert (value.tensor_size_in_bytes(), value.shape()) == (32, [2, 4])
        other = engine.OrtValue.ortvalue_from_shape_and_type([2, 4], np.float32)
        other.update_inplace(engine.OrtValue.ortvalue_from_numpy(2 * X))
        np.testing.assert_array_equal(other.numpy(), 2 * X)
    ours.copy_tensors([ours.OrtValue.ortvalue_from_numpy(X)], [other])
    np.testing.assert_array_equal(other.numpy(), X)


def test_devices_are_listed_and_chosen() -> None:
    data = onnx.parser.parse_model(MODEL).SerializeToString()
    for engine in (theirs, ours):
        (cpu,) = [each for each in engine.get_ep_devices() if each.ep_name.startswith("CPU")]
        assert cpu.device.type == engine.OrtHardwareDeviceType.CPU
        options = engine.SessionOptions()
        assert not options.has_providers()
        options.add_provider_for_devices([cpu], {})
        assert options.has_providers()
        session = engine.InferenceSession(data, options)
        assert session.get_providers() == ["CPUExecutionProvider"]
        session = engine.InferenceSession(data, providers=["CPUExecutionProvider"])
        session.set_providers(["CPUExecutionProvider"])
        (info,) = session.get_input_memory_infos()
        assert (info.name, info.device_id) == ("Cpu", 0)
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X @ W)
    options = ours.SessionOptions()
    options.set_provider_selection_policy(ours.OrtExecutionProviderDevicePolicy.PREFER_CPU)
    assert ours.InferenceSession(data, options).get_providers() == ["CPUExecutionProvider"]
    if opencl_uri():
        options = ours.SessionOptions()
        options.set_provider_selection_policy_delegate(lambda known, *_: known[-1:])
        session = ours.InferenceSession(data, options)
        assert session.get_provider_options()["OpenCLExecutionProvider"] == {"device_id": "0"}


def test_the_back_end_of_onnx_takes_inputs_in_their_order() -> None:
    model = onnx.parser.parse_model(MODEL)
    assert backend.supports_device("CPU")
    (y,) = backend.prepare(model, "CPU", intra_op_num_threads=1).run([X])
    np.testing.assert_array_equal(y, X @ W)
    np.testing.assert_array_equal(backend.run_model(model, X)[0], y)
    with pytest.raises(RuntimeError, match="no attribute 'threads'"):
        backend.prepare(model, threads=1)
    with pytest.raises(RuntimeError, match="Incompatible device"):
        backend.prepare(model, "CUDA")


def test_a_function_takes_what_the_log_tells() -> None:
    told: list[Any] = []
    ours.set_default_logger_callback(lambda *message: told.append(message), 1)
    try:
        logging.getLogger("ingot.onnxruntime").info("it %s", "runs")
    finally:
        ours.set_default_logger_callback(None)
    assert [(each[0], each[4]) for each in told] == [(1, "it runs")]


PROGRAM = """
import ingot.onnxruntime
ingot.onnxruntime.install()
import onnxruntime, onnxruntime.backend
from onnxruntime.capi._pybind_state import get_available_providers
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession
from onnxruntime.capi.onnxruntime_pybind11_state import NoSuchFile
try:
    onnxruntime.InferenceSession("none.onnx")
except NoSuchFile:
    print(onnxruntime is ingot.onnxruntime, InferenceSession is onnxruntime.InferenceSession)
"""


def test_libraries_that_import_onnxruntime_get_ingot() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("True True\n", 0), done.stderr

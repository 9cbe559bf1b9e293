"""Names of onnxruntime beside `run`: devices, initializers, values, back ends, and `install`."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
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


def set_field(kind: str, name: str, value: Any) -> Callable[[Any], object]:
    return lambda engine: setattr(getattr(engine, kind)(), name, value)


def with_options(use: Callable[[Any], object]) -> Callable[[Any], object]:
    return lambda engine: use(engine.SessionOptions())


def on_session(use: Callable[[Any], object]) -> Callable[[Any], object]:
    data = onnx.parser.parse_model(MODEL).SerializeToString()
    return lambda engine: use(engine.InferenceSession(data, providers=["CPUExecutionProvider"]))


@pytest.mark.parametrize(
    "use",
    [
        *(
            set_field(*each)
            for each in (
                ("SessionOptions", "intra_op_num_thread", 1),
                ("SessionOptions", "intra_op_num_threads", "2"),
                ("SessionOptions", "intra_op_num_threads", 1.5),
                ("SessionOptions", "intra_op_num_threads", 1 << 40),
                ("SessionOptions", "graph_optimization_level", 1),
                ("SessionOptions", "execution_mode", 3),
                ("SessionOptions", "enable_profiling", "yes"),
                ("SessionOptions", "logid", None),
                ("SessionOptions", "profile_file_prefix", 7),
                ("RunOptions", "tag", 1),
                ("RunOptions", "logid", 5),
                ("RunOptions", "log_verbosity_level", "x"),
                ("RunOptions", "terminate", "yes"),
            )
        ),
        with_options(lambda options: options.add_session_config_entry("a", 1)),
        with_options(lambda options: options.add_free_dimension_override_by_name("n", "2")),
        lambda engine: engine.RunOptions().add_run_config_entry("a", 1),
        on_session(lambda session: session.run(None, {"x": X}, 3)),
        on_session(lambda session: session.run(None, {"x": X}, {"terminate": True})),
        on_session(lambda session: session.run_async(None, {"x": X}, 3, None)),
        on_session(lambda session: session.run_with_iobinding(session.io_binding())),
    ],
)
def test_wrong_options_are_errors_of_the_same_type(use: Callable[[Any], object]) -> None:
    raised = []
    for engine in (theirs, ours):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever onnxruntime raises
            use(engine)
        raised.append(caught.type)
    assert raised[0] is raised[1]


def test_options_take_what_can_be_one() -> None:
    for engine in (theirs, ours):
        options = engine.SessionOptions()
        options.enable_profiling, options.intra_op_num_threads = None, np.int64(3)
        options.enable_mem_pattern, options.logid = np.True_, b"a"
        assert options.enable_profiling is False
        assert (options.intra_op_num_threads, options.logid) == (3, "a")


def test_what_is_no_input_no_provider_and_no_memory_is_said() -> None:
    @on_session
    def wrong(session: Any) -> None:
        errors = ours.capi.onnxruntime_pybind11_state
        with pytest.raises(errors.InvalidArgument, match="Missing Input: x"):
            session.run(None, {"x": None})
        for shape, address in (([2, 4], 0), ([-2, -4], 8)):
            with pytest.raises(RuntimeError, match="there is no memory of shape"):
                session.io_binding().bind_input("x", "cpu", 0, np.float32, shape, address)
        for provider in (("CPUExecutionProvider", {}, 1), ("CPUExecutionProvider", 3), 1):
            with pytest.raises(ValueError, match="must be either strings or"):
                session.set_providers([provider])
        with pytest.raises(TypeError, match="is ndarray, not OrtValue"):
            ours.SessionOptions().add_initializer("w", W)

    wrong(ours)

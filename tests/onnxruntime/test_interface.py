"""Names of onnxruntime beside `run`: devices, initializers, values, back ends, and `install`."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
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
# What belongs to other devices, to training, or to packages of models.
LEFT_OUT = {
    "ModelPackage", "ModelPackageComponentContext",
    "ModelPackageContext", "ModelPackageOptions", "ModelPackageWriteMode",
    "OrtEpAssignedNode", "OrtEpAssignedSubgraph", "OrtEpContextData", "OrtEpContextDataBuffer",
    "OrtExternalInitializerInfo", "OrtSyncStream", "contextlib",
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


@pytest.mark.parametrize("name", ["OrtValue", "RunOptions", "InferenceSession", "NotFound"])
def test_names_of_the_library_are_there(name: str) -> None:
    assert hasattr(theirs.capi.onnxruntime_pybind11_state, name)
    assert hasattr(ours.onnxruntime_pybind11_state, name)
    assert not hasattr(ours.onnxruntime_pybind11_state, "Nothing")


@pytest.mark.slow
@pytest.mark.parametrize("package", [ours, theirs])
def test_a_compiled_model_runs_anywhere(
    package: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source, options = tmp_path / "model.onnx", package.SessionOptions()
    onnx.save(onnx.parser.parse_model(MODEL), source)
    compiler = package.ModelCompiler(options, source)
    compiler.compile_to_file("made.onnx")
    parts = list[bytes]()
    compiler.compile_to_stream(parts.append)
    outside = {
        "external_initializers_file_path": "w.bin",
        "external_initializers_size_threshold": 9,
    }
    for _ in range(2):  # over those of before
        again = package.ModelCompiler(options, source.read_bytes(), **outside)
        again.compile_to_file("outside.onnx")
    assert (tmp_path / "w.bin").stat().st_size >= W.nbytes
    made: list[Any] = ["made.onnx", "outside.onnx", compiler.compile_to_bytes(), b"".join(parts)]
    with monkeypatch.context() as context:
        context.setattr("ingot.compile", None)  # these are in the cache
        for each in made if package is ours else ():
            np.testing.assert_array_equal(ours.InferenceSession(each).run(None, {"x": X})[0], X @ W)
    for each in made:
        np.testing.assert_array_equal(theirs.InferenceSession(each).run(None, {"x": X})[0], X @ W)


@pytest.mark.parametrize("package", [ours, theirs])
def test_what_no_compiler_takes_is_refused(package: Any, tmp_path: Path) -> None:
    errors = package.capi.onnxruntime_pybind11_state
    source, make = onnx.parser.parse_model(MODEL).SerializeToString(), package.ModelCompiler
    options, there = package.SessionOptions(), tmp_path / "there.onnx"
    there.touch()
    with pytest.raises(errors.InvalidArgument, match="Input model path does not exist"):
        make(options, str(tmp_path / "none.onnx")).compile_to_bytes()
    with pytest.raises(errors.InvalidProtobuf, match="protobuf parsing failed"):
        make(options, b"damaged").compile_to_bytes()
    flags = package.OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS
    with pytest.raises(errors.Fail, match="exists already"):
        make(options, source, flags=flags).compile_to_file(str(there))
    with pytest.raises(TypeError, match="Unable to load from type"):
        make(options, None)


def test_a_compiler_that_fails_writes_nothing(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(MODEL.replace("MatMul(x, w)", "Nothing(x, w)"))
    compiler = ours.ModelCompiler(ours.SessionOptions(), model.SerializeToString())
    with pytest.raises(ours.capi.onnxruntime_pybind11_state.Fail, match="Nothing"):
        compiler.compile_to_file(tmp_path / "made.onnx")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ours.capi.onnxruntime_pybind11_state.InvalidArgument, match="beside"):
        ours.ModelCompiler(
            *(ours.SessionOptions(), model.SerializeToString()),
            external_initializers_file_path=tmp_path / "w.bin",
        )
    one = {"external_initializers_file_path": "made.onnx"}
    compiler = ours.ModelCompiler(ours.SessionOptions(), model.SerializeToString(), **one)
    with pytest.raises(ours.capi.onnxruntime_pybind11_state.InvalidArgument, match="hold both"):
        compiler.compile_to_file(tmp_path / "made.onnx")


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


ADAPTED = """
<ir_version: 9, opset_import: ["": 18]>
model (float[?, 4] x, float[4, r] a, float[r, 3] b) => (float[?, 3] y)
<float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> {
    plain = MatMul(x, w)
    rows = MatMul(x, a)
    more = MatMul(rows, b)
    y = Add(plain, more)
}
"""


def adapted() -> bytes:
    """A product with an adapter of rank 0, which may be given."""
    model = onnx.parser.parse_model(ADAPTED)
    for name, shape in (("a", (4, 0)), ("b", (0, 3))):
        model.graph.initializer.append(numpy_helper.from_array(np.zeros(shape, "f4"), name))
    return model.SerializeToString()


def write_adapter(engine: Any, path: Path, **arrays: Any) -> None:
    """A file with these parameters."""
    made = engine.AdapterFormat()
    values = {name: engine.OrtValue.ortvalue_from_numpy(each) for name, each in arrays.items()}
    made.set_parameters(values)
    made.set_adapter_version(7)
    made.set_model_version(9)
    made.export_adapter(str(path))


@pytest.mark.slow
def test_adapters_are_inputs_of_runs(tmp_path: Path) -> None:
    a, b = np.full((4, 2), 0.5, "f4"), np.arange(6, dtype="f4").reshape(2, 3)
    path, half, other = (tmp_path / name for name in ("whole", "half", "other"))
    for writer, reader in ((ours, theirs), (theirs, ours)):
        write_adapter(writer, path, a=a, b=b, much=np.arange(5, dtype="i8"), none=a[:0])
        found = reader.AdapterFormat.read_adapter(str(path))
        about = (found.get_format_version(), found.get_adapter_version(), found.get_model_version())
        assert about == (1, 7, 9)
        values = found.get_parameters()
        assert values.keys() == {"a", "b", "much", "none"}
        np.testing.assert_array_equal(values["b"].numpy(), b)
        np.testing.assert_array_equal(values["much"].numpy(), np.arange(5))
        assert values["none"].shape() == [0, 2]
    write_adapter(ours, half, a=2 * a)
    write_adapter(ours, other, a=a, b=b, c=b)
    for engine in (theirs, ours):
        session = engine.InferenceSession(adapted(), providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X @ W)
        state = engine.capi.onnxruntime_pybind11_state
        options = engine.RunOptions()
        write_adapter(ours, path, a=a, b=b)
        adapters = engine.LoraAdapter(), engine.LoraAdapter()  # onnxruntime does not keep them
        for adapter, each in zip(adapters, (half, path), strict=True):  # of one name the first
            adapter.Load(str(each))
            options.add_active_adapter(adapter)
        expected = X @ W + X @ (2 * a) @ b
        np.testing.assert_allclose(session.run(None, {"x": X}, options)[0], expected)
        x = {"x": engine.OrtValue.ortvalue_from_numpy(X)}
        (value,) = session.run_with_ort_values(None, x, options)
        np.testing.assert_allclose(value.numpy(), expected)
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_output("y")
        session.run_with_iobinding(binding, options)  # on which adapters have no effect
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X @ W)
        adapters[1].Load(str(other))
        with pytest.raises(state.InvalidArgument, match="Invalid input name: c"):
            session.run(None, {"x": X}, options)


def test_damaged_adapters_are_runtime_errors(tmp_path: Path) -> None:
    path = tmp_path / "adapter"
    write_adapter(ours, path, a=W, b=X)
    data = path.read_bytes()
    adapter = ours.LoraAdapter()
    for place in range(0, len(data), 6):
        for damaged in (data[:place], data[:place] + b"\x7f\xff" + data[place + 2 :]):
            path.write_bytes(damaged)
            with suppress(RuntimeError):
                adapter.Load(path)
            assert len(adapter.parameters) <= 2
    for wrong in (tmp_path, tmp_path / "none", "a\0b"):
        with pytest.raises(RuntimeError, match="cannot be read"):
            adapter.Load(wrong)
    with pytest.raises(RuntimeError, match="cannot be written"):
        ours.AdapterFormat().export_adapter(tmp_path)
    with pytest.raises(TypeError, match="not LoraAdapter"):
        ours.RunOptions().add_active_adapter(path)


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


def test_sparse_arguments_are_those_of_onnxruntime() -> None:
    node = onnx.helper.make_node(
        "SparseToDenseMatMul", ["a", "b"], ["y"], domain="com.microsoft", alpha=0.5
    )
    a = onnx.helper.make_sparse_tensor_value_info("a", onnx.TensorProto.FLOAT, [4, 3])
    b, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("b", [3, "n"]), ("y", [4, "n"]))
    )
    imports = [onnx.helper.make_opsetid(name, 1 if name else 20) for name in ("", "com.microsoft")]
    graph = onnx.helper.make_graph([node], "g", [a, b], [y])
    model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
    values, shape = np.float32([1, 2, 3]), np.array([4, 3])
    dense = np.arange(15, dtype=np.float32).reshape(3, 5)
    found: list[list[Any]] = []
    for ort in (theirs, ours):
        device, make = ort.OrtDevice.make("cpu", 0), ort.SparseTensor
        session = ort.InferenceSession(model.SerializeToString())
        one = make.sparse_coo_from_numpy(shape, values, np.array([[0, 1], [2, 0], [3, 2]]), device)
        flat = make.sparse_coo_from_numpy(shape, values, np.array([1, 6, 11]), device)
        rows = np.array([1, 0, 2]), np.array([0, 1, 1, 2, 3])
        compressed = make.sparse_csr_from_numpy(shape, values, *rows, device)
        given = {"b": ort.OrtValue.ortvalue_from_numpy(dense)}
        results = []
        for sparse in (one, compressed):
            value = given["a"] = ort.OrtValue.ort_value_from_sparse_tensor(sparse)
            results.append(session.run_with_ort_values(["y"], given)[0].numpy().tolist())
            results += [value.is_sparse_tensor(), value.is_tensor(), value.data_type()]
            results += [value.as_sparse_tensor().dense_shape(), value.shape()]
            results += [sparse.format().name, sparse.values().tolist(), sparse.device_name()]
        view = compressed.as_csrc_view()
        results += [session.get_inputs()[0].type, one.as_coo_view().indices().tolist()]
        results += [view.inner().tolist(), view.outer().tolist()]
        results += [flat.as_coo_view().indices().tolist()]
        for wrong in (one.as_csrc_view, compressed.as_coo_view):
            with pytest.raises(RuntimeError):
                wrong()
        found.append(results)
    assert found[0] == found[1]


@pytest.mark.parametrize("places", [[[0, 3]] * 3, [[0, 1]] * 2, [-1, 2, 3], [1, 2, 12]])
def test_elements_outside_of_a_sparse_tensor_are_refused(places: list[Any]) -> None:
    make, values = ours.SparseTensor, np.float32([1, 2, 3])
    with pytest.raises(RuntimeError, match=r"of shape \[4, 3\] has 3 values"):
        make.sparse_coo_from_numpy([4, 3], values, np.array(places))
    for starts in ([0, 1, 1, 2, 4], [0, 1, 0, 2, 3], [0, 1, 3]):
        with pytest.raises(RuntimeError, match=r"of shape \[4, 3\] has 3 values"):
            make.sparse_csr_from_numpy([4, 3], values, np.array([1, 0, 2]), np.array(starts))

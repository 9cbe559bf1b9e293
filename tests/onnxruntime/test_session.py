"""`ingot.onnxruntime` beside onnxruntime: what sessions tell, take, give and refuse."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import ingot
import ingot.onnxruntime as ours
from ingot.compiler.frontends import own_ops
from ingot.onnxruntime import compiled
from ingot.onnxruntime.capi import onnxruntime_pybind11_state as errors
from tests.support.devices import opencl_uri

theirs = pytest.importorskip("onnxruntime")

MODEL = """
<ir_version: 10, opset_import: ["": 20]>
model (float[batch, 4] x, int64[1] i) => (float[batch, 3] y, float[?, ?] z)
<float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> { y = MatMul(x, w) z = Gather(y, i) }
"""
X, I = np.ones((2, 4), np.float32), np.array([0])  # noqa: E741
FEED = {"x": X, "i": I}


def proto(text: str = MODEL) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    model.producer_name, model.model_version = "tests", 3
    model.metadata_props.add(key="author", value="somebody")
    return model


@pytest.fixture(scope="module")
def sessions() -> list[Any]:
    return [engine.InferenceSession(proto().SerializeToString()) for engine in (theirs, ours)]


def test_what_a_session_tells(sessions: list[Any]) -> None:
    told = []
    for session in sessions:
        ends = [*session.get_inputs(), *session.get_outputs()]
        about = session.get_modelmeta()
        told.append(
            [
                [(each.name, each.shape, each.type) for each in ends],
                [about.producer_name, about.graph_name, about.version, about.description],
                dict(about.custom_metadata_map),
                session.get_providers(),
                session.get_overridable_initializers(),
            ]
        )
    assert told[0] == told[1]
    assert theirs.get_device().partition("-")[0] == ours.get_device()
    assert ours.get_available_providers()[-1] == "CPUExecutionProvider"


def test_runs(sessions: list[Any]) -> None:
    for names in (None, [], ["z"], ["z", "y"]):
        expected, found = (session.run(names, FEED) for session in sessions)
        for one, other in zip(found, expected, strict=True):
            assert type(one) is np.ndarray
            np.testing.assert_array_equal(one, other)
    lists = {"x": X.tolist(), "i": [1]}
    expected, found = (session.run(["z"], lists) for session in sessions)
    np.testing.assert_array_equal(found[0], expected[0])


WRONG: dict[str, Callable[[Any], Any]] = {
    "missing": lambda s: s.run(None, {"x": X}),
    "unknown": lambda s: s.run(None, {**FEED, "q": X}),
    "output": lambda s: s.run(["nope"], FEED),
    "dtype": lambda s: s.run(None, {**FEED, "x": X.astype(np.float64)}),
    "rank": lambda s: s.run(None, {**FEED, "x": X[0]}),
    "dims": lambda s: s.run(None, {**FEED, "x": X[:, :3]}),
    "index": lambda s: s.run(None, {**FEED, "i": np.array([7])}),
    "number": lambda s: s.run(None, {**FEED, "i": 3}),
    "names": lambda s: s.run("y", FEED),
    "bound name": lambda s: s.io_binding().bind_cpu_input("nope", X),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls_raise_the_same(name: str, sessions: list[Any]) -> None:
    raised = []
    for session in sessions:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever onnxruntime raises
            WRONG[name](session)
        raised.append(caught.value)
    expected, found = raised
    assert type(found).__name__ == type(expected).__name__
    if name in ("missing", "unknown", "output", "rank", "dims", "bound name"):
        assert str(found) == str(expected)


SOURCES: dict[str, Any] = {
    "no file": "gone.onnx",
    "garbage": b"garbage garbage",
    "nothing": b"",
    "empty file": "empty.onnx",
    "number": 3,
    "unknown op": "y = com.acme.MatMul(x)",
}


@pytest.mark.parametrize("name", SOURCES)
def test_wrong_models_raise_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.onnx").touch()
    source = SOURCES[name]
    if name == "unknown op":
        source = onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["": 20, "com.acme": 1]>\n'
            f"model (float[n, 4] x) => (float[n, 3] y) {{ {source} }}"
        ).SerializeToString()
    raised = []
    for engine in (theirs, ours):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever onnxruntime raises
            engine.InferenceSession(source)
        raised.append(type(caught.value).__name__)
    assert raised[0] == raised[1]


def test_bindings(sessions: list[Any]) -> None:
    results = []
    for engine, session in zip((theirs, ours), sessions, strict=True):
        binding = session.io_binding()
        memory = engine.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
        address = np.zeros((1, 3), np.float32)
        binding.bind_input("x", "cpu", 0, np.float32, X.shape, X.ctypes.data)
        binding.bind_ortvalue_input("i", engine.OrtValue.ortvalue_from_numpy(I))
        binding.bind_ortvalue_output("y", memory)
        binding.bind_output("z", "cpu", 0, np.float32, address.shape, address.ctypes.data)
        session.run_with_iobinding(binding)
        outputs = binding.get_outputs()
        results.append([memory.numpy(), address, *binding.copy_outputs_to_cpu()])
        results[-1] += [outputs[0].shape(), outputs[0].data_type(), outputs[0].device_name()]
        binding.clear_binding_outputs()
        binding.bind_output("y")
        session.run_with_iobinding(binding)
        results[-1] += [len(binding.get_outputs()), binding.copy_outputs_to_cpu()[0]]
        small = engine.OrtValue.ortvalue_from_shape_and_type([3, 3], np.float32)
        binding.bind_ortvalue_output("y", small)
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever onnxruntime raises
            session.run_with_iobinding(binding)
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_output_in_the_memory_of_an_input() -> None:
    text = MODEL.split("model")[0] + "model (float[n] x) => (float[n] y) { y = Neg(x) }"
    session = ours.InferenceSession(proto(text).SerializeToString())
    value = ours.OrtValue.ortvalue_from_numpy(np.array([1, 2], np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_ortvalue_output("y", value)
    session.run_with_iobinding(binding)
    assert value.numpy().tolist() == [-1, -2]


def test_values() -> None:
    for dtype in (np.float32, np.int64, bool, np.uint8, np.float16):
        array = np.ones((2, 3), dtype)
        values = [engine.OrtValue.ortvalue_from_numpy(array) for engine in (theirs, ours)]
        told = [
            (v.shape(), v.data_type(), v.element_type(), v.is_tensor(), v.has_value(),
             v.device_name(), v.is_tensor_sequence(), v.numpy().tolist())
            for v in values
        ]  # fmt: skip
        assert told[0] == told[1]
    with pytest.raises(RuntimeError, match="differ in dtype or shape"):
        values[1].update_inplace(np.ones(2, np.float16))
    value = ours.OrtValue.ortvalue_from_numpy(np.zeros(2, np.float32))
    value.update_inplace(np.ones(2, np.float32))
    assert value.numpy().tolist() == [1, 1]


def test_runs_of_other_threads_and_runs_that_end(sessions: list[Any]) -> None:
    done, got = threading.Event(), []

    def callback(results: Any, user: Any, error: str) -> None:
        got.append((results[0].tolist(), user, error))
        done.set()

    session = sessions[1]
    session.run_async(["y"], FEED, callback, "mine")
    assert done.wait(60)
    assert got == [(session.run(["y"], FEED)[0].tolist(), "mine", "")]
    options = ours.RunOptions()
    options.terminate = True
    with pytest.raises(errors.Fail, match="terminate flag"):
        session.run(None, FEED, options)


def test_providers(caplog: pytest.LogCaptureFixture) -> None:
    data = proto().SerializeToString()
    with pytest.warns(UserWarning, match="Specified provider 'Foo' is not in available provider"):
        session = ours.InferenceSession(data, providers=["Foo", "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    with pytest.raises(ValueError, match="same length"):
        ours.InferenceSession(data, providers=["CPUExecutionProvider"], provider_options=[])
    if "OpenCLExecutionProvider" in ours.get_available_providers():
        session = ours.InferenceSession(data, providers=[("OpenCLExecutionProvider", {})])
        assert session.get_providers() == ["OpenCLExecutionProvider", "CPUExecutionProvider"]
        np.testing.assert_array_equal(session.run(["z"], FEED)[0], [[22, 26, 30]])


@pytest.mark.skipif(opencl_uri() is None, reason="needs an OpenCL device")
def test_a_cache_stays_on_the_device() -> None:
    text = (
        MODEL.split("model")[0]
        + """model (float[n, 2] x, float[p, 2] past)
      => (float[t, 2] present) { y = Neg(x) present = Concat <axis = 0> (past, y) }"""
    )
    data = proto(text).SerializeToString()
    session = ours.InferenceSession(data, providers=["OpenCLExecutionProvider"])
    cache = ours.OrtValue.ortvalue_from_numpy(np.zeros((0, 2), np.float32), "cuda", 0)
    binding = session.io_binding()
    for step in range(3):
        binding.bind_cpu_input("x", np.full((1, 2), step, np.float32))
        binding.bind_ortvalue_input("past", cache)
        binding.bind_output("present", "cuda", 0)
        session.run_with_iobinding(binding)
        (cache,) = binding.get_outputs()
        assert cache.device_name() == "cuda"
        assert not cache._value.is_host
    assert cache.numpy().tolist() == [[0, 0], [-1, -1], [-2, -2]]
    kept = ours.OrtValue.ortvalue_from_shape_and_type([4, 2], np.float32, "cuda", 0)
    binding.bind_ortvalue_input("past", cache)
    binding.bind_ortvalue_output("present", kept)
    session.run_with_iobinding(binding)
    assert kept.numpy()[-1].tolist() == [-2, -2]
    binding.bind_output("present")
    session.run_with_iobinding(binding)
    assert isinstance(binding.get_outputs()[0]._value, np.ndarray)


def test_options() -> None:
    options = ours.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_free_dimension_override_by_name("batch", 2)
    options.add_session_config_entry("session.x", "1")
    assert options.get_session_config_entry("session.x") == "1"
    assert str(options.execution_mode) == str(theirs.SessionOptions().execution_mode)
    session = ours.InferenceSession(proto().SerializeToString(), options)
    assert session.get_inputs()[0].shape == [2, 4]
    with pytest.raises(errors.InvalidArgument, match="index: 0 Got: 3 Expected: 2"):
        session.run(None, {"x": np.ones((3, 4), np.float32), "i": I})
    with pytest.raises(errors.NotImplemented, match=r"@ingot\.lowering, or .* natives="):
        options.register_custom_ops_library("libcustom.so")
    with pytest.raises(TypeError):
        ours.InferenceSession(proto().SerializeToString(), 3)  # type: ignore[arg-type]


def _initialized(engine: Any, ir: int, **given: Any) -> Any:
    text = f"""
    <ir_version: {ir}, opset_import: ["": 20]>
    model (float[n, 2] x, float[2] w) => (float[n, 2] y)
    <float[2] w = {{2, 3}}, float[2] b = {{1, 1}}> {{ t = Mul(x, w) y = Add(t, b) }}
    """
    options = engine.SessionOptions()
    options.log_severity_level = 4
    values = [engine.OrtValue.ortvalue_from_numpy(each) for each in given.values()]
    for name, value in zip(given, values, strict=True):
        options.add_initializer(name, value)
    session = engine.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), options)
    session.values = values  # which onnxruntime reads as long as it runs
    return session


def test_initializers_are_overridden() -> None:
    nine = np.array([9, 9], np.float32)
    feeds = [{"x": X[:, :2]}, {"x": X[:, :2], "w": nine}, {"x": X[:, :2], "w": X[0, :3]}]
    found = []
    for engine in (theirs, ours):
        session = _initialized(engine, 8)
        told = [
            (each.name, each.type, each.shape) for each in session.get_overridable_initializers()
        ]
        found.append([[each.name for each in session.get_inputs()], told])
        found[-1] += [session.run(None, feed)[0].tolist() for feed in feeds[:2]]
        for feed in (feeds[2], {"x": X[:, :2], "b": nine}):
            with pytest.raises(engine.capi.onnxruntime_pybind11_state.InvalidArgument) as caught:
                session.run(None, feed)
            found[-1].append(str(caught.value).rpartition("INVALID_ARGUMENT : ")[2])
        found[-1].append(_initialized(engine, 3).get_overridable_initializers())
        for given in ({"b": nine}, {"w": nine, "nothing": nine}):
            session = _initialized(engine, 8, **given)
            found[-1].append(session.run(None, feeds[0])[0].tolist())
    assert found[0] == found[1]
    with pytest.raises(errors.InvalidArgument, match=r"b is float32\[3\], expected float32\[2\]"):
        _initialized(ours, 8, b=X[0, :3])


def test_the_optimized_model_is_one_that_others_read(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    model = onnx.parser.parse_model(MODEL)
    weight = onnx.numpy_helper.to_array(model.graph.initializer[0])
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "elsewhere").mkdir()
    for source in (path, proto().SerializeToString()):
        options = ours.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "elsewhere" / "optimized.onnx")
        wanted = ours.InferenceSession(source, options).run(None, FEED)
        found = theirs.InferenceSession(options.optimized_model_filepath).run(None, FEED)
        np.testing.assert_array_equal(found[0], wanted[0])


def test_strings_and_maps() -> None:
    text = """
    <ir_version: 10, opset_import: ["": 20, "ai.onnx.ml": 3]>
    model (string[n] words, float[n, 2] x) => (string[n] same, seq(map(string, float)) maps) {
      same = Identity(words)
      maps = ai.onnx.ml.ZipMap <classlabels_strings = ["a", "b"]> (x)
    }
    """
    data = onnx.parser.parse_model(text).SerializeToString()
    feed = {"words": np.array(["Über", ""], object), "x": np.array([[1, 2], [3, 4]], np.float32)}
    found = []
    for engine in (theirs, ours):
        session = engine.InferenceSession(data)
        told = [(each.name, each.type) for each in [*session.get_inputs(), *session.get_outputs()]]
        same, maps = session.run(None, feed)
        (again,) = session.run(["same"], {**feed, "words": np.array(["Über", ""])})
        found.append([told, same.dtype, same.tolist(), maps, again.tolist()])
    assert found[0] == found[1]


# ---- the cache


def test_the_second_session_is_not_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "model.onnx"
    big = proto()
    weight = onnx.numpy_helper.to_array(big.graph.initializer[0])
    big.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(big, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    caplog.set_level(logging.INFO, "ingot.onnxruntime")

    def compiles() -> int:
        """How many sessions compiled."""
        caplog.clear()
        ours.InferenceSession(path).run(None, FEED)
        return len([each for each in caplog.records if "compiled in" in each.message])

    assert [compiles(), compiles()] == [1, 0]
    module = ingot.compile(path)
    weights = tmp_path / "weights.bin"
    weights.write_bytes(bytes(len(weights.read_bytes())))
    assert compiles() == 1
    assert not np.any(ours.InferenceSession(str(path)).run(["y"], FEED)[0])
    for kept in (tmp_path / "cache").iterdir():  # modules that are cut are made anew
        if kept.read_bytes()[:4] == bytes(module)[:4]:
            kept.write_bytes(kept.read_bytes()[:100])
    assert [compiles(), compiles()] == [1, 0]
    monkeypatch.setattr(compiled, "installed_compiler", lambda: "another")
    assert compiles() == 1


def test_kept_modules_that_change_places_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "cache"))
    sources = [
        onnx.parser.parse_model(
            '<ir_version: 10, opset_import: ["": 20]>\n'
            f"model (float[n] x) => (float[n] y) {{ y = {op}(x) }}"
        ).SerializeToString()
        for op in ("Neg", "Abs")
    ]

    def results() -> list[list[float]]:
        feed = {"x": np.array([1.0, -2.0], np.float32)}
        return [ours.InferenceSession(each).run(None, feed)[0].tolist() for each in sources]

    assert results() == [[-1, 2], [1, 2]]
    start = bytes(ingot.compile(sources[0]))[:4]
    one, other = (each for each in (tmp_path / "cache").iterdir() if each.read_bytes()[:4] == start)
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    assert results() == [[-1, 2], [1, 2]]


def test_lowerings_of_the_user_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ingot.compiler.frontends import own_ops

    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "cache"))
    source = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20, "com.acme": 1]>\n'
        "model (float[n] x) => (float[n] y) { y = com.acme.Scaled(x) }"
    ).SerializeToString()
    for factor in (2, 3):
        monkeypatch.setitem(own_ops._own, ("com.acme", "Scaled"), lambda x, f=factor: x * f)
        (got,) = ours.InferenceSession(source).run(None, {"x": np.ones(2, np.float32)})
        assert got.tolist() == [factor] * 2


def test_importing_it_imports_no_compiler_passes() -> None:
    import subprocess
    import sys

    code = "import sys, ingot.onnxruntime; print([m for m in sys.modules if m in ('onnx', 'jax', "
    code += "'onnxruntime', 'ingot.compiler.graph.ops')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_profile_is_a_timeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ours.SessionOptions()
    options.enable_profiling = True
    session = ours.InferenceSession(proto().SerializeToString(), options)
    session.run(None, FEED)
    name = session.end_profiling()
    assert name.startswith("onnxruntime_profile_2")
    events = json.loads(Path(name).read_text(encoding="utf-8"))
    times: dict[str, int] = {}
    for each in events:
        assert each["ph"] == "X", each
        assert each["ts"] >= 0, each
        if each["cat"] == "Node":
            assert each["args"]["provider"] == "CPUExecutionProvider"
            times[each["name"]] = times.get(each["name"], 0) + each["dur"]
    assert "MatMul_0_kernel_time" in times
    assert "model_run" in {each["name"] for each in events if each["cat"] == "Session"}
    assert session.end_profiling() == ""


def test_sequences_other_dtypes_and_threads() -> None:
    text = """
    <ir_version: 10, opset_import: ["": 20]>
    model (seq(float[n]) xs, float16[2] h, bool b, float[3, 2] m)
      => (seq(float[n]) ys, float16[2] g, bool c, float[2, 3] t) {
      zero = Constant <value_int = 0> ()
      first = SequenceAt(xs, zero)
      ys = SequenceInsert(xs, first)
      g = Add(h, h) c = Not(b) t = Transpose(m)
    }
    """
    data = onnx.parser.parse_model(text).SerializeToString()
    feed = {
        "xs": [np.ones(2, np.float32), np.zeros(3, np.float32)],
        "h": np.ones(2, np.float16),
        "b": np.array(True),
        "m": np.arange(6, dtype=np.float32).reshape(2, 3).T,  # not contiguous
    }
    sessions = [engine.InferenceSession(data) for engine in (theirs, ours)]
    ends = [[*session.get_inputs(), *session.get_outputs()] for session in sessions]
    assert [(each.type, each.shape) for each in ends[0]] == [
        (each.type, each.shape) for each in ends[1]
    ]
    expected, found = (session.run(None, feed) for session in sessions)
    for one, other in zip([*found[0], *found[1:]], [*expected[0], *expected[1:]], strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    made: list[Any] = []
    threads = [
        threading.Thread(target=lambda: made.append(sessions[1].run(["t"], feed)[0].tolist()))
        for _ in range(4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert made == [expected[3].tolist()] * 4


@pytest.mark.parametrize("location", ["pipe", "/dev/zero", "../none", "a\0b"])
def test_files_that_the_compiler_does_not_read_are_not_opened(
    location: str, tmp_path: Path
) -> None:
    model = proto()
    for place, name in enumerate(("w", "unused")):
        if place:
            model.graph.initializer.add().CopyFrom(model.graph.initializer[0])
            model.graph.initializer[place].ClearField("float_data")
            model.graph.initializer[place].data_location = onnx.TensorProto.EXTERNAL
        model.graph.initializer[place].name = name
        model.graph.initializer[place].external_data.add(key="location", value=location)
    os.mkfifo(tmp_path / "pipe")
    onnx.save(model, tmp_path / "m.onnx")
    for _ in range(2):
        session = ours.InferenceSession(tmp_path / "m.onnx")
        assert session.run(["z"], FEED)[0].shape == (1, 3)


def test_a_lowering_that_is_given_later_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]>
        model (float[2] x) => (float[2] y) { y = com.microsoft.QuickGelu(x) }
    """).SerializeToString()
    feed = {"x": np.ones(2, np.float32)}
    assert ours.InferenceSession(model).run(None, feed)[0][0] < 1
    monkeypatch.setattr(own_ops, "_own", {})
    ingot.lowering("com.microsoft", "QuickGelu")(lambda x, alpha=1.0: x * 100)
    np.testing.assert_array_equal(ours.InferenceSession(model).run(None, feed)[0], [100, 100])

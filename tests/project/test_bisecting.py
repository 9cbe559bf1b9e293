"""`ingot bisect`: errors of all layers, where they are made, against whom they are measured."""

from __future__ import annotations

import shlex
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import jax
import jax.export
import numpy as np
import onnx
import onnx.helper
import pytest

from ingot import bisecting, jax_peer, onnx_peer
from ingot.bisecting import Bisection, LayerError, bisect_model
from ingot.checked_run import Comparison
from ingot.command import main
from ingot.error_picture import draw_errors, write_picture
from ingot.hal.errors import InvalidArgument, Unsupported
from tests.support.devices import opencl_uri
from tests.support.wrong_kernels import make_wrong

ROOT = Path(__file__).resolve().parents[2]
DIGITS = str(ROOT / "samples" / "digits" / "digits.onnx")
SVG = "{http://www.w3.org/2000/svg}"


def bisect(path: str, against: str = "reference", **options: Any) -> Bisection:
    sizes = {"batch": 2} if path == DIGITS else {}
    return bisect_model(Comparison(path, sizes=sizes), against, **options)


@pytest.mark.parametrize("against", ["reference", "onnxruntime", "opencl"])
def test_a_right_model_has_small_errors_everywhere(against: str) -> None:
    if against == "opencl" and opencl_uri() is None:
        pytest.skip("no OpenCL device (Debian: apt install pocl-opencl-icd)")
    found = bisect(DIGITS, against)
    assert len(found.layers) == (9 if against == "onnxruntime" else 6)
    assert found.first_wrong is None
    for each in found.layers:
        assert each.own is not None
        assert each.own < 1e-5
        assert each.whole is not None
        assert each.whole < 1e-5
    assert max(each.own or 0.0 for each in found.layers) > 0  # two sums in other orders


def test_the_own_error_tells_where_and_the_whole_error_how_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_wrong(monkeypatch, "convolution", "add", "sub", "norm2")
    folder = str(tmp_path / "out")
    assert main(["bisect", DIGITS, "--dim", "batch=2", "-o", folder]) == 1
    printed = capsys.readouterr()
    assert "norm2" in printed.err
    assert " of 1 in 6 layers" in printed.err
    found = bisect(DIGITS)
    wrong = [each.is_wrong for each in found.layers]
    assert wrong == [False, False, False, True, False, False]
    assert [(each.whole or 0.0) > 1e-2 for each in found.layers] == [False] * 3 + [True] * 3
    assert all((each.own or 0.0) < 1e-5 for each in found.layers if not each.is_wrong)
    picture = xml.etree.ElementTree.parse(Path(folder) / "errors.svg").getroot()
    dots = [each.get("class") for each in picture.iter(f"{SVG}circle")]
    assert dots == ["wrong" if each else "own" for each in wrong]
    (case,) = [line for line in printed.out.splitlines() if line.startswith("alone: ")]
    assert main(shlex.split(case)[2:]) == 1
    monkeypatch.undo()
    assert main(shlex.split(case)[2:]) == 0


def test_a_device_that_is_wrong_is_found_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    if opencl_uri() is None:
        pytest.skip("no OpenCL device (Debian: apt install pocl-opencl-icd)")
    run_both = bisecting.run_for_checking

    def run(what: Comparison) -> Any:
        with monkeypatch.context() as patch:
            if what.device == "opencl":
                make_wrong(patch, "map", "div", "mul", "div")
                make_wrong(patch, "map", "mul", "add", "div")
            return run_both(what)

    monkeypatch.setattr(bisecting, "run_for_checking", run)
    found = bisect(DIGITS, "opencl")
    assert found.first_wrong is found.layers[0]
    assert (found.layers[0].own or 0.0) < 1e-5
    assert (found.layers[0].whole or 0.0) > 1e-2


def relu_model(path: Path) -> str:
    """y = Relu(x + 1), and a random tensor beside it."""
    make = onnx.helper.make_node
    value = onnx.helper.make_tensor_value_info
    nodes = [
        make("Add", ["x", "one"], ["moved"], name="move"),
        make("Relu", ["moved"], ["kept"], name="keep"),
        make("RandomNormalLike", ["kept"], ["noise"], name="draw"),
        make("Add", ["kept", "noise"], ["y"], name="shake"),
    ]
    one = onnx.numpy_helper.from_array(np.float32(1), "one")
    float32 = onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes, "g", [value("x", float32, [3])], [value("y", float32, [3])], [one]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return str(path)


def test_weights_that_are_given_are_those_of_both_sides(tmp_path: Path) -> None:
    path = relu_model(tmp_path / "m.bin")  # told by what is in it
    model = onnx.load(path)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.ones(3, np.float32), "one"))
    onnx.save(model, path)
    given = {"one": np.float32([7, 8, 9])}
    found = bisect_model(Comparison(path, parameters=given), "onnxruntime")
    assert found.first_wrong is None
    assert len(found.layers) == 3


def test_an_import_that_differs_is_found_at_its_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = relu_model(tmp_path / "m.onnx")
    found = bisect(path, "onnxruntime")
    assert [each.layer for each in found.layers] == ["moved", "kept", "y"]  # noise is no error
    assert found.first_wrong is None
    run = onnx_peer._run

    def other(model: onnx.ModelProto, given: Any) -> Any:
        results = run(model, given)
        results["kept"] = results["kept"] + 1
        results["y"] = results["y"] + 1
        return results

    monkeypatch.setattr(onnx_peer, "_run", other)
    found = bisect(path, "onnxruntime")
    assert [each.is_wrong for each in found.layers] == [False, True, False]
    assert [(each.whole or 0.0) > 0.1 for each in found.layers] == [False, True, True]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A jax function with symbolic dims, a call that it makes twice, a loop, complex numbers, and
    arguments of 64 bits."""

    def inner(x: Any) -> Any:
        return jax.numpy.tanh(x) * 2

    def f(x: Any, w: Any, long: Any, many: Any) -> Any:
        called = jax.jit(inner)
        y = called(called(x @ w))
        y = jax.lax.fori_loop(0, 3, lambda i, a: a * 1.5, y)
        z = jax.numpy.abs(jax.lax.complex(y, y)) + jax.nn.softmax(y)
        return z, jax.numpy.sin(long), many * 2, x.shape[0] + 1

    (b,) = jax.export.symbolic_shape("b")
    path = tmp_path_factory.mktemp("jax") / "f.mlirbc"
    with jax.enable_x64(True):
        types = [((b, 4), np.float32), ((4, 5), np.float32), ((2,), np.float64), ((2,), np.int64)]
        shapes = [jax.ShapeDtypeStruct(*each) for each in types]
        path.write_bytes(jax.export.export(jax.jit(f))(*shapes).mlir_module_serialized)
    return str(path)


def bisect_by_jax(path: str) -> Bisection:
    return bisect_model(Comparison(path, sizes={"b": 3}), "jax")


def test_ops_of_a_jax_program_and_of_what_it_calls_agree_with_xla(artifact: str) -> None:
    found = bisect_by_jax(artifact)
    assert found.first_wrong is None
    tensors = [each for each in found.layers if each.type == "f32[3,5]"]
    assert sum("tanh" in each.layer for each in tensors) == 2
    assert any("while" in each.layer for each in tensors)
    assert max(each.whole or 0.0 for each in tensors) > 0  # XLA rounds in its own way
    assert not any("c64" in each.type for each in found.layers)
    assert {"f64[2]", "i64[2]"} <= {each.type for each in found.layers}


def test_an_op_that_xla_sees_otherwise_is_found(
    artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = jax_peer._run
    names = [each.layer for each in bisect_by_jax(artifact).layers]
    wrong = [each for each in names if "tanh" in each][1]
    place = wrong.partition(" ")[0]

    def other(data: bytes, given: Any) -> Any:
        results = run(data, given)
        return {at: each + (at == place) for at, each in results.items()}

    monkeypatch.setattr(jax_peer, "_run", other)
    found = bisect_by_jax(artifact)
    assert found.first_wrong is not None
    assert found.first_wrong.layer == wrong


def test_what_an_engine_cannot_run_is_said(tmp_path: Path) -> None:
    text = tmp_path / "m.ir"
    text.write_text("module {} {\n  func @main(%x: f32[2]) -> (f32[2]) {\n    return(%x)\n  }\n}\n")
    with pytest.raises(InvalidArgument, match="is no ONNX file"):
        bisect(str(text), "onnxruntime")
    with pytest.raises(InvalidArgument, match="is no StableHLO artifact"):
        bisect(relu_model(tmp_path / "m.onnx"), "jax")
    with pytest.raises(Unsupported, match="abacus"):
        bisect(str(text), "abacus")
    path = relu_model(tmp_path / "m.onnx")
    model = onnx.load(path)
    model.graph.node[1].domain = "no.such"
    with pytest.raises(Unsupported, match="onnxruntime does not run this model"):
        onnx_peer._run(model, {"x": np.zeros(3, np.float32)})


def test_names_and_errors_of_any_kind_are_drawn_as_text(tmp_path: Path) -> None:
    layer = "</title><script>alert(1)</script>\x1b\ud800&"
    errors = [0.0, 1e-30, 1e30, float("inf"), None]
    layers = tuple(LayerError(layer, "f32[2]", each, each, each == 1e30) for each in errors)
    found = Bisection("reference", layers)
    root = xml.etree.ElementTree.fromstring(draw_errors(found, layer))
    assert len(list(root.iter(f"{SVG}circle"))) == 4
    assert not list(root.iter(f"{SVG}script"))
    (tmp_path / "taken").write_text("")
    with pytest.raises(InvalidArgument, match="cannot write the picture"):
        write_picture(str(tmp_path / "taken" / "in"), found, layer)

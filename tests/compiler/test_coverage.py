"""`ingot coverage`: every op and every problem of a source, found without a C compiler."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from ingot.command import main
from ingot.compiler import compile, ir
from ingot.compiler.coverage import Coverage, survey_source
from ingot.compiler.targets.cpu import toolchain
from ingot.compiler.targets.opencl import object as opencl_object
from ingot.coverage import coverage_markdown
from ingot.hal.errors import CompileError, NotFound
from tests.support.assembler import copy_module

ROOT = Path(__file__).resolve().parents[2]
HOSTILE = "\x1b[2J<script>\n\u202e"
info = helper.make_tensor_value_info


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A survey that builds anything fails."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a C compiler was started")

    for name in ("begin", "begin_files", "compile", "folder"):
        monkeypatch.setattr(toolchain.Build, name, refuse)


def model(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], tensors: list[Any] | None = None
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors or [])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 4)]
    return helper.make_model(graph, opset_imports=opsets)


def takes(coverage: Coverage, op: str) -> set[tuple[str, str]]:
    """The patterns of an op, and what the CPU says of each."""
    return {(", ".join(row.patterns), row.takes["cpu"]) for row in coverage.rows if row.op == op}


def behind_strings() -> onnx.ModelProto:
    """Strings in front, a network behind them, and a second op that is refused at its end."""
    encode = helper.make_node(
        "CategoryMapper", ["s"], ["ids"], HOSTILE, domain="ai.onnx.ml",
    )  # fmt: skip
    nodes = [
        encode,
        helper.make_node("Gather", ["table", "ids"], ["rows"], "embed"),
        helper.make_node("MatMul", ["rows", "w"], ["y"], "project"),
        helper.make_node("Relu", ["y"], ["z"], "relu"),
        helper.make_node("Foo", ["z"], ["foo"], "foo", domain="ai.onnx.ml"),
        helper.make_node("Sigmoid", ["foo"], ["end"], "end"),
    ]
    tensors = [
        helper.make_tensor("table", TensorProto.FLOAT, [5, 3], [1.0] * 15),
        helper.make_tensor("w", TensorProto.FLOAT, [3, 4], [1.0] * 12),
    ]
    outputs = [info("end", TensorProto.FLOAT, None)]
    made = model(nodes, [info("s", TensorProto.STRING, ["n", 2])], outputs, tensors)
    made.graph.value_info.append(info("ids", TensorProto.INT64, ["n", 2]))
    return made


def test_a_string_input_does_not_hide_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnx.py").write_text("raise SystemExit")  # nothing of the folder is run
    monkeypatch.chdir(tmp_path)
    found = survey_source(behind_strings())
    assert takes(found, "Gather") == {("f32[_,_], i64[?,_]", "yes")}
    assert takes(found, "MatMul") == {("f32[?,_,_], f32[_,_]", "yes")}
    assert takes(found, "Relu") == {("f32[?,_,_]", "yes")}
    assert takes(found, "ai.onnx.ml.Foo") == {("f32[?,_,_]", "no")}
    assert takes(found, "Sigmoid") == {("unknown", "unknown")}
    problems = "\n".join(found.problems)
    assert len(found.problems) == 2
    assert "Foo of opset 4 is not supported" in problems
    (row,) = (row for row in found.rows if row.op == "ai.onnx.ml.CategoryMapper")
    assert row.layers == (HOSTILE,)
    assert "its cats_strings and cats_int64s are not as many" in row.reasons[0]
    assert [row.takes["cpu"] for row in found.rows[:2]] == ["no", "no"]  # refused ones first


def test_bodies_of_branches_are_looked_at_too() -> None:
    then = helper.make_graph(
        [
            helper.make_node("ImageDecoder", ["b"], ["image"], "decode"),
            helper.make_node("Cast", ["image"], ["out"], "cast", to=TensorProto.FLOAT),
        ],
        "then", [], [info("out", TensorProto.FLOAT, None)],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["out"], "exp")],
        "else", [], [info("out", TensorProto.FLOAT, None)],
    )  # fmt: skip
    nodes = [
        helper.make_node("If", ["c"], ["y"], "choose", then_branch=then, else_branch=other),
        helper.make_node("Tanh", ["x"], ["z"], "tanh"),
    ]
    inputs = [
        info("c", TensorProto.BOOL, []),
        info("b", TensorProto.UINT8, ["k"]),
        info("x", TensorProto.FLOAT, [2, 3, 4]),
    ]
    outputs = [info("y", TensorProto.FLOAT, None), info("z", TensorProto.FLOAT, [2, 3, 4])]
    found = survey_source(model(nodes, inputs, outputs))
    assert takes(found, "ImageDecoder") == {("u8[?]", "no")}
    assert takes(found, "Tanh") == {("f32[_,_,_]", "yes")}
    assert len(found.problems) == 1
    assert "layer 'choose/decode'" in found.problems[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["minilm", "resnet50"])
def test_models_without_their_weights_are_taken_whole(name: str) -> None:
    found = survey_source(ROOT / "tests" / "models" / f"{name}.onnx")
    assert found.problems == ()
    assert {state for row in found.rows for state in row.takes.values()} == {"yes"}
    graph = onnx.load(ROOT / "tests" / "models" / f"{name}.onnx", load_external_data=False).graph
    assert {node.op_type for node in graph.node} >= {row.op for row in found.rows}


def test_what_is_refused_is_what_compile_refuses() -> None:
    """The same causes, in the same words."""
    source = behind_strings()
    with pytest.raises(CompileError) as raised:
        compile(source)
    problems = survey_source(source).problems
    for line in str(raised.value).split("\n  ")[1:]:
        head = line.split(" of unknown type")[0].split("(")[0]
        assert any(problem.startswith(head) for problem in problems)


def test_stablehlo_and_ir_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    found = survey_source(ROOT / "samples" / "digits" / "digits.stablehlo")
    assert found.problems == ()
    assert takes(found, "convolution") == {
        ("f32[?,_,_,_], f32[_,_,_,_]", "yes"),
    }
    text = """module {} { func @main(%x: f32[n,4] "x") -> (f32[n,4] "y") {
      %y = exp(%x) : f32[n,4] loc("layer") return(%y) } }"""
    (row,) = survey_source(text).rows
    assert (row.op, row.patterns, row.layers, row.count) == ("exp", ("f32[?,_]",), ("layer",), 1)

    def refuse(kernel: Any) -> Any:
        raise CompileError("not on this device")

    monkeypatch.setattr(opencl_object, "print_kernel", refuse)
    found = survey_source(text)
    assert found.problems == ()
    assert found.rows[0].takes == {"cpu": "yes", "opencl": "host"}
    assert found.rows[0].reasons == ("not on this device",)
    assert list(found.hosted["opencl"].values()) == ["not on this device"]


def test_a_source_that_is_ir_is_left_as_it_is() -> None:
    from ingot.compiler.ir.parser import parse

    text = """module {} { func @main(%x: f32[4] "x") -> (f32[4] "y") {
      %a = exp(%x) : f32[4] %y = exp(%x) : f32[4] return(%y) } }"""
    source = parse(text)
    before = ir.to_text(source)
    survey_source(source)
    assert ir.to_text(source) == before


def test_what_is_no_source_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        survey_source(tmp_path / "missing.onnx")
    path = tmp_path / "module.ingot"
    path.write_bytes(copy_module())
    with pytest.raises(CompileError, match="compiled Ingot module"):
        survey_source(path)


@pytest.mark.slow
def test_the_command_prints_a_table_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    path, digits = tmp_path / "strings.onnx", ROOT / "samples" / "digits" / "digits.onnx"
    onnx.save(behind_strings(), path)
    assert main(["coverage", str(path), str(digits), "--target", "cpu"]) == 1
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert printed.out.replace("\n", "").isprintable()
    assert "       1      yes  Relu(f32[?,_,_])\n" in printed.out
    assert "2 problems, without which it compiles:\n" in printed.out
    assert "\\x1b[2J<script>" in printed.out
    assert main(["coverage", str(path), "--json"]) == 1
    text = capsys.readouterr().out
    assert text.isascii()
    schema = json.loads((ROOT / "docs" / "schemas" / "coverage.schema.json").read_text())
    jsonschema.validate(json.loads(text), schema)
    assert main(["coverage", str(digits), "--json"]) == 0


def test_the_page_of_ops_that_are_taken_is_fresh() -> None:
    page = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")
    assert page == coverage_markdown(), "run: python -m ingot.coverage docs/coverage.md"


def test_what_is_not_taken_of_onnxruntime_is_named() -> None:
    onnxruntime = pytest.importorskip("onnxruntime", minversion="1.32")
    if not onnxruntime.__version__.startswith("1.32."):
        pytest.skip("the page tells of the ops of 1.32")
    schemas = onnxruntime.capi.onnxruntime_pybind11_state.get_all_operator_schema()
    wanted = {f"`{each.name}`" for each in schemas if each.domain == "com.microsoft"}
    (part,) = re.findall(r"`com\.microsoft`, which(.*?)Of the domain", coverage_markdown(), re.S)
    assert wanted <= set(re.findall(r"`\w+`", part))

"""Archives of torch.export that cannot be compiled, and files that are none."""

from __future__ import annotations

import io
import json
import random
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import ops
from ingot.compiler.frontends import own_ops
from ingot.compiler.frontends.natives import OwnOps
from ingot.compiler.frontends.survey import Survey
from ingot.compiler.frontends.torch.complex_values import COMPLEX
from ingot.compiler.frontends.torch.core_ops import CORE
from ingot.compiler.frontends.torch.expressions import parse_dim, symbol_dim
from ingot.compiler.frontends.torch.lowering import LOWERINGS, REFUSED
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.ops import NativeCall
from ingot.compiler.ir import walk
from ingot.compiler.ir.dims import Expr
from ingot.compiler.read_source import read_source

FILE = Path(__file__).parents[3] / "models" / "torch_export" / "layers.pt2"
PROGRAM = "archive/models/model.json"


def changed(change: Callable[[Any], None], name: str = PROGRAM) -> bytes:
    """The archive with another program."""
    result = io.BytesIO()
    with zipfile.ZipFile(FILE) as archive, zipfile.ZipFile(result, "w") as copy:
        for each in archive.namelist():
            content = archive.read(each)
            if each == name:
                document = json.loads(content)
                change(document)
                content = json.dumps(document).encode()
            copy.writestr(each, content)
    return result.getvalue()


def graph_of(document: Any) -> Any:
    return document["graph_module"]["graph"]


def rename(target: str, name: str, result: str = "") -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for node in graph_of(document)["nodes"]:
            if target in node["target"]:
                node["target"] = name
                if result:
                    node["outputs"][0]["as_tensor"]["name"] = result

    return change


def refused(data: bytes) -> str:
    with pytest.raises(ingot.CompileError) as caught:
        read_source(data)
    return str(caught.value)


def test_all_ops_that_are_missing_are_listed_with_their_places() -> None:
    def change(document: Any) -> None:
        rename("aten.conv2d", "torch.ops.mine.conv.default")(document)
        rename("aten.softmax", "torch.ops.aten.fractional_softmax.default")(document)

    text = refused(changed(change))
    assert "'stem.0/conv2d': mine.conv.default(f32[" in text
    assert "aten.fractional_softmax.default(f32[" in text
    assert "make_programs.py:" in text
    assert "return self.head(y).softmax(-1), y" in text


def test_the_page_shows_what_a_refusal_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.pt2").write_bytes(
        changed(rename("aten.conv2d", "torch.ops.mine.conv.default"))
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ingot.CompileError) as caught:
        read_source(Path("model.pt2"))
    page = (FILE.parents[3] / "docs" / "pytorch.md").read_text(encoding="utf-8")
    assert f"```\n{caught.value}\n```" in page


def test_every_core_op_is_taken_or_refused_with_a_reason() -> None:
    known = {*LOWERINGS, *COMPLEX, *REFUSED}
    assert [name for name in CORE if f"aten.{name}" not in known] == []
    assert not set(LOWERINGS) & set(REFUSED)
    data = changed(rename("aten.relu", "torch.ops.aten.convolution_backward.default"))
    assert "it computes gradients: export what the model does in inference" in refused(data)


def test_ops_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.ops.acme.act(x, -1)` in the place of softmax."""
    source = changed(rename("aten.softmax", "torch.ops.acme.act.default"))
    assert "give it a lowering with @ingot.lowering" in refused(source)
    monkeypatch.setitem(own_ops._own, ("acme", "act"), lambda x, axis: ops.softmax(x, axis=axis))
    function = read_source(FILE).functions["main"]
    shapes = [[2 if isinstance(n, Expr) else n for n in v.type.shape] for v in function.arguments]  # type: ignore[union-attr]
    inputs = [np.random.default_rng(0).random(shape, np.float32) for shape in shapes]
    found, expected = (interpret(read_source(each), "main", inputs) for each in (source, FILE))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_ops_of_the_user_that_are_native_functions() -> None:
    """What is no tensor comes by its name in the schema."""
    source = changed(rename("aten.softmax", "torch.ops.acme.act.default"))
    own = OwnOps({"acme.act": "(f32[a,b,c]) -> (f32[a,b,c])"}, {})
    with pytest.raises(ingot.CompileError, match=r"of native function 'acme\.act' is f32"):
        read_source(source, own_ops=own)
    own = OwnOps({"acme.act": "(f32[a,b]) -> (f32[a,b])"}, {})
    module = read_source(source, own_ops=own)
    (call,) = (op for op in walk(module.functions["main"]) if op.name == "native_call")
    assert json.loads(NativeCall.of(call).details)["dim"] == -1


def test_a_survey_takes_what_is_missing() -> None:
    survey = Survey()
    module = read_source(
        changed(rename("aten.conv2d", "torch.ops.mine.conv.default")), survey=survey
    )
    assert len(module.functions["main"].arguments) == 2
    assert [use.op for use in survey.uses if use.problem] == ["mine.conv.default"]
    assert any(use.op == "aten.batch_norm.default" and not use.problem for use in survey.uses)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d.pop("schema_version"), "'schema_version' is missing"),
        (lambda d: d["schema_version"].update(major=7), "version 7 of torch's schema, expected 8"),
        (lambda d: graph_of(d).pop("nodes"), "malformed"),
        (lambda d: graph_of(d)["tensor_values"]["image"].update(dtype=9), "number 9"),
        (lambda d: graph_of(d)["tensor_values"]["image"]["sizes"][0].update(
            as_expr={"expr_str": "__import__('os')"}), "sizes with __import__ are not supported"),
        (lambda d: graph_of(d)["nodes"][0]["inputs"][0]["arg"].update(
            as_tensor={"name": "nobody"}), "'nobody' is read before"),
        (lambda d: graph_of(d)["outputs"].__setitem__(0, {"as_expr": {"expr_str": "s0"}}),
            "an argument is expr, which is not supported"),
        (rename("aten.relu", "torch.ops.higher_order.wrap"), "it has no graph"),
        (rename("aten.relu", "torch.ops.aten.relu_.default", "batch_norm"),
            "'batch_norm' is defined twice"),
    ],
)  # fmt: skip
def test_programs_that_are_malformed(change: Callable[[Any], None], text: str) -> None:
    assert text in refused(changed(change))


def test_weights_must_be_whole() -> None:
    weights = "archive/data/weights/model_weights_config.json"

    def longer(document: Any) -> None:
        document["config"]["head.weight"]["tensor_meta"]["sizes"][0]["as_int"] = 500

    def repeated(document: Any) -> None:
        meta = document["config"]["head.weight"]["tensor_meta"]
        meta.update(sizes=[{"as_int": 1 << 15}] * 2, strides=[{"as_int": 0}] * 2)

    assert "'head.weight' has 80 bytes, expected 8000" in refused(changed(longer, weights))
    assert "has the shape [32768, 32768], but 80 bytes" in refused(changed(repeated, weights))
    moved = FILE.read_bytes().replace(b"archive/data/weights/w", b"archive/data/weights/v", 1)
    assert "is not where it should be" in refused(moved)


def test_other_files_of_torch_say_what_to_do(tmp_path: Path) -> None:
    old = io.BytesIO()
    with zipfile.ZipFile(old, "w") as archive:
        archive.writestr("serialized_exported_program.json", "{}")
    path = tmp_path / "old.pt2"
    path.write_bytes(old.getvalue())
    with pytest.raises(ingot.CompileError, match=r"before 2\.8.*torch\.export\.save"):
        read_source(path)
    path.write_bytes(b"PK\x03\x04 and nothing more")
    with pytest.raises(ingot.CompileError, match=r"no whole archive of torch\.export"):
        read_source(path)


def test_archives_that_are_cut_or_changed_are_refused_or_read() -> None:
    whole = FILE.read_bytes()
    numbers = random.Random(0)
    for _ in range(60):
        data = bytearray(whole)
        if numbers.random() < 0.3:
            del data[numbers.randrange(len(data)) :]
        for _ in range(numbers.randrange(1, 8)):
            if data:
                data[numbers.randrange(len(data))] = numbers.randrange(256)
        with suppress(ingot.CompileError, ingot.Unsupported):
            read_source(bytes(data) if data[:4] == b"PK\x03\x04" else b"PK\x03\x04" + bytes(data))


def test_json_that_is_changed_is_refused_or_read() -> None:
    numbers = random.Random(1)

    def change(document: Any) -> None:
        for _ in range(numbers.randrange(1, 4)):
            place: Any = document["graph_module"]
            while True:
                keys = list(place if isinstance(place, dict) else range(len(place)))
                if not keys:
                    break
                key = numbers.choice(keys)
                if isinstance(place[key], (dict, list)) and numbers.random() < 0.9:
                    place = place[key]
                    continue
                place[key] = numbers.choice([None, -1, 2**70, "x", [], {}, {"as_int": "y"}, 1.5])
                break

    for _ in range(40):
        with suppress(ingot.CompileError):
            read_source(changed(change))


def test_options_for_modules_are_refused_with_other_sources() -> None:
    with pytest.raises(ingot.CompileError, match=r"export a torch\.nn\.Module"):
        read_source(FILE, example_inputs=(1,))


@pytest.mark.parametrize(
    ("text", "dim"),
    [
        ("TruncToInt(Mul(ToFloat(Symbol('s0')), Float('0.5', precision=53)))", "floordiv(s0, 2)"),
        ("FloorToInt(IntTrueDiv(Add(Symbol('s0'), Integer(1)), Integer(3)))", "floordiv(s0+1, 3)"),
        ("CeilToInt(FloatTrueDiv(Mul(Integer(-2), ToFloat(Symbol('s0'))), Float('-1.0')))", "2*s0"),
        (
            "TruncToInt(Mul(ToFloat(Symbol('s0')), Float('0.40000000000000002')))",
            "floordiv(2*s0, 5)",
        ),
        ("TruncToInt(Mul(ToFloat(Symbol('s0')), Float('0.28999999999999998')))", None),
        ("CeilToInt(Float('0.3333333333333333'))", None),
        ("CeilToInt(FloatTrueDiv(Integer(1), Symbol('s0')))", None),
    ],
)
def test_sizes_that_torch_computes_as_floats(text: str, dim: str | None) -> None:
    if dim is not None:
        assert str(parse_dim(text, symbol_dim)) == dim
    else:
        with pytest.raises(ValueError, match="are not supported"):
            parse_dim(text, symbol_dim)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("LShift(Integer(1), Integer(2000000000))", "shifted by 2000000000, expected 0 to 62"),
        ("RShift(Symbol('s0'), Integer(-1))", "shifted by -1, expected 0 to 62"),
        ("LShift(Integer(1), Symbol('s0'))", "shifted by s0, expected 0 to 62"),
        ("FloorDiv(Integer(1))", "no expression that is known"),
        ("CeilToInt(ToFloat())", "no expression that is known"),
    ],
)
def test_sizes_that_are_none_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_dim(text, symbol_dim)

"""The tools on programs with native functions and kernels of users."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ingot
from ingot.__main__ import main
from ingot.compiler.vm.read_module import read_module

SIGNATURE = "(f32[a,b]) -> (f32[a,b])"
FILE = f"""
import ingot, numpy as np

NATIVES = {{
    "acme.Scale": ingot.Native("{SIGNATURE}", function=lambda x, factor: x * np.float32(factor))
}}
SOURCE = '''
static void half(const float *x, float *y, int64_t a, int64_t b, int64_t row) {{
  for (int64_t k = row * b; k < (row + 1) * b; ++k) y[k] = x[k] / 2;
}}
'''
KERNELS = {{"acme.Half": ingot.Kernel("{SIGNATURE}", SOURCE, entry="half", workload=["a"])}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """z = x + half(scale(exp(x)))."""
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Scale", ["e"], ["s"], domain="acme", factor=3.0),
        helper.make_node("Half", ["s"], ["h"], domain="acme"),
        helper.make_node("Add", ["h", "x"], ["z"]),
    ]
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4])] for name in ("x", "z")
    ]
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("acme", 1)]
    graph = helper.make_graph(nodes, "g", *ends)
    onnx.save(helper.make_model(graph, opset_imports=imports), str(tmp_path / "m.onnx"))
    (tmp_path / "own.py").write_text(FILE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main([*words]) == code
    both = capsys.readouterr()
    return both.out + both.err


def test_commands_take_a_file_of_natives(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ("--natives", "own.py")
    printed(capsys, "compile", "m.onnx", "-o", "m.ingot", "--debug", *own)
    text = printed(capsys, "run", "m.ingot", "--input", "x=[[0, 0, 0, 0]]", *own)
    assert "1.5" in text
    text = printed(capsys, "run", "m.ingot", "--input", "x=[[0, 0, 0, 0]]", code=1)
    assert f"native function is missing: 'acme.Scale' {SIGNATURE}" in text
    text = printed(capsys, "inspect", "m.ingot")
    assert f"native functions, to be given at load\n  acme.Scale {SIGNATURE}" in text
    (native,) = json.loads(printed(capsys, "inspect", "m.ingot", "--json"))["natives"]
    assert native == {"name": "acme.Scale", "signature": SIGNATURE, "optional": False}
    assert "native.call @acme.Scale" in printed(capsys, "dis", "m.ingot")
    printed(capsys, "explore", "m.ingot", "-o", "page.html")
    debug = zlib.decompress(read_module((folder / "m.ingot").read_bytes()).debug).decode()
    assert '"op":"native"' in debug.replace(" ", "")
    assert '"acme.Scale"' in debug


def test_check_compares_what_lies_around_calls(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "all.py").write_text(
        FILE + f'NATIVES["acme.Half"] = ingot.Native("{SIGNATURE}", function=lambda x: x / 2)\n',
        encoding="utf-8",
    )
    text = printed(capsys, "check", "m.onnx", "--natives", "all.py", "--dim", "n=3")
    assert "relative error" in text
    assert "of your own not compared" not in text
    text = printed(capsys, "check", "m.onnx", "--natives", "own.py", code=1)
    assert "no Python function for the kernel 'acme.Half'" in text
    text = printed(capsys, "bisect", "m.onnx", "--natives", "all.py")
    assert "agree" in text


def test_a_file_that_is_none_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "empty.py").write_text("NATIVES = {'acme.Scale': 3}\n", encoding="utf-8")
    command = ("compile", "m.onnx", "-o", "m.ingot", "--natives")
    text = printed(capsys, *command, "empty.py", code=1)
    assert "'empty.py' must have NATIVES, a dict of ingot.Native" in text
    assert "'gone.py' cannot be read" in printed(capsys, *command, "gone.py", code=1)


def test_models_of_kernels_and_natives_agree_with_numpy(folder: Path) -> None:
    import runpy

    names = runpy.run_path("own.py")
    both = {**names["NATIVES"], "acme.Half": SIGNATURE}
    with pytest.raises(ingot.InvalidArgument, match="as a native function and as a kernel"):
        ingot.compile("m.onnx", natives=both, kernels=names["KERNELS"])
    with pytest.warns(UserWarning, match="Python functions"):
        module = ingot.compile("m.onnx", natives=names["NATIVES"], kernels=names["KERNELS"])
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    expected = x + 1.5 * np.exp(x)
    np.testing.assert_allclose(ingot.load(module)(x).numpy(), expected, rtol=1e-6)

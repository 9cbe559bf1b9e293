"""`ingot record` and `ingot replay`: a call that was made on one device is made again on others."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.__main__ import main
from tests.support.assembler import total_module
from tests.support.devices import best_variant, opencl_uri, targets

# Rows of x[n,4], doubled, and their sums.
ROWS = """
module {} {
  func @main(%x: f32[n,4] "x") -> (f32[n,4] "y", f32[n] "z") symbols {n in [1, 64]} {
    %y = add(%x, %x) : f32[n,4] loc("body/double")
    %z = reduce(%y) {axes=[1], kind="add"} : f32[n] loc("total")
    return(%y, %z)
  }
}
"""
# The same with another sum.
WRONG = ROWS.replace('kind="add"', 'kind="max"')
ECHO = """
module {} {
  func @main(%xs: sequence<f32[?,2]> "xs", %y: optional<f32[3]> "y")
      -> (sequence<f32[?,2]> "a", optional<f32[3]> "b") {
    %0 = list.argument(%xs) {symbols=[]} : list<f32[?,2]>
    %1 = list.argument(%y) {symbols=["p"]} : list<f32[3]>
    %2 = list.result(%0) {kind="sequence", given=1} : sequence<f32[?,2]>
    %3 = list.result(%1) {kind="optional", given=<p>} : optional<f32[3]>
    return(%2, %3)
  }
}
"""
INPUT = ["--input", "x=[[1,2,3,4],[5,6,7,8.5]]"]
Command = Callable[..., str]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.ingot"
    ingot.compile(ROWS, target=targets(), variants=[best_variant()]).save(path)
    return path


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def command(*arguments: str | Path, status: int = 0) -> str:
        """What it prints, or what it fails with."""
        assert main([str(each) for each in arguments]) == status
        printed = capsys.readouterr()
        return printed.err if status else printed.out

    return command


@pytest.fixture
def file(rows: Path, tmp_path: Path, command: Command) -> Path:
    path = tmp_path / "call.ingotcall"
    said = command("record", rows, *INPUT, "-o", path)
    assert said == f"{path}: a call of main(x: f32[n,4]) -> (y: f32[n,4], z: f32[n])\n"
    return path


def test_a_call_is_told_and_made_again(file: Path, tmp_path: Path, command: Command) -> None:
    trace = tmp_path / "trace.json"
    options = ["--repeat", "3", "--profile", "--trace", trace, "--check"]
    lines = command("replay", file, *options).splitlines()
    assert lines[1:3] == ["main(x: f32[n,4]) -> (y: f32[n,4], z: f32[n])", "  x: f32[2,4]"]
    assert lines[3].startswith("  module of ")
    assert lines[3].endswith(" in the file")
    assert lines[4].startswith("then on cpu: ")
    assert lines[5].startswith("now on cpu: ")
    assert any("main_dispatch_0" in line and "body/double" in line for line in lines)
    assert lines[-3:-1] == ["y: the same bits", "z: the same bits"]
    assert " then, " in lines[-1]
    assert "; 3 calls: median " in lines[-1]
    assert json.loads(trace.read_text())


def test_a_file_that_cannot_be_written_is_said_once(
    rows: Path, tmp_path: Path, command: Command, caplog: pytest.LogCaptureFixture
) -> None:
    said = command("record", rows, *INPUT, "-o", tmp_path, status=1)
    assert said.count("cannot write") == 1
    assert not caplog.text


@pytest.mark.skipif(opencl_uri() is None, reason="no OpenCL device")
def test_what_opencl_did_is_replayed_on_the_cpu(
    rows: Path, tmp_path: Path, command: Command
) -> None:
    path, uri = tmp_path / "call", str(opencl_uri())
    model = ingot.load(rows, device=uri)
    with model.record(path):
        model(np.ones((3, 4), np.float32))
    said = command("replay", path, "--device", "cpu", "--check")
    assert f"then on {uri}: " in said
    assert "now on cpu: " in said
    assert "z: the same bits" in said
    assert f"now on {uri}: " in command("replay", path)


def test_other_results_are_seen(file: Path, tmp_path: Path, command: Command) -> None:
    other = tmp_path / "other.ingot"
    ingot.compile(WRONG, variants=[best_variant()]).save(other)
    said = command("replay", file, "--module", other, "--check", status=1)
    assert "z: differs by 0.68 of the largest element, 0.0001 is allowed" in said
    said = command("replay", file, "--module", other, "--check", "--tolerance", "0.9")
    assert "y: the same bits" in said
    assert "0.9 is allowed" in said
    (tmp_path / "total.ingot").write_bytes(total_module())
    said = command("replay", file, "--module", tmp_path / "total.ingot", "--check", status=1)
    assert "then it succeeded; now InvalidArgument: argument 0 'x': dtype is f32, but" in said


def test_a_call_that_failed_and_its_state(tmp_path: Path, command: Command) -> None:
    module, path, state = tmp_path / "total.ingot", tmp_path / "call", tmp_path / "state"
    module.write_bytes(total_module())
    model = ingot.load(module)
    model(5)
    model.save_state(state)
    said = command("record", module, "--state", state, "--input", "x=-1", "-o", path)
    assert "a call that failed (x is -1) of main" in said
    said = command("replay", path, "--check", "--repeat", "2")
    assert "fails as it did: OutOfRange: x is -1" in said
    assert "  state of " in said
    command("record", module, "--state", state, "--input", "x=2", "-o", path)
    result = ingot.read_call(path).outcome.results
    assert result is not None
    assert int(result["y"]) == 107


def test_lists_and_what_is_not_given(tmp_path: Path, command: Command) -> None:
    path = tmp_path / "call"
    model = ingot.load(ingot.compile(ECHO, variants=[best_variant()]))
    with model.record(path):
        model([np.ones((1, 2), np.float32), np.zeros((3, 2), np.float32)], None)
    lines = command("replay", path, "--check").splitlines()
    assert lines[2:4] == ["  xs: [f32[1,2], f32[3,2]]", "  y: none"]
    assert lines[-3:-1] == ["a: the same bits", "b: the same bits"]


def test_the_debugger_stops_a_recorded_call(
    file: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("next\nbindings\ncontinue\n"))
    said = command("replay", file, "--step")
    assert "b0 = " in said
    assert "f32[8] [1, 2, 3, 4, 5, 6, 7, 8.5]" in said
    assert "z = Array([20., 53.]" in said

"""What all commands that take files say of those that are none, and of a disk that is full: one
line with what to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import ingot
from ingot.__main__ import main
from ingot.progress import show_progress
from tests.support.assembler import copy_module

OF_MODULES = ("inspect", "explore", "dis", "run", "bench", "strip", "record")
OF_SOURCES = ("check", "bisect", "coverage")
SOURCE = 'module {} {\n func @main(%x: f32[3] "x") -> (f32[3] "y") {\n return(%x)\n }\n}'
Failing = Callable[..., str]


@pytest.fixture
def failing(capsys: pytest.CaptureFixture[str]) -> Failing:
    def failing(*arguments: str | Path) -> str:
        """The one line that a command fails with."""
        assert main([str(each) for each in arguments]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        assert "Traceback" not in printed.err
        return printed.err.rstrip()

    return failing


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "model.ingot"
    path.write_bytes(copy_module())
    return path


def options(command: str, folder: Path) -> list[str]:
    return ["-o", str(folder / "out")] if command in ("explore", "strip", "record") else []


@pytest.mark.parametrize("command", OF_MODULES)
def test_a_file_that_is_no_module(
    command: str, module: Path, tmp_path: Path, failing: Failing
) -> None:
    cut, text, empty, source = (tmp_path / each for each in ("cut", "text", "empty", "x.ir"))
    cut.write_bytes(module.read_bytes()[:-100])
    text.write_text("something else")
    empty.write_bytes(b"")
    source.write_text(SOURCE)
    rest = options(command, tmp_path)
    for path in (text, empty):
        said = failing(command, path, *rest)
        assert f"'{path}' is no compiled Ingot module; `ingot compile` makes one" in said
    assert said.startswith(f"ingot {command}: DataLoss: ")
    said = failing(command, cut, *rest)
    assert said.endswith("; copy the file again, or compile the model again")
    assert str(cut) in said
    assert "compile it first" in failing(command, source, *rest)
    assert str(tmp_path / "none") in failing(command, tmp_path / "none", *rest)
    assert str(tmp_path) in failing(command, tmp_path, *rest)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", OF_SOURCES)
def test_a_module_where_a_source_is_needed(
    command: str, module: Path, tmp_path: Path, failing: Failing
) -> None:
    said = failing(command, module)
    assert f"'{module}' is a compiled" in said
    assert re.search("pass (the|its) source", said)
    assert f"'{tmp_path}' is a folder, expected a file" in failing(command, tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no disk that is full")
def test_a_disk_that_is_full(
    module: Path, tmp_path: Path, failing: Failing, capsys: pytest.CaptureFixture[str]
) -> None:
    text, source = tmp_path / "text", tmp_path / "x.ir"
    assert main(["dis", str(module), "-o", str(text)]) == 0
    source.write_text(SOURCE)
    capsys.readouterr()
    call = [module, "--input", "x=[1,2]"]
    for command in (
        ["dis", module, "-o", "/dev/full"],
        ["asm", text, "-o", "/dev/full"],
        ["strip", module, "-o", "/dev/full"],
        ["explore", module, "-o", "/dev/full"],
        ["compile", source, "-o", "/dev/full"],
        ["run", *call, "--output", "y=/dev/full"],
        ["bench", *call, "--seconds", "0.001", "--trace", "/dev/full"],
        ["record", *call, "-o", "/dev/full"],
    ):
        said = failing(*command)
        assert said.startswith(f"ingot {command[0]}: cannot write ")
        assert said.endswith(": the disk is full; make room, or write to another one")
        assert "'/dev/full'" in said


@pytest.mark.skipif(os.name != "posix", reason="it takes a shell to close them")
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed(closed: str, module: Path) -> None:
    command = f'exec "{sys.executable}" -m ingot inspect "{module}" {closed}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_system_without_threads(
    module: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    monkeypatch.setattr("ingot.runtime.submission._readers", [])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with show_progress("waiting") as step:
        step("on")
    model = ingot.load(module)
    with pytest.raises(ingot.OutOfMemory, match="no thread for futures: can't start"):
        model.submit([1.0, 2.0])

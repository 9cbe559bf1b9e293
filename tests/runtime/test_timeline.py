"""Timelines: what `Trace.save`, `ingot bench --trace`, INGOT_TRACE and timeline.h write."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.command import main
from tests.support.assembler import copy_module
from tests.support.devices import load_best, opencl_device

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "samples" / "digits"
IMAGES = np.zeros((2, 1, 8, 8), np.float32)
HOSTILE = '\x1b[2J</script>"\\\n\x9b\u202e\U0001f600é' + "x" * 5000

Events = list[dict[str, Any]]


def read_timeline(path: Path) -> Events:
    """The events of a whole file: ASCII, one a line, slices nested in each row."""
    text = path.read_text(encoding="ascii")
    assert text.replace("\n", "").isprintable()
    events: Events = json.loads(text)
    rows = defaultdict(list)
    for event in events:
        assert event["ph"] in ("X", "C", "M")
        if event["ph"] == "X":
            assert event["cat"] in ("host", "device", "wait", "call")
            rows[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    named = {each["tid"] for each in events if each["name"] == "thread_name"}
    assert set(rows) <= named
    for slices in rows.values():
        _check_nesting(slices)
    return events


def _check_nesting(slices: list[tuple[float, float]]) -> None:
    open_ends: list[float] = []
    for begin, end in sorted(slices, key=lambda each: (each[0], -each[1])):
        while open_ends and open_ends[-1] <= begin + 0.0005:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1] + 0.0015
        open_ends.append(end)


def _slices(events: Events, category: str) -> Events:
    return [event for event in events if event.get("cat") == category]


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("timeline") / "digits.ingot"
    ingot.compile(DIGITS / "digits.onnx").save(path)
    return path


def test_a_traced_call_is_saved_with_layers_copies_and_memory(module: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    model = ingot.load(module)
    trace = model.trace(IMAGES)
    trace.save(path)
    events = read_timeline(path)
    (call,) = _slices(events, "call")
    kernels = _slices(events, "host")
    assert call["name"] == "main"
    assert [each["args"]["kernel"] for each in kernels] == [each.kernel for each in trace]
    assert "dense/linear" in {each["name"] for each in kernels}
    for each in kernels:
        assert call["ts"] <= each["ts"]
        assert each["ts"] + each["dur"] <= call["ts"] + call["dur"] + 0.0015
    (memory,) = (event["args"] for event in events if event["ph"] == "C")
    report = ingot.compile(DIGITS / "digits.onnx").report
    assert memory == {"slab": 5120 * 2, "weights": report.constant_length}
    assert report.peaks["main"] == "5120*batch"
    copy = ingot.load(copy_module())
    copy.trace([1, 2, 3]).save(path)
    (event,) = _slices(read_timeline(path), "host")
    assert (event["name"], event["args"]["bytes"]) == ("copy", 12)


def test_bench_writes_the_calls_that_it_profiles(
    module: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    options = ["--trace", str(path), "--profile", "--json", "--seconds", "0.01"]
    assert main(["bench", str(module), *options]) == 0
    profile = json.loads(capsys.readouterr().out)["kernels"]
    events = read_timeline(path)
    calls, kernels = _slices(events, "call"), _slices(events, "host")
    assert len(calls) == 20
    assert len(kernels) == 20 * len(profile)
    least: dict[str, int] = {}
    for place, event in enumerate(kernels):
        name, time = event["args"]["kernel"], round(event["dur"] * 1000)
        least[name] = min(time, least.get(name, time))
        assert calls[place // len(profile)]["ts"] <= event["ts"]
    assert least == {each["kernel"]: each["time"] for each in profile}
    assert sum(each["dur"] for each in kernels) <= sum(each["dur"] for each in calls) + 1
    capsys.readouterr()
    assert main(["bench", str(module), "--trace", str(tmp_path), "--seconds", "0.01"]) == 1
    assert "Is a directory" in capsys.readouterr().err


def test_events_cost_less_than_a_microsecond_of_python_free_work(module: Path) -> None:
    """No interpreter runs for an event: a trace of many calls holds only what C has kept."""
    model = ingot.load(module)
    seen = []
    with model.trace() as trace:
        sys.setprofile(lambda frame, *_: seen.append(frame.f_code.co_filename))
        for _ in range(10):
            model(IMAGES)
        sys.setprofile(None)
    assert len(trace) == 60
    assert not [name for name in seen if name.endswith("trace.py")]


TIMED = """
    import time
    import numpy as np
    import ingot
    model = ingot.load({module!r}, threads=1)
    x = np.zeros((1, 1, 8, 8), np.float32)
    def least():
        times = []
        for _ in range(400):
            begin = time.perf_counter_ns()
            model(x)
            times.append(time.perf_counter_ns() - begin)
        return min(times)
    plain = min(least() for _ in range(3))
    with model.trace():
        traced = min(least() for _ in range(3))
    print(plain, traced)
"""


def test_an_event_costs_less_than_a_microsecond(module: Path, tmp_path: Path) -> None:
    program = textwrap.dedent(TIMED.format(module=str(module)))
    found = []
    for variables in ({}, {"INGOT_TRACE": str(tmp_path / "trace.json")}):
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=os.environ | variables, capture_output=True, check=True)
        found.append([int(number) for number in done.stdout.split()])
    (plain, kept), (written, _) = found
    events = 7  # six kernels and the call
    assert (kept - plain) / events < 1000
    assert (written - plain) / events < 1000


def test_traces_of_one_model_overlap_and_outlive_it(module: Path, tmp_path: Path) -> None:
    model = ingot.load(module)
    with model.trace() as outer:
        model(IMAGES)
        with model.trace() as inner:
            model(IMAGES)
        assert len(outer) == 2 * len(inner)
        model.close()
    del model
    outer.save(tmp_path / "outer.json")
    assert len(_slices(read_timeline(tmp_path / "outer.json"), "call")) == 2
    assert [len(each) for each in outer.calls()] == [len(inner)] * 2
    with pytest.raises(OSError, match="No such file"):
        inner.save(tmp_path / "missing" / "x.json")
    if os.path.exists("/dev/full"):
        with pytest.raises(OSError, match="No space left"):
            inner.save("/dev/full")


def test_names_of_layers_are_shown_as_text(tmp_path: Path) -> None:
    text = f"""module {{}} {{
  func @main(%x: f32[4] "x") -> (f32[4] "y") {{
    %y = exp(%x) : f32[4] loc({json.dumps(HOSTILE)})
    return(%y)
  }}
}}"""
    model = load_best(text)
    model.trace(np.zeros(4, np.float32)).save(tmp_path / "trace.json")
    (event,) = _slices(read_timeline(tmp_path / "trace.json"), "host")
    assert event["name"].endswith("x...")
    assert HOSTILE.startswith(event["name"].removesuffix("..."))


def test_a_device_has_a_row_of_its_own_and_the_thread_waits(tmp_path: Path) -> None:
    uri = opencl_device()
    if uri is None:
        pytest.skip("needs an OpenCL device")
    source = (
        'module {} { func @main(%x: f32[n] "x") -> (f32[n] "y") '
        '{ %y = exp(%x) : f32[n] loc("e") return(%y) } }'
    )
    model = ingot.load(ingot.compile(source, target="opencl"), device=uri)
    x = np.zeros(1000, np.float32)
    model(x)
    with model.trace() as trace:
        model(x).numpy()
    trace.save(tmp_path / "trace.json")
    events = read_timeline(tmp_path / "trace.json")
    kernel = next(each for each in _slices(events, "device") if each["name"] == "e")
    (call,) = _slices(events, "call")
    waits = _slices(events, "wait")
    assert kernel["tid"] != call["tid"]
    assert {each["tid"] for each in waits} == {call["tid"]}
    assert any(each["ts"] + each["dur"] >= kernel["ts"] + kernel["dur"] for each in waits)
    assert all(event.kernel != "wait" for event in trace)


PROGRAM = """
    import os, threading
    import numpy as np
    import ingot
    model = ingot.load({module!r})
    x = np.zeros((2, 1, 8, 8), np.float32)
    with model.trace() as trace:
        model(x)
    assert len(trace) == 6
    other = model.fork()
    thread = threading.Thread(target=lambda: [other(x) for _ in range(3)])
    thread.start()
    thread.join()
    child = os.fork()
    if child == 0:
        model(x)
        raise SystemExit
    os.waitpid(child, 0)
    model(x)
    {end}
"""


def _run_program(module: Path, trace: object, end: str = "") -> subprocess.CompletedProcess[str]:
    program = textwrap.dedent(PROGRAM.format(module=str(module), end=end))
    environment = os.environ | {"INGOT_TRACE": str(trace)}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


def test_a_program_is_traced_by_its_environment(module: Path, tmp_path: Path) -> None:
    done = _run_program(module, tmp_path / "trace-%p.json")
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = tmp_path.iterdir()
    calls = _slices(read_timeline(path), "call")
    assert len(calls) == 5
    assert len({each["tid"] for each in calls}) == 2


def test_a_program_that_is_killed_leaves_events(module: Path, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    end = "[model(x) for _ in range(1000)]; os.kill(os.getpid(), 9)"
    assert _run_program(module, path, end).returncode == -9
    text = path.read_text(encoding="ascii")
    whole = text[: text.rindex(",\n")] + "]"
    assert len(_slices(json.loads(whole), "call")) > 100


def test_a_file_that_cannot_be_written_is_told_once_and_the_program_runs(
    module: Path, tmp_path: Path
) -> None:
    path = tmp_path / "missing" / "trace.json"
    done = _run_program(module, path)
    assert done.returncode == 0
    assert done.stderr == f"INGOT_TRACE={path} cannot be written: No such file or directory\n"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = _run_program(module, pipe)
    assert done.stderr == f"INGOT_TRACE={pipe} cannot be written: it is a pipe\n"
    with pytest.raises(ingot.InvalidArgument, match="it is a pipe"):
        ingot.load(module).trace(IMAGES).save(pipe)
    if os.path.exists("/dev/full"):
        done = _run_program(module, "/dev/full")
        assert (done.returncode, done.stderr) == (0, "INGOT_TRACE=/dev/full: the disk is full\n")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_a_c_program_writes_the_same(
    compiler: str, module: Path, tmp_path: Path, build_c: Callable[..., None]
) -> None:
    program, path = tmp_path / "digits", tmp_path / "trace.json"
    build_c(compiler, DIGITS / "digits.c", program)
    data = [module, DIGITS / "images.npy", DIGITS / "labels.npy"]
    environment = os.environ | {"INGOT_TRACE": str(path)}
    done = subprocess.run([program, *data], env=environment, capture_output=True, text=True)
    assert "358 of 360 right" in done.stdout
    events = read_timeline(path)
    assert len(_slices(events, "call")) == 1
    expected = {each.kernel for each in ingot.load(module).trace(IMAGES)}
    assert {each["args"]["kernel"] for each in _slices(events, "host")} == expected
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused = {
        pipe: f"INGOT_TRACE={pipe} cannot be written: Invalid argument\n",
        tmp_path / "no" / "x": f"INGOT_TRACE={tmp_path}/no/x cannot be written: No such file or "
        "directory\n",
    }
    if os.path.exists("/dev/full"):
        refused[Path("/dev/full")] = "the timeline is not whole\n"
    for path, message in refused.items():
        environment = os.environ | {"INGOT_TRACE": str(path)}
        command = [program, *data]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert "358 of 360 right" in done.stdout
        assert done.stderr == message


@pytest.fixture(scope="module")
def build_c() -> Callable[..., None]:
    """Builds a C program with every warning an error, against the runtime as one file."""

    def build(compiler: str, source: Path, program: Path) -> None:
        if shutil.which(compiler) is None:
            pytest.skip(f"{compiler} is not installed")
        warnings = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wswitch-enum", "-Werror"]
        include = [f"-I{ROOT / 'csrc' / 'include'}", f"-I{ROOT / 'csrc'}"]
        command = [compiler, "-std=c11", "-O0", *warnings, *include, source]
        command += [ROOT / "csrc" / "ingot.c", "-o", program, "-lpthread", "-ldl"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    return build

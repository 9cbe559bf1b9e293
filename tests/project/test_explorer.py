"""`ingot explore`: what is in the page, and what it says of files that are none."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.command import main
from ingot.compiler.vm.read_module import read_module
from ingot.compiler.vm.write_module import write_module
from ingot.inspection import inspect_report
from tests.support.assembler import copy_module
from tests.support.devices import best_variant, opencl_device, opencl_uri

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "python" / "ingot" / "explorer"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\u202e"
SOURCE = f"""
module {{}} {{
  func @main(%x: f32[b,4] "x") -> (f32[4,b] "y") symbols {{b in [1, 8]}} {{
    %0 = exp(%x) : f32[b,4] loc({json.dumps(HOSTILE)})
    %1 = reduce(%0) {{axes=[1], kind="max"}} : f32[b] loc("net.0/max")
    %2 = transpose(%0) {{permutation=[1, 0]}} : f32[4,b] loc("net.0/turn")
    %3 = broadcast(%1) {{shape=[4, <b>], dimensions=[1]}} : f32[4,b]
    %4 = sub(%2, %3) : f32[4,b] loc("net.1/sub")
    return(%4)
  }}
}}
"""


def read_page(path: Path) -> list[dict[str, Any]]:
    """The facts in a page."""
    found = re.search(r'id="data">([^<]*)<', path.read_text())
    assert found
    models: list[dict[str, Any]] = json.loads(zlib.decompress(base64.b64decode(found[1])))["models"]
    return models


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explorer") / "net.ingot"
    ingot.compile(SOURCE, debug=True, variants=[best_variant()]).save(path)
    return path


@pytest.fixture(scope="module")
def trace(module: Path) -> Path:
    path = module.with_suffix(".json")
    model = ingot.load(module)
    with model.trace() as trace:
        for _ in range(3):
            model(np.zeros((2, 4), np.float32))
    trace.save(path)
    return path


@pytest.fixture
def failing(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs the command, which must fail with one line."""

    def run(*arguments: object) -> str:
        assert main(["explore", *map(str, arguments)]) == 1
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("\n") == 1
        return printed.err

    return run


def test_the_page_is_one_file_without_a_word_of_the_module_in_its_html(
    module: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert main(["explore", str(module), "-o", str(page), "--dim", "b=2"]) == 0
    assert "KB, for a browser" in capsys.readouterr().out
    text = page.read_text()
    assert "alert(" not in text
    assert "net.0" not in text
    assert "@DATA@" not in text
    assert text.count("</script>") == text.count("<script") == 4
    assert not re.search(r'(src|href)="?http|@import|url\(', text)
    (facts,) = read_page(page)
    assert facts["sizes"] == {"b": 2}
    (function,) = facts["functions"]
    assert any(each["layer"].startswith(HOSTILE) for each in function["commands"])


def test_the_page_says_what_inspect_says_and_what_was_compiled(
    module: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    ingot.explore(module, page)
    (facts,) = read_page(page)
    report = inspect_report(str(module), code=False, verify=False)
    for key in ("length", "sections", "metadata", "parameters", "variables"):
        assert facts[key] == report[key]
    assert facts["missing"] == []
    (function,) = facts["functions"]
    assert function["code"][0][0] == 0
    dispatches = [text for _, text in function["code"] if text.startswith("dispatch")]
    assert len(dispatches) == len(function["commands"])
    for kernel in facts["executables"][0]["kernels"]:
        made = kernel["variants"][best_variant()]
        assert kernel["kernel"] in facts["texts"][made["source"]]
        assert "loop." in facts["texts"][made["loops"]]


def test_a_trace_gives_every_dispatch_its_least_time(
    module: Path, trace: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    ingot.explore(module, page, trace=trace)
    (facts,) = read_page(page)
    (function,) = facts["functions"]
    events = [each for each in json.loads(trace.read_text()) if each.get("cat") == "host"]
    assert len(events) == 3 * len(function["commands"])
    for place, command in enumerate(function["commands"]):
        time, runs, length = function["times"][str(command["id"])]
        ours = events[place :: len(function["commands"])]
        assert {each["args"]["kernel"] for each in ours} == {command["kernel"]}
        assert time == min(round(each["dur"] * 1000) for each in ours)
        assert (runs, length) == (1, ours[0]["args"]["bytes"])
    assert function["call"] >= sum(time for time, _, _ in function["times"].values())


def test_a_trace_that_was_not_closed_or_written_again_is_read(
    module: Path, trace: Path, tmp_path: Path
) -> None:
    events = [each for each in json.loads(trace.read_text()) if each["ph"] == "X"]
    cut, again = tmp_path / "cut.json", tmp_path / "again.json"
    cut.write_text("[\n" + "".join(json.dumps(each) + ",\n" for each in events))
    again.write_text(json.dumps({"traceEvents": list(reversed(events))}))
    times = []
    for path in (trace, cut, again):
        ingot.explore(module, tmp_path / "page.html", trace=path)
        times.append(read_page(tmp_path / "page.html")[0]["functions"][0]["times"])
    assert times[0] == times[1] == times[2]


@pytest.mark.skipif(opencl_uri() is None, reason="there is no OpenCL device")
def test_times_of_a_device_go_to_its_own_function(tmp_path: Path) -> None:
    path, trace = tmp_path / "net.ingot", tmp_path / "trace.json"
    ingot.compile(
        SOURCE, debug=True, target=["cpu", "opencl"], variants=[best_variant()], fallback=False
    ).save(path)
    for device, target in ((opencl_device(), "opencl"), ("cpu", "cpu")):
        ingot.load(path, device=device).trace(np.zeros((2, 4), np.float32)).save(trace)
        ingot.explore(path, tmp_path / "page.html", trace=trace)
        functions = read_page(tmp_path / "page.html")[0]["functions"]
        (timed,) = [each for each in functions if "times" in each]
        assert timed["target"] == target
        assert len(timed["times"]) == len(timed["commands"])


def test_steps_of_a_loop_are_added_up_per_dispatch(tmp_path: Path) -> None:
    source = """
module {} {
  func @main(%x: f32[8,8] "x", %steps: i64[] "steps") -> (f32[8,8] "y") {
    %zero = constant() {value=dense<i64[] 0>} : i64[]
    %i, %y = while(%zero, %x) {symbols=[]} : i64[], f32[8,8] ({
    ^(%k: i64[], %v: f32[8,8]):
      %more = compare(%k, %steps) {direction="lt"} : i1[]
      yield(%more)
    }, {
    ^(%k: i64[], %v: f32[8,8]):
      %one = constant() {value=dense<i64[] 1>} : i64[]
      %next = add(%k, %one) : i64[]
      %t = transpose(%v) {permutation=[1, 0]} : f32[8,8] loc("same")
      %s = cumulative(%t) {axis=0, exclusive=false, kind="add", reverse=false} : f32[8,8]
          loc("same")
      yield(%next, %s)
    })
    return(%y)
  }
}
"""
    path = tmp_path / "loop.ingot"
    ingot.compile(source, debug=True, variants=[best_variant()]).save(path)
    ingot.load(path).trace(np.zeros((8, 8), np.float32), np.int64(5)).save(tmp_path / "trace.json")
    ingot.explore(path, tmp_path / "page.html", trace=tmp_path / "trace.json")
    (function,) = read_page(tmp_path / "page.html")[0]["functions"]
    (loop,) = [each for each in function["commands"] if each["op"] == "while"]
    kernels = [each["id"] for each in loop["bodies"][1] if each["op"] == "dispatch"]
    assert kernels
    assert {function["times"][str(id)][1] for id in kernels} == {5}


def test_a_module_without_debug_section_or_stripped_says_what_is_missing(
    module: Path, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare, page = tmp_path / "net.ingot", tmp_path / "page.html"
    ingot.compile(SOURCE, variants=[best_variant()]).save(bare)
    ingot.explore(bare, page, trace=trace)
    (facts,) = read_page(page)
    assert ["--debug" in line for line in facts["missing"]] == [True]
    (function,) = facts["functions"]
    kernels = [each["kernel"] for each in facts["executables"][0]["kernels"]]
    assert [each["kernel"] for each in function["commands"]] == kernels
    assert any(each["layer"].startswith(HOSTILE) for each in function["commands"])
    assert len(function["times"]) == len(kernels)
    assert main(["strip", str(module), "-o", str(bare)]) == 0
    assert re.search(r"\d K?B of [\d.]+ K?B", capsys.readouterr().out)
    ingot.explore(bare, page)
    assert "stripped" in read_page(page)[0]["missing"][1]


def test_files_that_are_none_get_one_line(
    module: Path, tmp_path: Path, failing: Callable[..., str]
) -> None:
    text, page = tmp_path / "text", tmp_path / "page.html"
    text.write_text("no module")
    assert "there is no file" in failing(tmp_path / "missing", "-o", page)
    assert "DataLoss" in failing(text, "-o", page)
    assert "DataLoss" in failing(module, "--against", text, "-o", page)
    assert "there is no file" in failing(module, "--trace", tmp_path / "missing", "-o", page)
    for content in ("no trace", "[]", "{}", '["x"]', '[{"ph":"X","ts":1}]', '{"traceEvents":3}'):
        text.write_text(content)
        assert "is no timeline: make one with" in failing(module, "--trace", text, "-o", page)
    for content in ("[" * 200_000, '{"a":' * 200_000):
        text.write_text(content)
        assert "is no timeline: make one with" in failing(module, "--trace", text, "-o", page)
    assert "the module has no dim 'c'" in failing(module, "--dim", "c=1", "-o", page)
    assert "there is no folder" in failing(module, "-o", tmp_path / "none" / "page.html")
    assert "disk is full; make room" in failing(module, "-o", "/dev/full")
    assert not page.exists()


@pytest.mark.parametrize("kind", ["call", "host", "device"])
def test_events_that_ingot_never_writes_get_one_line(
    kind: str, module: Path, trace: Path, tmp_path: Path, failing: Callable[..., str]
) -> None:
    events = json.loads(trace.read_text())
    place = next(at for at, each in enumerate(events) if each.get("cat") in (kind, "host"))
    event = {**events[place], "cat": kind}
    wrong = {
        "name": (3, None, ["x"]),
        "args": (None, "x", [], {}, {"kernel": "k"}, {"bytes": 1}, {"kernel": [], "bytes": 1}),
        "tid": ("1", None, {}),
        "ts": ("1", None, float("nan"), 10**400),
        "dur": ("1", [], -1, float("inf"), float("nan"), 10**400),
    }
    changed = [{**event, key: value} for key, values in wrong.items() for value in values]
    changed += [{k: v for k, v in event.items() if k != key} for key in wrong]
    changed += [{**event, "args": {**event["args"], "bytes": "1"}}]
    for each in changed:
        path = tmp_path / "foreign.json"
        path.write_text(json.dumps([*events[:place], each, *events[place + 1 :]]))
        line = failing(module, "--trace", path, "-o", tmp_path / "page.html")
        assert "is no timeline: make one with" in line


def test_a_trace_of_another_module_is_refused_with_what_is_strange(
    module: Path, tmp_path: Path, failing: Callable[..., str]
) -> None:
    other = tmp_path / "other.json"
    ingot.load(copy_module()).trace([1, 2, 3]).save(other)
    line = failing(module, "--trace", other)
    assert "is the trace of another module; make one with `ingot bench" in line
    changed = SOURCE.replace("net.1/sub", "net.2/sub")
    model = ingot.load(ingot.compile(changed, variants=[best_variant()]))
    model.trace(np.zeros((2, 4), np.float32)).save(other)
    assert "has kernel 'main_dispatch" in failing(module, "--trace", other)
    strange = re.sub(r'"kernel":"main_dispatch', r'"kernel":"\\u202e\\n', other.read_text())
    other.write_text(strange)
    assert r"has kernel '\u202e\n" in failing(module, "--trace", other)


@pytest.mark.slow
def test_a_debug_section_of_another_time_is_refused(
    module: Path, tmp_path: Path, failing: Callable[..., str]
) -> None:
    contents = read_module(module.read_bytes())
    path = tmp_path / "other.ingot"
    start = '{"schema":"ingot.debug/1"'
    deep = start + ',"x":' + "[" * 200_000 + "]" * 200_000 + "}"
    documents = ["[]", '{"schema":"ingot.debug/9"}', deep, start + ',"x":NaN}']
    documents += [
        start + f',"targets":{targets}}}'
        for targets in (
            "[]",
            '{"cpu":[]}',
            '{"cpu":{"functions":[1]}}',
            '{"cpu":{"functions":{"main":"abc"}}}',
            '{"cpu":{"kernels":3}}',
        )
    ]
    bomb = zlib.compressobj()
    long = b"".join(bomb.compress(bytes(1 << 20)) for _ in range(300)) + bomb.flush()
    for debug in (b"nothing", long, *(zlib.compress(each.encode()) for each in documents)):
        path.write_bytes(write_module(replace(contents, debug=debug)))
        line = failing(path, "-o", tmp_path / "page.html")
        assert "compile it again, or take the section out with `ingot strip`" in line


@pytest.mark.parametrize(
    "metadata", ["{", "[" * 200_000, "[1]", '{"targets":[]}', '{"targets":{"cpu":3}}']
)
@pytest.mark.parametrize("command", ["explore", "inspect", "strip"])
def test_damaged_metadata_is_told_in_one_line(
    command: str,
    metadata: str,
    module: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contents = read_module(module.read_bytes())
    path = tmp_path / "damaged.ingot"
    with monkeypatch.context() as patch:
        patch.setattr(json, "dumps", lambda *arguments, **options: metadata)
        path.write_bytes(write_module(contents))
    output = [] if command == "inspect" else ["-o", str(tmp_path / "out")]
    assert main([command, str(path), *output]) == 1
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "is damaged" in printed


def test_libraries_are_those_of_npm() -> None:
    """Their files are what the packages of that version hold: libraries/README.md."""
    listed = re.findall(r"`(d3-\w+\.min\.js)` \| \S+ \| `(\w+)`", _readme())
    files = {path.name for path in (FOLDER / "libraries").glob("*.js")}
    assert {name for name, _ in listed} == files
    for name, digest in listed:
        data = (FOLDER / "libraries" / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest
        assert b"</script" not in data


def _readme() -> str:
    return (FOLDER / "libraries" / "README.md").read_text()

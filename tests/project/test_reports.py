"""Reports as data: `--json` validates against docs/schemas, and says what the text says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ingot
from ingot.command import main
from ingot.compiler.report import Report
from ingot.hal.errors import CompileError, InvalidArgument
from tests.support.assembler import parameter_module

jsonschema = pytest.importorskip("jsonschema")

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"
HOSTILE = "\x1b[2J</script><script>alert(1)</script>\n\x9b31m\u202e\ud7ff"

# Two layers that share nothing: the first result is kept while the second is made.
LAYERS = f"""
module {{}} {{
  func @main(%x: f32[b,s] "x") -> (f32[s,b] "y") symbols {{b in [1, 8], s in [1, 4096]}} {{
    %0 = exp(%x) : f32[b,s] loc({json.dumps(HOSTILE)})
    %1 = reduce(%0) {{axes=[1], kind="max"}} : f32[b] loc("reduce")
    %2 = transpose(%0) {{permutation=[1, 0]}} : f32[s,b] loc("turn")
    %3 = broadcast(%1) {{shape=[<s>, <b>], dimensions=[1]}} : f32[s,b]
    %4 = sub(%2, %3) : f32[s,b] loc("turn")
    return(%4)
  }}
}}
"""


PRODUCT = """
module {} {
  func @main(%x: f32[b,4] "x") -> (f32[b,3] "y") symbols {b in [1, 8]} {
    %0 = constant() {value=dense<f32[4,3] [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]>} : f32[4,3]
    %1 = dot_general(%x, %0) {lhs_contract=[1], rhs_contract=[0]} : f32[b,3] loc(LAYER)
    return(%1)
  }
}
"""


def _strict(schema: Any) -> Any:
    """The schema without room for keys that it does not describe."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(each) for key, each in schema.items()}
    if "properties" in schema and "type" in schema:
        strict.setdefault("additionalProperties", False)
    return strict


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reports") / "layers.ir"
    path.write_text(LAYERS)
    return path


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Runs a command with --json; gives what it printed, which follows its schema."""

    def run(command: str, *arguments: object, status: int = 0) -> dict[str, Any]:
        capsys.readouterr()
        assert main([command, *map(str, arguments), "--json"]) == status
        printed = capsys.readouterr().out
        assert printed.isascii()
        assert printed.replace("\n", "").isprintable()
        document: dict[str, Any] = json.loads(printed)
        schema = json.loads((SCHEMAS / f"{command}.schema.json").read_text())
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(document, _strict(schema))
        return document

    return run


def test_compile_report_follows_its_schema_and_sums_up(
    report: Callable[..., dict[str, Any]], source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.ingot"
    found = report(
        "compile",
        source,
        "-o",
        out,
        "--target",
        "cpu,opencl",
        "--no-fallback",
        "--dim",
        "b=4",
        "--dim",
        "s=100",
    )
    assert found["length"] == out.stat().st_size
    assert set(found["targets"]) == {"cpu", "opencl"}
    for target in found["targets"].values():
        function = target["functions"]["main"]
        assert function["sizes"] == {"b": 4, "s": 100}
        assert function["dispatches"] == len(target["dispatches"])
        assert sum(each["share"] for each in target["dispatches"]) == pytest.approx(1)
        assert HOSTILE in {each["layer"] for each in target["dispatches"]} | {
            layer for each in target["dispatches"] for layer in each["layer"].split(", ")
        }
        ends = [each["offset"] + each["length"] for each in function["memory"]]
        assert max(ends) == function["peak_length"]
        _check_no_overlap(function["memory"])


def _check_no_overlap(rows: list[dict[str, Any]]) -> None:
    for place, one in enumerate(rows):
        for other in rows[place + 1 :]:
            together = one["begin"] < other["end"] and other["begin"] < one["end"]
            apart = (
                one["offset"] + one["length"] <= other["offset"]
                or other["offset"] + other["length"] <= one["offset"]
            )
            assert apart or not together


def test_memory_of_loops_and_branches_is_told_without_overlap(
    report: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    path = tmp_path / "loop.ir"
    path.write_text(
        """
module {} {
  func @main(%x: f32[64,64] "x", %steps: i64[] "steps") -> (f32[64,64] "y") {
    %zero = constant() {value=dense<i64[] 0>} : i64[]
    %a = transpose(%x) {permutation=[1, 0]} : f32[64,64]
    %i, %y, %z = while(%zero, %x, %a) {symbols=[]} : i64[], f32[64,64], f32[64,64] ({
    ^(%k: i64[], %v: f32[64,64], %w: f32[64,64]):
      %more = compare(%k, %steps) {direction="lt"} : i1[]
      yield(%more)
    }, {
    ^(%k: i64[], %v: f32[64,64], %w: f32[64,64]):
      %one = constant() {value=dense<i64[] 1>} : i64[]
      %next = add(%k, %one) : i64[]
      %t = transpose(%v) {permutation=[1, 0]} : f32[64,64] loc("turn")
      %s = add(%t, %w) : f32[64,64] loc("sum")
      yield(%next, %w, %s)
    }) loc("loop")
    %r = add(%y, %z) : f32[64,64]
    return(%r)
  }
}
"""
    )
    found = report("compile", path, "-o", tmp_path / "out.ingot")
    function = found["targets"]["cpu"]["functions"]["main"]
    assert len(function["memory"]) >= 3
    assert (
        max(each["offset"] + each["length"] for each in function["memory"])
        == (function["peak_length"])
    )
    _check_no_overlap(function["memory"])


def test_inspect_and_bench_reports_follow_their_schemas(
    report: Callable[..., dict[str, Any]], source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.ingot"
    report("compile", source, "-o", out)
    found = report("inspect", out, "--dim", "b=4", "--code", "--verify")
    (argument,) = found["functions"][0]["arguments"]
    assert argument == {"name": "x", "kind": "tensor", "dtype": "f32", "shape": ["b", "s"]}
    assert found["peaks"][0]["peak_length"] != found["peaks"][0]["peak"]
    layers = {each["layer"] for each in found["executables"][0]["kernels"]}
    assert any(HOSTILE in layer for layer in layers)
    other = tmp_path / "parameters.ingot"
    other.write_bytes(parameter_module())
    weight = report("inspect", other)["parameters"][0]
    assert (weight["name"], weight["shape"]) == ("weight", [3])
    bench = ("--profile", "--dim", "b=4", "--seconds", "0.01")
    measured = report("bench", out, *bench)
    assert measured["minimum"] <= measured["median"]
    assert measured["dims"] == {"b": 4, "s": 1}
    times = [each["time"] for each in measured["kernels"]]
    assert times == sorted(times, reverse=True)
    assert any(HOSTILE in each["layer"] for each in measured["kernels"])


def test_kinds_of_arguments_are_told(
    report: Callable[..., dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "kinds.ir", tmp_path / "kinds.ingot"
    path.write_text(
        """module {} {
  func @main(%xs: sequence<f32[?,2]> "xs", %zs: optional_sequence<i64[*]> "zs")
      -> (sequence<f32[?,2]> "a", i64[] "d") {
    %0 = list.argument(%xs) {symbols=[]} : list<f32[?,2]>
    %1 = list.argument(%zs) {symbols=["q"]} : list<i64[*]>
    %2 = dim() {value=<q>, dtype=i64} : i64[]
    %3 = list.result(%0) {kind="sequence", given=1} : sequence<f32[?,2]>
    return(%3, %2)
  }
}
"""
    )
    report("compile", path, "-o", out)
    (function,) = report("inspect", out)["functions"]
    kinds = [(each["kind"], each["shape"]) for each in function["arguments"]]
    assert kinds == [("sequence", ["?", 2]), ("optional_sequence", ["*"])]
    assert [each["kind"] for each in function["results"]] == ["sequence", "tensor"]
    assert main(["coverage", str(path)]) == 0
    assert "list.argument(sequence<f32[?,_]>)" in capsys.readouterr().out


def test_check_report_says_what_differs(
    report: Callable[..., dict[str, Any]], source: Path
) -> None:
    found = report("check", source, "--dim", "b=2", "--dim", "s=5")
    assert found["agrees"]
    assert found["results"][0]["name"] == "y"
    wrong = report("check", source, "--tolerance", "-1", status=1)
    assert not wrong["agrees"]
    assert len(wrong["differences"]) == wrong["dispatches"]
    assert wrong["differences"][0]["layer"] in wrong["problem"]


@pytest.mark.slow
def test_quantize_report_has_every_layer(
    report: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    text = PRODUCT.replace("LAYER", json.dumps(HOSTILE))
    (tmp_path / "m.ir").write_text(text)
    out = tmp_path / "m.ingot"
    found = report("quantize", tmp_path / "m.ir", "-o", out, "--dim", "b=2")
    (layer,) = found["layers"]
    assert layer["layer"] == HOSTILE
    assert (layer["kind"], layer["shape"], layer["scheme"]) == ("product", [4, 3], "int8")
    assert layer["length"] == {"before": 48, "after": 12 + 12}
    assert found["length"]["after"] == out.stat().st_size
    assert found["call"]["before"] > 0
    assert found["samples"] == 0
    quick = report("quantize", tmp_path / "m.ir", "-o", out, "--no-measure", "--keep", "*")
    assert quick["call"] == {"before": None, "after": None}
    assert quick["layers"][0]["reason"] == "kept as asked"
    (tmp_path / "m.ir").write_text(text.replace("[1, 2,", "[nan, 2,"))
    damaged = report("quantize", tmp_path / "m.ir", "-o", out, "--no-measure")
    assert damaged["layers"][0]["scheme"] == "float"
    assert damaged["results"][0]["cosine"] is None


def test_bisect_report_has_every_layer(report: Callable[..., dict[str, Any]], source: Path) -> None:
    found = report("bisect", source, "--dim", "b=2", "--dim", "s=5")
    assert found["agrees"]
    assert len(found["layers"]) == report("check", source)["dispatches"]
    wrong = report("bisect", source, "--tolerance", "-1", status=1)
    assert [each["is_wrong"] for each in wrong["layers"]] == [True] * len(wrong["layers"])
    assert wrong["layers"][0]["layer"] in wrong["summary"]


def test_cache_report_counts_what_a_compile_left(
    report: Callable[..., dict[str, Any]],
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "cache"))
    assert report("cache")["files"] == 0
    assert main(["compile", str(source), "-o", str(tmp_path / "out.ingot")]) == 0
    found = report("cache")
    assert found["folder"] == str(tmp_path / "cache")
    assert found["files"] > 0
    assert found["length"] == sum(each.stat().st_size for each in (tmp_path / "cache").iterdir())
    assert main(["cache"]) == 0
    assert f"{found['files']} file" in capsys.readouterr().out
    assert report("cache", "--trim", "0")["length"] == 0
    (tmp_path / "cache").chmod(0o777)
    assert report("cache")["folder"] is None
    assert main(["cache"]) == 0
    assert "set INGOT_CACHE" in capsys.readouterr().out


def test_devices_report_lists_the_cpu(report: Callable[..., dict[str, Any]]) -> None:
    assert report("devices")["devices"][0]["uri"] == "cpu"


def test_failures_print_no_json(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(source), "--json"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1


def test_no_name_reaches_the_terminal_as_it_is(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out.ingot")
    assert main(["compile", str(source), "-o", out, "--report"]) == 0
    assert main(["inspect", out, "--code"]) == 0
    assert main(["bench", out, "--profile", "--seconds", "0.01"]) == 0
    assert main(["check", str(source), "--tolerance", "-1"]) == 1
    assert main(["run", "\x1b[2J"]) == 1
    with pytest.raises(SystemExit):
        main(["\x1b[2J"])
    printed = capsys.readouterr()
    for text in (printed.out, printed.err):
        assert text.replace("\n", "").isprintable()
    assert "\\x1b[2J</script>" in printed.out
    assert main(["opt", str(source)]) == 0
    text = capsys.readouterr().out
    assert text.replace("\n", "").isprintable()
    again = tmp_path / "again.ir"
    again.write_text(text)
    assert main(["opt", str(again)]) == 0
    assert capsys.readouterr().out == text


@pytest.fixture(scope="module")
def layers() -> Report:
    return ingot.compile(LAYERS).report


def test_report_is_short_and_names_what_costs_most(layers: Report) -> None:
    text = layers.text({"b": 8, "s": 4096})
    assert len(text.splitlines()) < 20
    assert "kernels: " in text
    assert "at b=8, s=4096" in text
    assert "100" not in text.split("cost model:")[0]
    shares = [float(line.split("%")[0]) for line in text.splitlines() if "MFLOP" in line]
    assert shares == sorted(shares, reverse=True)
    assert "0.00 s" not in text


def test_memory_that_is_not_enough_is_refused_with_what_holds_it(
    layers: Report, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layers.check_memory(10_000_000)
    layers.check_memory(10_000, {"b": 1, "s": 8})
    with pytest.raises(CompileError, match=r"at b=8, s=4096, more than the 10\.0 KB allowed"):
        layers.check_memory(10_000)
    with pytest.raises(
        CompileError, match=r"131\.1 KB  f32\[b,s\], made by main_dispatch_0_reduce_exp of"
    ):
        layers.check_memory(10_000)
    with pytest.raises(InvalidArgument, match="'b' is at least 1 and at most 8, which 9 is not"):
        layers.text({"b": 9})
    with pytest.raises(InvalidArgument, match="no dim 'c'; its dims are: b, s"):
        layers.check_memory(10_000, {"c": 1})
    out = tmp_path / "out.ingot"
    assert main(["compile", str(source), "-o", str(out), "--memory", "1KB"]) == 1
    assert "\\x1b[2J" in capsys.readouterr().err
    assert not out.exists()
    assert main(["compile", str(source), "-o", str(out), "--memory", "1MiB"]) == 0


def test_memory_without_a_bound_asks_for_a_size() -> None:
    report = ingot.compile(LAYERS.replace(", s in [1, 4096]", "")).report
    with pytest.raises(InvalidArgument, match="has no greatest size: give s a size"):
        report.check_memory(10_000)
    report.check_memory(10_000, {"s": 8})


@pytest.mark.parametrize("length", ["", "MB", "-1", "1e9", "64 XB", "1" * 40])
def test_lengths_that_are_none_are_refused(
    length: str, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["compile", str(source), "-o", "x", f"--memory={length}"])
    assert "is no length in bytes, such as 64MB" in capsys.readouterr().err

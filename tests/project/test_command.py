"""The `ingot` command: what it prints, what it writes, and its answers to wrong use."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import ingot
from ingot.command import main
from ingot.compiler.ir.dim_text import parse_dim
from ingot.compiler.ir.dims import evaluate, symbols_of
from tests.support.assembler import copy_module, count_module, pair_module, parameter_module

ADD_ONE = """\
module {} {
  func @main(%x: f32[n,4] "x") -> (f32[n,4] "y") {
    %one = constant() {value=dense<f32[] 1.0>} : f32[]
    %ones = broadcast(%one) {shape=[<n>, 4], dimensions=[]} : f32[n,4]
    %y = add(%x, %ones) : f32[n,4] loc("a layer")
    return(%y)
  }
}
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    """The path of a model as Ingot IR text: main(x: f32[n,4]) -> (y: f32[n,4]), plus one."""
    path = tmp_path / "add.ir"
    path.write_text(ADD_ONE)
    return str(path)


@pytest.fixture
def pair(tmp_path: Path) -> str:
    """The path of main(a: f32[n], b: i32[]) -> (first: f32[n], second: i32[])."""
    path = tmp_path / "pair.ingot"
    path.write_bytes(pair_module())
    return str(path)


@pytest.fixture
def failing(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that must fail; gives what it printed, which must be one line."""

    def run(*arguments: str, status: int = 1) -> str:
        try:
            found = main(arguments)
        except SystemExit as exit:
            found = int(str(exit.code))
        printed = capsys.readouterr()
        assert found == status
        assert printed.out == ""
        assert printed.err.count("\n") == 1, printed.err
        return printed.err

    return run


def test_help_and_version() -> None:
    command = [sys.executable, "-m", "ingot"]
    shown = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    for name in (
        "compile",
        "run",
        "bench",
        "inspect",
        "check",
        "bisect",
        "coverage",
        "opt",
        "cache",
        "devices",
    ):
        assert f"\n    {name} " in shown
        assert main_exits_cleanly(name, "--help")
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout == f"ingot {ingot.__version__}\n"


@pytest.mark.parametrize("name", ["compile", "check", "bisect", "coverage"])
def test_help_names_every_kind_of_source(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_exits_cleanly(name, "--help")
    shown = capsys.readouterr().out
    assert all(kind in shown for kind in (".onnx", ".pt2", ".tflite", ".gguf", "StableHLO", "IR"))


def main_exits_cleanly(*arguments: str) -> bool:
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    return exit.value.code == 0


def test_wrong_use_is_answered_in_one_line(failing: Callable[..., str], pair: str) -> None:
    assert "required: COMMAND; `ingot --help` shows how" in failing(status=2)
    assert "invalid choice: 'fly'" in failing("fly", status=2)
    assert "required: -o/--output" in failing("compile", "model.onnx", status=2)
    unknown = failing("run", pair, "--fast", status=2)
    assert "unrecognized arguments: --fast; `ingot run --help` shows how" in unknown
    for option in ("--dims", "--di", "--sec"):
        assert f"unrecognized arguments: {option}" in failing("bench", pair, option, "1", status=2)
    count = failing("run", pair, "--threads", "p=2", status=2)
    assert "argument --threads: 'p=2' is no count, such as 8" in count


def test_failures_are_one_line(failing: Callable[..., str], pair: str, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.ingot")
    assert failing("run", missing).startswith("ingot run: NotFound: ")
    assert "missing.ingot" in failing("inspect", missing)
    assert "argument 'a' is missing" in failing("run", pair)
    assert "there is no function 'f'" in failing("run", pair, "--function", "f")
    assert "no argument is called 'c'" in failing("run", pair, "--input", "c=1")
    assert "write a=@FILE.npy" in failing("run", pair, "--input", "a=x.npy")
    assert "there is no file 'x.npy'" in failing("run", pair, "--input", "a=@x.npy")
    assert failing("run", pair, "--input", f"a=@{pair}").endswith("' is no .npy or .npz file\n")
    np.save(objects := tmp_path / "objects.npy", np.array([None]))
    of_objects = failing("run", pair, "--input", f"a=@{objects}")
    assert "objects.npy' cannot be read as arrays: Object arrays" in of_objects
    assert "write a=@FILE.npy" in failing("run", pair, "--input", "a=" + "[" * 50_000)
    assert "write a=@FILE.npy" in failing("run", pair, "--input", "a=" + "9" * 5000)
    with open(unnamed := tmp_path / "one.npz", "wb") as file:
        np.save(file, np.zeros(2, np.float32))
    assert "holds one array and no names" in failing("run", pair, "--input", f"@{unnamed}")
    texts = ["--input", "1", "--input", "2", "--input", "3"]
    assert "every argument of main" in failing("run", pair, *texts)
    assert "write NAME=SIZE" in failing("bench", pair, "--dim", "n")


def test_run_prints_results(pair: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", pair, "--input", "a=[1, 2.5]", "--input", "7"]) == 0
    printed = capsys.readouterr().out
    assert "first = Array([1. , 2.5], dtype=f32" in printed
    assert "second = Array(7, dtype=i32" in printed


def test_run_reads_and_writes_files(pair: str, tmp_path: Path) -> None:
    a, b = np.arange(3, dtype=np.float32), np.int32(5)
    np.save(tmp_path / "a.npy", a)
    np.savez(tmp_path / "all.npz", a=a, b=b)
    first, second, both = tmp_path / "f.npy", tmp_path / "s.npy", tmp_path / "both.npz"
    by_file = ["--input", f"a=@{tmp_path / 'a.npy'}", "--input", "b=5"]
    assert main(["run", pair, *by_file, "--output", str(first), "--output", str(second)]) == 0
    np.testing.assert_array_equal(np.load(first), a)
    assert np.load(second) == 5
    by_name = ["--input", f"@{tmp_path / 'all.npz'}", "--output", str(both)]
    assert main(["run", pair, *by_name]) == 0
    np.testing.assert_array_equal(np.load(both)["first"], a)
    named = ["--output", f"second={second}", "--output", f"first={first}"]
    assert main(["run", pair, *by_file, *named]) == 0
    np.testing.assert_array_equal(np.load(first), a)


ECHO = """\
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


def test_sequences_are_read_from_files_and_text_and_written_and_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], failing: Callable[..., str]
) -> None:
    text, module = tmp_path / "echo.ir", str(tmp_path / "echo.ingot")
    text.write_text(ECHO)
    assert main(["compile", str(text), "-o", module]) == 0
    a, b = np.ones((2, 2), np.float32), np.zeros((1, 2), np.float32)
    np.save(tmp_path / "a.npy", a)
    np.savez(tmp_path / "b.npz", u=b, v=a)
    files = f"xs=@{tmp_path / 'a.npy'},@{tmp_path / 'b.npz'}"
    out, both = tmp_path / "out.npz", tmp_path / "all.npz"
    given = ["--input", files, "--input", "y=[1, 2, 3]"]
    assert main(["run", module, *given, "--output", f"a={out}"]) == 0
    found = np.load(out)
    assert [found[name].tolist() for name in "012"] == [a.tolist(), b.tolist(), a.tolist()]
    none = ["--input", "xs=[[[5, 6]]]", "--input", "y=none"]
    assert main(["run", module, *none, "--output", str(both)]) == 0
    assert list(np.load(both)) == ["a.0"]
    capsys.readouterr()
    assert main(["run", module, *none]) == 0
    assert "b = None" in capsys.readouterr().out
    assert "lists to .npz files" in failing("run", module, *none, "--output", "a=x.npy")
    assert main(["bench", module, "--seconds", "0.01"]) == 0
    assert main(["check", str(text)]) == 0
    assert main(["check", str(text), *none]) == 0


def test_run_writes_strings_and_refuses_maps(tmp_path: Path, failing: Callable[..., str]) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["": 20, "ai.onnx.ml": 3]>
        f(string[n] x, float[2,2] v) => (string[n] y, seq(map(string, float)) file) {
            y = StringConcat(x, x)
            file = ai.onnx.ml.ZipMap<classlabels_strings = ["a", "b"]>(v)
        }"""
    )
    module, out = str(tmp_path / "m.ingot"), tmp_path / "y.npy"
    ingot.compile(model, variants=["x86-64-v3"]).save(module)
    given = ["--input", 'x=["a", "ü"]', "--input", "v=[[1, 2], [3, 4]]"]
    assert main(["run", module, *given, "--output", f"y={out}"]) == 0
    assert np.load(out).tolist() == ["aa", "üü"]
    said = failing("run", module, *given, "--output", str(tmp_path / "all.npz"))
    assert "maps have no place in .npy files" in said


def test_run_writes_dtypes_that_npy_lacks_as_f32(tmp_path: Path) -> None:
    module, out = tmp_path / "copy.ingot", tmp_path / "y.npy"
    module.write_bytes(copy_module("bf16"))
    assert main(["run", str(module), "--input", "[1.5, -2]", "--output", str(out)]) == 0
    assert np.load(out).dtype == np.float32
    np.testing.assert_array_equal(np.load(out), [1.5, -2])


def test_bench_fills_open_dims(pair: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", pair, "--dim", "n=16", "--seconds", "0.01", "--threads", "1"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        "main(a: f32[n], b: i32[]) -> (first: f32[n], second: i32[]) at n=16\n"
    )
    assert "median" in printed
    assert "minimum" in printed
    assert re.search(r"^memory 0\.\d KB: results 0\.\d KB$", printed, re.MULTILINE)


def test_inspect_shows_what_is_inside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = tmp_path / "model.ingot"
    module.write_bytes(parameter_module())
    assert main(["inspect", str(module), "--code", "--verify"]) == 0
    printed = capsys.readouterr().out
    for text in (
        "main() -> (y: f32[2,3])",
        "(init)",
        "strings",
        "weight: f32[3]",
        "producer: a test",
        "global.load 0",
        "verified",
    ):
        assert text in printed


@pytest.fixture(scope="module")
def softmax(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a module whose working memory depends on its dims b and s, not on its t."""
    reduce = '{axes=[1], kind="max"} : f32[b]'
    text = f"""
    module {{}} {{
      func @main(%x: f32[b,s] "x", %y: f32[t] "y") -> (f32[s,b] "z", f32[t] "e")
          symbols {{b in [1, 64], s in [1, 512], t in [0, 9]}} {{
        %0 = exp(%x) : f32[b,s]
        %1 = reduce(%0) {reduce}
        %2 = transpose(%0) {{permutation=[1, 0]}} : f32[s,b]
        %3 = broadcast(%1) {{shape=[<s>, <b>], dimensions=[1]}} : f32[s,b]
        %4 = sub(%2, %3) : f32[s,b]
        %5 = exp(%y) : f32[t]
        return(%4, %5)
      }}
    }}"""
    path = tmp_path_factory.mktemp("softmax") / "softmax.ingot"
    ingot.compile(text, variants=["x86-64-v3"]).save(path)
    return str(path)


def test_inspect_shows_the_peak_memory_as_a_formula_and_as_a_number(
    softmax: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def peak(*arguments: str) -> str:
        assert main(["inspect", softmax, *arguments]) == 0
        lines = capsys.readouterr().out.splitlines()
        return lines[lines.index("peak of working memory, in bytes") + 1]

    formula = peak().removeprefix("  main: ")
    assert "b" in formula
    for b, s in ((8, 512), (3, 7)):
        expected = evaluate(parse_dim(formula), {"b": b, "s": s})
        assert peak("--dim", f"b={b}", "--dim", f"s={s}") == f"  main: {formula} = {expected}"
    assert peak("--dim", "t=3", "--dim", "b=1", "--dim", "s=1").startswith(f"  main: {formula} = ")
    rest = peak("--dim", "s=512").removeprefix(f"  main: {formula} = ")
    assert symbols_of(parse_dim(rest)) == {"b"}
    assert evaluate(parse_dim(rest), {"b": 8}) == evaluate(parse_dim(formula), {"b": 8, "s": 512})
    assert peak("--dim", "t=2") == f"  main: {formula}"


@pytest.mark.parametrize(
    ("dim", "message"),
    [
        ("batch=2", "the module has no dim 'batch'; its dims are: b, s, t"),
        ("b", "--dim b: write NAME=SIZE, such as --dim batch=8"),
        ("b=-8", "--dim b=-8: write NAME=SIZE"),
        ("b=8,s=4", "--dim b=8,s=4: write NAME=SIZE"),
        ("b=" + "9" * 5000, "999: write NAME=SIZE"),
        ("", "--dim : write NAME=SIZE"),
    ],
)
def test_inspect_names_dims_that_are_wrong(
    softmax: str, failing: Callable[..., str], dim: str, message: str
) -> None:
    assert message in failing("inspect", softmax, "--dim", "b=8", "--dim", dim)


def test_inspect_has_no_peak_of_a_module_that_does_not_tell(
    pair: str, failing: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert "does not say how much memory" in failing("inspect", pair, "--dim", "n=1")
    assert main(["inspect", pair]) == 0
    assert "working memory" not in capsys.readouterr().out


def test_inspect_verify_names_damage(tmp_path: Path, failing: Callable[..., str]) -> None:
    module = tmp_path / "model.ingot"
    data = bytearray(copy_module())
    data[-1] ^= 1
    module.write_bytes(data)
    assert "DataLoss" in failing("inspect", str(module), "--verify")


def test_devices_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    assert capsys.readouterr().out.startswith("cpu ")


def test_output_into_a_closed_pipe_is_no_error(pair: str) -> None:
    command = f"{sys.executable} -m ingot inspect --code {pair} | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""


def test_compile_writes_a_module_that_runs(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, dump = tmp_path / "add.ingot", tmp_path / "ir"
    options = ["--variants", "x86-64-v3", "--dump-ir", str(dump), "--report"]
    assert main(["compile", source, "-o", str(out), *options]) == 0
    printed = capsys.readouterr().out
    assert f"{out}: " in printed
    assert "for cpu (x86-64-v3), in" in printed
    assert "1 kernel: 1 map (" in printed
    assert list(dump.iterdir())
    assert main(["run", str(out), "--input", "[[1, 2, 3, 4]]"]) == 0
    assert "[[2., 3., 4., 5.]]" in capsys.readouterr().out


COUNT = """\
module {} {
  func @main(%x: f32[2] "x", %t: f32[2] "total") -> (f32[2] "y", f32[2] "next") {
    %y = add(%x, %t) : f32[2]
    return(%y, %y)
  }
}
"""


def test_compile_takes_state_hot_sizes_and_several_sources(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count, out = tmp_path / "count.ir", str(tmp_path / "out.ingot")
    count.write_text(COUNT)
    assert main(["compile", str(count), "-o", out, "--state", "next=total"]) == 0
    model = ingot.load(out)
    model(np.ones(2, np.float32))
    np.testing.assert_array_equal(model.state()["total"], np.ones(2))
    sources = [f"add={source}", f"count={count}"]
    options = ["--specialize", "n=1,8", "--state", "next=total"]
    assert main(["compile", *sources, "-o", out, *options]) == 0
    model = ingot.load(out)
    assert set(model.functions) == {"add", "count"}
    capsys.readouterr()
    assert main(["inspect", out]) == 0
    assert '"n": [1, 8]' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--specialize", "n=1,b"], "--specialize n=1,b: write NAME=SIZE"),
        (["--specialize", "n=" + "1" * 5000], "111: write NAME=SIZE"),
        (["--specialize", "m=1"], "the program has no dim 'm'; its dims are: n"),
        (["--state", "sometimes"], "--state sometimes: write past_present, carried:ARGUMENT"),
        (["--state", "y=x"], "give the most it may become with capacity="),
        (["--capacity", "8"], "capacity is the room of the cache of a .gguf file or"),
        (["--state", "y=x", "--state-dim", "n"], "--state-dim n: write NAME=SIZE"),
    ],
)
def test_wrong_options_of_compile_are_answered_in_one_line(
    source: str, tmp_path: Path, failing: Callable[..., str], options: list[str], message: str
) -> None:
    assert message in failing("compile", source, "-o", str(tmp_path / "out"), *options)


def test_sources_without_names_are_refused(
    source: str, tmp_path: Path, failing: Callable[..., str]
) -> None:
    out = str(tmp_path / "out")
    assert "write NAME=FILE for each" in failing("compile", source, source, "-o", out)


def test_compile_failures_are_named(
    source: str, tmp_path: Path, failing: Callable[..., str]
) -> None:
    out = str(tmp_path / "no" / "folder.ingot")
    assert "no/folder.ingot" in failing("compile", source, "-o", out)
    missing = str(tmp_path / "missing.onnx")
    assert "missing.onnx" in failing("compile", missing, "-o", out)
    target = ("--target", "tpu")
    assert "target 'tpu' is not known" in failing("compile", source, "-o", out, *target)


def test_check_compares_with_the_reference(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", source, "--dim", "n=3"]) == 0
    assert capsys.readouterr().out == (
        "result 'y': relative error 0, within 0.0001\n1 dispatch compared\n"
    )


def test_check_names_the_first_wrong_layer(
    source: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ingot import checked_run

    evaluate = checked_run.evaluate_entry

    def wrong(*arguments: Any) -> list[Any]:
        return [replace(each, array=each.array + 1) for each in evaluate(*arguments)]

    monkeypatch.setattr(checked_run, "evaluate_entry", wrong)
    assert main(["check", source]) == 1
    printed = capsys.readouterr().err.splitlines()
    assert printed[0].startswith("ingot check: Mismatch: layer 'a layer' is the first")
    assert printed[1].startswith("layer 'a layer' (add) -> f32[n,4]: differs by 1 at [0, 0]: ")


def test_check_wants_the_source(pair: str, failing: Callable[..., str]) -> None:
    assert "pass the source model" in failing("check", pair)


def test_opt_runs_passes_as_text(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], failing: Callable[..., str]
) -> None:
    assert main(["opt", source]) == 0
    assert "add(%x, %" in capsys.readouterr().out
    out = tmp_path / "out.ir"
    assert main(["opt", source, "--pass", "form_dispatches", "-o", str(out)]) == 0
    assert "dispatch.region" in out.read_text()
    assert main(["opt", str(out)]) == 0
    assert capsys.readouterr().out == out.read_text()
    assert "no pass is called 'fly'; the passes are: " in failing("opt", source, "--pass", "fly")


def test_bench_refuses_dims_and_times_that_make_no_sense(
    pair: str, failing: Callable[..., str]
) -> None:
    assert "no dim is called 'batch'; the open dims are: n" in failing(
        "bench", pair, "--dim", "batch=2"
    )
    assert "'-1' is no time in seconds" in failing("bench", pair, "--seconds", "-1", status=2)


def test_an_output_that_cannot_be_written_is_named_as_it_was_given(
    source: str, tmp_path: Path, failing: Callable[..., str]
) -> None:
    target = str(tmp_path / "nowhere" / "add.ingot")
    assert f"cannot write '{target}': there is no folder" in failing(
        "compile", source, "-o", target
    )


@pytest.fixture(scope="module")
def halved(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A source and its module, whose dim n must be even and thus became 2*n_by_2."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    shapes = {"rows": [-1, 2], "column": [-1, 1]}
    graph = helper.make_graph(
        [
            helper.make_node("Reshape", ["x", "rows"], ["r"]),
            helper.make_node("Reshape", ["r", "column"], ["c"]),
            helper.make_node("MatMul", ["y", "c"], ["z"]),
        ],
        "g",
        [value("x", "n"), value("y", "m", "n")],
        [value("z", "m", 1)],
        [numpy_helper.from_array(np.array(each), name) for name, each in shapes.items()],
    )
    folder = tmp_path_factory.mktemp("halved")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(folder / "m.onnx"))
    module = ingot.compile(folder / "m.onnx", specialize={"n": [8]})
    module.save(folder / "m.ingot")
    return str(folder / "m.onnx"), str(folder / "m.ingot")


def test_a_dim_is_known_by_the_name_that_the_source_gives_it(
    halved: tuple[str, str], capsys: pytest.CaptureFixture[str], failing: Callable[..., str]
) -> None:
    source, module = halved
    model = ingot.load(module)
    assert str(model.signature).startswith("main(x: f32[2*n_by_2]")
    assert model.metadata["dims"] == {"n": "2*n_by_2"}
    assert main(["bench", module, "--dim", "n=24", "--dim", "m=3", "--seconds", "0.01"]) == 0
    assert main(["inspect", module, "--dim", "n=24", "--dim", "m=3"]) == 0
    assert main(["check", source, "--dim", "n=24"]) == 0
    capsys.readouterr()
    assert "n is 2*n_by_2 in this program, which 25 is not" in failing(
        "bench", module, "--dim", "n=25"
    )
    assert "but n_by_2 = 4 makes it 4" in failing(
        "bench", module, "--dim", "n=6", "--dim", "n_by_2=4"
    )
    with pytest.raises(ingot.CompileError, match="which 7 is not"):
        ingot.compile(source, specialize={"n": [7]})
    with model.trace() as events:
        model(np.ones(8, np.float32), np.ones((1, 8), np.float32))
    assert any(event.kernel.endswith("_4") for event in events), "the kernel for n = 8 runs"


def test_inspect_shortens_formulas_and_sorts_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    length = "+".join(f"floordiv(n, {k})" for k in range(2, 99))
    text = f"module {{}} {{ func @main(%x: f32[n], %y: f32[{length}]) -> (f32[{length}]) {{ "
    ingot.compile(text + "return(%y) } }").save(tmp_path / "long.ingot")
    assert main(["inspect", str(tmp_path / "long.ingot")]) == 0
    printed = capsys.readouterr().out
    assert "f32[<a formula of n>]" in printed
    assert max(map(len, printed.splitlines())) < 200
    weights = tmp_path / "weights.ingot"
    weights.write_bytes(parameter_module())
    assert main(["inspect", str(weights)]) == 0
    printed = capsys.readouterr().out
    assert 0 < printed.index("bias: f32[3]") < printed.index("weight: f32[3]")


@pytest.mark.slow
def test_control_c_ends_a_run_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "count.ingot"
    path.write_bytes(count_module())
    program = """
        import signal, sys
        from ingot.command import main
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may ignore it
        print("ready", flush=True)
        sys.exit(main(sys.argv[1:]))
    """
    steps = f"steps={1 << 40}"
    command = [sys.executable, "-c", textwrap.dedent(program), "run", path, "--input", steps]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "--function", "count"], **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "ready\n"
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=600) == ("", "ingot run: interrupted\n")
    assert process.returncode == 130


def test_a_run_has_a_timeout(failing: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "count.ingot"
    path.write_bytes(count_module())
    command = ["run", str(path), "--function", "count", "--input"]
    assert main([*command, "steps=3", "--timeout", "100"]) == 0
    failed = failing(*command, f"steps={1 << 40}", "--timeout", "0.05")
    assert "DeadlineExceeded: the call has run longer than its timeout" in failed
    assert "is no time" in failing(*command, "steps=3", "--timeout", "0", status=2)

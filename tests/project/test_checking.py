"""`ingot check`: right models pass, and the dispatch that is wrong is found and named."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot.checked_run import Comparison
from ingot.checking import Mismatch, check_model, compare_model
from ingot.command import main
from ingot.compiler.checking import compile_for_checking
from ingot.compiler.kernels.coding import BlockCoding
from ingot.compiler.kernels.loop import lanes_of
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype
from tests.support.assembler import pair_module
from tests.support.wrong_kernels import make_wrong

ROOT = Path(__file__).resolve().parents[2]
DIGITS = str(ROOT / "samples" / "digits" / "digits.onnx")

LAYERS = """\
module {} {
  func @main(%x: f32[n,4] "x", %w: f32[4,m] "w") -> (f32[n,m] "y") {
    %h = dot_general(%x, %w) {lhs_batch=[], rhs_batch=[], lhs_contract=[1], rhs_contract=[0], \
dtype=f32} : f32[n,m] loc("project")
    %s = reduce(%h) {axes=[1], kind="add"} : f32[n] loc("sum")
    %b = broadcast(%s) {shape=[<n>, <m>], dimensions=[0]} : f32[n,m] loc("center")
    %c = sub(%h, %b) : f32[n,m] loc("center")
    %e = exp(%c) : f32[n,m] loc("steepen")
    return(%e)
  }
}
"""

NONZERO_AND_LOOP = """\
module {} {
  func @main(%x: f32[n] "x", %steps: i64[] "steps") -> (i64[1,count] "where", f32[n] "y") {
    %where = nonzero(%x) {symbols=["count"]} : i64[1,count] loc("find")
    %zero = constant() {value=dense<i64[] 0>} : i64[]
    %i, %y = while(%zero, %x) {symbols=[]} : i64[], f32[n] ({
    ^(%k: i64[], %v: f32[n]):
      %more = compare(%k, %steps) {direction="lt"} : i1[]
      yield(%more)
    }, {
    ^(%k: i64[], %v: f32[n]):
      %one = constant() {value=dense<i64[] 1>} : i64[]
      %next = add(%k, %one) : i64[]
      %double = add(%v, %v) : f32[n] loc("double")
      yield(%next, %double)
    }) loc("loop")
    return(%where, %y)
  }
}
"""

STATE = """\
module {} {
  variable @sum: f32[4] = dense<f32[4] [1.0, 2.0, 3.0, 4.0]>
  func @main(%x: f32[4] "x") -> (f32[4] "y") {
    %old = variable.load() {name="sum", dtype=f32, shape=[4]} : f32[4] loc("load")
    %new = add(%old, %x) : f32[4] loc("accumulate")
    variable.store(%new) {name="sum"}
    %y = exp(%new) : f32[4] loc("steepen")
    return(%y)
  }
}
"""

PARAMETERS = """\
module {} {
  func @main(%x: f32[n,64] "x") -> (f32[n,32] "y") {
    %w = parameter() {scope="", key="weight", dtype=f32, shape=[64, 32]} : f32[64,32]
    %t = exp(%w) : f32[64,32] loc("prepare")
    %y = dot_general(%x, %t) {lhs_batch=[], rhs_batch=[], lhs_contract=[1], rhs_contract=[0], \
dtype=f32} : f32[n,32] loc("project")
    return(%y)
  }
}
"""

CODES = """\
module {} {
  func @main(%x: f32[n,128] "x") -> (f32[n,32] "y") {
    %q = parameter() {scope="", key="codes", dtype=u4, shape=[128, 32]} : u4[128,32]
    %s = parameter() {scope="", key="scales", dtype=f32, shape=[4, 32]} : f32[4,32]
    %z = constant() {value=dense<f32[] 7.5>} : f32[]
    %zeros = broadcast(%z) {shape=[128, 32], dimensions=[]} : f32[128,32]
    %wide = broadcast(%s) {shape=[4, 32, 32], dimensions=[0, 2]} : f32[4,32,32]
    %scales = reshape(%wide) {shape=[128, 32]} : f32[128,32]
    %f = convert(%q) {dtype=f32} : f32[128,32]
    %c = sub(%f, %zeros) : f32[128,32]
    %w = mul(%c, %scales) : f32[128,32]
    %y = dot_general(%x, %w) {lhs_batch=[], rhs_batch=[], lhs_contract=[1], rhs_contract=[0], \
dtype=f32} : f32[n,32] loc("project")
    return(%y)
  }
}
"""

SIZES = """\
module {} {
  func @main(%x: f32[n] "x") -> (f32[n] "y") {
    %i = iota() {dtype=f32, shape=[<n>], axis=0} : f32[n]
    %y = exp(%i) : f32[n] loc("count")
    return(%y)
  }
}
"""

LISTS = """\
module {} {
  func @main(%x: f32[n,4] "x") -> (f32[m,4] "y", f32[k,4] "z") symbols {n in [1, none]} {
    %0 = exp(%x) : f32[n,4] loc("steepen")
    %1 = list.of(%0) {shape=[-1, 4]} : list<f32[?,4]>
    %2 = list.insert(%1, %x) {index=1} : list<f32[?,4]>
    list.length(%2) {symbols=["l"]}
    %3 = list.get(%2) {index=<l-2>, shape=[<m>, 4], symbols=["m"]} : f32[m,4]
    %4 = neg(%3) : f32[m,4] loc("turn")
    %5 = list.get(%2) {index=1, shape=[<k>, 4], symbols=["k"]} : f32[k,4]
    %6 = dim() {value=<l>, dtype=i32} : i32[]
    %7 = convert(%6) {dtype=f32} : f32[]
    %8 = broadcast(%7) {shape=[<k>, 4], dimensions=[]} : f32[k,4]
    %9 = mul(%5, %8) : f32[k,4] loc("scale")
    return(%4, %9)
  }
}
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    """Writes IR text to a file; gives its path."""

    def run(text: str) -> str:
        path = tmp_path / "model.ir"
        path.write_text(text)
        return str(path)

    return run


def check(
    path: str, *, parameters: Any = None, tolerance: float | None = None, **sizes: int
) -> str:
    return check_model(Comparison(path, (), sizes, tolerance, parameters=parameters))[-1]


@pytest.mark.parametrize("batch", [1, 5])
def test_digits_is_right(batch: int) -> None:
    assert check(DIGITS, batch=batch) == "6 dispatches compared"


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_what_precision_rounds_is_compared_as_it_was_rounded(
    precision: str, write: Callable[[str], str]
) -> None:
    rng = np.random.default_rng(0)
    text, weights = CODES, {"scales": rng.random((4, 32), np.float32)}
    weights["codes"] = rng.integers(0, 16, (128, 32)).astype(dtype("u4").numpy)
    if precision == "bf16":
        text = PARAMETERS.replace("64,32", "64,64").replace("64, 32", "64, 64")
        text = text.replace("[n,32]", "[n,64]")
        weights = {"weight": rng.normal(0, 0.1, (64, 64)).astype(np.float32)}
    given = Comparison(write(text), sizes={"n": 3}, parameters=weights, precision=precision)
    report = compare_model(given)
    assert report.problem == ""
    assert 1e-4 < report.results[0].error < report.results[0].allowed == 0.05


def test_a_wrong_kernel_is_found_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    make_wrong(monkeypatch, "convolution", "add", "sub", "norm2")
    with pytest.raises(Mismatch) as caught:
        check(DIGITS, batch=2)
    first, *lines = str(caught.value).splitlines()
    assert "norm2" in first
    assert first.endswith("is the first whose dispatch differs from its reference, of 1 in "
                          "6 dispatches compared")  # fmt: skip
    (line,) = lines
    assert "(conv_packed, add, max) -> f32[batch,4,4,32]: differs by " in line
    assert " at [" in line
    assert ", allowed " in line


def test_a_slightly_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    make_wrong(monkeypatch, "map", "mul", "div", "div")
    with pytest.raises(Mismatch, match="layer 'div' is the first"):
        check(DIGITS)


def test_symbolic_dims_and_what_several_dispatches_get_wrong(
    write: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(LAYERS)
    for n, m in ((1, 1), (3, 70), (0, 5)):
        assert check(path, n=n, m=m).endswith("dispatches compared")
    make_wrong(monkeypatch, "row", "exp", "tanh")
    make_wrong(monkeypatch, "map", "exp", "tanh")
    with pytest.raises(Mismatch, match="steepen"):
        check(path, n=3, m=7)


def test_a_tolerance_replaces_the_bounds(
    write: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wrong(monkeypatch, "map", "exp", "tanh")
    make_wrong(monkeypatch, "row", "exp", "tanh")
    check(write(LAYERS), tolerance=1e9, n=2, m=3)


def test_sizes_from_data_and_loops(write: Callable[[str], str]) -> None:
    last = check(write(NONZERO_AND_LOOP), n=9)
    assert last.endswith("dispatches compared, 1 inside branches and loops not compared")


def test_lists_and_the_sizes_of_their_elements(
    write: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(LISTS)
    assert check(path, n=3) == "3 dispatches compared"
    make_wrong(monkeypatch, "map", "mul", "add", "scale")
    with pytest.raises(Mismatch, match="scale"):
        check(path, n=3)


def test_a_variable_that_is_written_over_is_compared_as_it_was(
    write: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(STATE)
    assert check(path).endswith("1 dispatch compared")
    make_wrong(monkeypatch, "map", "add", "sub")
    with pytest.raises(Mismatch, match="layer 'accumulate"):
        check(path)


def test_external_parameters_and_what_init_makes_of_them(
    write: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(PARAMETERS)
    generator = np.random.default_rng(1)
    parameters = {"weight": generator.standard_normal((64, 32)).astype(np.float32)}
    form = compile_for_checking(path, parameters="external")
    assert form.uncompared == 0
    assert len(form.dispatches) >= 2
    assert check(path, parameters=parameters, n=3) == f"{len(form.dispatches)} dispatches compared"
    make_wrong(monkeypatch, "map", "exp", "tanh")
    with pytest.raises(Mismatch, match=r"layer 'project' \(exp, transpose\)"):
        check(path, parameters=parameters, n=3)


def test_a_wrong_product_with_codes_is_found(
    write: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rng = write(CODES), np.random.default_rng(1)
    codes = rng.integers(0, 16, (128, 32)).astype(dtype("u4").numpy)
    parameters = {"codes": codes, "scales": rng.random((4, 32)).astype(np.float32) + 1}
    for n in (1, 5):
        assert check(path, parameters=parameters, n=n).endswith("dispatches compared")
    exact = BlockCoding.numbers

    def wrong(self: BlockCoding, b: Any, words: Any, count: int, element: Any) -> Iterator[Any]:
        for step, number in enumerate(exact(self, b, words, count, element)):
            off = b.constant(1.01, element, lanes_of(number))
            yield b.op("mul", number, off) if step == 3 else number

    monkeypatch.setattr(BlockCoding, "numbers", wrong)
    for n in (1, 5):
        with pytest.raises(Mismatch, match=r"layer 'project' \(dot_coded\)"):
            check(path, parameters=parameters, n=n)


def test_a_module_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pair.ingot"
    path.write_bytes(pair_module())
    with pytest.raises(CompileError, match="pass the source model that it was compiled from"):
        check(str(path))


def test_a_wrong_rewrite_shows_in_the_results(
    write: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ingot import checking

    interpret = checking.interpret

    def wrong(*arguments: Any) -> list[Any]:
        return [np.asarray(each) + 1 for each in interpret(*arguments)]

    monkeypatch.setattr(checking, "interpret", wrong)
    with pytest.raises(Mismatch, match=r"result 'y': .* yet every dispatch that was compared"):
        check(write(LAYERS), n=3, m=2)


@pytest.mark.parametrize("path", [DIGITS, "layers"])
def test_the_first_wrong_dispatch_becomes_a_case_that_fails_alone(
    path: str, tmp_path: Path, write: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a case"
    sizes = {"batch": 2} if path == DIGITS else {"n": 3, "m": 7}
    given = Comparison(path if path == DIGITS else write(LAYERS), sizes=sizes)
    assert compare_model(given, str(folder)).case == ""
    assert not folder.exists()
    for kind, op, becomes in (("convolution", "add", "sub"), ("map", "exp", "tanh"),
                              ("row", "exp", "tanh")):  # fmt: skip
        make_wrong(monkeypatch, kind, op, becomes)
    report = compare_model(given, str(folder))
    command = shlex.split(report.case)
    assert f"alone: {report.case}" in report.failure
    assert command[:2] == ["ingot", "check"]
    assert main(command[1:]) == 1
    wrong = report.differences[0]
    expected = np.load(folder / "expected.npz")["y0"]
    assert str(wrong.expected) == str(expected[wrong.index])
    monkeypatch.undo()
    assert main(command[1:]) == 0


def test_a_case_of_a_dispatch_whose_sizes_no_shape_tells(
    write: Callable[[str], str], tmp_path: Path
) -> None:
    path = write(SIZES)
    report = compare_model(Comparison(path, (), {"n": 3}, -1.0), str(tmp_path))
    assert main(shlex.split(report.case)[1:]) == 0


@pytest.mark.parametrize("command", ["check", "bisect"])
def test_a_tolerance_that_is_no_number_is_refused(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([command, DIGITS, "--tolerance", "nan"])
    assert "--tolerance" in capsys.readouterr().err

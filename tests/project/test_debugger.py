"""`ingot run --break`: sessions as a script gives them, and breakpoints that do not exist."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.__main__ import main
from ingot.compiler.vm.write_module import strip_module
from tests.support.assembler import count_module, total_module
from tests.support.devices import best_variant, targets

# Doubles x[n,4] row by row, `steps` times; the row sums are a second result.
LOOP = """
module {} {
  func @main(%x: f32[n,4] "x", %steps: i64[] "steps") -> (f32[n,4] "y", f32[n] "z")
      symbols {n in [1, 64]} {
    %zero = constant() {value=dense<i64[] 0>} : i64[]
    %i, %y = while(%zero, %x) {symbols=[]} : i64[], f32[n,4] ({
    ^(%k: i64[], %v: f32[n,4]):
      %more = compare(%k, %steps) {direction="lt"} : i1[]
      yield(%more)
    }, {
    ^(%k: i64[], %v: f32[n,4]):
      %one = constant() {value=dense<i64[] 1>} : i64[]
      %next = add(%k, %one) : i64[]
      %s = add(%v, %v) : f32[n,4] loc("body/double")
      yield(%next, %s)
    }) loc("loop")
    %z = reduce(%y) {axes=[1], kind="add"} : f32[n] loc("total")
    return(%y, %z)
  }
}
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("loop") / "loop.ingot"
    ingot.compile(LOOP, target=targets(), debug=True, variants=[best_variant()]).save(path)
    return path


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(module: Path | bytes, options: Sequence[str], script: str = "") -> tuple[int, str, str]:
        if isinstance(module, bytes):
            (tmp_path / "model.ingot").write_bytes(module)
            module = tmp_path / "model.ingot"
        monkeypatch.setattr("sys.stdin", io.StringIO(script))
        status = main(["run", str(module), *options])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def inputs(tmp_path: Path, steps: int = 2) -> list[str]:
    np.save(tmp_path / "x.npy", np.arange(8, dtype=np.float32).reshape(2, 4))
    return ["--input", f"x=@{tmp_path}/x.npy", "--input", f"steps={steps}"]


@pytest.mark.parametrize("device", targets())
def test_a_session_sees_what_each_dispatch_reads_and_writes(
    loop: Path, run: Run, tmp_path: Path, device: str
) -> None:
    script = "next\nbindings\nstep\nbindings\nnext\n\n# all\nprint b0\ndelete main:total\nc\n"
    options = [*inputs(tmp_path), "--break", "main:total", "--step", "--device", device]
    status, out, _ = run(loop, options, script)
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == "#0 main:0 (of no layer), instruction 1 of the call"
    at = next(k for k, line in enumerate(lines) if "(body/double: add)" in line)
    assert lines[at + 1].lstrip().split("  ")[1].startswith("dispatch @")
    before = "f32[2,4] [0, 1, 2, 3, 4, 5, 6, 7], min 0, max 7, 0 NaN"
    after = "f32[2,4] [0, 2, 4, 6, 8, 10, 12, 14], min 0, max 14, 0 NaN"
    assert sum(line.endswith(before) for line in lines) == 2
    assert sum(line.endswith(after) for line in lines) == 3  # two bindings, then b0 of step two
    assert "#0 main:" not in out.split("(ingot) c\n")[1]
    assert "z = Array([24., 88.]" in out


def test_places_are_shown_wherever_it_stops_and_input_may_be_empty(
    loop: Path, run: Run, tmp_path: Path
) -> None:
    places = ["--print", "b0", "--print", "i0", "--print", "r1"]
    status, out, _ = run(
        loop, [*inputs(tmp_path, 3), "--break", "main:body/double", "--break", "main:0", *places]
    )
    assert status == 0
    assert out.count("(body/double") == 3 + (out.count("b0: bindings can be printed") - 1)
    assert "i0 = 0" in out
    assert "i0 = 2" in out
    assert "r1: nothing has been written to r1 yet" in out
    assert "r1 = result 'y', 32 bytes: f32[2,4] [0, 1, 2, 3" in out


def test_every_command_answers(loop: Path, run: Run, tmp_path: Path) -> None:
    commands = {
        "help": "run N instructions",
        "registers": "\ni0 = 2\n",
        "list": ">",
        "where": "#0 main:",
        "kernel": "MapSchedule(",
        "print r1+0:8 i32": "i32[2] [0, 1065353216], min 0, max 1065353216",
        "print r1+4 f32[3]": "f32[3] [1, 2, 3], min 1, max 3, 0 NaN",
        "p r1+4:400 f32": "bytes 4 to 404 of 32 bytes",
        "p r1+0:8 f33": "unknown dtype 'f33'",
        "p everything": "'everything' is nothing to print; print i0",
        "p i300": "main has no register i300",
        "p b7": "the dispatch has",
        "step none": "'none' is no count of instructions",
        "jump": "no such command; the commands are: step, next",
        "trace maybe": "trace is on or off",
        "break 1": "no instruction at 1; the nearest are at 0",
        "quit": "the call was ended",
    }
    script = "n\n" + "\n".join(commands)
    status, out, _ = run(loop, [*inputs(tmp_path), "--step"], script)
    assert status == 0
    parts = out.split("(ingot) ")
    for command, answer in commands.items():
        (part,) = [each for each in parts if each.startswith(f"{command}\n")]
        assert answer in part
    assert "Array" not in out


def test_the_trace_has_what_every_instruction_wrote(run: Run) -> None:
    status, out, _ = run(count_module(), ["--function", "count", "--input", "steps=3",
                                          "--trace-instructions"])  # fmt: skip
    assert status == 0
    lines = [line.strip() for line in out.splitlines()]
    assert lines[1].startswith("i1 = read.i64 r0, i0, ")
    assert lines[1].endswith("# i1 = 3")
    assert [line for line in lines if line.startswith("i2 = add.i64")] == [
        f"i2 = add.i64 i2, i3  # i2 = {number}" for number in (1, 2, 3)
    ]
    assert lines[-1] == "return [], [], []"


def test_a_call_that_fails_says_why_and_state_is_shown(run: Run) -> None:
    status, out, err = run(
        total_module(), ["--input", "x=-3", "--break", "main:0", "--print", "i1"], "s 8\np r1\n"
    )
    assert status == 1
    assert "r1 = variable 'total', 8 bytes: i64[] [100], min 100, max 100\n" in out
    assert err == "ingot run: OutOfRange: x is -3\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--break", "other:0"], "there is no function 'other'; the functions are: main"),
        (["--break", "main:1"], "main has no instruction at 1; the nearest are at 0, 4"),
        (["--break", "main"], "main has no layer ''; its layers are: "),
        (["--break", "main:head"], "main has no layer 'head'; its layers are: loop"),
        (["--step", "--print", "i99"], "main has no register i99; it has "),
        (["--step", "--print", "x"], "'x' is nothing to print"),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(
    loop: Path, run: Run, tmp_path: Path, options: list[str], message: str
) -> None:
    status, out, err = run(loop, [*inputs(tmp_path), *options])
    assert (status, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


def test_of_a_stripped_module_it_says_what_is_missing(loop: Path, run: Run, tmp_path: Path) -> None:
    script = "n\nbindings\np b0 f32\nkernel\n"
    stripped = strip_module(loop.read_bytes())
    status, out, _ = run(stripped, [*inputs(tmp_path), "--step"], script)
    assert status == 0
    assert "32 bytes; the module was stripped: add a dtype, as in b0 f32" in out
    assert "f32[8] [0, 1, 2, 3" in out
    assert "no debug section: make one with `ingot compile --debug`" in out


def test_a_breakpoint_behind_a_long_loop_is_reached_at_once() -> None:
    model = ingot.load(count_module())
    seen = []
    with model.debug(1 << 10, lambda stop: not seen.append(stop.count)) as debugger:  # type: ignore[func-returns-value]
        debugger.set_stop(0)
        model.functions["count"](200_000)
    assert seen == [1]


def test_an_error_of_the_debugger_ends_the_call_and_is_raised() -> None:
    model = ingot.load(count_module())

    def fail(_stop: object) -> bool:
        raise LookupError("of the debugger")

    with model.debug(1 << 10, fail) as debugger:
        debugger.steps = True
        with pytest.raises(LookupError, match="of the debugger"):
            model.functions["count"](2)
    model.functions["count"](2)

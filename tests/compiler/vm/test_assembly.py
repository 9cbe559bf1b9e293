"""The text of modules: the same bytes come back, and whatever else it says is one clear error."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ingot
from ingot.__main__ import main
from ingot.compiler.vm.read_assembly import read_assembly
from ingot.compiler.vm.read_module import read_module
from ingot.compiler.vm.write_assembly import assembly_text, blobs, hash_of
from ingot.compiler.vm.write_module import strip_module, write_module
from ingot.hal.errors import CompileError, Internal
from ingot.runtime.program import load_module
from tests.support import assembler
from tests.support.assembly import assert_assembles
from tests.support.devices import best_variant, targets
from tests.support.drawn import examples

# State, a loop, a branch of three ways, a sequence, a dim that is a formula, f64 registers, names
# of all kinds.
PROGRAM = """
module {} {
  variable @total: f32[2] = dense<f32[] 1.5>
  func @main(%x: f32[n,2] "a [b]", %xs: optional_sequence<f32[?,2]> "xs", %steps: i64[] "steps")
      -> (f32[2*n,2] "y", optional_sequence<f32[?,2]> "ys", f64[] "last") symbols {n in [1, 64]} {
    %zero = constant() {value=dense<i64[] 0>} : i64[]
    %half = constant() {value=dense<f64[] 0.5>} : f64[]
    %i, %z = while(%zero, %half) {symbols=[]} : i64[], f64[] ({
    ^(%k: i64[], %v: f64[]):
      %more = compare(%k, %steps) {direction="lt"} : i1[]
      yield(%more)
    }, {
    ^(%k: i64[], %v: f64[]):
      %one = constant() {value=dense<i64[] 1>} : i64[]
      %next = add(%k, %one) : i64[]
      %w = mul(%v, %v) : f64[]
      yield(%next, %w)
    }) loc("loop \\u00e9")
    %old = variable.load() {name="total", dtype=f32, shape=[2]} : f32[2]
    %sum = reduce(%x) {axes=[0], kind="add"} : f32[2] loc("total")
    %new = add(%old, %sum) : f32[2]
    variable.store(%new) {name="total"}
    %y = concatenate(%x, %x) {axis=0} : f32[2*n,2] loc("twice")
    %list = list.argument(%xs) {symbols=["q"]} : list<f32[?,2]>
    %ys = list.result(%list) {kind="optional_sequence", given=<q>} : optional_sequence<f32[?,2]>
    %last = case(%steps) {symbols=[]} : f64[] ({
    ^():
      yield(%z)
    }, {
    ^():
      yield(%half)
    }, {
    ^():
      %power = mul(%z, %half) : f64[]
      yield(%power)
    })
    return(%y, %ys, %last)
  }
}
"""


@pytest.fixture(scope="module")
def data() -> bytes:
    return bytes(ingot.compile(PROGRAM, target=targets(), debug=True, variants=[best_variant()]))


def test_the_same_bytes_come_back(data: bytes) -> None:
    assert_assembles(data)
    assert_assembles(strip_module(data))


def test_hashes_stand_for_the_bytes_of_a_module(data: bytes) -> None:
    contents = read_module(data)
    text = assembly_text(contents, embed=False)
    assert len(text) < len(assembly_text(contents, embed=True)) / 2
    known = {hash_of(each): each for _, each in blobs(contents)}
    assert write_module(read_assembly(text, "text", known)) == data
    with pytest.raises(CompileError, match=r"text, line \d+: .* name it with --from"):
        read_assembly(text, "text")
    with pytest.raises(CompileError, match="has no bytes with this hash"):
        read_assembly(text, "text", {"": b""})


def test_the_commands_give_the_same_file(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module, text, again = (tmp_path / name for name in ("a.ingot", "a.asm", "b.ingot"))
    module.write_bytes(data)
    assert main(["dis", str(module), "-o", str(text)]) == 0
    assert main(["asm", str(text), "-o", str(again)]) == 0
    assert again.read_bytes() == data
    capsys.readouterr()
    assert main(["dis", str(module)]) == 0
    printed = capsys.readouterr().out
    assert printed.replace("\n", "").isprintable()
    text.write_text(printed)
    assert main(["asm", str(text), "-o", str(again), "--from", str(module)]) == 0
    assert again.read_bytes() == data


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x, line 1: expected 'module globals COUNT'"),
        ("\n\nfunc main", "x, line 3: expected 'module globals COUNT'"),
        ("module globals -1", "line 1: expected a number from 0 to 4294967295, got -1"),
        ("module globals 0\n  more", "line 2: nothing can stand here"),
        ("  module globals 0", "line 1: it is indented"),
        ("module globals 0\nfunction main", "expected one of metadata, parameter"),
        ("module globals 0\nmetadata {'a': 1}", "line 2: metadata is an object of JSON"),
        ("module globals 0\nmetadata {}\nmetadata {}", "line 3: there are two 'metadata'"),
        ("module globals 0\nmetadata !", "line 2: nothing is written as '!'"),
        ('module globals 0\nparameter "" w: f33[2]', "unknown dtype 'f33'; the dtypes are: i1"),
        ('module globals 0\nparameter "" w: f32[n]', "are numbers"),
        ('module globals 0\nparameter "\\q" w: f32[1]', "is no string of JSON"),
        ('module globals 0\nconstants\n  base64 "A"', "line 3: this is no base64"),
        ("module globals 0\nobject", "line 2: there are more objects than variants"),
        (
            "module globals 0\nexecutable a target cpu\n  variant v format e features 0x0",
            "line 3: there is no object for it",
        ),
    ],
)
def test_wrong_statements_are_named_with_their_line(text: str, message: str) -> None:
    with pytest.raises(CompileError) as raised:
        read_assembly(text, "x")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("add i0, i1", "there is no instruction 'add'"),
        ("add.i64 i0, i1", "add.i64 writes 1 registers, but there are 0"),
        ("i0 = add.i64 i1", "expected ',', got the end of the line"),
        ("i0 = add.i64 i1, i2, i3", "expected the end of the line, got ','"),
        ("r0 = add.i64 i1, i2", "expected a register such as i0, got 'r0'"),
        ("i65536 = add.i64 i1, i2", "expected a register such as i0, got 'i65536'"),
        ("i0 = const.i64 9223372036854775808", "expected a number from"),
        ("f0 = const.f64 nan", "expected a number, or its bits"),
        ("branch ->nowhere", "there is no label 'nowhere'"),
        ("here:", "there are two labels 'here'"),
        ("dispatch @none, i0, i0, i0, i0, i0, [], bindings[]", "there is no kernel '@none'"),
        ("return [i0", "expected ',', got the end of the line"),
        ('layer "a"', "expected ',', got the end of the line"),
    ],
)
def test_wrong_instructions_are_named_with_their_line(line: str, message: str) -> None:
    head = "module globals 0\nfunc f() -> () target cpu registers 1 i64, 0 f64, 0 ref init\n"
    with pytest.raises(CompileError) as raised:
        read_assembly(f"{head}  here:\n  12  {line}\n  return [], [], []\n", "x")
    assert str(raised.value).startswith("x, line 4: ")
    assert message in str(raised.value)


def test_what_cannot_run_is_refused_before_it_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, out = tmp_path / "a.asm", tmp_path / "a.ingot"
    contents = read_module(assembler.count_module())
    text.write_text(assembly_text(contents).replace("i2 = add.i64 i2", "i2 = add.i64 i9"))
    assert main(["asm", str(text), "-o", str(out)]) == 1
    printed = capsys.readouterr().err
    assert "no module that can run: module: function 'count', word" in printed
    assert not out.exists()
    for wrong, said in ((b"INGOT\r\n", "a compiled module already"), (b"\xff", "is no text")):
        text.write_bytes(wrong)
        assert main(["asm", str(text), "-o", str(out)]) == 1
        assert said in capsys.readouterr().err


@pytest.fixture(scope="module")
def texts(data: bytes) -> list[str]:
    contents = read_module(strip_module(data))
    others = (assembler.total_module(), assembler.count_module(), assembler.parameter_module())
    return [
        assembly_text(contents, embed=False),
        *(assembly_text(read_module(each)) for each in others),
    ]


@given(seed=st.integers(0, 2**32))
@examples(120)
def test_any_text_is_a_module_or_one_error(texts: list[str], seed: int) -> None:
    draw = random.Random(seed)
    text = mutated(draw.choice(texts), draw)
    refused: ingot.Error | None = None
    try:
        made = write_module(read_assembly(text, "x", {hash_of(b""): b""}))
        load_module(made, verify=True).release()
    except ingot.Error as error:
        refused = error
    assert "\n" not in str(refused)
    assert not isinstance(refused, Internal)


def mutated(text: str, draw: random.Random) -> str:
    """Lines and pieces of lines of the text changed, doubled, moved and cut."""
    lines = text.split("\n")
    for _ in range(draw.randrange(1, 4)):
        at, other = draw.randrange(len(lines)), draw.randrange(len(lines))
        words = lines[at].split(" ")
        place = draw.randrange(len(words))
        match draw.randrange(7):
            case 0:
                del lines[at]
                lines.append("")
            case 1:
                lines[at], lines[other] = lines[other], lines[at]
            case 2:
                lines.insert(at, lines[other])
            case 3:
                words[place] = draw.choice(lines[other].split(" "))
            case 4:
                numbers = ("-1", "0", "65535", "65536", "4294967296", str(2**63), "0x", "1e999")
                words[place] = draw.choice(numbers)
            case 5:
                cut = draw.randrange(len(words[place]) + 1)
                junk = draw.choice(('"', "\\", "[", "]", ",", "\x00", "\ud800", "é", "#", "{", "'"))
                words[place] = words[place][:cut] + junk + words[place][cut:]
            case 6:
                words = words[:place]
        if words != lines[at].split(" "):
            lines[at] = " ".join(words)
    return "\n".join(lines)

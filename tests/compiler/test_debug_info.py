"""The debug section: what it says is what was compiled, and it can be taken out again."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.kernels.kernel_text import parse_kernel
from ingot.compiler.vm.disassemble import disassemble
from ingot.compiler.vm.read_module import read_module
from ingot.compiler.vm.write_module import strip_module
from tests.support.devices import best_variant

LOOP = """
module {} {
  func @main(%x: f32[n,8] "x", %steps: i64[] "steps") -> (f32[n,8] "y", f32[n] "z")
      symbols {n in [1, 64]} {
    %zero = constant() {value=dense<i64[] 0>} : i64[]
    %w = constant() {value=dense<f32[8] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]>} : f32[8]
    %i, %y = while(%zero, %x) {symbols=[]} : i64[], f32[n,8] ({
    ^(%k: i64[], %v: f32[n,8]):
      %more = compare(%k, %steps) {direction="lt"} : i1[]
      yield(%more)
    }, {
    ^(%k: i64[], %v: f32[n,8]):
      %one = constant() {value=dense<i64[] 1>} : i64[]
      %next = add(%k, %one) : i64[]
      %b = broadcast(%w) {shape=[<n>, 8], dimensions=[1]} : f32[n,8]
      %s = mul(%v, %b) : f32[n,8] loc("body/scale")
      yield(%next, %s)
    }) loc("loop")
    %z = reduce(%y) {axes=[1], kind="add"} : f32[n] loc("total")
    return(%y, %z)
  }
}
"""


def read_debug(module: ingot.Module) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(zlib.decompress(read_module(bytes(module)).debug))
    assert document["schema"] == "ingot.debug/1"
    return document


def all_commands(commands: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for command in commands:
        yield command
        for body in command.get("bodies", ()):
            yield from all_commands(body)


@pytest.fixture(scope="module")
def module() -> ingot.Module:
    return ingot.compile(LOOP, target=["cpu", "opencl"], debug=True, variants=[best_variant()])


def test_it_says_who_reads_what_inside_of_loops_too(module: ingot.Module) -> None:
    function = read_debug(module)["targets"]["cpu"]["functions"]["main"]
    (loop,) = [each for each in function["commands"] if each["op"] == "while"]
    (scale,) = [each for each in all_commands(loop["bodies"][1]) if each["op"] == "dispatch"]
    (total,) = [each for each in function["commands"] if each["layer"] == "total"]
    assert scale["layer"] == "body/scale"
    (copy,) = [each for each in function["commands"] if each["op"] == "copy"]
    assert copy["operands"][0]["from"] == [["argument", "x"]]
    sources = [source for operand in scale["operands"] for source in operand["from"]]
    assert copy["id"] in sources
    assert ["weight", function["weights"][0]["name"]] in sources
    assert scale["id"] in total["operands"][0]["from"]
    assert function["results_from"] == {
        "y": [copy["id"], scale["id"]],
        "z": [total["id"]],
    }
    assert [each["length"] for each in function["weights"]] == [32]
    assert function["symbols"]["n"] == [1, 64]
    assert total["flops"] == "8*n"


def test_every_kernel_has_loop_ir_that_reads_back_and_its_source(module: ingot.Module) -> None:
    document = read_debug(module)
    contents = read_module(bytes(module))
    for executable in contents.executables:
        kernels = document["targets"][executable.target]["kernels"]
        assert list(kernels) == [entry.name for entry in executable.entries]
        for name, kernel in kernels.items():
            assert list(kernel["variants"]) == [each.name for each in executable.variants]
            for variant, made in kernel["variants"].items():
                assert parse_kernel(document["texts"][made["loops"]]).tile == tuple(made["tile"])
                source = document["texts"][made["source"]]
                assert name in source
                (data,) = [bytes(v.object) for v in executable.variants if v.name == variant]
                if variant.startswith("opencl"):
                    assert source.encode() in data


def test_dispatches_are_those_of_the_bytecode(module: ingot.Module) -> None:
    contents = read_module(bytes(module))
    for name, target in read_debug(module)["targets"].items():
        here = tuple(each for each in contents.functions if each.target == name)
        text = disassemble(replace(contents, functions=here))
        functions = target["functions"].values()
        commands = [each for function in functions for each in all_commands(function["commands"])]
        kernels = [each["kernel"] for each in commands if each["op"] == "dispatch"]
        assert kernels
        assert all(text.count(f"@{each},") == kernels.count(each) for each in kernels)


def test_memory_names_the_command_that_made_it() -> None:
    module = ingot.compile(
        LOOP.replace("return(%y, %z)", "%t = exp(%y) : f32[n,8]\n return(%t, %z)"), debug=True
    )
    function = read_debug(module)["targets"]["cpu"]["functions"]["main"]
    ids = {each["id"]: each for each in all_commands(function["commands"])}
    assert function["memory"]
    for held in function["memory"]:
        maker = ids[held["command"]]
        assert held["type"] in [each["type"] for each in maker["results"]]
        assert held["made_by"] in (maker.get("kernel"), maker["op"])


def test_a_result_that_is_copied_comes_from_the_copy() -> None:
    source = 'module {} {\n func @main(%x: f32[3] "x") -> (f32[3] "y") {\n return(%x)\n }\n}'
    function = read_debug(ingot.compile(source, debug=True))["targets"]["cpu"]["functions"]["main"]
    (copy,) = function["commands"]
    assert (copy["op"], copy["results"][0]["place"]) == ("copy", ["result", 0])
    assert function["results_from"] == {"y": [copy["id"]]}


def test_a_result_that_is_overwritten_comes_from_the_last_that_writes_it() -> None:
    source = """
module {} {
  func @main(%x: f32[8,4] "x", %w: f32[4,10] "w") -> (f32[8,10] "y") {
    %0 = dot_general(%x, %w) {lhs_contract=[1], rhs_contract=[0]} : f32[8,10]
    %1 = reduce(%0) {axes=[1], kind="max"} : f32[8]
    %2 = broadcast(%1) {shape=[8, 10], dimensions=[0]} : f32[8,10]
    %3 = sub(%0, %2) : f32[8,10]
    return(%3)
  }
}
"""
    function = read_debug(ingot.compile(source, debug=True))["targets"]["cpu"]["functions"]["main"]
    first, last = [each for each in function["commands"] if each["op"] == "dispatch"]
    assert [each["results"][0]["place"][:2] for each in (first, last)] == [["result", 0]] * 2
    assert function["results_from"] == {"y": [last["id"]]}


def test_numbers_that_go_to_memory_are_commands() -> None:
    source = """
module {} {
  func @main(%x: f32[8] "x", %limit: f32[] "limit") -> (f32[8] "y") {
    %zero = constant() {value=dense<f32[] 0.0>} : f32[]
    %end = while(%zero) {symbols=[]} : f32[] ({
    ^(%k: f32[]):
      %more = compare(%k, %limit) {direction="lt"} : i1[]
      yield(%more)
    }, {
    ^(%k: f32[]):
      %one = constant() {value=dense<f32[] 1.5>} : f32[]
      %next = add(%k, %one) : f32[]
      yield(%next)
    })
    %b = broadcast(%end) {shape=[8], dimensions=[]} : f32[8]
    %y = mul(%x, %b) : f32[8]
    return(%y)
  }
}
"""
    function = read_debug(ingot.compile(source, debug=True))["targets"]["cpu"]["functions"]["main"]
    (write,) = [each for each in function["commands"] if each["op"] == "scalar.write"]
    assert [each["command"] for each in function["memory"]] == [write["id"]]
    (scale,) = [each for each in function["commands"] if each["op"] == "dispatch"]
    assert write["id"] in scale["operands"][1]["from"]


def test_specialised_kernels_are_named_with_their_sizes() -> None:
    module = ingot.compile(LOOP, specialize={"n": [4]}, debug=True)
    document = read_debug(module)["targets"]["cpu"]
    commands = list(all_commands(document["functions"]["main"]["commands"]))
    others = [other for each in commands for other in each.get("alternatives", ())]
    assert others
    assert all(other["sizes"] == [["n", 4]] for other in others)
    assert {other["kernel"] for other in others} < set(document["kernels"])


def test_state_is_read_and_written_by_name() -> None:
    text = """
module {} {
  func @main(%x: f32[4] "x", %c: f32[4] "c") -> (f32[4] "y", f32[4] "next") {
    %y = add(%x, %c) : f32[4] loc("step")
    return(%y, %y)
  }
}
"""
    module = ingot.compile(text, state={"next": "c"}, debug=True)
    function = read_debug(module)["targets"]["cpu"]["functions"]["main"]
    commands = list(all_commands(function["commands"]))
    sources = [s for each in commands for operand in each["operands"] for s in operand["from"]]
    assert ["state", "c"] in sources


def test_the_runtime_skips_it_and_strip_takes_it_out(module: ingot.Module) -> None:
    bare = ingot.compile(LOOP, target=["cpu", "opencl"], variants=[best_variant()])
    assert read_module(bytes(bare)).debug == b""
    stripped = strip_module(bytes(module))
    assert stripped == strip_module(bytes(bare))
    assert strip_module(stripped) == stripped
    contents = read_module(stripped)
    assert contents.debug == b""
    assert not any(entry.region for each in contents.executables for entry in each.entries)
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    expected = x * np.arange(1, 9, dtype=np.float32) ** 2
    for data in (bytes(module), stripped):
        y, z = ingot.load(data)(x, np.int64(2))
        np.testing.assert_array_equal(y, expected)
        np.testing.assert_allclose(z, expected.sum(1))


def test_the_same_program_gives_the_same_section(module: ingot.Module) -> None:
    again = ingot.compile(LOOP, target=["cpu", "opencl"], debug=True, variants=[best_variant()])
    assert bytes(again) == bytes(module)

"""Kernels that two variants have alike are stored once, and a machine runs what it ran."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot.compiler.bundling.bundle import linked_module
from ingot.compiler.bundling.linked_kernels import linked_kernels
from ingot.compiler.targets import grouping
from ingot.compiler.targets.cpu.variants import VARIANTS
from ingot.compiler.vm.contents import ModuleContents
from ingot.compiler.vm.disassemble import function_code
from ingot.compiler.vm.read_module import read_module
from ingot.hal.device import open_device
from tests.support.products import extremes

BYTES = ("x86-64-v4-amx", "x86-64-v4-vnni", "x86-64-v3-vnni", "x86-64-v3")
X, W = extremes("u8", 40, 64), extremes("i8", 64, 80)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A product of bytes, behind it a sort, which has no vectors, and rows of floats."""
    initializers = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(np.array([8]), "k")]
    nodes = [
        helper.make_node("MatMulInteger", ["x", "w"], ["product"]),
        helper.make_node("Cast", ["product"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Softmax", ["floats"], ["rows"]),
        helper.make_node("TopK", ["rows", "k"], ["y", "z"]),
    ]
    found = [("y", TensorProto.FLOAT), ("z", TensorProto.INT64)]
    results = [helper.make_tensor_value_info(name, dtype, [40, 8]) for name, dtype in found]
    argument = helper.make_tensor_value_info("x", TensorProto.UINT8, X.shape)
    graph = helper.make_graph(nodes, "bytes", [argument], results, initializers)
    onnx.save(helper.make_model(graph), tmp_path / "bytes.onnx")
    return tmp_path / "bytes.onnx"


def contents_of(path: Path, *variants: str) -> ModuleContents:
    return read_module(bytes(ingot.compile(path, variants=variants, debug=True)))


def sources(contents: ModuleContents) -> dict[str, dict[str, int]]:
    """By kernel and variant the ordinal of its C."""
    kernels: dict[str, Any] = json.loads(zlib.decompress(contents.debug))["targets"]["cpu"][
        "kernels"
    ]
    return {
        name: {variant: each["source"] for variant, each in kernel["variants"].items()}
        for name, kernel in kernels.items()
    }


def test_a_variant_is_left_out_where_the_next_has_the_same_code(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "_LEAST_LENGTH", 1 << 30)
    (whole,) = contents_of(path, *BYTES).executables
    assert [each.name for each in whole.variants] == list(BYTES)
    monkeypatch.setattr(grouping, "_LEAST_LENGTH", 1)
    contents = contents_of(path, *BYTES)
    found = sources(contents)
    names = [each.name for each in contents.executables]
    assert names == ["kernels", "kernels_2", "kernels_3"][: len(names)]
    assert len(names) > 1
    stored = 0
    for executable in contents.executables:
        own = [each.name for each in executable.variants]
        assert own == [name for name in BYTES if name in own]
        for entry in executable.entries:
            stored += len(own)
            for name in BYTES:
                runs = next(each for each in BYTES[BYTES.index(name) :] if each in own)
                assert found[entry.name][runs] == found[entry.name][name]
    assert stored < len(BYTES) * len(whole.entries)
    kept = [entry for executable in contents.executables for entry in executable.entries]
    assert sorted(each.name for each in kept) == sorted(each.name for each in whole.entries)


def test_results_are_the_same_bits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = open_device("cpu")
    variants = [VARIANTS[name] for name in BYTES]
    names = [each.name for each in variants if device.runs(each.format, each.feature_bits)]
    if not names:
        pytest.skip("the processor runs none of the variants")
    monkeypatch.setattr(grouping, "_LEAST_LENGTH", 1 << 30)
    module = ingot.compile(path, variants=names)
    wanted = ingot.load(bytes(module))(X)
    monkeypatch.setattr(grouping, "_LEAST_LENGTH", 1)
    for place in range(len(names)):
        module = ingot.compile(path, variants=names[place:])
        for ours, theirs in zip(ingot.load(bytes(module))(X), wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_machine_that_runs_one_variant_need_not_run_the_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code without products is the same with bf16 and with f16, which no processor need have both
    of."""
    monkeypatch.setattr(grouping, "_LEAST_LENGTH", 1)
    contents = contents_of(path, "x86-64-v4-bf16", "x86-64-v4-fp16")
    same = [name for name, each in sources(contents).items() if len(set(each.values())) == 1]
    (executable,) = contents.executables
    assert same
    assert len(executable.variants) == 2


def test_a_bundle_has_one_executable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "_LEAST_LENGTH", 1)
    contents = contents_of(path, *BYTES)
    linked = read_module(linked_module(contents, strip_messages=False))
    (executable,) = linked.executables
    assert executable.name == "kernels"
    wanted = [entry.name for each in contents.executables for entry in each.entries]
    assert [entry.name for entry in executable.entries] == wanted
    (column,) = linked_kernels(contents, [VARIANTS["x86-64-v3"]])
    assert [kernel.name for kernel in column] == wanted
    (function,) = linked.functions
    assert function_code(linked, function) == function_code(contents, contents.functions[0])

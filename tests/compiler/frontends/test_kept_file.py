"""Weights that are read when they are used are those of the file that was compiled, or an error."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper, save_model

import ingot
from ingot.compiler.frontends.kept_file import KeptFile
from ingot.compiler.frontends.onnx import import_onnx
from ingot.compiler.graph.ops import Constant
from ingot.compiler.ir import Later, Literal, Module, walk
from ingot.compiler.read_source import read_source
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype
from ingot.hal.whole_file import open_regular
from tests.support.devices import best_variant

W = np.arange(1 << 16, dtype=np.float32).reshape(256, 256)


def _kept(path: Path) -> KeptFile:
    return KeptFile(partial(open_regular, path), f"'{path}'")


def _large(module: Module) -> Literal:
    constants = [Constant.of(op).value for op in walk(module) if op.name == "constant"]
    (literal,) = (each for each in constants if each.size == W.size)
    return literal


def _onnx(path: Path, external: bool = False) -> Path:
    ends = [helper.make_tensor_value_info(name, 1, [2, 256]) for name in "xy"]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(W, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    save_model(model, path, save_as_external_data=external, location="data")
    return path


def _torch(path: Path) -> Path:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(256, 256, bias=False)
    layer.weight.data = torch.from_numpy(W.copy())
    torch.export.save(torch.export.export(layer, (torch.zeros(2, 256),)), path)
    return path


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _exchange(path: Path) -> None:
    data = path.read_bytes()
    path.with_suffix(".new").write_bytes(data)
    path.with_suffix(".new").rename(path)


def _touch(path: Path) -> None:
    facts = path.stat()
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))


@pytest.mark.parametrize("change", [_cut, _exchange, _touch, Path.unlink])
def test_another_file_is_an_error(change: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(W.tobytes())
    file = _kept(path)
    literal = file.literal(0, W.shape, dtype("f32"))
    assert isinstance(literal.stored, Later)
    np.testing.assert_array_equal(literal.array, W)
    change(path)
    with pytest.raises(CompileError, match=r"weights' (was changed or cut|cannot be read)"):
        _ = literal.array


@pytest.mark.parametrize("change", [_cut, _touch])
def test_a_file_is_opened_once_where_many_parts_are_read(
    change: Callable[[Path], object], tmp_path: Path
) -> None:
    path, files = tmp_path / "weights", list[Any]()
    path.write_bytes(W.tobytes())

    def opened() -> Any:
        files.append(open_regular(path))
        return files[-1]

    file = KeptFile(opened, f"'{path}'")
    files.clear()
    with file.opened():
        for row in (3, 1):
            found = file.literal(row * W[0].nbytes, W[0].shape, dtype("f32"))
            np.testing.assert_array_equal(found.array, W[row])
        change(path)
        with pytest.raises(CompileError, match="changed or cut while it was read"):
            file.read(0, 4)
    (only,) = files
    assert only.closed


@pytest.mark.parametrize("kind", ["file", "external", "program"])
def test_sources_that_are_changed_before_their_weights_are_used_are_errors(
    kind: str, tmp_path: Path
) -> None:
    path = _torch(tmp_path / "m.pt2") if kind == "program" else _onnx(tmp_path / "m.onnx")
    if kind == "external":
        path = _onnx(path, external=True)
    module = read_source(path)
    found = _large(module)
    assert isinstance(found.stored, Later)
    np.testing.assert_array_equal(found.array, W)
    _cut(path.with_name("data") if kind == "external" else path)
    with pytest.raises(CompileError, match="changed or cut while it was read"):
        ingot.compile(module, variants=[best_variant()])


@pytest.mark.parametrize("kind", ["onnx.source", "torch.archive"])
def test_sources_that_are_exchanged_between_two_readings_are_errors(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _onnx(tmp_path / "m.onnx") if kind == "onnx.source" else _torch(tmp_path / "m.pt2")

    class Exchanged(KeptFile):
        def __init__(self, *arguments: Any) -> None:
            _exchange(path)
            super().__init__(*arguments)

    monkeypatch.setattr(f"ingot.compiler.frontends.{kind}.KeptFile", Exchanged)
    with pytest.raises(CompileError, match="changed or cut while it was read"):
        read_source(path)


def test_bytes_and_protos_stay_where_they_are(tmp_path: Path) -> None:
    data = _onnx(tmp_path / "m.onnx").read_bytes()
    array = _large(import_onnx(data)).array
    assert np.shares_memory(array, np.frombuffer(data, np.uint8))
    np.testing.assert_array_equal(array, W)


@pytest.mark.parametrize("name", ["f32", "bf16", "i4", "u8"])
def test_elements_are_read_in_parts_where_all_need_not_be_in_memory(
    name: str, tmp_path: Path
) -> None:
    bytes_each, count = dtype(name).bytes, (1 << 21) + 3
    data = np.full(count, 3, f"u{bytes_each}")
    path = tmp_path / "weights"
    for last in (3, 5):
        data[-1] = last
        path.write_bytes(bytes(8) + data.tobytes())
        literal = _kept(path).literal(8, (count, 1), dtype(name))
        parts = list(literal.parts())
        assert max(part.nbytes for part in parts) <= 1 << 20
        assert np.concatenate(parts).tobytes() == literal.array.tobytes()
        assert (literal.splat is not None) == (last == 3)

"""Files of other kinds, told by their first bytes and their names."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

import ingot
from ingot.hal.file_kind import START_LENGTH, file_kind, why_no_module


def _zip(first: str = "notes.txt") -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(first, b"1")
    return stream.getvalue()


def _npy() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.zeros(3))
    return stream.getvalue()


FILES = {
    "old.bin": (pickle.dumps({"w": 1}), "a PyTorch file", "torch.export.save"),
    "model.pth": (_zip("archive/data.pkl"), "a PyTorch file", "torch.export.save"),
    "weights.bin": (_zip("archive/data.pkl"), "a PyTorch file", "torch.export.save"),
    "model.keras": (_zip(), "a Keras model", "model.export"),
    "saved": (_zip("metadata.json"), "a Keras model", "model.export"),
    "arrays": (_zip("x.npy"), "a NumPy file", "parameters="),
    "zipped.onnx": (_zip("a.mlpackage/Manifest.json"), "a Core ML model", "ONNX or StableHLO"),
    "model.mlmodel": (b"\x08\x04\x12\x10" + bytes(60), "a Core ML model", "ONNX or StableHLO"),
    "saved_model.pb": (b"\x08\x01\x12\x10" + bytes(60), "a TensorFlow model", "tf2onnx.convert"),
    "frozen.pb": (b"\x0a\x10\x0a\x04" + bytes(60), "a TensorFlow model", "tf2onnx.convert"),
    "archive": (_zip(), "a zip archive", "unpack it"),
    "model.ort": (b"\x1c\0\0\0ORTM\x14\0", "onnxruntime's own format", ".onnx file"),
    "model.safetensors": (save({"w": np.zeros(3)}), "a safetensors file", "parameters="),
    "weights": (save({"w": np.zeros(3)}), "a safetensors file", "parameters="),
    "x.npy": (_npy(), "a NumPy file", "parameters="),
    "pointer.onnx": (b"version https://git-lfs.example/spec/v1\n", "Git LFS", "git lfs pull"),
    "page.onnx": (b"<!DOCTYPE html><html>", "a web page", "download the model itself"),
    "model.h5": (b"\x89HDF\r\n\x1a\n", "a Keras model", "model.export"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_program_is_called_what_it_is(name: str, tmp_path: Path) -> None:
    data, kind, advice = FILES[name]
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ingot.Unsupported) as compiling:
        ingot.compile(path)
    with pytest.raises(ingot.DataLoss) as loading:
        ingot.load(path)
    for message in (str(compiling.value), str(loading.value)):
        assert str(path) in message
        assert kind in message
        assert advice in message


def test_bytes_are_told_without_a_name() -> None:
    with pytest.raises(ingot.CompileError, match="bytes of a GGUF file cannot be compiled"):
        ingot.compile(b"GGUF\3\0\0\0")
    with pytest.raises(ingot.DataLoss, match="this is a GGUF file, no compiled module"):
        ingot.load(b"GGUF\3\0\0\0" + bytes(100))


FOLDERS = {
    "tensorflow": (["saved_model.pb", "variables"], "a TensorFlow model", "--saved-model"),
    "model.mlpackage": (["Manifest.json"], "a Core ML model", "ONNX or StableHLO"),
    "exported": (["model.onnx", "config.json"], "a folder with an ONNX model", "model.onnx'"),
    "lora": (["adapter_config.json", "adapter_model.safetensors"], "an adapter", "merge"),
    "bert": (["config.json", "pytorch_model.bin"], "a folder of pickled weights", "optimum-cli"),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_holds_a_model_is_called_what_it_is(name: str, tmp_path: Path) -> None:
    names, kind, advice = FOLDERS[name]
    path = tmp_path / name
    path.mkdir()
    for each in names:
        (path / each).touch()
    with pytest.raises(ingot.Unsupported) as compiling:
        ingot.compile(path)
    with pytest.raises(ingot.InvalidArgument) as loading:
        ingot.load(path)
    for message in (str(compiling.value), str(loading.value)):
        assert str(path) in message
        assert kind in message
        assert advice in message


def test_what_is_only_named_like_an_onnx_model_is_judged_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for data in (b"", bytes(100), b"\xff" * 100):
        path.write_bytes(data)
        with pytest.raises(ingot.DataLoss, match="does not begin like the ONNX model"):
            ingot.load(path)
    onnx = b"\x08\x08\x12\x07pytorch\x1a\x03" + bytes(100)
    other = tmp_path / "model"
    for file in (path, other):
        file.write_bytes(onnx)
    for source in (path, other, onnx):
        with pytest.raises(ingot.DataLoss, match="an ONNX model, no compiled module: compile it"):
            ingot.load(source)


@pytest.mark.parametrize("name", ["model.onnx", "model.mlir"])
def test_loading_a_source_says_to_compile_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x08\x09" + bytes(200))
    with pytest.raises(ingot.DataLoss, match=r"compile it first, as in ingot.compile\('.*model"):
        ingot.load(path)


def test_a_damaged_module_stays_one() -> None:
    data = bytes(ingot.compile("module {} { func @main(%x: f32[n]) -> (f32[n]) { return(%x) } }"))
    assert why_no_module(data[:START_LENGTH]) is None
    with pytest.raises(ingot.DataLoss, match="its header says"):
        ingot.load(data[:200])


def test_unknown_bytes_have_no_kind() -> None:
    assert file_kind(b"\x08\x09") is None
    assert file_kind(b"") is None

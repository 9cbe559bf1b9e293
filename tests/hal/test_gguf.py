"""GGUF files as they are read: what the `gguf` package writes, and files that are damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.hal.errors import DataLoss, InvalidArgument, NotFound, Unsupported
from ingot.hal.gguf import Gguf


def _write(path: Path) -> bytes:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("a.u32", 7)
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "caf\u00e9")
    writer.add_array("a.numbers", [1, 2, 3])
    writer.add_array("a.texts", ["x", "", "yz"])
    writer.add_tensor("f", np.arange(6, dtype=np.float32).reshape(2, 3))
    codes = gguf.quants.quantize(
        np.linspace(-1, 1, 128, dtype=np.float32).reshape(2, 64),
        gguf.GGMLQuantizationType.Q8_0,
    )
    writer.add_tensor("q", codes, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def test_metadata_and_tensors(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    _write(path)
    file = Gguf(path)
    got = file.metadata
    assert (got["a.u32"], got["a.f64"], got["a.bool"]) == (7, 0.1, True)
    assert got["a.text"] == "caf\u00e9"
    assert got["a.numbers"].tolist() == [1, 2, 3]
    assert got["a.texts"] == ["x", "", "yz"]
    f, q = file.tensors["f"], file.tensors["q"]
    assert (f.shape, f.type.name, q.shape, q.type.name) == ((2, 3), "F32", (2, 64), "Q8_0")
    np.testing.assert_array_equal(f.rows, np.arange(6).reshape(2, 3))
    assert q.rows.shape == (2, 68)
    assert set(file.parameters()) == {"f", "q"}


def _file(*parts: bytes, tensors: int = 0, pairs: int = 0, version: int = 3) -> bytes:
    return b"".join([b"GGUF", struct.pack("<IQQ", version, tensors, pairs), *parts])


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def _info(name: bytes, dims: tuple[int, ...], type: int, offset: int) -> bytes:
    form = f"<I{len(dims)}QIQ"
    return _text(name) + struct.pack(form, len(dims), *dims, type, offset)


DAMAGED = {
    "cut in the header": (b"GGUF\x03\0\0\0", "too short for a header"),
    "another format": (b"GGML" + bytes(40), "does not begin with GGUF"),
    "more pairs than bytes": (_file(pairs=1 << 60), "do not fit into the file"),
    "more tensors than bytes": (_file(tensors=1 << 40), "do not fit into the file"),
    "a long key": (_file(struct.pack("<Q", 1 << 63), bytes(64), pairs=1), "do not fit"),
    "an unknown type": (_file(_text(b"k"), struct.pack("<IQ", 99, 0), pairs=1), "unknown type 99"),
    "a long array": (
        _file(_text(b"k"), struct.pack("<IIQ", 9, 4, 1 << 61), pairs=1), "do not fit"),
    "deep arrays": (
        _file(_text(b"k"), struct.pack("<I", 9), struct.pack("<IQ", 9, 1) * 9, pairs=1), "type 9"),
    "a key twice": (
        _file(*[_text(b"k") + struct.pack("<IB", 0, 1)] * 2, pairs=2), "comes twice"),
    "a rank of 9": (_file(_info(b"t", (1,) * 9, 0, 0), tensors=1), "rank 9"),
    "a part of a block": (_file(_info(b"t", (33,), 8, 0), tensors=1), "blocks of 32"),
    "an offset behind the end": (_file(_info(b"t", (4,), 0, 1 << 40), tensors=1), "leaves the"),
    "a size that overflows": (
        _file(_info(b"t", (1 << 62, 1 << 62), 0, 0), tensors=1), "leaves the file"),
    "no elements": (_file(_info(b"t", (0,), 0, 0), bytes(64), tensors=1), "leaves the file"),
    "an odd offset": (_file(_info(b"t", (1,), 0, 3), bytes(99), tensors=1), "unaligned offset 3"),
    "a tensor twice": (
        _file(*[_info(b"t", (1,), 0, 0)] * 2, bytes(99), tensors=2), "comes twice"),
    "an odd alignment": (
        _file(_text(b"general.alignment"), struct.pack("<II", 4, 3), pairs=1), "power of two"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused(name: str, tmp_path: Path) -> None:
    data, message = DAMAGED[name]
    path = tmp_path / "a.gguf"
    path.write_bytes(data)
    with pytest.raises(DataLoss, match=message):
        Gguf(path)


def test_other_versions_and_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(_file(version=1))
    with pytest.raises(Unsupported, match="version 1; versions 2 and 3"):
        Gguf(path)
    path.write_bytes(_file(version=3 << 24))
    with pytest.raises(Unsupported, match="big-endian"):
        Gguf(path)
    path.write_bytes(_file(_info(b"t", (1,), 77, 0), tensors=1))
    with pytest.raises(Unsupported, match="tensor 't' has the unknown type 77"):
        Gguf(path)
    path.write_bytes(b"")
    with pytest.raises(DataLoss, match="cannot mmap an empty file"):
        Gguf(path)
    with pytest.raises(NotFound, match=r"there is no file '.*none\.gguf'"):
        Gguf(tmp_path / "none.gguf")
    with pytest.raises(InvalidArgument, match="is a folder, expected a file"):
        Gguf(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    folder = tmp_path_factory.mktemp("gguf")
    return folder / "b.gguf", _write(folder / "a.gguf")


@given(st.data())
def test_any_bytes_give_a_file_or_an_error(whole: tuple[Path, bytes], data: st.DataObject) -> None:
    path, content = whole
    changed = bytearray(content[: data.draw(st.integers(1, len(content)), "length")])
    for _ in range(data.draw(st.integers(0, 3), "changes")):
        place = data.draw(st.integers(0, min(len(changed), 600) - 1), "place")
        changed[place] = data.draw(st.integers(0, 255), "byte")
    path.write_bytes(changed)
    try:
        file = Gguf(path)
    except (DataLoss, Unsupported):
        return
    assert all(tensor.rows.size for tensor in file.tensors.values())

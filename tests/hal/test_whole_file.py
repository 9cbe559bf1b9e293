"""Files: written whole or not at all, read without waiting, and never another exception."""

from __future__ import annotations

import errno
import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot.hal.checkpoint import read_tensors
from ingot.hal.errors import DataLoss, InvalidArgument, NotFound, OutOfMemory
from ingot.hal.gguf import Gguf
from ingot.hal.whole_file import open_regular, read_arrays, write_arrays, write_whole


def test_a_file_that_cannot_be_finished_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"before")

    def fail(file: io.BufferedIOBase) -> None:
        file.write(b"half")
        raise MemoryError

    with pytest.raises(MemoryError):
        write_whole(path, fail)
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_links_and_devices_stay_what_they_are(tmp_path: Path) -> None:
    path, link = tmp_path / "x", tmp_path / "link"
    link.symlink_to(path)
    write_whole(link, lambda file: file.write(b"new"))
    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    write_whole("/dev/null", lambda file: file.write(b"new"))
    assert Path("/dev/null").is_char_device()


def test_arrays_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    turned = np.arange(6.0).reshape(2, 3).T
    for array in (turned, np.float32(2), np.zeros((0, 3), "i1"), np.array(["a", "bcd"])):
        write_arrays(path, array)
        np.testing.assert_array_equal(read_arrays(path), array, strict=True)
        assert read_arrays(path).shape == np.shape(array)
    named = dict.fromkeys(["file", "allow_pickle", "arr_0", "a/b", "ü"], turned)
    write_arrays(path, named)
    assert read_arrays(path).keys() == named.keys()
    assert (read_arrays(path)["a/b"] == turned).all()
    assert list(tmp_path.iterdir()) == [path]


def test_arrays_go_into_pipes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_arrays(tmp_path / "pipe", np.arange(3))
    assert np.load(io.BytesIO(os.read(reader, 4096))).tolist() == [0, 1, 2]
    os.close(reader)


@pytest.mark.parametrize("path", ["a\0b", "\ud800"])
def test_a_path_that_cannot_be_is_named(path: str) -> None:
    with pytest.raises(InvalidArgument, match="has a character that no path can have"):
        write_whole(path, lambda file: None)
    with pytest.raises(InvalidArgument, match="has a character that no path can have"):
        open_regular(path)


def test_paths_may_be_bytes(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "x")
    write_whole(path, lambda file: file.write(b"x"))  # type: ignore[arg-type]
    with open_regular(path) as file:  # type: ignore[arg-type]
        assert file.read() == b"x"


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidArgument, match="no regular file"):
        read_arrays(tmp_path / "pipe")
    with pytest.raises(InvalidArgument, match="folder"):
        read_arrays(tmp_path)
    with pytest.raises(NotFound):
        read_arrays(tmp_path / "none")
    with pytest.raises(InvalidArgument, match="no regular file"):
        write_whole(tmp_path / "pipe", lambda file: None)


@pytest.mark.parametrize("read", [open_regular, Gguf, lambda path: list(read_tensors(path))])
def test_a_folder_is_refused_and_not_kept_open(read: Any, tmp_path: Path) -> None:
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("the system does not list open files")
    before = len(list(descriptors.iterdir()))
    for _ in range(3):
        with pytest.raises((InvalidArgument, NotFound)):
            read(tmp_path)
    assert len(list(descriptors.iterdir())) == before


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_archive_is_data_loss(method: int, tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, array in {"a": np.arange(6.0), "b": np.zeros((2, 3), "V2")}.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.save(file, array)
    whole, random = stream.getvalue(), np.random.default_rng(0)
    path, failed = tmp_path / "x.npz", 0
    for _ in range(600):
        data = bytearray(whole)
        for place in random.integers(len(data), size=3):
            data[place] = random.integers(256)
        path.write_bytes(data[: random.integers(len(data) // 2, len(data) + 1)])
        try:
            read_arrays(path)
        except DataLoss:
            failed += 1
    assert failed > 300


@pytest.mark.parametrize("header", [b"(" * 9000, b"{'descr': ", b"\0", b"1 +\n  2", b"'\n"])
def test_a_header_that_is_no_python_is_data_loss(header: bytes, tmp_path: Path) -> None:
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(DataLoss, match="cannot be read as arrays"):
        read_arrays(tmp_path / "x.npy")


@pytest.mark.parametrize("shape", [(1 << 50,), (10**30,), (-1, 2)])
def test_an_array_that_is_not_there_is_data_loss(shape: tuple[int, ...], tmp_path: Path) -> None:
    stream = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", stream.getvalue())
    with pytest.raises(DataLoss, match="cannot be read as arrays"):
        read_arrays(tmp_path / "x.npz")


def no_memory(*_: object, **__: object) -> None:
    raise MemoryError


def no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(("fail", "kind"), [(no_memory, OutOfMemory), (no_room, OSError)])
def test_what_is_short_is_not_a_damaged_file(
    fail: Callable[..., None], kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_arrays(tmp_path / "x.npz", {"a": np.zeros(4)})
    monkeypatch.setattr(np.lib.format, "read_array", fail)
    with pytest.raises(kind):
        read_arrays(tmp_path / "x.npz")

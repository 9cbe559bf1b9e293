"""Loading: the sources, the devices, and files that are no good module."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from assembler import copy_module

import ingot


class Compiled:
    """What a compiler gives: something with bytes."""

    def __bytes__(self) -> bytes:
        return copy_module()


@pytest.mark.parametrize("kind", ["str", "path", "bytes", "bytearray", "memoryview", "module"])
def test_every_kind_of_source_loads(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a model.ingot"
    path.write_bytes(copy_module())
    data = copy_module()
    sources = {
        "str": str(path),
        "path": path,
        "bytes": data,
        "bytearray": bytearray(data),
        "memoryview": memoryview(data),
        "module": Compiled(),
    }
    model = ingot.load(sources[kind])
    del sources, data
    assert float(model([4.0]).item()) == 4


def test_device_and_threads() -> None:
    model = ingot.load(copy_module(), threads=1)
    assert model.device == "cpu://?threads=1"
    assert model([1.0]).device == model.device
    assert ingot.load(copy_module(), device="cpu://?threads=2").device == "cpu://?threads=2"


def test_devices_are_listed_and_shared() -> None:
    devices = ingot.devices()
    assert devices[0].uri == "cpu"
    assert devices[0].description
    assert ingot.devices()[0] is devices[0]
    assert repr(devices[0]).startswith("Device('cpu': ")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"device": "tpu"}, ingot.NotFound, "tpu"),
        ({"device": "cpu://?threads=none"}, ingot.InvalidArgument, "threads"),
        ({"device": 0}, ingot.InvalidArgument, "device is int, but must be a URI"),
        ({"threads": 0}, ingot.InvalidArgument, "threads is 0"),
        ({"threads": 1.5}, ingot.InvalidArgument, "threads is 1.5"),
        ({"threads": 2, "device": "cpu://?threads=1"}, ingot.InvalidArgument, "threads=2 goes"),
    ],
)
def test_wrong_device_is_named(
    options: dict[str, object], error: type[ingot.Error], message: str
) -> None:
    with pytest.raises(error, match=message):
        ingot.load(copy_module(), **options)


def test_missing_file_and_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ingot.NotFound, match=r"missing\.ingot"):
        ingot.load(tmp_path / "missing.ingot")
    with pytest.raises(ingot.Error, match=tmp_path.name):
        ingot.load(tmp_path)


def test_source_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(ingot.InvalidArgument, match="cannot load a int; pass a path, bytes"):
        ingot.load(7)


def test_any_truncation_is_refused() -> None:
    data = copy_module()
    for length in range(len(data)):
        with pytest.raises((ingot.DataLoss, ingot.Incompatible)):
            ingot.load(data[:length])


def test_any_flipped_byte_is_refused() -> None:
    data = copy_module()
    for at in range(0, len(data), 3):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        with pytest.raises((ingot.DataLoss, ingot.Incompatible)):
            ingot.load(damaged, verify=True)


def test_newer_version_is_incompatible() -> None:
    data = bytearray(copy_module())
    data[8] = 9
    with pytest.raises(ingot.Incompatible, match="9"):
        ingot.load(data)


def test_load_does_not_keep_the_file_open_for_writing(tmp_path: Path) -> None:
    path = tmp_path / "model.ingot"
    path.write_bytes(copy_module())
    model = ingot.load(path)
    path.unlink()
    np.testing.assert_array_equal(model([1.0, 2.0]), [1, 2])

"""Loading: the sources, the devices, and files that are no good module."""

from __future__ import annotations

import os
import pickle
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.hal.module_bytes import ModuleBytes
from ingot.hal.spec import layout
from ingot.inputs import random_inputs
from ingot.runtime import program
from tests.support.assembler import Assembler, add_copy, copy_module
from tests.support.mutations import sections_of, with_checksums, with_plain_tables


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


@pytest.mark.parametrize("shift", [0, 16, 40])
def test_modules_in_memory_lie_where_vectors_of_weights_cross_no_lines(shift: int) -> None:
    room = np.zeros(len(copy_module()) + 128, np.uint8)
    place = -room.ctypes.data % 64 + shift
    room[place : place + len(copy_module())] = np.frombuffer(copy_module(), np.uint8)
    contents = program.module_source(room[place : place + len(copy_module())].data)
    data = copy_module()
    filled = ModuleBytes.filled(len(data), lambda room: room.__setitem__(slice(None), data))
    for each in (contents, filled, pickle.loads(pickle.dumps(contents))):
        assert np.frombuffer(each.view, np.uint8).ctypes.data % 64 == 0
        assert each == contents
        assert hash(each) == hash(contents)
        assert bytes(each) == copy_module()
    assert program.module_source(filled) is filled


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


def test_options_of_the_cpu_are_keywords() -> None:
    device = ingot.open_device(threads=2, priority="low", spin=False)
    assert device.uri == "cpu://?threads=2&priority=low&spin=off"
    assert ingot.open_device(spin=False, threads=2, priority="low") is device
    model = ingot.load(copy_module(), device=device)
    assert float(model([4.0]).item()) == 4
    with pytest.raises(ingot.InvalidArgument, match="is open: leave threads=1 out"):
        ingot.load(copy_module(), device=device, threads=1)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processors of Linux")
def test_affinity_takes_processors_of_this_process() -> None:
    processors = sorted(os.sched_getaffinity(0))
    device = ingot.open_device(affinity=[processors[0], processors[0]])
    assert device.description.endswith(" 1 thread")
    assert ingot.open_device(affinity=processors).description.endswith(
        f" {len(processors)} thread{'s' * (len(processors) > 1)}"
    )
    with pytest.raises(ingot.InvalidArgument, match="may not use processor 1023"):
        ingot.open_device(affinity=[1023])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"affinity": []}, "affinity is .*, but must be the numbers of processors"),
        ({"affinity": "01"}, "affinity is '01'"),
        ({"affinity": [-1]}, "affinity is"),
        ({"affinity": 1}, "affinity is 1, but must be"),
        ({"affinity": ["a", 1]}, "affinity is"),
        ({"priority": "urgent"}, "priority is 'urgent', but must be one of"),
        ({"device": "cpu://?threads=2", "spin": True}, "spin=on goes with device="),
    ],
)
def test_wrong_options_of_the_cpu_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ingot.InvalidArgument, match=message):
        ingot.open_device(**options)


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


@pytest.mark.parametrize("text", [b"[" * 9, b"[1]", b"null", b'{"dims":3}'])
def test_metadata_of_another_form_are_refused(text: bytes) -> None:
    data = bytearray(with_plain_tables(copy_module()))
    kind = layout().constants["INGOT_SECTION_METADATA"]
    (section,) = (each for each in sections_of(data) if each["kind"] == kind)
    start, length = section["offset"], section["length"]
    data[start : start + length] = text.ljust(length)
    model = ingot.load(with_checksums(data))
    with pytest.raises(ingot.DataLoss, match="the module's metadata"):
        random_inputs(model, model.signature, {})


def test_newer_version_is_incompatible() -> None:
    data = bytearray(copy_module())
    data[8] = 9
    with pytest.raises(ingot.Incompatible, match="9"):
        ingot.load(data)


def test_reserved_fields_are_zero() -> None:
    data = bytearray(copy_module())
    known = layout()
    size = known.size("ingot_layout_header_t")
    (header,) = known.unpack("ingot_layout_header_t", bytes(data[:size]))
    data[:size] = known.pack("ingot_layout_header_t", [{**header, "reserved": [0] * 6 + [1]}])
    with pytest.raises(ingot.DataLoss, match="a reserved field of its header is not zero"):
        ingot.load(with_checksums(data))
    data = bytearray(with_plain_tables(copy_module()))
    (section,) = [
        each for each in sections_of(data) if each["kind"] == known.constants["INGOT_SECTION_DIMS"]
    ]
    place = slice(section["offset"], section["offset"] + known.size("ingot_layout_dim_t"))
    (dim,) = known.unpack("ingot_layout_dim_t", bytes(data[place]))
    data[place] = known.pack("ingot_layout_dim_t", [{**dim, "reserved": 7}])
    with pytest.raises(ingot.DataLoss, match=r"dim 0 has bad .* reserved field"):
        ingot.load(with_checksums(data))


def test_load_does_not_keep_the_file_open_for_writing(tmp_path: Path) -> None:
    path = tmp_path / "model.ingot"
    path.write_bytes(copy_module())
    model = ingot.load(path)
    path.unlink()
    np.testing.assert_array_equal(model([1.0, 2.0]), [1, 2])


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path in (tmp_path / "pipe", tmp_path / "socket", tmp_path, "/dev/zero"):
            with pytest.raises(ingot.InvalidArgument, match="cannot read"):
                ingot.load(path)


def test_a_path_that_is_too_long_or_a_ring_of_links_is_refused(tmp_path: Path) -> None:
    ring = tmp_path / "ring"
    ring.symlink_to(ring)
    for path, shown in (("a" * 5000, "aaa"), (ring, "ring")):
        for options in ({}, {"parameters": path}):
            source = copy_module() if options else path
            with pytest.raises(ingot.InvalidArgument, match=f"cannot read '.*{shown}") as caught:
                ingot.load(source, **options)
            assert len(str(caught.value)) < 300 + len(str(tmp_path))


@pytest.mark.parametrize("becomes_pipe", [False, True])
def test_a_file_that_goes_while_it_is_refused_keeps_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, becomes_pipe: bool
) -> None:
    path = tmp_path / "model.ingot"
    path.write_bytes(b"no module")
    load_file = program._load_file

    def load_and_lose(path: Path, verify: bool) -> object:
        try:
            return load_file(path, verify)
        finally:
            path.unlink()
            if becomes_pipe:
                os.mkfifo(path)

    monkeypatch.setattr(program, "_load_file", load_and_lose)
    with pytest.raises(ingot.DataLoss, match="it has 9 bytes"):
        ingot.load(path)


def test_names_with_nul_are_refused_and_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "model.ingot"
    path.write_bytes(copy_module())
    for name in (f"{path}\0.old", f"{path}\ud800"):
        with pytest.raises(ingot.InvalidArgument, match="that no path can have"):
            ingot.load(name)
    with pytest.raises(ingot.InvalidArgument, match="that no device can have"):
        ingot.load(path, device="cpu\0://?threads=9")


def module_with_large_constants() -> bytes:
    """main(x) -> a copy, and a variable of 2 MB."""
    assembler = Assembler()
    add_copy(assembler, "main")
    assembler.variable("v", "u8", 1 << 21, initial=bytes(range(256)) * (1 << 13))
    return assembler.module()


@pytest.mark.parametrize("large", [False, True])
def test_a_file_that_is_overwritten_changes_no_loaded_code(tmp_path: Path, large: bool) -> None:
    path = tmp_path / "model.ingot"
    path.write_bytes(module_with_large_constants() if large else copy_module())
    model = ingot.load(path)
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)
    np.testing.assert_array_equal(model([1.0, 2.0]), [1, 2])
    np.testing.assert_array_equal(model.fork()([1.0, 2.0]), [1, 2])


@pytest.mark.parametrize("large", [False, True])
def test_a_file_that_is_cut_kills_nothing(tmp_path: Path, large: bool) -> None:
    path = tmp_path / "model.ingot"
    path.write_bytes(module_with_large_constants() if large else copy_module())
    model = ingot.load(path, verify=large)  # what is verified is read
    os.truncate(path, 0)
    np.testing.assert_array_equal(model.fork()([1.0, 2.0]), [1, 2])
    if large:
        assert model.fork(state=False).state()["v"].numpy()[-1] == 255


@pytest.mark.parametrize("name", ["verify", "zero_memory", "shares_slab", "share_weights"])
@pytest.mark.parametrize("value", [None, 1.5, [], np.zeros(2)])
def test_options_that_are_no_flags_are_named(name: str, value: Any) -> None:
    with pytest.raises(ingot.InvalidArgument, match=f"^{name} is .*, expected True or False"):
        ingot.load(copy_module(), **{name: value})


def test_a_timeout_of_any_length_is_taken() -> None:
    assert ingot.load(copy_module(), timeout=10**400)([1.0, 2.0]).numpy().tolist() == [1, 2]
    assert ingot.load(copy_module()).main.call([1, 2.0], timeout=10**400).numpy().tolist() == [1, 2]

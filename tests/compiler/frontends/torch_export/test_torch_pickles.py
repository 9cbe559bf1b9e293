"""Tensors that torch.export saves as pickles: read as data, whatever they say."""

from __future__ import annotations

import io
import os
import pickle
import random
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.frontends.torch.pickles import PickledTensor, Wrapper, read_pickle
from ingot.compiler.read_source import read_source

FOLDER = Path(__file__).parents[3] / "models" / "torch_export"
WHOLE: bytes = np.load(FOLDER / "programs.npz")["wrapped:program"].tobytes()
WEIGHT = "archive/data/weights/weight_0"
LAYOUT = b"ctorch.serialization\n_get_layout\n"


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(contents: dict[str, bytes]) -> bytes:
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return result.getvalue()


INNER = members(members(WHOLE)[WEIGHT])
(NAME,) = (name for name in INNER if name.endswith("/data.pkl"))
PICKLE = INNER[NAME]


def changed(contents: dict[str, bytes | None]) -> bytes:
    """The archive with other members in its first pickled weight; None leaves one out."""
    root = NAME.removesuffix("data.pkl")
    inner = {**INNER, **{root + name: data for name, data in contents.items()}}
    kept = {name: data for name, data in inner.items() if data is not None}
    return zipped(members(WHOLE) | {WEIGHT: zipped(kept)})


def refused(data: bytes) -> str:
    with pytest.raises(ingot.CompileError) as caught:
        read_source(data)
    return str(caught.value)


def pickled(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


def test_attributes_of_a_tensor_are_found_at_their_places() -> None:
    found = read_pickle(PICKLE)
    assert isinstance(found, Wrapper)
    codes = found.attributes["qdata"]
    assert codes == PickledTensor("0", "int8", 0, (4, 32), (32, 1))
    read_source(changed({"data.pkl": PICKLE}))


def test_newer_protocols_are_read() -> None:
    class Options:
        def __reduce__(self) -> Any:
            return Path, ("x",)

    for protocol in (2, 3, 4, 5):
        with pytest.raises(ValueError, match=r"it calls 'pathlib\S*Path', which no tensor needs"):
            read_pickle(pickle.dumps(Options(), protocol))
        with pytest.raises(ValueError, match="it is no tensor"):
            read_pickle(pickle.dumps({"a": [1, (2.5, None, True)], "b": "x" * 300}, protocol))


def test_what_a_pickle_calls_is_not_called(tmp_path: Path) -> None:
    command = f"touch {tmp_path}/called"
    for module, name in (("os", "system"), ("posix", "system"), ("builtins", "eval")):
        call = f"c{module}\n{name}\n".encode()
        data = PICKLE.replace(LAYOUT, call)
        assert f"it calls '{module}.{name}'" in refused(changed({"data.pkl": data}))
    call = pickle.dumps(type("C", (), {"__reduce__": lambda _: (os.system, (command,))})())
    assert "system', which no tensor needs" in refused(changed({"data.pkl": call}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"(cos\nsystem\nios\nsystem\n", "it has the opcode b'i'"),
        (b"\x82\x01", "it has the opcode b'\\x82'"),
        (b"]q\x00h\x00a", "it is no tensor"),
        (b"ctorch.hub\nload\n)R", "torch.hub.load makes it"),
        (b"ctorch.hub\nload\n]R", "it calls what is no name"),
        (b"h\x05", "it is damaged (KeyError)"),
        (b"t", "it is damaged (IndexError)"),
        (b"}]Ns", "keys that are no text"),
        (b"NK\x01a", "appends to what is no list"),
        (b"(X\x01\x00\x00\x00xNNNtQ", "what is no memory of a tensor"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n(NK\x00))tR", "has no memory"),
        (b"ctorch._tensor\n_rebuild_from_type_v2\nq\x00" + b"(h\x00N" * 3000 + b"(h\x00N)}t"
         + b"}t" * 3000 + b"R", "it is damaged (RecursionError)"),
        (b"X" + b"\xff" * 4, "it is damaged (IndexError)"),
        (b"X\x01\x00\x00\x00\xff", "it is damaged (UnicodeDecodeError)"),
        (b"N" * 70000, "it has 70003 bytes, expected at most 65536"),
    ],
)  # fmt: skip
def test_pickles_that_are_no_tensor(body: bytes, text: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its text is compared below
        read_pickle(pickled(body))
    assert text in str(caught.value)


def test_what_tensors_say_of_their_memory_is_checked() -> None:
    def with_sizes(sizes: bytes) -> bytes:
        return changed({"data.pkl": PICKLE.replace(b"K\x04K \x86", sizes)})

    huge = b"\x8a\x20" + b"\xff" * 31 + b"\x7f"
    assert "has the shape" in refused(with_sizes(b"K\x04" + huge + b"\x86"))
    assert "has the shape [-4, 32]" in refused(with_sizes(b"J\xfc\xff\xff\xffK \x86"))
    assert "has 128 bytes, expected 160" in refused(with_sizes(b"K\x05K \x86"))
    assert "3 sizes and 2 strides" in refused(with_sizes(b"K\x01K\x04K \x87"))
    assert "sizes that are no numbers" in refused(with_sizes(b"K\x04N\x86"))
    assert "'int8.weight.qdata' has 5 bytes, expected 128" in refused(changed({"data/0": b"short"}))
    assert "data/0' is missing" in refused(changed({"data/0": None}))
    assert "is kept without a tensor 'qdata'" in refused(
        changed({"data.pkl": PICKLE.replace(b"qdata", b"qdatb")})
    )
    assert "has 0 pickles" in refused(changed({"data.pkl": None}))
    assert "big-endian" in refused(changed({"byteorder": b"big"}))
    assert "no whole archive" in refused(zipped(members(WHOLE) | {WEIGHT: b"PK"}))


def test_pickles_that_are_cut_or_changed_are_refused_or_read() -> None:
    numbers = random.Random(0)
    for _ in range(400):
        data = bytearray(PICKLE)
        if numbers.random() < 0.2:
            del data[numbers.randrange(len(data)) :]
        for _ in range(numbers.randrange(1, 6)):
            if data:
                data[numbers.randrange(len(data))] = numbers.randrange(256)
        with suppress(ValueError):
            read_pickle(bytes(data))
    for _ in range(20):
        data = bytearray(WHOLE)
        for _ in range(numbers.randrange(1, 40)):
            data[numbers.randrange(len(data))] = numbers.randrange(256)
        with suppress(ingot.CompileError):
            read_source(bytes(data) if data[:4] == b"PK\x03\x04" else b"PK\x03\x04" + bytes(data))

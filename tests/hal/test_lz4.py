"""LZ4: what is compressed is read back, here and by the program of LZ4 itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from ingot.hal.errors import DataLoss
from ingot.hal.lz4 import compress, decompress

RNG = np.random.default_rng(3)
DRAWN = bytes(RNG.integers(0, 256, 5000, np.uint8))
TEXTS = {
    "zeros": bytes(100_000),
    "a period of 3": b"abc" * 5000,
    "far away": DRAWN + bytes(65535 - len(DRAWN)) + DRAWN + DRAWN,
    "too far away": DRAWN + bytes(RNG.integers(0, 2, 70_000, np.uint8)) + DRAWN,
    "few letters": bytes(RNG.integers(0, 3, 30_000, np.uint8)),
    "literals of 15 and 270": DRAWN[:40] + DRAWN[:15] + DRAWN[:40] + DRAWN[1000:1270] + DRAWN[:40],
    "short": bytes(40),
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_compressed_is_read_back(name: str, tmp_path: Path) -> None:
    data = TEXTS[name]
    made = compress(data)
    assert made is not None
    assert len(made) < len(data)
    assert decompress(made) == data
    if shutil.which("lz4") is None:
        return
    # the old kind of frame: blocks behind their lengths
    block = made[8:]
    frame = b"\x02\x21\x4c\x18" + len(block).to_bytes(4, "little") + block
    (tmp_path / "frame").write_bytes(frame)
    done = subprocess.run(["lz4", "-dc", tmp_path / "frame"], capture_output=True, check=True)
    assert done.stdout == data


def test_what_gets_no_shorter_stays() -> None:
    assert [compress(each) for each in (b"", b"a", DRAWN, bytes(12))] == [None] * 4


def test_what_stands_before_is_repeated() -> None:
    made = compress(DRAWN[100:] + b"end", DRAWN)
    assert made is not None
    assert len(made) < 60
    assert decompress(made, DRAWN) == DRAWN[100:] + b"end"
    for before in (b"", DRAWN[200:]):
        with pytest.raises(DataLoss, match="are damaged"):
            decompress(made, before)


def test_damage_is_named() -> None:
    made = compress(TEXTS["few letters"])
    assert made is not None
    forged = (1 << 60).to_bytes(8, "little") + made[8:]
    other = (len(TEXTS["few letters"]) + 1).to_bytes(8, "little") + made[8:]
    for data in (b"", made[:7], made[:-1], forged, other):
        with pytest.raises(DataLoss, match="compressed bytes of the module file are damaged"):
            decompress(data)

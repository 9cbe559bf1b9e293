"""A picture's colour, from the bytes of its file: native.py [MODULE.ingot] [PICTURE.ppm].

The model takes the bytes of a PPM file. No op decodes those: `acme.decode` is a function of the
application, here in Python, in native.c in C. What it gives is resized and looked at by ops.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

import ingot
from ingot import ops

COLOURS = ("red", "green", "blue")


@ingot.program(ingot.spec("u8[length]"))
def colour(file: Any) -> Any:
    """The channel that is brightest around the middle, and the shares of all."""
    picture = ops.native("acme.decode", "(u8[length]) -> (u8[height,width,3])", file)
    small = ops.resize(ops.astype(picture, "f32") / 255, (16, 16), axes=(0, 1))
    middle = small[4:12, 4:12]
    channels = ops.mean(middle, axis=(0, 1))
    return {"best": ops.argmax(channels), "shares": channels / ops.sum(channels)}


def decode(file: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The pixels of a binary PPM file: u8[height,width,3]."""
    header = re.match(rb"P6\s+(\d+)\s+(\d+)\s+255\s", bytes(file[:64]))
    if header is None:
        raise ValueError("this is no binary PPM file of 8 bits")
    width, height = int(header[1]), int(header[2])
    return file[header.end() :][: height * width * 3].reshape(height, width, 3)


def write_picture(path: Path) -> None:
    """A green disc on red."""
    y, x = np.mgrid[:48, :64]
    disc = (x - 32) ** 2 + (y - 24) ** 2 < 400
    pixels = np.where(disc[..., None], np.uint8([20, 200, 60]), np.uint8([220, 10, 30]))
    path.write_bytes(b"P6 64 48 255\n" + pixels.astype(np.uint8).tobytes())


def main(module: Path, picture: Path) -> None:
    ingot.compile(colour).save(module)
    if not picture.exists():
        write_picture(picture)
    model = ingot.load(module, natives={"acme.decode": decode})
    best, shares = model(np.fromfile(picture, np.uint8))
    print(f"{COLOURS[best.item()]}: {' '.join(f'{share:.3f}' for share in shares.numpy())}")


if __name__ == "__main__":
    given = [Path(each) for each in sys.argv[1:]]
    main(*given, *[Path("colour.ingot"), Path("picture.ppm")][len(given) :])

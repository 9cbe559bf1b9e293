"""Compile, save, load, call: y = x + 1. With an argument, keeps the module at that path.

`hello.c` runs the module that this program saves.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import ingot


def main(path: Path) -> int:
    module = ingot.compile(Path(__file__).with_name("hello.onnx"))
    module.save(path)
    model = ingot.load(path)
    y = model([1, 2, 3, 4])
    print(model.signature)
    print(*y.numpy().tolist())
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with TemporaryDirectory() as folder:
        sys.exit(main(Path(folder) / "hello.ingot"))

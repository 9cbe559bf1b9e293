"""The Python package on Windows and macOS, as far as Linux can tell: its extension is built for
both, and nothing is used that Python for Windows lacks."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.emulators import need_zig
from tests.support.object_files import macho_symbols

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / ".ci"))

WITHOUT = """
import os, subprocess, sys, tempfile, threading
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("O_NONBLOCK", "fchmod", "fork", "getuid", "geteuid", "mkfifo", "sched_getaffinity",
             "sysconf", "O_NOFOLLOW", "O_DIRECTORY", "preadv"):
    delattr(os, name)
os.supports_dir_fd.clear()
"""
USE = """
import numpy as np
import ingot
import onnx
source, folder = sys.argv[1:]
onnx.save(onnx.load(source), folder + "/apart.onnx", save_as_external_data=True, size_threshold=0,
          location="weights.bin")
path = os.path.join(folder, "hello.ingot")
for _ in range(2):  # anew, then over what is there, from the cache
    ingot.compile(folder + "/apart.onnx").save(path)
model = ingot.load(path)
print(np.asarray(model(np.arange(4, dtype=np.float32))).tolist())
model.close()
assert any(each.startswith(("weights-", "entry-")) for each in os.listdir(folder + "/cache"))
"""


def test_the_package_uses_nothing_that_windows_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "cache"))
    words = [str(ROOT / "samples/hello/hello.onnx"), str(tmp_path)]
    said = [
        subprocess.run(
            [sys.executable, "-c", text, *words], capture_output=True, text=True, check=False
        )
        for text in ("import os, sys" + USE, WITHOUT + USE)
    ]
    assert [each.stderr for each in said] == ["", ""]
    assert said[0].stdout == said[1].stdout != ""


@pytest.mark.slow
def test_the_extension_of_windows_needs_what_python_exports(tmp_path: Path) -> None:
    """The linker knows the names of python3.dll only."""
    need_zig()
    from foreign import build_extension

    path = build_extension("win_amd64", ROOT, tmp_path, "-Os")
    assert b"python3.dll\0" in path.read_bytes()


@pytest.mark.slow
def test_the_extension_of_macos_needs_what_python_exports(tmp_path: Path) -> None:
    need_zig()
    from foreign import build_extension, stable_names

    data = build_extension("macosx_11_0_arm64", ROOT, tmp_path, "-O0").read_bytes()
    functions, others = stable_names((3, 11))  # a process of 3.10 has PyObject_GetBuffer too
    undefined = [each for each in macho_symbols(data) if each.is_undefined]
    looked_up = {each.name for each in undefined if each.library == 0}
    assert {"PyType_FromSpec", "_Py_NoneStruct"} <= looked_up <= functions | others
    assert struct.pack("<I", 0x1D) in data[:4096]  # LC_CODE_SIGNATURE

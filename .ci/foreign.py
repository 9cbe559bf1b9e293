"""The Python extension for Windows and macOS, made by ziglang without a Python of theirs.

cffi writes its C source on any machine, and the limited API of Python's headers is the same
everywhere. Windows links with a library of the names that python3.dll exports; macOS finds them in
the process that loads the extension.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from abi3info import DATAS, FUNCTIONS


class System(NamedTuple):
    """A platform of wheels: what zig calls it, and what Python loads there."""

    target: str
    file: str
    python: tuple[int, int]
    """The oldest Python. On Windows PyObject_GetBuffer is exported from 3.11 on."""


SYSTEMS: Mapping[str, System] = {
    "win_amd64": System("x86_64-windows-gnu", "_ingot.pyd", (3, 11)),
    "macosx_11_0_x86_64": System("x86_64-macos.11.0", "_ingot.abi3.so", (3, 10)),
    "macosx_11_0_arm64": System("aarch64-macos.11.0", "_ingot.abi3.so", (3, 10)),
}
"""By the tag of the platform."""


def stable_names(python: tuple[int, int]) -> tuple[set[str], set[str]]:
    """The functions and the data that every Python from this one on exports."""
    functions, data = (
        {
            each.symbol.name
            for each in table.values()
            if (each.added.major, each.added.minor) <= python
        }
        for table in (FUNCTIONS, DATAS)
    )
    return functions, data


def build_extension(tag: str, source: Path, folder: Path, optimize: str = "-O3") -> Path:
    """The extension of a platform, in the folder. CalledProcessError: it could not be built."""
    system = SYSTEMS[tag]
    headers = folder / "python"
    shutil.copytree(
        sysconfig.get_path("include"), headers, ignore=shutil.ignore_patterns("internal")
    )
    shutil.copy(Path(__file__).with_name("pyconfig.h"), headers)
    extension = source / "hal" / "extension"
    written = folder / "_ingot.c"
    subprocess.run([sys.executable, extension / "build_extension.py", written], check=True)
    result = folder / system.file
    limit = "0x{:02X}{:02X}0000".format(*system.python)
    includes = (headers, source / "csrc" / "include", source / "csrc", extension)
    _zig(
        folder,
        *("cc", "-target", system.target, optimize, "-shared", "-s", "-fno-sanitize=undefined"),
        *("-ffp-contract=off", "-fvisibility=hidden", "-DNDEBUG", "-DINGOT_OPENCL"),
        f"-DPy_LIMITED_API={limit}",
        "-Wno-incompatible-pointer-types",  # cffi knows no calling convention of kernels
        *(f"-I{each}" for each in includes),
        *(written, *sorted(extension.glob("*.c")), source / "csrc" / "ingot.c"),
        *_python_library(tag, folder),
        *("-o", result),
    )
    return result


def _python_library(tag: str, folder: Path) -> list[str | Path]:
    """What stands for Python when the extension is linked."""
    if tag.startswith("macosx"):
        return ["-Wl,-undefined,dynamic_lookup"]
    functions, data = stable_names(SYSTEMS[tag].python)
    names = [*sorted(functions), *(f"{each} DATA" for each in sorted(data))]
    (folder / "python3.def").write_text("\n".join(["LIBRARY python3.dll", "EXPORTS", *names, ""]))
    library = folder / "python3.lib"
    _zig(folder, "dlltool", "-m", "i386:x86-64", "-d", folder / "python3.def", "-l", library)
    return [library]


def _zig(folder: Path, *words: str | Path) -> None:
    """In the folder: if zig lies below the one where it runs, it calls its files otherwise, and
    compiles its libraries again."""
    subprocess.run([sys.executable, "-m", "ziglang", *words], cwd=folder, check=True)

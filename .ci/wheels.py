"""Builds the source archive, and from it, without a network, the wheels: of Linux for glibc 2.17
and for musl, on x86-64 and aarch64; of Windows, and of macOS 11 on Intel and Apple silicon. Checks
what each needs, and runs that of this machine.

    pip install ".[wheels]"; python .ci/wheels.py OUTPUT
"""

from __future__ import annotations

import os
import platform
import stat
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

from elftools.elf.elffile import ELFFile
from foreign import SYSTEMS, build_extension

ROOT = Path(__file__).resolve().parents[1]
GREATEST = 3_000_000  # bytes of a wheel
TARGETS = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
}
"""The tags of platforms, and what the cross compiler calls them."""

HELLO = """
import numpy as np
import ingot
ingot.compile("samples/hello/hello.onnx").save("{module}")
print(np.asarray(ingot.load("{module}")(np.arange(4, dtype=np.float32))))
"""


def run(*command: str | Path, environment: Mapping[str, str] | None = None) -> str:
    """What a command prints; SystemExit: it failed."""
    given = {**os.environ, **(environment or {})}
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, capture_output=True, text=True, env=given
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def build_wheel(tag: str, source: Path, output: Path, work: Path) -> Path:
    """The wheel of a platform, made from the source archive."""
    spec = find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        sys.exit('ziglang is missing: pip install ".[wheels]"')
    compiler = work / f"cc-{tag}"
    zig = Path(spec.submodule_search_locations[0]) / "zig"
    compiler.write_text(f'#!/bin/sh\nexec "{zig}" cc -target {TARGETS[tag]} "$@"\n')
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    run(
        *(sys.executable, "-m", "pip", "wheel", source, "--no-deps", "--no-build-isolation"),
        *("--no-index", "--wheel-dir", output, f"--config-settings=build-dir={work / tag}"),
        environment={"CC": str(compiler), "_PYTHON_HOST_PLATFORM": tag},
    )
    (wheel,) = output.glob(f"ingot-*-cp310-abi3-{tag}.whl")
    return wheel


def build_foreign(tag: str, like: Path, source: Path, output: Path, work: Path) -> Path:
    """The wheel of another system: one of Linux with the extension of that system."""
    folder = work / tag
    folder.mkdir()
    run(sys.executable, "-m", "wheel", "unpack", like, "--dest", folder)
    (unpacked,) = folder.glob("ingot-*")
    (unpacked / "ingot/hal/_ingot.abi3.so").unlink()
    build_extension(tag, source, folder).rename(unpacked / "ingot/hal" / SYSTEMS[tag].file)
    run(sys.executable, "-m", "wheel", "pack", unpacked, "--dest-dir", folder)
    (packed,) = folder.glob("*.whl")
    python = "cp{}{}".format(*SYSTEMS[tag].python)
    tags = ("--python-tag", python, "--abi-tag", "abi3", "--platform-tag", tag)
    run(sys.executable, "-m", "wheel", "tags", *tags, packed)
    (wheel,) = folder.glob(f"ingot-*-{python}-abi3-{tag}.whl")
    return wheel.rename(output / wheel.name)


def check_wheel(tag: str, wheel: Path) -> None:
    """SystemExit: it is too large, or needs more than its platform has."""
    length = wheel.stat().st_size
    if length > GREATEST:
        sys.exit(f"{wheel.name} has {length} bytes, expected at most {GREATEST}")
    if tag.startswith("musllinux"):  # of which auditwheel knows nothing where libc is glibc
        needed = needed_libraries(wheel)
        if needed != {"libc.so"}:
            sys.exit(f"{wheel.name} needs {', '.join(sorted(needed))}: expected libc.so alone")
    elif tag.startswith("manylinux"):
        said = " ".join(run(sys.executable, "-m", "auditwheel", "show", wheel).split())
        if f'consistent with the following platform tag: "{tag}"' not in said:
            sys.exit(f"{wheel.name}: {said}")
    print(f"{wheel.name}: {length} bytes")


def needed_libraries(wheel: Path) -> set[str]:
    """The libraries that the extension in a wheel names."""
    with zipfile.ZipFile(wheel) as archive, archive.open("ingot/hal/_ingot.abi3.so") as file:
        dynamic = ELFFile(BytesIO(file.read())).get_section_by_name(".dynamic")
        return {tag.needed for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_NEEDED"}


def try_wheel(wheel: Path, work: Path) -> None:
    """Install the wheel into a fresh environment, where it compiles and runs a model."""
    environment = work / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}[onnx]")
    print(run(python, "-c", HELLO.format(module=work / "hello.ingot")).strip())


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("use: python .ci/wheels.py OUTPUT")
    output = Path(sys.argv[1]).resolve()
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", output)
    (source,) = output.glob("ingot-*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        with tarfile.open(source) as archive:
            archive.extractall(work / "source", filter="data")
        (unpacked,) = (work / "source").iterdir()
        wheels = {tag: build_wheel(tag, source, output, work) for tag in TARGETS}
        like = next(iter(wheels.values()))
        wheels |= {tag: build_foreign(tag, like, unpacked, output, work) for tag in SYSTEMS}
        for tag, wheel in wheels.items():
            check_wheel(tag, wheel)
        here = wheels.get(f"manylinux_2_17_{platform.machine()}")
        if here is not None and platform.libc_ver()[0] == "glibc":
            try_wheel(here, work)


if __name__ == "__main__":
    main()

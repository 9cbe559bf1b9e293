"""Builds the npm package `ingot-runtime`: the runtime as WebAssembly, by ziglang, and beside it
the sources of web/.

    python web/build.py [FOLDER]    # build/web/ingot-runtime, for `npm install FOLDER`
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WEB = ROOT / "web"
PACKAGE = ROOT / "build" / "web" / "ingot-runtime"
TARGET = ("-target", "wasm32-freestanding")
PROCESSOR = "-mcpu=generic+bulk_memory+bulk_memory_opt"
INCLUDE = ("-Icsrc", "-Icsrc/include", "-Icsrc/platform/freestanding")
FLAGS = ("-std=c11", "-Oz", "-Wall", "-Wextra", "-Werror", "-fno-sanitize=undefined")
LINK = (
    *("--no-entry", "--strip-all", "--import-memory", "--initial-memory=2097152"),
    *("-z", "stack-size=262144"),
    *("--export-table", "--growable-table", "--export=__stack_pointer"),
)


def exports() -> Iterator[str]:
    """The functions of ingot.h that the package calls; those of runtime.c say so themselves."""
    called = set[str]()
    for path in WEB.glob("src/*.js"):
        called.update(re.findall(r"\bapi\.(ingot_\w+)", path.read_text(encoding="utf-8")))
    yield from sorted(name for name in called if not name.startswith("ingot_web_"))


RUNTIMES = {
    "ingot.wasm": (PROCESSOR,),
    "ingot-threads.wasm": (
        f"{PROCESSOR}+atomics",
        *("-Wl,--shared-memory", "-Wl,--max-memory=4294901760"),
    ),
}
"""By name: what the compiler is told."""


def clear(folder: Path, mark: str) -> None:
    """An empty folder. SystemExit: it has files, and none called `mark`, which builds
    write early."""
    is_other = folder.is_file() or (folder.is_dir() and any(folder.iterdir()))
    if is_other and not (folder / mark).is_file():
        sys.exit(f"{folder} is of something else: name a folder that is empty or not there")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def build(package: Path) -> None:
    """Writes the package. SystemExit: the compiler fails, or the folder is of something else."""
    package = package.resolve()
    clear(package, "side_modules.js")
    for path in (WEB / "README.md", ROOT / "LICENSE", *WEB.glob("src/*.[jt]s")):
        shutil.copy(path, package)
    about = json.loads((WEB / "package.json").read_text(encoding="utf-8"))
    header = (ROOT / "csrc" / "include" / "ingot" / "ingot.h").read_text(encoding="utf-8")
    (about["version"],) = re.findall(r'#define INGOT_VERSION "(.*)"', header)
    (package / "package.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    link = [f"-Wl,{word}" for word in (*LINK, *(f"--export={name}" for name in exports()))]
    command = [sys.executable, "-m", "ziglang", "cc", *TARGET, *FLAGS, *INCLUDE, *link]
    for name, options in RUNTIMES.items():
        output = ["web/src/runtime.c", "-o", str(package / name)]
        if subprocess.run([*command, *options, *output], cwd=ROOT, check=False).returncode != 0:
            sys.exit("the runtime does not build; ziglang is in the extra: pip install '.[cross]'")
        (package / name).chmod(0o644)


def parse_folder(about: str, default: Path) -> Path:
    """What the command line names."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=default, help="what is made")
    folder: Path = parser.parse_args().folder
    return folder


if __name__ == "__main__":
    output = parse_folder(__doc__, PACKAGE)
    build(output)
    print(f"{output}: ingot.wasm has {(output / 'ingot.wasm').stat().st_size} bytes")

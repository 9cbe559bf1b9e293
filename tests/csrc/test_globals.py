"""The C runtime has no mutable globals: its state hangs on the instance."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_no_object_has_writable_data(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None or shutil.which("nm") is None:
        pytest.skip(f"needs {compiler} and nm")
    sources = sorted((ROOT / "csrc").glob("*/**/*.c"))
    assert len(sources) > 10
    include = [f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'csrc/include'}"]
    for folder in sorted({source.parent for source in sources}):  # file names repeat
        objects = tmp_path / folder.relative_to(ROOT / "csrc")
        objects.mkdir(parents=True, exist_ok=True)
        # Without -fPIC, so that tables of pointers count as the constants that they are.
        subprocess.run(
            [compiler, "-std=c11", "-O0", "-fno-pic", *include, "-c"]
            + [str(source) for source in sources if source.parent == folder],
            cwd=objects,
            check=True,
        )
    objects_built = sorted(map(str, tmp_path.glob("**/*.o")))
    assert len(objects_built) == len(sources)
    listing = subprocess.run(
        ["nm", "-A", *objects_built], capture_output=True, text=True, check=True
    ).stdout
    writable = [
        line for line in listing.splitlines() if line.split()[-2] in ("b", "B", "d", "D", "C")
    ]
    assert writable == []

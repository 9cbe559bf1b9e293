"""The source archive has what a wheel is built from, and nothing of this checkout's own."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest
from scikit_build_core.build import build_sdist

FOLDERS = ("csrc", "compiler", "hal", "runtime", "python")


@pytest.mark.slow
def test_the_source_archive_is_the_sources(
    tmp_path: Path, project_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project_root)
    with tarfile.open(tmp_path / build_sdist(str(tmp_path))) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert {name.partition("/")[0] for name in files if "/" in name} == set(FOLDERS)
    command = ["git", "ls-files", *FOLDERS]
    known = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert {"CMakeLists.txt", "pyproject.toml", "LICENSE", *known} <= files
    assert not any(name.endswith(".so") for name in files)

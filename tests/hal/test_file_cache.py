"""The user's cache: what is in it, what leaves it, and what many processes do with it at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ingot.hal.file_cache import WEIGHTS, Cache, default_cache

ROOT = Path(__file__).parents[2]


def test_what_was_not_used_for_longest_leaves_the_cache(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    keys = [f"{place:064x}" for place in range(4)]
    for place, key in enumerate(keys):
        cache.write(key, bytes(100))
        os.utime(tmp_path / f"entry-{key}", (place, place))
    (tmp_path / "notes.txt").write_text("not ours")
    assert cache.read(keys[0]) == bytes(100)  # which makes it the newest
    names = [f"entry-{key}" for key in keys]
    assert [file.path.name for file in cache.files()] == [*names[1:], names[0]]
    cache.trim(2 * (100 + 32))
    assert [file.path.name for file in cache.files()] == [names[3], names[0]]
    cache.trim(0)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert Cache(None).files() == Cache(tmp_path / "gone").files() == []


def test_entries_that_are_damaged_or_are_those_of_others_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, keys = Cache(tmp_path), ["a" * 64, "b" * 64]
    for key in keys:
        cache.write(key, key.encode())
    one, two = (tmp_path / f"entry-{key}" for key in keys)
    data = one.read_bytes()
    for other in (two.read_bytes(), data[:-1], data + b"a", b""):
        one.write_bytes(other)
        assert cache.read(keys[0]) is None
    one.write_bytes(data)
    assert cache.read(keys[0]) == keys[0].encode()

    def fail(path: Path) -> None:
        raise MemoryError

    monkeypatch.setattr(Path, "read_bytes", fail)  # as of a file with a hole
    assert cache.read(keys[0]) is None


def test_cache_folder_is_private_and_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "new"))
    folder = default_cache().folder
    assert folder is not None
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert default_cache().folder is None
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "file" / "below"))
    assert default_cache().folder is None


def test_unfinished_files_of_processes_that_were_ended_leave_the_cache(tmp_path: Path) -> None:
    names = [".new-abc_1x", f".{'0' * 16}.ingot", f"opencl-{'0' * 64}.A1b2C3"]
    for name in names:
        (tmp_path / name).write_bytes(b"half")
        (tmp_path / f"{name}-of-others").write_bytes(b"half")
    cache = Cache(tmp_path)
    cache.trim(0)  # somebody may be writing them
    assert len(list(tmp_path.iterdir())) == 6
    for name in names:
        os.utime(tmp_path / name, (0, time.time() - 4000))
    assert sorted(file.path.name for file in cache.files()) == sorted(names)
    cache.trim(0)
    assert all(path.name.endswith("-of-others") for path in tmp_path.iterdir())


def test_a_file_that_is_replaced_while_it_is_read_keeps_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, key, now = Cache(tmp_path), "0" * 64, time.time_ns()
    path = tmp_path / f"entry-{key}"

    def replaced() -> int:
        cache.write(key, b"new")
        os.utime(path, (5, 5))
        return now

    cache.write(key, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", replaced)
        assert cache.read(key) == b"old"
    assert (path.stat().st_atime, path.stat().st_mtime) == (5, 5)

    def gone(*_: object, **__: object) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "utime", gone)
    assert cache.read(key) == b"new"


def test_weights_and_kernels_have_limits_of_their_own(tmp_path: Path) -> None:
    cache, weights = Cache(tmp_path), [f"{WEIGHTS}{place:064x}" for place in range(2)]
    for place, name in enumerate(weights):
        (tmp_path / name).write_bytes(bytes(1000))
        os.utime(tmp_path / name, (place, place))
    cache.write("0" * 64, b"kernel")
    cache.trim(500, weights=False)
    assert [file.path.name for file in cache.files()] == [*weights, f"entry-{'0' * 64}"]
    cache.trim(1500, weights=True)
    assert [file.path.name for file in cache.files()] == [weights[1], f"entry-{'0' * 64}"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "seconds"), [(3, 1), pytest.param(8, 30, marks=pytest.mark.long)]
)
def test_processes_share_one_folder(processes: int, seconds: int, tmp_path: Path) -> None:
    """They compile, load, map weights, read, write and trim at once; each gets what is right."""
    environment = os.environ | {"INGOT_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-m", "tests.support.cache_users", str(tmp_path), str(seconds)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [
        subprocess.Popen([*program, str(seed)], cwd=ROOT, env=environment, **pipes)  # type: ignore[call-overload]
        for seed in range(processes)
    ]
    done = [each.communicate(timeout=600 + seconds) for each in running]
    assert [error for _, error in done] == [""] * processes
    assert all(set(told.split()) == {"compile", "map", "keep", "trim"} for told, _ in done)
    assert all(not path.name.startswith(".") for path in (tmp_path / "cache").iterdir())

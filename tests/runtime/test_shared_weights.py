"""What was made of weights is a file, which sessions and processes share."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save, save_file

import ingot
from ingot.hal.file_cache import Cache
from ingot.runtime import parameters, shared_weights
from ingot.runtime.program import Program
from tests.support.parameters import (
    B,
    W,
    X,
    compiled,
    expected,
    identity,
    safetensors,
    saved,
    shards,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(compiled(), tmp_path_factory)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INGOT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def packed_in(cache: Path) -> list[Path]:
    return sorted(cache.glob("weights-*"))


def test_equal_weights_share_a_file(path: Path, cache: Path, tmp_path: Path) -> None:
    sources: dict[str, Any] = {"": safetensors(tmp_path), "more": {"b": B}}
    for _ in range(2):
        model = ingot.load(path, parameters=sources, share_weights=True)
        np.testing.assert_array_equal(model(X), expected())
    assert len(packed_in(cache)) == 1
    save_file({"w": -W, "b": B}, sources[""])
    model = ingot.load(path, parameters=sources, share_weights=True)
    np.testing.assert_array_equal(model(X), expected(-W))
    assert len(packed_in(cache)) == 2
    for b in (B, -B):
        sources["more"] = {"b": b}
        model = ingot.load(path, parameters=sources, share_weights="")
        np.testing.assert_array_equal(model(X), expected(-W, b))
    assert len(packed_in(cache)) == 3
    model = ingot.load(path, parameters=shards(tmp_path), share_weights=True)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model))(X), expected())
    assert len(packed_in(cache)) == 4


def test_shared_files_that_change_places_are_not_taken(path: Path, cache: Path) -> None:
    for w in (W, -W):
        ingot.load(path, parameters={"w": w, "b": B}, share_weights=True)
    one, other = packed_in(cache)
    one.rename(cache / "between")
    other.rename(one)
    (cache / "between").rename(other)
    for w in (W, -W):
        model = ingot.load(path, parameters={"w": w, "b": B}, share_weights=True)
        np.testing.assert_array_equal(model(X), expected(w))


def test_files_that_are_written_while_they_are_read_are_refused(
    path: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the weights would be those before, and the shared file be found as theirs."""
    weights, find = tmp_path / "weights.safetensors", parameters._Finder.find
    save_file({"w": W, "b": B}, weights)

    def found(finder: Any, scope: str, key: str, span: Any) -> Any:
        weights.write_bytes(save({"w": -W, "b": B, "c": B}))
        return find(finder, scope, key, span)

    for is_shared in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(parameters._Finder, "find", found)
            with pytest.raises(ingot.DataLoss, match="was written to"):
                ingot.load(path, parameters=weights, share_weights=is_shared)
        assert not packed_in(cache)
        model = ingot.load(path, parameters=weights)
        np.testing.assert_array_equal(model(X), expected(-W))
        save_file({"w": W, "b": B}, weights)

    def hashed(*given: Any) -> str:
        weights.write_bytes(save({"w": -W, "b": B, "c": B}))
        return name_of(*given)

    name_of = shared_weights._key
    monkeypatch.setattr(shared_weights, "_key", hashed)
    model = ingot.load(path, parameters=weights, share_weights=True)
    np.testing.assert_array_equal(model(X), expected(-W))
    assert not packed_in(cache)


def test_a_process_with_older_weights_loads_those_that_are_there(
    path: Path, tmp_path: Path
) -> None:
    models = []
    for w in (W, -W):
        save_file({"w": w, "b": B}, tmp_path / "weights.safetensors")
        models.append(ingot.load(path, parameters=tmp_path / "weights.safetensors"))
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(models[-1]))(X), expected(w))


def test_weights_that_are_written_with_the_same_times_are_seen(
    path: Path, cache: Path, tmp_path: Path
) -> None:
    weights = tmp_path / "weights.safetensors"
    for w in (W, -W):  # as archives do that give files the times of their entries
        weights.write_bytes(save({"w": w, "b": B}))
        os.utime(weights, (1, 1))
        model = ingot.load(path, parameters=weights, share_weights=True)
        np.testing.assert_array_equal(model(X), expected(w))


def test_damaged_shared_files_are_made_anew(path: Path, cache: Path) -> None:
    weights = {"w": W, "b": B}
    ingot.load(path, parameters=weights, share_weights=True)
    (file,) = packed_in(cache)
    data = file.read_bytes()
    for wrong in (data[:-1], b"nothing", data[:100] + b"?" + data[101:]):
        file.unlink()
        file.write_bytes(wrong)
        model = ingot.load(path, parameters=weights, share_weights=True)
        np.testing.assert_array_equal(model(X), expected())
        ingot.load(path, parameters=weights, share_weights=True)
        assert file.read_bytes() == data


def test_processes_that_start_together_map_one_file(cache: Path, tmp_path: Path) -> None:
    ingot.compile(identity(1 << 14)).save(tmp_path / "identity.ingot")
    save_file({"w": np.ones(1 << 14, np.float32)}, tmp_path / "w.safetensors")
    code = (
        "import sys, ingot; model = ingot.load(sys.argv[1], parameters=sys.argv[2], "
        "share_weights=True); maps = open('/proc/self/maps').read(); "
        "print([line.split()[4] for line in maps.splitlines() if 'weights-' in line][0])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "identity.ingot")]
    command.append(str(tmp_path / "w.safetensors"))
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    nodes = {each.communicate()[0] for each in running}
    assert nodes == {f"{packed_in(cache)[0].stat().st_ino}\n"}


def test_what_other_processes_do_with_a_shared_file_does_no_harm(
    path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {"w": W, "b": B}
    ingot.load(path, parameters=weights, share_weights=True)
    (file,) = packed_in(cache)
    start, uses = parameters._start, []

    def used(source: Any) -> bytes:
        uses.append(Cache(cache).file(file.name))
        return start(source)

    def removed(source: Any) -> bytes:
        file.unlink(missing_ok=True)
        return start(source)

    for meanwhile, is_there in ((used, True), (removed, False)):
        with monkeypatch.context() as patch:
            patch.setattr(parameters, "_start", meanwhile)
            model = ingot.load(path, parameters=weights, share_weights=True)
        np.testing.assert_array_equal(model(X), expected())
        assert packed_in(cache) == [file] * is_there
    assert uses == [file]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork")
def test_a_process_that_is_forked_meanwhile_does_not_keep_others_waiting(tmp_path: Path) -> None:
    import fcntl

    with shared_weights._alone(tmp_path):
        child = os.fork()
        if child == 0:
            signal.pause()
    try:
        lock = os.open(tmp_path, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(lock)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_weights_load_where_there_are_no_locks_and_where_the_folder_goes(
    path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    weights = {"w": W, "b": B}
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", fail)
        model = ingot.load(path, parameters=weights, share_weights=True)
    np.testing.assert_array_equal(model(X), expected())
    assert len(packed_in(cache)) == 1

    def save(program: Any, *_: object) -> None:
        shutil.rmtree(cache)

    packed_in(cache)[0].unlink()
    monkeypatch.setattr(Program, "save_weights", save)
    model = ingot.load(path, parameters=weights, share_weights=True)
    np.testing.assert_array_equal(model(X), expected())


def test_what_cannot_be_shared_is_told(path: Path, cache: Path) -> None:
    with pytest.raises(ingot.InvalidArgument, match="for one module"):
        ingot.load({"a": path}, parameters={"w": W, "b": B}, share_weights=True)
    with pytest.raises(ingot.NotFound, match="needs 2 parameters"):
        ingot.load(path, share_weights=True)
    with pytest.raises(ingot.NotFound, match=r"no parameters of scope 'x'; its scopes are: ''"):
        ingot.load(path, parameters={"w": W, "b": B}, share_weights="x")
    index = path.parent / "model.json"
    index.write_text(json.dumps({"weight_map": {"w": "../w.safetensors"}}))
    with pytest.raises(ingot.DataLoss, match="no map of tensors to files beside it"):
        ingot.load(path, parameters=index, share_weights=True)
    assert not packed_in(cache)


def test_an_index_names_files_beside_it_alone(path: Path, cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    save_file({"w": W, "b": B}, tmp_path / "outside.safetensors")
    index = folder / "model.safetensors.index.json"
    for name in ("../outside.safetensors", str(tmp_path / "outside.safetensors"), "/dev/zero", ""):
        index.write_text(json.dumps({"weight_map": {"w": name, "b": name}}))
        for shared in (False, True):
            with pytest.raises(ingot.DataLoss, match="beside"):
                ingot.load(path, parameters=index, share_weights=shared)
    assert not list(cache.glob("*"))


def test_a_folder_is_not_searched_for_weights(path: Path, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "model" / "deep").mkdir(parents=True)
    save_file({"w": W, "b": B}, tmp_path / "model" / "deep" / "model.safetensors")
    with pytest.raises(ingot.NotFound, match=r"index\.json"):
        ingot.load(path, parameters=tmp_path / "model", share_weights=True)
    assert not list(cache.glob("*"))  # where hashes of files are kept

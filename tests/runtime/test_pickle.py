"""Models travel to other processes: by path or bytes, with their state, loaded once."""

from __future__ import annotations

import gc
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.runtime import origin
from tests.support.assembler import copy_module, total_module

VALUES = np.arange(4, dtype=np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "total.ingot"
    path.write_bytes(total_module())
    return path


def test_a_pickle_has_the_path_and_the_state(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    model = ingot.load(path.name)
    model(5)
    pickled = pickle.dumps(model)
    assert len(pickled) < 1000
    monkeypatch.chdir("/")
    other = pickle.loads(pickled)
    assert int(other(1)) == 106
    assert int(model(2)) == 107


def test_a_pickle_has_the_bytes_of_a_module_without_a_file() -> None:
    module = copy_module(rank=1)
    other = pickle.loads(pickle.dumps(ingot.load(module, threads=1)))
    np.testing.assert_array_equal(other(VALUES), VALUES)
    assert other.device == "cpu://?threads=1"


def test_a_process_loads_once_for_all_models_of_a_file(path: Path) -> None:
    pickled = pickle.dumps(ingot.load(path))
    gc.collect()
    known = len(origin._programs)
    first, second = pickle.loads(pickled), pickle.loads(pickled)
    assert first._program is second._program
    assert len(origin._programs) == known + 1
    del first, second
    gc.collect()
    assert len(origin._programs) == known


def _run(model: ingot.Model, x: int) -> int:
    return int(model(x))


@pytest.mark.slow
def test_another_process_runs_a_model(path: Path) -> None:
    model = ingot.load(path)
    model(10)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(_run, model, 5).result() == 115


def test_a_changed_file_is_refused(path: Path) -> None:
    pickled = pickle.dumps(ingot.load(path))
    gc.collect()
    path.write_bytes(copy_module(rank=2))
    with pytest.raises(ingot.FailedPrecondition, match="is not the one that the pickled model"):
        pickle.loads(pickled)
    path.unlink()
    with pytest.raises(ingot.NotFound, match="there is no file"):
        pickle.loads(pickled)


def test_what_cannot_travel_is_said(path: Path) -> None:
    with pytest.raises(TypeError, match=r"parameters were given as arrays.* the path of a file"):
        pickle.dumps(ingot.load(path, parameters={"unused": VALUES}))
    model = ingot.load(path, device=ingot.devices()[0])
    assert pickle.loads(pickle.dumps(model)).device == model.device

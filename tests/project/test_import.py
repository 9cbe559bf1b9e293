"""`import ingot` is light, and running a module needs neither compiler nor extras."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ingot

HEAVY = ("onnx", "jax", "torch", "ml_dtypes", "cffi", "numpy", "ingot.compiler", "pyopencl")


def _loaded_after(program: str) -> set[str]:
    code = f"{program}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_alone_loads_nothing_heavy() -> None:
    assert _loaded_after("import ingot") & set(HEAVY) == set()


def test_running_needs_only_numpy_and_the_extension() -> None:
    loaded = _loaded_after("import ingot; ingot.load; ingot.devices()")
    assert loaded & {*HEAVY, "pycparser"} <= {"numpy"}


def test_masks_that_nobody_made_load_nothing() -> None:
    taken = _loaded_after("import ingot, numpy; ingot.Array.from_numpy(numpy.zeros(3))")
    assert ("numpy.ma" in taken) == ("numpy.ma" in _loaded_after("import numpy"))


@pytest.mark.parametrize("name", ingot.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(ingot, name) is not None
    assert name in dir(ingot)


def test_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'ingot' has no attribute 'other'"):
        ingot.other  # noqa: B018

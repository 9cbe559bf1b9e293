"""Handles of C objects."""

from __future__ import annotations

import copy
import pickle

import pytest

from ingot.hal import native
from ingot.hal.native import Handle, ffi


def test_a_handle_is_neither_pickled_nor_copied() -> None:
    handle = Handle(ffi.NULL, lambda pointer: None)
    for take in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=r"load it again, or fork\(\) the model"):
            take(handle)


def test_a_handle_may_outlive_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """When Python ends, it clears the names of modules before it frees what caches hold."""
    released: list[object] = []
    handle = Handle(ffi.cast("void *", 1), released.append)
    for name in set(vars(native)) - {"Handle", "ffi"}:
        if not name.startswith("__"):
            monkeypatch.setattr(native, name, None)
    del handle
    assert len(released) == 1

"""Garbage is collected as before once the compiler is done, whatever it did."""

from __future__ import annotations

import gc

import pytest

from ingot.compiler.rare_collections import rare_collections


def test_the_threshold_is_put_back() -> None:
    before = gc.get_threshold()
    with rare_collections():
        assert gc.get_threshold()[0] > before[0]
        with pytest.raises(ValueError, match="inside"), rare_collections():
            raise ValueError("inside")
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before


def test_collections_that_are_off_stay_off() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(0)
        with rare_collections():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)

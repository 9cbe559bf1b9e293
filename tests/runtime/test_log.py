"""What the C runtime logs arrives at the logger "ingot"."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import ingot

HELLO = Path(__file__).parents[2] / "samples/hello/hello.onnx"


def test_loading_tells_the_variant_that_runs(caplog: pytest.LogCaptureFixture) -> None:
    module = ingot.compile(HELLO)
    with caplog.at_level(logging.INFO, "ingot"):
        ingot.load(module)
    (record,) = [each for each in caplog.records if each.name == "ingot"]
    assert record.levelno == logging.INFO
    assert "kernels 'kernels': variant '" in record.message

"""What the C runtime logs arrives at the logger "ingot"."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
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


def test_what_a_log_handler_raises_is_raised_by_the_load_and_by_no_later_call() -> None:
    class Failing(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            raise MemoryError("no room for the log")

    logger, handler = logging.getLogger("ingot"), Failing()
    data, level = ingot.compile(HELLO), logger.level
    model = ingot.load(data)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with pytest.raises(MemoryError, match="no room for the log"):
            ingot.load(data)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    argument = model.signature.arguments[0]
    model(np.zeros(argument.shape, argument.dtype.numpy))

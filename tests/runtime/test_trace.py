"""`Model.trace` gives one event per kernel run, and only inside its block."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import ingot
from tests.support.assembler import copy_module
from tests.support.devices import load_best

DIGITS = Path(__file__).parents[2] / "samples/digits/digits.onnx"


@pytest.fixture(scope="module")
def model() -> ingot.Model:
    return load_best(DIGITS)


def test_events_name_kernels_and_layers_in_order_of_time(model: ingot.Model) -> None:
    images = [[[[0.5] * 8] * 8]]
    with model.trace() as events:
        model(images)
    seen = list(events)
    model(images)
    assert events == seen
    assert len(seen) >= 3
    assert all(event.kernel and event.begin <= event.end for event in seen)
    assert any(event.layer for event in seen)
    starts = [event.begin for event in seen]
    assert starts == sorted(starts)


def test_a_closed_model_is_not_traced() -> None:
    model = load_best(DIGITS)
    model.close()
    with pytest.raises(ingot.FailedPrecondition, match="closed"), model.trace():
        pass


def test_copies_are_events_with_their_bytes() -> None:
    model = ingot.load(copy_module())
    with model.trace() as events:
        model([1, 2, 3])
    (event,) = events
    assert (event.kernel, event.layer, event.length) == ("copy", "", 12)


@pytest.mark.slow
def test_kernels_have_names_where_python_functions_have() -> None:
    """As under `python -X perf`, from Python 3.12 on."""
    program = f"""
        import os, sys
        sys.is_stack_trampoline_active = lambda: True
        import ingot
        ingot.load(ingot.compile({str(DIGITS)!r}))
        path = f"/tmp/perf-{{os.getpid()}}.map"
        print(open(path).read())
        os.unlink(path)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert " ingot:main_dispatch_0" in done.stdout

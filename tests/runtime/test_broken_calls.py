"""Calls that a signal breaks off at each of their lines leave nothing to those after them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ingot
from tests.support.assembler import copy_module


def break_off(action: Callable[[], object], line: int) -> bool:
    """Raises TimeoutError at that line of the runtime's own, as a signal's handler may. Whether
    `action` went so far."""
    left = line

    def trace_lines(frame: Any, event: str, _argument: object) -> Any:
        nonlocal left
        code = frame.f_code
        if not code.co_filename.endswith(("runtime/frame.py", "runtime/function.py")):
            return None
        if code.co_name == "__del__":  # of another test's model: what it raises nobody sees
            return None
        left -= event == "line"
        if left < 0:
            sys.settrace(None)
            raise TimeoutError("a signal")
        return trace_lines

    saved = sys.gettrace()
    sys.settrace(trace_lines)
    try:
        action()
    except TimeoutError:
        return True
    finally:
        sys.settrace(saved)
    return False


@pytest.mark.parametrize("first", ["plain", "out", "array"])
@pytest.mark.parametrize("then", ["plain", "out", "array", "large"])
def test_a_call_sees_nothing_of_one_that_a_signal_broke_off(first: str, then: str) -> None:
    model = ingot.load(copy_module())
    x, large = np.arange(8, dtype=np.float32), np.arange(32, dtype=np.float32)
    out, array = np.zeros(8, np.float32), model(x)
    calls = {
        "plain": lambda: model(x),
        "out": lambda: model(x, out=out),
        "array": lambda: model(x, out=array),
        "large": lambda: model(large),
    }
    line = 0
    calls[first]()
    while break_off(calls[then], line):
        out[:] = -1
        model(np.full(8, -1, np.float32), out=array)
        calls[first]()  # as the call before the broken one
        break_off(calls[then], line)
        out[:] = array.numpy()[:] = -1
        for each in (x + 1, large, x):
            np.testing.assert_array_equal(model(each).numpy(), each)
        assert (out == -1).all()
        assert (array.numpy() == -1).all()
        calls[first]()
        line += 1
    assert line > 15

"""Drawn ONNX models of shape arithmetic: one import, and one compile, is right at all sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.compiler.frontends.onnx import import_onnx
from ingot.compiler.graph.interpreter import interpret
from tests.support.devices import load_best
from tests.support.drawn import examples
from tests.support.drawn_shapes import draw_model, inputs_of

Array = np.ndarray[Any, Any]
SIZES = ((3, 6, 2), (1, 2, 1), (2, 1, 3), (4, 5, 2), (2, 9, 5))
GREATEST_COUNT = 200_000  # of elements of a result; more is no better test


def check(seed: int, steps: int, prepare: Callable[[Any], Callable[..., Sequence[Array]]]) -> None:
    """Compare with onnxruntime at all sizes at which that gives a result."""
    proto = draw_model(seed, steps)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    run = prepare(proto)
    for sizes in SIZES:
        inputs = inputs_of(*sizes)
        try:
            wanted = session.run(None, inputs)
        except Exception:  # of no class of its own: the sizes do not fit
            continue
        if sum(each.size for each in wanted) > GREATEST_COUNT:
            continue
        for found, expected in zip(run(**inputs), wanted, strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


def interpreted(proto: Any) -> Callable[..., Sequence[Array]]:
    module = import_onnx(proto)
    return lambda **inputs: interpret(module, "main", list(inputs.values()))


def compiled(proto: Any) -> Callable[..., Sequence[Array]]:
    model = load_best(proto)

    def run(**inputs: Array) -> list[Array]:
        results = model(**inputs)
        return [
            np.asarray(each) for each in (results if isinstance(results, tuple) else (results,))
        ]

    return run


@given(st.integers(0, 2**32 - 1))
@examples(25)
def test_drawn_shapes_are_imported_right(seed: int) -> None:
    check(seed, 6, interpreted)


@pytest.mark.parametrize("seed", range(8))
def test_drawn_shapes_are_compiled_right(seed: int) -> None:
    check(seed, 7, compiled)

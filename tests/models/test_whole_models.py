"""Whole models with weights given at load, with symbolic dims, and with threads.

`max |d| / max |ref|` against float64 is at most 5e-6, the bound for f32 models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import ingot
from tests.models import graphs
from tests.support.assembly import assert_assembles
from tests.support.devices import best_variant

TOLERANCE = 5e-6

pytestmark = pytest.mark.slow


def _error(result: Any, expected: Any) -> float:
    return float(np.abs(np.asarray(result) - expected).max() / np.abs(expected).max())


def _weights(name: str) -> dict[str, Any]:
    """The values of all initializers of a filled graph, by name."""
    model = graphs.load(name, seed=0)
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


@pytest.mark.parametrize("name", ["mlp", "mobilenetv2_unfolded", "minilm_128"])
def test_a_static_model_with_external_weights_is_right(name: str) -> None:
    module = ingot.compile(graphs.path(name), parameters="external", variants=[best_variant()])
    assert len(bytes(module)) < 1_000_000
    assert_assembles(bytes(module))
    model = ingot.load(module, parameters=_weights(name))
    result = model(**graphs.sample(name, 0))
    assert _error(result, graphs.reference(name)) <= TOLERANCE


def test_one_minilm_module_is_right_for_every_batch_and_sequence(tmp_path: Path) -> None:
    module = ingot.compile(graphs.path("minilm"), parameters="external", variants=[best_variant()])
    assert_assembles(bytes(module))
    model = ingot.load(module, parameters=_weights("minilm"))
    given = graphs.sample("minilm", 0, **graphs.REFERENCE_DIMS["minilm"])
    assert _error(model(**given), graphs.reference("minilm")) <= TOLERANCE
    path = tmp_path / "minilm.onnx"
    path.write_bytes(graphs.load("minilm", seed=0).SerializeToString())
    session = onnxruntime.InferenceSession(str(path))
    for batch, sequence in ((1, 1), (1, 64), (5, 33)):
        inputs = graphs.sample("minilm", 7, batch=batch, sequence=sequence)
        (expected,) = session.run(None, inputs)
        assert _error(model(**inputs), expected) <= TOLERANCE


def test_two_threads_give_the_bits_of_one() -> None:
    module = ingot.compile(graphs.load("mobilenetv2", seed=0), variants=[best_variant()])
    inputs = graphs.sample("mobilenetv2", 3)
    one, two = (np.array(ingot.load(module, threads=count)(**inputs)) for count in (1, 2))
    assert one.tobytes() == two.tobytes()

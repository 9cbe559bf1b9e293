"""The committed model graphs: small, without weights, and filled alike on every machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import graphs

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = [graphs.path(name) for name in graphs.NAMES]
COMMITTED.append(ROOT / "samples" / "sentence_embeddings" / "minilm.onnx")


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.parent.name + "/" + path.stem)
def test_a_committed_graph_is_small_and_holds_no_weights_and_no_folders(path: Path) -> None:
    data = path.read_bytes()
    assert len(data) < 300_000
    assert b"stack_trace" not in data
    model = onnx.load(path, load_external_data=False)
    assert any(graphs.is_stripped(tensor) for tensor in model.graph.initializer)
    for tensor in model.graph.initializer:
        if not graphs.is_stripped(tensor):
            array = onnx.numpy_helper.to_array(tensor)
            assert array.size < 8 or array.dtype.kind == "i"


def test_filling_depends_on_name_and_seed_only() -> None:
    first, again, other = (graphs.load("mlp", seed=seed) for seed in (0, 0, 1))
    assert first.SerializeToString() == again.SerializeToString() != other.SerializeToString()
    weights = {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in first.graph.initializer
    }
    assert len({array.tobytes() for array in weights.values()}) == len(weights)
    digest = hashlib.sha256(weights["hidden1.weight"].tobytes()).hexdigest()
    assert digest[:16] == "cea5afb7602048a6"


@pytest.mark.parametrize("name", graphs.NAMES)
def test_a_reference_is_finite_and_no_constant(name: str) -> None:
    values = graphs.reference(name)
    assert values.dtype == np.float64
    assert np.isfinite(values).all()
    assert values.std() > 1e-3

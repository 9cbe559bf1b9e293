"""Recurrent layers of torch, saved as they are exported, against eager torch."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import walk
from ingot.compiler.read_source import read_source
from ingot.hal.errors import CompileError
from tests.support.torch_calls import drawn, leaves, torch

pytestmark = pytest.mark.filterwarnings("ignore")  # torch, of what it exports and saves
LAYERS: dict[str, Any] = {
    "LSTM": (torch.nn.LSTM, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "projected": (torch.nn.LSTM, {"num_layers": 2, "proj_size": 3, "bidirectional": True}),
    "GRU": (torch.nn.GRU, {"num_layers": 2, "bidirectional": True, "dropout": 0.5}),
    "without_biases": (torch.nn.GRU, {"bias": False, "batch_first": True}),
    "tanh": (torch.nn.RNN, {"num_layers": 2}),
    "relu": (torch.nn.RNN, {"nonlinearity": "relu", "bidirectional": True}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_layers_agree_for_another_batch(name: str) -> None:
    kind, options = LAYERS[name]
    torch.manual_seed(0)
    layer = kind(6, 5, **options).eval().requires_grad_(False)
    axis = 0 if options.get("batch_first") else 1  # of the batch; torch fixes the steps
    sizes = {axis: torch.export.Dim("batch", max=64)}
    program = torch.export.export(layer, (drawn(3, 4, 6),), dynamic_shapes=(sizes,))
    file = io.BytesIO()
    torch.export.save(program, file)
    for source in (program, file.getvalue()):
        module = read_source(source)
        loops = [op for op in walk(module) if op.name == "while"]
        assert len(loops) == options.get("num_layers", 1) * (1 + ("bidirectional" in options))
        x = drawn(7, 4, 6) if axis == 0 else drawn(3, 7, 6)
        found = interpret(module, "main", [x.numpy()])
        for a, b in zip(found, leaves(layer(x)), strict=True):
            np.testing.assert_allclose(a, b.astype(a.dtype), 1e-5, 1e-5)


def test_given_states_and_training() -> None:
    layer = torch.nn.LSTM(6, 5, 2, dropout=0.5).requires_grad_(False)
    given = drawn(3, 4, 6), (drawn(2, 4, 5), drawn(2, 4, 5) + 1)
    program = torch.export.export(layer.eval(), given)
    arrays = [each.numpy() for each in (given[0], *given[1])]
    expected = leaves(layer(*given))
    for a, b in zip(interpret(read_source(program), "main", arrays), expected, strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-5)
    with pytest.raises(CompileError, match=r"training mode: call model.eval\(\)"):
        read_source(torch.export.export(layer.train(), given))

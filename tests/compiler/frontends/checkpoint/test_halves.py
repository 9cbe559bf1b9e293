"""Folders of models with an encoder, beside transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compiler.frontends.checkpoint import import_checkpoint
from ingot.compiler.graph.interpreter import interpret
from ingot.hal.checkpoint import Checkpoint
from ingot.hal.tensor_names import half_name, name_of_half
from tests.support.checkpoint_configs import HALVES
from tests.support.checkpoints import ENCODED, weights_of, write_folder
from tests.support.halves import SOURCE, TARGET


def _write(folder: Path, name: str, **changes: Any) -> Any:
    """The expected results."""
    with np.load(ENCODED) as found:
        described, expected = json.loads(str(found[f"{name}.json"])), found[name]
    write_folder(folder, described["config"] | changes, weights_of(name, described["shapes"]))
    return expected


@pytest.mark.parametrize("name", HALVES)
def test_results_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    expected = _write(tmp_path, name)
    module, parameters = import_checkpoint(tmp_path), Checkpoint(tmp_path).parameters()
    state: dict[str, Any] = {}
    if "encode" in module.functions:
        interpret(module, "encode", [SOURCE], parameters, state)
        (first,) = interpret(module, "prefill", [TARGET[:5]], parameters, state)
        (last,) = interpret(module, "prefill", [TARGET[5:]], parameters, state)
        got = np.array([first, last])
    else:
        (got,) = interpret(module, "embed_tokens", [np.array([40]), SOURCE], parameters, state)
    np.testing.assert_allclose(got, expected, atol=1.2e-5 * np.abs(expected).max())


def test_networks_must_be_known(tmp_path: Path) -> None:
    _write(tmp_path, "flan-t5", feed_forward_proj="gated-tanh")
    with pytest.raises(ingot.CompileError, match="'feed_forward_proj' is 'gated-tanh', expected"):
        import_checkpoint(tmp_path)


def test_what_is_missing_has_the_names_of_the_folder(tmp_path: Path) -> None:
    """Each name there is comes back, but for that of the network's only product."""
    for name in ("t5", "flan-t5"):
        _write(tmp_path, name)
        found = [each.rpartition(".")[0] for each in Checkpoint(tmp_path).tensors]
        assert [name_of_half(half_name(each)) for each in found] == [
            each.replace("wi_1", "wi") for each in found
        ]
    _write(tmp_path, "t5", num_decoder_layers=3)
    missing = "tensor 'decoder.block.2.layer.1.EncDecAttention.q.weight' is missing"
    with pytest.raises(ingot.CompileError, match=missing):
        import_checkpoint(tmp_path)

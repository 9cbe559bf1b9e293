"""Folders of models that make vectors of texts, beside transformers."""

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
from tests.support.checkpoint_configs import ENCODERS, RANKED
from tests.support.checkpoints import (
    ENCODED,
    IDS,
    PARTS,
    kinds_of,
    weights_of,
    write_folder,
    write_pooling,
)


def _write(folder: Path, name: str, changes: Any = None, prefix: str = "") -> Any:
    """The expected vectors."""
    with np.load(ENCODED) as found:
        described, expected = json.loads(str(found[f"{name}.json"])), found[name]
    config = {**described["config"], **(changes or {})}
    config = {key: value for key, value in config.items() if value is not None}
    weights = weights_of(name, described["shapes"])
    write_folder(folder, config, {f"{prefix}{key}": each for key, each in weights.items()})
    return expected


def _check(folder: Path, expected: Any) -> None:
    counts = np.array([len(IDS[part]) for part in PARTS])
    ids = np.concatenate([IDS[part] for part in PARTS])
    parameters = Checkpoint(folder).parameters()
    module = import_checkpoint(folder)
    (function,) = (each for each in module.functions.values() if each.name != "capacity")
    arguments = [counts, ids, np.concatenate([kinds_of(part) for part in PARTS])]
    arguments = arguments[: len(function.arguments)]
    (got,) = interpret(module, function.name, arguments, parameters, {})
    np.testing.assert_allclose(got, expected, atol=5e-6 * np.abs(expected).max())


@pytest.mark.parametrize("name", ENCODERS)
def test_vectors_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    expected = _write(tmp_path, name)
    write_pooling(tmp_path, f"pooling_mode_{ENCODERS[name][2]}")
    _check(tmp_path, expected)


@pytest.mark.parametrize("name", RANKED)
def test_scores_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    _check(tmp_path, _write(tmp_path, name))


def test_older_folders_are_read(tmp_path: Path) -> None:
    """With tensors of a whole model, and bases of rotations under keys of their own."""
    expected = _write(tmp_path, "bert", prefix="bert.")
    write_pooling(tmp_path, "pooling_mode_cls_token")
    _check(tmp_path, expected)
    older = {"rope_parameters": None, "layer_types": None, "sliding_window": None}
    older |= {"global_attn_every_n_layers": 3, "local_attention": 4}
    older |= {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    expected = _write(tmp_path, "modernbert", older, prefix="model.")
    write_pooling(tmp_path, "pooling_mode_mean_tokens")
    _check(tmp_path, expected)


def test_the_way_to_a_vector_must_be_known(tmp_path: Path) -> None:
    _write(tmp_path, "bert")
    for mode, found in ((None, "missing"), ("pooling_mode_max", "'max'")):
        if mode is not None:
            write_pooling(tmp_path, mode)
        with pytest.raises(ingot.CompileError, match=f"1_Pooling/config.json' is {found}, expec"):
            import_checkpoint(tmp_path)
    (tmp_path / "2_Normalize").mkdir()
    (tmp_path / "3_Dense").mkdir()
    with pytest.raises(ingot.CompileError, match="has '3_Dense' behind its pooling, which is not"):
        import_checkpoint(tmp_path)
    (tmp_path / "3_Dense").rmdir()
    (tmp_path / "1_Pooling" / "config.json").write_text("{")
    with pytest.raises(ingot.CompileError, match="1_Pooling"):
        import_checkpoint(tmp_path)

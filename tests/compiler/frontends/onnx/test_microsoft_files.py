"""Whole files as onnxruntime's optimiser, quantiser and transformers' optimiser write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    quantize_dynamic,
    quantize_static,
)

from ingot.hal.errors import CompileError
from tests.models import graphs
from tests.support.devices import load_best
from tests.support.onnx_cases import in_onnxruntime
from tests.support.onnx_contrib import DOMAIN, Read
from tests.support.onnx_models import build_model, make_value

LEVELS = {
    name: getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{name}")
    for name in ("BASIC", "EXTENDED", "ALL")
}
DIMS: dict[str, dict[str, int]] = {"minilm": {"batch": 2, "sequence": 9}}


def optimized(source: Path | bytes, level: str, folder: Path) -> onnx.ModelProto:
    """What onnxruntime makes of a file."""
    options, path = onnxruntime.SessionOptions(), folder / "optimized.onnx"
    options.log_severity_level = 4
    options.graph_optimization_level = LEVELS[level]
    options.optimized_model_filepath = str(path)
    given = source if isinstance(source, bytes) else str(source)
    onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    return onnx.load(path)


def saved(name: str, folder: Path) -> Path:
    path = folder / f"{name}.onnx"
    onnx.save(graphs.load(name, seed=0), path)
    return path


def error_of(model: onnx.ModelProto, name: str) -> float:
    given = graphs.sample(name, 3, **DIMS.get(name, {}))
    (wanted,) = in_onnxruntime(model)(given)
    (found,) = Read(model).results(**given).values()
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def contributed(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node if node.domain == DOMAIN}


@pytest.mark.parametrize("level", LEVELS)
def test_an_optimised_perceptron_runs(level: str, tmp_path: Path) -> None:
    model = optimized(graphs.load("mlp", seed=0).SerializeToString(), level, tmp_path)
    assert (contributed(model) == {"FusedGemm"}) is (level != "BASIC")
    given = graphs.sample("mlp", 3)
    (wanted,) = in_onnxruntime(model)(given)
    found = np.asarray(load_best(model)(**given))
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-5 * float(np.abs(wanted).max()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "level"),
    [("minilm", "ALL"), ("mobilenetv2", "EXTENDED")],
)
def test_optimised_models_agree(name: str, level: str, tmp_path: Path) -> None:
    model = optimized(saved(name, tmp_path), level, tmp_path)
    assert contributed(model)
    assert error_of(model, name) < 2e-6


class _Samples(CalibrationDataReader):  # type: ignore[misc]
    """Two samples of a model."""

    def __init__(self, name: str) -> None:
        self.rest = iter([graphs.sample(name, seed, **DIMS.get(name, {})) for seed in range(2)])

    def get_next(self) -> Any:
        return next(self.rest, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "form", "level", "ops"),
    [
        ("minilm", "dynamic", "ALL", {"DynamicQuantizeMatMul", "MatMulIntegerToFloat"}),
        ("mobilenetv2", "QDQ", "ALL", {"QGemm", "QLinearConv"}),
        ("mobilenetv2", "QOperator", "EXTENDED", {"QGemm", "QLinearAdd"}),
    ],
)
def test_quantised_models_agree(
    name: str, form: str, level: str, ops: set[str], tmp_path: Path
) -> None:
    source, path = saved(name, tmp_path), tmp_path / "quantized.onnx"
    if form == "dynamic":
        quantize_dynamic(source, path)
    else:
        layout = getattr(QuantFormat, form)
        quantize_static(source, path, _Samples(name), quant_format=layout, per_channel=True)
    model = optimized(path, level, tmp_path)
    assert ops <= contributed(model)
    assert error_of(model, name) < 0.04  # one number that is rounded the other way moves others


@pytest.mark.slow
def test_a_file_of_the_optimiser_of_transformers_agrees(tmp_path: Path) -> None:
    from onnxruntime.transformers import optimizer

    path = tmp_path / "joined.onnx"
    optimizer.optimize_model(
        str(saved("minilm", tmp_path)), "bert", num_heads=12, hidden_size=384, opt_level=0
    ).save_model_to_file(str(path))
    model = onnx.load(path)
    assert "BiasGelu" in contributed(model)
    assert error_of(model, "minilm") < 2e-6


def test_weights_that_lie_for_one_machine_are_refused() -> None:
    nodes = [onnx.helper.make_node("Conv", ["x", "w"], ["y"], domain=f"{DOMAIN}.nchwc")]
    weight = {"w": np.zeros((16, 16, 3, 3), np.float32)}
    domains = [f"{DOMAIN}.nchwc"]
    model = build_model(nodes, [make_value("x", [1, 16, 8, 8])], ["y"], weight, domains=domains)
    with pytest.raises(CompileError, match="write the file with ORT_ENABLE_EXTENDED"):
        Read(model)

"""Resize against onnxruntime, for the modes that its own node tests do not pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from ingot.compiler.frontends.onnx import import_onnx
from ingot.compiler.graph.interpreter import interpret
from ingot.hal.errors import CompileError

Shape = tuple[int | str, ...]


def model(shape: Shape, scales: list[float], **attributes: Any) -> onnx.ModelProto:
    given = helper.make_tensor("scales", TensorProto.FLOAT, [len(scales)], scales)
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], name="resize", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))],
        [given],
    )
    opset = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10)


def check(proto: onnx.ModelProto, x: np.ndarray[Any, Any]) -> None:
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    (wanted,) = session.run(None, {"x": x})
    (got,) = interpret(import_onnx(proto), "main", [x])
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
)
@pytest.mark.parametrize("scales", [[1, 1, 2, 3], [1, 1, 0.6, 1.7]])
def test_modes_and_coordinates(mode: str, coordinates: str, scales: list[float]) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 10)).astype(np.float32)
    proto = model(x.shape, scales, mode=mode, coordinate_transformation_mode=coordinates)
    check(proto, x)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialias_widens_the_filter_when_it_shrinks(mode: str) -> None:
    x = np.random.default_rng(1).standard_normal((1, 1, 9, 12)).astype(np.float32)
    check(model(x.shape, [1, 1, 0.5, 0.4], mode=mode, antialias=1), x)


@pytest.mark.parametrize("height", [1, 4, 7])
@pytest.mark.parametrize(
    ("coordinates", "rounding"), [("half_pixel", "round_prefer_floor"), ("asymmetric", "floor")]
)
def test_symbolic_axes_grow_by_whole_factors(height: int, coordinates: str, rounding: str) -> None:
    x = np.random.default_rng(2).standard_normal((2, 3, height, 5)).astype(np.float32)
    proto = model(
        ("n", 3, "h", "w"),
        [1, 1, 2, 3],
        nearest_mode=rounding,
        coordinate_transformation_mode=coordinates,
    )
    check(proto, x)


def test_other_forms_on_symbolic_axes_are_refused_with_advice() -> None:
    proto = model(("n", 3, "h", "w"), [1, 1, 2, 2], mode="linear")
    with pytest.raises(CompileError, match=r"resize.*symbolic is not supported: fix the size"):
        import_onnx(proto)

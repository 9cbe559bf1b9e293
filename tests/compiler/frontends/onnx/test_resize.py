"""Resize against onnxruntime, for the modes that its own node tests do not pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot.compiler.frontends.onnx import import_onnx
from ingot.compiler.graph.interpreter import interpret
from ingot.hal.errors import InvalidArgument
from tests.support.devices import load_best

Shape = tuple[int | str, ...]


def model(
    shape: Shape, scales: list[float], box: list[float] | None = None, **attributes: Any
) -> onnx.ModelProto:
    names = ["x", "box" if box else "", "scales"]
    node = helper.make_node("Resize", names, ["y"], name="resize", **attributes)
    given = [helper.make_tensor("scales", TensorProto.FLOAT, [len(scales)], scales)]
    if box:
        given.append(helper.make_tensor("box", TensorProto.FLOAT, [len(box)], box))
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))],
        given,
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


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("height", [5, "h"])
def test_one_element_is_the_first_where_pytorch_is_followed(mode: str, height: int | str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 4)).astype(np.float32)
    options = {"mode": mode, "coordinate_transformation_mode": "pytorch_half_pixel"}
    check(model((1, 2, height, 4), [1, 1, 0.2, 2], **options), x)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("scales", [[1, 1, 2, 3], [1, 1, 0.6, 1.7]])
def test_known_boxes_are_cut_out(mode: str, scales: list[float]) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 5, 10)).astype(np.float32)
    box = [0, 0, 0.1, 0.2, 1, 1, 0.8, 0.9]
    kind = "tf_crop_and_resize"
    check(model(x.shape, scales, box, mode=mode, coordinate_transformation_mode=kind), x)


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


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "coordinates",
    ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"],
)
@pytest.mark.parametrize("scales", [[1, 1, 0.6, 1.7], [1, 1, 2, 0.5]])
def test_symbolic_axes_have_all_modes(mode: str, coordinates: str, scales: list[float]) -> None:
    options: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "cubic":
        options["exclude_outside"] = int(coordinates == "half_pixel")
    dynamic = import_onnx(model(("n", 2, "h", "w"), scales, **options))
    for height, width in ((5, 10), (4, 2)):
        x = np.random.default_rng(0).standard_normal((1, 2, height, width), np.float32)
        (wanted,) = interpret(import_onnx(model(x.shape, scales, **options)), "main", [x])
        (got,) = interpret(dynamic, "main", [x])
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-5)


def test_antialias_on_symbolic_axes_by_a_known_factor() -> None:
    x = np.random.default_rng(1).standard_normal((1, 1, 9, 12)).astype(np.float32)
    check(model((1, 1, "h", "w"), [1, 1, 0.5, 0.4], mode="linear", antialias=1), x)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("outside", [0, 1])
def test_antialias_by_a_factor_from_data(mode: str, outside: int) -> None:
    options = {"mode": mode, "antialias": 1, "exclude_outside": outside}
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], **options)
    resized = ingot.load(
        ingot.compile(of_data(node, "s", TensorProto.INT64), variants=["x86-64-v3"])
    )
    x = np.random.default_rng(1).standard_normal((9, 12)).astype(np.float32)
    for size in ((9, 5), (3, 12), (4, 25), (1, 7)):
        constant = numpy_helper.from_array(np.array(size), "s")
        known = of_data(node, "s", TensorProto.INT64)
        known.graph.input.pop()
        known.graph.initializer.append(constant)
        (wanted,) = interpret(import_onnx(known), "main", [x])
        found = np.asarray(resized(x, np.array(size)))
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


def of_data(node: onnx.NodeProto, name: str, element: int) -> onnx.ModelProto:
    """A model whose factors or sizes are an argument."""
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", "h")),
        helper.make_tensor_value_info(name, element, [2]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None])]
    graph = helper.make_graph([node], "g", inputs, outputs)
    opset = [helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opset, ir_version=10)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_factors_and_sizes_come_from_data(mode: str) -> None:
    by_factor = helper.make_node("Resize", ["x", "", "s"], ["y"], mode=mode)
    by_size = helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode=mode, name="to")
    factors = of_data(by_factor, "s", TensorProto.FLOAT)
    sizes = of_data(by_size, "s", TensorProto.INT64)
    models = [load_best(each) for each in (factors, sizes)]
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    for scale in ((1, 2), (0.75, 1.3), (2.5, 0.4)):
        given = np.array(scale, np.float32)
        wanted = onnxruntime.InferenceSession(factors.SerializeToString()).run(
            None, {"x": x, "s": given}
        )[0]
        np.testing.assert_allclose(models[0](x, given), wanted, rtol=2e-5, atol=2e-5)
        given = np.array(wanted.shape)
        wanted = onnxruntime.InferenceSession(sizes.SerializeToString()).run(
            None, {"x": x, "s": given}
        )[0]
        np.testing.assert_allclose(models[1](x, given), wanted, rtol=2e-5, atol=2e-5)
    with pytest.raises(InvalidArgument, match="layer 'to': element 1 of the sizes is -2"):
        models[1](x, np.array([2, -2]))

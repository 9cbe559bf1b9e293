"""Models of opsets 1 to 6: each op that changed, against NumPy, and the models that the standard
keeps of opset 6, against their results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from ingot.compiler.frontends.onnx import import_onnx
from ingot.compiler.graph.interpreter import interpret
from ingot.hal.errors import CompileError
from tests.support.onnx_contrib import of_nodes
from tests.support.onnx_models import build_model, in_session, make_value

Node = helper.make_node
Array = np.ndarray[Any, Any]
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


def ramp(*shape: int) -> Array:
    return (np.arange(np.prod(shape)).reshape(shape) % 7 - 3).astype(np.float32)


X, B, C = ramp(2, 3, 4, 2), ramp(3, 4), ramp(3) + 1
ONES, WIDE = np.ones(3, np.float32), (1, 3, 1, 1)
POINTS = ramp(3, 4, 2) + 4

CASES: list[tuple[int, onnx.NodeProto, dict[str, Array], Callable[[], Any]]] = [
    (6, Node("Add", ["x", "b"], ["y"], broadcast=1, axis=1), {"b": B}, lambda: X + B[..., None]),
    (
        1,
        Node("Sub", ["x", "b"], ["y"], broadcast=1, axis=-3),
        {"b": C},
        lambda: X - C.reshape(3, 1, 1),
    ),
    (6, Node("Mul", ["x", "b"], ["y"], broadcast=1), {"b": ramp(4, 2)}, lambda: X * ramp(4, 2)),
    (
        1,
        Node("Pow", ["x", "b"], ["y"], broadcast=1, axis=1),
        {"b": C + 5},
        lambda: X ** (C + 5).reshape(3, 1, 1),
    ),
    (
        1,
        Node("Less", ["x", "b"], ["y"], broadcast=1, axis=0),
        {"b": ramp(2)},
        lambda: ramp(2).reshape(2, 1, 1, 1) > X,
    ),
    (
        6,
        Node("PRelu", ["x", "b"], ["y"]),
        {"b": C},
        lambda: np.where(X < 0, X * C.reshape(3, 1, 1), X),
    ),
    (
        1,
        Node(
            "BatchNormalization",
            ["x", "b", "b", "b", "b"],
            ["y"],
            is_test=1,
            consumed_inputs=[0, 0, 0, 1, 1],
            epsilon=0.0,
        ),
        {"b": ONES},
        lambda: (X - 1) + 1,
    ),
    (
        6,
        Node(
            "BatchNormalization",
            ["x", "b", "b", "b", "b"],
            ["y"],
            is_test=1,
            spatial=0,
            epsilon=0.0,
        ),
        {"b": POINTS},
        lambda: (X - POINTS) / np.sqrt(POINTS) * POINTS + POINTS,
    ),
    (6, Node("Dropout", ["x"], ["y"], is_test=1), {}, lambda: X),
    (1, Node("Cast", ["x"], ["y"], to="INT64"), {}, lambda: X.astype(np.int64)),
    (1, Node("Concat", ["x", "x"], ["y"]), {}, lambda: np.concatenate([X, X], 1)),
    (
        1,
        Node("GlobalLpPool", ["x"], ["y"], p=1.0),
        {},
        lambda: np.abs(X).sum((2, 3), keepdims=True),
    ),
    (
        1,
        Node("LpPool", ["x"], ["y"], p=1.0, kernel_shape=[4, 2]),
        {},
        lambda: np.abs(X).sum((2, 3), keepdims=True),
    ),
    (
        1,
        Node("Pad", ["x"], ["y"], paddings=[0, 0, 1, 0, 0, 0, 0, 2], value=5.0),
        {},
        lambda: np.pad(X, [(0, 0), (0, 0), (1, 0), (0, 2)], constant_values=5),
    ),
    (1, Node("Reshape", ["x"], ["y"], shape=[0, -1]), {}, lambda: X.reshape(2, -1)),
    (
        1,
        Node("Split", ["x", "b"], ["y", "z"], axis=2),
        {"b": np.array([1.0, 3.0], np.float32)},
        lambda: np.split(X, [1], 2),
    ),
    (
        1,
        Node("Tile", ["x", "b", "c"], ["y"]),
        {"b": np.array(3, np.float32), "c": np.array(1, np.float32)},
        lambda: np.tile(X, [1, 3, 1, 1]),
    ),
    (
        1,
        Node("Upsample", ["x"], ["y"], height_scale=2.0, width_scale=1.0),
        {},
        lambda: X.repeat(2, 2),
    ),
    (
        11,
        Node("Hardmax", ["x"], ["y"], axis=2),
        {},
        lambda: np.eye(8, dtype=np.float32)[X.reshape(2, 3, 8).argmax(2)].reshape(X.shape),
    ),
    (1, Node("Relu", ["x"], ["y"], consumed_inputs=[0]), {}, lambda: np.maximum(X, 0)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[1].op_type)
def test_an_op_of_an_old_opset_gives_what_that_opset_says(case: Any) -> None:
    opset, node, constants, wanted = case
    model = build_model([node], [make_value("x", X.shape)], node.output, constants, opset=opset)
    found = interpret(import_onnx(model), "main", [X])
    expected = wanted()
    for result, each in zip(
        found, expected if isinstance(expected, list) else [expected], strict=True
    ):
        assert (result.dtype, result.shape) == (each.dtype, each.shape)
        np.testing.assert_allclose(result, each, rtol=1e-5)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin", "ReduceMax", "ReduceLogSumExp"])
@pytest.mark.parametrize("axis", [0, -1])
def test_a_scalar_is_reduced_along_any_axis_as_onnxruntime_does_it(op: str, axis: int) -> None:
    node = Node(op, ["x"], ["y"], **({"axis": axis} if op[0] == "A" else {"axes": [axis]}))
    model = build_model([node], [make_value("x", [])], ["y"], opset=9)
    x = np.array(2.5, np.float32)
    (found,), (wanted,) = interpret(import_onnx(model), "main", [x]), in_session(model, {"x": x})
    assert (found.dtype, found.shape, found) == (wanted.dtype, wanted.shape, wanted)


def test_repeats_of_opset_1_come_from_data() -> None:
    inputs = [make_value("x", X.shape), make_value("times", []), make_value("axis", [])]
    module = import_onnx(
        build_model([Node("Tile", ["x", "times", "axis"], ["y"])], inputs, ["y"], opset=1)
    )
    for axis in range(4):
        (found,) = interpret(module, "main", [X, np.float32(2), np.float32(axis)])
        np.testing.assert_array_equal(found, np.concatenate([X, X], axis))


def test_a_model_without_opsets_is_of_the_first() -> None:
    model = build_model(
        [Node("Reshape", ["x"], ["y"], shape=[-1])], [make_value("x", [2, 3])], ["y"]
    )
    del model.opset_import[:]
    (found,) = interpret(import_onnx(model), "main", [ramp(2, 3)])
    np.testing.assert_array_equal(found, ramp(6))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (
            Node("BatchNormalization", ["x"] * 5, ["y"], name="d", is_test=0),
            "layer 'd': .*its is_test is 0",
        ),
        (Node("Cast", ["x"], ["y"], to="FLOAT17"), "casts to 'FLOAT17'"),
        (Node("Add", ["x", "x"], ["y"], broadcast=1, axis=1), "does not fit axes 1 and behind"),
        (Node("LpPool", ["x"], ["y"], p=1.5, kernel_shape=[1, 1]), "its p is 1.5"),
    ],
)
def test_what_an_old_node_cannot_mean_is_refused(node: onnx.NodeProto, message: str) -> None:
    opset = 1 if node.op_type in ("Cast", "LpPool") else 6
    model = build_model([node], [make_value("x", X.shape)], ["y"], opset=opset)
    with pytest.raises(CompileError, match=message):
        import_onnx(model)


def test_models_of_opset_6_give_the_results_that_the_standard_keeps() -> None:
    count = 0
    for path in sorted(DATA.glob("pytorch-*/*/model.onnx")):
        model = onnx.load(path)
        if model.opset_import[0].version >= 7:
            continue
        inputs, outputs = (
            [
                numpy_helper.to_array(onnx.load_tensor(each))
                for each in sorted(path.parent.glob(f"test_data_set_0/{kind}_*.pb"))
            ]
            for kind in ("input", "output")
        )
        for found, wanted in zip(
            interpret(import_onnx(model), "main", inputs), outputs, strict=True
        ):
            assert found.shape == wanted.shape
            np.testing.assert_allclose(
                found, wanted, rtol=1e-4, atol=1e-6, err_msg=path.parent.name
            )
        count += 1
    assert count >= 100, count


def test_ops_of_the_time_before_the_standard() -> None:
    nodes = [
        Node("Affine", ["x"], ["a"], alpha=2.0, beta=0.5),
        Node("ScaledTanh", ["x"], ["b"], alpha=2.0, beta=0.5),
        Node("ParametricSoftplus", ["x"], ["c"], alpha=2.0, beta=-3.0),
        Node("Scale", ["x"], ["d"], scale=0.3),
        Node("ImageScaler", ["x"], ["e"], scale=2.0, bias=[1.0, 2.0, 3.0]),
        Node("Crop", ["x"], ["f"], border=[1, 2, 3, 1]),
        Node("Crop", ["x"], ["g"], border=[1, 2, 0, 0], scale=[3, 4]),
        Node("DynamicSlice", ["x", "starts", "ends", "axes"], ["h"]),
    ]
    ranges = {"starts": [1, -3], "ends": [2, 100], "axes": [1, 3]}
    arrays = {name: np.array(each, np.int64) for name, each in ranges.items()}
    model = of_nodes(nodes, [make_value("x", ["n", 3, "h", "w"])], arrays, opset=9)
    model.check(1e-5, x=ramp(2, 3, 7, 9))
    model.check(1e-5, x=ramp(1, 3, 5, 6))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (Node("ImageScaler", ["x"], ["y"], bias=[1.0]), "the dims 1 and 3 cannot be equal"),
        (Node("Crop", ["x"], ["y"], border=[1, 2]), r"borders \[1, 2\] of"),
        (Node("Crop", ["x"], ["y"], border=[1, 2, 2, 4]), "axis 2 of .* has no range 2 to 2"),
    ],
)
def test_images_that_their_attributes_do_not_fit_are_refused(
    node: onnx.NodeProto, message: str
) -> None:
    with pytest.raises(CompileError, match=message):
        import_onnx(build_model([node], [make_value("x", [1, 3, 6, 8])], ["y"], opset=9))

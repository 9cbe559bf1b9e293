"""Sparse initializers and constants, which are made dense."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ingot
from ingot.compiler.frontends.onnx import import_onnx
from ingot.compiler.graph.interpreter import interpret
from ingot.hal.errors import CompileError
from tests.support.onnx_cases import Pair
from tests.support.onnx_models import build_model, make_value
from tests.support.onnx_sequences import Node

SHAPE = (4, 3)
PLACES = np.array([[0, 1], [2, 0], [3, 2]], np.int64)


def sparse(name: str, values: Any, places: Any, shape: Any = SHAPE) -> onnx.SparseTensorProto:
    stored = numpy_helper.from_array(np.asarray(values), name)
    indices = numpy_helper.from_array(np.asarray(places, np.int64), f"{name}_indices")
    return helper.make_sparse_tensor(stored, indices, shape)


def product(*weights: onnx.SparseTensorProto) -> onnx.ModelProto:
    """x @ w, plus b if there is one."""
    names = [each.values.name for each in weights]
    nodes = [Node("MatMul", ["x", "w"], ["y"])]
    nodes += [Node("Add", ["y", "b"], ["z"])] if "b" in names else []
    model = build_model(nodes, [make_value("x", ["n", 4])], [nodes[-1].output[0]])
    model.graph.sparse_initializer.extend(weights)
    return model


def test_places_are_of_each_axis_or_of_all_elements() -> None:
    w = sparse("w", np.float32([1, -2, 3]), PLACES)
    b = sparse("b", np.float32([5]), [2], (3,))
    model = product(w, b)
    Pair(model).check(x=np.random.default_rng(0).random((5, 4), np.float32))
    assert len(model.graph.sparse_initializer) == 2  # the caller's model is as it was
    flat = sparse("w", np.float32([1, -2, 3]), PLACES @ [3, 1])
    Pair(product(flat, b)).check(x=np.random.default_rng(0).random((5, 4), np.float32))


def test_sparse_weights_lie_in_files_and_in_branches(tmp_path: Any) -> None:
    branch = helper.make_graph(
        [Node("Add", ["x", "w"], ["then"])], "then", [], [make_value("then", None)]
    )
    branch.sparse_initializer.append(sparse("w", np.float32([1, 2, 3]), PLACES))
    other = helper.make_graph([Node("Neg", ["x"], ["no"])], "no", [], [make_value("no", None)])
    node = helper.make_node("If", ["b"], ["y"], then_branch=branch, else_branch=other)
    inputs = [make_value("x", [*SHAPE]), make_value("b", [], TensorProto.BOOL)]
    model = ingot.load(ingot.compile(build_model([node], inputs, ["y"])))
    dense = np.zeros(SHAPE, np.float32)
    dense[tuple(PLACES.T)] = 1, 2, 3
    np.testing.assert_array_equal(model(np.ones(SHAPE, np.float32), True), 1 + dense)
    w = sparse("w", np.float32([1, 2, 3]), PLACES)
    onnx.external_data_helper.set_external_data(w.values, "weights.bin", 0, 12)
    (tmp_path / "weights.bin").write_bytes(w.values.raw_data)
    w.values.ClearField("raw_data")
    (tmp_path / "model.onnx").write_bytes(product(w).SerializeToString())
    x = np.random.default_rng(0).random((2, 4), np.float32)
    y = ingot.load(ingot.compile(tmp_path / "model.onnx"))(x)
    np.testing.assert_allclose(y, x @ dense, rtol=1e-6)


def test_products_with_sparse_matrices_and_sparse_arguments_are_dense_here() -> None:
    node = helper.make_node(
        "SparseToDenseMatMul", ["a", "b"], ["y"], domain="com.microsoft", alpha=0.5
    )
    given = helper.make_sparse_tensor_value_info("a", TensorProto.FLOAT, [*SHAPE])
    model = build_model(
        [node], [given, make_value("b", [3, "n"])], ["y"], domains=["com.microsoft"]
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    values, b = np.float32([1, 2, 3]), np.random.default_rng(0).random((3, 5), np.float32)
    dense = np.zeros(SHAPE, np.float32)
    dense[tuple(PLACES.T)] = values
    a = onnxruntime.SparseTensor.sparse_coo_from_numpy(
        np.array(SHAPE), values, PLACES.copy(), onnxruntime.OrtDevice.make("cpu", 0)
    )
    (wanted,) = session.run_with_ort_values(
        ["y"],
        {
            "a": onnxruntime.OrtValue.ort_value_from_sparse_tensor(a),
            "b": onnxruntime.OrtValue.ortvalue_from_numpy(b),
        },
    )
    (found,) = interpret(import_onnx(model), "main", [dense, b])
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-6)


@pytest.mark.parametrize("element", [np.float64, np.int8, np.bool_, np.float16, ml_dtypes.bfloat16])
def test_constants_of_every_dtype(element: Any) -> None:
    value = sparse("v", np.array([1, 0, 1]).astype(element), PLACES)
    node = helper.make_node("Constant", [], ["y"], sparse_value=value)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(element))
    graph = helper.make_graph([node], "g", [], [make_value("y", [*SHAPE], kind)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    dense = np.zeros(SHAPE, element)
    dense[tuple(PLACES.T)] = np.array([1, 0, 1]).astype(element)
    np.testing.assert_array_equal(ingot.load(ingot.compile(model))().numpy(), dense)


@pytest.mark.parametrize(
    ("places", "shape", "message"),
    [
        ([[0, 3]], SHAPE, "outside"),
        ([-1], SHAPE, "outside"),
        ([[0, 1], [0, 2]], SHAPE, "indices of shape"),
        ([0], [1 << 20, 1 << 20, 1 << 20], "has the shape"),
        ([0], [-4, 3], "has the shape"),
    ],
)
def test_damaged_tensors_are_refused(places: Any, shape: Any, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        import_onnx(product(sparse("w", np.float32([1]), places, shape)))

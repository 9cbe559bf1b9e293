"""Whole models, as torch.onnx.export writes them, against their float64 references."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from ingot.compiler.frontends.onnx import import_onnx
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.graph.ops import Parameter
from ingot.compiler.graph.passes import run_graph_passes
from ingot.compiler.ir import walk
from tests.models import graphs
from tests.support.onnx_models import build_model, make_value

Node = helper.make_node


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "minilm", "minilm_128", "mobilenetv2_unfolded"])
def test_a_model_matches_its_reference(name: str) -> None:
    module = import_onnx(graphs.load(name, seed=0))
    arguments = graphs.sample(name, 0, **graphs.REFERENCE_DIMS.get(name, {}))
    (result,) = interpret(module, "main", list(arguments.values()))
    expected = graphs.reference(name)
    assert np.abs(result - expected).max() <= 5e-6 * np.abs(expected).max()


@pytest.mark.slow
def test_one_import_of_minilm_serves_every_batch_and_sequence() -> None:
    module = import_onnx(graphs.load("minilm"), parameters="external")
    weights = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in graphs.load("minilm", seed=0).graph.initializer
    }
    main = module.functions["main"]
    assert main.argument_names == ["input_ids", "attention_mask", "token_type_ids"]
    assert main.result_names == ["sentence_embedding"]
    assert list(main.symbols) == ["batch", "sequence"]
    for batch, sequence in ((1, 1), (2, 5)):
        arguments = graphs.sample("minilm", 1, batch=batch, sequence=sequence)
        (result,) = interpret(module, "main", list(arguments.values()), weights)
        assert result.shape == (batch, 384)
        np.testing.assert_allclose(np.linalg.norm(result, axis=1), 1, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["minilm", "minilm_128"])
def test_the_attention_that_torch_exports_becomes_one_op_per_layer(name: str) -> None:
    module = run_graph_passes(import_onnx(graphs.path(name), parameters="external"))
    assert sum(op.name == "attention" for op in walk(module)) == 6


def test_external_parameters_carry_names_and_no_data() -> None:
    module = import_onnx(
        graphs.path("resnet50"), parameters="external", parameter_names={"fc.weight": "head"}
    )
    parameters = [op for op in walk(module) if op.name == "parameter"]
    keys = {Parameter.of(op).key for op in parameters}
    assert {"conv1.weight", "head", "fc.bias"} <= keys
    assert "fc.weight" not in keys
    assert len(parameters) == 108


def test_layer_names_are_the_module_paths_of_the_source() -> None:
    module = import_onnx(graphs.path("resnet50"), parameters="external")
    locations = {op.location for op in walk(module) if op.name == "convolution"}
    assert any(str(location).startswith("layer1.0.") for location in locations)


def test_docs_of_inputs_and_outputs_are_kept() -> None:
    value = make_value("x", [2])
    value.doc_string = "two numbers"
    module = import_onnx(build_model([Node("Relu", ["x"], ["y"])], [value], ["y"]))
    assert module.functions["main"].docs == {"x": "two numbers"}


def test_a_local_function_is_inlined_with_its_attributes() -> None:
    body = [
        Node("LeakyRelu", ["a"], ["c"]),
        Node("Neg", ["c"], ["b"]),
    ]
    reference = body[0].attribute.add()
    reference.name, reference.ref_attr_name = "alpha", "slope"
    reference.type = onnx.AttributeProto.FLOAT
    function = helper.make_function(
        "local", "Bend", ["a"], ["b"], body, [helper.make_opsetid("", 20)], ["slope"]
    )
    node = Node("Bend", ["x"], ["y"], domain="local", name="bend", slope=0.5)
    model = build_model(
        [node], [make_value("x", [2])], ["y"], domains=["local"], functions=[function]
    )
    module = import_onnx(model)
    (result,) = interpret(module, "main", [np.array([-2, 4], np.float32)])
    np.testing.assert_array_equal(result, [1, -4])
    assert {op.location for op in walk(module) if op.name == "neg"} == {"bend/Neg_1"}


@pytest.mark.parametrize("element", ["float16", "bfloat16", "float64"])
def test_other_floating_point_dtypes_give_results_of_their_own_dtype(element: str) -> None:
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, element, None) or element)
    code = helper.np_dtype_to_tensor_dtype(dtype)
    weight = np.linspace(-1, 1, 12).reshape(3, 4).astype(dtype)
    model = build_model(
        [
            Node("MatMul", ["x", "w"], ["a"]),
            Node("LayerNormalization", ["a", "scale"], ["b"]),
            Node("Gelu", ["b"], ["c"]),
            Node("MeanVarianceNormalization", ["c"], ["d"], axes=[-1]),
            Node("Softmax", ["d"], ["y"]),
        ],
        [make_value("x", ["n", 3], code)],
        ["y"],
        {"w": weight, "scale": np.ones(4, dtype)},
    )
    (result,) = interpret(import_onnx(model), "main", [np.eye(3, dtype=np.float64).astype(dtype)])
    assert result.dtype == dtype
    np.testing.assert_allclose(result.astype(np.float64).sum(1), 1, rtol=1e-2)


def test_a_float64_product_with_an_initializer_keeps_its_precision() -> None:
    weight = np.random.default_rng(0).standard_normal((24, 40))
    model = build_model(
        [Node("MatMul", ["x", "w"], ["y"])], [make_value("x", ["n", 24], 11)], ["y"], {"w": weight}
    )
    module = import_onnx(model)
    (result,) = interpret(module, "main", [np.eye(24)])
    np.testing.assert_array_equal(result, weight)

"""Results that are chosen by name, so that what only the others need may be of any kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

import ingot
from ingot.__main__ import main
from ingot.compiler.frontends.onnx import import_onnx
from ingot.hal.errors import CompileError
from tests.support.devices import best_variant, load_best
from tests.support.onnx_models import build_model, make_value
from tests.support.onnx_sequences import Node

X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
WEIGHT = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
TEXT = TensorProto.STRING


def classifier(labels: list[Any]) -> onnx.ModelProto:
    """What skl2onnx writes of a network: labels through an array of them, and a map per row."""
    is_text = isinstance(labels[0], str)
    element = TEXT if is_text else TensorProto.INT64
    key = "classlabels_strings" if is_text else "classlabels_int64s"
    model = build_model(
        [
            Node("MatMul", ["x", "weight"], ["scores"]),
            Node("Softmax", ["scores"], ["probabilities"]),
            Node("ArgMax", ["probabilities"], ["best"], axis=1, keepdims=0),
            Node("ArrayFeatureExtractor", ["classes", "best"], ["row"], domain="ai.onnx.ml"),
            Node("Reshape", ["row", "shape"], ["output_label"]),
            Node(
                "ZipMap",
                ["probabilities"],
                ["output_probability"],
                domain="ai.onnx.ml",
                **{key: labels},
            ),
        ],
        [make_value("x", ["n", 4])],
        ["output_label", "output_probability"],
        {"weight": WEIGHT, "shape": np.array([-1])},
        opset=17,
        domains=["ai.onnx.ml"],
    )
    classes = np.array(labels, object if is_text else np.int64)
    model.graph.initializer.append(numpy_helper.from_array(classes, "classes"))
    model.graph.output[0].CopyFrom(make_value("output_label", ["n"], element))
    map = model.graph.output[1].type.sequence_type.elem_type.map_type
    map.key_type, map.value_type.tensor_type.elem_type = element, TensorProto.FLOAT
    return model


@pytest.mark.parametrize("labels", [["cat", "cow", "dog"], [1, 5, 9]])
def test_a_classifier_compiles_with_and_without_its_labels_and_maps(labels: list[Any]) -> None:
    model = classifier(labels)
    loaded = load_best(model, outputs=["best", "probabilities"])
    assert str(loaded.signature) == "main(x: f32[n,4]) -> (best: i64[n], probabilities: f32[n,3])"
    assert loaded.metadata["options"]["outputs"] == ["best", "probabilities"]
    best, probabilities = map(np.asarray, loaded(X))
    scores = np.exp(X @ WEIGHT)
    expected = scores / scores.sum(axis=1, keepdims=True)
    names, maps = load_best(model)(X)
    assert np.asarray(names).tolist() == [labels[place] for place in expected.argmax(axis=1)]
    assert [list(row) for row in maps] == [labels] * 5
    np.testing.assert_allclose([list(row.values()) for row in maps], expected, rtol=1e-5)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-5)
    np.testing.assert_array_equal(best, expected.argmax(axis=1))


def mixed() -> onnx.ModelProto:
    """Three good results, one of them of strings, and one of a layer that is not known."""
    model = build_model(
        [
            Node("Relu", ["x"], ["y"]),
            Node("Neg", ["other"], ["z"]),
            Node("Identity", ["words"], ["same"]),
            Node("ImageDecoder", ["bytes"], ["photo"]),
        ],
        [
            make_value("x", ["a"]),
            make_value("other", ["b"]),
            make_value("words", [2], TEXT),
            make_value("bytes", ["k"], TensorProto.UINT8),
        ],
        ["y", "same", "photo", "z"],
    )
    model.graph.output[1].CopyFrom(make_value("same", [2], TEXT))
    return model


def test_what_is_in_the_way_is_listed_with_the_results_that_do_not_need_it() -> None:
    with pytest.raises(CompileError) as refused:
        import_onnx(mixed())
    lines = str(refused.value).splitlines()
    assert lines[0] == "cannot compile the ModelProto: 1 problem"
    assert [line.split(":")[0].strip() for line in lines[1:-1]] == [
        "layer 'ImageDecoder_3'",
    ]
    chosen = 'outputs=["y", "same", "z"], or --outputs y,same,z,'
    assert lines[-1].strip() == f"{chosen} compiles without what needs these layers"
    with pytest.raises(CompileError) as alone:
        import_onnx(mixed(), outputs=["photo"])
    assert "compiles without" not in str(alone.value)


def test_arguments_that_the_results_do_not_need_are_left_out() -> None:
    assert str(load_best(mixed(), outputs="z").signature) == "main(other: f32[b]) -> (z: f32[b])"
    both = load_best({"one": mixed(), "two": mixed()}, outputs=["z", "y"])
    for function in (both.one, both.two):
        assert str(function.signature).endswith(
            "(x: f32[a], other: f32[b]) -> (z: f32[b], y: f32[a])"
        )


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (["logits"], r"no output 'logits'; its outputs are: y, same, photo, z$"),
        (["y", "y"], "outputs names 'y' twice"),
        ([""], "no output ''"),
        ([], "outputs is empty"),
    ],
)
def test_names_that_are_wrong_are_refused(outputs: list[str], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        import_onnx(mixed(), outputs=outputs)


def test_a_name_like_that_of_a_value_inside_is_pointed_to() -> None:
    with pytest.raises(CompileError, match=r"with such a name: probabilities$"):
        import_onnx(classifier([0, 1, 2]), outputs=["probability"])


def test_results_of_other_programs_are_not_chosen_by_name() -> None:
    exported = jax.export.export(jax.jit(lambda x: (x, -x)))(jax.ShapeDtypeStruct((2,), "float32"))
    text = "module {\n}"
    for source in (exported, exported.mlir_module_serialized, text, text.encode()):
        with pytest.raises(CompileError, match="outputs chooses the results of ONNX graphs"):
            ingot.compile(source, outputs=["y"])


def test_the_command_chooses_results(tmp_path: Path) -> None:
    source, out = tmp_path / "c.onnx", tmp_path / "c.ingot"
    onnx.save(classifier(["a", "b", "c"]), source)
    chosen = ["--outputs", "probabilities,best"]
    variant = ["--variants", best_variant()]
    assert main(["compile", str(source), "-o", str(out), *chosen, *variant]) == 0
    assert ingot.load(out)(X)[0].shape == (5, 3)
    assert main(["check", str(source), *chosen, "--dim", "n=3"]) == 0

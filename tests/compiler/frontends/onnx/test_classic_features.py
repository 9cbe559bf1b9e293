"""Linear models and feature ops of `ai.onnx.ml`, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from ingot.compiler.frontends.onnx import import_onnx
from ingot.hal.errors import CompileError, InvalidArgument
from tests.support.onnx_classic import classic_model, classic_node, read_classic
from tests.support.onnx_contrib import drawn
from tests.support.onnx_models import make_value

Array = np.ndarray[Any, Any]
KINDS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT"]
X = make_value("x", ["n", 4])
WITH_ZEROS = np.where(drawn(6, 4) > 0, drawn(6, 4), 0).astype(np.float32)


def floats(*shape: int, seed: int = 3) -> list[float]:
    return [float(x) for x in drawn(*shape, seed=seed).reshape(-1)]


def test_scaled_normalized_binarized_and_imputed_features() -> None:
    vector = {"offset": floats(4), "scale": floats(4, seed=4)}
    nodes = [
        classic_node("Scaler", ["x"], ["scaled"], **vector),
        classic_node("Scaler", ["wide"], ["scaled_wide"], **vector),
        classic_node("Scaler", ["whole"], ["scaled_whole"], offset=[0.5], scale=[2.0]),
        *(classic_node("Normalizer", ["x"], [each], norm=each) for each in ("MAX", "L1", "L2")),
        classic_node("Binarizer", ["x"], ["binary"], threshold=0.25),
        classic_node(
            "Imputer", ["x"], ["filled"], imputed_value_floats=floats(4), replaced_value_float=0.0
        ),
        classic_node(
            "Imputer", ["gaps"], ["closed"], imputed_value_floats=[7.0],
            replaced_value_float=float("nan"),
        ),
        classic_node(
            "Imputer", ["whole"], ["filled_whole"], imputed_value_int64s=[1, 2, 3, 4],
            replaced_value_int64=2,
        ),
    ]  # fmt: skip
    inputs = [
        X, make_value("wide", ["n", 4], TensorProto.DOUBLE), make_value("gaps", ["n", 4]),
        make_value("whole", ["n", 4], TensorProto.INT64),
    ]  # fmt: skip
    gaps = np.where(WITH_ZEROS == 0, np.nan, WITH_ZEROS).astype(np.float32)
    whole = np.random.default_rng(0).integers(-3, 4, (6, 4))
    read_classic(nodes, inputs).check(
        x=WITH_ZEROS, wide=drawn(6, 4, seed=1).astype(np.float64), gaps=gaps, whole=whole
    )


def test_features_beside_each_other_and_picked() -> None:
    nodes = [
        classic_node("FeatureVectorizer", ["x", "whole"], ["both"], inputdimensions=[4, 2]),
        classic_node("FeatureVectorizer", ["x", "x"], ["cut"], inputdimensions=[3, 5]),
        classic_node("ArrayFeatureExtractor", ["x", "columns"], ["some"]),
        classic_node("ArrayFeatureExtractor", ["row", "columns"], ["few"]),
    ]
    whole = make_value("whole", ["n", 2])
    model = read_classic(nodes, [X, whole, make_value("row", [5])], {"columns": np.array([[3, 0]])})
    model.check(x=drawn(3, 4), whole=drawn(3, 2), row=drawn(5))


def test_labels_and_categories_that_are_numbers() -> None:
    tensors = {
        "keys_tensor": numpy_helper.from_array(np.array([4, 1, 9], np.int64)),
        "values_tensor": numpy_helper.from_array(np.array([0.5, 1.5, 2.5])),
        "default_tensor": numpy_helper.from_array(np.array([-2.0])),
    }
    nodes = [
        classic_node(
            "LabelEncoder", ["whole"], ["numbers"], keys_int64s=[1, 2, 1],
            values_floats=[1.5, 2, 3], default_float=-1.0,
        ),
        classic_node("LabelEncoder", ["whole"], ["doubles"], **tensors),
        classic_node(
            "LabelEncoder", ["gaps"], ["integers"], keys_floats=[0.5, float("nan")],
            values_int64s=[7, 8],
        ),
        classic_node("OneHotEncoder", ["whole"], ["hot"], cats_int64s=[4, 2, 9, 1]),
        classic_node("OneHotEncoder", ["x"], ["hot_float"], cats_int64s=[0, 1]),
    ]  # fmt: skip
    model = read_classic(
        nodes, [make_value("whole", ["n", 2], TensorProto.INT64), X, make_value("gaps", ["n"])]
    )
    x = np.array([[0.5, 1.9, 0, 1.0]] * 3, np.float32)
    model.check(
        whole=np.array([[1, 2], [4, 9], [0, 3]]), x=x, gaps=np.array([np.nan, 0.5, 0], np.float32)
    )


def test_an_element_that_is_no_category_ends_the_call() -> None:
    node = classic_node("OneHotEncoder", ["whole"], ["hot"], cats_int64s=[4, 2], zeros=0)
    model = read_classic([node], [make_value("whole", ["n"], TensorProto.INT64)])
    model.check(whole=np.array([4, 2, 2]))
    with pytest.raises(InvalidArgument, match="whether each element is a category"):
        model.results(whole=np.array([4, 3]))


def test_linear_models_with_every_transform() -> None:
    nodes = []
    for kind in KINDS:
        for count in (1, 3):
            weights = {"coefficients": floats(count, 4), "post_transform": kind}
            nodes.append(
                classic_node(
                    "LinearRegressor", ["small"], [f"y_{kind}_{count}"], targets=count,
                    intercepts=floats(count), **weights,
                )
            )  # fmt: skip
            if (kind, count) == ("PROBIT", 1):
                continue  # onnxruntime leaves one of the two scores as memory was
            nodes.append(
                classic_node(
                    "LinearClassifier", ["small"],
                    [f"label_{kind}_{count}", f"score_{kind}_{count}"],
                    classlabels_ints=[5, 3, 8][: max(count, 2)], intercepts=floats(count),
                    **weights,
                )
            )  # fmt: skip
    model = read_classic(nodes, [make_value("small", ["n", 4])])
    model.check(2e-5, small=drawn(5, 4) / 8)


def encoder(labels: list[str]) -> list[Any]:
    classifier = classic_node(
        "LinearClassifier", ["x"], ["label", "scores"], classlabels_strings=labels,
        coefficients=floats(2, 4), intercepts=floats(2),
    )  # fmt: skip
    back = classic_node(
        "LabelEncoder", ["label"], ["number"], "back", keys_strings=labels, values_int64s=[1, 2]
    )
    return [classifier, back]


def test_scores_beside_labels_that_are_strings() -> None:
    model = classic_model(encoder(["a", "b"]), [X])
    model.graph.output[0].CopyFrom(make_value("label", ["n"], TensorProto.STRING))
    assert import_onnx(model).functions["main"].result_names[:2] == ["label", "label.utf8"]
    assert import_onnx(model, outputs=["scores"]).functions["main"].result_names == ["scores"]


def test_an_attribute_of_another_kind_is_refused() -> None:
    node = helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=3)
    with pytest.raises(CompileError, match="'threshold' is of the kind INT, expected FLOAT"):
        import_onnx(classic_model([node], [X]))

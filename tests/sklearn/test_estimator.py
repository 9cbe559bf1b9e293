"""`ingot.sklearn.Estimator` beside the estimators of scikit-learn that it compiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ingot
import ingot.sklearn

pytest.importorskip("skl2onnx")

from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

ROWS = np.random.default_rng(0).random((60, 4), np.float32)
KINDS = (ROWS.sum(axis=1) * 2).astype(int) % 3


@pytest.mark.parametrize("labels", [KINDS * 10 - 7, np.array(["a", "b", "c"])[KINDS]])
def test_classifiers(labels: Any) -> None:
    fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(ROWS, labels)
    model = ingot.sklearn.Estimator(fitted, ROWS)
    np.testing.assert_array_equal(model.predict(ROWS), fitted.predict(ROWS))
    assert model.predict(ROWS).dtype.kind == fitted.predict(ROWS).dtype.kind
    expected = fitted.predict_proba(ROWS)
    np.testing.assert_allclose(model.predict_proba(ROWS), expected, atol=1e-5)
    np.testing.assert_allclose(model.predict_log_proba(ROWS), np.log(expected), atol=1e-4)
    assert model.score(ROWS, labels) == pytest.approx(fitted.score(ROWS, labels))
    assert model.n_features_in_ == 4
    assert model.classes_ is not None
    assert model.classes_.tolist() == fitted.classes_.tolist()
    assert not hasattr(model, "transform")


@pytest.mark.slow
def test_forests() -> None:
    fitted = RandomForestClassifier(5, max_depth=4, random_state=0).fit(ROWS, KINDS)
    model = ingot.sklearn.Estimator(fitted, ROWS[:1])
    np.testing.assert_array_equal(model.predict(ROWS.tolist()), fitted.predict(ROWS))
    np.testing.assert_allclose(model.predict_proba(ROWS), fitted.predict_proba(ROWS), atol=1e-5)


def test_regressors() -> None:
    wanted = ROWS @ np.array([1, 2, 3, 4], np.float32) + 5
    fitted = LinearRegression().fit(ROWS, wanted)
    model = ingot.sklearn.Estimator(fitted, ROWS)
    assert model.predict(ROWS).shape == (60,)
    np.testing.assert_allclose(model.predict(ROWS), fitted.predict(ROWS), rtol=1e-5)
    assert model.score(ROWS, wanted) == pytest.approx(1)
    assert not hasattr(model, "predict_proba")


@pytest.mark.slow
def test_transformers_and_clusters() -> None:
    scaled = MinMaxScaler().fit(ROWS)
    model = ingot.sklearn.Estimator(scaled, ROWS)
    np.testing.assert_allclose(model.transform(ROWS), scaled.transform(ROWS), atol=1e-6)
    means = KMeans(3, n_init=1, random_state=0).fit(ROWS)
    model = ingot.sklearn.Estimator(means, ROWS)
    np.testing.assert_array_equal(model.predict(ROWS), means.predict(ROWS))
    np.testing.assert_allclose(model.transform(ROWS), means.transform(ROWS), atol=1e-5)


@pytest.mark.slow
def test_onnx_models_and_columns() -> None:
    import skl2onnx
    from skl2onnx.common.data_types import FloatTensorType

    fitted = make_pipeline(
        make_column_transformer((StandardScaler(), [0]), (MinMaxScaler(), [1])),
        LogisticRegression(),
    ).fit(ROWS[:, :2], KINDS)
    source = skl2onnx.convert_sklearn(
        fitted, initial_types=[(name, FloatTensorType([None, 1])) for name in ("a", "b")],
        options={"zipmap": False},
    )  # fmt: skip
    model = ingot.sklearn.Estimator(source.SerializeToString())
    columns = {"a": ROWS[:, 0], "b": ROWS[:, 1].tolist()}
    np.testing.assert_array_equal(model.predict(columns), fitted.predict(ROWS[:, :2]))
    assert model.classes_ is None
    with pytest.raises(ingot.InvalidArgument, match="takes a column 'b': pass a data frame or a d"):
        model.predict({"a": ROWS[:, 0]})


@pytest.mark.slow
def test_labels_and_categories_that_are_texts() -> None:
    import skl2onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType

    colors = np.array(["red", "green", "blue"])[KINDS].reshape(-1, 1).astype(object)
    rows = np.concatenate([colors, ROWS[:, :1].astype(object)], axis=1)
    names = np.array(["x", "y", "z"])[KINDS]
    fitted = make_pipeline(
        make_column_transformer((OneHotEncoder(), [0]), (StandardScaler(), [1])),
        LogisticRegression(),
    ).fit(rows, names)
    types = [("color", StringTensorType([None, 1])), ("size", FloatTensorType([None, 1]))]
    model = ingot.sklearn.Estimator(skl2onnx.convert_sklearn(fitted, initial_types=types))
    columns = {"color": colors, "size": ROWS[:, 0]}
    np.testing.assert_array_equal(model.predict(columns), fitted.predict(rows))
    np.testing.assert_allclose(model.predict_proba(columns), fitted.predict_proba(rows), atol=1e-5)
    assert model.n_features_in_ == 2


def test_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = LinearRegression().fit(ROWS, KINDS)
    model = ingot.sklearn.Estimator(fitted, ROWS)
    with pytest.raises(ingot.InvalidArgument, match="X has 3 features, but 4 are expected"):
        model.predict(ROWS[:, :3])
    with pytest.raises(ingot.InvalidArgument, match=r"rank 1: reshape one row with \.reshape"):
        model.predict(ROWS[0])
    with pytest.raises(ingot.InvalidArgument, match="LinearRegression does not say what it takes"):
        ingot.sklearn.Estimator(fitted)
    with pytest.raises(ingot.InvalidArgument, match="an ONNX model says it itself"):
        ingot.sklearn.Estimator(b"", ROWS)
    monkeypatch.setitem(__import__("sys").modules, "skl2onnx", None)
    with pytest.raises(ingot.NotFound, match="skl2onnx, which writes estimators as ONNX"):
        ingot.sklearn.Estimator(fitted, ROWS)

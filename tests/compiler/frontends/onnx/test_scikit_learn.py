"""Estimators of scikit-learn, as skl2onnx writes them, with a batch of any size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from skl2onnx import to_onnx
from sklearn.cluster import KMeans
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import RadiusNeighborsRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    StandardScaler,
)
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from tests.support.devices import load_best
from tests.support.onnx_contrib import Read

Array = np.ndarray[Any, Any]
CLASSES = {
    count: make_classification(60, 6, n_informative=4, n_classes=count, random_state=0)
    for count in (2, 3)
}
CLASSIFIERS = [
    LogisticRegression(),
    LinearSVC(),
    RandomForestClassifier(4, random_state=0),
    GradientBoostingClassifier(n_estimators=3, random_state=0),
    DecisionTreeClassifier(random_state=0),
    MLPClassifier((5,), max_iter=400, random_state=0),
    make_pipeline(StandardScaler(), MinMaxScaler(), LogisticRegression()),
    make_pipeline(
        SimpleImputer(), Normalizer("l1"), Binarizer(threshold=0.1), LogisticRegression()
    ),
]
OTHERS = [
    LinearRegression(),
    RandomForestRegressor(4, random_state=0),
    GradientBoostingRegressor(n_estimators=3, random_state=0),
    DecisionTreeRegressor(random_state=0),
    make_pipeline(StandardScaler(), Normalizer()),
    KMeans(3, random_state=0, n_init=1),
    KBinsDiscretizer(3, encode="onehot-dense", quantile_method="averaged_inverted_cdf"),
]


def name_of(estimator: Any) -> str:
    steps = getattr(estimator, "steps", [(type(estimator).__name__, None)])
    return "-".join(name for name, _ in steps)


def written(estimator: Any, rows: Array) -> Any:
    options = {"zipmap": False} if hasattr(estimator, "predict_proba") else None
    model = to_onnx(estimator, rows[:1], options=options, target_opset={"": 18, "ai.onnx.ml": 3})
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 0
    return Read(model)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", CLASSIFIERS, ids=name_of)
def test_classifiers_of_two_and_three_classes(estimator: Any) -> None:
    for count in (2, 3):
        rows = CLASSES[count][0].astype(np.float32)
        estimator.fit(rows, CLASSES[count][1] + 3)
        model = written(estimator, rows)
        model.check(5e-6, X=rows)
        label = model.results(X=rows)["label"]
        assert np.mean(label == estimator.predict(rows)) > 0.95


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", OTHERS, ids=name_of)
def test_regressors_and_transformers(estimator: Any) -> None:
    rows = CLASSES[2][0].astype(np.float32)
    estimator.fit(rows, rows[:, 0] + rows[:, 1] * rows[:, 2])
    written(estimator, rows).check(1e-5, X=rows)


def test_neighbours_within_a_radius() -> None:
    """onnxruntime refuses the index -1 that skl2onnx writes for those outside."""
    rows = CLASSES[2][0].astype(np.float32)
    estimator = RadiusNeighborsRegressor(4.0).fit(rows, rows[:, 0])
    found = written(estimator, rows).results(X=rows)["variable"].reshape(-1)
    np.testing.assert_allclose(found, estimator.predict(rows), 1e-5, 1e-6)


def test_categories_that_are_numbers() -> None:
    rows = np.random.default_rng(0).integers(0, 4, (20, 2))
    encoder = OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit(rows)
    written(encoder, rows).check(X=rows + 1)


@pytest.mark.slow
def test_a_pipeline_compiles_for_every_batch() -> None:
    rows, classes = CLASSES[3]
    rows = rows.astype(np.float32)
    forest = RandomForestClassifier(9, random_state=0)
    pipeline = make_pipeline(StandardScaler(), forest).fit(rows, classes)
    read = written(pipeline, rows)
    model = load_best(read.proto)
    for count in (1, 7, 60):
        label, probabilities = (np.asarray(each) for each in model(rows[:count]))
        np.testing.assert_array_equal(label, pipeline.predict(rows[:count]))
        np.testing.assert_allclose(
            probabilities, pipeline.predict_proba(rows[:count]), rtol=1e-5, atol=1e-6
        )

"""Support vector machines of `ai.onnx.ml`, trained by scikit-learn, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from skl2onnx import to_onnx
from sklearn.datasets import make_classification
from sklearn.svm import SVC, SVR, OneClassSVM

from tests.support.onnx_classic import classic_node, read_classic
from tests.support.onnx_contrib import Read, drawn
from tests.support.onnx_models import make_value

KERNELS = ["linear", "poly", "rbf", "sigmoid"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("kernel", KERNELS)
def test_classifiers(kernel: str, classes: int) -> None:
    rows, labels = make_classification(
        60, 6, n_informative=5, n_redundant=0, n_classes=classes, random_state=0
    )
    rows = rows.astype(np.float32)
    for probability in (False, True):
        estimator = SVC(kernel=kernel, coef0=0.25, probability=probability, random_state=0)
        estimator.fit(rows, labels + 3)
        options = {"zipmap": False}
        model = Read(
            to_onnx(estimator, rows[:1], options=options, target_opset={"": 18, "ai.onnx.ml": 3})
        )
        model.check(2e-5, X=rows)


@pytest.mark.parametrize("kernel", KERNELS)
def test_regressors(kernel: str) -> None:
    rows = drawn(40, 3)
    # the sums of a linear one-class machine cancel out to rounding errors
    others = [] if kernel == "linear" else [OneClassSVM(kernel=kernel)]
    for estimator in (SVR(kernel=kernel, coef0=0.25), *others):
        estimator.fit(rows, rows[:, 0] * rows[:, 1])
        model = to_onnx(estimator, rows[:1], target_opset={"": 18, "ai.onnx.ml": 3})
        Read(model).check(2e-5, X=rows)


def test_linear_machines_without_vectors() -> None:
    weights = {
        "coefficients": [float(x) for x in drawn(3, 4).reshape(-1)],
        "rho": [0.25],
        "kernel_type": "LINEAR",
    }
    nodes = [
        classic_node("SVMRegressor", ["x"], ["y"], coefficients=[1.0, 2.0, -1.0, 0.5], rho=[0.5],
            kernel_params=[0.5, 0.0, 3.0], n_supports=0),
        *(
            classic_node(
                "SVMClassifier", ["x"], [f"label_{kind}", f"score_{kind}"], post_transform=kind,
                classlabels_ints=[4, 2, 9], kernel_params=[0.5, 0.0, 3.0], **weights,
            )
            for kind in ("NONE", "LOGISTIC", "SOFTMAX")
        ),
        classic_node("SVMClassifier", ["x"], ["label_RBF", "score_RBF"], classlabels_ints=[4, 2, 9],
            kernel_params=[0.5, 0.0, 3.0], **weights | {"kernel_type": "RBF"}),
    ]  # fmt: skip
    read_classic(nodes, [make_value("x", ["n", 4])]).check(5e-6, x=drawn(7, 4))

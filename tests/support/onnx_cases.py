"""ONNX models that are compiled once and run at several shapes, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime

import ingot

__all__ = ["Pair"]


class Pair:
    """One model, compiled by Ingot and loaded by onnxruntime."""

    def __init__(self, model: onnx.ModelProto) -> None:
        inferred = onnx.shape_inference.infer_shapes(model)
        self.names = [value.name for value in model.graph.output]
        self.model = ingot.load(ingot.compile(model))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        self.session = onnxruntime.InferenceSession(inferred.SerializeToString(), options)

    def check(self, tolerance: float = 2e-6, **inputs: Any) -> None:
        """Both results are equal up to `tolerance` of the greatest element, NaN included."""
        results = self.model.main(**inputs)
        results = results if isinstance(results, tuple) else (results,)
        for name, result, expected in zip(
            self.names, results, self.session.run(None, inputs), strict=True
        ):
            actual = np.asarray(result)
            assert actual.dtype == expected.dtype, name
            assert actual.shape == expected.shape, name
            finite = expected[np.isfinite(expected)] if expected.dtype.kind == "f" else expected
            scale = float(np.abs(finite).max(initial=0)) if expected.dtype.kind == "f" else 0
            np.testing.assert_allclose(
                actual, expected, rtol=1e-5, atol=tolerance * scale, err_msg=name
            )

"""ONNX models that are compiled once and run at several shapes, against an oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from tests.support.devices import load_best
from tests.support.onnx_models import build_model
from tests.support.results import arrays_of, assert_same

__all__ = ["Case", "Pair", "in_onnxruntime", "in_reference"]

Array = np.ndarray[Any, Any]
Oracle = Callable[[dict[str, Any]], list[Any]]


def in_onnxruntime(model: onnx.ModelProto) -> Oracle:
    """What onnxruntime gives for arguments by name."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return lambda arguments: list(session.run(None, arguments))


def in_reference(model: onnx.ModelProto) -> Oracle:
    """What the evaluator of the standard gives for arguments by name."""
    evaluator = ReferenceEvaluator(model)
    return lambda arguments: list(evaluator.run(None, arguments))


class Case:
    """A model compiled once for this machine, and an oracle, which says what is right."""

    def __init__(
        self,
        nodes: Sequence[onnx.NodeProto],
        inputs: Sequence[onnx.ValueInfoProto],
        outputs: Sequence[str],
        initializers: Mapping[str, Any] | None = None,
        *,
        opset: int = 20,
        oracle: Callable[[onnx.ModelProto], Oracle] = in_onnxruntime,
    ) -> None:
        self.outputs = outputs
        self.proto = build_model(nodes, inputs, outputs, initializers, opset=opset)
        self.model = load_best(self.proto)
        self.wanted = oracle(self.proto)

    def results(self, **inputs: Any) -> list[Array]:
        return arrays_of(self.model.main(**inputs))

    def check(self, **inputs: Any) -> None:
        """The results are the oracle's, floats up to 1e-5 of each."""
        wanted = self.wanted(inputs)
        for name, found, expected in zip(self.outputs, self.results(**inputs), wanted, strict=True):
            assert_same(found, expected, 1e-5, 0, name)


class Pair:
    """A model compiled by Ingot and, after shape inference, by onnxruntime."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.names = [value.name for value in model.graph.output]
        self.model = load_best(model)
        self.wanted = in_onnxruntime(onnx.shape_inference.infer_shapes(model))

    def check(self, tolerance: float = 2e-6, **inputs: Any) -> None:
        """Both results are equal up to `tolerance` of the greatest element, NaN included."""
        results = arrays_of(self.model.main(**inputs))
        for name, result, expected in zip(self.names, results, self.wanted(inputs), strict=True):
            if expected.dtype.kind != "f":
                assert_same(result, expected, what=name)
                continue
            scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=0))
            assert_same(result, expected, 1e-5, tolerance * scale, name)

"""The node tests of the ONNX standard, as cases of tensors, and how they are read and judged."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from ingot.compiler.frontends.onnx import import_onnx
from ingot.compiler.ir import Module

__all__ = ["Import", "Run", "check", "node_tests", "read", "read_dynamic"]

Run = Callable[[list[Any]], Sequence[Any]]
Import = Callable[[Any], Module]


def node_tests() -> list[Any]:
    """All of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        return [_TensorCase(case) for case in collect_testcases(None)]


class _TensorCase:
    """A case whose model takes and gives tensors only: a sequence or an optional is made from
    tensors inside, and taken apart to some."""

    def __init__(self, case: Any) -> None:
        self.name = case.name
        self.model = onnx.ModelProto()
        self.model.CopyFrom(case.model)
        self.data_sets = [(list(inputs), list(outputs)) for inputs, outputs in case.data_sets]
        values = [*self.model.graph.input, *self.model.graph.output]
        if any(value.type.WhichOneof("value") != "tensor_type" for value in values):
            self._take_apart()

    def _take_apart(self) -> None:
        graph = self.model.graph
        inputs, outputs = list(graph.input), list(graph.output)
        del graph.input[:], graph.output[:]
        ((given, wanted),) = self.data_sets
        made: list[onnx.NodeProto] = []
        arguments: list[Any] = []
        for value, each in zip(inputs, given, strict=True):
            made += self._make(value.name, value.type, each, arguments)
        nodes = [*made, *graph.node]
        results: list[Any] = []
        for value, each in zip(outputs, wanted, strict=True):
            nodes += self._read(value.name, value.type, each, results)
        del graph.node[:]
        graph.node.extend(nodes)
        self.data_sets = [(arguments, results)]

    def _make(self, name: str, type: Any, given: Any, arguments: list[Any]) -> list[Any]:
        """Nodes that make what `given` is of tensors, which become arguments."""
        node = onnx.helper.make_node
        kind = type.WhichOneof("value")
        if kind == "optional_type":
            element = type.optional_type.elem_type
            inner = element.WhichOneof("value")
            if given is None or (isinstance(given, list) and any(x is None for x in given)):
                return [node("Optional", [], [name], type=element)]
            if inner == "tensor_type" and isinstance(given, list):
                (given,) = given
            nodes = self._make(f"{name}_content", element, given, arguments)
            return [*nodes, node("Optional", [f"{name}_content"], [name])]
        if kind == "sequence_type":
            element = type.sequence_type.elem_type
            if not given:
                code = element.tensor_type.elem_type
                return [node("SequenceEmpty", [], [name], dtype=code)]
            names = [f"{name}_{place}" for place in range(len(given))]
            for each, part in zip(names, given, strict=True):
                self._make(each, element, part, arguments)
            return [node("SequenceConstruct", names, [name])]
        array = np.asarray(_array(given))
        value = onnx.helper.make_tensor_value_info(name, type.tensor_type.elem_type, array.shape)
        self.model.graph.input.append(value)
        arguments.append(array)
        return []

    def _read(self, name: str, type: Any, wanted: Any, results: list[Any]) -> list[Any]:
        """Nodes that read the tensors of what `wanted` is, which become results."""
        node = onnx.helper.make_node
        kind = type.WhichOneof("value")
        if kind == "optional_type":
            inner = type.optional_type.elem_type
            nodes = [node("OptionalGetElement", [name], [f"{name}_content"])]
            if inner.WhichOneof("value") == "tensor_type" and isinstance(wanted, list):
                (wanted,) = wanted
            return [*nodes, *self._read(f"{name}_content", inner, wanted, results)]
        graph = self.model.graph
        if kind == "sequence_type":
            nodes = []
            for place, part in enumerate(wanted):
                at = onnx.numpy_helper.from_array(np.int64(place), f"{name}_at_{place}")
                graph.initializer.append(at)
                nodes.append(node("SequenceAt", [name, at.name], [f"{name}_{place}"]))
                graph.output.append(onnx.ValueInfoProto(name=f"{name}_{place}"))
                results.append(part)
            graph.output.append(onnx.ValueInfoProto(name=f"{name}_length"))
            results.append(np.int64(len(wanted)))
            return [*nodes, node("SequenceLength", [name], [f"{name}_length"])]
        graph.output.append(onnx.ValueInfoProto(name=name))
        results.append(wanted)
        return []


def _array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def read(case: Any) -> Module:
    """The module; no input is constant."""
    return import_onnx(case.model)


def read_dynamic(case: Any) -> Module:
    """The module with a symbol for every dim, but how many sizes an input lists; no input is
    constant."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for place, value in enumerate(model.graph.input):
        tensor = value.type.tensor_type
        if len(tensor.shape.dim) == 1 and tensor.shape.dim[0].dim_value < 12 and place > 0:
            continue
        for axis, dim in enumerate(tensor.shape.dim):
            dim.dim_param = f"d{place}_{axis}"
    for value in model.graph.output:
        for dim in value.type.tensor_type.shape.dim:
            dim.Clear()
    return import_onnx(model)


def _comparable(array: Any) -> Any:
    """Floats as f64, so that ml_dtypes arrays compare."""
    return array.astype(np.float64) if array.dtype.kind in "fV" else array


def _is_drawn(case: Any) -> bool:
    """Whether the results are random: the standard says their types, not their numbers."""
    dropout = case.name.startswith("test_training_dropout") and "zero_ratio" not in case.name
    return dropout or case.name.startswith("test_bernoulli")


def check(case: Any, run: Run) -> None:
    """Compare what `run` gives with what the standard says."""
    for inputs, outputs in case.data_sets:
        results = run([_array(given) for given in inputs])
        for result, output in zip(results, map(_array, outputs), strict=False):
            expected = np.asarray(output)
            assert result.dtype == expected.dtype
            assert result.shape == expected.shape
            if _is_drawn(case):
                continue
            relative = 1e-3 if expected.dtype.itemsize > 2 else 2e-2
            np.testing.assert_allclose(
                _comparable(result), _comparable(expected), rtol=relative, atol=1e-6
            )

"""Every tensor of an ONNX graph in onnxruntime and in the program that was imported from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from ingot.compiler import ir
from ingot.compiler.frontends.onnx.check import live_nodes
from ingot.compiler.read_source import read_source
from ingot.hal.errors import Unsupported
from ingot.peer import PeerTensor, interpret_from

__all__ = ["compare_import"]

_Array = npt.NDArray[Any]
_DRAWN = frozenset({"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
                    "Bernoulli", "Multinomial"})  # fmt: skip
"""Ops whose results differ from engine to engine."""


def compare_import(
    path: str,
    source: ir.Module,
    arguments: Sequence[Any],
    weights: Mapping[str, _Array],
    outputs: Sequence[str] | None,
) -> list[PeerTensor]:
    """The tensors of the graph's own nodes, in their order, but lists, strings and random numbers.

    `arguments` are those of `source`, the module that was imported, with these `outputs`.
    Unsupported: onnxruntime is not installed, or does not run the model.
    """
    given = dict(zip(source.functions["main"].argument_names, arguments, strict=True))
    model = _shown_model(path, source, weights, outputs)
    expected = _run(model, given)
    module = read_source(
        path, parameters="external" if weights else "embedded", outputs=list(expected)
    )
    taken = [given[name] for name in module.functions["main"].argument_names]
    drawn = {name for node in model.graph.node if node.op_type in _DRAWN for name in node.output}
    whole = interpret_from(
        module, taken, weights, {name: expected[name] for name in drawn & expected.keys()}
    )
    own = interpret_from(module, taken, weights, expected)
    return [
        PeerTensor(name, array, own[name], whole[name])
        for name, array in expected.items()
        if name not in drawn
    ]


def _shown_model(
    path: str,
    source: ir.Module,
    weights: Mapping[str, _Array],
    outputs: Sequence[str] | None,
) -> onnx.ModelProto:
    """The nodes that the results need, with all that they make as outputs, and these weights."""
    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    for tensor in graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(onnx.numpy_helper.from_array(weights[tensor.name], tensor.name))
    onnx.external_data_helper.load_external_data_for_model(model, str(Path(path).parent))
    wanted = list(outputs) if outputs else [value.name for value in graph.output]
    nodes = [graph.node[place] for place in sorted(live_nodes(graph.node, wanted))]
    used = set(source.functions["main"].argument_names)
    used.update(tensor.name for tensor in graph.initializer)
    inputs = [value for value in graph.input if value.name in used]
    for field, kept in ((graph.node, nodes), (graph.input, inputs)):
        copies = [type(each).FromString(each.SerializeToString()) for each in kept]
        del field[:]
        field.extend(copies)
    del graph.output[:]
    made = dict.fromkeys(name for node in nodes for name in node.output if name)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    return model


def _run(model: onnx.ModelProto, given: Mapping[str, Any]) -> dict[str, _Array]:
    """The numeric tensors that onnxruntime makes, by name."""
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError as error:
        raise Unsupported(
            f"comparing needs onnxruntime: pip install onnxruntime ({error})"
        ) from None
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4  # errors come as exceptions
    try:
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, ["CPUExecutionProvider"]
        )
        results = session.run(None, dict(given))
    except Exception as error:  # it has many kinds, none of them public
        raise Unsupported(f"onnxruntime does not run this model: {error}") from error
    names = [value.name for value in model.graph.output]
    return {
        name: array
        for name, array in zip(names, results, strict=True)
        if isinstance(array, np.ndarray) and array.dtype.kind in "biufc"
    }

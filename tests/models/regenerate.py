"""Regenerates the committed model graphs, their float64 references and the sample's graph.

Run it as `python tests/models/regenerate.py` with torch and onnxscript installed. Every network
of `definitions.py` goes through `torch.onnx.export` at its default opset; then its weights are
replaced by external-data references without a file, and metadata other than module paths is
dropped. Nothing else in the project needs torch. This script trains nothing.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import definitions
import graphs
import numpy as np
import onnx
import torch
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

ROOT = Path(__file__).resolve().parents[2]
SCOPES = "pkg.torch.onnx.name_scopes"
MINIMUM_WEIGHT_COUNT = 8  # smaller initializers are constants of the graph, not weights


@dataclass(frozen=True)
class Export:
    """One call of torch.onnx.export. With optimize off, weights keep their module names."""

    path: Path
    network: type[torch.nn.Module]
    shape: tuple[int, ...]
    inputs: tuple[str, ...]
    output: str
    optimize: bool = True
    symbols: tuple[str, ...] = ()


TOKENS = ("input_ids", "attention_mask", "token_type_ids")
IMAGE = (1, 3, 224, 224)
EXPORTS = (
    Export(graphs.path("mlp"), definitions.MultilayerPerceptron, (4, 784), ("x",), "logits"),
    Export(graphs.path("resnet50"), definitions.ResNet50, IMAGE, ("image",), "logits"),
    Export(graphs.path("mobilenetv2"), definitions.MobileNetV2, IMAGE, ("image",), "logits"),
    # The exporter's optimizer folds BatchNormalization into Conv; one graph keeps them.
    Export(
        graphs.path("mobilenetv2_unfolded"),
        definitions.MobileNetV2,
        IMAGE,
        ("image",),
        "logits",
        optimize=False,
    ),
    Export(graphs.path("minilm_128"), definitions.MiniLM, (1, 128), TOKENS, "sentence_embedding"),
    Export(
        graphs.path("minilm"),
        definitions.MiniLM,
        (2, 128),
        TOKENS,
        "sentence_embedding",
        symbols=("batch", "sequence"),
    ),
    # The sample's weights come by name from a safetensors file, so they must not be folded.
    Export(
        ROOT / "samples" / "sentence_embeddings" / "minilm.onnx",
        definitions.MiniLM,
        (2, 128),
        TOKENS,
        "sentence_embedding",
        optimize=False,
        symbols=("batch", "sequence"),
    ),
)


def main() -> int:
    for export in EXPORTS:
        model = strip(run(export))
        model.graph.name = export.path.stem
        export.path.write_bytes(model.SerializeToString(deterministic=True))
        print(f"{export.path.relative_to(ROOT)}: {export.path.stat().st_size} bytes")
    references = {name: evaluate(name) for name in graphs.NAMES}
    np.savez(ROOT / "tests" / "models" / "references.npz", **references)
    for name, values in references.items():
        print(f"{name}: {values.shape}, |max| {np.abs(values).max():.4g}")
    return 0


def run(export: Export) -> onnx.ModelProto:
    """The model as the exporter writes it, weights included."""
    if export.inputs == TOKENS:
        # distinct tensors: the exporter would merge inputs that are one object
        arguments = tuple(torch.ones(export.shape, dtype=torch.int64) for _ in TOKENS)
    else:
        arguments = (torch.zeros(export.shape),)
    axes = dict(enumerate(export.symbols))
    network = export.network().eval()
    torch.manual_seed(0)
    for tensor in network.state_dict().values():
        # the exporter merges equal initializers and drops zeros: make them all different
        if tensor.dtype.is_floating_point:
            tensor.uniform_(0.5, 1.5)
    with torch.no_grad():
        program = torch.onnx.export(
            network,
            arguments,
            dynamo=True,
            input_names=list(export.inputs),
            output_names=[export.output],
            dynamic_shapes=tuple(axes for _ in arguments) if axes else None,
            optimize=export.optimize,
            verbose=False,
        )
    assert program is not None
    return program.model_proto


def strip(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replaces weights by references without a file; keeps module paths, drops other metadata."""
    for tensor in model.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.dtype.kind == "f" and array.ndim and array.size >= MINIMUM_WEIGHT_COUNT:
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            del tensor.external_data[:]
            tensor.external_data.add(key="location", value="weights-are-not-committed")
        del tensor.metadata_props[:]
    for node in model.graph.node:
        scopes = [entry.value for entry in node.metadata_props if entry.key == SCOPES]
        del node.metadata_props[:]
        if scopes:
            innermost = ast.literal_eval(scopes[0])[-2:]  # the module path and the traced op
            node.metadata_props.add(key=SCOPES, value=repr(innermost))
    for value in [*model.graph.input, *model.graph.output]:
        del value.metadata_props[:]
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    del model.graph.value_info[:]
    return model


class Conv(OpRun):
    """Convolution of the reference evaluator through torch: its own is minutes per network."""

    op_domain = ""

    def _run(self, x: Any, weight: Any, bias: Any = None, **attributes: Any) -> tuple[Any]:
        pads = attributes["pads"] or [0, 0, 0, 0]
        assert pads[:2] == pads[2:]
        assert attributes["auto_pad"] in (None, "NOTSET")
        result = torch.nn.functional.conv2d(
            torch.from_numpy(x.copy()),
            torch.from_numpy(weight.copy()),
            None if bias is None else torch.from_numpy(bias.copy()),
            tuple(attributes["strides"] or (1, 1)),
            tuple(pads[:2]),
            tuple(attributes["dilations"] or (1, 1)),
            attributes["group"] or 1,
        )
        return (result.numpy(),)


def evaluate(name: str) -> np.ndarray[Any, Any]:
    """The float64 result of a graph filled from seed 0."""
    model = graphs.load(name, seed=0)
    for tensor in model.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(onnx.numpy_helper.from_array(array.astype(np.float64), tensor.name))
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.i == onnx.TensorProto.FLOAT:
                attribute.i = onnx.TensorProto.DOUBLE
            if attribute.HasField("t") and attribute.t.data_type == onnx.TensorProto.FLOAT:
                wide = onnx.numpy_helper.to_array(attribute.t).astype(np.float64)
                attribute.t.CopyFrom(onnx.numpy_helper.from_array(wide))
    arguments = graphs.sample(name, 0, **graphs.REFERENCE_DIMS.get(name, {}))
    wide_arguments = {
        key: value.astype(np.float64) if value.dtype == np.float32 else value
        for key, value in arguments.items()
    }
    (result,) = ReferenceEvaluator(model, new_ops=[Conv]).run(None, wide_arguments)
    assert result.dtype == np.float64, f"{name} left float64: {result.dtype}"
    return np.asarray(result)


if __name__ == "__main__":
    sys.exit(main())

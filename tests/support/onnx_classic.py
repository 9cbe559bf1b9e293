"""Models of `ai.onnx.ml` ops for comparison with onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import helper

from tests.support.onnx_contrib import Read
from tests.support.onnx_models import build_model

__all__ = ["classic_model", "classic_node", "read_classic"]

_DOMAIN = "ai.onnx.ml"


def classic_node(name: str, *args: Any, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(name, *args, domain=_DOMAIN, **attributes)


def classic_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    arrays: Mapping[str, Any] | None = None,
    *,
    opset: int = 4,
) -> onnx.ModelProto:
    """All results of the nodes are results of the model; `opset` is that of the domain."""
    outputs = [name for node in nodes for name in node.output if name]
    model = build_model(nodes, inputs, outputs, arrays, domains=[_DOMAIN])
    model.opset_import[1].version = opset
    return model


def read_classic(*args: Any, **options: Any) -> Read:
    """As `classic_model`, read by the front end."""
    return Read(classic_model(*args, **options))

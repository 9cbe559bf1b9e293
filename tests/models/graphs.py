"""Committed model graphs without weights: loading them, and filling them from a seed.

A graph keeps its weights as external-data references to a file that does not exist, so it stays
small and any tool can still read its structure. `fill` gives every such weight non-trivial,
well-scaled values that depend on its name and the seed only, the same on every machine; `sample`
does it for inputs. `reference` is the float64 result for seed 0, computed by `regenerate.py`.
This module needs onnx and NumPy, not torch and not Ingot.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

__all__ = ["NAMES", "fill", "is_stripped", "load", "path", "reference", "sample"]

NAMES = ("mlp", "resnet50", "mobilenetv2", "mobilenetv2_unfolded", "minilm", "minilm_128")

_FOLDER = Path(__file__).parent
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def path(name: str) -> Path:
    """The committed graph of `name`, one of NAMES."""
    if name not in NAMES:
        raise ValueError(f"no model graph named {name!r}; there are {', '.join(NAMES)}")
    return _FOLDER / f"{name}.onnx"


def load(name: str, *, seed: int | None = None) -> onnx.ModelProto:
    """The committed graph of `name`, filled from `seed`, or without weights if seed is None."""
    model = onnx.load(path(name), load_external_data=False)
    return model if seed is None else fill(model, seed)


def is_stripped(tensor: TensorProto) -> bool:
    """True if the initializer's data was left out of the committed graph."""
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def fill(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """A copy of `model` in which every stripped initializer has values drawn from `seed`."""
    filled = onnx.ModelProto()
    filled.CopyFrom(model)
    roles = _roles(filled.graph)
    for tensor in filled.graph.initializer:
        if not is_stripped(tensor):
            continue
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        values = _weight(tuple(tensor.dims), roles.get(tensor.name, ""), tensor.name, seed)
        tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(dtype), tensor.name))
    return filled


def sample(name: str, seed: int, **dims: int) -> dict[str, np.ndarray[Any, Any]]:
    """Arguments by name for the graph of `name`; `dims` gives the symbolic dims, if any."""
    arguments: dict[str, np.ndarray[Any, Any]] = {}
    for value in load(name).graph.input:
        shape = tuple(
            dims[dim.dim_param] if dim.dim_param else dim.dim_value
            for dim in value.type.tensor_type.shape.dim
        )
        uniform = _uniform(shape, value.name, seed)
        if value.name == "attention_mask":
            # each row keeps a prefix of its tokens, at least one
            lengths = 1 + (uniform[:, :1] * shape[1]).astype(np.int64)
            arguments[value.name] = (np.arange(shape[1]) < lengths).astype(np.int64)
        elif value.type.tensor_type.elem_type == TensorProto.INT64:
            bound = 2 if value.name == "token_type_ids" else 30522
            arguments[value.name] = (uniform * bound).astype(np.int64)
        else:
            arguments[value.name] = (_ROOT12 * (uniform - 0.5)).astype(np.float32)
    return arguments


def reference(name: str) -> np.ndarray[Any, Any]:
    """The float64 result of `name` filled from seed 0 on `sample(name, 0, **REFERENCE_DIMS)`."""
    with np.load(_FOLDER / "references.npz") as references:
        result: np.ndarray[Any, Any] = references[name]
    return result


REFERENCE_DIMS = {"minilm": {"batch": 3, "sequence": 17}}
_ROOT12 = math.sqrt(12.0)  # scales a uniform variable to variance 1


def _uniform(shape: tuple[int, ...], name: str, seed: int) -> np.ndarray[Any, Any]:
    """Values in [0, 1), float64: splitmix64 of a counter, so the stream never changes."""
    start = np.uint64(zlib.crc32(name.encode())) + (np.uint64(seed) << np.uint64(32))
    with np.errstate(over="ignore"):
        bits = (start + np.arange(1, math.prod(shape) + 1, dtype=np.uint64)) * _GOLDEN
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits ^= bits >> np.uint64(31)
    return ((bits >> np.uint64(11)) * 2.0**-53).reshape(shape)


def _weight(shape: tuple[int, ...], role: str, name: str, seed: int) -> np.ndarray[Any, Any]:
    """Values that keep activations of unit scale: fan-in scaled weights, statistics near one."""
    uniform = _uniform(shape, name, seed)
    centered = _ROOT12 * (uniform - 0.5)
    if role in ("scale", "variance"):
        return 0.5 + uniform
    if role in ("bias", "mean") or len(shape) < 2:
        return 0.1 * centered
    if role == "table":
        return centered
    fan_in = shape[0] if role == "columns" else math.prod(shape[1:])
    return centered * math.sqrt(1.6 / fan_in)


def _roles(graph: onnx.GraphProto) -> dict[str, str]:
    """What each initializer is to the op that reads it."""
    roles: dict[str, str] = {}
    transposed = {node.output[0] for node in graph.node if node.op_type == "Transpose"}
    for node in graph.node:
        attributes = {attribute.name: attribute for attribute in node.attribute}
        if node.op_type == "BatchNormalization":
            names = ("", "scale", "bias", "mean", "variance")
        elif node.op_type == "LayerNormalization":
            names = ("", "scale", "bias")
        elif node.op_type == "Gather":
            names = ("table",)
        elif node.op_type == "MatMul" and node.input[1] not in transposed:
            names = ("", "columns")
        elif node.op_type == "Gemm" and not (
            "transB" in attributes and attributes["transB"].i == 1
        ):
            names = ("", "columns", "bias")
        else:
            continue
        roles.update(zip(node.input, names, strict=False))
    return roles

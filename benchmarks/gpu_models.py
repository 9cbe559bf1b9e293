"""The programs of `gpu.py`, as ONNX models, and the same ones in PyTorch.

Every program is made from sizes alone, with random weights: only its time is of interest. What
PyTorch runs is written as its users would write it, in f32 without TF32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["Decoder", "chain", "decoder", "matmul", "rows", "torch_decoder", "with_batch"]

_FLOAT = TensorProto.FLOAT
_OPSET = [helper.make_opsetid("", 18)]


class _Graph:
    """Nodes and weights of a model that is being written."""

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.random = np.random.default_rng(seed)

    def op(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        name = name or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, values: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def weight(self, *shape: int) -> str:
        scale = 1 / np.sqrt(shape[0])
        return self.constant(self.random.standard_normal(shape, np.float32) * np.float32(scale))

    def model(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "main", inputs, outputs, self.weights)
        return helper.make_model(graph, opset_imports=_OPSET, ir_version=9)


def _value(name: str, *shape: int | str, dtype: int = _FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, list(shape))


def matmul(size: int) -> onnx.ModelProto:
    """f32[size, size] x f32[size, size], both arguments."""
    graph = _Graph()
    graph.op("MatMul", "x", "y", name="z")
    shape = (size, size)
    return graph.model([_value("x", *shape), _value("y", *shape)], [_value("z", *shape)])


def rows(kind: str, count: int, width: int) -> onnx.ModelProto:
    """One op over rows: "copy", "add", "softmax" or "layer norm"."""
    graph = _Graph()
    inputs = [_value("x", count, width)]
    if kind == "copy":
        graph.op("Identity", "x", name="z")
    elif kind == "add":
        graph.op("Add", "x", "y", name="z")
        inputs.append(_value("y", count, width))
    elif kind == "softmax":
        graph.op("Softmax", "x", name="z", axis=-1)
    else:
        scale, shift = graph.weight(width), graph.weight(width)
        graph.op("LayerNormalization", "x", scale, shift, name="z", axis=-1)
    return graph.model(inputs, [_value("z", count, width)])


def chain(length: int, width: int) -> onnx.ModelProto:
    """`length` small products one after another: as many dispatches, which take no time."""
    graph = _Graph()
    value = "x"
    for place in range(length):
        name = "z" if place == length - 1 else ""
        value = graph.op("MatMul", value, graph.weight(width, width), name=name)
    return graph.model([_value("x", width, width)], [_value("z", width, width)])


def with_batch(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """A static model whose inputs and outputs have another first dim."""
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    del model.graph.value_info[:]
    return model


@dataclass(frozen=True)
class Decoder:
    """The sizes of a GPT-2."""

    width: int
    heads: int
    layers: int
    vocabulary: int
    capacity: int  # positions in the cache


def decoder(sizes: Decoder) -> onnx.ModelProto:
    """One step: (id: i64[1, 1], past of every layer) -> (logits, present of every layer)."""
    graph = _Graph()
    width, heads = sizes.width, sizes.heads
    head = width // heads
    inputs, outputs = [_value("id", 1, 1, dtype=TensorProto.INT64)], [_value("logits", 1, 1, "v")]
    x = graph.op("Gather", graph.weight(sizes.vocabulary, width), "id")
    heads_shape = graph.constant(np.array([1, 1, heads, head], np.int64))
    flat_shape = graph.constant(np.array([1, 1, width], np.int64))
    scale = graph.constant(np.float32(head**-0.5))

    def normalize(value: str) -> str:
        ones, zeros = np.ones(width, np.float32), np.zeros(width, np.float32)
        scale_and_shift = graph.constant(ones), graph.constant(zeros)
        return graph.op("LayerNormalization", value, *scale_and_shift, axis=-1)

    def dense(value: str, rows: int, columns: int) -> str:
        product = graph.op("MatMul", value, graph.weight(rows, columns))
        return graph.op("Add", product, graph.weight(columns))

    def remember(value: str, name: str) -> str:
        split = graph.op("Reshape", value, heads_shape)
        new = graph.op("Transpose", split, perm=[0, 2, 1, 3])
        shape = (1, heads, "n", head)
        inputs.append(_value(f"past_key_values.{name}", *shape))
        outputs.append(_value(f"present.{name}", 1, heads, "m", head))
        parts = (f"past_key_values.{name}", new)
        return graph.op("Concat", *parts, name=f"present.{name}", axis=2)

    for layer in range(sizes.layers):
        normal = normalize(x)
        q, k, v = (dense(normal, width, width) for _ in range(3))
        q = graph.op("Transpose", graph.op("Reshape", q, heads_shape), perm=[0, 2, 1, 3])
        keys, values = remember(k, f"{layer}.key"), remember(v, f"{layer}.value")
        turned = graph.op("Transpose", keys, perm=[0, 1, 3, 2])
        scores = graph.op("Mul", graph.op("MatMul", q, turned), scale)
        mixed = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), values)
        joined = graph.op("Transpose", mixed, perm=[0, 2, 1, 3])
        joined = graph.op("Reshape", joined, flat_shape)
        x = graph.op("Add", x, dense(joined, width, width))
        up = dense(normalize(x), width, 4 * width)
        gate = graph.op("Sigmoid", graph.op("Mul", up, graph.constant(np.float32(1.702))))
        x = graph.op("Add", x, dense(graph.op("Mul", up, gate), 4 * width, width))
    logits = graph.op("MatMul", normalize(x), graph.weight(width, sizes.vocabulary), name="logits")
    assert logits == "logits"
    return graph.model(inputs, outputs)


def torch_decoder(torch: Any, sizes: Decoder, device: str) -> Callable[[int], Any]:
    """The same network in PyTorch: a function that runs the step at a position of the cache."""
    width, heads = sizes.width, sizes.heads
    functional, linear = torch.nn.functional, torch.nn.Linear
    embedding = torch.nn.Embedding(sizes.vocabulary, width).to(device)
    norms = [torch.nn.LayerNorm(width).to(device) for _ in range(2 * sizes.layers + 1)]
    layers = [
        {
            "qkv": linear(width, 3 * width).to(device),
            "project": linear(width, width).to(device),
            "up": linear(width, 4 * width).to(device),
            "down": linear(4 * width, width).to(device),
        }
        for _ in range(sizes.layers)
    ]
    last = linear(width, sizes.vocabulary, bias=False).to(device)
    cache = torch.zeros(sizes.layers, 2, 1, heads, sizes.capacity, width // heads, device=device)
    id = torch.zeros(1, 1, dtype=torch.int64, device=device)

    def step(position: int) -> Any:
        x = embedding(id)
        for number, layer in enumerate(layers):
            qkv = layer["qkv"](norms[2 * number](x)).view(3, 1, heads, 1, width // heads)
            cache[number, :, :, :, position : position + 1] = qkv[1:]
            keys, values = cache[number, :, :, :, : position + 1]
            mixed = functional.scaled_dot_product_attention(qkv[0], keys, values)
            x = x + layer["project"](mixed.reshape(1, 1, width))
            up = layer["up"](norms[2 * number + 1](x))
            x = x + layer["down"](up * torch.sigmoid(1.702 * up))
        return last(norms[-1](x))

    return step

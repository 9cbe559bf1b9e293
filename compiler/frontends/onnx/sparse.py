"""Sparse tensors of a model, which are dense ones here: no op computes on sparse ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import onnx

from ingot.compiler.frontends.onnx.external import Files
from ingot.compiler.frontends.onnx.source import Source
from ingot.compiler.frontends.onnx.tensors import array_of, literal_of
from ingot.compiler.ir import Literal
from ingot.hal.errors import CompileError

__all__ = ["dense_of", "without_sparse"]

_LONGEST = 1 << 31  # bytes of a dense tensor, which a file of a few bytes may ask for


def without_sparse(source: Source) -> Source:
    """The model with a dense initializer in the place of each sparse one, also in bodies, and
    dense tensors as graph inputs. CompileError: an initializer is damaged."""
    graphs = list(_graphs(source.model))
    if not any(graph.sparse_initializer or any(_sparse_inputs(graph)) for graph in graphs):
        return source
    model = onnx.ModelProto()
    model.CopyFrom(source.model)
    for graph in _graphs(model):
        for type in _sparse_inputs(graph):
            given = type.sparse_tensor_type
            dense = onnx.TypeProto.Tensor(elem_type=given.elem_type)
            if given.HasField("shape"):
                dense.shape.CopyFrom(given.shape)
            type.tensor_type.CopyFrom(dense)
        for sparse in graph.sparse_initializer:
            array = dense_of(sparse, source.files).array
            graph.initializer.append(onnx.numpy_helper.from_array(array, sparse.values.name))
        graph.ClearField("sparse_initializer")
    return replace(source, model=model)


def _sparse_inputs(graph: onnx.GraphProto) -> Iterator[onnx.TypeProto]:
    types = (value.type for value in graph.input)
    return (type for type in types if type.WhichOneof("value") == "sparse_tensor_type")


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The graph of the model, and all bodies in it and in functions."""
    yield model.graph
    waiting = [model.graph.node, *(function.node for function in model.functions)]
    while waiting:
        for node in waiting.pop():
            for attribute in node.attribute:
                for body in (attribute.g, *attribute.graphs):
                    if body.node or body.sparse_initializer:
                        yield body
                        waiting.append(body.node)


def dense_of(sparse: onnx.SparseTensorProto, files: Files) -> Literal:
    """All elements, 0 where the tensor has none. CompileError: it is damaged, or far longer than
    a model may ask for."""
    shape = tuple(sparse.dims)
    name = sparse.values.name
    literal = literal_of(sparse.values, files)
    values = literal.array
    length = math.prod(shape) * values.itemsize
    if min(shape, default=0) < 0 or length > _LONGEST:
        raise CompileError(f"sparse tensor '{name}' has the shape {list(shape)}: fix the model")
    if sparse.indices.data_type != onnx.TensorProto.INT64:
        raise CompileError(f"sparse tensor '{name}' has indices that are not INT64: fix the model")
    indices = array_of(sparse.indices, files)
    count = values.size
    limits = np.array([math.prod(shape)] if indices.ndim == 1 else shape, np.int64)
    places = indices.reshape(-1, 1) if indices.ndim == 1 else indices
    if values.ndim != 1 or places.shape != (count, len(limits)):
        raise CompileError(
            f"sparse tensor '{name}' of shape {list(shape)} has values of shape "
            f"{list(values.shape)} and indices of shape {list(indices.shape)}: fix the model"
        )
    if count and ((places < 0) | (places >= limits)).any():
        raise CompileError(f"sparse tensor '{name}' has indices outside of {list(shape)}")
    dense = np.zeros(math.prod(shape), values.dtype)
    flat = places[:, 0] if indices.ndim == 1 else np.ravel_multi_index(tuple(places.T), shape)
    dense[flat] = values
    return Literal(dense.reshape(shape), literal.dtype)

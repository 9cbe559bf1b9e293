"""A model with initializers that the program gives, and the ONNX file that it asks for."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ingot.onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

__all__ = [
    "external_tensors",
    "overridable",
    "with_arguments",
    "with_initializers",
    "write_model",
]

_GREATEST_FILE = 1 << 31  # bytes of a protobuf


def overridable(proto: Any) -> list[Any]:
    """The graph inputs that initializers are the defaults of."""
    names = {each.name for each in proto.graph.initializer} if proto.ir_version > 3 else set()
    return [each for each in proto.graph.input if each.name in names]


def with_initializers(
    source: Path | bytes, values: Mapping[str, Any], files: Mapping[str, bytes]
) -> Path | bytes:
    """The model with these arrays for its initializers of their names, and external data of these
    files; others are not looked at. InvalidArgument: a dtype or shape is another."""
    if not values and not files:
        return source
    import onnx
    from onnx import helper, numpy_helper
    from onnx.external_data_helper import load_external_data_for_model

    proto = onnx.load_from_string(source if isinstance(source, bytes) else source.read_bytes())
    for tensor in external_tensors(proto):
        _read_from(files, tensor)
    for tensor in proto.graph.initializer:
        if tensor.name in values:
            array = np.asarray(values[tensor.name])
            wanted = helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims)
            if (array.dtype, array.shape) != wanted:
                raise InvalidArgument(
                    f"Initializer {tensor.name} is {array.dtype}{list(array.shape)}, expected "
                    f"{wanted[0]}{list(wanted[1])}"
                )
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    if isinstance(source, Path):
        load_external_data_for_model(proto, str(source.parent))
    data: bytes = proto.SerializeToString()
    return data


def external_tensors(proto: Any) -> Iterator[Any]:
    """All tensors whose data lies in files, also those inside of nodes."""
    bodies = [proto.graph, *proto.functions]
    while bodies:
        body = bodies.pop()
        attributes = [each for node in body.node for each in node.attribute]
        bodies += [each.g for each in attributes if each.HasField("g")]
        bodies += [graph for each in attributes for graph in each.graphs]
        tensors = [each.t for each in attributes]
        tensors += [tensor for each in attributes for tensor in each.tensors]
        tensors += getattr(body, "initializer", ())  # which functions have not
        yield from (each for each in tensors if each.data_location == each.EXTERNAL)


def _read_from(files: Mapping[str, bytes], tensor: Any) -> None:
    """Take the data of a tensor from the file that has it, if it is one of these."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if entries.get("location") in files:
        data = files[entries["location"]][int(entries.get("offset", 0)) :]
        tensor.raw_data = data[: int(entries.get("length", len(data)))]
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")


def with_arguments(source: Path | bytes, names: Collection[str]) -> bytes:
    """The model whose inputs of these names have no defaults."""
    proto = _whole(source)
    kept = [each for each in proto.graph.initializer if each.name not in names]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    data: bytes = proto.SerializeToString()
    return data


def write_model(
    source: Path | bytes, path: Path, external: str = "", threshold: int = 1024
) -> None:
    """The model as one file; with initializers of `threshold` bytes or more in the file `external`
    beside it, or, where all are too long for one file, in one of a similar name."""
    if isinstance(source, bytes) and not external:
        path.write_bytes(source)
        return
    import onnx
    from onnx import numpy_helper
    from onnx.external_data_helper import set_external_data

    proto = _whole(source)
    if not external and proto.ByteSize() < _GREATEST_FILE:
        path.write_bytes(proto.SerializeToString())
        return
    location = external or f"{path.name}.data"
    for each in _initializers(proto.graph):
        if each.data_type == each.STRING:
            continue
        if not each.HasField("raw_data"):  # onnx moves raw data alone
            each.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(each), each.name))
        if len(each.raw_data) >= threshold:
            set_external_data(each, location)
    onnx.save(proto, path)


def _initializers(graph: Any) -> Iterator[Any]:
    """Those of a graph, and of the graphs inside of it."""
    yield from graph.initializer
    for attribute in (each for node in graph.node for each in node.attribute):
        for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
            yield from _initializers(inner)


def _whole(source: Path | bytes) -> Any:
    """The ModelProto with its external data."""
    import onnx

    return onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(source)

"""A model as a module of the cache: compiled when it is seen for the first time.

A module is found by the hash of the model with its external data, of the compiler as it is
installed, of the processor and of the options. Models with ops of the user's own are compiled anew,
since nothing tells whether a lowering has changed.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ingot
from ingot.hal.errors import DataLoss, Error, Incompatible, InvalidArgument, NotFound
from ingot.hal.file_cache import default_cache
from ingot.hal.whole_file import open_regular
from ingot.module_cache import digest, installed_compiler, processor
from ingot.onnxruntime.initializers import external_tensors, overridable
from ingot.onnxruntime.options import logger
from ingot.onnxruntime.types import ModelMetadata, NodeArg, of_proto, onnx_code, type_text
from ingot.runtime.model import Model, load
from ingot.runtime.signature import Signature

__all__ = ["Loaded", "loaded_model"]

_FORM = "2"  # of what is kept


@dataclass(frozen=True)
class Loaded:
    """A model that is ready, and what its source says of its ends and itself."""

    model: Model
    inputs: list[NodeArg]
    outputs: list[NodeArg]
    overridable: list[NodeArg]
    metadata: ModelMetadata


def loaded_model(
    source: Path | bytes, device: str, threads: int | None, dims: Mapping[str, int]
) -> Loaded:
    """An ONNX model on a device: its module is mapped from the cache, or compiled. `dims` are
    sizes of dims that kernels are made for.

    Raises as `ingot.compile` and `ingot.load`; OSError, DecodeError: there is no model.
    """
    kept = default_cache()
    folder = source.resolve().parent if isinstance(source, Path) else None
    sizes = json.dumps(sorted(dims.items()))
    start = [_FORM, installed_compiler(), device.partition(":")[0], processor(), sizes]
    key = digest(*start, _hash_of(source))
    about = _about(kept.read(digest(key, "about")))
    if about is not None and not _has_own():
        path = kept.file(digest(key, *_external(about["external"], folder)))
        if path is not None:
            with suppress(DataLoss, Incompatible, NotFound):  # it was damaged or removed
                return _loaded(load(path, device=device, threads=threads), about)
    begin = time.perf_counter()
    proto = _proto(source)
    module = ingot.compile(source, target=device.partition(":")[0], specialize=_wanted(proto, dims))
    logger.info("compiled in %.1f s", time.perf_counter() - begin)
    model = load(module, device=device, threads=threads)
    about = _described(proto, model.signature, dims)
    if not _has_own():
        kept.write_file(digest(key, *_external(about["external"], folder)), bytes(module))
        kept.write(digest(key, "about"), json.dumps(about).encode())
    return _loaded(model, about)


def _has_own() -> bool:
    """Whether anything has a lowering of the user's own, which nobody can give without this part
    of the compiler."""
    own = sys.modules.get("ingot.compiler.frontends.own_ops")
    return own is not None and own.has_own()


def _hash_of(source: Path | bytes) -> str:
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    with open(source, "rb") as file:
        return _file_digest(file)


def _external(names: list[str], folder: Path | None) -> Iterator[str]:
    """The hashes of files with external data; "" for one that is not there, or that the compiler
    does not read: it is outside of the folder, or no file."""
    if folder is None:
        return
    for name in names:
        try:
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise InvalidArgument(f"'{name}' is not below the folder of the model")
            with open_regular(folder / name) as file:
                yield _file_digest(file)
        except (Error, OSError):
            yield ""


def _file_digest(file: Any) -> str:
    found = hashlib.sha256()
    while part := file.read(1 << 22):
        found.update(part)
    return found.hexdigest()


def _about(data: bytes | None) -> dict[str, Any] | None:
    found: dict[str, Any] | None = None if data is None else json.loads(data)
    return found


def _loaded(model: Model, about: Mapping[str, Any]) -> Loaded:
    ends = {
        kind: [NodeArg(**each) for each in about[kind]]
        for kind in ("inputs", "outputs", "overridable")
    }
    return Loaded(model, metadata=ModelMetadata(**about["metadata"]), **ends)


def _proto(source: Path | bytes) -> Any:
    """The ModelProto, without its external data."""
    import onnx

    proto = onnx.ModelProto()
    proto.ParseFromString(source.read_bytes() if isinstance(source, Path) else source)
    return proto


def _wanted(proto: Any, dims: Mapping[str, int]) -> dict[str, list[int]] | None:
    """The sizes of dims that the model has, for `specialize`."""
    names = {each.dim_param for value in proto.graph.input
             for each in value.type.tensor_type.shape.dim}  # fmt: skip
    return {name: [size] for name, size in dims.items() if name in names} or None


def _described(proto: Any, signature: Signature, dims: Mapping[str, int]) -> dict[str, Any]:
    """What is kept of a model beside its module."""
    results = {each.name: each for each in signature.results}
    taken = {each.name for each in proto.graph.initializer}
    inputs = [_arg(each, dims, None) for each in proto.graph.input if each.name not in taken]
    outputs = [_arg(each, dims, results.get(each.name)) for each in proto.graph.output]
    metadata = ModelMetadata(
        proto.producer_name,
        proto.graph.name,
        proto.domain,
        proto.doc_string,
        proto.graph.doc_string,
        proto.model_version,
        {each.key: each.value for each in proto.metadata_props},
    )
    return {
        "inputs": [asdict(each) for each in inputs],
        "outputs": [asdict(each) for each in outputs],
        "overridable": [asdict(_arg(each, {}, None)) for each in overridable(proto)],
        "metadata": asdict(metadata),
        "external": sorted(_locations(proto)),
    }


def _arg(value: Any, dims: Mapping[str, int], found: Any) -> NodeArg:
    """An end of the graph; `found` is the result of the module of that name."""
    text, shape = of_proto(value.type)
    if text == "undefined" and found:
        text = type_text(onnx_code(found.dtype.numpy))
    known = list(found.shape) if found and found.kind == "tensor" else []
    if shape is None:
        shape = known
    if len(shape) == len(known):  # numbers that the compiler found
        shape = [
            other if each is None and isinstance(other, int) else each
            for each, other in zip(shape, known, strict=True)
        ]
    return NodeArg(value.name, text, [dims.get(str(each), each) for each in shape])


def _locations(proto: Any) -> set[str]:
    """The files with external data."""
    return {
        entry.value
        for each in external_tensors(proto)
        for entry in each.external_data
        if entry.key == "location"
    }

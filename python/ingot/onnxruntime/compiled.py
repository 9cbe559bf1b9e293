"""A model as a module of the cache: compiled when it is seen for the first time.

A module is found by the hash of the model with its external data, of the compiler as it is
installed, of the processor and of the options. Models with ops of the user's own are compiled anew,
since nothing tells whether a lowering has changed.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ingot.compiler.targets.cpu.cache import default_cache
from ingot.hal.device import open_device
from ingot.onnxruntime.options import logger
from ingot.onnxruntime.types import ModelMetadata, NodeArg, of_proto, onnx_code, type_text

__all__ = ["Compiled", "compiled_model"]

_FORM = "1"  # of what is kept


@dataclass(frozen=True)
class Compiled:
    """A module, and what the model says of its ends and itself."""

    module: Any  # bytes, or what `ingot.compile` gave
    inputs: list[NodeArg]
    outputs: list[NodeArg]
    metadata: ModelMetadata


def compiled_model(source: Path | bytes, device: str, dims: Mapping[str, int]) -> Compiled:
    """The module of an ONNX model for a device, from the cache or compiled. `dims` are sizes of
    dims that kernels are made for.

    Raises as `ingot.compile`; OSError, DecodeError: there is no model.
    """
    kept = default_cache()
    data = source.read_bytes() if isinstance(source, Path) else source
    folder = source.resolve().parent if isinstance(source, Path) else None
    sizes = json.dumps(sorted(dims.items()))
    start = [_FORM, _compiler(), device.partition(":")[0], _processor(), sizes]
    key = _digest(*start, hashlib.sha256(data).hexdigest())
    about = _about(kept.read(_digest(key, "about")))
    if about is not None:
        whole = _digest(key, *_external(about["external"], folder))
        module = kept.read(whole)
        if module is not None:
            return _compiled(module, about)
    begin = time.perf_counter()
    module, about = _compile(source, data, device, dims)
    logger.info("compiled in %.1f s", time.perf_counter() - begin)
    if about.pop("is_known"):
        whole = _digest(key, *_external(about["external"], folder))
        kept.write(whole, bytes(module))
        kept.write(_digest(key, "about"), json.dumps(about).encode())
    return _compiled(module, about)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def _compiler() -> str:
    """The compiler as it is installed: names, sizes and times of its files."""
    from ingot import compiler
    from ingot.hal import header

    found = []
    for folder in (os.path.dirname(compiler.__file__), os.path.dirname(header.__file__)):
        for place, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                if name.endswith((".py", ".h", ".cl", ".def")):
                    status = os.stat(os.path.join(place, name))
                    at = place.removeprefix(folder)
                    found.append(f"{at} {name} {status.st_size} {status.st_mtime_ns}")
    return _digest(*found)


def _processor() -> str:
    """What kernels of this machine may use."""
    return open_device().description.rpartition(",")[0]


def _external(names: list[str], folder: Path | None) -> Iterator[str]:
    """The hashes of files with external data; "" for one that is not there."""
    for name in names:
        try:
            with open(Path(folder or ".") / name, "rb") as file:
                yield _file_digest(file)
        except OSError:
            yield ""


def _file_digest(file: Any) -> str:
    found = hashlib.sha256()
    while part := file.read(1 << 22):
        found.update(part)
    return found.hexdigest()


def _about(data: bytes | None) -> dict[str, Any] | None:
    found: dict[str, Any] | None = None if data is None else json.loads(data)
    return found


def _compiled(module: Any, about: Mapping[str, Any]) -> Compiled:
    ends = [[NodeArg(**each) for each in about[kind]] for kind in ("inputs", "outputs")]
    return Compiled(module, ends[0], ends[1], ModelMetadata(**about["metadata"]))


def _compile(
    source: Path | bytes, data: bytes, device: str, dims: Mapping[str, int]
) -> tuple[Any, dict[str, Any]]:
    import onnx

    import ingot
    from ingot.compiler.frontends.own_ops import has_own

    proto = onnx.ModelProto()
    proto.ParseFromString(data)
    names = {each.dim_param for value in proto.graph.input
             for each in value.type.tensor_type.shape.dim}  # fmt: skip
    sizes = {name: [size] for name, size in dims.items() if name in names}
    target = device.partition(":")[0]
    module = ingot.compile(source, target=target, specialize=sizes or None)
    results = {each.name: each for each in ingot.load(module, device=device).signature.results}
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
    about = {
        "inputs": [asdict(each) for each in inputs],
        "outputs": [asdict(each) for each in outputs],
        "metadata": asdict(metadata),
        "external": sorted(_locations(proto)),
        "is_known": not has_own(),
    }
    return module, about


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
    """The files with external data, also of tensors inside of nodes."""
    found: set[str] = set()
    graphs = [proto.graph]
    while graphs:
        graph = graphs.pop()
        tensors = list(graph.initializer)
        for node in graph.node:
            for each in node.attribute:
                graphs += [*([each.g] if each.HasField("g") else []), *each.graphs]
                tensors += [*([each.t] if each.HasField("t") else []), *each.tensors]
        found |= {
            entry.value for each in tensors for entry in each.external_data
            if entry.key == "location"
        }  # fmt: skip
    return found

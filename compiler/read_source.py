"""Which front end reads a source program: by its type, its first bytes, or its file name.

Front ends are imported only when they are needed, so that a StableHLO user needs no onnx.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from ingot.compiler import ir
from ingot.compiler.chain import Chain, join
from ingot.compiler.check_program import check_function_name
from ingot.compiler.foreign import own_errors
from ingot.compiler.frontends.kept_file import KeptFile, import_whole
from ingot.compiler.frontends.natives import OwnOps, given_natives
from ingot.compiler.frontends.survey import Survey
from ingot.compiler.graph.ops import Parameter
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.module import Module
from ingot.hal.errors import CompileError, Error, InvalidArgument, NotFound, Unsupported
from ingot.hal.file_kind import (
    ARTIFACT,
    CHECKPOINT,
    EXPORTED,
    GGUF,
    MODULE,
    START_LENGTH,
    TEXT,
    TFLITE,
    FileKind,
    file_kind,
    folder_kind,
)
from ingot.hal.whole_file import open_regular

__all__ = ["copy_module", "read_sketch", "read_source", "read_sources"]

_KNOWN = (
    "a path or the bytes of an .onnx, .pt2 or .tflite file or of a StableHLO artifact, StableHLO "
    "text, the path of a .gguf file, an onnx.ModelProto or onnx_ir.Model, what "
    "torch.onnx.export(..., dynamo=True) returns, a torch.export.ExportedProgram or "
    "torch.nn.Module, a jax.export.Exported, an ingot.program, an ingot.chain, or Ingot IR"
)

_TEXT = re.compile(r"\s*(module\s*(\{|@|attributes\b)|#loc|//|func\.func|\"builtin\.module\")")

_WEIGHTS = "weights"  # attribute of a module: the keys and fingerprints of its parameters


def read_source(
    source: Any,
    *,
    scope: str | Mapping[str, str] = "",
    own_ops: OwnOps | None = None,
    **reading: Any,
) -> ir.Module:
    """The graph-level module of a source program; with a `survey` what can be made of it.
    `reading`: the fields of `_Options`, which are those of `ingot.compile`.

    NotFound: no such file. Unsupported: a known kind of program that cannot be read yet.
    CompileError: anything else.
    """
    options = _Options(**reading)
    if not isinstance(scope, str):
        raise CompileError("scopes by name are for a dict of sources; pass one scope")
    with given_natives(own_ops):
        module = _read(source, options)
    module.attributes.pop(_WEIGHTS, None)
    return _in_scope(copy_module(module) if scope and module is source else module, scope)


def read_sketch(source: Any, **reading: Any) -> ir.Module | None:
    """A small part of a language model that has its kernels; None of other sources, and where
    something is wrong, which `read_source` tells. `reading`: as of that."""
    if not isinstance(source, (str, os.PathLike)):
        return None
    if not (os.fspath(source).endswith(".gguf") or os.path.isdir(source)):
        return None
    try:
        with own_errors("reading a part of the program"):
            module = read_source(source, **reading, sketch=True)
    except Error:
        return None
    return module if module.functions else None


@dataclass(frozen=True)
class _Options:
    parameters: str = "embedded"
    parameter_names: Mapping[str, str] | None = None
    outputs: Sequence[str] | None = None
    survey: Survey | None = None
    capacity: int | None = None
    cache: str = "f32"
    weights: str | None = None
    verify: bool = False
    lora: Any = None
    sequences: int | None = None
    cache_tokens: int | None = None
    example_inputs: Sequence[Any] | None = None
    dynamic_shapes: Any = None
    sketch: bool = False


def _read(source: Any, options: _Options) -> ir.Module:
    package = type(source).__module__.partition(".")[0]
    if package == "torch" and hasattr(source, "model_proto"):  # what torch.onnx.export returns
        return _read_onnx(source.model_proto, options)
    if _is_torch_object(source):
        return _read_exported(source, options)
    if options.example_inputs is not None or options.dynamic_shapes is not None:
        raise CompileError(
            f"example_inputs and dynamic_shapes export a torch.nn.Module, not a "
            f"{type(source).__name__}: leave them out"
        )
    if isinstance(source, Chain):
        return _read_chain(source, options)
    if package == "ingot":
        source = _of_program(source)
    if isinstance(source, ir.Module):
        _check_capacity(options)
        _check_outputs(options)
        return source
    if isinstance(source, Module):
        source = bytes(source)
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = bytes(source)
        kind = file_kind(data[:START_LENGTH])
        return _read_bytes(data, kind, options)
    if isinstance(source, str) and _TEXT.match(source):
        return _read_text(source.encode(errors="surrogatepass"), options)
    if isinstance(source, (str, os.PathLike)):
        return _read_file(Path(source), options)
    if package == "onnx" and type(source).__name__ == "ModelProto":
        return _read_onnx(source, options)
    if package == "onnx_ir":
        proto = import_module("onnx_ir").to_proto(source)
        return _read_onnx(proto, options)
    if package == "jax":
        return _read_stablehlo(source, options)
    raise CompileError(
        f"cannot compile a source of type {type(source).__name__}: expected {_KNOWN}"
    )


def _read_chain(chain: Chain, options: _Options) -> ir.Module:
    """The stages as one module. Their weights, where they are external, share the keys."""
    _check_capacity(options)
    _check_outputs(options)
    owners: dict[str, tuple[str, str]] = {}
    weights: dict[str, str] = {}

    def read(source: Any) -> ir.Module:
        module = _read(source, options)
        found: Any = module.attributes.pop(_WEIGHTS, ())
        _check_weights(f"stage {len(owners) + 1}", found, owners)
        weights.update(found)
        return copy_module(module) if module is source else module

    joined = join(chain, read)
    joined.attributes[_WEIGHTS] = tuple(weights.items())
    return joined


def _of_program(source: Any) -> Any:
    """A copy of the module of a traced program; anything else as it is."""
    from ingot.compiler.frontends.program.tracing import Program

    return copy_module(source.module) if isinstance(source, Program) else source


def read_sources(
    sources: Mapping[str, Any],
    *,
    scope: str | Mapping[str, str] = "",
    own_ops: OwnOps | None = None,
    **reading: Any,
) -> ir.Module:
    """One module with a function of every source, under the given names. Raises as above."""
    if not sources:
        raise CompileError("there is nothing to compile: the dict of sources is empty")
    scopes = dict.fromkeys(sources, scope) if isinstance(scope, str) else scope
    unknown = [name for name in scopes if name not in sources]
    if unknown:
        raise CompileError(f"scope= names '{unknown[0]}', which is none of the sources")
    result = ir.Module()
    options = _Options(**reading)
    owners: dict[str, dict[str, tuple[str, str]]] = {}  # per scope and key: source, fingerprint
    producers: dict[str, None] = {}
    for name, source in sources.items():
        check_function_name(name)
        try:
            with given_natives(own_ops):
                module = _read(source, options)
        except (CompileError, NotFound, Unsupported) as error:
            raise type(error)(f"'{name}': {error}") from None
        module = copy_module(module) if module is source else module
        own = scopes.get(name, "")
        found = module.attributes.pop(_WEIGHTS, ())
        _check_weights(name, found, owners.setdefault(own, {}))
        producers[str(module.attributes.get("producer", ""))] = None
        _add_function(result, name, _in_scope(module, own))
    result.attributes["producer"] = ", ".join(each for each in producers if each)
    return result


def _in_scope(module: ir.Module, scope: str) -> ir.Module:
    """The module, in which parameters without a scope have this one."""
    for op in ir.walk(module) if scope else ():
        if op.name == "parameter" and not Parameter.of(op).scope:
            op.attributes = replace(Parameter.of(op), scope=scope)
    return module


def _check_weights(name: str, weights: Any, owners: dict[str, tuple[str, str]]) -> None:
    """Sources of one scope that use one key share the weights. CompileError: theirs differ."""
    for key, found in weights:
        owner, expected = owners.setdefault(key, (name, found))
        if found != expected:
            raise CompileError(
                f"'{name}' and '{owner}' have different weights under the key '{key}', by which a "
                "module knows external weights: give the sources scopes, rename them in one model, "
                'or use "embedded" ones'
            )


def _add_function(result: ir.Module, name: str, module: ir.Module) -> None:
    """Add the one function of `module` under another name, and its variables."""
    if len(module.functions) != 1:
        raise CompileError(
            f"'{name}' is a program with {len(module.functions)} functions "
            f"({', '.join(module.functions)}): expected exactly one"
        )
    (function,) = module.functions.values()
    result.add(replace(function, name=name))
    for key, variable in module.variables.items():
        if result.variables.setdefault(key, variable) != variable:
            raise CompileError(
                f"the variable '{key}' of '{name}' is {variable.type}, but another function has "
                f"{result.variables[key].type}, or another initial value"
            )


def copy_module(module: ir.Module) -> ir.Module:
    """A copy that passes may change."""
    copy = ir.Module(attributes=dict(module.attributes), variables=dict(module.variables))
    for function in module.functions.values():
        body = ir.clone_region(function.body, {})
        copy.add(replace(function, body=body, symbols=dict(function.symbols)))
    return copy


def _read_file(path: Path, options: _Options) -> ir.Module:
    shown = f"'{path}'" if len(str(path)) <= 255 else f"'{str(path)[:80]}...'"
    try:
        with open_regular(path) as file:
            start = file.read(START_LENGTH)
            kind = file_kind(start, path.name)
            if kind is TEXT:
                file.seek(0)
                return _read_text(file, options) if start else _read_bytes(start, kind, options)
    except InvalidArgument:
        if not path.is_dir():
            raise
        kind = folder_kind(os.listdir(path), str(path))
        if kind is CHECKPOINT:
            return _read_checkpoint(path, options)
        _check_kind(kind, shown)
        raise
    except OSError as error:  # such as names that are too long
        raise NotFound(
            f"{shown} cannot be read ({error.strerror}): pass the path of a model, or its bytes"
        ) from None
    _check_kind(kind, shown)
    if kind is ARTIFACT:
        read = partial(_read_stablehlo, options=options)
        return import_whole(KeptFile(partial(open_regular, path.absolute()), shown), read)
    if kind is GGUF:
        return _read_gguf(path, options)
    if kind is EXPORTED:
        return _read_exported(path, options)
    if kind is TFLITE:
        return _read_tflite(path, options)
    return _read_onnx(path, options)


def _read_bytes(data: bytes, kind: FileKind | None, options: _Options) -> ir.Module:
    if not data:
        raise CompileError(f"the source program is empty: expected {_KNOWN}")
    _check_kind(kind, "the program")
    if kind is ARTIFACT:
        return _read_stablehlo(data, options)
    if kind is EXPORTED:
        return _read_exported(data, options)
    if kind is TFLITE:
        return _read_tflite(data, options)
    if kind is GGUF:
        raise CompileError(
            "the bytes of a GGUF file cannot be compiled, since its weights stay in the file: pass "
            "its path"
        )
    if kind is TEXT:
        return _read_text(data, options)
    return _read_onnx(data, options)


def _check_kind(kind: FileKind | None, what: str) -> None:
    """CompileError, Unsupported: `what` is something that cannot be compiled."""
    if kind is MODULE:
        raise CompileError(
            f"{what} is a compiled Ingot module: load it with ingot.load or `ingot run`; to "
            f"compile, pass its source, {_KNOWN}"
        )
    if kind is not None and not kind.is_source:
        raise Unsupported(f"{what} is {kind.name}, which cannot be compiled: {kind.advice}")


def _check_capacity(options: _Options) -> None:
    """CompileError: a program that is no language model was given an option of those."""
    if options.weights is not None:
        raise CompileError(
            "weights chooses codes for the weights of a folder with config.json and .safetensors "
            "files; other programs are quantised by ingot.quantize and `ingot quantize`"
        )
    if options.verify:
        raise CompileError(
            "verify adds a function for drafted tokens to a .gguf file or a language model's "
            "folder; other programs have the functions that they declare"
        )
    if options.lora is not None:
        raise CompileError(
            "lora makes room for adapters in the model of a .gguf file or of a language model's "
            "folder; merge them into other programs before they are compiled"
        )
    if options.sequences is not None or options.cache_tokens is not None:
        raise CompileError(
            "sequences and cache_tokens are for several texts in the cache of a .gguf file or a "
            "language model's folder; other programs have their state as they declare it"
        )
    if options.cache != "f32":
        raise CompileError(
            "cache chooses the elements of the cache of a .gguf file or a language model's folder; "
            "other programs have their state as they declare it"
        )
    if options.capacity is not None:
        raise CompileError(
            "capacity is the room of the cache of a .gguf file or a language model's folder; for "
            "other programs it is a part of their state, as in "
            "state=ingot.state.past_present(capacity=1024)"
        )


def _check_outputs(options: _Options) -> None:
    """CompileError: results of a program that is no ONNX graph were chosen by name."""
    if options.outputs is not None:
        raise CompileError(
            "outputs chooses the results of ONNX graphs, whose values have names: export the "
            "program with the results that you want"
        )


def _read_text(text: bytes | BinaryIO, options: _Options) -> ir.Module:
    from ingot.compiler.frontends.stablehlo.reading.text import artifact_of_text, is_mlir_text
    from ingot.compiler.ir.parser import parse

    if is_mlir_text(text):
        return import_whole(artifact_of_text(text), partial(_read_stablehlo, options=options))
    _check_capacity(options)
    _check_outputs(options)
    if not isinstance(text, bytes):
        text.seek(0)
        text = text.read()
    try:
        return parse(text.decode())
    except UnicodeDecodeError as error:
        raise CompileError(f"the text of the program is not UTF-8: {error.reason}") from None


def _read_onnx(source: Any, options: _Options) -> ir.Module:
    from ingot.compiler.frontends.onnx import import_onnx

    _check_capacity(options)
    return import_onnx(
        source,
        parameters=options.parameters,
        parameter_names=options.parameter_names,
        outputs=options.outputs,
        survey=options.survey,
    )


def _is_torch_object(source: Any) -> bool:
    """A torch.export.ExportedProgram, or a module of a class of the user's. Imports nothing."""
    names = {(each.__module__.partition(".")[0], each.__name__) for each in type(source).__mro__}
    return ("torch", "ExportedProgram") in names or ("torch", "Module") in names


def _read_exported(source: Any, options: _Options) -> ir.Module:
    from ingot.compiler.frontends.torch import exported_archives, import_torch

    _check_outputs(options)
    sources: Iterable[tuple[Any, dict[str, str]]] = [(source, {})]
    if not isinstance(source, (bytes, Path)):
        sources = exported_archives(source, options.example_inputs, options.dynamic_shapes)
    refused: CompileError | None = None
    for archive, dim_names in sources:
        try:
            return import_torch(
                archive,
                parameters=options.parameters,
                parameter_names=options.parameter_names,
                survey=options.survey,
                dim_names=dim_names,
            )
        except CompileError as error:
            refused = error
    assert refused is not None
    raise refused


def _read_tflite(source: Path | bytes, options: _Options) -> ir.Module:
    from ingot.compiler.frontends.tflite import import_tflite

    _check_capacity(options)
    _check_outputs(options)
    return import_tflite(source, survey=options.survey)


def _read_gguf(path: Path, options: _Options) -> ir.Module:
    from ingot.compiler.frontends.gguf import import_gguf

    _check_outputs(options)
    if options.weights is not None:
        raise CompileError(
            "weights chooses codes for the weights of a folder with config.json and .safetensors "
            "files; those of a .gguf file are used as they are"
        )
    return import_gguf(path, **_layout(options))


def _read_checkpoint(path: Path, options: _Options) -> ir.Module:
    from ingot.compiler.frontends.checkpoint import import_checkpoint

    _check_outputs(options)
    return import_checkpoint(path, weights=options.weights, **_layout(options))


def _layout(options: _Options) -> dict[str, Any]:
    """What is chosen of a language model's functions and cache."""
    names = ("capacity", "cache", "verify", "lora", "sequences", "cache_tokens", "sketch")
    return {name: getattr(options, name) for name in names}


def _read_stablehlo(source: Any, options: _Options) -> ir.Module:
    from ingot.compiler.frontends.stablehlo import import_stablehlo

    _check_capacity(options)
    _check_outputs(options)
    return import_stablehlo(source, options.survey)

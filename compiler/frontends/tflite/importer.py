"""Imports a TFLite model: a function for each signature, or `main` for a single one.

The import of a function starts again when it learns that two open dims are one.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

from ingot.compiler.frontends.distinct_names import distinct_names
from ingot.compiler.frontends.emitter import Emitter, UnsupportedNode
from ingot.compiler.frontends.kept_file import KeptFile, import_whole
from ingot.compiler.frontends.problems import list_problems
from ingot.compiler.frontends.random_numbers import add_position
from ingot.compiler.frontends.strings import (
    SUFFIX,
    Strings,
    doc_of_bytes,
    from_ends,
    pack,
    refuse_taken,
)
from ingot.compiler.frontends.survey import Survey
from ingot.compiler.frontends.symbols import Restart, Symbols
from ingot.compiler.frontends.tflite import lowerings  # noqa: F401 - it fills the table
from ingot.compiler.frontends.tflite.model import Model, Signature, Subgraph, Tensor
from ingot.compiler.frontends.tflite.walk import Walk
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Block, Function, Module, Region, TensorType, Value
from ingot.compiler.ir.dims import Dim, symbols_of
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype
from ingot.hal.whole_file import open_regular

__all__ = ["import_tflite"]


def import_tflite(source: Path | bytes, *, survey: Survey | None = None) -> Module:
    """The graph-level module of a `.tflite` model, its path or its bytes.

    What several signatures name are functions of these names; a single one, or the model itself if
    there is none, is `main`. CompileError lists every op that cannot be compiled; a `survey` takes
    them instead.
    """
    if isinstance(source, bytes):
        return _import_bytes(memoryview(source), "the TFLite model", survey)
    file = KeptFile(partial(open_regular, source.absolute()), f"'{source}'")
    return import_whole(file, partial(_import_bytes, what=file.name, survey=survey))


def _import_bytes(data: memoryview, what: str, survey: Survey | None) -> Module:
    model = Model(data, what)
    if survey is not None:
        survey.start()
    module = Module(attributes={"producer": f"TFLite {model.description}".strip()[:80]})
    problems: list[str] = []
    signatures = model.signatures or [Signature("main", 0)]
    names = distinct_names(_function_name(each, len(signatures)) for each in signatures)
    for name, signature in zip(names, signatures, strict=True):
        try:
            problems += _import(model, signature, name, module, survey)
        except UnsupportedNode as error:
            raise CompileError(f"{model.what} cannot be compiled: {error}") from None
    if survey is not None:
        survey.problems += problems
    elif problems:
        raise CompileError("\n  ".join([f"{model.what} cannot be compiled:", *problems]))
    add_position(module)
    return module


def _function_name(signature: Signature, count: int) -> str:
    name = re.sub(r"\W", "_", signature.name)
    if count == 1:
        return "main"
    return name if name.isidentifier() and name != "init" else f"_{name}"


def _import(
    model: Model, signature: Signature, name: str, module: Module, survey: Survey | None
) -> list[str]:
    """Adds the function; gives what is wrong with it."""
    symbols = Symbols()
    known = dict(module.variables)
    seen = 0 if survey is None else len(survey.uses)
    while True:
        symbols.start()
        try:
            return _build(model, signature, name, module, symbols, survey)
        except Restart:
            module.variables.clear()
            module.variables.update(known)
            if survey is not None:
                del survey.uses[seen:]


def _build(
    model: Model,
    signature: Signature,
    name: str,
    module: Module,
    symbols: Symbols,
    survey: Survey | None,
) -> list[str]:
    graph = model.subgraphs[signature.subgraph]
    block = Block([])
    walk = Walk(model, module, block, symbols, survey)
    builder = Builder(block)
    names = _by_place(signature.inputs, graph.inputs, graph)
    values, docs = _take_arguments(graph, names, builder, block, symbols)
    arguments = [value.name for value in block.arguments]
    walk.check_calls(graph)
    walk.lower(graph, values, builder)
    wanted = signature.outputs or _by_name(graph)
    results = {each: walk.value(place, graph, values, builder) for each, place in wanted.items()}
    problems = list_problems(walk.problems)
    problems += [
        f"result '{each}' is no tensor, which a function cannot give"
        for each, value in results.items()
        if not isinstance(value, (Value, Strings)) and not walk.problems
    ]
    given: dict[str, Value] = {}
    for each, value in results.items():
        if isinstance(value, Strings):
            refuse_taken(each, results, "result")
            define_size = partial(_define_size, walk, builder, each)
            given[each], given[f"{each}{SUFFIX}"] = pack(Emitter(builder), value, define_size)
            docs[f"{each}{SUFFIX}"] = doc_of_bytes(each)
        elif isinstance(value, Value):
            given[each] = value
    builder.return_(*given.values())
    arguments += [f"argument{at}" for at in range(len(arguments), len(block.arguments))]
    used = {
        symbol
        for value in block.arguments
        for dim in tensor_type(value).shape
        for symbol in symbols_of(dim)
    }
    limits = {each: symbols.bounds.get(each, (0, None)) for each in sorted(used)}
    module.add(Function(name, Region([block]), arguments, list(given), symbols=limits, docs=docs))
    return problems


def _take_arguments(
    graph: Subgraph, names: dict[int, str], builder: Builder, block: Block, symbols: Symbols
) -> tuple[dict[int, Any], dict[str, str]]:
    """What the inputs are, and docs of arguments."""
    values: dict[int, Any] = {}
    docs: dict[str, str] = {}

    def argument(name: str, type: TensorType) -> Value:
        value = Value(type, block)
        value.name = name
        block.arguments.append(value)
        return value

    for place in graph.inputs:
        tensor, name = graph.tensors[place], names[place]
        values[place] = argument(name, _argument_type(tensor, name, symbols))
        if tensor.is_text:
            refuse_taken(name, names.values(), "argument")
            size = symbols.argument(f"{_base(name)}_size")
            data = argument(f"{name}{SUFFIX}", TensorType(dtype("u8"), (size,)))
            values[place] = from_ends(Emitter(builder), values[place], data)
            docs[data.name] = doc_of_bytes(name)
    return values, docs


def _define_size(walk: Walk, builder: Builder, hint: str, x: Value, what: str) -> Dim:
    (part,) = walk.amounts.parts(builder, x, what)
    return walk.amounts.define_size(builder, part, partial(walk.names.fresh, hint), what, 0, None)


def _by_place(named: dict[str, int], places: list[int], graph: Subgraph) -> dict[int, str]:
    """Names of arguments: those of the signature, else those of the tensors."""
    found = {place: name for name, place in named.items()}
    names = [found.get(place) or graph.tensors[place].name or "argument" for place in places]
    return dict(zip(places, distinct_names(names), strict=True))


def _by_name(graph: Subgraph) -> dict[str, int]:
    names = distinct_names(graph.tensors[place].name or "result" for place in graph.outputs)
    return dict(zip(names, graph.outputs, strict=True))


def _argument_type(tensor: Tensor, name: str, symbols: Symbols) -> TensorType:
    """An open dim is a symbol of the argument's name and the axis."""
    base = _base(name)
    shape: list[Dim] = [
        symbols.argument(f"{base}_{axis}") if dim is None else dim
        for axis, dim in enumerate(tensor.shape)
    ]
    return TensorType(dtype("i64") if tensor.is_text else tensor.dtype, tuple(shape))


def _base(name: str) -> str:
    """What symbols of an argument begin with."""
    base = re.sub(r"\W", "_", name)[:40]
    return base if re.match(r"[A-Za-z_]", base) else f"_{base}"

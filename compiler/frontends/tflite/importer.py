"""Imports a TFLite model: a function for each signature, or `main` for a single one.

The import of a function starts again when it learns that two open dims are one.
"""

from __future__ import annotations

import re
from pathlib import Path

from ingot.compiler.frontends.distinct_names import distinct_names
from ingot.compiler.frontends.emitter import UnsupportedNode
from ingot.compiler.frontends.problems import list_problems
from ingot.compiler.frontends.random_numbers import add_position
from ingot.compiler.frontends.survey import Survey
from ingot.compiler.frontends.symbols import Restart, Symbols
from ingot.compiler.frontends.tflite import lowerings  # noqa: F401 - it fills the table
from ingot.compiler.frontends.tflite.model import Model, Signature, Subgraph, Tensor
from ingot.compiler.frontends.tflite.walk import Walk
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Block, Function, Module, Region, TensorType, Value
from ingot.compiler.ir.dims import Dim, symbols_of
from ingot.hal.errors import CompileError

__all__ = ["import_tflite"]


def import_tflite(source: Path | bytes, *, survey: Survey | None = None) -> Module:
    """The graph-level module of a `.tflite` model, its path or its bytes.

    What several signatures name are functions of these names; a single one, or the model itself if
    there is none, is `main`. CompileError lists every op that cannot be compiled; a `survey` takes
    them instead.
    """
    model = Model(source)
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
    values: dict[int, Value] = {}
    for place in graph.inputs:
        value = Value(_argument_type(graph.tensors[place], names[place], symbols), block)
        value.name = names[place]
        block.arguments.append(value)
        values[place] = value
    walk.lower(graph, values, builder)
    wanted = signature.outputs or _by_name(graph)
    results = {each: walk.value(place, graph, values, builder) for each, place in wanted.items()}
    problems = list_problems(walk.problems)
    problems += [
        f"result '{each}' is no tensor, which a function cannot give"
        for each, value in results.items()
        if not isinstance(value, Value) and not walk.problems
    ]
    given = {each: value for each, value in results.items() if isinstance(value, Value)}
    builder.return_(*given.values())
    arguments = [names[place] for place in graph.inputs]
    arguments += [f"argument{at}" for at in range(len(arguments), len(block.arguments))]
    used = {
        symbol
        for value in block.arguments
        for dim in tensor_type(value).shape
        for symbol in symbols_of(dim)
    }
    limits = {each: symbols.bounds.get(each, (0, None)) for each in sorted(used)}
    module.add(Function(name, Region([block]), arguments, list(given), symbols=limits))
    return problems


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
    base = re.sub(r"\W", "_", name)[:40]
    base = base if re.match(r"[A-Za-z_]", base) else f"_{base}"
    shape: list[Dim] = [
        symbols.argument(f"{base}_{axis}") if dim is None else dim
        for axis, dim in enumerate(tensor.shape)
    ]
    return TensorType(tensor.dtype, tuple(shape))

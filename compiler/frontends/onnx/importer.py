"""Imports an ONNX model: its signature, the walk over its graph, its results.

The import starts again when it learns that two symbolic dims are one (see `symbols.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeGuard

import onnx

from ingot.compiler.frontends.emitter import Emitter
from ingot.compiler.frontends.onnx.check import (
    DEFAULT_DOMAIN,
    check_graph,
    opset_versions,
)
from ingot.compiler.frontends.onnx.choose_ends import choose_ends
from ingot.compiler.frontends.onnx.edge import (
    give_result,
    give_strings,
    is_text,
    take_argument,
    take_strings,
)
from ingot.compiler.frontends.onnx.functions import check_functions
from ingot.compiler.frontends.onnx.initializers import ImportOptions
from ingot.compiler.frontends.onnx.name_sizes import name_sizes
from ingot.compiler.frontends.onnx.scope import UNKNOWN, Result, Scope, Unknown
from ingot.compiler.frontends.onnx.signature import (
    Signature,
    doc_of_keys,
    output_problem,
    read_signature,
)
from ingot.compiler.frontends.onnx.source import Source
from ingot.compiler.frontends.onnx.sparse import without_sparse
from ingot.compiler.frontends.onnx.structures import Forked, Maybe, StringItems, Structure
from ingot.compiler.frontends.onnx.walk import Walk
from ingot.compiler.frontends.problems import list_problems
from ingot.compiler.frontends.random_numbers import add_position
from ingot.compiler.frontends.strings import (
    SUFFIX,
    Strings,
    doc_of_bytes,
    pack,
    refuse_taken,
)
from ingot.compiler.frontends.survey import Survey
from ingot.compiler.frontends.symbols import Restart, Symbols
from ingot.compiler.graph.folding.eliminate_dead_code import drop_unread_constants
from ingot.compiler.ir import Block, Function, Module, Region, TensorType, Value
from ingot.compiler.ir.dims import Dim, symbols_of
from ingot.compiler.ir.renamed_dims import FunctionAttributes
from ingot.hal.errors import CompileError

__all__ = ["ImportOptions", "import_model"]


def import_model(source: Source, options: ImportOptions) -> Module:
    """The module with one exported function `main`. CompileError lists all that is missing."""
    opsets = opset_versions(source.model.opset_import, source.name)
    if not source.model.opset_import:
        opsets = {DEFAULT_DOMAIN: 1}  # a model from before there were opsets
    source = without_sparse(source)
    check_graph(source.model.graph)
    symbols = Symbols()
    while True:
        symbols.start()
        try:
            return _import(source, options, opsets, symbols)
        except Restart:
            continue


def _import(
    source: Source, options: ImportOptions, opsets: dict[str, int], symbols: Symbols
) -> Module:
    graph = source.model.graph
    if options.survey is not None:
        options.survey.start()
    ends = choose_ends(graph, options.outputs)
    signature = read_signature(ends, symbols, graph.node)
    block = Block(signature.types)
    values: dict[str, Result] = dict.fromkeys(signature.refused, UNKNOWN)
    scope = Scope(values, opsets)
    scope.read(graph)
    check_functions(source.model, signature.result_names)
    walk = Walk(source, options, block, symbols)
    arguments = dict(zip(signature.names, block.arguments, strict=True))
    taken: dict[str, Structure] = {}
    for name, argument in arguments.items():
        argument.name = name
        taken[name] = take_argument(argument, walk.builder, walk.contents)
    for name in signature.strings:
        taken[name] = take_strings(taken[name], taken[f"{name}{SUFFIX}"], walk.builder)
    values.update(taken)
    for problem in signature.refused.values():
        walk.notes.note(problem)
    walk.walk(graph.node, signature.result_names, scope)
    names = signature.result_names
    results = [walk.look_up(name, scope) for name in names]
    given: dict[str, Value | None] = {}
    for output, result in zip(ends.outputs, results, strict=True):
        if isinstance(result, (Strings, StringItems)) or (
            isinstance(result, Maybe) and _has_texts(result, output)
        ):
            given |= _give_texts(walk, output, result, names)
        else:
            given[output.name] = _give(walk, output, result)
    if options.survey is not None:
        return _finish_survey(walk, options.survey, block, signature, results)
    walk.notes.raise_problems({name: given.get(name) for name in names})
    walk.builder.return_(*(value for value in given.values() if value is not None))
    drop_unread_constants(block)
    docs = {name: doc_of_bytes(name.removesuffix(SUFFIX)) for name in given.keys() - set(names)}
    known = walk.contents.remembered
    docs |= {name: doc_of_keys(known["keys", name]) for name in names if ("keys", name) in known}
    signature = replace(signature, result_names=tuple(given), docs={**signature.docs, **docs})
    module = _finish(block, signature)
    add_position(module)
    name_sizes(module.functions["main"], {output.name: output for output in ends.outputs})
    if walk.initializers.weights:
        module.attributes["weights"] = tuple(walk.initializers.weights.items())
    return module


def _finish(block: Block, signature: Signature) -> Module:
    module = Module()
    module.add(
        Function(
            "main",
            Region([block]),
            list(signature.names),
            list(signature.result_names),
            symbols=dict(signature.symbols),
            docs=dict(signature.docs),
            attributes=FunctionAttributes(signature.renamed),
        )
    )
    return module


def _finish_survey(
    walk: Walk, survey: Survey, block: Block, signature: Signature, results: Sequence[Result]
) -> Module:
    """What can be made of the model, to look at its kernels."""
    survey.problems += list_problems(walk.notes.problems)
    made = [*results, *walk.last_values]
    values = [each for each in made if _is_tensor(each)]
    walk.builder.return_(*dict.fromkeys(values))
    types = [value.type for value in block.arguments]
    shapes = [dim for type in types if isinstance(type, TensorType) for dim in type.shape]
    names = dict.fromkeys(name for dim in shapes for name in sorted(symbols_of(dim)))
    known = walk.contents.symbols.bounds
    return _finish(
        block,
        replace(
            signature,
            names=tuple(f"argument{place}" for place in range(len(block.arguments))),
            result_names=tuple(f"result{place}" for place in range(len(dict.fromkeys(values)))),
            symbols={name: known.get(name, (0, None)) for name in names},
        ),
    )


def _has_texts(optional: Maybe, output: onnx.ValueInfoProto) -> bool:
    content = optional.content
    return isinstance(content, StringItems) or (content is None and is_text(output.type))


def _give_texts(
    walk: Walk,
    output: onnx.ValueInfoProto,
    result: Strings | StringItems | Maybe,
    names: Sequence[str],
) -> dict[str, Value]:
    """Where strings end, and their bytes; none, and a note, if they can be no result."""
    try:
        refuse_taken(output.name, names, "graph output")
        if isinstance(result, Strings):
            return _give_strings(walk, output.name, result)
        return give_strings(result, output, walk.builder, walk.contents)
    except CompileError as error:
        walk.notes.note(str(error))
        return {}


def _give_strings(walk: Walk, name: str, strings: Strings) -> dict[str, Value]:
    """Where the strings end, and their bytes."""

    def define_size(number: Value, what: str) -> Dim:
        symbol = partial(walk.contents.names.fresh, f"{name}_size")
        (part,) = walk.contents.parts(walk.builder, number)
        return walk.contents.define_size(walk.builder, part, symbol, what)

    ends, data = pack(Emitter(walk.builder), strings, define_size)
    return {name: ends, f"{name}{SUFFIX}": data}


def _give(walk: Walk, value: onnx.ValueInfoProto, result: Result) -> Value | None:
    """What the function returns for a graph output; None, and a note, if it can be none, or
    is not what the graph declares."""
    if isinstance(result, Unknown):
        return None
    if isinstance(result, Value) and isinstance(result.type, TensorType):
        problem = output_problem(value, result.type)
        if problem:
            walk.notes.note(problem)
    elif isinstance(result, Forked):
        walk.notes.note(
            f"graph output '{value.name}' is {result}, as the branches of layer "
            f"'{result.layer}' decide: results have one rank; reshape it to one"
        )
    elif result is None:
        walk.notes.note(f"graph output '{value.name}' is nothing: fix the model")
    if result is None or isinstance(result, Forked):
        return None
    try:
        return give_result(result, value, walk.builder, walk.contents)
    except CompileError as error:
        walk.notes.note(str(error))
        return None


def _is_tensor(value: Result) -> TypeGuard[Value]:
    return isinstance(value, Value) and isinstance(value.type, TensorType)

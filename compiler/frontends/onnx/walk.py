"""Walks an ONNX graph and makes the graph level of Ingot's IR from it.

One pass in topological order: each node is lowered by the function that `registry.py` has for
it, or else through the body that the model or the ONNX schema gives for it. What cannot be
lowered is noted, its results count as unknown, and the walk goes on, so that one CompileError
lists everything that is missing. What an op means stands in `lowerings/`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import onnx

from ingot.compiler.frontends.inlining import Inlined
from ingot.compiler.frontends.onnx import lowerings as _lowerings  # noqa: F401 - fills the table
from ingot.compiler.frontends.onnx import old_opsets
from ingot.compiler.frontends.onnx.branches import alternative, join_structures, refuse_branches
from ingot.compiler.frontends.onnx.check import (
    DEFAULT_DOMAIN,
    captured_names,
    live_nodes,
    normalize_domain,
    opset_versions,
    order_nodes,
)
from ingot.compiler.frontends.onnx.check_node import check_node
from ingot.compiler.frontends.onnx.choices import lower_node
from ingot.compiler.frontends.onnx.contents import Contents
from ingot.compiler.frontends.onnx.edge import tensor_of
from ingot.compiler.frontends.onnx.functions import bind_attributes, key_of, schema_function
from ingot.compiler.frontends.onnx.initializers import ImportOptions, Initializers
from ingot.compiler.frontends.onnx.malformed import well_formed
from ingot.compiler.frontends.onnx.node import Node, UnknownBody, UnsupportedNode
from ingot.compiler.frontends.onnx.notes import Notes
from ingot.compiler.frontends.onnx.registry import STRING_ITEMS, STRINGS, Lowering, find_lowering
from ingot.compiler.frontends.onnx.scope import UNKNOWN, Result, Scope, Unknown
from ingot.compiler.frontends.onnx.signature import (
    stand_in_type,
)
from ingot.compiler.frontends.onnx.source import Source
from ingot.compiler.frontends.onnx.structures import (
    Forked,
    Maybe,
    RankConflict,
    StringItems,
    Structure,
)
from ingot.compiler.frontends.strings import Strings
from ingot.compiler.frontends.symbols import Symbols
from ingot.compiler.graph.builder import Builder, SharingBuilder
from ingot.compiler.ir import Block, ListType, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.errors import CompileError

__all__ = ["Walk"]

_SCOPES = "pkg.torch.onnx.name_scopes"


class Walk:
    """The walk over the main graph, whose ops `main` gets, and over the bodies in it."""

    def __init__(
        self, source: Source, options: ImportOptions, main: Block, symbols: Symbols
    ) -> None:
        self.builder: Builder = SharingBuilder(main)
        self.notes = Notes(source, options.survey)
        self.initializers = Initializers(source.files, options, self.notes)
        self.contents = Contents(symbols, main.ops)
        self.contents.names.taken.update(symbols.order)
        self.last_values: list[Value] = []  # of the main graph, which only refused layers read
        self._files = source.files
        self._functions = {key_of(function): function for function in source.model.functions}
        self._active: list[tuple[str, str, str]] = []  # functions whose bodies are being walked
        self._inlined = Inlined()
        self._symbols = symbols
        self._main = main

    # ---- names

    def look_up(self, name: str, scope: Scope) -> Result:
        """The value of a name; an initializer becomes an op when it is first used."""
        if name not in scope.values:
            tensor = scope.initializers.get(name)
            if tensor is None:
                raise CompileError(f"'{name}' is read before anything defines it")
            scope.values[name] = self.initializers.make(tensor, self.builder)
        return scope.values[name]

    # ---- nodes

    def walk(self, nodes: Sequence[onnx.NodeProto], wanted: Iterable[str], scope: Scope) -> None:
        """Lowers the nodes that the names in `wanted` need, each after those it reads."""
        live = live_nodes(nodes, wanted)
        for index, node in order_nodes(nodes):
            if index not in live:
                continue
            location = _location(node, index, scope.prefix)
            inputs = [self._input(name, scope) if name else None for name in node.input]
            captured = {name: self._input(name, scope) for name in captured_names(node)}
            bodies = _Bodies(self, scope, captured, location)
            with self.builder.at(location):
                first_problem = len(self.notes.problems)
                results = self._lower(node, inputs, scope, bodies)
                new = self.notes.problems[first_problem:]
                problem = self.notes.note_use(node, inputs, location, new)
            if problem and self.builder.ops is self._main.ops:
                self.last_values += [each for each in inputs if isinstance(each, Value)]
            for name, result in zip(node.output, results, strict=False):
                if name:
                    self._learn_declared(result, scope.types.get(name))
                    scope.values[name] = result
                    if isinstance(result, Value) and not result.name:
                        result.name = name

    def _learn_declared(self, result: Result, declared: onnx.TypeProto | None) -> None:
        """What the model notes of a sequence tells a rank that a graph input leaves open."""
        list = result.content if isinstance(result, Maybe) else result
        if declared is None or not isinstance(list, Value) or not isinstance(list.type, ListType):
            return
        rank = len(tensor_of(declared).shape.dim)
        if rank and list.type.rank == 0:
            self.contents.learn_rank(list, rank)

    def _lower(
        self, node: onnx.NodeProto, inputs: Sequence[Result], scope: Scope, bodies: _Bodies
    ) -> Sequence[Result]:
        """The results of one node, all unknown if it cannot be lowered."""
        location = bodies.location
        unknown: list[Result] = [UNKNOWN] * len(node.output)
        domain = normalize_domain(node.domain)
        if domain not in scope.opsets:
            self.notes.report(node, inputs, location, f"the model imports no opset of '{domain}'")
            return unknown
        opset = scope.opsets[domain]
        function = self._functions.get((domain, node.op_type, node.overload))
        known = [value for value in inputs if not isinstance(value, Unknown)]
        is_old = domain == DEFAULT_DOMAIN and opset < old_opsets.OPSET
        lower = find_lowering(domain, node.op_type, old_opsets.OPSET if is_old else opset)
        if len(known) < len(inputs) or any(
            isinstance(value, Unknown) for value in bodies.captured.values()
        ):
            if lower is None and function is None and not _has_body(node.op_type, domain, opset):
                self.notes.report_missing(node, inputs, location, opset)
            return unknown
        forks = [each for each in (*known, *bodies.captured.values()) if isinstance(each, Forked)]
        if forks:
            return self._lower_forked(forks[0], node, known, scope, bodies)
        for kind, table in ((Strings, STRINGS), (StringItems, STRING_ITEMS)):
            if any(isinstance(each, kind) for each in known):
                lower = find_lowering(table, node.op_type, opset) or lower
        try:
            with well_formed():
                if function is None:
                    check_node(node, domain, opset)
                if function is None and lower is not None:
                    return self._apply(lower, node, known, opset, bodies)
                if function is None:
                    function = schema_function(node, domain, opset, known)
                if function is not None:
                    return self._inline(function, node, known, scope, location)
        except UnknownBody:
            return unknown
        except (UnsupportedNode, CompileError) as error:
            if isinstance(error, RankConflict):
                self.contents.learn_open_rank(error.element.name, error.rank)
            self.notes.report(node, inputs, location, str(error))
            return unknown
        self.notes.report_missing(node, inputs, location, opset)
        return unknown

    def _apply(
        self,
        lower: Lowering,
        node: onnx.NodeProto,
        inputs: Sequence[Structure | None],
        opset: int,
        bodies: _Bodies,
    ) -> Sequence[Result]:
        given = self._node(node, inputs, opset, bodies)
        if normalize_domain(node.domain) == DEFAULT_DOMAIN and opset < old_opsets.OPSET:
            given = old_opsets.revise(given)
        results = lower_node(lower, given)
        made: list[Result] = list(results)
        for index, name in enumerate(node.output):
            if name and (index >= len(made) or made[index] is None):
                raise UnsupportedNode(f"its output {index} ('{name}') is not supported")
        return made

    def _node(
        self, node: onnx.NodeProto, inputs: Sequence[Structure | None], opset: int, bodies: _Bodies
    ) -> Node:
        return Node(node, inputs, opset, self.builder, self.contents, self._files, bodies)

    def _lower_forked(
        self,
        fork: Forked,
        node: onnx.NodeProto,
        inputs: Sequence[Structure | None],
        scope: Scope,
        bodies: _Bodies,
    ) -> Sequence[Result]:
        """The results of a node that reads a tensor of several ranks: it is lowered for each."""
        outer = self._node(node, (), 0, bodies)
        branches: list[tuple[Node, Block]] = []
        results: list[Sequence[Result]] = []
        noted = [len(self.notes.problems)]
        for place in range(len(fork.shapes)):
            block = outer.aside(())
            inner = outer.within(Builder(block, bodies.location))
            self.builder = inner.builder
            try:
                given = [alternative(each, fork, place, inner) for each in inputs]
                captured = {
                    name: each
                    if isinstance(each, Unknown)
                    else alternative(each, fork, place, inner)
                    for name, each in bodies.captured.items()
                }
                results.append(self._lower(node, given, scope, replace(bodies, captured=captured)))
            finally:
                self.builder = outer.builder
            branches.append((inner, block))
            noted.append(len(self.notes.problems))
        if refuse_branches(fork, branches, results, [a < b for a, b in pairwise(noted)]):
            del self.notes.problems[noted[0] :]
        made = [[each for each in column if not isinstance(each, Unknown)] for column in results]
        if any(len(known) < len(column) for known, column in zip(made, results, strict=True)):
            return [UNKNOWN] * len(node.output)
        try:
            return join_structures(outer, fork.control, fork.selector, branches, made)
        except (UnsupportedNode, CompileError) as error:
            self.notes.report(node, inputs, bodies.location, str(error))
            return [UNKNOWN] * len(node.output)

    def _inline(
        self,
        function: onnx.FunctionProto,
        node: onnx.NodeProto,
        inputs: Sequence[Structure | None],
        scope: Scope,
        location: str,
    ) -> Sequence[Result]:
        """Lowers the function's body in a scope of its own."""
        key = key_of(function)
        if key in self._active:
            raise CompileError(f"function '{function.name}' calls itself: ONNX forbids recursion")
        self._inlined.add(len(function.node))
        opsets = opset_versions(function.opset_import, f"function '{function.name}'")
        inner = Scope(dict.fromkeys(function.input), {**scope.opsets, **opsets}, prefix=location)
        inner.values.update(zip(function.input, inputs, strict=False))
        inner.types.update((each.name, each.type) for each in function.value_info)
        self._active.append(key)
        try:
            self.walk(bind_attributes(function, node), function.output, inner)
        finally:
            self._active.pop()
        return [inner.values.get(name, UNKNOWN) for name in function.output]

    def lower_body(
        self, graph: onnx.GraphProto, inputs: Sequence[Structure], builder: Builder, scope: Scope
    ) -> list[Structure]:
        """The outputs of a body, whose ops `builder` makes, in a scope that has its inputs."""
        for value, given in zip(graph.input, inputs, strict=True):
            self._learn_declared(given, value.type)
            scope.values[value.name] = given
        scope.read(graph)
        outer, self.builder = self.builder, builder
        try:
            self.walk(graph.node, [value.name for value in graph.output], scope)
            results = [self.look_up(value.name, scope) for value in graph.output]
        finally:
            self.builder = outer
        values = [each for each in results if each is not None and not isinstance(each, Unknown)]
        if len(values) < len(results):
            raise UnknownBody
        return values

    def _input(self, name: str, scope: Scope) -> Result:
        """As `look_up`; in a survey what could not be made is an argument, if its type is known."""
        value = self.look_up(name, scope)
        if self.notes.survey is None or not isinstance(value, Unknown) or scope.prefix:
            return value
        info = self.notes.types.get(name)
        type = None if info is None else stand_in_type(info, self._symbols)
        if type is not None:
            value = scope.values[name] = Value(type, self._main, name)
            self._main.arguments.append(value)
        return value


@dataclass(frozen=True)
class _Bodies:
    """The bodies of one node and what they read from outside: `Bodies` of `node.py`."""

    walk: Walk
    scope: Scope
    captured: Mapping[str, Result]
    location: str

    def lower(
        self, graph: onnx.GraphProto, inputs: Sequence[Structure], builder: Builder
    ) -> list[Structure]:
        if len(graph.input) != len(inputs):
            raise UnsupportedNode(
                f"its body '{graph.name}' takes {len(graph.input)} inputs, but the op gives it "
                f"{len(inputs)}: fix the model"
            )
        inner = Scope(dict(self.captured), self.scope.opsets, self.location)
        return self.walk.lower_body(graph, inputs, builder, inner)

    def type_of(self, name: str) -> onnx.TypeProto | None:
        return self.scope.types.get(name)


def _has_body(op_type: str, domain: str, opset: int) -> bool:
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def _location(node: onnx.NodeProto, index: int, prefix: str) -> str:
    """The layer's name: the module path that torch notes, else the node's name or place."""
    name = node.name or f"{node.op_type}_{index}"
    for entry in node.metadata_props:
        if entry.key == _SCOPES:
            with suppress(ValueError, SyntaxError):
                scopes = [str(scope) for scope in ast.literal_eval(entry.value)]
                name = "/".join(filter(None, scopes[-2:])) or name
    return f"{prefix}/{name}" if prefix else name

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
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import onnx

from ingot.compiler.frontends.onnx import lowerings as _lowerings  # noqa: F401 - fills the table
from ingot.compiler.frontends.onnx import old_opsets
from ingot.compiler.frontends.onnx.branches import alternative, join_structures
from ingot.compiler.frontends.onnx.check import (
    DEFAULT_DOMAIN,
    captured_names,
    check_graph,
    live_nodes,
    normalize_domain,
    opset_versions,
    order_nodes,
)
from ingot.compiler.frontends.onnx.check_node import check_node
from ingot.compiler.frontends.onnx.choices import lower_node
from ingot.compiler.frontends.onnx.choose_ends import choose, choose_ends
from ingot.compiler.frontends.onnx.contents import Contents
from ingot.compiler.frontends.onnx.edge import give_result, take_argument, tensor_of
from ingot.compiler.frontends.onnx.fingerprint import fingerprint
from ingot.compiler.frontends.onnx.functions import bind_attributes, schema_function
from ingot.compiler.frontends.onnx.infer_types import infer_types
from ingot.compiler.frontends.onnx.malformed import well_formed
from ingot.compiler.frontends.onnx.name_sizes import name_sizes
from ingot.compiler.frontends.onnx.node import Node, UnknownBody, UnsupportedNode
from ingot.compiler.frontends.onnx.registry import Lowering, find_lowering
from ingot.compiler.frontends.onnx.signature import (
    Signature,
    output_problem,
    read_signature,
    stand_in_type,
)
from ingot.compiler.frontends.onnx.source import Source
from ingot.compiler.frontends.onnx.structures import Forked, Items, Maybe, RankConflict, Structure
from ingot.compiler.frontends.onnx.tensors import (
    dtype_of,
    element_type_name,
    is_external,
    literal_of,
)
from ingot.compiler.frontends.problems import Problem, list_problems
from ingot.compiler.frontends.random_numbers import add_position
from ingot.compiler.frontends.survey import Survey, Use
from ingot.compiler.frontends.symbols import Restart, Symbols
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Function, ListType, Module, Region, TensorType, Value
from ingot.compiler.ir.dims import symbols_of
from ingot.compiler.ir.renamed_dims import RENAMED
from ingot.hal.errors import CompileError

__all__ = ["ImportOptions", "import_model"]

_SCOPES = "pkg.torch.onnx.name_scopes"


@dataclass(frozen=True)
class ImportOptions:
    """How initializers become values: see `import_onnx`."""

    external_parameters: bool
    parameter_names: Mapping[str, str]
    outputs: Sequence[str] | None = None
    survey: Survey | None = None


@dataclass(frozen=True)
class _Unknown:
    """Stands for a result that could not be made; nodes that read it are skipped."""


_UNKNOWN = _Unknown()
_Result = Structure | _Unknown | None


@dataclass
class _Scope:
    """Names of one graph or function body and what they stand for."""

    values: dict[str, _Result]
    opsets: dict[str, int]
    prefix: str = ""  # the layer that a function body belongs to
    initializers: dict[str, onnx.TensorProto] = field(default_factory=dict)
    types: dict[str, onnx.TypeProto] = field(default_factory=dict)  # that the model notes

    def read(self, graph: onnx.GraphProto) -> None:
        """Take the initializers and the types of a graph."""
        self.initializers.update((tensor.name, tensor) for tensor in graph.initializer)
        self.types.update((each.name, each.type) for each in (*graph.value_info, *graph.output))


def import_model(source: Source, options: ImportOptions) -> Module:
    """The module with one exported function `main`. CompileError lists all that is missing.

    The import starts again when it learns that two symbolic dims are one (see `symbols.py`).
    """
    opsets = opset_versions(source.model.opset_import, source.name)
    if not source.model.opset_import:
        opsets = {DEFAULT_DOMAIN: 1}  # a model from before there were opsets
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
    signature = read_signature(ends, symbols)
    block = Block(signature.types)
    values: dict[str, _Result] = dict.fromkeys(signature.refused, _UNKNOWN)
    scope = _Scope(values, opsets)
    scope.read(graph)
    importer = _Importer(source, options, block, symbols)
    for name, argument in zip(signature.names, block.arguments, strict=True):
        argument.name = name
        values[name] = importer.take_argument(argument)
    for problem in signature.refused.values():
        importer.note(problem)
    importer.walk(graph.node, signature.result_names, scope)
    results = [importer.look_up(name, scope) for name in signature.result_names]
    given = [importer.result(*each) for each in zip(ends.outputs, results, strict=True)]
    if options.survey is not None:
        return importer.finish_survey(options.survey, block, signature, results)
    importer.raise_problems(dict(zip(signature.result_names, given, strict=True)))
    importer.builder.return_(*(value for value in given if value is not None))
    module = _finish(block, signature)
    add_position(module)
    name_sizes(module.functions["main"], ends.outputs)
    if importer.weights:
        module.attributes["weights"] = tuple(importer.weights.items())
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
            attributes={RENAMED: signature.renamed} if signature.renamed else {},
        )
    )
    return module


class _Importer:
    def __init__(
        self, source: Source, options: ImportOptions, main: Block, symbols: Symbols
    ) -> None:
        self.builder = Builder(main)
        self._source = source
        self._options = options
        self._contents = Contents(symbols, main.ops)
        self._contents.reserve(symbols.order)
        self._problems: list[Problem] = []
        self.weights: dict[str, str] = {}  # fingerprints of external parameters by key
        self._functions = {
            (normalize_domain(function.domain), function.name, function.overload): function
            for function in source.model.functions
        }
        self._active: list[tuple[str, str, str]] = []  # functions whose bodies are being walked
        self._symbols = symbols
        self._main = main
        self._last_values: list[Value] = []  # of the main graph, which only refused layers read

    @property
    def _folders(self) -> tuple[Path, ...]:
        return self._source.folders

    # ---- names

    def look_up(self, name: str, scope: _Scope) -> _Result:
        """The value of a name; an initializer becomes an op when it is first used."""
        if name not in scope.values:
            tensor = scope.initializers.get(name)
            if tensor is None:
                raise CompileError(f"'{name}' is read before anything defines it")
            scope.values[name] = self._make_initializer(tensor)
        return scope.values[name]

    def _make_initializer(self, tensor: onnx.TensorProto) -> _Result:
        element = dtype_of(tensor.data_type)
        if element is None:
            kind = element_type_name(tensor.data_type)
            self.note(
                f"initializer '{tensor.name}' has element type {kind}, expected a numeric one",
                ("initializer", kind),
                tensor.name,
            )
            return _UNKNOWN
        if self._options.external_parameters and (
            is_external(tensor) or (element.is_float and tensor.dims)
        ):
            key = self._options.parameter_names.get(tensor.name, tensor.name)
            self._note_weights(key, tensor)
            result = self.builder.op(
                "parameter", scope="", key=key, dtype=element, shape=tuple(tensor.dims)
            )
            assert isinstance(result, Value)
        else:
            try:
                result = self.builder.constant(literal_of(tensor, self._folders))
            except CompileError as error:
                self._note_weight(tensor, error)
                return _UNKNOWN
        result.name = tensor.name
        return result

    def _note_weights(self, key: str, tensor: onnx.TensorProto) -> None:
        """Remember which weights the external parameter `key` is, which must be one tensor."""
        try:
            found = fingerprint(tensor, self._folders)
        except CompileError as error:
            self._note_weight(tensor, error)
            return
        if self.weights.setdefault(key, found) != found:
            self.note(
                f"initializer '{tensor.name}' has the key '{key}' of other weights: give it "
                "another one with parameter_names="
            )

    # ---- nodes

    def walk(self, nodes: Sequence[onnx.NodeProto], wanted: Iterable[str], scope: _Scope) -> None:
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
                first_problem = len(self._problems)
                results = self._lower(node, inputs, scope, bodies)
                self._note_use(node, inputs, location, self._problems[first_problem:])
            for name, result in zip(node.output, results, strict=False):
                if name:
                    self._learn_declared(result, scope.types.get(name))
                    scope.values[name] = result
                    if isinstance(result, Value) and not result.name:
                        result.name = name

    def _learn_declared(self, result: _Result, declared: onnx.TypeProto | None) -> None:
        """What the model notes of a sequence tells a rank that a graph input leaves open."""
        list = result.content if isinstance(result, Maybe) else result
        if declared is None or not isinstance(list, Value) or not isinstance(list.type, ListType):
            return
        rank = len(tensor_of(declared).shape.dim)
        if rank and list.type.rank == 0:
            self._contents.learn_rank(list, rank)

    def _lower(
        self, node: onnx.NodeProto, inputs: Sequence[_Result], scope: _Scope, bodies: _Bodies
    ) -> Sequence[_Result]:
        """The results of one node, all unknown if it cannot be lowered."""
        location = bodies.location
        unknown: list[_Result] = [_UNKNOWN] * len(node.output)
        domain = normalize_domain(node.domain)
        if domain not in scope.opsets:
            self._report(node, inputs, location, f"the model imports no opset of '{domain}'")
            return unknown
        opset = scope.opsets[domain]
        function = self._functions.get((domain, node.op_type, node.overload))
        known = [value for value in inputs if not isinstance(value, _Unknown)]
        is_old = domain == DEFAULT_DOMAIN and opset < old_opsets.OPSET
        lower = find_lowering(domain, node.op_type, old_opsets.OPSET if is_old else opset)
        if len(known) < len(inputs) or any(
            isinstance(value, _Unknown) for value in bodies.captured.values()
        ):
            if lower is None and function is None and not _has_body(node.op_type, domain, opset):
                self._report_missing(node, inputs, location, domain, opset)
            return unknown
        forks = [each for each in (*known, *bodies.captured.values()) if isinstance(each, Forked)]
        if forks:
            return self._lower_forked(forks[0], node, known, scope, bodies)
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
                self._contents.learn_open_rank(error.element.name, error.rank)
            self._report(node, inputs, location, str(error))
            return unknown
        self._report_missing(node, inputs, location, domain, opset)
        return unknown

    def _apply(
        self,
        lower: Lowering,
        node: onnx.NodeProto,
        inputs: Sequence[Structure | None],
        opset: int,
        bodies: _Bodies,
    ) -> Sequence[_Result]:
        given = self._node(node, inputs, opset, bodies)
        if normalize_domain(node.domain) == DEFAULT_DOMAIN and opset < old_opsets.OPSET:
            given = old_opsets.revise(given)
        results = lower_node(lower, given)
        for index, name in enumerate(node.output):
            if name and (index >= len(results) or results[index] is None):
                raise UnsupportedNode(f"its output {index} ('{name}') is not supported")
        return results

    def _node(
        self, node: onnx.NodeProto, inputs: Sequence[Structure | None], opset: int, bodies: _Bodies
    ) -> Node:
        return Node(node, inputs, opset, self.builder, self._contents, self._folders, bodies)

    def _lower_forked(
        self,
        fork: Forked,
        node: onnx.NodeProto,
        inputs: Sequence[Structure | None],
        scope: _Scope,
        bodies: _Bodies,
    ) -> Sequence[_Result]:
        """The results of a node that reads a tensor of several ranks: it is lowered for each."""
        outer = self._node(node, (), 0, bodies)
        branches: list[tuple[Node, Block]] = []
        results: list[Sequence[_Result]] = []
        for place in range(len(fork.shapes)):
            block = outer.aside(())
            inner = outer.within(Builder(block, bodies.location))
            self.builder = inner.builder
            try:
                given = [alternative(each, fork, place, inner) for each in inputs]
                captured = {
                    name: each
                    if isinstance(each, _Unknown)
                    else alternative(each, fork, place, inner)
                    for name, each in bodies.captured.items()
                }
                results.append(self._lower(node, given, scope, replace(bodies, captured=captured)))
            finally:
                self.builder = outer.builder
            branches.append((inner, block))
        made = [[each for each in column if not isinstance(each, _Unknown)] for column in results]
        if any(len(known) < len(column) for known, column in zip(made, results, strict=True)):
            return [_UNKNOWN] * len(node.output)
        try:
            return join_structures(outer, fork.control, fork.selector, branches, made)
        except (UnsupportedNode, CompileError) as error:
            self._report(node, inputs, bodies.location, str(error))
            return [_UNKNOWN] * len(node.output)

    def _inline(
        self,
        function: onnx.FunctionProto,
        node: onnx.NodeProto,
        inputs: Sequence[Structure | None],
        scope: _Scope,
        location: str,
    ) -> Sequence[_Result]:
        """Lowers the function's body in a scope of its own."""
        key = (normalize_domain(function.domain), function.name, function.overload)
        if key in self._active:
            raise CompileError(f"function '{function.name}' calls itself: ONNX forbids recursion")
        opsets = opset_versions(function.opset_import, f"function '{function.name}'")
        inner = _Scope(dict.fromkeys(function.input), {**scope.opsets, **opsets}, prefix=location)
        inner.values.update(zip(function.input, inputs, strict=False))
        inner.types.update((each.name, each.type) for each in function.value_info)
        self._active.append(key)
        try:
            self.walk(bind_attributes(function, node), function.output, inner)
        finally:
            self._active.pop()
        return [inner.values.get(name, _UNKNOWN) for name in function.output]

    def lower_body(
        self, graph: onnx.GraphProto, inputs: Sequence[Structure], builder: Builder, scope: _Scope
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
        values = [each for each in results if each is not None and not isinstance(each, _Unknown)]
        if len(values) < len(results):
            raise UnknownBody
        return values

    # ---- surveys

    def _input(self, name: str, scope: _Scope) -> _Result:
        """As `look_up`; in a survey what could not be made is an argument, if its type is known."""
        value = self.look_up(name, scope)
        if self._options.survey is None or not isinstance(value, _Unknown) or scope.prefix:
            return value
        info = self._types.get(name)
        type = None if info is None else stand_in_type(info, self._symbols)
        if type is not None:
            value = scope.values[name] = Value(type, self._main, name)
            self._main.arguments.append(value)
        return value

    def _note_use(
        self,
        node: onnx.NodeProto,
        inputs: Sequence[_Result],
        location: str,
        problems: Sequence[Problem],
    ) -> None:
        if self._options.survey is None:
            return
        problem = next((each.text for each in problems if each.layer == location), "")
        is_seen = bool(problem) or not any(isinstance(each, _Unknown) for each in inputs)
        types = (self._describe(*pair) for pair in zip(node.input, inputs, strict=True))
        domain = normalize_domain(node.domain)
        op = f"{domain}.{node.op_type}" if domain else node.op_type
        self._options.survey.uses.append(Use(op, tuple(types), location, problem, is_seen))
        if problem and self.builder.ops is self._main.ops:
            self._last_values += [each for each in inputs if isinstance(each, Value)]

    def finish_survey(
        self, survey: Survey, block: Block, signature: Signature, results: Sequence[_Result]
    ) -> Module:
        """What can be made of the model, to look at its kernels."""
        survey.problems += list_problems(self._problems)
        made = [*results, *self._last_values]
        values = [each for each in made if isinstance(each, Value) and _is_tensor(each)]
        self.builder.return_(*dict.fromkeys(values))
        types = [value.type for value in block.arguments]
        shapes = [dim for type in types if isinstance(type, TensorType) for dim in type.shape]
        names = dict.fromkeys(name for dim in shapes for name in sorted(symbols_of(dim)))
        known = self._symbols.bounds
        return _finish(
            block,
            replace(
                signature,
                names=tuple(f"argument{place}" for place in range(len(block.arguments))),
                result_names=tuple(f"result{place}" for place in range(len(dict.fromkeys(values)))),
                symbols={name: known.get(name, (0, None)) for name in names},
            ),
        )

    @cached_property
    def _types(self) -> Mapping[str, onnx.ValueInfoProto]:
        """Of values and initializers of the main graph, for surveys."""
        tensors = self._source.model.graph.initializer
        info = onnx.helper.make_tensor_value_info
        weights = {each.name: info(each.name, each.data_type, each.dims) for each in tensors}
        return {**weights, **infer_types(self._source.model)}

    # ---- problems

    def _report_missing(
        self,
        node: onnx.NodeProto,
        inputs: Sequence[_Result],
        location: str,
        domain: str,
        opset: int,
    ) -> None:
        name = f"{domain}.{node.op_type}" if domain else node.op_type
        advice = f"{name} of opset {opset} is not supported; "
        if node.op_type == "ZipMap":
            advice = f"maps cannot be results: {choose(node.input)} takes what it reads instead"
        elif domain:
            advice += "export the model with ops of the default domain only"
        else:
            advice += "rewrite the layer with other ops"
        self._report(node, inputs, location, advice)

    def _report(
        self, node: onnx.NodeProto, inputs: Sequence[_Result], location: str, message: str
    ) -> None:
        types = ", ".join(
            self._describe(name, value) for name, value in zip(node.input, inputs, strict=True)
        )
        text = f"layer '{location}': {node.op_type}({types}): {message}"
        self.note(text, (node.op_type, message), location)

    def _describe(self, name: str, value: _Result) -> str:
        if isinstance(value, Value):
            return str(value.type)
        if isinstance(value, (Items, Maybe, Forked)):
            return str(value)
        return "none" if value is None else self._declared.get(name, f"'{name}' of unknown type")

    @cached_property
    def _declared(self) -> dict[str, str]:
        """The types that the model notes of values that could not be made. ONNX's own inference
        would know more, but it crashes on some models."""
        graph = self._source.model.graph
        known = [*graph.input, *graph.value_info, *graph.output]
        types: dict[str, str] = {}
        for value in known if self._options.survey is None else self._types.values():
            tensor = value.type.tensor_type
            element = dtype_of(tensor.elem_type) or element_type_name(tensor.elem_type)
            if tensor.elem_type and tensor.HasField("shape"):
                shape = ",".join(
                    str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"
                    for dim in tensor.shape.dim
                )
                types[value.name] = f"{element}[{shape}]"
        return types

    def take_argument(self, argument: Value) -> Structure:
        """What a graph input stands for."""
        return take_argument(argument, self.builder, self._contents)

    def result(self, value: onnx.ValueInfoProto, result: _Result) -> Value | None:
        """What the function returns for a graph output; None, and a note, if it can be none, or
        is not what the graph declares."""
        if isinstance(result, _Unknown):
            if tensor_of(value.type).elem_type == onnx.TensorProto.STRING:
                self.note(
                    f"graph output '{value.name}' is of strings, which results cannot be: name the "
                    "others, or numbers that it is made of, with outputs= or --outputs"
                )
            return None
        if isinstance(result, Value) and isinstance(result.type, TensorType):
            problem = output_problem(value, result.type)
            if problem:
                self.note(problem)
        elif isinstance(result, Forked):
            self.note(
                f"graph output '{value.name}' is {result}, as the branches of layer "
                f"'{result.layer}' decide: results have one rank; reshape it to one"
            )
        elif result is None:
            self.note(f"graph output '{value.name}' is nothing: fix the model")
        if result is None or isinstance(result, Forked):
            return None
        try:
            return give_result(result, value, self.builder, self._contents)
        except CompileError as error:
            self.note(str(error))
            return None

    def note(self, text: str, cause: object = None, layer: str = "") -> None:
        self._problems.append(Problem(text, cause, layer))

    def _note_weight(self, tensor: onnx.TensorProto, error: CompileError) -> None:
        """A tensor that cannot be read, as all those of one file that is not there."""
        if self._options.survey is not None:
            return  # which asks for ops, and gets along without weights
        self.note(str(error), str(error).replace(f"'{tensor.name}'", ""), tensor.name)

    def raise_problems(self, results: Mapping[str, Value | None]) -> None:
        """CompileError that lists everything that was noted, and of the results which can be
        compiled alone; nothing if nothing was."""
        if not self._problems:
            return
        lines = list_problems(self._problems)
        head = f"cannot compile {self._source.name}: {len(lines)} problem"
        good = [name for name, value in results.items() if value is not None]
        if good and len(good) < len(results):
            lines.append(f"{choose(good)} compiles without what needs these layers")
        raise CompileError("\n  ".join([head + "s" * (len(lines) > 1), *lines]))


@dataclass(frozen=True)
class _Bodies:
    """The bodies of one node and what they read from outside: `Bodies` of `node.py`."""

    importer: _Importer
    scope: _Scope
    captured: Mapping[str, _Result]
    location: str

    def lower(
        self, graph: onnx.GraphProto, inputs: Sequence[Structure], builder: Builder
    ) -> list[Structure]:
        if len(graph.input) != len(inputs):
            raise UnsupportedNode(
                f"its body '{graph.name}' takes {len(graph.input)} inputs, but the op gives it "
                f"{len(inputs)}: fix the model"
            )
        inner = _Scope(dict(self.captured), self.scope.opsets, self.location)
        return self.importer.lower_body(graph, inputs, builder, inner)

    def type_of(self, name: str) -> onnx.TypeProto | None:
        return self.scope.types.get(name)


def _is_tensor(value: Value) -> bool:
    return isinstance(value.type, TensorType)


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

"""Imports a program of torch.export: its signature, its graph, its results and its state.

The import starts again when it finds that a buffer is written: then it is a variable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingot.compiler.frontends.amounts import Amounts
from ingot.compiler.frontends.complex_numbers import take_apart
from ingot.compiler.frontends.emitter import Emitter, UnsupportedNode
from ingot.compiler.frontends.problems import list_problems
from ingot.compiler.frontends.random_numbers import add_position
from ingot.compiler.frontends.survey import Survey
from ingot.compiler.frontends.symbols import Symbols
from ingot.compiler.frontends.torch import lowerings  # noqa: F401 - it fills the table
from ingot.compiler.frontends.torch.archive import Archive, Place
from ingot.compiler.frontends.torch.complex_values import ComplexValue
from ingot.compiler.frontends.torch.expressions import symbol_dim
from ingot.compiler.frontends.torch.lowering import Wrapped
from ingot.compiler.frontends.torch.memory import (
    Shared,
    read_part,
    shared_variables,
    write_part,
)
from ingot.compiler.frontends.torch.names import result_names
from ingot.compiler.frontends.torch.tensors import Tensors, View
from ingot.compiler.frontends.torch.types import Types
from ingot.compiler.frontends.torch.walk import Walk
from ingot.compiler.graph.builder import Builder, SharingBuilder, tensor_type
from ingot.compiler.graph.folding.eliminate_dead_code import drop_unread_constants
from ingot.compiler.ir import Block, Function, Module, Region, TensorType, Value, Variable
from ingot.compiler.ir.dims import Dim, symbols_of
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype

__all__ = ["import_torch"]

_MALFORMED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    SyntaxError,
    TypeError,
    ValueError,
)


def import_torch(
    source: Path | bytes | Archive,
    *,
    parameters: str = "embedded",
    parameter_names: Mapping[str, str] | None = None,
    survey: Survey | None = None,
    weights: Collection[str] = (),
    dim_names: Mapping[str, str] | None = None,
) -> Module:
    """The graph-level module of a `.pt2` archive, its path, its bytes or what was read of it.

    With `parameters="external"` floating-point parameters and buffers of rank 1 or more are to be
    supplied when the module is loaded, by their names in the torch module or those that
    `parameter_names` gives; so are arguments that are called in `weights`. CompileError lists every
    op that cannot be compiled, with its place in the torch module and in the Python source; a
    `survey` takes them instead. `dim_names` are the names that symbols get.
    """
    if parameters not in ("embedded", "external"):
        raise CompileError(f'parameters is {parameters!r}, expected "embedded" or "external"')
    archive = source if isinstance(source, Archive) else Archive(source)
    state = _State()
    while True:
        known = len(state.written)
        try:
            with archive.opened():
                module = _Import(
                    archive,
                    parameters == "external",
                    parameter_names or {},
                    survey,
                    state,
                    weights,
                    dim_names or {},
                ).run()
        except UnsupportedNode as error:  # beside nodes: these are reported together
            raise CompileError(f"{archive.what} cannot be compiled: {error}") from None
        except _MALFORMED as error:
            raise CompileError(
                f"{archive.what} is malformed ({type(error).__name__}: {str(error)[:300]}): "
                "export the model again"
            ) from error
        if len(state.written) == known:
            return module


@dataclass
class _State:
    """What imports of a program find, by names in the torch module."""

    written: set[str] = field(default_factory=set)  # weights that are variables
    used: dict[str, bool] = field(default_factory=dict)  # weights, and if it is a constant


@dataclass
class _Ends:
    """Of the function that is being made."""

    names: list[str] = field(default_factory=list)  # of arguments
    weights: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """By name in the module that in the graph, and if it is a constant."""
    inputs: list[str] = field(default_factory=list)  # arguments that are tensors or numbers
    variables: dict[str, str] = field(default_factory=dict)  # by name what they are in the graph
    sizes: set[str] = field(default_factory=set)  # symbols that arguments define as numbers


class _Import:
    def __init__(
        self,
        archive: Archive,
        external: bool,
        parameter_names: Mapping[str, str],
        survey: Survey | None,
        state: _State,
        external_arguments: Collection[str],
        dim_names: Mapping[str, str],
    ) -> None:
        self.dim_names = dim_names
        self.archive = archive
        self.external_arguments = external_arguments
        self.external = external
        self.parameter_names = parameter_names
        self.survey = survey
        self.state = state  # to which what is found is added
        self.graph = archive.program["graph_module"]["graph"]
        self.signature = archive.program["graph_module"]["signature"]
        self.module = Module()
        self.weights: dict[str, str] = {}
        self.ends = _Ends()
        self.shared = {name: each for each in self._shared() for name in each.members}
        if survey is not None:
            survey.start()

    def run(self) -> Module:
        symbols = Symbols()
        symbols.start()
        types = Types(self.archive.program, symbols, self.dim_names)
        block = Block([])
        builder = SharingBuilder(block)
        tensors = Tensors()
        walk = Walk(block, types, Amounts(symbols), self.survey)
        for spec in self.signature["input_specs"]:
            self._take(spec, block, builder, types, tensors)
        walk.lower(self.graph, tensors, builder)
        results = self._results(walk, tensors, builder)
        problems = list_problems(walk.problems)
        if self.survey is not None:
            self.survey.problems += problems
        elif problems:
            raise CompileError("\n  ".join([f"{self.archive.what} cannot be compiled:", *problems]))
        tensors.clear()
        builder.return_(*results.values())
        drop_unread_constants(block)
        self._finish(block, results, symbols)
        return self.module

    def _take(
        self, spec: Any, block: Block, builder: Builder, types: Types, tensors: Tensors
    ) -> None:
        """One input of the graph: an argument, a weight, or a constant."""
        ((kind, entry),) = spec.items()
        if kind == "user_input":
            self._take_argument(entry["arg"], block, builder, types, tensors)
        elif kind in ("parameter", "buffer", "tensor_constant"):
            is_constant = kind == "tensor_constant" or not entry.get("persistent", True)
            name, graph_name = str(entry[f"{kind}_name"]), entry["arg"]["name"]
            self.ends.weights[name] = graph_name, is_constant
            if name in self.shared:
                self._take_part(name, graph_name, is_constant, builder, tensors)
            elif name in self.state.written:
                place = self.archive.place(name, is_constant)
                self.ends.variables[name] = graph_name
                tensors.set(graph_name, self._variable(name, name, is_constant, place, builder))
            else:
                tensors.make(graph_name, lambda: self._weight(name, is_constant, builder))
        elif kind not in ("constant_input", "token"):
            raise CompileError(
                f"an input of {self.archive.what} is a {kind.replace('_', ' ')}, which is not "
                "supported: pass tensors and numbers"
            )

    def _take_argument(
        self, argument: Any, block: Block, builder: Builder, types: Types, tensors: Tensors
    ) -> None:
        ((tag, entry),) = argument.items()
        if tag == "as_tensor":
            name = str(entry["name"])
            type = types.tensor(self.graph["tensor_values"][name])
            value = Value(type, block, name)
            if name in self.external_arguments:
                tensors.set(name, _parameter(builder, name, type))
                return
        elif tag == "as_sym_int" and "as_name" in entry:
            name = str(entry["as_name"])
            value = Value(TensorType(dtype("i64"), ()), block, name)
        elif tag in ("as_int", "as_float", "as_bool", "as_string", "as_none"):
            return  # the program was exported for this one
        else:
            raise CompileError(f"an argument of the program is {tag}: pass tensors and numbers")
        block.arguments.append(value)
        self.ends.names.append(name)
        self.ends.inputs.append(name)
        if tag == "as_tensor":
            is_complex = tensor_type(value).dtype.is_complex
            tensors.set(name, ComplexValue(*take_apart(builder, value)) if is_complex else value)
            return
        dim = types.dim(self.graph["sym_int_values"][name])
        self._read_size(name, value, dim, types, builder)
        tensors.set(name, dim)

    def _read_size(self, name: str, value: Value, dim: Dim, types: Types, builder: Builder) -> None:
        """An argument that is a number defines its symbol, or equals it where dims of arguments or
        another number define it."""
        (symbol,) = symbols_of(dim) or (name,)  # a number that torch has found since
        low, high = types.limits(symbol)
        is_known = (
            not symbols_of(dim)
            or symbol in self._symbols_of_tensors(types)
            or symbol in self.ends.sizes
        )
        defined = f"{symbol}_{name}" if is_known else symbol
        attributes: dict[str, Any] = {"symbols": (defined,), "low": low, "what": f"'{name}'"}
        builder.append("size", (value,), (), attributes | ({} if high is None else {"high": high}))
        self.ends.sizes.add(symbol)
        if is_known:
            builder.append("assert", (), (), {"a": symbol_dim(defined), "b": dim})

    def _symbols_of_tensors(self, types: Types) -> set[str]:
        """Those in the shapes of arguments."""
        specs = [each["user_input"]["arg"] for each in self.signature["input_specs"]
                 if "user_input" in each]  # fmt: skip
        names = [each["as_tensor"]["name"] for each in specs if "as_tensor" in each]
        found = [types.tensor(self.graph["tensor_values"][name]).shape for name in names]
        return set().union(*(symbols_of(dim) for shape in found for dim in shape))

    def _shared(self) -> Iterator[Shared]:
        used = self.state.used.items()
        weights = {name: (self.archive.memory(name, kind), self.archive.place(name, kind))
                   for name, kind in used} if self.state.written else {}  # fmt: skip
        return shared_variables(weights, self.state.written)

    def _take_part(
        self, name: str, graph_name: str, is_constant: bool, builder: Builder, tensors: Tensors
    ) -> None:
        """A weight that is a view of a variable."""
        shared, node = self.shared[name], Emitter(builder)
        whole, part = shared.place, shared.members[name]
        base = self.ends.variables.setdefault(shared.name, f"{shared.name}/memory")
        if not tensors.is_known(base):
            tensors.set(base, self._variable(shared.name, name, is_constant, whole, builder))

        def again() -> Value:
            return read_part(node, tensors.get(base), whole, part)

        def back(value: Value) -> Value:
            return write_part(node, tensors.get(base), whole, part, value)

        tensors.view(graph_name, View(base, 0, again, back))
        tensors.make(graph_name, again)

    def _weight(
        self, name: str, is_constant: bool, builder: Builder
    ) -> Value | ComplexValue | Wrapped:
        """A parameter, a buffer or a constant."""
        if self.archive.is_wrapper(name, is_constant):

            def part(attribute: str) -> Value | ComplexValue | Wrapped:
                inner = self.archive.part(name, attribute, is_constant)
                return self._weight(inner, is_constant, builder)

            return Wrapped(part)
        self.state.used[name] = is_constant
        element, shape = self.archive.place(name, is_constant)[:2]
        if element.is_complex:
            array = self.archive.tensor(name, is_constant).array
            return ComplexValue(builder.constant(array.real), builder.constant(array.imag))
        if self.external and not is_constant and element.is_float and shape:
            key = self.parameter_names.get(name, name)
            found = self.archive.fingerprint(name, is_constant)
            if self.weights.setdefault(key, found) != found:
                raise CompileError(
                    f"parameter '{name}' has the key '{key}' of other weights: give it another one "
                    "with parameter_names="
                )
            value = _parameter(builder, key, TensorType(element, shape))
        else:
            value = builder.constant(self.archive.tensor(name, is_constant))
        value.name = name
        return value

    def _variable(
        self, name: str, source: str, is_constant: bool, place: Place, builder: Builder
    ) -> Value:
        """That with this name, which has what lies at `place` in the memory of a weight."""
        literal = self.archive.elements(source, is_constant, place)
        if literal.dtype.is_complex:
            raise UnsupportedNode(f"buffer '{name}', which it writes, is complex: write real ones")
        type = TensorType(literal.dtype, literal.shape)
        self.module.variables[name] = Variable(type, literal)
        attributes = {"name": name, "dtype": type.dtype, "shape": type.shape}
        return builder.append("variable.load", (), (), attributes).result

    def _results(self, walk: Walk, tensors: Tensors, builder: Builder) -> dict[str, Value]:
        """The results by name. Buffers that are written are stored, inputs are further results."""
        outputs, mutated, written = [], {}, []
        for spec in self.signature["output_specs"]:
            ((kind, entry),) = spec.items()
            if kind == "user_output":
                outputs.append(entry["arg"])
            elif kind in ("buffer_mutation", "parameter_mutation"):
                name, _ = self.ends.weights[str(entry[kind.replace("mutation", "name")])]
                written.append((name, tensors.get(entry["arg"]["name"])))
            elif kind == "user_input_mutation":
                mutated[str(entry["user_input_name"])] = entry["arg"]["name"]
            elif kind != "token":
                raise CompileError(f"a result of the program is a {kind.replace('_', ' ')}")
        for name in self.ends.inputs:
            if tensors.version(name):
                mutated[name] = name
        names = result_names(self.archive.program, len(outputs))
        results: dict[str, Value] = {}
        for name, argument in zip(names, outputs, strict=True):
            value = walk.argument(argument, tensors, builder)
            if value is not None:
                results[name] = walk.as_tensor(value, builder)
        for name, source in mutated.items():
            results[f"{name}.next"] = walk.as_tensor(tensors.get(source), builder)
        for name, value in written:
            if value is not tensors.get(name):
                tensors.write(name, value)
        self._store(tensors, builder)
        return results

    def _store(self, tensors: Tensors, builder: Builder) -> None:
        """Variables that were written; what else was is to be one."""
        for name, graph_name in self.ends.variables.items():
            if tensors.version(graph_name):
                value = tensors.get(graph_name)
                builder.append("variable.store", (value,), (), {"name": name})
        for name, (graph_name, is_constant) in self.ends.weights.items():
            if tensors.version(graph_name):
                self.state.used[name] = is_constant
                self.state.written.add(name)

    def _finish(self, block: Block, results: Mapping[str, Value], symbols: Symbols) -> None:
        dims = [dim for each in block.arguments for dim in tensor_type(each).shape]
        used: set[str] = set().union(*map(symbols_of, dims))
        names = [*self.ends.names]
        names += [f"argument{place}" for place in range(len(names), len(block.arguments))]
        limits = {name: symbols.bounds.get(name, (0, None)) for name in sorted(used)}
        self.module.add(Function("main", Region([block]), names, list(results), symbols=limits))
        version = str(self.archive.program.get("torch_version", ""))[:40]
        self.module.attributes["producer"] = f"PyTorch {version}".strip()
        if self.weights:
            self.module.attributes["weights"] = tuple(self.weights.items())
        add_position(self.module)


def _parameter(builder: Builder, key: str, type: TensorType) -> Value:
    """A weight that is supplied when the module is loaded."""
    attributes = {"scope": "", "key": key, "dtype": type.dtype, "shape": type.shape}
    return builder.append("parameter", (), (), attributes).result

"""Walks subgraphs in order and lowers each operator.

What cannot be lowered is noted, and stands for itself as an argument of the type that the file
notes, so that one error lists all that is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ingot.compiler.frontends.amounts import Amounts
from ingot.compiler.frontends.emitter import Emitter, UnsupportedNode, type_of
from ingot.compiler.frontends.inlining import Inlined, check_calls
from ingot.compiler.frontends.own_ops import ADVICE, find_own, lower_own
from ingot.compiler.frontends.problems import Problem
from ingot.compiler.frontends.strings import Strings, constant_strings
from ingot.compiler.frontends.survey import Survey, Use
from ingot.compiler.frontends.symbols import Names, Symbols
from ingot.compiler.frontends.tflite.flexbuffer import read_options
from ingot.compiler.frontends.tflite.lowering import (
    EACH,
    LOWERINGS,
    OF_COMPLEX,
    OF_STRINGS,
    Context,
    HashTable,
    Lowering,
)
from ingot.compiler.frontends.tflite.lowerings.activations import activate
from ingot.compiler.frontends.tflite.model import (
    Model,
    Operator,
    Subgraph,
    Tensor,
    require_small,
)
from ingot.compiler.frontends.tflite.quantized import quantize
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.interpreter import interpret
from ingot.compiler.ir import Block, Function, Literal, Module, Op, Region, Value, Variable
from ingot.hal.errors import CompileError

__all__ = ["Walk"]

_MALFORMED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
)
_MOST_NESTED = 50  # subgraphs in subgraphs


class Walk:
    """The walks through the subgraphs of one function; its variables go into `module`."""

    def __init__(
        self, model: Model, module: Module, block: Block, symbols: Symbols, survey: Survey | None
    ) -> None:
        self._model = model
        self._module = module
        self._main = block
        self._survey = survey
        self.amounts = Amounts(symbols)
        self.names = Names()
        self.entry: list[Op] = Builder(block).ops
        self.tables: dict[int, HashTable] = {}
        self.problems: list[Problem] = []
        self._depth = 0
        self._inlined = Inlined()
        self._ran: set[int] = set()

    # ---- what lowerings ask for

    def subgraph(self, place: int, builder: Builder, given: Sequence[Any]) -> list[Any]:
        graph = self.body(place)
        if len(given) != len(graph.inputs):
            raise CompileError(
                f"subgraph '{graph.name}' takes {len(graph.inputs)} inputs, got {len(given)}"
            )
        return self.lower(graph, dict(zip(graph.inputs, given, strict=True)), builder)

    def body(self, place: int) -> Subgraph:
        if not 0 <= place < len(self._model.subgraphs):
            raise CompileError(f"subgraph {place} of {len(self._model.subgraphs)} is not there")
        return self._model.subgraphs[place]

    def run_once(self, place: int) -> None:
        if place in self._ran:
            return
        self._ran.add(place)
        block = Block([])
        builder = Builder(block)
        module = Module(variables=self._module.variables)
        self.subgraph(place, builder, [])
        _check_once(block)
        builder.return_()
        module.add(Function("main", Region([block]), [], []))
        state: dict[str, Any] = {}
        interpret(module, state=state)
        for name, array in state.items():
            type = self._module.variables[name].type
            self._module.variables[name] = Variable(type, Literal(array, type.dtype))

    def load(self, builder: Builder, name: str, tensor: Tensor) -> Value:
        variable = self._module.variables.get(name)
        if variable is None:
            variable = self._module.variables[name] = Variable(tensor.type, tensor.filled())
        attributes = {"name": name, "dtype": variable.type.dtype, "shape": variable.type.shape}
        return builder.append("variable.load", (), (), attributes).result

    def store(self, builder: Builder, name: str, value: Value) -> None:
        type = type_of(value)
        if not all(isinstance(dim, int) for dim in type.shape):
            raise UnsupportedNode(f"the variable '{name}' gets {type}: its dims must be numbers")
        known = self._module.variables.get(name)
        if known is None:
            require_small(type)
            zeros = Literal(np.zeros(type.shape, type.dtype.numpy), type.dtype)
            self._module.variables[name] = Variable(type, zeros)
        elif known.type != type:
            raise UnsupportedNode(f"the variable '{name}' is {known.type}, but gets {type}")
        builder.append("variable.store", (value,), (), {"name": name})

    # ---- the walk

    def check_calls(self, graph: Subgraph) -> None:
        """CompileError: what this subgraph calls becomes too much."""

        def body(place: int) -> tuple[int, Iterator[int]]:
            inner = self.body(place)
            return len(inner.operators), called(inner)

        def called(graph: Subgraph) -> Iterator[int]:
            for operator in graph.operators:
                for name, place in vars(operator.options).items():
                    is_call = name == "subgraph" or name.endswith("_subgraph_index")
                    if is_call and 0 <= place < len(self._model.subgraphs):
                        yield place

        check_calls(called(graph), body, lambda place: self.body(place).name)

    def lower(self, graph: Subgraph, values: dict[int, Any], builder: Builder) -> list[Any]:
        """Lower all operators; what the outputs of the subgraph are."""
        if self._depth == _MOST_NESTED:
            raise CompileError("its subgraphs are nested too deeply, or in a circle")
        self._inlined.add(len(graph.operators) if self._depth else 0)
        self._depth += 1
        for operator in graph.operators:
            with builder.at(_layer(operator, graph)):
                self._lower(operator, graph, values, builder)
        self._depth -= 1
        return [self.value(place, graph, values, builder) for place in graph.outputs]

    def value(self, place: int, graph: Subgraph, values: dict[int, Any], builder: Builder) -> Any:
        """What a tensor is: computed, a constant, or a variable. None: it was left out."""
        if place == -1:
            return None
        tensor = graph.tensors[place]
        if place not in values:
            if tensor.data is not None and tensor.is_text:
                shape = [dim or 0 for dim in tensor.shape]
                values[place] = constant_strings(Emitter(builder), tensor.read_texts(), shape)
            elif tensor.data is not None:
                values[place] = builder.constant(self._model.literal(tensor))
            elif tensor.is_variable:
                values[place] = self.load(builder, variable_name(graph, place), tensor)
            else:
                raise CompileError(f"tensor '{tensor.name}' is read before anything makes it")
        value = values[place]
        if isinstance(value, Value) and not value.name:
            value.name = tensor.name
        return value

    def _lower(
        self, operator: Operator, graph: Subgraph, values: dict[int, Any], builder: Builder
    ) -> None:
        before = len(self.problems)
        try:
            results = self._apply(operator, graph, values, builder)
            if len(results) < len(operator.outputs):
                raise UnsupportedNode(
                    f"it gives {len(results)} results, expected {len(operator.outputs)}"
                )
        except (UnsupportedNode, CompileError) as error:
            self._report(operator, graph, str(error))
            results = self._stand_ins(operator, graph)
        except _MALFORMED as error:
            text = f"its inputs or options are not what the op takes ({type(error).__name__}: "
            self._report(operator, graph, f"{text}{str(error)[:200]}): convert the model again")
            results = self._stand_ins(operator, graph)
        for place, result in zip(operator.outputs, results, strict=False):
            if place != -1:
                values[place] = result
        self._note_use(operator, graph, before)

    def _apply(
        self, operator: Operator, graph: Subgraph, values: dict[int, Any], builder: Builder
    ) -> list[Any]:
        own = _own(operator)
        row = own or LOWERINGS.get(operator.name)
        if row is None:
            what = ADVICE if operator.is_custom else "rewrite the layer with other ops"
            raise UnsupportedNode(f"the op is not supported; {what}")
        inputs = [None if place == -1 else graph.tensors[place] for place in operator.inputs]
        outputs = [graph.tensors[place] for place in operator.outputs if place != -1]

        def assign(at: int, value: Value) -> None:
            place = operator.inputs[at]
            if graph.tensors[place].is_variable:
                self.store(builder, variable_name(graph, place), value)
                values[place] = value

        context = Context(builder, self, operator, inputs, outputs, assign)
        given = [self.value(place, graph, values, builder) for place in operator.inputs]
        if any(isinstance(each, Strings) for each in given):
            if operator.name not in OF_STRINGS:
                raise UnsupportedNode("it takes strings, for which the op is not supported")
            return _listed(OF_STRINGS[operator.name].function(context, *given))
        if own is None and any(each and each.is_complex for each in (*inputs, *outputs)):
            if operator.name not in OF_COMPLEX:
                raise UnsupportedNode("it has complex numbers, for which the op is not supported")
            return _listed(OF_COMPLEX[operator.name].function(context, *given))
        if row.raw:
            return _listed(row.function(context, *given))
        results = _listed(row.function(context, *_taken(context, row, given)))
        return [
            _given(context, row, each, output)
            for each, output in zip(results, outputs, strict=False)
        ]

    def _stand_ins(self, operator: Operator, graph: Subgraph) -> list[Any]:
        """Arguments in the place of what could not be made; the program is not compiled."""
        results: list[Any] = []
        for place in operator.outputs:
            try:
                value = Value(graph.tensors[place].type, self._main)
            except CompileError:
                results.append(None)
                continue
            self._main.arguments.append(value)
            results.append(value)
        return results

    # ---- what is wrong

    def _report(self, operator: Operator, graph: Subgraph, message: str) -> None:
        layer = _layer(operator, graph)
        types = ", ".join(_types(operator, graph))
        text = f"'{layer}': {operator.name}({types}): {message}"
        self.problems.append(Problem(text, (operator.name, message), layer))

    def _note_use(self, operator: Operator, graph: Subgraph, before: int) -> None:
        if self._survey is None:
            return
        new = self.problems[before:]
        problem = new[-1].text if new else ""
        types = tuple(_types(operator, graph))
        self._survey.uses.append(Use(operator.name, types, _layer(operator, graph), problem))


def _check_once(block: Block) -> None:
    """What runs while a model is compiled must end soon. UnsupportedNode: it may not."""
    for op in block.ops:
        if op.regions:
            raise UnsupportedNode("it has loops or branches: set variables up without them")
        for result in op.results:
            require_small(type_of(result))


def variable_name(graph: Subgraph, place: int) -> str:
    """By which the state of a model has a tensor that is a variable."""
    name = graph.tensors[place].name or f"tensor{place}"
    same = [at for at, each in enumerate(graph.tensors) if each.name == name and each.is_variable]
    return name if same[:1] == [place] else f"{name}.{place}"


def _taken(c: Context, row: Lowering, given: Sequence[Any]) -> list[Any]:
    """The inputs as the lowering wants them."""
    taken = []
    for place, value in enumerate(given):
        tensor = c.inputs[place]
        q = None if tensor is None else tensor.quantization
        wants_codes = row.codes in (place, EACH) and _is_moved(c, row)
        if value is None or q is None or type_of(value).dtype.bits > 16:
            taken.append(value)
        elif not wants_codes:
            taken.append(c.number(place, value))
        elif row.codes == EACH and q != c.outputs[0].quantization:
            number = c.number(place, value)
            target = c.outputs[0].quantization
            assert target is not None
            taken.append(quantize(c, number, target, c.outputs[0].dtype))
        else:
            taken.append(value)
    return taken


def _is_moved(c: Context, row: Lowering) -> bool:
    """Whether results are codes as the input's are, with nothing to be done on numbers."""
    if getattr(c.options, "activation", 0):
        return False
    target = c.outputs[0].quantization
    if row.codes == EACH:
        return target is not None
    source = c.inputs[row.codes or 0]
    if source is None or source.dtype != c.outputs[0].dtype:
        return False
    return all(each.quantization in (None, source.quantization) for each in c.outputs)


def _given(c: Context, row: Lowering, result: Any, output: Tensor) -> Any:
    """A result as the file declares it."""
    activation = getattr(c.options, "activation", 0)
    if activation and not c.operator.name.endswith(("LSTM", "RNN", "SVDF")):
        result = activate(c, result, activation)
    q = output.quantization
    if not isinstance(result, Value) or q is None or not type_of(result).dtype.is_float:
        return result
    is_sum = output.dtype.bits > 16 and c.operator.name != "QUANTIZE"  # its scale is that of terms
    return result if is_sum else quantize(c, result, q, output.dtype)


def _own(operator: Operator) -> Lowering | None:
    """The lowering that the user has for a custom op, under the domain "tflite"."""
    own = find_own("tflite", operator.custom_name) if operator.is_custom else None
    if own is None:
        return None

    def lower(c: Context, *given: Value) -> list[Value]:
        options = read_options(operator.custom)
        return lower_own(own, c.builder, c.walker.names.fresh, given, options)

    return Lowering(lower, None, False)


def _listed(made: Any) -> list[Any]:
    return list(made) if isinstance(made, (list, tuple)) else [made]


def _layer(operator: Operator, graph: Subgraph) -> str:
    """The name of what it makes, which converters take from the layer."""
    places = [place for place in operator.outputs if place != -1]
    return graph.tensors[places[0]].name[:200] if places else operator.name


def _types(operator: Operator, graph: Subgraph) -> list[str]:
    return [graph.tensors[place].type_text() for place in operator.inputs if place != -1]

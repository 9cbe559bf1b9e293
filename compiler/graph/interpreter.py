"""Runs graph IR with the NumPy references: the oracle for every level below.

Symbolic dims are bound from the arguments' shapes, and where an op defines some, from its
results. It interprets one op at a time, keeps no state between calls but in the mapping
`state` that the caller passes, and is made to be right, not fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ingot.compiler.graph.init_functions import init_functions
from ingot.compiler.graph.ops import (
    Convolution,
    FunctionCall,
    Global,
    ListGet,
    Pad,
    Parameter,
    ReduceWindow,
    VariableLoad,
    VariableStore,
    defined_symbols,
    lookup,
    parse_layout,
)
from ingot.compiler.graph.references.leaves import array_of
from ingot.compiler.graph.references.numbers import Array
from ingot.compiler.ir import (
    Attribute,
    Block,
    Function,
    Module,
    Op,
    PassedType,
    Region,
    TensorType,
    Value,
    tensor_type,
)
from ingot.compiler.ir.dims import Dim, Expr, evaluate, known_dims, linear_in, symbol, symbols_of
from ingot.hal.errors import Error, InvalidArgument, NotFound
from ingot.hal.spec import DType

__all__ = ["Listener", "bind_symbols", "evaluate_in", "evaluate_op", "interpret", "padded_count"]

Listener = Callable[[Value, Any], Any]


def interpret(
    module: Module,
    function: str = "main",
    arguments: Sequence[Any] = (),
    parameters: Mapping[str, Any] | None = None,
    state: MutableMapping[str, Array] | None = None,
    listener: Listener = lambda value, array: array,
) -> list[Array]:
    """Call a function of the module; returns its results as arrays.

    `parameters` gives the arrays of `parameter` ops by key, `state` those of variables by
    name; it learns what the call stores, and a variable that it lacks has its initial value.
    A sequence is a tuple of arrays, what an optional lacks is None.
    `listener` gets every result of an op with its array, and gives the array that goes on.
    A function that reads globals runs `init` first. Raises InvalidArgument, NotFound or what
    an op raises, with its place.
    """
    if function not in module.functions:
        known = ", ".join(module.functions)
        raise NotFound(f"the module has no function '{function}'; it has: {known}")
    target = module.functions[function]
    arrays = [_passed(argument) for argument in arguments]
    symbols = bind_symbols(target, arrays)
    run = _Run(module, parameters or {}, {} if state is None else state, listener)
    return run.block(target.block, arrays, {}, symbols)


def bind_symbols(function: Function, arguments: Sequence[Any]) -> dict[str, int]:
    """The values of the symbols, from the arguments. InvalidArgument: one does not fit."""
    names = [*function.argument_names, *("" for _ in function.arguments)]
    if len(arguments) != len(function.arguments):
        raise InvalidArgument(
            f"'{function.name}' takes {len(function.arguments)} arguments, got {len(arguments)}"
        )
    symbols: dict[str, int] = {}
    for place, (value, array) in enumerate(zip(function.arguments, arguments, strict=True)):
        what = f"argument {place} '{names[place]}'"
        if isinstance(value.type, PassedType):
            _check_passed(array, value.type, what)
            continue
        type = tensor_type(value)
        if isinstance(array, tuple) or array is None:
            raise InvalidArgument(f"{what} is {'nothing' if array is None else 'a sequence'}")
        if array.dtype != type.dtype.numpy or array.ndim != type.rank:
            raise InvalidArgument(f"{what} is {_type_text(array)}, expected {type}")
    _bind(function, arguments, symbols)
    for place, (value, array) in enumerate(zip(function.arguments, arguments, strict=True)):
        if not isinstance(value.type, TensorType):
            continue
        for axis, dim in enumerate(value.type.shape):
            if not symbols_of(dim) <= symbols.keys():
                raise InvalidArgument(f"argument {place} '{names[place]}': no size fits its {dim}")
            if evaluate(dim, symbols) != array.shape[axis]:
                raise InvalidArgument(
                    f"argument {place} '{names[place]}': dim {axis} ('{dim}') is "
                    f"{array.shape[axis]}, expected {evaluate(dim, symbols)}"
                )
    for name, (low, high) in function.symbols.items():
        size = symbols.get(name, low)
        if size < low or (high is not None and size > high):
            raise InvalidArgument(f"dim '{name}' is {size}, expected {low} ... {high or ''}")
    return symbols


def _passed(argument: Any) -> Any:
    """What a caller gives for one argument: an array, a tuple of arrays, or None."""
    if isinstance(argument, tuple):
        return tuple(map(np.asarray, argument))
    return None if argument is None else np.asarray(argument)


def _type_text(array: Array) -> str:
    return f"{DType.from_numpy(array.dtype).name}[{','.join(map(str, array.shape))}]"


def _check_passed(given: Any, type: PassedType, what: str) -> None:
    """InvalidArgument: what is given is not of the type."""
    is_sequence = type.kind != "optional"
    if given is None and type.kind != "sequence":
        return
    if given is None or isinstance(given, tuple) != is_sequence:
        raise InvalidArgument(f"{what} must be {'a tuple' if is_sequence else 'an array'}: {type}")
    for place, array in enumerate(given if is_sequence else (given,)):
        fits = array.dtype == type.dtype.numpy
        if not type.list.any_rank:
            dims = zip(type.list.shape, array.shape, strict=False)
            fits = fits and array.ndim == type.list.rank
            fits = fits and all(dim in (None, size) for dim, size in dims)
        if not fits:
            raise InvalidArgument(f"element {place} of {what} is {_type_text(array)}: {type}")


def _bind(function: Function, arguments: Sequence[Array], symbols: dict[str, int]) -> None:
    """Solve the arguments' dims for their symbols, those first that are a symbol themselves."""
    sizes: dict[Dim, int] = {}
    for value, array in zip(function.arguments, arguments, strict=True):
        if not isinstance(value.type, TensorType):
            continue
        for dim, size in zip(value.type.shape, array.shape, strict=True):
            sizes.setdefault(dim, size)
    waiting = sorted(sizes, key=lambda dim: all(dim != symbol(name) for name in symbols_of(dim)))
    progress = True
    while progress:
        progress = False
        for dim in waiting:
            unknown = symbols_of(dim) - symbols.keys()
            linear = linear_in(dim, next(iter(unknown))) if len(unknown) == 1 else None
            if linear is not None:
                (name,) = unknown
                symbols[name] = (sizes[dim] - evaluate(linear[1], symbols)) // linear[0]
                progress = True


def _bind_defined(
    op: Op, values: Sequence[Value], arrays: Sequence[Array], symbols: dict[str, int]
) -> None:
    """Learn the symbols that `op` defines from the shapes of its results or carried values."""
    wanted: dict[Dim, str] = {symbol(name): name for name in defined_symbols(op)}
    for value, array in zip(values, arrays, strict=True):
        if wanted and isinstance(value.type, TensorType):
            for dim, size in zip(value.type.shape, array.shape, strict=True):
                if dim in wanted:
                    symbols[wanted[dim]] = size


def concrete(attribute: Attribute, symbols: Mapping[str, int]) -> Any:
    """The attribute with every dim as an integer."""
    if isinstance(attribute, Expr):
        return evaluate(attribute, symbols)
    if isinstance(attribute, tuple):
        return tuple(concrete(item, symbols) for item in attribute)
    return attribute


def evaluate_op(
    op: Op,
    operands: Sequence[Array],
    symbols: Mapping[str, int] | None = None,
    regions: Sequence[Callable[..., Any]] = (),
) -> tuple[Array, ...]:
    """The results of one op by its reference. Raises what the reference raises.

    Unsupported: it would compute on a dtype that NumPy lacks (without ml_dtypes).
    """
    row = lookup(op.name)
    if row.family not in ("shape", "leaves"):  # those only move elements, of any carrier
        for value in (*op.operands, *op.results):
            if isinstance(value.type, TensorType):
                _ = value.type.dtype.numpy
    attributes = {name: concrete(each, symbols or {}) for name, each in vars(op.attributes).items()}
    if regions:
        attributes["regions"] = tuple(regions)
    result = row.reference(*operands, **attributes)
    return result if isinstance(result, tuple) else (np.asarray(result),)


def padded_count(op: Op) -> int:
    """How many elements the reference makes on its way to the results, of an op that puts some
    between and around those of an operand of known dims, or adds up what is under a window."""
    attributes = op.attributes
    window: Sequence[Dim] = ()
    spatial: Sequence[int] | None = None  # all axes
    if isinstance(attributes, Pad):
        around = tuple(zip(attributes.low, attributes.high, strict=True))
        steps = tuple(each + 1 for each in attributes.interior)
    elif isinstance(attributes, ReduceWindow):
        around, steps, window = attributes.padding, attributes.base_dilation, attributes.window
    elif isinstance(attributes, Convolution):
        around, steps = attributes.padding, attributes.lhs_dilation
        spatial = parse_layout(attributes.layout).spatial
    else:
        return 0
    grown = list(known_dims(tensor_type(op.operands[0]).shape))
    axes = range(len(grown)) if spatial is None else spatial
    for axis, step, pair in zip(axes, steps, around, strict=True):
        factor, low, high = known_dims((step, *pair))
        grown[axis] = grown[axis] * factor + max(low, 0) + max(high, 0)
    result = known_dims(tensor_type(op.result).shape)
    return max(prod(grown), prod((*result, *known_dims(window))))


def evaluate_in(
    module: Module, op: Op, values: Mapping[Value, Array], symbols: Mapping[str, int]
) -> tuple[Array, ...]:
    """The results of one op, whose operands and what its regions capture are in `values`."""
    operands = [values[operand] for operand in op.operands]
    return _Run(module, {}, {}).results(op, operands, values, symbols)


class _Run:
    """One call: the parameters, the variables' values, and the results of `init`."""

    def __init__(
        self,
        module: Module,
        parameters: Mapping[str, Any],
        state: MutableMapping[str, Array],
        listener: Listener = lambda value, array: array,
    ) -> None:
        self.listener = listener
        self.module = module
        self.parameters = parameters
        self.state = state
        self.globals: list[Array] | None = None

    def block(
        self,
        block: Block,
        arguments: Sequence[Array],
        outer: Mapping[Value, Array],
        symbols: Mapping[str, int],
    ) -> list[Array]:
        values: dict[Value, Array] = dict(outer)
        values.update(zip(block.arguments, arguments, strict=True))
        known = dict(symbols)
        last_use = {operand: place for place, op in enumerate(block.ops) for operand in op.operands}
        has_regions = any(op.regions for op in block.ops)
        for place, op in enumerate(block.ops):
            operands = [values[operand] for operand in op.operands]
            if lookup(op.name).terminator:
                return operands
            results = self.results(op, operands, values, known)
            pairs = zip(op.results, results, strict=True)
            values.update((value, self.listener(value, array)) for value, array in pairs)
            _bind_defined(op, op.results, results, known)
            if op.name == "size":
                known[defined_symbols(op)[0]] = int(operands[0])
            elif op.name == "list.length":
                known[defined_symbols(op)[0]] = len(operands[0])
            elif op.name == "list.argument":
                known.update(dict.fromkeys(defined_symbols(op), int(operands[0] is not None)))
            if not has_regions:  # keeps no more tensors alive than a compiled program would
                for operand in op.operands:
                    if last_use[operand] == place:
                        values.pop(operand, None)
        raise InvalidArgument("the block has no terminator")

    def results(
        self,
        op: Op,
        operands: list[Array],
        values: Mapping[Value, Array],
        symbols: Mapping[str, int],
    ) -> tuple[Array, ...]:
        if op.name == "parameter":
            return (self.parameter(op),)
        if op.name == "global":
            return (self.init_results()[Global.of(op).index],)
        if op.name == "call":
            called = self.module.functions[FunctionCall.of(op).function]
            return tuple(self.block(called.block, operands, {}, {}))
        if op.name in ("variable.load", "variable.store"):
            return self.variable(op, operands, symbols)
        if op.name == "list.get":  # its shape may use symbols that only its result tells
            unknown = replace(ListGet.of(op), shape=())
            op = Op(op.name, op.operands, (), unknown, (), op.location)
        regions = [self.region(op, region, values, symbols) for region in op.regions]
        try:
            return evaluate_op(op, operands, symbols, regions)
        except Error as error:
            place = f" at '{op.location}'" if op.location else ""
            raise type(error)(f"op '{op.name}'{place}: {error}") from None

    def region(
        self, op: Op, region: Region, values: Mapping[Value, Array], symbols: Mapping[str, int]
    ) -> Callable[..., list[Array]]:
        def call(*arguments: Array) -> list[Array]:
            known = dict(symbols)
            _bind_defined(op, region.block.arguments, arguments, known)
            return self.block(region.block, arguments, values, known)

        return call

    def variable(
        self, op: Op, operands: list[Array], symbols: Mapping[str, int]
    ) -> tuple[Array, ...]:
        name = (VariableStore.of(op) if operands else VariableLoad.of(op)).name
        variable = self.module.variables[name]
        old = self.state.get(name)
        if operands:
            behind = [] if old is None or not variable.grows else [old[len(operands[0]) :]]
            self.state[name] = np.concatenate([*operands, *behind]) if behind else operands[0]
            return ()
        shape = tuple(evaluate(dim, symbols) for dim in VariableLoad.of(op).shape)
        if old is None:
            old = np.broadcast_to(array_of(variable.initial), shape)
        elif variable.grows and len(old) < shape[0]:
            old = np.concatenate([old, np.zeros((shape[0] - len(old), *shape[1:]), old.dtype)])
        self.state[name] = old
        return (old[: shape[0]] if variable.grows else old,)

    def parameter(self, op: Op) -> Array:
        key = Parameter.of(op).key
        if key not in self.parameters:
            raise NotFound(f"parameter '{key}' is not given; pass it in parameters=")
        array = np.asarray(self.parameters[key])
        type = tensor_type(op.result)
        if array.shape != type.shape or array.dtype != type.dtype.numpy:
            raise InvalidArgument(f"parameter '{key}' is {array.dtype}{array.shape}, not {type}")
        return array

    def init_results(self) -> list[Array]:
        if self.globals is None:
            functions = list(init_functions(self.module))
            if not functions:
                raise NotFound("an op 'global' reads a result of 'init', which is missing")
            made = (self.block(each.block, [], {}, {}) for each in functions)
            self.globals = [array for arrays in made for array in arrays]
        return self.globals

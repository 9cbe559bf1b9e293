"""The checking form of a program: `main` gives everything that its dispatches read and write.

The program is compiled as always, up to the kernels; then every operand and result of a
dispatch of `main` becomes one more result. What is a result is kept to the end of the call,
so no kernel writes over it. The dispatches of `init` move to the front of `main`, to be
seen as well. Those inside branches and loops run many times or never, and are only counted.
Nothing is run here: `ingot.checking` runs the form and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ingot.compiler.dispatch.ops import Call, CheckedFunction, Entry
from ingot.compiler.frontends.natives import OwnOps
from ingot.compiler.graph.ops import DimValue, Global, KernelCall, Parameter, defined_symbols
from ingot.compiler.ir import (
    Block,
    Function,
    Module,
    Op,
    Region,
    ScalarType,
    TensorType,
    Value,
    clone_region,
    tensor_type,
    walk,
)
from ingot.compiler.ir.attributes import NO_ATTRIBUTES, Attributes
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import Dim, Expr, evaluate, linear_in, symbol, symbols_of
from ingot.compiler.module import Module as CompiledModule
from ingot.compiler.pipeline import compile_changed
from ingot.hal.errors import CompileError
from ingot.hal.spec import dtype

__all__ = ["CheckingForm", "Dispatch", "compile_for_checking"]

_PREFIX = "checked_"


@dataclass(frozen=True, eq=False)
class Dispatch:
    """One dispatch of `main`: its entry function, what it reads, and what it writes.

    `dims` are the sizes of the entry's symbols over the symbols of `main`, `layer` names the
    source layers that the kernel computes.
    """

    entry: Function
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    dims: tuple[Dim, ...]
    layer: str

    @property
    def own_kernel(self) -> str:
        """The name of the kernel that a user has written for it; "" if none has."""
        calls = (each for each in self.entry.block.ops if each.name == "kernel_call")
        return next((KernelCall.of(each).name for each in calls), "")

    def symbols(self, symbols: Mapping[str, int]) -> dict[str, int]:
        """The entry's symbols, from those of `main`."""
        names = self.entry.symbols
        return {name: evaluate(dim, symbols) for name, dim in zip(names, self.dims, strict=True)}


@dataclass(frozen=True, eq=False)
class CheckingForm:
    """What was compiled, and what its results are.

    `values` are the results of `main` in their order: those of the program, then what
    dispatches read and write. `sizes` give symbols of `main` a value of rank 0 among them,
    `parameters` the external weights by key.
    """

    compiled: CompiledModule
    module: Module
    values: tuple[Value, ...]
    sizes: Mapping[str, Value]
    parameters: Mapping[str, Value]
    dispatches: tuple[Dispatch, ...]
    uncompared: int  # dispatches that are not in `dispatches`

    def symbols(self, arrays: Mapping[Value, np.ndarray[Any, Any]]) -> dict[str, int]:
        """The symbols of `main` in a call, from the arrays of its values."""
        symbols = {name: int(arrays[value]) for name, value in self.sizes.items()}
        places = [
            (dim, size)
            for value, array in arrays.items()
            for dim, size in zip(tensor_type(value).shape, array.shape, strict=True)
            if isinstance(dim, Expr)
        ]
        count = -1
        while count < len(symbols):  # a solution may make another place solvable
            count = len(symbols)
            for dim, size in places:
                _solve(dim, size, symbols)
        return symbols


def compile_for_checking(
    source: Any,
    *,
    target: str = "cpu",
    parameters: str = "embedded",
    own: OwnOps = OwnOps({}, {}),  # noqa: B008  frozen
    progress: Callable[[str], None] | None = None,
) -> CheckingForm:
    """The checking form of the program's function `main`; raises as `compile`."""
    exposer = _Exposer()
    options: Any = {"target": target, "parameters": parameters, "own": own}
    compiled = compile_changed(source, exposer.expose, progress=progress, **options)
    return CheckingForm(
        compiled,
        exposer.module,
        tuple(exposer.values),
        exposer.sizes,
        exposer.parameters,
        tuple(exposer.dispatches),
        exposer.uncompared,
    )


class _Exposer:
    """The pass, and what it learns."""

    def __init__(self) -> None:
        self.module = Module()
        self.values: dict[Value, None] = {}
        self.sizes: dict[str, Value] = {}
        self.parameters: dict[str, Value] = {}
        self.dispatches: list[Dispatch] = []
        self.uncompared = 0

    def expose(self, module: Module) -> Module:
        """The module with `main` in its checking form, without the other functions."""
        if "main" not in module.functions:
            raise CompileError(
                "the program has no function 'main' to check; its functions are: "
                + ", ".join(each.name for each in module.functions.values() if each.exported)
            )
        self.module = Module(attributes=dict(module.attributes), variables=dict(module.variables))
        init = module.functions.get("init")
        main = module.functions["main"]
        if init is not None and not any(defined_symbols(op) for op in walk(init)):
            main, init, self.parameters = _join(main, init)
        if init is not None and init.block.terminator.operands:
            self.module.add(init)
        self.module.add(main)
        used = {Call.of(op).entry for op in walk(self.module) if op.name == "dispatch.call"}
        for function in module.functions.values():
            if isinstance(function.attributes, Entry) and function.name in used:
                self.module.add(function)
        self._find(main)
        if init is not None:
            self.uncompared += sum(op.name == "dispatch.call" for op in walk(init))
        self.module.functions["main"] = self._with_results(main)
        return self.module

    def _find(self, main: Function) -> None:
        """The dispatches of `main` and the values to show."""
        values: dict[Value, None] = {}
        for op in main.block.ops[:-1]:
            if op.name == "dispatch.call":
                values.update(dict.fromkeys([*op.operands, *op.results]))
                self.dispatches.append(self._dispatch(op))
            else:
                calls = (each.name == "dispatch.call" for each in walk(op))
                self.uncompared += sum(calls)
            if op.name == "size" and isinstance(op.operands[0].type, TensorType):
                values[op.operands[0]] = None
                self.sizes[defined_symbols(op)[0]] = op.operands[0]
        values.update(dict.fromkeys(self.parameters.values()))
        arguments = set(main.arguments)
        self.values = dict.fromkeys(main.block.terminator.operands)
        self.values.update((value, None) for value in values if value not in arguments)

    def _dispatch(self, op: Op) -> Dispatch:
        return Dispatch(
            self.module.functions[Call.of(op).entry],
            tuple(op.operands),
            tuple(op.results),
            Call.of(op).dims,
            op.location,
        )

    def _with_results(self, main: Function) -> Function:
        """`main` with all values as results, and numbers that are dims written to memory."""
        ops: list[Op] = []
        for op in main.block.ops[:-1]:
            ops.append(op)
            for name, scalar in _numbers(op, ops):
                type = TensorType(scalar.typed(ScalarType).dtype)
                ops.append(Op("scalar.write", [scalar], [type]))
                self.values[ops[-1].result] = None
                self.sizes[name] = ops[-1].result
        returned = list(self.values)
        ops.append(Op("return", returned, location=main.block.terminator.location))
        main.block.ops = ops
        names = [f"{_PREFIX}{ordinal}" for ordinal in range(len(returned))]
        return replace(main, result_names=names, docs={})


def _numbers(op: Op, ops: list[Op]) -> Iterator[tuple[str, Value]]:
    """The symbols that the op defines and the registers that hold them; appends to `ops` what
    reads the dims of lists."""
    if op.name in ("scalar.symbol", "size"):
        scalar = op.operands[0]
        if isinstance(scalar.type, ScalarType):
            yield defined_symbols(op)[0], scalar
    elif op.name in ("slot.get", "slot.length", "slot.argument"):
        for name in defined_symbols(op):
            element = dtype("i64")
            attributes = DimValue(symbol(name), element)
            ops.append(Op("dim", [], [ScalarType(element)], attributes))
            yield name, ops[-1].result


def _join(main: Function, init: Function) -> tuple[Function, Function, dict[str, Value]]:
    """`main` that computes the globals itself, in front of everything; `init` that only reads
    the parameters, which no other function may; and what these are in `main`, by key."""
    body = clone_region(main.body, {})
    made = clone_region(init.body, {}).block
    returned = made.ops.pop().operands
    values = {op.result: returned[Global.of(op).index] for op in walk(body) if op.name == "global"}
    _remove_globals(body.block)
    reading = Block()
    parameters: dict[str, Value] = {}
    for place, op in enumerate(made.ops):
        if op.name == "parameter":
            made.ops[place] = new = _read_global(op, len(reading.ops))
            values[op.result] = new.result
            parameters[Parameter.of(op).key] = new.result
            reading.append(op)
    body.block.ops[:0] = made.ops
    for op in walk(body):
        # Twice, since a global may be a parameter.
        inner = [values.get(operand, operand) for operand in op.operands]
        op.operands = [values.get(operand, operand) for operand in inner]
    reading.append(Op("return", [op.result for op in reading.ops]))
    return (
        replace(main, body=body, attributes=_joined_checks(main, init)),
        replace(init, body=Region([reading]), attributes=NO_ATTRIBUTES),
        parameters,
    )


def _remove_globals(block: Block) -> None:
    block.ops = [op for op in block.ops if op.name != "global"]
    for op in block.ops:
        for region in op.regions:
            _remove_globals(region.block)


def _read_global(parameter: Op, index: int) -> Op:
    type = tensor_type(parameter.result)
    attributes = Global(index, type.dtype, type.shape)
    return Op("global", [], [type], attributes, location=parameter.location)


def _joined_checks(main: Function, init: Function) -> Attributes:
    found = [each.attributes for each in (init, main)]
    checks = [check for each in found if isinstance(each, CheckedFunction) for check in each.checks]
    return CheckedFunction(checks=tuple(checks)) if checks else main.attributes


def _solve(dim: Expr, size: int, symbols: dict[str, int]) -> None:
    """Learn the one unknown symbol of a dim that is a multiple of it and a known rest."""
    unknown = [name for name in symbols_of(dim) if name not in symbols]
    if len(unknown) != 1:
        return
    (name,) = unknown
    linear = linear_in(dim, name)
    if linear is not None:
        factor, rest = linear
        symbols[name] = (size - evaluate(rest, symbols)) // factor

"""Converts dispatch IR to stream IR (`ops.py`): what the queue does, in order.

Values are tensors, dense and row-major. Where they lie is decided by `plan_memory.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from ingot.compiler.dispatch import ops as dispatch
from ingot.compiler.dispatch.form_dispatches import stands_alone
from ingot.compiler.dispatch.ops import Call, CheckedControl, Rows
from ingot.compiler.graph import ops as graph
from ingot.compiler.graph.init_functions import is_init
from ingot.compiler.graph.ops import Constant, Global, VariableLoad, VariableStore, defined_symbols
from ingot.compiler.ir import (
    Block,
    Function,
    Module,
    Op,
    Region,
    TensorType,
    Type,
    Value,
    defined_by,
)
from ingot.compiler.ir.attributes import NO_ATTRIBUTES, Attributes
from ingot.compiler.ir.dims import Dim, known_dims, substitute
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.stream.data import Parameter, ProgramData
from ingot.compiler.stream.homes import alias_root
from ingot.compiler.stream.ops import (
    Alternative,
    Dispatch,
    GlobalBytes,
    KernelCall,
    ParameterOrdinal,
    Placed,
    PlannedControl,
    PlannedNative,
    PlannedRows,
    SharedBytes,
    VariableOrdinal,
)
from ingot.hal.errors import CompileError

__all__ = ["convert"]


def convert(
    module: Module, kernels: Mapping[str, Kernel], data: ProgramData, first_kernel: int = 0
) -> Module:
    """Stream IR of an outlined module; what it reads goes into `data`.

    `kernels` by entry name, in the executable's order; they are numbered from `first_kernel`
    on, behind those of other targets.
    """
    ordinals = {name: first_kernel + place for place, name in enumerate(kernels)}
    converter = _Converter(module, kernels, ordinals, data)
    result = Module(attributes=dict(module.attributes), variables=dict(module.variables))
    for function in module.functions.values():
        if not isinstance(function.attributes, dispatch.Entry):
            result.add(converter.function(function))
    for name, variable in module.variables.items():
        data.add_variable(name, variable)
    return result


class _Converter:
    def __init__(
        self,
        module: Module,
        kernels: Mapping[str, Kernel],
        ordinals: Mapping[str, int],
        data: ProgramData,
    ) -> None:
        self.module = module
        self.kernels = kernels
        self.ordinals = ordinals
        self.data = data
        self.operations = {name: _operations(module.functions[name]) for name in kernels if name}

    def function(self, function: Function) -> Function:
        block = self._block(function.block, function, {})
        return replace(function, body=Region([block]))

    def _block(self, old: Block, function: Function, values: dict[Value, Value]) -> Block:
        block = Block(argument.type for argument in old.arguments)
        values.update(zip(old.arguments, block.arguments, strict=True))
        for argument, new in zip(old.arguments, block.arguments, strict=True):
            new.name = argument.name
        for op in old.ops:
            if op.name == "return" and is_init(function.name):
                self._return_of_init(op, values, block)
                continue
            new_op = block.append(self._op(op, values, function))
            # What a dispatch has beside its results are workspaces.
            for result, new in zip(op.results, new_op.results, strict=False):
                values[result] = new
                new.name = result.name
        return block

    def _op(self, op: Op, values: dict[Value, Value], function: Function) -> Op:
        attributes: Attributes
        operands = [values[operand] for operand in op.operands]
        match op.name:
            case "constant" if isinstance(op.result.type, TensorType):
                place = SharedBytes(*self.data.pool.add(Constant.of(op).value))
                name, attributes = "stream.constant", place
            case "parameter":
                name, attributes = "stream.parameter", ParameterOrdinal(self._parameter(op))
            case "global":
                name, attributes = "stream.global", GlobalBytes(Global.of(op).index)
            case "reinterpret":
                name, attributes = "stream.alias", NO_ATTRIBUTES
            case "reshape" if isinstance(op.result.type, TensorType):
                name, attributes = "stream.alias", NO_ATTRIBUTES
            case "dispatch.call":
                name, attributes = "stream.dispatch", self._dispatch(op)
            case "native.call":
                name, attributes = "stream.native", self._native(dispatch.Native.of(op))
            case "size":
                name, attributes = "stream.size", op.attributes
            case "variable.load" | "variable.store":
                loads = op.name == "variable.load"
                variable = VariableLoad.of(op).name if loads else VariableStore.of(op).name
                ordinal = list(self.module.variables).index(variable)
                grows = loads and self.module.variables[variable].grows
                name, attributes = op.name, VariableOrdinal(variable, ordinal, grows)
            case "if" | "case" | "while":
                found = op.attributes
                checks = found.checks if isinstance(found, CheckedControl) else ()
                name, attributes = op.name, PlannedControl(defined_symbols(op), checks)
            case "update":
                name, attributes = op.name, PlannedRows(Rows.of(op).offset)
            case "scalar.write":
                name, attributes = op.name, Placed()
            case _ if stands_alone(op) or op.name in ("yield", "return"):
                name, attributes = op.name, op.attributes
            case _:
                raise CompileError(
                    f"op '{op.name}' at '{op.location}' of '{function.name}' is in no dispatch"
                )
        types = [result.type for result in op.results]
        if op.name == "dispatch.call":
            types += self._workspaces(op)
        regions = [Region([self._block(each.block, function, values)]) for each in op.regions]
        return Op(name, operands, types, attributes, regions, op.location)

    def _workspaces(self, op: Op) -> list[Type]:
        """Types of the memory that the kernel uses beside its results."""
        here = self._dims_of(Call.of(op))
        return [
            TensorType(type.dtype, tuple(map(here, type.shape)))
            for type in self.kernels[Call.of(op).entry].workspaces
        ]

    def _dims_of(self, call: Call | dispatch.Alternative) -> Callable[[Dim], Dim]:
        """A function from dims of the entry that is called to dims of the caller."""
        named = dict(zip(self.module.functions[call.entry].symbols, call.dims, strict=True))
        return lambda dim: substitute(dim, named)

    def _parameter(self, op: Op) -> int:
        found = graph.Parameter.of(op)
        return self.data.add_parameter(
            Parameter(found.scope, found.key, found.dtype, known_dims(found.shape))
        )

    def _native(self, call: dispatch.Native) -> PlannedNative:
        ordinal = self.data.add_native(call.name, call.signature, call.optional)
        return PlannedNative(
            name=call.name,
            native=ordinal,
            details=call.details,
            dims=call.dims,
            slot=call.slot,
            slots=call.slots,
        )

    def _dispatch(self, op: Op) -> Dispatch:
        call = Call.of(op)
        kernel = self.kernels[call.entry]
        others = [each for each in call.alternatives if self._fits(each, op)]
        in_place = tuple(
            pair
            for pair in kernel.in_place
            if all(pair in self.kernels[each.entry].in_place for each in others)
        )
        return Dispatch(
            call=self._call(call),
            entry=call.entry,
            operations=self.operations[call.entry],
            in_place=in_place,
            untouched=self._dims_of(call)(kernel.untouched),
            alternatives=tuple(Alternative(each.guards, self._call(each)) for each in others),
        )

    def _call(self, call: Call | dispatch.Alternative) -> KernelCall:
        """The kernel of an entry with the caller's numbers."""
        kernel, here = self.kernels[call.entry], self._dims_of(call)
        x, y, z = map(here, kernel.workload)
        return KernelCall(
            self.ordinals[call.entry],
            (x, y, z),
            here(kernel.flops),
            here(kernel.bytes),
            tuple(map(here, kernel.constants)),
        )

    def _fits(self, alternative: dispatch.Alternative, op: Op) -> bool:
        """Whether the alternative uses the same memory beside operands and results."""
        known = {str(each.dim): each.value for each in alternative.guards}
        here = self._dims_of(alternative)
        wanted = [
            TensorType(type.dtype, tuple(map(here, type.shape)))
            for type in self.kernels[alternative.entry].workspaces
        ]
        given = [cast(TensorType, type) for type in self._workspaces(op)]
        return wanted == [
            TensorType(type.dtype, tuple(substitute(dim, known) for dim in type.shape))
            for type in given
        ]

    def _return_of_init(self, op: Op, values: Mapping[Value, Value], block: Block) -> None:
        """What `init` returns lies in the arena: what no kernel made is copied there."""
        returned: list[Value] = []
        for operand in op.operands:
            value = values[operand]
            if not defined_by(alias_root(value), "stream.dispatch"):
                copy = Op("stream.copy", [value], [value.type], Placed(), location=op.location)
                value = block.append(copy).result
            returned.append(value)
        block.append(Op("return", returned, location=op.location))


def _operations(entry: Function) -> str:
    names = [op.name for op in entry.block.ops if op.name not in ("constant", "return")]
    return ", ".join(dict.fromkeys(names))

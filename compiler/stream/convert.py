"""Converts dispatch IR to stream IR: what the queue does, in order.

    stream.constant{offset, length}   bytes of the constant section
    stream.parameter{ordinal}         an external weight (`init` only)
    stream.global{index}              result number `index` of `init`
    stream.alias(x)                   the same bytes under another shape or dtype
    stream.dispatch(operands){kernel, entry, workload, flops, bytes, constants, in_place,
                                untouched, alternatives}
    stream.copy(x)                    the same bytes elsewhere
    stream.size(x){symbols, low, high, what}   the number x is the symbol from here on
    if, case, while, variable.load, variable.store   as in the graph, with bodies of this level
    scalar.read, scalar.write, scalar.symbol, and ops on scalars (`dispatch/place_scalars.py`)
    return(values), yield(values)

The results of a dispatch are followed by its workspaces, which nothing reads. `alternatives`
are (guards, kernel, workload, flops, bytes, constants): other kernels for the same bindings,
which take its place where all guards (dim, value) hold.
Values are tensors, dense and row-major. Where they lie is decided by `plan_memory.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from ingot.compiler.dispatch.form_dispatches import stands_alone
from ingot.compiler.dispatch.specialize import Alternative, alternatives_of
from ingot.compiler.ir import (
    Attribute,
    Block,
    Function,
    Literal,
    Module,
    Op,
    Region,
    TensorType,
    Type,
    Value,
)
from ingot.compiler.ir.dims import Dim, substitute
from ingot.compiler.kernels.kernel import Kernel
from ingot.compiler.stream.data import Parameter, ProgramData
from ingot.compiler.stream.homes import alias_root
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType

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
        if not function.attributes.get("entry"):
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
        return replace(function, body=Region([block]), attributes=dict(function.attributes))

    def _block(self, old: Block, function: Function, values: dict[Value, Value]) -> Block:
        block = Block(argument.type for argument in old.arguments)
        values.update(zip(old.arguments, block.arguments, strict=True))
        for argument, new in zip(old.arguments, block.arguments, strict=True):
            new.name = argument.name
        for op in old.ops:
            if op.name == "return" and function.name == "init":
                self._return_of_init(op, values, block)
                continue
            new_op = block.append(self._op(op, values, function))
            # What a dispatch has beside its results are workspaces.
            for result, new in zip(op.results, new_op.results, strict=False):
                values[result] = new
                new.name = result.name
        return block

    def _op(self, op: Op, values: dict[Value, Value], function: Function) -> Op:
        attributes: dict[str, Attribute]
        operands = [values[operand] for operand in op.operands]
        match op.name:
            case "constant" if isinstance(op.result.type, TensorType):
                offset, length = self.data.pool.add(cast(Literal, op.attributes["value"]))
                name, attributes = "stream.constant", {"offset": offset, "length": length}
            case "parameter":
                name, attributes = "stream.parameter", {"ordinal": self._parameter(op)}
            case "global":
                name, attributes = "stream.global", {"index": op.attributes["index"]}
            case "reinterpret":
                name, attributes = "stream.alias", {}
            case "reshape" if isinstance(op.result.type, TensorType):
                name, attributes = "stream.alias", {}
            case "dispatch.call":
                name, attributes = "stream.dispatch", self._dispatch(op)
            case "size":
                name, attributes = "stream.size", dict(op.attributes)
            case "variable.load" | "variable.store":
                ordinal = list(self.module.variables).index(str(op.attributes["name"]))
                name, attributes = op.name, {**op.attributes, "variable": ordinal}
            case _ if stands_alone(op) or op.name in ("yield", "return"):
                name, attributes = op.name, dict(op.attributes)
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
        here = self._dims_of(op)
        return [
            TensorType(type.dtype, tuple(map(here, type.shape)))
            for type in self.kernels[str(op.attributes["entry"])].workspaces
        ]

    def _dims_of(self, call: Op | Alternative) -> Callable[[Dim], Dim]:
        """A function from dims of the entry that is called to dims of the caller."""
        if isinstance(call, Op):
            entry = str(call.attributes["entry"])
            dims = cast("tuple[Dim, ...]", call.attributes["dims"])
        else:
            entry, dims = call.entry, call.dims
        named = dict(zip(self.module.functions[entry].symbols, dims, strict=True))
        return lambda dim: substitute(dim, named)

    def _parameter(self, op: Op) -> int:
        parameter = Parameter(
            str(op.attributes["scope"]),
            str(op.attributes["key"]),
            cast(DType, op.attributes["dtype"]),
            cast("tuple[int, ...]", op.attributes["shape"]),
        )
        return self.data.add_parameter(parameter)

    def _dispatch(self, op: Op) -> dict[str, Attribute]:
        entry = str(op.attributes["entry"])
        kernel = self.kernels[entry]
        here = self._dims_of(op)
        others = [each for each in alternatives_of(op) if self._fits(each, op)]
        in_place = tuple(
            pair
            for pair in kernel.in_place
            if all(pair in self.kernels[each.entry].in_place for each in others)
        )
        attributes: dict[str, Attribute] = {
            "kernel": self.ordinals[entry],
            "entry": entry,
            "operations": self.operations[entry],
            "workload": tuple(map(here, kernel.workload)),
            "flops": here(kernel.flops),
            "bytes": here(kernel.bytes),
            "constants": tuple(map(here, kernel.constants)),
            "in_place": in_place,
            "untouched": here(kernel.untouched),
        }
        if others:
            attributes["alternatives"] = tuple(map(self._alternative, others))
        return attributes

    def _fits(self, alternative: Alternative, op: Op) -> bool:
        """Whether the alternative uses the same memory beside operands and results."""
        known = {str(dim): number for dim, number in alternative.guards}
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

    def _alternative(self, alternative: Alternative) -> Attribute:
        kernel, here = self.kernels[alternative.entry], self._dims_of(alternative)
        return (
            alternative.guards,
            self.ordinals[alternative.entry],
            tuple(map(here, kernel.workload)),
            here(kernel.flops),
            here(kernel.bytes),
            tuple(map(here, kernel.constants)),
        )

    def _return_of_init(self, op: Op, values: Mapping[Value, Value], block: Block) -> None:
        """What `init` returns lies in the arena: what no kernel made is copied there."""
        returned: list[Value] = []
        for operand in op.operands:
            value = values[operand]
            owner = alias_root(value).owner
            if not isinstance(owner, Op) or owner.name != "stream.dispatch":
                copy = Op("stream.copy", [value], [value.type], location=op.location)
                value = block.append(copy).result
            returned.append(value)
        block.append(Op("return", returned, location=op.location))


def _operations(entry: Function) -> str:
    names = [op.name for op in entry.block.ops if op.name not in ("constant", "return")]
    return ", ".join(dict.fromkeys(names))

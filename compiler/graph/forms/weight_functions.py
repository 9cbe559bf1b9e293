"""Makes of external weights what products read, by one function for all weights of a kind.

A language model has hundreds of weights of a few kinds, tens of ops stand between the bytes of each
and its panels, and several functions multiply it. Here these ops become a function `weight.N` per
kind, which `init` calls once for each weight; the others read globals. So every pass sees them
once, and no later one asks what a weight is made of, until kernels are there: `expand_calls` puts
the ops of such a function, dispatches by then, in place of each call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.folding.eliminate_common_subexpressions import attribute_key
from ingot.compiler.graph.init_functions import INIT
from ingot.compiler.graph.ops import Constant, FunctionCall
from ingot.compiler.ir import Block, Function, Module, Op, Region, Value, clone_op
from ingot.compiler.ir.dataclass import dataclass

__all__ = ["Made", "WeightFunctions", "expand_calls"]


@dataclass(frozen=True)
class Made:
    """Panels of a weight [k, n] with the attributes of their product, or the weight itself."""

    values: tuple[Value, ...]
    k: int
    attributes: Mapping[str, Any]


_LARGEST = 1 << 14
"""Bytes of a constant that weights are made of besides parameters: a table of what codes mean, or
a codebook."""

Make = Callable[[Value, Builder], Sequence[Made] | None]
"""What makes something of a weight, by ops that it appends; None if that cannot be."""


@dataclass(frozen=True)
class _Kind:
    """The function of weights of a kind, and what its results are."""

    function: Function
    made: Sequence[Made]


class WeightFunctions:
    """The functions of a module's weights; `finish` adds `init`, which calls them."""

    def __init__(self, module: Module, make: Make) -> None:
        self.module, self.make = module, make
        self.kinds: dict[object, _Kind | None] = {}
        self.block = Block()  # of `init`
        self.known: dict[object, Op] = {}  # in it
        self.results: dict[Value, int] = {}  # globals

    def made(self, weight: Value, builder: Builder) -> Sequence[Made] | None:
        """What is made of the weight: in `init`, if it is external, else where the builder is."""
        ops = _ops_of(weight)
        parameters = [op for op in ops if op.name == "parameter"]
        if not parameters or any(map(_is_large, ops)):
            return self.make(weight, builder)
        key = _key(ops)
        if key not in self.kinds:
            self.kinds[key] = self._new_kind(weight, ops, parameters)
        kind = self.kinds[key]
        if kind is None:
            return None
        results = iter(self._call(kind, parameters, builder.location).results)
        return [
            replace(each, values=tuple(self._global(next(results), builder) for _ in each.values))
            for each in kind.made
        ]

    def finish(self) -> None:
        """Add `init`, if anything was made."""
        if self.results:
            Builder(self.block).return_(*self.results)
            self.module.add(Function(INIT, Region([self.block]), exported=False))

    def _new_kind(self, weight: Value, ops: Sequence[Op], parameters: Sequence[Op]) -> _Kind | None:
        block = Block(op.result.type for op in parameters)
        values = dict(zip((op.result for op in parameters), block.arguments, strict=True))
        block.ops = [clone_op(op, values) for op in ops if op.name != "parameter"]
        builder = Builder(block)
        made = self.make(values[weight], builder)
        if made is None:
            return None
        builder.return_(*(value for each in made for value in each.values))
        function = Function(f"weight.{len(self.kinds)}", Region([block]), exported=False)
        return _Kind(self.module.add(function), made)

    def _call(self, kind: _Kind, parameters: Sequence[Op], location: str) -> Op:
        """The call for these parameters in `init`."""
        operands = [self._once(clone_op(each, {})).result for each in parameters]
        name, types = kind.function.name, kind.function.result_types
        call = FunctionCall(name, tuple(types))  # type: ignore[arg-type]
        return self._once(Op("call", operands, types, call, (), location))

    def _once(self, op: Op) -> Op:
        """The op in `init`, or the one there that is equal."""
        key = (*op.operands, attribute_key(op.attributes))
        if key not in self.known:
            self.known[key] = self.block.append(op)
        return self.known[key]

    def _global(self, result: Value, builder: Builder) -> Value:
        type = tensor_type(result)
        index = self.results.setdefault(result, len(self.results))
        return builder.value("global", index=index, dtype=type.dtype, shape=type.shape)


def expand_calls(module: Module) -> Module:
    """Put what is called in place of calls; returns the module without the called functions."""
    called: set[str] = set()
    for function in module.functions.values():
        ops: list[Op] = []
        given: dict[Value, Value] = {}
        for op in function.block.ops:
            if given:
                op.operands = [given.get(operand, operand) for operand in op.operands]
            if op.name != "call":
                ops.append(op)
                continue
            name = FunctionCall.of(op).function
            called.add(name)
            block = module.functions[name].block
            values = dict(zip(block.arguments, op.operands, strict=True))
            for each in block.ops[:-1]:
                ops.append(clone_op(each, values))
                ops[-1].location = op.location
            results = (values[each] for each in block.terminator.operands)
            given.update(zip(op.results, results, strict=True))
        function.block.ops = ops
    for name in called:
        del module.functions[name]
    return module


def _ops_of(value: Value) -> list[Op]:
    """The ops that compute a weight, each behind those that it reads."""
    found: dict[Op, None] = {}
    waiting = [value.op]
    while waiting:
        missing = [each.op for each in waiting[-1].operands if each.op not in found]
        if missing:
            waiting += missing
        else:
            found[waiting.pop()] = None
    return list(found)


def _is_large(op: Op) -> bool:
    """Whether it is a constant that the compiler packs better than `init` does at each load."""
    return op.name == "constant" and Constant.of(op).value.nbytes > _LARGEST


def _key(ops: Sequence[Op]) -> object:
    """Equal for ops that compute the same but for the keys of parameters."""
    numbers: dict[Value, int] = {}
    parts: list[object] = []
    for op in ops:
        is_parameter = op.name == "parameter"
        what = op.result.type if is_parameter else attribute_key(op.attributes)
        parts.append((op.name, tuple(numbers[each] for each in op.operands), what))
        for result in op.results:
            numbers[result] = len(numbers)
    return tuple(parts)

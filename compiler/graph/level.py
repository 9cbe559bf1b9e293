"""The graph level for the verifier: which ops are legal and what their types must be."""

from __future__ import annotations

from collections.abc import Iterator

from ingot.compiler.graph.ops import (
    OPS,
    RuleError,
    VariableLoad,
    VariableStore,
    defined_symbols,
    infer_types,
)
from ingot.compiler.ir import Level, Module, Op, tensor_type, walk

__all__ = ["GRAPH", "check_module", "check_op"]


def check_op(op: Op) -> None:
    """Raise RuleError unless the op obeys its row of the op table."""
    operands = [operand.type for operand in op.operands]
    row = OPS[op.name]
    if type(op.attributes) is not row.attributes:
        row.attributes.read(vars(op.attributes))  # says which one is wrong
    types = infer_types(op.name, operands, op.attributes, op.regions)
    results = tuple(result.type for result in op.results)
    if types != results:
        given, wanted = (", ".join(map(str, each)) or "none" for each in (results, types))
        raise RuleError(f"has the results ({given}), but the op table says ({wanted})")


def check_variables(module: Module) -> Iterator[str]:
    """What is wrong with the variables of the module and the ops that use them."""
    for name, variable in module.variables.items():
        type, initial = variable.type, variable.initial
        if any(not isinstance(dim, int) for dim in type.shape[1:]):
            yield f"variable '@{name}' is {type}: all dims but the first are static"
        if variable.grows and any(initial.array.tobytes()):
            yield f"variable '@{name}' is {type}: what grows starts as zeros"
        if initial.dtype is not type.dtype or initial.shape not in ((), type.shape):
            shape = ",".join(map(str, initial.shape))
            yield f"variable '@{name}' is {type}, but starts as {initial.dtype.name}[{shape}]"
    for op in walk(module):
        if not isinstance(op.attributes, (VariableLoad, VariableStore)):
            continue
        name = op.attributes.name
        value = next(iter((*op.results, *op.operands)), None)
        if name not in module.variables:
            known = ", ".join(module.variables) or "none"
            yield f"op '{op.name}' names the variable '@{name}'; the variables are: {known}"
        elif value is not None and not module.variables[name].takes(tensor_type(value)):
            wanted = module.variables[name].type
            yield f"op '{op.name}' of '@{name}' has the type {value.type}, expected {wanted}"


def check_symbols(module: Module) -> Iterator[str]:
    """Symbols that two ops of one function define, or an argument and an op; and bounds that no
    dim has, for what is proven of dims rests on them."""
    for function in module.functions.values():
        for name, (low, high) in function.symbols.items():
            if low < 0 or (high is not None and high < low):
                shown = f"[{low}, {'none' if high is None else high}]"
                yield (
                    f"'@{function.name}': the dim '{name}' is in {shown}: give it a least size of "
                    "0 or more, and none that is less as the greatest"
                )
        known = set(function.symbols)
        for op in walk(function):
            for name in defined_symbols(op):
                if name in known:
                    yield f"'@{function.name}': op '{op.name}' defines the symbol '{name}' again"
                known.add(name)


def check_module(module: Module) -> Iterator[str]:
    """What is wrong with the module beyond its single ops."""
    yield from check_variables(module)
    yield from check_symbols(module)


GRAPH = Level("graph", dict.fromkeys(OPS, check_op), check_module=check_module)
"""The ops of the op table, on tensors; the bodies of sort and the like hold scalar code."""

"""From a Python function to a graph module: specs of arguments, `trace`, and programs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode
from ingot.compiler.frontends.program.tensor import Trace, entered, given, value_of
from ingot.compiler.graph.builder import Builder
from ingot.compiler.ir import Block, Function, Module, Region, TensorType, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import symbols_of
from ingot.compiler.ir.parser import parse_type
from ingot.hal.errors import CompileError

__all__ = ["Program", "Spec", "program", "spec", "trace"]


@dataclass(frozen=True)
class Spec:
    """The type of an argument; `bounds` are the least and greatest values of dims that have names,
    None where there is none."""

    type: TensorType
    bounds: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.type)


def spec(type: str, /, **bounds: tuple[int, int | None]) -> Spec:
    """The type of an argument of a program, such as "f32[batch,8]": a dtype and dims, which are
    numbers, names, or sums and products of them ("2*n+1"). One name is one size in all arguments.
    `batch=(1, 64)` is the range of a dim. CompileError: it is no type."""
    try:
        found = parse_type(type if isinstance(type, str) else "")
    except CompileError as error:
        raise CompileError(
            f"{type!r} is no type of a tensor ({error}): write a dtype and dims, such as "
            '"f32[batch,8]" or "i64[]"'
        ) from None
    if not isinstance(found, TensorType):
        raise CompileError(
            f"{type!r} is no type of an argument: write a dtype and dims, such as "
            '"f32[batch,8]" or "i64[]"'
        )
    names: set[str] = set().union(*map(symbols_of, found.shape))
    for name, limits in bounds.items():
        if name not in names:
            raise CompileError(f"{type!r} has no dim '{name}', for which there is a range")
        if not _is_range(limits):
            raise CompileError(f"the range of '{name}' is {limits!r}, expected (least, greatest)")
    return Spec(found, dict(bounds))


def _is_range(limits: Any) -> bool:
    try:
        low, high = limits
        return bool(low >= 0 and (high is None or high >= low))
    except (TypeError, ValueError):
        return False


class Program:
    """A traced function: a source for `ingot.compile` and `ingot.chain`. Called with tensors of
    another trace, it becomes a part of that."""

    def __init__(
        self, function: Callable[..., Any], specs: Sequence[Spec], names: Sequence[str]
    ) -> None:
        self.function = function
        self.specs = tuple(specs)
        self.module = _traced(function, specs, names)
        self.__name__ = getattr(function, "__name__", "program")
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)

    def __repr__(self) -> str:
        function = self.module.functions["main"]
        taken = ", ".join(
            f"{name}: {value.type}"
            for name, value in zip(function.argument_names, function.arguments, strict=True)
        )
        made = zip(function.result_names, function.result_types, strict=True)
        return f"<program {self.__name__}({taken}) -> {', '.join(f'{n}: {t}' for n, t in made)}>"


def trace(function: Callable[..., Any], *specs: Spec, **named: Spec) -> Program:
    """The program that a function of tensors computes for arguments of these types.

    The function runs once, with traced tensors (`ingot.ops`). It gives a tensor, a tuple of them,
    or a dict, whose keys name the results. CompileError: what it does is no program; the message
    has the line.
    """
    signature = _signature(function)
    try:
        bound = signature.bind(*specs, **named)
    except TypeError as error:
        raise CompileError(
            f"the specs do not fit {_name(function)}{signature}: {error}; give one for each "
            "argument"
        ) from None
    names: list[str] = []
    found: list[Spec] = []
    keywords: list[str] = []
    for name, each in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{name}_{place}" for place in range(len(each))]
            found += each
        elif kind is inspect.Parameter.VAR_KEYWORD or kind is inspect.Parameter.KEYWORD_ONLY:
            several = each if kind is inspect.Parameter.VAR_KEYWORD else {name: each}
            keywords += several
            names += several
            found += several.values()
        else:
            names.append(name)
            found.append(each)
    for name, each in zip(names, found, strict=True):
        if not isinstance(each, Spec):
            raise CompileError(f"the argument '{name}' has {each!r}, expected an ingot.spec(...)")
    if not keywords:
        return Program(function, found, names)
    first = len(names) - len(keywords)

    def positional(*arguments: Any) -> Any:
        return function(*arguments[:first], **dict(zip(keywords, arguments[first:], strict=True)))

    positional.__name__, positional.__doc__ = _name(function), function.__doc__
    return Program(positional, found, names)


def program(*given: Any, **named: Spec) -> Any:
    """Make a program of the decorated function: `@ingot.program` where its annotations are specs,
    else `@ingot.program(ingot.spec("f32[n,4]"))` with one for each argument. See `trace`."""
    if len(given) == 1 and not named and callable(given[0]) and not isinstance(given[0], Spec):
        return trace(given[0], **_annotated(given[0]))
    return lambda function: trace(function, *given, **named)


def _annotated(function: Callable[..., Any]) -> dict[str, Spec]:
    annotations = inspect.get_annotations(function, eval_str=True)
    missing = [
        name
        for name in _signature(function).parameters
        if not isinstance(annotations.get(name), Spec)
    ]
    if missing:
        raise CompileError(
            f"the argument '{missing[0]}' of {_name(function)} has no spec: annotate it, or write "
            '@ingot.program(ingot.spec("f32[n,4]"), ...)'
        )
    return {name: each for name, each in annotations.items() if name != "return"}


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise CompileError(f"{function!r:.60} is no function of tensors: {error}") from None


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", "the function"))


def _traced(function: Callable[..., Any], specs: Sequence[Spec], names: Sequence[str]) -> Module:
    symbols = _bounds(specs, names)
    block = Block([each.type for each in specs])
    for value, name in zip(block.arguments, names, strict=True):
        value.name = name
    builder = Builder(block)
    outer = Trace(builder, _Names(symbols).fresh, variables={})
    with entered(outer):
        result = function(*map(given, block.arguments))
        results = _results(result, _name(function))
    builder.return_(*results.values())
    module = Module(attributes={"producer": "Python"}, variables=outer.variables or {})
    module.add(Function("main", Region([block]), list(names), list(results), symbols=symbols))
    return module


def _results(result: Any, name: str) -> dict[str, Value]:
    """What a function returned, by name. CompileError: something else than tensors."""
    named = result if isinstance(result, Mapping) else None
    if named is None:
        several = result if isinstance(result, (tuple, list)) else (result,)
        named = {f"result{place}": each for place, each in enumerate(several)}
    if not named:
        raise CompileError(f"{name} returns nothing: return a tensor, a tuple or a dict of them")
    values = {}
    for key, each in named.items():
        try:
            values[str(key)] = value_of(each)
        except UnsupportedNode as error:
            raise CompileError(f"the result '{key}' of {name}: {error}") from None
    return values


def _bounds(specs: Sequence[Spec], names: Sequence[str]) -> dict[str, tuple[int, int | None]]:
    """The ranges of all dims. CompileError: two specs give one dim different ranges."""
    found: dict[str, tuple[int, int | None]] = {}
    for each, name in zip(specs, names, strict=True):
        for symbol, limits in each.bounds.items():
            if found.setdefault(symbol, limits) != limits:
                raise CompileError(
                    f"the dim '{symbol}' of '{name}' has the range {limits}, elsewhere "
                    f"{found[symbol]}: give it once"
                )
    used: set[str] = set().union(*(symbols_of(dim) for each in specs for dim in each.type.shape))
    return {name: found.get(name, (0, None)) for name in sorted(used)}


class _Names:
    """Names of symbols, each once."""

    def __init__(self, taken: Mapping[str, Any]) -> None:
        self._taken = set(taken)

    def fresh(self, hint: str) -> str:
        number = 1
        while f"{hint}_{number}" in self._taken:
            number += 1
        self._taken.add(f"{hint}_{number}")
        return f"{hint}_{number}"

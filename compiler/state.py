"""How users say which arguments and results of a program are its state.

    ingot.compile("decoder.onnx", state=ingot.state.past_present(capacity=1024))
    ingot.compile({"prefill": f, "decode": g}, state=ingot.state.carried("cache", capacity=1024))
    ingot.compile("rnn.onnx", state={"hidden_out": "hidden_in"})

Each of them becomes a `State`: a rule that pairs names, and what variables need beyond that.
What is done to the program is `graph/state/make_stateful.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ingot.compiler.graph.state.make_stateful import make_stateful
from ingot.compiler.graph.state.plan_state import Link
from ingot.compiler.graph.symbols import inner_symbols, substitute_symbols
from ingot.compiler.ir import Function, Literal, Module, TensorType, Type
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.renamed_dims import renamed_dims, sizes_of_symbols
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType

if TYPE_CHECKING:
    from ingot.compiler.frontends.program.caches import Cache, cache

__all__ = ["Cache", "State", "apply_state", "cache", "carried", "named", "past_present"]


def __getattr__(name: str) -> Any:
    """Caches of programs, which few compiles need, and which bring all functions of programs."""
    if name not in ("Cache", "cache"):
        raise AttributeError(f"module 'ingot.compiler.state' has no attribute {name!r}")
    globals()[name] = getattr(import_module("ingot.compiler.frontends.program.caches"), name)
    return globals()[name]


Pairing = Callable[[Function], "list[Link]"]
"""A function to its links, whose variables have equal names where they are the same."""

_PAST = r"past(_key_values?|_values?)?"
_PRESENT = r"present(_key_values?|_values?)?"


@dataclass(frozen=True)
class State:
    """Which ends of the functions are state. Made by `past_present`, `carried` and `named`."""

    pair: Pairing
    what: str  # for messages: what was looked for
    capacity: int | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    initial: Mapping[str, Any] = field(default_factory=dict)


def past_present(
    *,
    capacity: int | None = None,
    dims: Mapping[str, int] | None = None,
    initial: Mapping[str, Any] | None = None,
) -> State:
    """State of ONNX decoders: `past_key_values.0.key` is the next call's `present.0.key`.

    Also `past_0` and `present_0`, `past.0.k`, `present_key_values.0.key` and the like. Where
    results have other names, as those that torch makes up (`cat_7`), an argument's next value
    is the first result in order that has its dtype and its dims, but for one that grew. See
    `named` for the options.
    """

    def pair(function: Function) -> list[Link]:
        results = function.result_names
        by_rest = {_rest(_PRESENT, name): name for name in results if _rest(_PRESENT, name)}
        past = {name: rest for name in function.argument_names if (rest := _rest(_PAST, name))}
        if not by_rest:
            by_rest = {past[name]: result for name, result in _pair_by_shape(function, past)}
        links = [Link(rest, name, by_rest.pop(rest, None)) for name, rest in past.items()]
        return links + [Link(rest, None, name) for rest, name in by_rest.items()]

    what = "arguments such as 'past_key_values.0.key' and results such as 'present.0.key'"
    return _state(pair, what, capacity, dims, initial)


def carried(
    argument: str,
    result: str = "result.0",
    *,
    capacity: int | None = None,
    dims: Mapping[str, int] | None = None,
    initial: Mapping[str, Any] | None = None,
) -> State:
    """State of JAX functions `(state, x) -> (state, y)`: a pytree that goes in and comes out.

    `argument` is the path of the pytree in the arguments, `result` in the results, where the
    items of a tuple are `result.0`, `result.1`, ... A function may lack the argument, as one
    that begins anew does. See `named` for the options.
    """

    def pair(function: Function) -> list[Link]:
        results = function.result_names
        by_rest = {name[len(result) :]: name for name in results if _is_below(result, name)}
        links = [
            Link(name, name, by_rest.pop(name[len(argument) :], None))
            for name in function.argument_names
            if _is_below(argument, name)
        ]
        return links + [Link(argument + rest, None, name) for rest, name in by_rest.items()]

    what = f"arguments '{argument}', '{argument}.*' and results '{result}', '{result}.*'"
    return _state(pair, what, capacity, dims, initial)


def named(
    pairs: Mapping[str, str],
    *,
    capacity: int | None = None,
    dims: Mapping[str, int] | None = None,
    initial: Mapping[str, Any] | None = None,
) -> State:
    """State by name: each result of `pairs` is the next call's argument that it names.

    `capacity` is the room along the axis in which caches grow; without one they get more when
    they need it. `dims` gives symbolic dims a
    number, since all dims of state but that one are static. `initial` are arrays by argument
    name; other state starts as zeros, and caches start empty.
    """

    def pair(function: Function) -> list[Link]:
        arguments, results = function.argument_names, function.result_names
        return [
            Link(
                argument,
                argument if argument in arguments else None,
                result if result in results else None,
            )
            for result, argument in pairs.items()
            if argument in arguments or result in results
        ]

    what = ", ".join(f"result '{each}' and argument '{pairs[each]}'" for each in pairs)
    return _state(pair, what, capacity, dims, initial)


def _state(
    pair: Pairing,
    what: str,
    capacity: int | None,
    dims: Mapping[str, int] | None,
    initial: Mapping[str, Any] | None,
) -> State:
    for name, number in {"capacity": capacity, **(dims or {})}.items():
        if number is not None and (not isinstance(number, int) or number < 1):
            raise CompileError(f"state: {name} is {number!r}, expected a positive integer")
    return State(pair, what, capacity, dict(dims or {}), dict(initial or {}))


def _rest(pattern: str, name: str) -> str:
    """What follows the prefix of a name: "0.key" of "past_key_values.0.key"; "" if none does."""
    match = re.fullmatch(rf"{pattern}[._]?(?P<rest>\w.*)", name)
    return match["rest"] if match else ""


def _pair_by_shape(function: Function, past: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each of these arguments with its next value, both in their order; none without one."""
    arguments = zip(function.argument_names, function.arguments, strict=True)
    types = {name: each.type for name, each in arguments}
    values = function.block.terminator.operands
    free = [(name, each.type) for name, each in zip(function.result_names, values, strict=True)]
    for name in past:
        place = next((at for at, (_, type) in enumerate(free) if _continues(types[name], type)), -1)
        if place >= 0:
            yield name, free[place][0]
            del free[: place + 1]


def _continues(past: Type, present: Type) -> bool:
    """Whether a value may be the next one of a state: tensors, alike but for one dim."""
    if not (isinstance(past, TensorType) and isinstance(present, TensorType)):
        return False
    if past.dtype != present.dtype or past.rank != present.rank:
        return False
    return sum(a != b for a, b in zip(past.shape, present.shape, strict=True)) <= 1


def _is_below(path: str, name: str) -> bool:
    return name == path or name.startswith(f"{path}.")


def apply_state(module: Module, state: State | Mapping[str, str] | str) -> Module:
    """Make variables of the module's state; returns the module. CompileError: it cannot be."""
    if isinstance(state, str):
        state = carried(state)
    elif isinstance(state, Mapping):
        state = named(state)
    elif not isinstance(state, State):
        raise CompileError(
            f"state= is a {type(state).__name__}: expected ingot.state.past_present(), "
            "ingot.state.carried(...), a dict of result names to argument names, or a path"
        )
    functions = [each for each in module.functions.values() if each.exported]
    _fix_dims(functions, state.dims)
    links = _named_by_arguments({each.name: state.pair(each) for each in functions})
    _check_links(functions, links, state)
    initial = {name: _literal(name, array) for name, array in state.initial.items()}
    return make_stateful(module, links, capacity=state.capacity, initial=initial)


def _named_by_arguments(links: Mapping[str, Sequence[Link]]) -> dict[str, list[Link]]:
    """The links with every variable named as the first argument that reads it."""
    names: dict[str, str] = {}
    for each in links.values():
        for link in each:
            if link.argument is not None:
                names.setdefault(link.variable, link.argument)
    return {
        function: [replace(link, variable=names.get(link.variable, link.variable)) for link in each]
        for function, each in links.items()
    }


def _fix_dims(functions: Sequence[Function], dims: Mapping[str, int]) -> None:
    try:
        sizes = sizes_of_symbols(dims, renamed_dims(functions))
    except ValueError as error:
        raise CompileError(f"state: {error}") from None
    for name, size in sizes.items():
        found = [function for function in functions if name in function.symbols]
        if not found:
            known = dict.fromkeys(each for function in functions for each in function.symbols)
            raise CompileError(
                f"state: no dim is called '{name}'; the symbolic dims are: "
                + (", ".join(known) or "none")
            )
        for function in found:
            low, high = function.symbols.pop(name)
            if size < low or (high is not None and size > high):
                raise CompileError(
                    f"state: dim '{name}' of '{function.name}' is {size}, expected at least {low}"
                    + ("" if high is None else f" and at most {high}")
                )
            assert name not in inner_symbols(function)
            substitute_symbols(function, {name: size})


def _check_links(
    functions: Sequence[Function], links: Mapping[str, Sequence[Link]], state: State
) -> None:
    """Every variable must be read somewhere and written somewhere, and start from what exists."""
    every = [link for each in links.values() for link in each]
    read = {link.variable for link in every if link.argument is not None}
    written = {link.variable for link in every if link.result is not None}
    ends = "; ".join(map(_describe_ends, functions))
    if not every:
        raise CompileError(f"state: there is no state to be found: expected {state.what}; {ends}")
    for name in sorted(read - written - set(state.initial)):
        raise CompileError(
            f"state: argument '{name}' is read but no result writes it: expected {state.what}; "
            f"{ends}"
        )
    for name in sorted(written - read):
        source = next(link.result for link in every if link.variable == name)
        raise CompileError(
            f"state: result '{source}' is written but no argument reads it: expected "
            f"{state.what}; {ends}"
        )
    for name in state.initial:
        if name not in read:
            raise CompileError(
                f"state: initial= names '{name}', which is no state; the state is: "
                + ", ".join(sorted(read))
            )


def _describe_ends(function: Function) -> str:
    """The arguments and results of a function, with their types."""
    ends = zip(
        (function.argument_names, function.result_names),
        (function.arguments, function.block.terminator.operands),
        strict=True,
    )
    takes, gives = (
        ", ".join(f"{name}: {value.type}" for name, value in zip(names, values, strict=True))
        for names, values in ends
    )
    return f"'{function.name}' takes {takes or 'nothing'} and gives {gives or 'nothing'}"


def _literal(name: str, array: Any) -> Literal:
    array = np.asarray(array)
    try:
        return Literal(np.array(array), DType.from_numpy(array.dtype))
    except (TypeError, ValueError) as error:
        raise CompileError(f"state: the initial value of '{name}': {error}") from None

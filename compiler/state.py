"""How users say which arguments and results of a program are its state.

    ingot.compile("decoder.onnx", state=ingot.state.past_present(capacity=1024))
    ingot.compile({"prefill": f, "decode": g}, state=ingot.state.carried("cache", capacity=1024))
    ingot.compile("rnn.onnx", state={"hidden_out": "hidden_in"})

Each of them becomes a `State`: a rule that pairs names, and what variables need beyond that.
What is done to the program is `graph/make_stateful.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ingot.compiler.graph.make_stateful import make_stateful
from ingot.compiler.graph.plan_state import Link
from ingot.compiler.graph.symbols import inner_symbols, substitute_symbols
from ingot.compiler.ir import Function, Literal, Module
from ingot.hal.errors import CompileError
from ingot.hal.spec import DType

__all__ = ["State", "apply_state", "carried", "named", "past_present"]

Pairing = Callable[[Sequence[str], Sequence[str]], "list[Link]"]
"""Argument names and result names of a function to its links, equal where variables are."""

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

    Also `past_0` and `present_0`, `past.0.k`, `present_key_values.0.key` and the like. See
    `named` for the options.
    """

    def pair(arguments: Sequence[str], results: Sequence[str]) -> list[Link]:
        by_rest = {_rest(_PRESENT, name): name for name in results if _rest(_PRESENT, name)}
        links = [
            Link(rest, name, by_rest.pop(rest, None))
            for name in arguments
            if (rest := _rest(_PAST, name))
        ]
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

    def pair(arguments: Sequence[str], results: Sequence[str]) -> list[Link]:
        by_rest = {name[len(result) :]: name for name in results if _is_below(result, name)}
        links = [
            Link(name, name, by_rest.pop(name[len(argument) :], None))
            for name in arguments
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

    `capacity` is the room along the axis in which caches grow. `dims` gives symbolic dims a
    number, since all dims of state but that one are static. `initial` are arrays by argument
    name; other state starts as zeros, and caches start empty.
    """

    def pair(arguments: Sequence[str], results: Sequence[str]) -> list[Link]:
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
    links = _named_by_arguments(
        {each.name: state.pair(each.argument_names, each.result_names) for each in functions}
    )
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
    for name, size in dims.items():
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
    if not every:
        ends = "; ".join(
            f"'{each.name}' takes {', '.join(each.argument_names) or 'nothing'} and gives "
            f"{', '.join(each.result_names) or 'nothing'}"
            for each in functions
        )
        raise CompileError(f"state: there is no state to be found: expected {state.what}; {ends}")
    for name in sorted(read - written - set(state.initial)):
        raise CompileError(
            f"state: argument '{name}' is read but no result writes it: expected {state.what}"
        )
    for name in sorted(written - read):
        source = next(link.result for link in every if link.variable == name)
        raise CompileError(
            f"state: result '{source}' is written but no argument reads it: expected {state.what}"
        )
    for name in state.initial:
        if name not in read:
            raise CompileError(
                f"state: initial= names '{name}', which is no state; the state is: "
                + ", ".join(sorted(read))
            )


def _literal(name: str, array: Any) -> Literal:
    array = np.asarray(array)
    try:
        return Literal(np.array(array), DType.from_numpy(array.dtype))
    except (TypeError, ValueError) as error:
        raise CompileError(f"state: the initial value of '{name}': {error}") from None

"""The reference of `native_call`: the Python function of that name, for as long as one is given."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ingot.compiler.graph.native_signature import parse_signature
from ingot.compiler.graph.references.numbers import Array
from ingot.hal.errors import InvalidArgument, Unsupported

__all__ = ["REFERENCES", "native_functions"]

_given: ContextVar[Mapping[str, Callable[..., Any]]] = ContextVar("native functions", default={})  # noqa: B039


@contextmanager
def native_functions(functions: Mapping[str, Callable[..., Any]] | None) -> Iterator[None]:
    """Inside, references of native calls are these functions, by name."""
    token = _given.set(functions or {})
    try:
        yield
    finally:
        _given.reset(token)


def _native_call(
    *operands: Array,
    name: str,
    signature: str,
    details: str,
    effects: bool,
    symbols: tuple[str, ...],
    optional: bool = False,
    what: str = "native function",
) -> tuple[Array, ...]:
    if name.startswith("?"):
        return (np.asarray(name[1:] in _given.get()),)
    function = _given.get().get(name)
    if function is None:
        raise Unsupported(
            f"there is no Python function for the {what} '{name}'; give one, as "
            f"natives={{{name!r}: f}}"
        )
    types = parse_signature(signature).results
    given = function(*operands, **json.loads(details or "{}"))
    results = tuple(map(np.asarray, given if isinstance(given, (tuple, list)) else (given,)))
    if [each.dtype for each in results] != [type.dtype.numpy for type in types]:
        found = ", ".join(f"{each.dtype}{list(each.shape)}" for each in results)
        raise InvalidArgument(
            f"{what} '{name}' gave ({found}), expected the results of {signature}"
        )
    return results


def _kernel_call(*operands: Array, name: str, signature: str) -> tuple[Array, ...]:
    named = {"name": name, "signature": signature, "details": "", "effects": False, "symbols": ()}
    return _native_call(*operands, **named, what="kernel")  # type: ignore[arg-type]


REFERENCES: dict[str, Callable[..., Any]] = {
    "native_call": _native_call,
    "kernel_call": _kernel_call,
}

"""Branches, loops, calls and variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, type_of
from ingot.compiler.frontends.strings import Strings
from ingot.compiler.frontends.tflite.lowering import Context, Handle, lowering
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import branches, while_loop
from ingot.compiler.ir import TensorType, Value
from ingot.compiler.ir.dims import symbol

__all__: list[str] = []


def _tensors(values: Sequence[Any]) -> list[Value]:
    """Values, and those that strings are made of."""
    parts = [
        (each.starts, each.lengths, each.data) if isinstance(each, Strings) else (each,)
        for each in values
    ]
    return [value for each in parts for value in each if isinstance(value, Value)]


def _others(values: Sequence[Any]) -> dict[int, Any]:
    """What is no tensor of numbers, by its place."""
    return {at: each for at, each in enumerate(values) if not isinstance(each, Value)}


def _branch(c: Context, place: int, given: Sequence[Any], results: dict[int, Any]) -> Any:
    """Builds one branch; what else it gives goes into `results`, by their places."""

    def build(inner: Builder) -> list[Value]:
        made = c.walker.subgraph(place, inner, given)
        results.update(_others(made))
        return _tensors(made)

    return build


def _merged(others: dict[int, Any], values: Sequence[Value], count: int) -> list[Any]:
    texts = sum(isinstance(each, Strings) for each in others.values())
    if len(values) + len(others) - 3 * texts != count:
        raise UnsupportedNode(f"its subgraph gives {len(values)} tensors, for {count} results")
    left = iter(values)
    return [_next(others[at], left) if at in others else next(left) for at in range(count)]


def _next(other: Any, values: Iterator[Value]) -> Any:
    return Strings(*islice(values, 3)) if isinstance(other, Strings) else other


@lowering("IF", raw=True)
def branch(c: Context, predicate: Value, *given: Any) -> list[Any]:
    handles: dict[int, Any] = {}
    places = (c.options.then_subgraph_index, c.options.else_subgraph_index)
    builds = [_branch(c, place, given, handles) for place in places]
    chosen = c.reshape(predicate, ())
    values = branches(c.builder, "if", chosen, builds, c.fresh_names())
    return _merged(handles, values, len(c.outputs))


@lowering("STABLEHLO_CASE", raw=True)
def case(c: Context, index: Value, *given: Any) -> list[Any]:
    handles: dict[int, Any] = {}
    builds = [_branch(c, at, given, handles) for at in c.options.branch_subgraph_indices]
    values = branches(c.builder, "case", c.reshape(index, ()), builds, c.fresh_names())
    return _merged(handles, values, len(c.outputs))


@lowering("WHILE", "STABLEHLO_WHILE", raw=True)
def loop(c: Context, *given: Any) -> list[Any]:
    others, tensors = _others(given), _tensors(given)
    texts = [each.data for each in others.values() if isinstance(each, Strings)]
    symbols = dict(zip(texts, c.fresh_names(), strict=False))  # of bytes that a step may change
    types = [
        TensorType(type_of(each).dtype, (symbol(symbols[each]),))
        if each in symbols
        else type_of(each)
        for each in tensors
    ]

    def condition(inner: Builder, values: Sequence[Value]) -> Value:
        merged = _merged(others, values, len(given))
        (result,) = c.walker.subgraph(c.options.cond_subgraph_index, inner, merged)
        return inner.value("reshape", result, shape=())

    def step(inner: Builder, values: Sequence[Value]) -> list[Value]:
        merged = _merged(others, values, len(given))
        return _tensors(c.walker.subgraph(c.options.body_subgraph_index, inner, merged))

    values = while_loop(c.builder, tensors, condition, step, types, tuple(symbols.values()))
    return _merged(others, values, len(given))


@lowering("CALL", raw=True)
def call(c: Context, *given: Any) -> list[Any]:
    return c.walker.subgraph(c.options.subgraph, c.builder, given)


@lowering("STABLEHLO_COMPOSITE", raw=True)
def composite(c: Context, *given: Any) -> list[Any]:
    return c.walker.subgraph(c.options.decomposition_subgraph_index, c.builder, given)


@lowering("CALL_ONCE", raw=True)
def call_once(c: Context) -> list[Any]:
    c.walker.run_once(c.options.init_subgraph_index)
    return []


@lowering("VAR_HANDLE", raw=True)
def variable(c: Context) -> Handle:
    name = "/".join(filter(None, (c.options.container, c.options.shared_name)))
    return Handle(name or "variable")


@lowering("READ_VARIABLE", raw=True)
def read_variable(c: Context, handle: Handle) -> Value:
    return c.walker.load(c.builder, _name(handle), c.outputs[0])


@lowering("ASSIGN_VARIABLE", raw=True)
def assign_variable(c: Context, handle: Handle, value: Value) -> list[Any]:
    c.walker.store(c.builder, _name(handle), value)
    return []


def _name(handle: Any) -> str:
    if not isinstance(handle, Handle):
        raise UnsupportedNode("the variable comes from an argument: give the model its own")
    return handle.name

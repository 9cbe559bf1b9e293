"""Branches, loops, calls and variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode
from ingot.compiler.frontends.tflite.lowering import Context, Handle, lowering
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import branches, while_loop
from ingot.compiler.ir import Value

__all__: list[str] = []


def _tensors(values: Sequence[Any]) -> list[Value]:
    return [value for value in values if isinstance(value, Value)]


def _branch(c: Context, place: int, given: Sequence[Any], results: dict[int, Any]) -> Any:
    """Builds one branch; handles that it gives go into `results`, by their places."""

    def build(inner: Builder) -> list[Value]:
        made = c.walker.subgraph(place, inner, given)
        results.update({at: each for at, each in enumerate(made) if isinstance(each, Handle)})
        return _tensors(made)

    return build


def _merged(handles: dict[int, Any], values: Sequence[Value], count: int) -> list[Any]:
    if len(values) + len(handles) != count:
        raise UnsupportedNode(f"its subgraph gives {len(values)} tensors, for {count} results")
    left = iter(values)
    return [handles[at] if at in handles else next(left) for at in range(count)]


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
    handles = {at: each for at, each in enumerate(given) if isinstance(each, Handle)}

    def condition(inner: Builder, values: Sequence[Value]) -> Value:
        merged = _merged(handles, values, len(given))
        (result,) = c.walker.subgraph(c.options.cond_subgraph_index, inner, merged)
        return inner.value("reshape", result, shape=())

    def step(inner: Builder, values: Sequence[Value]) -> list[Value]:
        merged = _merged(handles, values, len(given))
        return _tensors(c.walker.subgraph(c.options.body_subgraph_index, inner, merged))

    values = while_loop(c.builder, _tensors(given), condition, step)
    return _merged(handles, values, len(given))


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

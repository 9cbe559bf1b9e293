"""Branches and loops of torch.cond and torch.while_loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode
from ingot.compiler.frontends.torch.lowering import Context, Graph, lowering
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import branches, while_loop
from ingot.compiler.ir import Value

__all__: list[str] = []


@lowering("higher_order.cond")
def cond(
    c: Context, predicate: Any, true: Graph, false: Graph, operands: Sequence[Any] = ()
) -> list[Value]:
    if not isinstance(predicate, Value):
        if not isinstance(predicate, bool):
            raise UnsupportedNode("its predicate is of sizes: use one of tensors")
        predicate = c.scalar(predicate, "i1")
    chosen = c.reshape(predicate, ())

    def branch(graph: Graph) -> Any:
        return lambda inner: _tensors(graph.lower(inner, operands))

    return branches(c.builder, "if", chosen, [branch(true), branch(false)], c.fresh_names())


@lowering("higher_order.while_loop")
def loop(
    c: Context, condition: Graph, body: Graph, carried: Sequence[Any], others: Sequence[Any] = ()
) -> list[Value]:
    if not all(isinstance(each, Value) for each in carried):
        raise UnsupportedNode("it carries numbers: carry tensors of rank 0")

    def goes_on(inner: Builder, values: Sequence[Value]) -> Value:
        (result,) = condition.lower(inner, [*values, *others])
        return inner.value("reshape", result, shape=())

    def step(inner: Builder, values: Sequence[Value]) -> Sequence[Value]:
        return _tensors(body.lower(inner, [*values, *others]))

    return while_loop(c.builder, list(carried), goes_on, step)


def _tensors(values: Sequence[Any]) -> list[Value]:
    if not all(isinstance(each, Value) for each in values):
        raise UnsupportedNode("it gives numbers: give tensors")
    return list(values)

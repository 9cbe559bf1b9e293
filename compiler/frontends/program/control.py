"""Branches and loops: functions that take functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, type_of
from ingot.compiler.frontends.program.tensor import (
    Tensor,
    Trace,
    current,
    given,
    public,
    user_code,
    value_of,
)
from ingot.compiler.frontends.program.trees import flatten, unflatten
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import branches
from ingot.compiler.graph.control.build_control import while_loop as build_loop
from ingot.compiler.ir import Value

__all__: list[str] = []


def _truth(trace: Trace, condition: Any, what: str) -> Value:
    value = value_of(condition)
    if type_of(value).rank:
        raise UnsupportedNode(
            f"{what} is {value.type}, expected rank 0: reduce it with ops.all or ops.any"
        )
    return trace.convert(value, "i1")


@partial(public, takes_complex=True)
def cond(
    predicate: Any, true: Callable[..., Any], false: Callable[..., Any], /, *operands: Any
) -> Any:
    """What `true` gives for the operands where the predicate (rank 0) holds, else what `false`
    does. Both give the same structure of tensors of equal dtypes and ranks; dims may differ. Only
    one of them runs."""
    trace = current()
    chosen = _truth(trace, predicate, "the predicate")
    shapes: list[Any] = []

    def branch(function: Callable[..., Any]) -> Callable[[Builder], list[Value]]:
        def build(builder: Builder) -> list[Value]:
            inner = trace.within(builder)
            result = user_code(function, inner, *operands)
            leaves, shape = flatten(result)
            shapes.append(shape)
            if shape != shapes[0]:
                raise UnsupportedNode(
                    "the branches give results of different structure: give the same tuples and "
                    "dicts"
                )
            return user_code(lambda: [value_of(each) for each in leaves], inner)  # type: ignore[no-any-return]

        return build

    found = branches(
        trace.builder, "if", chosen, [branch(true), branch(false)], trace.fresh_names("rows")
    )
    return unflatten(shapes[0], [given(each) for each in found])


@partial(public, takes_complex=True)
def while_loop(goes_on: Callable[..., Any], step: Callable[..., Any], initial: Any, /) -> Any:
    """`initial`, then what `step` makes of it again and again while `goes_on` holds for it.

    The state is a tensor, or a tuple, list or dict of them; a step keeps its dtypes and shapes.
    """
    trace = current()
    leaves, shape = flatten(initial)
    values = [value_of(each) for each in leaves]

    def condition(builder: Builder, carried: Sequence[Value]) -> Value:
        inner = trace.within(builder)
        result = user_code(goes_on, inner, _state(shape, carried, inner))
        return user_code(lambda: _truth(inner, result, "the condition"), inner)  # type: ignore[no-any-return]

    def body(builder: Builder, carried: Sequence[Value]) -> Sequence[Value]:
        inner = trace.within(builder)
        result = user_code(step, inner, _state(shape, carried, inner))
        return user_code(lambda: _next(result, shape, carried), inner)  # type: ignore[no-any-return]

    found = build_loop(trace.builder, values, condition, body)
    return unflatten(shape, [given(each) for each in found])


def _state(shape: Any, carried: Sequence[Value], inner: Trace) -> Any:
    return unflatten(shape, [Tensor(each, inner) for each in carried])


def _next(result: Any, shape: Any, carried: Sequence[Value]) -> list[Value]:
    """The state behind a step. UnsupportedNode: it is of another form than in front of it."""
    leaves, found = flatten(result)
    if found != shape:
        raise UnsupportedNode("a step gives a state of another structure than it takes")
    values = []
    for place, (leaf, old) in enumerate(zip(leaves, carried, strict=True)):
        value = value_of(leaf, type_of(old).dtype)
        type, wanted = type_of(value), type_of(old)
        if type.dtype is not wanted.dtype or type.rank != wanted.rank:
            raise UnsupportedNode(
                f"a step makes {type} of tensor {place} of the state, which is {wanted}: it must "
                "keep dtype and shape"
            )
        values.append(current().agree(value, wanted.shape))
    return values


@partial(public, takes_complex=True)
def fori_loop(lower: Any, upper: Any, step: Callable[..., Any], initial: Any, /) -> Any:
    """`initial`, then what step(i, state) makes of it for i = lower, ..., upper - 1. i is an i64
    of rank 0; the bounds are numbers, sizes or tensors."""
    trace = current()
    ends = [trace.convert(value_of(each), "i64") for each in (lower, upper)]
    if any(type_of(each).rank for each in ends):
        raise UnsupportedNode("the bounds of a loop must have rank 0")
    last = given(ends[1])

    def goes_on(state: Any) -> Tensor:
        return state[0] < last  # type: ignore[no-any-return]

    def body(state: Any) -> Any:
        return state[0] + 1, step(*state)

    return while_loop(goes_on, body, (given(ends[0]), initial))[1]

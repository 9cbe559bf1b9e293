"""Branches and loops of torch.cond, while_loop, scan, associative_scan and map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.torch.complex_values import ComplexValue
from ingot.compiler.frontends.torch.lowering import Context, Graph, lowering
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import branches, counted_loop, while_loop
from ingot.compiler.ir import TensorType, Value
from ingot.compiler.ir.dims import Dim

__all__ = ["over_rows"]


@lowering("higher_order.cond")
def cond(
    c: Context, predicate: Any, true: Graph, false: Graph, operands: Sequence[Any] = ()
) -> list[Any]:
    if not isinstance(predicate, Value):
        known = c.amounts.symbols.decide(predicate)
        if known is not None:
            return (true if known else false).lower(c.builder, operands)

    def branch(graph: Graph) -> Any:
        return lambda inner: _tensors(c.within(inner), graph.lower(inner, operands))

    bodies = [branch(true), branch(false)]
    made = branches(c.builder, "if", c.truth(predicate), bodies, c.fresh_names())
    return [
        _number(c, each) if declared is None else each
        for each, declared in zip(made, c.declared, strict=True)
    ]


@lowering("higher_order.while_loop")
def loop(
    c: Context, condition: Graph, body: Graph, carried: Sequence[Any], others: Sequence[Any] = ()
) -> list[Any]:
    def given(inner: Context, values: Sequence[Value]) -> list[Any]:
        pairs = zip(values, carried, strict=True)
        return [each if isinstance(was, Value) else _number(inner, each) for each, was in pairs]

    def goes_on(builder: Builder, values: Sequence[Value]) -> Value:
        inner = c.within(builder)
        (result,) = condition.lower(builder, [*given(inner, values), *others])
        return inner.truth(result)

    def step(builder: Builder, values: Sequence[Value]) -> Sequence[Value]:
        inner = c.within(builder)
        return _tensors(inner, body.lower(builder, [*given(inner, values), *others]))

    return given(c, while_loop(c.builder, _tensors(c, carried), goes_on, step))


@lowering("higher_order.scan")
def scan(
    c: Context, body: Graph, carried: Sequence[Any], rows: Sequence[Value],
    others: Sequence[Any] = (),
) -> list[Value]:  # fmt: skip
    """`body(*carried, *row)` for each row of the first axis: the next carried values, and a row
    of each result."""
    made = [type for type in c.declared[len(carried) :] if type is not None]

    def step(inner: Builder, _: Value, values: Sequence[Value], row: list[Value]) -> list[Value]:
        return _tensors(c.within(inner), body.lower(inner, [*values, *row, *others]))

    return over_rows(c, _tensors(c, carried), rows, [type.shape for type in made], made, step)


@lowering("higher_order.map_impl")
def map_rows(
    c: Context, body: Graph, rows: Sequence[Value], others: Sequence[Any] = ()
) -> list[Value]:
    """`body(*row)` for each row of the first axis."""
    return scan(c, body, [], rows, others)


@lowering("higher_order.associative_scan")
def associative_scan(
    c: Context, body: Graph, rows: Sequence[Value], others: Sequence[Any] = ()
) -> list[Value]:
    """Each row combined with what the rows before it gave."""
    shapes = [shape_of(each) for each in rows]
    first = [c.reshape(c.sliced(each, 0, 0, 1), shape_of(each)[1:]) for each in rows]

    def step(inner: Builder, at: Value, values: Sequence[Value], row: list[Value]) -> list[Value]:
        combined = _tensors(c.within(inner), body.lower(inner, [*values, *row, *others]))
        is_first = inner.value("compare", at, inner.constant(0, "i64"), direction="eq")
        kept = [
            inner.value("select", inner.broadcast_to(is_first, shape_of(a)), a, b)
            for a, b in zip(row, combined, strict=True)
        ]
        return [*kept, *kept]

    types = [type_of(each) for each in rows]
    return over_rows(c, first, rows, shapes, types, step)[len(rows) :]


def over_rows(
    c: Context,
    carried: Sequence[Value],
    rows: Sequence[Value],
    shapes: Sequence[Sequence[Dim]],
    types: Sequence[TensorType],
    step: Callable[[Builder, Value, Sequence[Value], list[Value]], list[Value]],
) -> list[Value]:
    """A loop over rows; `step` gives the next carried values and a row of each result."""
    results = [c.filled(0, type.dtype, shape) for type, shape in zip(types, shapes, strict=True)]
    count = len(carried)

    def body(inner: Builder, at: Value, values: Sequence[Value]) -> list[Value]:
        given = step(inner, at, values[:count], [_row(inner, each, at) for each in rows])
        written = zip(values[count:], given[count:], strict=True)
        return [*given[:count], *(_write_row(inner, whole, row, at) for whole, row in written)]

    length = c.size(shape_of(rows[0])[0])
    return counted_loop(c.builder, length, [*carried, *results], body)


def _row(builder: Builder, x: Value, at: Value) -> Value:
    shape = shape_of(x)
    zeros = [builder.constant(0, "i64") for _ in shape[1:]]
    row = builder.value("dynamic_slice", x, at, *zeros, sizes=(1, *shape[1:]))
    return builder.value("reshape", row, shape=shape[1:])


def _write_row(builder: Builder, x: Value, row: Value, at: Value) -> Value:
    shape = shape_of(x)
    zeros = [builder.constant(0, "i64") for _ in shape[1:]]
    column = builder.value("reshape", row, shape=(1, *shape[1:]))
    return builder.value("dynamic_update_slice", x, column, at, *zeros)


def _tensors(c: Context, values: Sequence[Any]) -> list[Value]:
    """Numbers become tensors of rank 0."""
    if any(isinstance(each, ComplexValue) for each in values):
        raise UnsupportedNode("it carries complex numbers: carry torch.view_as_real of them")
    kinds = ("f64" if isinstance(each, float) else "i64" for each in values)
    return [
        each if isinstance(each, Value) else c.scalar(each, kind)
        for each, kind in zip(values, kinds, strict=True)
    ]


def _number(c: Context, x: Value) -> Any:
    """What `_tensors` made of a number: a whole one is a dim."""
    if not type_of(x).dtype.is_integer:
        return x
    (part,) = c.amounts.parts(c.builder, x)
    name = f"{c.hint}_"
    return c.amounts.define_amount(
        c.builder, part, lambda side: c.fresh(name + side), f"the number '{c.hint}'"
    )

"""Lowerings of scatter and select_and_scatter.

A scatter that combines by a known kind is the graph op. One with any other region is a loop
over its updates: each reads its window, combines it by the region, lifted to the window, and
writes it back, unless it does not fit. A select_and_scatter finds by a loop over the
elements of its windows which one each of them selects, and scatters there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ingot.compiler.frontends.stablehlo import bodies
from ingot.compiler.frontends.stablehlo.lift import cast, element_of, lift, scalar_problem
from ingot.compiler.frontends.stablehlo.lowering import Context, ints, lowering
from ingot.compiler.frontends.stablehlo.program import (
    SourceBlock,
    SourceOp,
    SourceProgram,
    TensorType,
)
from ingot.compiler.frontends.windows import Windows, select_elements, whole
from ingot.compiler.graph.build_control import counted_loop
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []

_I64 = dtype("i64")


@dataclass(frozen=True)
class _Numbers:
    """The dimension numbers of a scatter."""

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    input_batching_dims: tuple[int, ...]
    scatter_indices_batching_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    index_vector_dim: int


def _numbers_of(op: SourceOp) -> _Numbers:
    def dims_of(name: str) -> tuple[int, ...]:
        return ints(op.attributes.get(name, ()))

    return _Numbers(
        dims_of("update_window_dims"),
        dims_of("inserted_window_dims"),
        dims_of("input_batching_dims"),
        dims_of("scatter_indices_batching_dims"),
        dims_of("scatter_dims_to_operand_dims"),
        op.attributes["index_vector_dim"],
    )


def _kind(block: SourceBlock, place: int, count: int) -> str | None:
    """How the region combines element `place` with its update; "sub" takes the update away."""
    kind = bodies.combination(block, place, place, place + count)
    element = block.arguments[place].type
    if isinstance(element, TensorType) and element.element == "i1":
        kind = {"or": "max", "and": "min"}.get(kind or "", kind)
    returned = block.ops[-1].operands[place].producer
    if kind is None and returned is not None and returned.name == "subtract":
        pair = [block.arguments[place], block.arguments[place + count]]
        return "sub" if returned.operands == pair else None
    return kind if kind in ("set", "add", "mul", "min", "max") else None


def _check_scatter(op: SourceOp, program: SourceProgram) -> str | None:
    return scalar_problem(bodies.body_of(op), program)


@lowering("scatter", check=_check_scatter)
def scatter(context: Context, op: SourceOp) -> list[Value]:
    block, count = bodies.body_of(op), len(op.operands) // 2
    assert block is not None
    values = context.operands(op)
    wanted = [element_of(argument.type) for argument in block.arguments]
    xs = [cast(context.builder, x, each) for x, each in zip(values[:count], wanted, strict=False)]
    updates = [
        cast(context.builder, x, each)
        for x, each in zip(values[count + 1 :], wanted[count:], strict=True)
    ]
    return _scatter(context, block, xs, values[count], updates, _numbers_of(op))


def _scatter(
    context: Context,
    block: SourceBlock,
    xs: Sequence[Value],
    indices: Value,
    updates: Sequence[Value],
    numbers: _Numbers,
) -> list[Value]:
    kinds = [_kind(block, place, len(xs)) for place in range(len(xs))]
    if None in kinds:
        return _Loop(context, block, indices, numbers).run(xs, updates)
    results = []
    for kind, x, update in zip(kinds, xs, updates, strict=True):
        if kind == "sub":
            kind, update = "add", context.builder.value("neg", update)
        scattered = context.builder.value("scatter", x, indices, update, kind=kind, **vars(numbers))
        results.append(scattered)
    return results


class _Loop:
    """A scatter with any region: one update after the other."""

    def __init__(
        self, context: Context, block: SourceBlock, indices: Value, numbers: _Numbers
    ) -> None:
        self.context, self.block, self.indices, self.numbers = context, block, indices, numbers
        self.builder = context.builder

    def run(self, xs: Sequence[Value], updates: Sequence[Value]) -> list[Value]:
        """The operands with all updates combined into them."""
        builder, numbers = self.builder, self.numbers
        shape = tensor_type(xs[0]).shape
        batch = [a for a in range(tensor_type(updates[0]).rank) if a not in self._windows]
        count = dims.product(tensor_type(updates[0]).shape[a] for a in batch)
        window = self._window(shape, tensor_type(updates[0]).shape)
        rows = []
        for update in updates:
            order = (*batch, *numbers.update_window_dims)
            moved = builder.value("transpose", update, permutation=order)
            rows.append(builder.value("reshape", moved, shape=(count, *window)))
        starts = self._starts(shape, count)

        def step(inner: Builder, index: Value, before: Sequence[Value]) -> Sequence[Value]:
            vector = inner.value("take", starts, index, axis=0, mode="clamp")
            start = [
                inner.value(
                    "reshape",
                    inner.value("slice", vector, start=(axis,), limit=(axis + 1,)),
                    shape=(),
                )
                for axis in range(len(shape))
            ]
            inside = self._fits(inner, start, shape, window)
            old = [inner.value("dynamic_slice", x, *start, sizes=window) for x in before]
            row = [inner.value("take", each, index, axis=0, mode="clamp") for each in rows]
            new = lift(self.context, inner, self.block, [*old, *row], window)
            place = inner.broadcast_to(inside, window)
            return [
                inner.value("dynamic_update_slice", x, inner.value("select", place, a, b), *start)
                for x, a, b in zip(before, new, old, strict=True)
            ]

        return counted_loop(builder, whole(builder, count), list(xs), step)

    @property
    def _windows(self) -> tuple[int, ...]:
        return self.numbers.update_window_dims

    def _window(self, shape: Sequence[Dim], update: Sequence[Dim]) -> tuple[Dim, ...]:
        """How large a window is in each dim of the operand."""
        numbers = self.numbers
        removed = (*numbers.inserted_window_dims, *numbers.input_batching_dims)
        sizes = iter([update[axis] for axis in numbers.update_window_dims])
        return tuple(1 if axis in removed else next(sizes) for axis in range(len(shape)))

    def _starts(self, shape: Sequence[Dim], count: Dim) -> Value:
        """Where each window begins: i64[count, rank of the operand]."""
        builder, numbers = self.builder, self.numbers
        indices = self.builder.value("convert", self.indices, dtype=_I64)
        type, vector = tensor_type(indices), numbers.index_vector_dim
        if vector == type.rank:
            indices = builder.value("reshape", indices, shape=(*type.shape, 1))
        else:
            order = (*(axis for axis in range(type.rank) if axis != vector), vector)
            indices = builder.value("transpose", indices, permutation=order)
        batch = tensor_type(indices).shape[:-1]
        columns = []
        for axis in range(len(shape)):
            if axis in numbers.scatter_dims_to_operand_dims:
                place = numbers.scatter_dims_to_operand_dims.index(axis)
                first, limit = (0,) * len(batch), (*batch, place + 1)
                column = builder.value("slice", indices, start=(*first, place), limit=limit)
            elif axis in numbers.input_batching_dims:
                source = numbers.scatter_indices_batching_dims[
                    numbers.input_batching_dims.index(axis)
                ]
                along = source - (source > vector)
                column = builder.value("iota", dtype=_I64, shape=(*batch, 1), axis=along)
            else:
                column = builder.full(0, _I64, (*batch, 1))
            columns.append(builder.value("reshape", column, shape=(count, 1)))
        if not columns:
            return builder.full(0, _I64, (count, 0))
        return builder.value("concatenate", *columns, axis=1)

    def _fits(
        self,
        inner: Builder,
        starts: Sequence[Value],
        shape: Sequence[Dim],
        window: Sequence[Dim],
    ) -> Value:
        """i1: whether a window that begins there lies inside of the operand."""
        result = inner.constant(True, "i1")
        for start, dim, size in zip(starts, shape, window, strict=True):
            low = inner.value("compare", start, whole(inner, 0), direction="ge")
            high = inner.value("compare", start, whole(inner, dim - size), direction="le")
            result = inner.value("and", result, inner.value("and", low, high))
        return result


def _check_select(op: SourceOp, program: SourceProgram) -> str | None:
    if len(op.regions) != 2 or any(len(region) != 1 for region in op.regions):
        return "regions that are not one block each"
    problems = (scalar_problem(region[0], program) for region in op.regions)
    return next((each for each in problems if each), None)


@lowering("select_and_scatter", check=_check_select)
def select_and_scatter(context: Context, op: SourceOp) -> list[Value]:
    builder = context.builder
    x, source, start = context.operands(op)
    type = tensor_type(x)
    places = _selected(context, op, x)
    source = context.agree(op, source, tensor_type(places).shape)
    count, size = dims.product(tensor_type(source).shape), dims.product(type.shape)
    result = builder.broadcast_to(cast(builder, start, type.dtype), (size,))
    updates = builder.value("reshape", cast(builder, source, type.dtype), shape=(count,))
    indices = builder.value("reshape", places, shape=(count, 1))
    numbers = _Numbers((), (0,), (), (), (0,), 1)
    (result,) = _scatter(context, op.regions[1][0], [result], indices, [updates], numbers)
    return [builder.value("reshape", result, shape=type.shape)]


def _selected(context: Context, op: SourceOp, x: Value) -> Value:
    """Which element of x each window selects, in row-major order: i64[places...]; -1 for none."""
    builder, block = context.builder, op.regions[0][0]
    type = tensor_type(x)
    ones = (1,) * type.rank
    sizes = ints(op.attributes.get("window_dimensions", ())) or ones
    strides = ints(op.attributes.get("window_strides", ())) or ones
    flat = ints(op.attributes.get("padding", ())) or (0,) * (2 * type.rank)
    low, high = flat[::2], flat[1::2]

    def padded(value: Value, fill: int | bool) -> Value:
        element = builder.constant(fill, tensor_type(value).dtype)
        return builder.value("pad", value, element, low=low, high=high, interior=(0,) * type.rank)

    numbers = builder.value("iota", dtype=_I64, shape=(dims.product(type.shape),), axis=0)
    numbers = padded(builder.value("reshape", numbers, shape=type.shape), -1)
    x = padded(x, False if type.dtype.is_boolean else 0)
    windows = Windows(sizes, strides, ones, tensor_type(x).shape)

    def keeps(inner: Builder, best: Value, value: Value) -> Value:
        return lift(context, inner, block, [best, value], windows.places)[0]

    return select_elements(builder, x, numbers, windows, keeps)[1]

"""Lowerings of scatter and select_and_scatter.

A scatter that combines by a known kind is the graph op. One with any other region is a loop
over its updates: each reads its window, combines it by the region, lifted to the window, and
writes it back, unless it does not fit. A select_and_scatter finds by a loop over the
elements of its windows which one each of them selects, and scatters there.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.stablehlo import bodies
from ingot.compiler.frontends.stablehlo.lift import (
    cast,
    check_body,
    elements_of,
    lift,
    paired,
    scalar_problem,
)
from ingot.compiler.frontends.stablehlo.lowering import Context, Lowered, ints, lowering
from ingot.compiler.frontends.stablehlo.lowerings.indexed import SCATTER, agreed_indices
from ingot.compiler.frontends.stablehlo.reading.program import (
    SourceBlock,
    SourceOp,
    SourceProgram,
    TensorType,
)
from ingot.compiler.frontends.windows import Windows, select_elements
from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dataclass import dataclass
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


@lowering("scatter", check=check_body)
def scatter(context: Context, op: SourceOp) -> list[Lowered]:
    block = bodies.body_of(op)
    assert block is not None
    values = context.flat_operands(op)
    count = len(values) // 2
    indices, wanted = values.pop(count), elements_of(block.arguments)
    values = [cast(context.builder, x, each) for x, each in zip(values, wanted, strict=True)]
    xs = context.same_shape(op, values[:count])
    indices = agreed_indices(context, op, xs[0], indices, SCATTER)
    updates = _agreed_updates(context, op, indices, values[count:])
    return paired(op.results, _scatter(context, block, xs, indices, updates, _numbers_of(op)))


def _agreed_updates(
    context: Context, op: SourceOp, indices: Value, updates: Sequence[Value]
) -> list[Value]:
    """The updates in one shape, with the batch dims of the indices."""
    shape, vector = list(tensor_type(updates[0]).shape), op.attributes["index_vector_dim"]
    batch = (dim for axis, dim in enumerate(tensor_type(indices).shape) if axis != vector)
    windows = ints(op.attributes["update_window_dims"])
    for axis in range(len(shape)):
        if axis not in windows:
            shape[axis] = next(batch)
    return [context.agree(op, update, shape) for update in updates]


def _scatter(
    context: Context,
    block: SourceBlock,
    xs: Sequence[Value],
    indices: Value,
    updates: Sequence[Value],
    numbers: _Numbers,
) -> list[Value]:
    count = len(block.arguments) // 2
    kinds = [
        _kind(block, place, count)
        for place in range(count)
        for _ in elements_of(block.arguments[place : place + 1])
    ]
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

        return counted_loop(builder, builder.number(count, "i64"), list(xs), step)

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
            low = inner.value("compare", start, inner.number(0, "i64"), direction="ge")
            high = inner.value("compare", start, inner.number(dim - size, "i64"), direction="le")
            result = inner.value("and", result, inner.value("and", low, high))
        return result


def _check_select(op: SourceOp, program: SourceProgram) -> str | None:
    if len(op.regions) != 2 or any(len(region) != 1 for region in op.regions):
        return "regions that are not one block each"
    problems = (scalar_problem(region[0], program) for region in op.regions)
    return next((each for each in problems if each), None)


@lowering("select_and_scatter", check=_check_select)
def select_and_scatter(context: Context, op: SourceOp) -> list[Lowered]:
    builder = context.builder
    xs, sources, starts = (
        context.flat([context.lowered(op, place)]) for place in range(len(op.operands))
    )
    shape, element = tensor_type(xs[0]).shape, elements_of(op.results)[0]
    places = _selected(context, op, xs)
    count, size = dims.product(tensor_type(places).shape), dims.product(shape)
    results = [builder.broadcast_to(cast(builder, start, element), (size,)) for start in starts]
    updates = []
    for source in sources:
        source = context.agree(op, cast(builder, source, element), tensor_type(places).shape)
        updates.append(builder.value("reshape", source, shape=(count,)))
    indices = builder.value("reshape", places, shape=(count, 1))
    numbers = _Numbers((), (0,), (), (), (0,), 1)
    results = _scatter(context, op.regions[1][0], results, indices, updates, numbers)
    results = [builder.value("reshape", result, shape=shape) for result in results]
    return paired(op.results, results)


def _selected(context: Context, op: SourceOp, xs: Sequence[Value]) -> Value:
    """Which element each window selects, in row-major order: i64[places...]; -1 for none."""
    builder, block = context.builder, op.regions[0][0]
    type = tensor_type(xs[0])
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
    xs = [padded(x, False if type.dtype.is_boolean else 0) for x in xs]
    windows = Windows(sizes, strides, ones, tensor_type(numbers).shape)

    def keeps(inner: Builder, best: Sequence[Value], value: Sequence[Value]) -> Value:
        return lift(context, inner, block, [*best, *value], windows.places)[0]

    return select_elements(builder, xs, numbers, windows, keeps)[-1]

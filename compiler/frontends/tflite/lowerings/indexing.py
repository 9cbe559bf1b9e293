"""Reads and writes at indices, and tensors that are made of them."""

from __future__ import annotations

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.indexed import gather_slices, scatter_slices
from ingot.compiler.frontends.tflite.lowering import EACH, Context, lowering
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim, known_dim, known_dims
from ingot.hal.spec import dtype

__all__: list[str] = []


@lowering("GATHER", codes=0)
def gather(c: Context, x: Value, indices: Value) -> Value:
    axis = c.axis(c.options.axis, x)
    batch = c.options.batch_dims
    batch = batch + type_of(indices).rank if batch < 0 else batch
    if not batch:
        return c.op("take", x, indices, axis=axis, mode="check")
    shape, own = shape_of(x), shape_of(indices)
    if not 0 <= batch <= min(axis, len(own)):
        raise UnsupportedNode(
            f"its batch_dims is {batch}, expected 0 to {min(axis, len(own))}, for it gathers along "
            f"axis {axis} with indices of rank {len(own)}: fix the model"
        )
    lead = tuple(range(batch))
    indices = c.agree(indices, (*shape[:batch], *own[batch:]))
    return c.op(
        "gather",
        x,
        indices,
        offset_dims=(*range(batch, axis), *range(axis + len(own) - batch, len(own) - batch
                                                 + len(shape) - 1)),
        collapsed_slice_dims=(axis,),
        operand_batching_dims=lead,
        start_indices_batching_dims=lead,
        start_index_map=(axis,),
        index_vector_dim=len(own),
        slice_sizes=tuple(1 if at in (axis, *lead) else dim for at, dim in enumerate(shape)),
        mode="check",
    )  # fmt: skip


@lowering("EMBEDDING_LOOKUP")
def embedding_lookup(c: Context, indices: Value, table: Value) -> Value:
    return c.op("take", table, indices, axis=0, mode="check")


@lowering("EMBEDDING_LOOKUP_SPARSE")
def embedding_lookup_sparse(
    c: Context, rows: Value, indices: Value, shape: Value, weights: Value, table: Value
) -> Value:
    """Sums of rows of the table [m, ...] by their weights, at places [n, rank] without the last
    index, or their means, or over the root of the sum of squared weights."""
    sizes = tuple(c.dims(shape)[:-1])
    places = c.sliced(indices, 1, 0, len(sizes))
    found = c.op("take", table, rows, axis=0, mode="check")
    wide = c.op("broadcast", weights, shape=shape_of(found), dimensions=(0,))
    element, row = type_of(table).dtype, shape_of(table)[1:]
    start = c.full(0, element, (*sizes, *row))
    total = scatter_slices(c, start, places, c.op("mul", found, wide), "add")
    if not c.options.combiner:
        return total
    squared = c.options.combiner == 2
    parts = c.op("mul", weights, weights) if squared else weights
    divisor = scatter_slices(c, c.full(0, element, sizes), places, parts, "add")
    divisor = c.op("sqrt", divisor) if squared else divisor
    divisor = c.op("broadcast", divisor, shape=shape_of(total), dimensions=tuple(range(len(sizes))))
    zero = c.fill(0, like=total)
    return c.op("select", c.compare("ne", divisor, zero), c.op("div", total, divisor), total)


@lowering("GATHER_ND", codes=0)
def gather_nd(c: Context, x: Value, indices: Value) -> Value:
    shape, own = shape_of(x), shape_of(indices)
    depth = known_dim(own[-1])
    if depth > len(shape):
        raise UnsupportedNode(
            f"its indices have {depth} numbers each, expected at most {len(shape)}, the rank of "
            "what it gathers from: fix the model"
        )
    return gather_slices(c, x, indices, "check")


@lowering("SCATTER_ND")
def scatter_nd(c: Context, indices: Value, updates: Value, shape: Value) -> Value:
    element, sizes = type_of(updates).dtype, tuple(c.dims(shape))
    (depth,) = known_dims(shape_of(indices)[-1:])
    updates = c.agree(updates, (*shape_of(indices)[:-1], *sizes[depth:]))
    zeros = c.full(0, element, sizes)
    return scatter_slices(c, zeros, indices, updates, "or" if element.is_boolean else "add")


@lowering("SPARSE_TO_DENSE")
def sparse_to_dense(
    c: Context, indices: Value, shape: Value, values: Value, default: Value
) -> Value:
    sizes = tuple(c.dims(shape))
    rows = shape_of(indices)[0] if type_of(indices).rank else 1
    indices = c.reshaped(indices, (rows, len(sizes)))
    filled = c.broadcast_to(c.reshape(default, ()), sizes)
    return scatter_slices(c, filled, indices, c.broadcast_to(values, (rows,)), "set")


@lowering("DENSIFY", codes=0)
def densify(c: Context, x: Value) -> Value:
    """Constants are read as dense ones."""
    return x


@lowering("ONE_HOT")
def one_hot(c: Context, indices: Value, depth: Value, on: Value, off: Value) -> Value:
    (count,) = c.dims(depth, "the depth")
    axis = c.normalize_axis(c.options.axis, type_of(indices).rank + 1)
    own = shape_of(indices)
    shape = (*own[:axis], count, *own[axis:])
    kept = tuple(at for at in range(len(shape)) if at != axis)
    wide = c.op("broadcast", indices, shape=shape, dimensions=kept)
    hit = c.compare("eq", wide, c.places(shape, axis, type_of(indices).dtype.name))
    return c.op("select", hit, *(c.broadcast_to(c.reshape(x, ()), shape) for x in (on, off)))


@lowering("RANGE")
def range_of(c: Context, start: Value, limit: Value, step: Value) -> Value:
    parts = [c.reshape(each, ()) for each in (start, limit, step)]
    known = [c.parts(each)[0] for each in parts]
    element = c.dtype
    if all(isinstance(each, (int, dims.Expr)) for each in known):
        first, last, by = known
        count: Dim = dims.maximum(dims.ceildiv(last - first, by), 0)  # type: ignore[operator, arg-type]
        if isinstance(by, int) and by < 0:
            count = dims.maximum(dims.ceildiv(first - last, -by), 0)  # type: ignore[operator]
    else:
        wide = [c.convert(each, "f64") for each in parts]
        exact = c.op("ceil", c.op("div", c.op("sub", wide[1], wide[0]), wide[2]))
        whole = c.convert(c.op("max", exact, 0), "i64")
        count = c.size_of(c.parts(whole)[0], "the length of a range")
    counting = c.convert(c.places((count,), 0), element)
    first_value, by_value = (
        c.broadcast_to(c.convert(parts[at], element), (count,)) for at in (0, 2)
    )
    return c.op("add", first_value, c.op("mul", counting, by_value))


@lowering("FILL", codes=1)
def fill(c: Context, shape: Value, x: Value) -> Value:
    return c.broadcast_to(c.reshape(x, ()), c.dims(shape))


@lowering("REVERSE_SEQUENCE", codes=0)
def reverse_sequence(c: Context, x: Value, lengths: Value) -> Value:
    """The first `lengths` elements of each line in opposite order."""
    axis, batch = c.axis(c.options.seq_dim, x), c.axis(c.options.batch_dim, x)
    shape = shape_of(x)
    place = c.places(shape, axis)
    length = c.op("broadcast", c.convert(lengths, "i64"), shape=shape, dimensions=(batch,))
    turned = c.op("sub", c.op("sub", length, 1), place)
    index = c.op("select", c.compare("lt", place, length), turned, place)
    return c.gather_along(x, index, axis, "check")


@lowering("MATRIX_DIAG", codes=0)
def matrix_diag(c: Context, x: Value) -> Value:
    """Codes of 0 stand elsewhere."""
    shape = (*shape_of(x), shape_of(x)[-1])
    zeros = c.full(0, type_of(x).dtype, shape)
    return _on_diagonal(c, zeros, x)


@lowering("MATRIX_SET_DIAG", codes=EACH)
def matrix_set_diag(c: Context, x: Value, diagonal: Value) -> Value:
    rows, columns = shape_of(x)[-2:]
    if rows != columns:
        least = dims.minimum(rows, columns)
        diagonal = c.agree_on(diagonal, type_of(diagonal).rank - 1, least)
        none = (0,) * (type_of(diagonal).rank - 1)
        diagonal = c.padded(diagonal, (*none, 0), (*none, rows - least))
    return _on_diagonal(c, x, diagonal)


def _on_diagonal(c: Context, x: Value, diagonal: Value) -> Value:
    shape, rank = shape_of(x), type_of(x).rank
    wide = c.op("broadcast", diagonal, shape=shape, dimensions=tuple(range(rank - 1)))
    hit = c.compare("eq", c.places(shape, rank - 2), c.places(shape, rank - 1))
    return c.op("select", hit, wide, x)


@lowering("WHERE")
def where(c: Context, x: Value) -> Value:
    """[n, rank]: the places where x is not 0."""
    if not type_of(x).dtype.is_boolean:
        x = c.compare("ne", x, 0)
    places = c.op("nonzero", x, symbols=(next(c.fresh_names()),))
    return c.transpose(places, (1, 0))


@lowering("UNIQUE")
def unique(c: Context, x: Value) -> list[Value]:
    """The different elements in the order in which they occur first, and which one each is."""
    (count,) = shape_of(x)
    columns, rows = (
        c.op("broadcast", x, shape=(count, count), dimensions=(axis,)) for axis in (0, 1)
    )
    equal = c.convert(c.compare("eq", columns, rows), "u8")
    first = c.op("arg_max", equal, axis=1, dtype=dtype("i64"))
    place = c.places((count,), 0)
    is_first = c.compare("eq", first, place)
    number = c.op("cumulative", c.convert(is_first, "i64"), axis=0, kind="add")
    number = c.op("sub", number, 1)
    which = c.op("take", number, first, axis=0, mode="check")
    kept = c.op("nonzero", is_first, symbols=(next(c.fresh_names()),))
    kept = c.reshape(kept, (shape_of(kept)[1],))
    found = c.op("take", x, kept, axis=0, mode="check")
    return [found, c.convert(which, c.outputs[1].dtype)]

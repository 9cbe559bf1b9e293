"""Shapes that a model computes from data: what the lowerings of shape ops do with them.

The rules of ONNX (0 and -1 in Reshape, negative bounds in Slice) are then followed by ops on
numbers of rank 0, whose results become sizes. Where all is known at import, `shapes.py` does
the same with dims.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.ir import Op, Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import DType, dtype

__all__ = [
    "computed_range",
    "define_pads",
    "expanded_dims",
    "may_be_zero",
    "pad_by_index",
    "resolve_shape",
    "slice_bounds",
    "slice_by_index",
]


def define_pads(node: Node, index: int, shape: Sequence[Dim]) -> tuple[list[Dim], list[Dim]]:
    """What is put in front of axes of `shape`, and behind them: the elements of a small input,
    as dims that may be negative. UnsupportedNode: there are not two for each axis.

    Where an element depends on data, the first kind is a fresh symbol for what is above zero and
    another for what is below. The second follows from a fresh symbol for the whole padded dim: a
    product of such dims is one term, where a product of sums would be very many.
    """
    parts = node.parts(index)
    unsupported(
        len(parts) != 2 * len(shape), f"pads has {len(parts)} entries, not {2 * len(shape)}"
    )
    low = [
        node.define_amount(part, place, f"element {place} of the pads")
        for place, part in enumerate(parts[: len(shape)])
    ]
    high: list[Dim] = []
    for axis, (part, dim) in enumerate(zip(parts[len(shape) :], shape, strict=True)):
        if isinstance(part, Value):
            whole = node.op("add", node.size(dim + low[axis]), node.convert(part, "i64"))
            name = f"{node.proto.output[0]}_{axis}"
            part = node.define_size(whole, name, f"axis {axis} after padding") - dim - low[axis]
        high.append(part)
    return low, high


def may_be_zero(x: Value, axis: int, dim: Dim) -> bool:
    """Whether a computed entry for a Reshape of x may be 0 at the call, and stands for the dim of
    x then. Where a 0 leaves no element of x, it is one: sizes that only regroup x are no more
    than that."""
    if isinstance(dim, int) or axis >= type_of(x).rank or dims.prove_le(1, dim):
        return False
    own, total = shape_of(x)[axis], dims.product(shape_of(x))
    return dim != own and dims.modulo(total, dim) != 0


def resolve_shape(node: Node, x: Value, wanted: Sequence[Dim | Value], keeps: bool) -> list[Dim]:
    """The shape of a Reshape of x where some entries are known only when the model runs."""
    rank = type_of(x).rank
    entries = list(wanted)
    for axis, entry in enumerate(entries):
        if isinstance(entry, Value):
            entry = node.convert(entry, "i64")
            if keeps and axis < rank:
                entry = _where(node, entry, 0, node.size(shape_of(x)[axis]))
            entries[axis] = entry
    total = dims.product(shape_of(x))
    if -1 in entries:  # then no other entry can mean that
        result = [_size(node, entry, axis) for axis, entry in enumerate(entries)]
        at = entries.index(-1)
        rest = dims.product(dim for axis, dim in enumerate(result) if axis != at)
        result[at] = dims.floordiv(total, rest)
        return result
    one = node.size(1)
    product = one
    for entry in entries:
        factor = node.as_value(entry)
        product = node.op("mul", product, _where(node, factor, -1, one))
    left = node.op("div", node.size(total), node.op("max", product, one))
    for axis, entry in enumerate(entries):
        if isinstance(entry, Value):
            entries[axis] = _where(node, entry, -1, left)
    return [_size(node, entry, axis) for axis, entry in enumerate(entries)]


def _size(node: Node, entry: Dim | Value, axis: int) -> Dim:
    hint = f"{node.proto.output[0]}_{axis}"
    return node.define_size(entry, hint, f"element {axis} of the shape")


def _where(node: Node, value: Value, number: int, other: Value) -> Value:
    """`other` where the value is the number, else the value."""
    same = node.compare("eq", value, number)
    return node.op("select", same, other, value)


def expanded_dims(node: Node, x: Value) -> list[Dim]:
    """The shape that x is to be expanded to together with its own; entries from data are
    checked against dims of x that are known not to be 1."""
    parts = node.parts(1)
    first = len(parts) - type_of(x).rank
    result: list[Dim] = []
    for axis, part in enumerate(parts):
        own = shape_of(x)[axis - first] if axis >= first else 1
        what = f"element {axis} of the shape"
        hint = f"{node.proto.output[0]}_{axis}"
        if isinstance(part, Value) and isinstance(own, int) and own != 1:
            whole = _where(node, node.convert(part, "i64"), 1, node.size(own))
            node.define_size(whole, hint, what, own, own)
            result.append(own)
        else:
            result.append(node.define_size(part, hint, what))
    return result


def slice_bounds(
    node: Node, first: Dim | Value, last: Dim | Value, axis: int, backward: bool
) -> tuple[Dim, Dim]:
    """Start and limit of a Slice within [0, dim], of the reversed axis if `backward`."""
    dim = shape_of(node.input(0))[axis]
    size, zero, one = node.size(dim), node.size(0), node.size(1)
    ends = [_wrapped(node, node.as_value(end), size) for end in (first, last)]
    if backward:
        # index i of the axis is dim - 1 - i of the reversed one; -1 stands before the first
        top = node.op("sub", size, one)
        low, high = (node.op("sub", top, end) for end in ends)
        low = node.op("min", low, top)
    else:
        low, high = ends
        low = node.op("min", low, size)
    low = node.op("max", low, zero)
    high = node.op("min", node.op("max", high, low), size)
    name = node.proto.output[0]
    start = node.define_size(
        0 if first == 0 and not backward else low,
        f"{name}_start_{axis}",
        f"the start on axis {axis}",
        0,
        dim,
    )
    most = None if backward else _distance(node, first, last)
    if most is None:
        what = f"the end on axis {axis}"
        return start, node.define_size(high, f"{name}_end_{axis}", what, 0, dim)
    what = f"the count of elements on axis {axis}"
    count = node.define_size(node.op("sub", high, low), f"{name}_{axis}", what, 0, max(most, 0))
    return start, start + count


def _distance(node: Node, first: Dim | Value, last: Dim | Value) -> int | None:
    """last - first of two numbers from data, None if it is not known: loops read x[i : i + 1]."""
    if not isinstance(first, Value) or not isinstance(last, Value):
        return None
    (a, more), (b, beyond) = _base(node, first), _base(node, last)
    return beyond - more if a is b else None


def _base(node: Node, value: Value) -> tuple[Value, int]:
    """A value of one element as another one and what is added to it."""
    added = 0
    while isinstance(value.owner, Op):
        operands = value.owner.operands
        numbers = [node.known_element(each) for each in operands]
        match value.owner.name:
            case "reshape" | "take" if dims.product(shape_of(operands[0])) == 1:
                value = operands[0]
            case "convert" if type_of(operands[0]).dtype.is_integer:
                value = operands[0]
            case "add" if numbers[1] is not None:
                value, added = operands[0], added + numbers[1]
            case "add" if numbers[0] is not None:
                value, added = operands[1], added + numbers[0]
            case "sub" if numbers[1] is not None:
                value, added = operands[0], added - numbers[1]
            case _:
                break
    return value, added


def _wrapped(node: Node, index: Value, size: Value) -> Value:
    """A negative index counted from the end."""
    negative = node.compare("lt", index, node.size(0))
    return node.op("select", negative, node.op("add", index, size), index)


def slice_by_index(
    node: Node, x: Value, first: Dim | Value, last: Dim | Value, step: Value, axis: int
) -> Value:
    """Elements first, first + step, ... before last of an axis, with a step from data."""
    size, zero, one = node.size(shape_of(x)[axis]), node.size(0), node.size(1)
    step = node.convert(step, "i64")
    start, end = (_wrapped(node, node.as_value(each), size) for each in (first, last))
    forward = node.compare("gt", step, zero)
    greatest = node.op("select", forward, size, node.op("sub", size, one))
    least = node.op("select", forward, zero, node.op("sub", zero, one))
    start = node.op("min", node.op("max", start, zero), greatest)
    end = node.op("min", node.op("max", end, least), greatest)
    count = _range_count(node, start, end, step, dtype("i64"))
    name = node.proto.output[0]
    shape = (node.define_size(count, f"{name}_{axis}", f"the count of elements on axis {axis}"),)
    places = node.op("iota", dtype=dtype("i64"), shape=shape, axis=0)
    places = node.op("mul", places, node.broadcast_to(step, shape))
    places = node.op("add", places, node.broadcast_to(start, shape))
    return node.op("take", x, places, axis=axis, mode="check")


def pad_by_index(node: Node, x: Value, axis: int, before: Dim, after: Dim, mode: str) -> Value:
    """Pads an axis by taking its elements again, as NumPy's pad of that mode does; a negative
    amount cuts off first."""
    dim = shape_of(x)[axis]
    cut = [dims.maximum(amount * -1, 0) for amount in (before, after)]
    if cut != [0, 0]:
        start: list[Dim] = [0] * type_of(x).rank
        limit = list(shape_of(x))
        start[axis], limit[axis] = cut[0], dim - cut[1]
        stride = (1,) * len(start)
        x = node.op("slice", x, start=tuple(start), limit=tuple(limit), stride=stride)
        dim = shape_of(x)[axis]
    low = dims.maximum(before, 0)
    shape = (low + dim + dims.maximum(after, 0),)
    places = node.op("iota", dtype=dtype("i64"), shape=shape, axis=0)
    places = node.op("sub", places, node.broadcast_to(node.size(low), shape))
    zero, last = node.fill(0, like=places), node.broadcast_to(node.size(dim - 1), shape)
    if mode == "edge":
        places = node.op("max", node.op("min", places, last), zero)
    elif mode == "wrap":
        places = _floor_rest(node, places, dim)
    else:
        period = dims.maximum(dim * 2 - 2, 1)
        places = _floor_rest(node, places, period)
        mirrored = node.op("sub", node.broadcast_to(node.size(period), shape), places)
        inside = node.compare("le", places, last)
        places = node.op("select", inside, places, mirrored)
    return node.op("take", x, places, axis=axis, mode="check")


def _floor_rest(node: Node, places: Value, period: Dim) -> Value:
    """The places modulo a period, which is not negative."""
    spread = node.broadcast_to(node.size(dims.maximum(period, 1)), shape_of(places))
    rest = node.op("rem", places, spread)
    return node.op("rem", node.op("add", rest, spread), spread)


def computed_range(node: Node) -> Value:
    """start, start + delta, ... below limit, of numbers that depend on data."""
    start, limit, delta = (node.reshape(node.input(index), ()) for index in range(3))
    element = type_of(start).dtype
    count = _range_count(node, start, limit, delta, element)
    name = node.proto.output[0]
    shape = (node.define_size(count, f"{name}_0", "the count of elements"),)
    steps = node.op("iota", dtype=element, shape=shape, axis=0)
    spread = node.op("mul", steps, node.broadcast_to(delta, shape))
    return node.op("add", spread, node.broadcast_to(start, shape))


def _range_count(node: Node, start: Value, limit: Value, delta: Value, element: DType) -> Value:
    """max(ceil((limit - start) / delta), 0); a delta of 0 gives -1, which is no size."""
    if not element.is_float:
        start, limit, delta = (node.convert(each, "i64") for each in (start, limit, delta))
    way = node.op("sub", limit, start)
    quotient = node.op("div", way, delta)
    if element.is_float:
        quotient = node.op("ceil", quotient)
    else:
        rest = node.op("rem", way, delta)
        positive = node.compare("gt", node.op("mul", rest, delta), 0)
        quotient = node.op("add", quotient, node.convert(positive, "i64"))
    count = node.convert(node.op("max", quotient, 0), "i64")
    still = node.compare("eq", delta, 0)
    return node.op("select", still, node.size(-1), count)

"""Ops that move elements: shapes, slices, joins, padding, blocks of space."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.tflite.lowering import EACH, Context, lowering
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim

__all__: list[str] = []


@lowering("RESHAPE", codes=0)
def reshape(c: Context, x: Value, shape: Value | None = None) -> Value:
    given: list[Dim | Value] = list(getattr(c.options, "new_shape", ()))
    if shape is not None:
        given = c.parts(shape)
    elif not given:
        given = [-1 if dim is None else dim for dim in c.outputs[0].shape]
    wanted: list[Dim] = []
    for part in given:
        wanted.append(part if part == -1 else c.size_of(part))
    if wanted.count(-1) == 1:
        place = wanted.index(-1)
        known = dims.product(dim for at, dim in enumerate(wanted) if at != place)
        wanted[place] = dims.floordiv(dims.product(shape_of(x)), known) if known != 0 else 0
    return c.reshaped(x, wanted)


@lowering("STABLEHLO_RESHAPE", codes=0)
def reshape_to_declared(c: Context, x: Value) -> Value:
    return reshape(c, x)


@lowering("SQUEEZE", codes=0)
def squeeze(c: Context, x: Value) -> Value:
    shape = shape_of(x)
    axes = {c.axis(each, x) for each in c.options.squeeze_dims}
    if not axes:
        axes = {axis for axis, dim in enumerate(shape) if dim == 1}
    return c.reshaped(x, [dim for axis, dim in enumerate(shape) if axis not in axes])


@lowering("EXPAND_DIMS", codes=0)
def expand_dims(c: Context, x: Value, axis: Value) -> Value:
    (place,) = c.known(axis, "axis")
    place = c.normalize_axis(place, type_of(x).rank + 1)
    return c.reshape(x, (*shape_of(x)[:place], 1, *shape_of(x)[place:]))


@lowering("TRANSPOSE", codes=0)
def transpose(c: Context, x: Value, permutation: Value) -> Value:
    return c.transpose(x, [c.axis(each, x) for each in c.known(permutation, "permutation")])


@lowering("STABLEHLO_TRANSPOSE", codes=0)
def transpose_known(c: Context, x: Value) -> Value:
    return c.transpose(x, c.options.permutation)


@lowering("SHAPE", raw=True)
def shape(c: Context, x: Value) -> Value:
    return c.sizes(shape_of(x), c.outputs[0].dtype)


@lowering("RANK", raw=True)
def rank(c: Context, x: Value) -> Value:
    return c.constant(type_of(x).rank, "i32")


@lowering("CONCATENATION", codes=EACH)
def concatenation(c: Context, *xs: Value) -> Value:
    return _joined(c, xs, c.axis(c.options.axis, xs[0]))


@lowering("STABLEHLO_CONCATENATE", codes=EACH)
def concatenate(c: Context, *xs: Value) -> Value:
    return _joined(c, xs, c.axis(c.options.dimension, xs[0]))


def _joined(c: Context, xs: Sequence[Value], axis: int) -> Value:
    first, *others = xs
    for at, dim in enumerate(shape_of(first)):
        if at != axis:
            others = [c.agree_on(each, at, dim) for each in others]
    return c.op("concatenate", first, *others, axis=axis) if others else first


@lowering("PACK", codes=EACH)
def pack(c: Context, *xs: Value) -> Value:
    axis = c.normalize_axis(c.options.axis, type_of(xs[0]).rank + 1)
    parts = []
    for each in xs:
        own = shape_of(each)
        parts.append(c.reshape(each, (*own[:axis], 1, *own[axis:])))
    return _joined(c, parts, axis)


@lowering("UNPACK", codes=0)
def unpack(c: Context, x: Value) -> list[Value]:
    axis = c.axis(c.options.axis, x)
    rest = [dim for at, dim in enumerate(shape_of(x)) if at != axis]
    count = len(c.outputs)
    x = c.agree_on(x, axis, count)
    return [c.reshape(c.sliced(x, axis, at, at + 1), rest) for at in range(count)]


@lowering("SPLIT", codes=1)
def split(c: Context, axis: Value, x: Value) -> list[Value]:
    place, count = c.axis(c.known(axis, "axis")[0], x), c.options.num_splits
    size = shape_of(x)[place]
    if count < 1 or (isinstance(size, int) and size % count):
        raise UnsupportedNode(f"it splits {size} into {count} equal parts")
    return _split(c, x, place, [dims.floordiv(size, count)] * count)


@lowering("SPLIT_V", codes=0)
def split_into(c: Context, x: Value, sizes: Value, axis: Value) -> list[Value]:
    place, wanted = c.axis(c.known(axis, "axis")[0], x), list(c.parts(sizes))
    if -1 in wanted:
        others = [c.size_of(each) for each in wanted if each != -1]
        wanted[wanted.index(-1)] = shape_of(x)[place] - sum(others)
    return _split(c, x, place, [c.size_of(each) for each in wanted])


def _split(c: Context, x: Value, axis: int, sizes: Sequence[Dim]) -> list[Value]:
    parts: list[Value] = []
    start: Dim = 0
    c.equate(shape_of(x)[axis], sum(sizes))
    for size in sizes:
        parts.append(c.sliced(x, axis, start, start + size))
        start = start + size
    return parts


@lowering("SLICE", codes=0)
def slice_of(c: Context, x: Value, begin: Value, size: Value) -> Value:
    """A size of -1 is all that is left. Starts that depend on data need known sizes."""
    starts, sizes = c.parts(begin), c.parts(size)
    if any(isinstance(each, Value) for each in starts):
        return c.op("dynamic_slice", x, *_numbers(c, starts), sizes=tuple(map(c.size_of, sizes)))
    for axis, (start, count) in enumerate(zip(starts, sizes, strict=True)):
        first = c.size_of(start)
        last = shape_of(x)[axis] if count == -1 else first + c.size_of(count)
        x = c.sliced(x, axis, first, last)
    return x


def _numbers(c: Context, parts: Sequence[Dim | Value]) -> list[Value]:
    return [c.convert(x, "i64") if isinstance(x, Value) else c.size(x) for x in parts]


@lowering("STABLEHLO_SLICE", codes=0)
def slice_known(c: Context, x: Value) -> Value:
    options = c.options
    limits = {"start": options.start_indices, "limit": options.limit_indices}
    return c.op(
        "slice", x, stride=tuple(options.strides), **{k: tuple(v) for k, v in limits.items()}
    )


@lowering("STABLEHLO_DYNAMIC_SLICE", codes=0)
def dynamic_slice(c: Context, x: Value, *starts: Value) -> Value:
    starts = tuple(c.reshape(each, ()) for each in starts)
    return c.op("dynamic_slice", x, *starts, sizes=tuple(c.options.slice_sizes))


@lowering("DYNAMIC_UPDATE_SLICE", codes=EACH)
def dynamic_update_slice(c: Context, x: Value, update: Value, starts: Value) -> Value:
    return c.op("dynamic_update_slice", x, update, *_numbers(c, c.parts(starts)))


@lowering("STABLEHLO_DYNAMIC_UPDATE_SLICE", codes=EACH)
def dynamic_update_slice_at(c: Context, x: Value, update: Value, *starts: Value) -> Value:
    return c.op("dynamic_update_slice", x, update, *(c.reshape(each, ()) for each in starts))


@lowering("STRIDED_SLICE", codes=0)
def strided_slice(c: Context, x: Value, begin: Value, end: Value, strides: Value) -> Value:
    """NumPy's basic indexing, as masks say what each entry is."""
    options = c.options
    begins, ends, steps = c.parts(begin), c.parts(end), c.known(strides, "strides")
    shape: list[Dim] = []
    axis, rank = 0, type_of(x).rank
    count = len(steps)
    if len(begins) != count or len(ends) != count:
        raise UnsupportedNode(
            f"it has {len(begins)} beginnings, {len(ends)} ends and {count} strides, expected as "
            "many of each: fix the model"
        )
    every = (1 << count) - 1
    ellipses = (options.ellipsis_mask & every).bit_count()
    added = (options.new_axis_mask & ~options.ellipsis_mask & every).bit_count()
    if ellipses > 1 or count - added - ellipses > rank:
        raise UnsupportedNode(
            f"it has {count - added - ellipses} entries for axes and {ellipses} ellipses, expected "
            f"at most {rank} and 1: fix the model"
        )
    for at in range(count):
        if options.ellipsis_mask >> at & 1:
            width = rank - (count - added - 1)
            shape += shape_of(x)[axis : axis + width]
            axis += width
        elif options.new_axis_mask >> at & 1:
            shape.append(1)
        else:
            shrinks = bool(options.shrink_axis_mask >> at & 1)
            first: Dim | Value | None = begins[at]
            if options.begin_mask >> at & 1:
                first = 0 if shrinks else None
            last = None if options.end_mask >> at & 1 else ends[at]
            if options.offset and last is not None and first is not None and not shrinks:
                size = shape_of(x)[axis]
                first = dims.minimum(dims.maximum(_from_front(c, first, size), 0), size)
                last = first + c.size_of(last)
            x = _strided(c, x, axis, first, last, steps[at], shrinks)
            if not shrinks:
                shape.append(shape_of(x)[axis])
            axis += 1
    return c.reshape(x, [*shape, *shape_of(x)[axis:]])


def _strided(
    c: Context,
    x: Value,
    axis: int,
    first: Dim | Value | None,
    last: Dim | Value | None,
    step: int,
    shrinks: bool,
) -> Value:
    """One axis from `first` to `last`, None: from or to its end."""
    size = shape_of(x)[axis]
    if step == 0 or (shrinks and step < 0):
        expected = "1 or more where one index of it is taken" if shrinks else "not 0"
        raise UnsupportedNode(f"the stride of axis {axis} is {step}, expected {expected}: fix it")
    if shrinks:
        if isinstance(first, Value):
            index = c.reshape(first, (1,))
            return c.op("take", x, index, axis=axis, mode="wrap_check")
        start = _from_front(c, first, size)  # type: ignore[arg-type]
        if isinstance(start, int) and isinstance(size, int) and not 0 <= start < size:
            raise UnsupportedNode(
                f"its index {first} of axis {axis} is out of range: expected {-size} to {size - 1}"
            )
        return c.sliced(x, axis, start, start + 1)
    if step < 0:
        x = c.op("reverse", x, axes=(axis,))
        first, last = (None if each is None else size - 1 - _from_front(c, each, size)
                       for each in (first, last))  # fmt: skip
    start = 0 if first is None else _within(c, first, size, step < 0)
    limit = size if last is None else _within(c, last, size, step < 0)
    limit = dims.maximum(start, limit)
    return c.sliced(x, axis, start, limit, abs(step))


def _from_front(c: Context, place: Dim | Value, size: Dim) -> Dim:
    known = c.size_of(place)
    return known + size if isinstance(known, int) and known < 0 else known


def _within(c: Context, place: Dim | Value, size: Dim, counted: bool) -> Dim:
    """A place as one of 0 ... size; counted from the front already if `counted`."""
    known = c.size_of(place) if counted else _from_front(c, place, size)
    if known == 0:
        return 0
    return dims.minimum(dims.maximum(known, 0), size)


@lowering("PAD", codes=0)
def pad(c: Context, x: Value, pairs: Value, filling: Value | None = None) -> Value:
    """With 0, which in codes is the zero point."""
    sizes = c.dims(pairs)
    number: Value | float = 0 if filling is None else c.reshape(filling, ())
    tensor = c.inputs[0]
    if filling is None and tensor is not None and tensor.quantization:
        number = 0 if type_of(x).dtype.is_float else tensor.quantization.zeros[0]
    return c.padded(x, sizes[::2], sizes[1::2], number)


@lowering("PADV2", codes=EACH)
def pad_with(c: Context, x: Value, pairs: Value, filling: Value) -> Value:
    return pad(c, x, pairs, filling)


@lowering("STABLEHLO_PAD", codes=EACH)
def pad_known(c: Context, x: Value, filling: Value) -> Value:
    o, number = c.options, c.reshape(filling, ())
    return c.padded(x, o.edge_padding_low, o.edge_padding_high, number, o.interior_padding)


@lowering("MIRROR_PAD", codes=0)
def mirror_pad(c: Context, x: Value, pairs: Value) -> Value:
    """Mode REFLECT leaves the first element out of what is mirrored, SYMMETRIC does not."""
    sizes = c.known(pairs, "padding")
    skipped = 1 if c.options.mode == 0 else 0
    for axis in range(type_of(x).rank):
        low, high = sizes[2 * axis : 2 * axis + 2]
        size = shape_of(x)[axis]
        parts = [x]
        if low:
            front = c.sliced(x, axis, skipped, skipped + low)
            parts.insert(0, c.op("reverse", front, axes=(axis,)))
        if high:
            back = c.sliced(x, axis, size - skipped - high, size - skipped)
            parts.append(c.op("reverse", back, axes=(axis,)))
        x = c.op("concatenate", *parts, axis=axis) if len(parts) > 1 else x
    return x


@lowering("DILATE", codes=EACH)
def dilate(c: Context, x: Value, factors: Value, filling: Value) -> Value:
    inner = [each - 1 for each in c.known(factors, "dilations")]
    none = (0,) * len(inner)
    return c.padded(x, none, none, c.reshape(filling, ()), inner)


@lowering("TILE", codes=0)
def tile(c: Context, x: Value, counts: Value) -> Value:
    repeats, own = c.dims(counts), shape_of(x)
    wide = [dim for pair in zip(repeats, own, strict=True) for dim in pair]
    kept = tuple(range(1, 2 * len(own), 2))
    spread = c.op("broadcast", x, shape=tuple(wide), dimensions=kept)
    return c.reshape(spread, [n * dim for n, dim in zip(repeats, own, strict=True)])


@lowering("BROADCAST_TO", codes=0)
def broadcast_to(c: Context, x: Value, shape: Value) -> Value:
    return c.broadcast_to(x, c.common_shape(shape_of(x), c.dims(shape)))


@lowering("STABLEHLO_BROADCAST_IN_DIM", codes=0)
def broadcast_in_dim(c: Context, x: Value, shape: Value | None = None) -> Value:
    wanted = c.outputs[0].type.shape if shape is None else c.dims(shape)
    places = tuple(c.options.broadcast_dimensions)
    return c.op("broadcast", x, shape=tuple(wanted), dimensions=places)


@lowering("BROADCAST_ARGS", raw=True)
def broadcast_args(c: Context, a: Value, b: Value) -> Value:
    return c.sizes(c.common_shape(c.dims(a), c.dims(b)), c.outputs[0].dtype)


@lowering("REVERSE_V2", codes=0)
def reverse(c: Context, x: Value, axes: Value) -> Value:
    return c.op("reverse", x, axes=tuple(sorted({c.axis(a, x) for a in c.known(axes, "axes")})))


@lowering("SPACE_TO_DEPTH", codes=0)
def space_to_depth(c: Context, x: Value) -> Value:
    n, (batch, height, width, depth) = c.options.block_size, shape_of(x)
    rows, columns = dims.floordiv(height, n), dims.floordiv(width, n)
    parts = c.reshaped(x, (batch, rows, n, columns, n, depth))
    return c.reshape(c.transpose(parts, (0, 1, 3, 2, 4, 5)), (batch, rows, columns, n * n * depth))


@lowering("DEPTH_TO_SPACE", codes=0)
def depth_to_space(c: Context, x: Value) -> Value:
    n, (batch, height, width, depth) = c.options.block_size, shape_of(x)
    inner = dims.floordiv(depth, n * n)
    parts = c.reshaped(x, (batch, height, width, n, n, inner))
    moved = c.transpose(parts, (0, 1, 3, 2, 4, 5))
    return c.reshape(moved, (batch, height * n, width * n, inner))


@lowering("SPACE_TO_BATCH_ND", codes=0)
def space_to_batch(c: Context, x: Value, blocks: Value, pairs: Value) -> Value:
    sizes, paddings = c.known(blocks, "blocks"), c.known(pairs, "padding")
    count, rank = len(sizes), type_of(x).rank
    around = [(paddings[2 * at], paddings[2 * at + 1]) for at in range(count)]
    wide = c.sizes(
        [at for pair in [(0, 0), *around, *[(0, 0)] * (rank - count - 1)] for at in pair]
    )
    x = pad(c, x, wide)
    batch, *spatial = shape_of(x)[: count + 1]
    rest = shape_of(x)[count + 1 :]
    split = [
        dim for n, size in zip(sizes, spatial, strict=True) for dim in (dims.floordiv(size, n), n)
    ]
    parts = c.reshaped(x, (batch, *split, *rest))
    inner, outer = range(2, 2 * count + 1, 2), range(1, 2 * count, 2)
    moved = c.transpose(
        parts, (*inner, 0, *outer, *range(2 * count + 1, 2 * count + 1 + len(rest)))
    )
    return c.reshape(moved, (dims.product(sizes) * batch, *split[::2], *rest))


@lowering("BATCH_TO_SPACE_ND", codes=0)
def batch_to_space(c: Context, x: Value, blocks: Value, crops: Value) -> Value:
    sizes, cut = c.known(blocks, "blocks"), c.known(crops, "crops")
    count = len(sizes)
    batch, *spatial = shape_of(x)[: count + 1]
    rest = shape_of(x)[count + 1 :]
    parts = c.reshaped(x, (*sizes, dims.floordiv(batch, dims.product(sizes)), *spatial, *rest))
    order = [count]
    for at in range(count):
        order += [count + 1 + at, at]
    moved = c.transpose(parts, (*order, *range(2 * count + 1, 2 * count + 1 + len(rest))))
    wide = [size * n for size, n in zip(spatial, sizes, strict=True)]
    x = c.reshape(moved, (shape_of(moved)[0], *wide, *rest))
    for at in range(count):
        x = c.sliced(x, at + 1, cut[2 * at], wide[at] - cut[2 * at + 1])
    return x

"""Ops that move elements. Where only the shape changes, it is the one that the program notes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.compiler.frontends.emitter import UnsupportedNode, shape_of, type_of
from ingot.compiler.frontends.indexed import blocks_along, rolled, slice_range
from ingot.compiler.frontends.torch.lowering import TRAINING, Context, Scalar, lowering
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim, Expr

__all__ = ["concatenate"]


@lowering("aten.view.default", "aten._unsafe_view.default", "aten.unsqueeze.default",
          "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims", view=True)  # fmt: skip
@lowering("aten.reshape.default", "aten.flatten.using_ints", "aten.unflatten.int",
          "aten.view_as.default", "aten.reshape_as.default", "aten._reshape_alias.default",
          view=False)  # fmt: skip
@lowering("aten.view_copy.default", "aten.unsqueeze_copy.default", "aten.squeeze_copy.dim",
          "aten.squeeze_copy.dims")  # fmt: skip
def reshape(c: Context, x: Value, *_: Any, **__: Any) -> Value:
    return c.reshaped(x, c.shape)


@lowering("aten.expand.default", "aten.expand_as.default", "aten.broadcast_to.default", view=False)
@lowering("aten.expand_copy.default")
def expand(c: Context, x: Value, *_: Any, **__: Any) -> Value:
    return c.broadcast_to(x, c.shape)


@lowering("aten.detach.default", "aten.alias.default", "aten.dropout.default",
          "aten.feature_dropout.default", "aten.alpha_dropout.default", "aten.positive.default",
          view=True)  # fmt: skip
@lowering("aten.contiguous.default", view=False)
@lowering("aten.clone.default", "aten.lift_fresh.default", "aten.lift_fresh_copy.default",
          "aten.alias_copy.default", "aten.detach_copy.default",
          "aten.native_dropout.default")  # fmt: skip
def same(c: Context, x: Value, *given: Any, **__: Any) -> Value:
    """Dropout is of inference."""
    if len(given) > 1 and given[1] is True:
        raise UnsupportedNode(TRAINING)
    return x


@lowering("aten.copy.default")
def copy(c: Context, x: Value, source: Value, *_: Any) -> Value:
    return c.broadcast_to(c.convert(source, type_of(x).dtype), shape_of(x))


@lowering("aten.permute.default", view=True)
@lowering("aten.permute_copy.default")
def permute(c: Context, x: Value, order: Sequence[int]) -> Value:
    return c.transpose(x, [c.axis(axis, x) for axis in order])


@lowering("aten.transpose.int", view=True)
@lowering("aten.swapaxes.default", view=False)
def transpose(c: Context, x: Value, a: int, b: int) -> Value:
    order = list(range(type_of(x).rank))
    if order:
        a, b = c.axis(a, x), c.axis(b, x)
        order[a], order[b] = order[b], order[a]
    return c.transpose(x, order)


@lowering("aten.t.default", view=True)
@lowering("aten.mT.default", "aten.numpy_T.default", view=False)
def transpose_matrix(c: Context, x: Value) -> Value:
    return transpose(c, x, -2, -1) if type_of(x).rank >= 2 else x


@lowering("aten.movedim.int", "aten.movedim.intlist", view=False)
def move_axes(c: Context, x: Value, source: Any, target: Any) -> Value:
    rank = type_of(x).rank
    sources = [source] if isinstance(source, int) else source
    targets = [target] if isinstance(target, int) else target
    placed = {c.axis(to, x): c.axis(of, x) for of, to in zip(sources, targets, strict=True)}
    rest = iter([axis for axis in range(rank) if axis not in placed.values()])
    return c.transpose(x, [placed[at] if at in placed else next(rest) for at in range(rank)])


@lowering("aten.cat.default", "aten.concat.default", "aten.concatenate.default")
def concatenate(c: Context, tensors: Sequence[Value], axis: int = 0) -> Value:
    kept = [each for each in tensors if shape_of(each) != (0,)] or list(tensors[:1])
    axis = c.axis(axis, kept[0])
    values = [c.convert(each, c.dtype) for each in kept]
    for place, each in enumerate(values):
        shape = list(shape_of(values[0]))
        shape[axis] = shape_of(each)[axis]
        values[place] = c.agreed(each, shape)
    return values[0] if len(values) == 1 else c.op("concatenate", *values, axis=axis)


@lowering("aten.stack.default")
def stack(c: Context, tensors: Sequence[Value], axis: int = 0) -> Value:
    axis = c.axis(axis, type_of(tensors[0]).rank + 1)
    shape = list(shape_of(tensors[0]))
    shape.insert(axis, 1)
    values = [c.reshaped(c.convert(each, c.dtype), shape) for each in tensors]
    return values[0] if len(values) == 1 else c.op("concatenate", *values, axis=axis)


@lowering("aten.slice.Tensor", view=True)
@lowering("aten.slice_copy.Tensor")
def slice_(
    c: Context, x: Value, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    axis = c.axis(axis, x)
    first, last, step = slice_range(shape_of(x)[axis], start, end, step)
    return c.sliced(x, axis, first, last, step)


@lowering("aten.narrow.default", view=False)
@lowering("aten.narrow_copy.default")
def narrow(c: Context, x: Value, axis: int, start: Dim, length: Dim) -> Value:
    axis = c.axis(axis, x)
    if isinstance(start, int) and start < 0:
        start = shape_of(x)[axis] + start
    return c.sliced(x, axis, start, start + length)


@lowering("aten.select.int", view=True)
@lowering("aten.select_copy.int")
def select(c: Context, x: Value, axis: int, index: Dim) -> Value:
    axis = c.axis(axis, x)
    size = shape_of(x)[axis]
    if isinstance(index, int) and index < 0:
        index = size + index
    if not isinstance(index, Expr) or dims.prove_le(index + 1, size, c.amounts.symbols.bounds):
        part = c.sliced(x, axis, index, index + 1)
        return c.reshape(part, [dim for at, dim in enumerate(shape_of(x)) if at != axis])
    return c.op("take", x, c.size(index), axis=axis, mode="wrap_check")


def _parts(c: Context, x: Value, axis: int, sizes: Sequence[Dim]) -> list[Value]:
    parts: list[Value] = []
    start: Dim = 0
    for length in sizes:
        parts.append(c.sliced(x, axis, start, start + length))
        start = start + length
    return parts


@lowering("aten.split.Tensor", "aten.split.sizes", "aten.split_with_sizes.default",
          "aten.chunk.default", "aten.tensor_split.sections", view=False)  # fmt: skip
@lowering("aten.split_copy.Tensor", "aten.split_with_sizes_copy.default")
def split(c: Context, x: Value, _: Any, axis: int = 0) -> list[Value]:
    """Into parts of the sizes that the program notes."""
    axis = c.axis(axis, x)
    shapes = [type.shape for type in c.declared if type is not None]
    return _parts(c, x, axis, [shape[axis] for shape in shapes])


@lowering("aten.unbind.int", view=False)
@lowering("aten.unbind_copy.int")
def unbind(c: Context, x: Value, axis: int = 0) -> list[Value]:
    axis = c.axis(axis, x)
    shape = [dim for at, dim in enumerate(shape_of(x)) if at != axis]
    return [c.reshape(each, shape) for each in _parts(c, x, axis, [1] * len(c.declared))]


@lowering("aten.repeat.default", "aten.tile.default")
def repeat(c: Context, x: Value, repeats: Sequence[Dim]) -> Value:
    own: list[Dim] = [*[1] * (len(repeats) - type_of(x).rank), *shape_of(x)]
    times: list[Dim] = [*[1] * (len(own) - len(repeats)), *repeats]
    split_shape = [each for dim in own for each in (1, dim)]
    spread = [each for pair in zip(times, own, strict=True) for each in pair]
    wide = c.broadcast_to(c.reshape(x, split_shape), spread)
    return c.reshape(wide, [n * dim for n, dim in zip(times, own, strict=True)])


@lowering("aten.repeat_interleave.self_int")
def repeat_elements(
    c: Context, x: Value, times: Dim, dim: int | None = None, *, output_size: Any = None
) -> Value:
    if dim is None:
        x, dim = c.flat(x), 0
    return c.repeated(x, c.axis(dim, x), times)


@lowering("aten.flip.default")
def flip(c: Context, x: Value, axes: Sequence[int]) -> Value:
    found = tuple(sorted(c.axis(axis, x) for axis in axes))
    return c.op("reverse", x, axes=found) if found and type_of(x).rank else x


@lowering("aten.roll.default")
def roll(c: Context, x: Value, shifts: Any, axes: Any = ()) -> Value:
    shape = shape_of(x)
    shifts = [shifts] if not isinstance(shifts, (list, tuple)) else shifts
    if not axes:
        flat = c.reshape(x, (dims.product(shape),))
        return c.reshape(rolled(c, flat, 0, shifts[0]), shape)
    for shift, axis in zip(shifts, axes, strict=True):
        x = rolled(c, x, c.axis(axis, x), shift)
    return x


_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@lowering("aten.constant_pad_nd.default")
def pad_with_constant(c: Context, x: Value, pads: Sequence[Dim], value: Scalar = 0) -> Value:
    """Pads come in pairs from the last axis on."""
    low, high = _pads(c, x, pads)
    filling = c.reshape(c.scalar(value, type_of(x).dtype), ())
    return c.padded(x, low, high, filling)


def _pads(c: Context, x: Value, pads: Sequence[Dim]) -> tuple[list[Dim], list[Dim]]:
    rank = type_of(x).rank
    low: list[Dim] = [0] * rank
    high: list[Dim] = [0] * rank
    for place in range(len(pads) // 2):
        low[rank - 1 - place], high[rank - 1 - place] = pads[2 * place], pads[2 * place + 1]
    return low, high


@lowering("aten.pad.default")
def pad(
    c: Context, x: Value, pads: Sequence[Dim], mode: str = "constant", value: Any = None
) -> Value:
    if mode == "constant":
        return pad_with_constant(c, x, pads, 0 if value is None else value)
    if mode not in _MODES:
        raise UnsupportedNode(f"mode '{mode}' is not known")
    low, high = _pads(c, x, pads)
    for axis, (before, behind) in enumerate(zip(low, high, strict=True)):
        if (before, behind) != (0, 0):
            x = _pad_by_index(c, x, axis, before, behind, _MODES[mode])
    return x


def _pad_by_index(c: Context, x: Value, axis: int, low: Dim, high: Dim, mode: str) -> Value:
    size = shape_of(x)[axis]
    length = low + size + high
    places = c.op("iota", dtype=c.scalar(0, "i64").dtype, shape=(length,), axis=0)
    places = c.op("sub", places, c.filled(low, "i64", (length,)))
    last = c.filled(size - 1, "i64", (length,))
    zero = c.fill(0, like=places)
    if mode == "edge":
        places = c.op("clamp", zero, places, last)
    elif mode == "wrap":
        whole = c.filled(size, "i64", (length,))
        places = c.op("rem", c.op("add", places, whole), whole)
    else:
        places = c.op("abs", places)
        over = c.op("max", c.op("sub", places, last), zero)
        places = c.op("sub", places, c.op("add", over, over))
    return c.op("take", x, places, axis=axis, mode="check")


for _count in (1, 2, 3):
    for _kind in ("reflection", "replication"):

        def _lower(
            c: Context, x: Value, pads: Sequence[Dim],
            mode: str = "reflect" if _kind == "reflection" else "replicate",
        ) -> Value:  # fmt: skip
            return pad(c, x, pads, mode)

        lowering(f"aten.{_kind}_pad{_count}d.default")(_lower)


@lowering("aten.pixel_shuffle.default")
def pixel_shuffle(c: Context, x: Value, factor: int) -> Value:
    *batch, channels, height, width = shape_of(x)
    inner = dims.floordiv(channels, factor * factor)
    count = len(batch)
    parts = c.reshape(x, (*batch, inner, factor, factor, height, width))
    order = [*range(count), count, count + 3, count + 1, count + 4, count + 2]
    return c.reshape(c.transpose(parts, order), c.shape)


@lowering("aten.pixel_unshuffle.default")
def pixel_unshuffle(c: Context, x: Value, factor: int) -> Value:
    *batch, channels, height, width = shape_of(x)
    rows, columns = dims.floordiv(height, factor), dims.floordiv(width, factor)
    count = len(batch)
    parts = c.reshape(x, (*batch, channels, rows, factor, columns, factor))
    order = [*range(count), count, count + 2, count + 4, count + 1, count + 3]
    return c.reshape(c.transpose(parts, order), c.shape)


@lowering("aten.channel_shuffle.default")
def channel_shuffle(c: Context, x: Value, groups: int) -> Value:
    batch, channels, *rest = shape_of(x)
    parts = c.reshape(x, (batch, groups, dims.floordiv(channels, groups), *rest))
    order = [0, 2, 1, *range(3, 3 + len(rest))]
    return c.reshape(c.transpose(parts, order), shape_of(x))


@lowering("aten.meshgrid.default", "aten.meshgrid.indexing")
def meshgrid(c: Context, tensors: Sequence[Value], *, indexing: str = "ij") -> list[Value]:
    shape = c.shape
    results = []
    for place, each in enumerate(tensors):
        axis = 1 - place if indexing == "xy" and place < 2 and len(tensors) > 1 else place
        flat = c.flat(each)
        results.append(c.op("broadcast", flat, shape=shape, dimensions=(axis,)))
    return results


@lowering("aten.unfold.default", view=False)
@lowering("aten.unfold_copy.default")
def unfold(c: Context, x: Value, axis: int, size: int, step: int) -> Value:
    """Windows of an axis; their elements are a new axis behind all others."""
    if not type_of(x).rank:
        return c.sliced(c.reshape(x, (1,)), 0, 0, size)
    axis, rank = c.axis(axis, x), type_of(x).rank
    order = [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1]
    return c.transpose(blocks_along(c, x, axis, size, step), order)

"""What windows took from a tensor goes back to its place: MaxUnpool and Col2Im."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim
from ingot.hal.spec import dtype

__all__: list[str] = []


@lowering("MaxUnpool")
def max_unpool(node: Node) -> Value:
    """The elements of x at the places that MaxPool notes, and 0 elsewhere."""
    x, indices = node.input(0), node.input(1)
    shape = shape_of(x)
    sizes = node.integers("kernel_shape") or ()
    count = len(shape) - 2
    strides = node.integers("strides") or (1,) * count
    pads = node.integers("pads") or (0,) * (2 * count)
    unsupported(
        not len(sizes) == len(strides) == count or len(pads) != 2 * count,
        f"its window {sizes}, strides {strides} and pads {pads} do not fit {x.type}: fix the model",
    )
    columns = zip(shape[2:], sizes, strides, pads[:count], pads[count:], strict=True)
    spatial = [(dim - 1) * step - low - high + size for dim, size, step, low, high in columns]
    inferred: tuple[Dim, ...] = (*shape[:2], *spatial)
    total = dims.product(inferred)
    flat = node.op(
        "scatter",
        node.full(0, type_of(x).dtype, (total,)),
        node.reshape(indices, (dims.product(shape), 1)),
        node.reshape(x, (dims.product(shape),)),
        update_window_dims=(),
        inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,),
        index_vector_dim=1,
        kind="set",
        mode="wrap_check",
    )
    result = node.reshape(flat, inferred)
    if node.optional(2) is None:
        return result
    wanted = node.define_dims(2, "the output_shape")
    unsupported(len(wanted) != len(inferred), f"its output_shape {wanted} does not fit {x.type}")
    high = tuple(dim - own for dim, own in zip(wanted, inferred, strict=True))
    zeros = (0,) * len(inferred)
    element = node.constant(0, type_of(x).dtype)
    return node.op("pad", result, element, low=zeros, high=high, interior=zeros)


@lowering("Col2Im")
def column_to_image(node: Node) -> Value:
    """[b, c * block, places] -> [b, c, image...]: blocks laid over each other and summed."""
    x = node.input(0)
    image, block = (
        node.define_dims(index, f"the {what}_shape") for index, what in ((1, "image"), (2, "block"))
    )
    count = len(image)
    strides = node.integers("strides") or (1,) * count
    dilations = node.integers("dilations") or (1,) * count
    pads = node.integers("pads") or (0,) * (2 * count)
    unsupported(
        not len(block) == len(strides) == len(dilations) == count or len(pads) != 2 * count,
        f"its blocks {block}, strides {strides}, dilations {dilations} and pads {pads} do not fit "
        f"an image of {count} dims: fix the model",
    )
    places = [
        (image[a] + pads[a] + pads[count + a] - (block[a] - 1) * dilations[a] - 1) // strides[a] + 1
        for a in range(count)
    ]
    batch, columns, number = shape_of(x)
    taps, expected = dims.product(block), dims.product(places)
    if any(isinstance(each, int) and each < 1 for each in (taps, *places)) or (
        isinstance(expected, int) and isinstance(number, int) and expected != number
    ):
        raise UnsupportedNode(
            f"{x.type} has {number} blocks, but there are {places} places for them: fix the model"
        )
    channels = dims.floordiv(columns, taps)
    split = node.reshape(x, (batch, channels, taps, *places))
    if not all(isinstance(size, int) for size in block):
        return _lay_all(node, split, block, image, strides, dilations, pads)
    result: Value | None = None
    for tap in range(int(taps)):  # type: ignore[arg-type]
        start = (0, 0, tap, *(0 for _ in places))
        one = node.op("slice", split, start=start, limit=(batch, channels, tap + 1, *places))
        one = node.reshape(one, (batch, channels, *places))
        laid = _lay(node, one, _offsets(tap, block, dilations), image, strides, pads)  # type: ignore[arg-type]
        result = laid if result is None else node.op("add", result, laid)
    assert result is not None
    return result


def _lay_all(
    node: Node,
    x: Value,
    block: Sequence[Dim],
    image: Sequence[Dim],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> Value:
    """[b, c, taps, places...] of blocks whose sizes only the call knows: [b, c, image...]."""
    batch, channels, _, *places = shape_of(x)
    shape = (*block, *places)
    count = len(block)
    index, fits = node.full(0, "i64", shape), node.full(True, "i1", shape)
    for axis, size in enumerate(image):
        tap, place = (
            node.op("iota", dtype=dtype("i64"), shape=shape, axis=each)
            for each in (axis, count + axis)
        )
        at = node.op(
            "add",
            node.op("mul", tap, node.fill(dilations[axis], like=tap)),
            node.op("mul", place, node.fill(strides[axis], like=place)),
        )
        at = node.op("sub", at, node.fill(pads[axis], like=at))
        end = node.broadcast_to(node.size(size), shape)
        inside = node.compare("ge", at, node.fill(0, like=at))
        fits = node.op("and", fits, node.op("and", inside, node.compare("lt", at, end)))
        index = node.op("add", node.op("mul", index, end), at)
    index = node.op("select", fits, index, node.fill(-1, like=index))  # which `skip` leaves out
    total, number = dims.product(image), dims.product(shape)
    result = node.op(
        "scatter",
        node.full(0, type_of(x).dtype, (batch, channels, total)),
        node.reshape(index, (number, 1)),
        node.reshape(x, (batch, channels, number)),
        update_window_dims=(0, 1),
        inserted_window_dims=(2,),
        scatter_dims_to_operand_dims=(2,),
        index_vector_dim=1,
        kind="add",
        mode="skip",
    )
    return node.reshape(result, (batch, channels, *image))


def _offsets(tap: int, block: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Where element number `tap` of a block lies in it, per axis."""
    offsets: list[int] = []
    for size, step in zip(reversed(block), reversed(dilations), strict=True):
        tap, place = divmod(tap, size)
        offsets.insert(0, place * step)
    return offsets


def _lay(
    node: Node,
    x: Value,
    offsets: Sequence[int],
    image: Sequence[Dim],
    strides: Sequence[int],
    pads: Sequence[int],
) -> Value:
    """[b, c, places...] spread by the strides from an offset on: [b, c, image...]."""
    low = [offset - pad for offset, pad in zip(offsets, pads, strict=False)]
    reach = [(dim - 1) * step + 1 for dim, step in zip(shape_of(x)[2:], strides, strict=True)]
    high = [size - first - length for size, first, length in zip(image, low, reach, strict=True)]
    return node.op(
        "pad",
        x,
        node.constant(0, type_of(x).dtype),
        low=(0, 0, *low),
        high=(0, 0, *high),
        interior=(0, 0, *(step - 1 for step in strides)),
    )

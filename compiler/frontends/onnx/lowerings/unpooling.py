"""What windows took from a tensor goes back to its place: MaxUnpool and Col2Im."""

from __future__ import annotations

from ingot.compiler.frontends.indexed import scatter_rows
from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import lowering
from ingot.compiler.frontends.sum_blocks import lay_blocks
from ingot.compiler.ir import Value, dims
from ingot.compiler.ir.dims import Dim

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
    flat = node.full(0, type_of(x).dtype, (dims.product(inferred),))
    flat = scatter_rows(node, flat, node.flat(indices), node.flat(x), "set", "wrap_check")
    result = node.reshape(flat, inferred)
    if node.optional(2) is None:
        return result
    wanted = node.define_dims(2, "the output_shape")
    unsupported(len(wanted) != len(inferred), f"its output_shape {wanted} does not fit {x.type}")
    high = tuple(dim - own for dim, own in zip(wanted, inferred, strict=True))
    return node.padded(result, (0,) * len(inferred), high)


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
    return lay_blocks(node, split, block, image, strides, dilations, pads)

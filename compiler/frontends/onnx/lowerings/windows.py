"""Reads the attributes that convolutions and poolings share: strides, pads, dilations, auto_pad."""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.frontends.onnx.node import Node, UnsupportedNode
from ingot.compiler.frontends.pooling import Window, same_padding
from ingot.compiler.ir.dims import Dim

__all__ = ["read_window"]


def read_window(node: Node, spatial: Sequence[Dim], sizes: Sequence[Dim]) -> Window:
    """The window of a node whose input has the dims `spatial`. UnsupportedNode: bad attributes."""
    count = len(spatial)
    strides = node.integers("strides") or (1,) * count
    dilations = node.integers("dilations") or (1,) * count
    pads = node.integers("pads") or (0,) * 2 * count
    if not len(sizes) == len(strides) == len(dilations) == count or len(pads) != 2 * count:
        raise UnsupportedNode(
            f"its window {tuple(sizes)}, strides {strides}, dilations {dilations} and pads {pads} "
            f"do not fit {count} spatial dims: fix the model"
        )
    if min((*strides, *dilations), default=1) < 1:
        raise UnsupportedNode(f"strides {strides} and dilations {dilations} must be positive")
    mode = node.text("auto_pad", "NOTSET")
    padding: tuple[tuple[Dim, Dim], ...]
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        padding = same_padding(spatial, sizes, strides, dilations, upper=mode == "SAME_UPPER")
    elif mode == "VALID":
        padding = ((0, 0),) * count
    else:
        padding = tuple(zip(pads[:count], pads[count:], strict=True))
    return Window(tuple(sizes), tuple(strides), padding, tuple(dilations))

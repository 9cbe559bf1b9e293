"""MaxpoolWithMask: each row of a window ends where the mask is 0."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.compiler.frontends.onnx.lowerings.windows import read_window
from ingot.compiler.frontends.onnx.node import Node, shape_of, type_of, unsupported
from ingot.compiler.frontends.onnx.registry import MICROSOFT, lowering
from ingot.compiler.frontends.windows import Windows
from ingot.compiler.graph.builder import Builder
from ingot.compiler.graph.control.build_control import counted_loop
from ingot.compiler.ir import Value
from ingot.hal.spec import dtype

__all__: list[str] = []


@lowering("MaxpoolWithMask", domain=MICROSOFT)
def max_pool_with_mask(node: Node) -> Value:
    """x[batch, channels, spatial...] and a mask [1, 1, spatial...]: the greatest element of each
    window that no 0 of the mask in its row comes before or meets. As in onnxruntime, the very
    first element of the mask counts as 1 where there are several axes."""
    x, mask = node.input(0), node.input(1)
    shape = shape_of(x)
    unsupported(
        type_of(mask).rank != type_of(x).rank or shape_of(mask)[:2] != (1, 1),
        f"its mask is {mask.type} for {x.type}, expected one for all channels, [1, 1, ...]: "
        "onnxruntime reads others at places that belong to no channel",
    )
    mask = node.agree(mask, (1, 1, *shape[2:]))
    window = read_window(node, shape[2:], node.integers("kernel_shape") or ())
    low, high = (tuple(pair[end] for pair in ((0, 0), (0, 0), *window.padding)) for end in (0, 1))
    passes = node.compare("ne", mask, 0)
    if len(shape) > 3:
        flat = shape_of(node.flat(mask))
        numbers = node.op("iota", dtype=dtype("i64"), shape=flat, axis=0)
        first = node.reshape(node.compare("eq", numbers, 0), shape_of(mask))
        passes = node.op("or", first, passes)
    passes = node.broadcast_to(passes, shape)

    lowest = float(np.finfo(type_of(x).dtype.numpy).min)
    x, passes = node.padded(x, low, high, lowest), node.padded(passes, low, high, True)
    windows = Windows(
        (1, 1, *window.sizes), (1, 1, *window.strides), (1, 1, *window.dilations), shape_of(x)
    )

    def step(inner: Builder, index: Value, before: Sequence[Value]) -> Sequence[Value]:
        best, runs = before
        column, zero = windows.taps(inner, index)[-1], inner.number(0, "i64")
        new_row = inner.value("compare", column, zero, direction="eq")
        runs = inner.value("or", runs, inner.broadcast_to(new_row, windows.places))
        runs = inner.value("and", runs, windows.elements(inner, passes, index))
        value = windows.elements(inner, x, index)
        return [inner.value("select", runs, inner.value("max", best, value), best), runs]

    initial = [
        node.full(lowest, type_of(x).dtype, windows.places),
        node.full(True, "i1", windows.places),
    ]
    return counted_loop(node.builder, node.size(windows.count), initial, step)[0]

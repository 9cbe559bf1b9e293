"""Makes convolutions of one pixel products of the weight and the pixels, where images lie channels
first and nothing around them is better off channels last.

To move an image to channels last and the result back reads and writes both twice, which for few
channels takes longer than the products: 16 to 96 features of 112 x 112 pixels 430 us as such a
product, 750 as a convolution (one thread with AVX-512). Element-wise ops behind it see pixels
as one axis, too, so that they stay in its kernel. Several images share a weight that is repeated
for each, if that is far shorter than they are, or only the call knows how long they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.round_rows import precision_of
from ingot.compiler.graph.ops import Broadcast, Convolution, lookup, parse_layout
from ingot.compiler.graph.rewriter import defined_by, rewrite, tensor_ops, weights_of
from ingot.compiler.ir import Function, Module, Op, TensorType, Value
from ingot.compiler.ir.dims import Dim, known_dims, product

__all__ = ["multiply_pixels"]

_LEAST_PIXELS = 64
"""512 features of 7 x 7 pixels to 2048 and back take the same either way."""

_SHARE = 4
"""Elements of images, and of what is made of them, for each of a weight that is repeated."""

_LAYOUTS = frozenset({"convolution", "reduce_window", "transpose"})
"""Ops that want a layout of their own, or are there because the source changes it."""

_LINKS = _LAYOUTS | {
    "broadcast", "concatenate", "cumulative", "pad", "reduce", "reshape", "reverse", "slice",
}  # fmt: skip
"""Ops beside element-wise ones past which a layout moves."""


def multiply_pixels(module: Module) -> Module:
    """Rewrite the convolutions of every function; returns the module."""
    if precision_of(module) != "f32":
        return module
    for function in module.functions.values():
        chosen = _chosen(function)
        if chosen:
            rewrite(function.block, _Pixels(chosen).rule)
    return module


def _chosen(function: Function) -> set[Op]:
    """The convolutions that become products: all of a part of the program that has one layout, as
    one that goes to channels last moves the others there."""
    weights = weights_of(function)
    ops = list(tensor_ops(function.block))
    found = {op for op in ops if op.name == "convolution" and _is_product(op, weights)}
    if not found:
        return found
    parts = _Parts()
    for op in ops:
        if op.name == "convolution":
            linked = [op.operands[0], op.result]
        elif op.name in _LINKS or lookup(op.name).family == "elementwise":
            linked = [*op.operands, *op.results]
        else:
            continue
        parts.join([value for value in linked if value not in weights])
    others = (op for op in ops if op.name in _LAYOUTS and op not in found)
    refused = {parts.root(op.result) for op in others}
    return {op for op in found if parts.root(op.result) not in refused}


class _Parts:
    """Disjoint sets of values."""

    def __init__(self) -> None:
        self.above: dict[Value, Value] = {}

    def root(self, value: Value) -> Value:
        """What stands for the set of the value."""
        while (above := self.above.get(value, value)) is not value:
            self.above[value] = self.above.get(above, above)
            value = above
        return value

    def join(self, values: Sequence[Value]) -> None:
        """Make one set of theirs."""
        for value in values[1:]:
            self.above[self.root(value)] = self.root(values[0])


def _is_product(op: Op, weights: set[Value]) -> bool:
    """Whether the op is a convolution that is best done as a product of its weight and the pixels
    as they lie, if it stands alone."""
    if op.operands[1] not in weights:
        return False
    x, w, result = map(tensor_type, (*op.operands, op.result))
    convolution = Convolution.of(op)
    axes = parse_layout(convolution.layout)
    firsts = (axes.batch, axes.feature, axes.result_batch, axes.result_feature)
    in_order = axes.spatial == axes.result_spatial == tuple(range(2, x.rank))
    if firsts != (0, 1, 0, 1) or not in_order or convolution.groups != 1:
        return False
    if x.dtype.name not in ("f32", "f64") or w.dtype is not x.dtype or result.dtype is not x.dtype:
        return False
    steps = (*convolution.strides, *convolution.lhs_dilation)
    window = (w.shape[axis] for axis in axes.weight_spatial)
    no_padding = all(pair == (0, 0) for pair in convolution.padding)
    if not no_padding or any(each != 1 for each in (*steps, *window)):
        return False
    outputs, inputs = known_dims((w.shape[axes.weight_output], w.shape[axes.weight_input]))
    pixels = product(x.shape[2:])
    if not isinstance(pixels, int):
        return True
    is_short = x.shape[0] == 1 or _SHARE * outputs * inputs <= (outputs + inputs) * pixels
    return pixels >= _LEAST_PIXELS and is_short


class _Pixels:
    """`flat` knows of values [n, c, spatial...] those that have pixels as one axis: [n, c, pixels],
    or of one image [c, pixels]."""

    def __init__(self, chosen: set[Op]) -> None:
        self.chosen = chosen
        self.flat: dict[Value, Value] = {}

    def rule(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        if op in self.chosen:
            return [self._known(self._product(op, builder), op, builder)]
        if not any(operand in self.flat for operand in op.operands):
            return None
        if lookup(op.name).family != "elementwise":
            return None
        shape = tensor_type(op.result).shape
        if any(tensor_type(operand).shape != shape for operand in op.operands):
            return None
        operands = []
        for operand in op.operands:
            if (flat := self._flattened(operand, builder)) is None:
                return None
            operands.append(flat)
        return [self._known(builder.like(op, *operands), op, builder)]

    def _known(self, y: Value, op: Op, builder: Builder) -> Value:
        """What stands for the result of the op, which y is with pixels as one axis."""
        result = builder.value("reshape", y, shape=tensor_type(op.result).shape)
        self.flat[result] = y
        return result

    def _product(self, op: Op, builder: Builder) -> Value:
        axes, dtype = parse_layout(Convolution.of(op).layout), Convolution.of(op).dtype
        x = self._flattened(op.operands[0], builder)
        if x is None:
            x = builder.reshape(op.operands[0], _flat_shape(tensor_type(op.operands[0])))
        w_order = (axes.weight_output, axes.weight_input, *axes.weight_spatial)
        w = builder.transpose(op.operands[1], w_order)
        w = builder.reshape(w, tensor_type(w).shape[:2])
        batch: tuple[int, ...] = ()
        if tensor_type(x).rank == 3:
            shape = (tensor_type(x).shape[0], *tensor_type(w).shape)
            w, batch = builder.value("broadcast", w, shape=shape, dimensions=(1, 2)), (0,)
        depth = len(batch)
        return builder.value(
            "dot_general", w, x, lhs_batch=batch, rhs_batch=batch,
            lhs_contract=(depth + 1,), rhs_contract=(depth,), dtype=dtype,
        )  # fmt: skip

    def _flattened(self, value: Value, builder: Builder) -> Value | None:
        """The value with pixels as one axis; None where it changes along some of them only."""
        if value in self.flat:
            return self.flat[value]
        shape = _flat_shape(tensor_type(value))
        op = defined_by(value, "broadcast")
        if op is None:
            return builder.reshape(value, shape)
        source = tensor_type(op.operands[0]).shape
        places = Broadcast.of(op).dimensions
        kept = [axis for axis, dim in enumerate(source) if dim != 1]
        if any(places[axis] > 1 for axis in kept):
            return None
        first = 2 - (len(shape) - 1)  # of the axes that stay
        x = builder.reshape(op.operands[0], [source[axis] for axis in kept])
        dimensions = tuple(places[axis] - first for axis in kept)
        return builder.value("broadcast", x, shape=shape, dimensions=dimensions)


def _flat_shape(type: TensorType) -> tuple[Dim, ...]:
    images, channels, *sizes = type.shape
    shape = (channels, product(sizes))
    return shape if images == 1 else (images, *shape)

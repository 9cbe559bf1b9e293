"""Brings convolutions and windows to channels last and moves the transposes away.

Each convolution gets transposes around it. A transpose behind an op then sinks through
the ops that follow (element-wise, reductions, windows, pads, concatenates, reshapes)
until it meets the inverse transpose of the next convolution, so that a whole network
runs channels last with one transpose at its input. Windows whose operand lies channels first
stay so, unless their rows are short. Transposes that the source program wrote are left where
they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.reshapes import reshape_groups
from ingot.compiler.graph.ops import (
    AlongAxis,
    Broadcast,
    Convolution,
    DotGeneral,
    Iota,
    Reduce,
    ReduceWindow,
    Reshape,
    Reverse,
    Take,
    Transpose,
    lookup,
    parse_layout,
    picked,
)
from ingot.compiler.graph.rewriter import defined_by, is_static, rewrite, weights_of
from ingot.compiler.ir import Module, Op, Value, dims
from ingot.compiler.ir.attributes import Attributes

__all__ = ["choose_layout"]

_SHORT_ROW = 8  # results of a window
_SHORT_OPERAND = 16
"""Elements of an operand's row up to which moving it to channels last and back takes less: the
greatest of 3 x 3 of 256 x 14 x 14 take 29 us with AVX-512, by rows 40; of 2 x 2 with steps of 2 of
256 x 28 x 28 62 and 36."""

_LEAST_CHANNELS = 16
_WIDE_WINDOW = 1024  # elements along the last axis, times the steps


def choose_layout(module: Module) -> Module:
    """Bring every function to channels last; returns the module."""
    for function in module.functions.values():
        rewrite(function.block, _Sinker(weights_of(function)).rule)
    return module


class _Sinker:
    """`origin` knows of each value behind a transpose: the value before it, permutation."""

    def __init__(self, weights: set[Value]) -> None:
        self.weights = weights
        self.origin: dict[Value, tuple[Value, tuple[int, ...]]] = {}
        self.made: set[Op] = set()

    def rule(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        if op in self.made or not op.results or op.regions:
            return None
        if op.name == "transpose":
            return self.cancel(op, builder)
        if op.name == "convolution":
            return self.convolution(op, builder)
        if op.name == "reduce_window" and _is_channels_first(op):
            return self.window(op, builder) if self.is_moved(op) else None
        if op.name == "dot_general":
            return self.flattened(op, builder)
        if not any(operand in self.origin for operand in op.operands):
            return None
        if lookup(op.name).family == "elementwise":
            return self.elementwise(op, builder)
        sink = _SINKS.get(op.name)
        return None if sink is None else sink(self, op, builder)

    # Building

    def op(self, builder: Builder, name: str, *operands: Value, **attributes: Any) -> Value:
        """An op that this pass has placed and will not look at again."""
        made = builder.append(name, operands, (), attributes)
        self.made.add(made)
        return made.result

    def like(
        self, builder: Builder, op: Op, *operands: Value, attributes: Attributes | None = None
    ) -> Value:
        """As `op`, like one that is there."""
        made = builder.append(op.name, operands, (), attributes or op.attributes)
        self.made.add(made)
        return made.result

    def before(self, x: Value, permutation: Sequence[int], builder: Builder) -> Value:
        """x transposed, where possible by taking a transpose back."""
        permutation = tuple(permutation)
        if x in self.origin:
            source, first = self.origin[x]
            return self.before(source, [first[axis] for axis in permutation], builder)
        if permutation == tuple(range(len(permutation))):
            return x
        result = self.op(builder, "transpose", x, permutation=permutation)
        if x in self.weights:
            self.weights.add(result)
        return result

    def behind(self, x: Value, permutation: Sequence[int], builder: Builder) -> Value:
        """x transposed by a transpose that sinks on."""
        if list(permutation) == list(range(len(permutation))):
            return x
        result = self.op(builder, "transpose", x, permutation=tuple(permutation))
        self.origin[result] = (x, tuple(permutation))
        return result

    # Ops

    def cancel(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        """A transpose of the source merges with one that sank to it."""
        x = op.operands[0]
        if x not in self.origin:
            return None
        source, first = self.origin[x]
        merged = [first[axis] for axis in Transpose.of(op).permutation]
        if merged == list(range(len(merged))):
            return [source]
        return [self.op(builder, "transpose", source, permutation=tuple(merged))]

    def convolution(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        layout = Convolution.of(op).layout
        axes = parse_layout(layout)
        letters = [layout[axis] for axis in axes.spatial]
        name = "".join(letters)
        x_order = (axes.batch, *axes.spatial, axes.feature)
        w_order = (*axes.weight_spatial, axes.weight_input, axes.weight_output)
        result_order = (axes.result_batch, *axes.result_spatial, axes.result_feature)
        x, w = op.operands
        attributes = replace(Convolution.of(op), layout=f"n{name}c,{name}io->n{name}c")
        if attributes == op.attributes:
            return None
        x, w = self.before(x, x_order, builder), self.before(w, w_order, builder)
        result = self.like(builder, op, x, w, attributes=attributes)
        return [self.behind(result, _inverse(result_order), builder)]

    def window(self, op: Op, builder: Builder) -> Sequence[Value]:
        rank = tensor_type(op.result).rank
        order = (0, *range(2, rank), 1)
        return self.moved_window(op, order, builder)

    def is_moved(self, op: Op) -> bool:
        """Whether a window goes to channels last: kernels take channels first, too, so where its
        operand does not lie so already only if rows are shorter than vectors."""
        extent, window = tensor_type(op.result).shape[-1], ReduceWindow.of(op)
        is_short = isinstance(extent, int) and extent < _SHORT_ROW
        _, channels, *_, row = tensor_type(op.operands[0]).shape
        if isinstance(row, int) and isinstance(channels, int):
            is_short |= row <= _SHORT_OPERAND and channels >= _LEAST_CHANNELS
        width = dims.product((window.window[-1], window.strides[-1], window.window_dilation[-1]))
        is_narrow = isinstance(width, int) and width <= _WIDE_WINDOW
        return is_short or not is_narrow or op.operands[0] in self.origin

    def moved_window(self, op: Op, order: Sequence[int], builder: Builder) -> Sequence[Value]:
        """The window op on its operand transposed by `order`."""
        x = self.before(op.operands[0], order, builder)
        attributes = picked(op.attributes, order)
        result = self.like(builder, op, x, attributes=attributes)
        return [self.behind(result, _inverse(order), builder)]

    def elementwise(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        permutation = self.common(op.operands, builder)
        if permutation is None:
            return None
        inverse = _inverse(permutation)
        operands = [self.taken_back(operand, inverse, builder) for operand in op.operands]
        result = self.like(builder, op, *operands)
        return [self.behind(result, permutation, builder)]

    def common(self, operands: Sequence[Value], builder: Builder) -> tuple[int, ...] | None:
        """The permutation of all operands that have one, if all others cost nothing to move."""
        found = {self.origin[operand][1] for operand in operands if operand in self.origin}
        if len(found) != 1:
            return None
        for operand in operands:
            free = operand in self.origin or operand in self.weights
            if not free and defined_by(operand, "broadcast", "iota") is None:
                return None
        return found.pop()

    def taken_back(self, x: Value, inverse: Sequence[int], builder: Builder) -> Value:
        """x transposed by `inverse`: from before its transpose, or moved where that is free."""
        op = defined_by(x, "broadcast", "iota")
        if x in self.origin or op is None:
            return self.before(x, inverse, builder)
        shape = tuple(tensor_type(x).shape[axis] for axis in inverse)
        if op.name == "iota":
            iota = Iota.of(op)
            moved = replace(iota, shape=shape, axis=list(inverse).index(iota.axis))
            return self.like(builder, op, attributes=moved)
        dimensions = tuple(list(inverse).index(place) for place in Broadcast.of(op).dimensions)
        result = self.op(builder, "broadcast", op.operands[0], shape=shape, dimensions=dimensions)
        if x in self.weights:
            self.weights.add(result)
        return result

    def reduce(self, op: Op, builder: Builder) -> Sequence[Value]:
        source, permutation = self.origin[op.operands[0]]
        axes = tuple(permutation[axis] for axis in Reduce.of(op).axes)
        attributes = replace(Reduce.of(op), axes=tuple(sorted(axes)))
        result = self.like(builder, op, source, attributes=attributes)
        kept = [axis for axis in permutation if axis not in axes]
        order = [sorted(kept).index(axis) for axis in kept]
        return [self.behind(result, order, builder)]

    def arg(self, op: Op, builder: Builder) -> Sequence[Value]:
        source, permutation = self.origin[op.operands[0]]
        axis = permutation[AlongAxis.of(op).axis]
        result = self.like(builder, op, source, attributes=replace(AlongAxis.of(op), axis=axis))
        kept = [each for each in permutation if each != axis]
        return [self.behind(result, [sorted(kept).index(each) for each in kept], builder)]

    def along_axis(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        """concatenate and cumulative: one axis to rename, all operands moved alike."""
        permutation = self.common(op.operands, builder)
        if permutation is None:
            return None
        inverse = _inverse(permutation)
        operands = [self.taken_back(operand, inverse, builder) for operand in op.operands]
        attributes = replace(AlongAxis.of(op), axis=permutation[AlongAxis.of(op).axis])
        result = self.like(builder, op, *operands, attributes=attributes)
        return [self.behind(result, permutation, builder)]

    def per_axis(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        """pad, slice: attributes with an entry per axis."""
        if op.operands[0] not in self.origin:
            return None
        source, permutation = self.origin[op.operands[0]]
        inverse = _inverse(permutation)
        attributes = picked(op.attributes, inverse)
        result = self.like(builder, op, source, *op.operands[1:], attributes=attributes)
        return [self.behind(result, permutation, builder)]

    def reverse(self, op: Op, builder: Builder) -> Sequence[Value]:
        source, permutation = self.origin[op.operands[0]]
        axes = tuple(permutation[axis] for axis in Reverse.of(op).axes)
        return [self.behind(self.op(builder, "reverse", source, axes=axes), permutation, builder)]

    def any_window(self, op: Op, builder: Builder) -> Sequence[Value]:
        return self.moved_window(op, _inverse(self.origin[op.operands[0]][1]), builder)

    def broadcast(self, op: Op, builder: Builder) -> Sequence[Value]:
        """A broadcast says where each axis goes, and takes the transpose in. One that repeats
        elements along new axes, as a resize does, leaves the others in their order instead, and
        each new one behind the axis that it stands behind."""
        source, permutation = self.origin[op.operands[0]]
        shape, places = Broadcast.of(op).shape, Broadcast.of(op).dimensions
        dimensions = [0] * len(places)
        for axis, place in zip(permutation, places, strict=True):
            dimensions[axis] = place
        new = [axis for axis in range(len(shape)) if axis not in places]
        order = list(range(len(shape)))
        if any(shape[axis] != 1 for axis in new):
            order = list(dimensions)
            for axis in new:
                order.insert(order.index(axis - 1) + 1 if axis else 0, axis)
        moved = tuple(order.index(place) for place in dimensions)
        shape = tuple(shape[axis] for axis in order)
        result = self.op(builder, "broadcast", source, shape=shape, dimensions=moved)
        return [self.behind(result, _inverse(order), builder)]

    def take(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        """Lines along one axis, as a resize takes them."""
        if op.operands[0] not in self.origin or tensor_type(op.operands[1]).rank != 1:
            return None
        source, permutation = self.origin[op.operands[0]]
        attributes = replace(Take.of(op), axis=permutation[Take.of(op).axis])
        result = self.like(builder, op, source, op.operands[1], attributes=attributes)
        return [self.behind(result, permutation, builder)]

    def reshape(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        """A reshape that splits dims, or merges neighbours that stay neighbours, goes first."""
        source, permutation = self.origin[op.operands[0]]
        shape = tensor_type(op.operands[0]).shape
        groups = reshape_groups(shape, Reshape.of(op).shape)
        if groups is None:
            return None
        order: list[tuple[int, list[int]]] = []  # per group: source axis, result axes
        for old, new in groups:
            axes = [permutation[axis] for axis in old if shape[axis] != 1]
            if axes and axes != list(range(axes[0], axes[0] + len(axes))):
                return None
            order.append((axes[0] if axes else -1, list(new)))
        sequence = [axis for _, new in sorted(order, key=lambda item: item[0]) for axis in new]
        target = tuple(Reshape.of(op).shape[axis] for axis in sequence)
        result = self.op(builder, "reshape", source, shape=target)
        return [self.behind(result, _inverse(sequence), builder)]

    def flattened(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        """A contraction over axes that a flatten merged: the weight's rows move instead."""
        flat = defined_by(op.operands[0], "reshape")
        contract = (*DotGeneral.of(op).lhs_contract, *DotGeneral.of(op).rhs_contract)
        if flat is None or flat.operands[0] not in self.origin or len(contract) != 2:
            return None
        if op.operands[1] not in self.weights or DotGeneral.of(op).lhs_batch:
            return None
        source, permutation = self.origin[flat.operands[0]]
        shape, target = tensor_type(flat.operands[0]).shape, Reshape.of(flat).shape
        groups = reshape_groups(shape, target)
        merged = [list(old) for old, new in groups or () if list(new) == [contract[0]]]
        if len(merged) != 1 or not is_static([shape[axis] for axis in merged[0]]):
            return None
        (old,) = merged
        new_order = sorted(old, key=permutation.__getitem__)
        swapped = list(permutation)
        for place, axis in zip(old, new_order, strict=True):
            swapped[place] = permutation[axis]
        if swapped != list(range(len(swapped))):
            return None  # more moves than the merged axes
        x = self.op(builder, "reshape", source, shape=target)
        w, rows = op.operands[1], tensor_type(op.operands[1]).shape
        at = contract[1]
        split = (*rows[:at], *(shape[axis] for axis in old), *rows[at + 1 :])
        order = [*range(at), *(at + old.index(axis) for axis in new_order)]
        order += range(at + len(old), len(split))
        w = self.op(builder, "reshape", w, shape=split)
        w = self.op(builder, "transpose", w, permutation=tuple(order))
        w = self.op(builder, "reshape", w, shape=rows)
        self.weights.add(w)
        return [self.like(builder, op, x, w)]


_SINKS: dict[str, Callable[[_Sinker, Op, Builder], Sequence[Value] | None]] = {
    "reduce": _Sinker.reduce,
    "arg_max": _Sinker.arg,
    "arg_min": _Sinker.arg,
    "concatenate": _Sinker.along_axis,
    "cumulative": _Sinker.along_axis,
    "pad": _Sinker.per_axis,
    "slice": _Sinker.per_axis,
    "reverse": _Sinker.reverse,
    "reduce_window": _Sinker.any_window,
    "broadcast": _Sinker.broadcast,
    "take": _Sinker.take,
    "reshape": _Sinker.reshape,
}


def _inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


def _is_channels_first(op: Op) -> bool:
    """Whether a window moves over all axes but the first two, as pooling of n, c, h, w does."""
    window = ReduceWindow.of(op).window
    spatial = len(window) >= 3 and any(size != 1 for size in window[2:])
    return spatial and window[0] == 1 and window[1] == 1 and window[-1] != 1

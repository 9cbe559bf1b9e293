"""Puts codes in the place of weights, and quantises what layers read.

A layer multiplies dequantised tensors then, which is all that the passes behind need to make a
product of bytes, or of packed codes, of it. Activations are quantised where they are made, so
that what makes them can write bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.moves import moved_from
from ingot.compiler.graph.ops import ReduceWindow, Take, parse_layout
from ingot.compiler.graph.ops.contraction import Convolution
from ingot.compiler.graph.quantizing.codes import Codes, Halves
from ingot.compiler.graph.quantizing.layers import Layer, find_layers
from ingot.compiler.graph.rewriter import defined_by
from ingot.compiler.ir import Block, Module, Op, Value
from ingot.compiler.ir.dataclass import dataclass
from ingot.hal.spec import dtype

__all__ = ["GREATEST_CODE", "Change", "Range", "insert_codes"]

_F32, _U8 = dtype("f32"), dtype("u8")

GREATEST_CODE = 255
"""Of an activation, whose codes are u8."""


@dataclass(frozen=True)
class Range:
    """The numbers that an activation's codes stand for: (code - zero) * scale."""

    scale: float
    zero: int

    def rounded(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The numbers that the codes of x stand for."""
        codes = np.rint(x * np.float32(1.0 / self.scale)) + np.float32(self.zero)
        codes = np.clip(codes, 0, GREATEST_CODE) - np.float32(self.zero)
        return np.asarray(codes * np.float32(self.scale))


@dataclass(frozen=True, eq=False)
class Change:
    """What becomes of a layer. `range` is that of its input, None for one that stays float;
    `is_dynamic`: the call finds the range. `shift`: f32[outputs], added to the result."""

    weight: Codes | Halves
    range: Range | None = None
    is_dynamic: bool = False
    shift: np.ndarray[Any, Any] | None = None


def insert_codes(module: Module, changes: Mapping[str, Change]) -> Module:
    """Change the layers of a prepared module, by name; returns the module."""
    layers = find_layers(module)
    for function in module.functions.values():
        mine = {
            layer.op: (layer, changes[name])
            for name, layer in layers.items()
            if name in changes and layer.function == function.name
        }
        if mine:
            _Inserter(mine).block(function.block)
    return module


class _Inserter:
    """`changes` by op. `ranges` of values to quantise where they are made, None for one that the
    call finds; those in `shared` are read as such by all, others by layers only. `replaced` has
    the new results of layers, `quantised` what was made of values."""

    def __init__(self, changes: Mapping[Op, tuple[Layer, Change]]) -> None:
        self.changes = changes
        self.ranges: dict[Value, Range | None] = {}
        self.shared: set[Value] = set()
        self.replaced: dict[Value, Value] = {}
        self.quantised: dict[Value, Value] = {}
        for layer, change in changes.values():
            if change.range is not None or change.is_dynamic:
                self._note(layer.input, change.range, layer.kind)

    def _note(self, x: Value, range: Range | None, kind: str) -> None:
        """Quantise x. What convolutions read is large and smooth: others read its bytes, too; so
        does a maximum of it. Rows of products have sums beside them that need more than bytes."""
        self.ranges[x] = range
        if kind == "product" or range is None:
            return
        self.shared.add(x)
        window = defined_by(moved_from(x)[0], "reduce_window")
        if window is not None and ReduceWindow.of(window).kind == "max":
            self._note(window.operands[0], range, kind)

    def block(self, block: Block) -> None:
        ops, block.ops = block.ops, []
        for argument in block.arguments:
            self._made(argument, block.ops, "")
        for op in ops:
            for region in op.regions:
                self.block(region.block)
            found = self.changes.get(op)
            if found is None:
                op.operands = [self._read(each, op) for each in op.operands]
                block.ops.append(op)
            else:
                self._layer(*found, Builder(block.ops, op.location))
            for result in op.results:
                self._made(result, block.ops, op.location)

    def _made(self, x: Value, ops: list[Op], location: str) -> None:
        if x not in self.ranges:
            return
        source = self.replaced.get(x, x)
        self.quantised[x] = _quantised(source, self.ranges[x], Builder(ops, location))

    def _read(self, x: Value, op: Op) -> Value:
        """What an op reads now. Results of a function stay floats."""
        if x in self.shared and op.name != "return":
            return self.quantised[x]
        return self.replaced.get(x, x)

    def _layer(self, layer: Layer, change: Change, builder: Builder) -> None:
        assert isinstance(change.weight, Codes)
        x = self._read(layer.input, layer.op)
        if change.range is not None or change.is_dynamic:
            x = self.quantised[layer.input]
        if layer.kind == "table":
            take = Take.of(layer.op)
            rows = change.weight.rows(
                builder, lambda table: builder.value("take", table, x, **vars(take))
            )
            self._replace(layer, _converted(rows, layer.op.result, builder))
            return
        weight = change.weight.dequantised(builder)
        order = layer.free + layer.summed
        shape = tuple(layer.weight_shape[axis] for axis in order)
        weight = builder.value("reshape", weight, shape=shape)
        places = tuple(order.index(axis) for axis in range(len(order)))
        if places != tuple(range(len(order))):
            weight = builder.value("transpose", weight, permutation=places)
        weight = _converted(weight, layer.weight, builder)
        operands = (x, weight) if layer.side else (weight, x)
        made = builder.like(layer.op, *operands)
        if change.shift is not None:
            made = _shifted(made, layer, change.shift, builder)
        self._replace(layer, made)

    def _replace(self, layer: Layer, made: Value) -> None:
        made.name = layer.op.result.name
        self.replaced[layer.op.result] = made


def _converted(x: Value, like: Value, builder: Builder) -> Value:
    element = tensor_type(like).dtype
    return x if tensor_type(x).dtype is element else builder.value("convert", x, dtype=element)


def _shifted(x: Value, layer: Layer, shift: np.ndarray[Any, Any], builder: Builder) -> Value:
    """x with a number added to each of the layer's outputs."""
    type = tensor_type(x)
    if layer.kind == "product":
        first = type.rank - len(layer.free) if layer.side else 0
        axes = tuple(range(first, first + len(layer.free)))
    else:
        axes = (parse_layout(Convolution.of(layer.op).layout).result_feature,)
    numbers = shift.reshape([layer.weight_shape[axis] for axis in layer.free])
    wide = _converted(builder.constant(numbers, _F32), x, builder)
    wide = builder.value("broadcast", wide, shape=type.shape, dimensions=axes)
    return builder.value("add", x, wide)


def _quantised(x: Value, range: Range | None, builder: Builder) -> Value:
    """x by its codes: quantised and dequantised."""
    type = tensor_type(x)
    wide = x if type.dtype is _F32 else builder.value("convert", x, dtype=_F32)

    def full(number: float | Value) -> Value:
        value = number if isinstance(number, Value) else builder.constant(number, _F32)
        return builder.broadcast_to(value, type.shape)

    scale: float | Value
    zero: float | Value
    if range is None:
        scale, zero = _found_range(wide, builder)
        scaled = builder.value("div", wide, full(scale))
    else:
        scale, zero = range.scale, float(range.zero)
        scaled = builder.value("mul", wide, full(1.0 / range.scale))
    codes = builder.value("round_even", scaled)
    codes = builder.value("add", codes, full(zero))
    codes = builder.value("clamp", full(0.0), codes, full(GREATEST_CODE))
    codes = builder.value("convert", codes, dtype=_U8)
    if isinstance(zero, Value):  # which is one of the codes
        zero = builder.value("convert", builder.value("convert", zero, dtype=_U8), dtype=_F32)
    numbers = builder.value("convert", codes, dtype=_F32)
    numbers = builder.value("sub", numbers, full(zero))
    return _converted(builder.value("mul", numbers, full(scale)), x, builder)


def _found_range(x: Value, builder: Builder) -> tuple[Value, Value]:
    """Scale and zero point of x, over its range and 0; as numbers of f32."""
    axes = tuple(range(tensor_type(x).rank))
    zero, most = builder.constant(0.0, _F32), builder.constant(GREATEST_CODE, _F32)
    low, high = (
        builder.value(kind, builder.value("reduce", x, axes=axes, kind=kind), zero)
        for kind in ("min", "max")
    )
    scale = builder.value("div", builder.value("sub", high, low), most)
    is_zero = builder.value("compare", scale, zero, direction="eq")
    scale = builder.value("select", is_zero, builder.constant(1.0, _F32), scale)
    place = builder.value("round_even", builder.value("div", builder.value("neg", low), scale))
    return scale, builder.value("clamp", zero, place, most)

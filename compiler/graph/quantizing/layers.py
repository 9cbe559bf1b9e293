"""The layers of a program that multiply by a weight or look its rows up, by name."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from ingot.compiler.graph.builder import tensor_type
from ingot.compiler.graph.folding.eliminate_dead_code import eliminate_dead_code
from ingot.compiler.graph.forms.fuse_attention import fuse_attention
from ingot.compiler.graph.ops import Convolution, DotGeneral, Take, parse_layout
from ingot.compiler.graph.passes import GRAPH_PASSES
from ingot.compiler.graph.references.numbers import Array
from ingot.compiler.graph.rewriter import is_static, tensor_ops, weights_of
from ingot.compiler.ir import Function, Module, Op, Value
from ingot.compiler.ir.dataclass import dataclass

__all__ = ["Layer", "find_layers", "prepare"]

_FLOATS = ("f32", "f16", "bf16")


@dataclass(frozen=True, eq=False)
class Layer:
    """An op with a weight of floats.

    `free` and `summed` are the weight's axes: [free, summed] is the matrix [outputs, inputs] that
    is quantised by rows. Of a table the rows are what is looked up. `groups` share the outputs of
    a convolution. `obstacle` says why its input cannot be bytes, "" if it can.
    """

    name: str
    kind: str  # "product", "convolution", "depthwise" or "table"
    function: str
    op: Op
    side: int  # of the weight among the operands
    free: tuple[int, ...]
    summed: tuple[int, ...]
    groups: int = 1
    obstacle: str = ""

    @property
    def input(self) -> Value:
        """What the weight is multiplied with; the indices of a table."""
        return self.op.operands[1 - self.side]

    @property
    def weight(self) -> Value:
        return self.op.operands[self.side]

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return tensor_type(self.weight).shape  # type: ignore[return-value]

    @property
    def outputs(self) -> int:
        return prod(self.weight_shape[axis] for axis in self.free)

    @property
    def inputs(self) -> int:
        return prod(self.weight_shape[axis] for axis in self.summed)

    def matrix(self, weight: Array) -> np.ndarray[Any, Any]:
        """The weight as f32[outputs, inputs]."""
        moved = np.transpose(weight, self.free + self.summed)
        return np.ascontiguousarray(moved.reshape(self.outputs, self.inputs), np.float32)


def prepare(module: Module) -> Module:
    """The program with normalisations folded into weights and dead code gone, as its layers will
    be; the pipeline goes on from there. Layers get names of their own. Changes the module."""
    for each in GRAPH_PASSES[: GRAPH_PASSES.index(fuse_attention)]:
        module = each(module)
    module = eliminate_dead_code(module)
    taken = {op.location for function in module.functions.values() for op in _ops(function)}
    seen: set[str] = set()
    for function in module.functions.values():
        for layer in _layers(function):
            layer.op.location = _own_name(layer.op.location or layer.kind, seen, taken)
            seen.add(layer.op.location)
    return module


def _own_name(name: str, seen: set[str], taken: set[str]) -> str:
    """The name, with a number behind it if another layer has it."""
    if name not in seen:
        return name
    count = 2
    while (other := f"{name} ({count})") in seen or other in taken:
        count += 1
    return other


def find_layers(module: Module) -> dict[str, Layer]:
    """The layers of a module that was prepared, in the order of the program."""
    functions = module.functions.values()
    return {each.name: each for function in functions for each in _layers(function)}


def _ops(function: Function) -> Iterator[Op]:
    return tensor_ops(function.block)


def _layers(function: Function) -> Iterator[Layer]:
    weights = weights_of(function)
    outside = set(function.block.ops)
    for op in _ops(function):
        find = _KINDS.get(op.name)
        if find is None or tensor_type(op.result).dtype.name not in _FLOATS:
            continue
        sides = [place for place, operand in enumerate(op.operands) if operand in weights]
        if len(sides) != 1:
            continue
        type = tensor_type(op.operands[sides[0]])
        if type.dtype.name not in _FLOATS or not is_static(type.shape) or not prod(type.shape):
            continue
        inside = "" if op in outside else "it is inside a branch or loop"
        layer = find(op, function.name, sides[0], inside)
        if layer is not None:
            yield layer


def _product(op: Op, function: str, side: int, obstacle: str) -> Layer | None:
    dot, rank = DotGeneral.of(op), tensor_type(op.operands[side]).rank
    if dot.lhs_batch:
        return None
    summed = tuple(dot.contract("rhs" if side else "lhs"))
    free = tuple(axis for axis in range(rank) if axis not in summed)
    return Layer(op.location, "product", function, op, side, free, summed, 1, obstacle)


def _convolution(op: Op, function: str, side: int, obstacle: str) -> Layer | None:
    if side != 1:
        return None
    convolution, (x, w) = Convolution.of(op), map(tensor_type, op.operands)
    axes, groups = parse_layout(convolution.layout), convolution.groups
    free = (axes.weight_output,)
    summed = tuple(axis for axis in range(w.rank) if axis not in free)
    is_depthwise = groups > 1 and groups == x.shape[axes.feature] == w.shape[axes.weight_output]
    if any(step != 1 for step in convolution.lhs_dilation):
        obstacle = obstacle or "its input is spread out"
    kind = "depthwise" if is_depthwise else "convolution"
    return Layer(op.location, kind, function, op, side, free, summed, groups, obstacle)


def _table(op: Op, function: str, side: int, obstacle: str) -> Layer | None:
    if side != 0 or Take.of(op).axis != 0 or tensor_type(op.operands[0]).rank != 2:
        return None
    return Layer(op.location, "table", function, op, side, (0,), (1,), 1, "it looks rows up")


_KINDS = {"dot_general": _product, "convolution": _convolution, "take": _table}

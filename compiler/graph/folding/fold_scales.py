"""Folds per-channel scales and shifts behind a contraction into its weights.

`(contract(x, w) + b) * s + t` becomes `contract(x, w * s) + (b * s + t)` where w, s, b and
t depend on constants and parameters only. Batch normalisation vanishes this way, whatever
ops an importer spelled it with. Floats of 32 bits and more only: narrower ones would
round the weights visibly. Of integers, whose sums wrap, shifts become one: a bias, and the
sums of weights by which products of codes are too large.

What is made of constants is a constant at once. So `fold_constant_scales`, which looks at nothing
else, goes first: the passes behind it see none of the ops. It leaves weights that are decoded of
others to the passes that know them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops import Broadcast, Convolution, DotGeneral, parse_layout
from ingot.compiler.graph.references.elementwise import REFERENCES
from ingot.compiler.graph.references.numbers import Array
from ingot.compiler.graph.rewriter import (
    defined_by,
    literal_of_value,
    rewrite,
    tensor_ops,
    weights_of,
)
from ingot.compiler.ir import Later, Literal, Module, Op, Value, count_uses
from ingot.compiler.ir.dataclass import dataclass
from ingot.compiler.ir.dims import known_dims

__all__ = ["fold_constant_scales", "fold_scales"]

_FACTORS = {"mul": np.multiply, "div": np.divide}
_HEAD = 1 << 10  # elements
_MOST_AT_ONCE = 1 << 16
"""Bytes of a weight that is scaled at once; a longer one is whenever it is used."""


@dataclass(frozen=True)
class _Affine:
    """A value that is `contract(x, w) + shift`, or `- shift` if `sign` is "sub"; `channel` is its
    axis of output channels."""

    contraction: Op
    channel: int
    shift: Value | None  # [channels], or rank 0
    sign: str = "add"


def fold_scales(module: Module) -> Module:
    """Fold scales in every function; returns the module."""
    for function in module.functions.values():
        folder = _Folder(weights_of(function), count_uses(function))
        rewrite(function.block, folder.rule)
    return module


def fold_constant_scales(module: Module) -> Module:
    """As `fold_scales`, where all are constants."""
    for function in module.functions.values():
        constants: set[Value] = set()
        for op in tensor_ops(function.block):
            is_moved = op.name in ("reshape", "broadcast") and op.operands[0] in constants
            is_small = op.name != "broadcast" or tensor_type(op.result).rank <= 1
            if op.name == "constant" or (is_moved and is_small):
                constants.add(op.result)
        folder = _Folder(constants, count_uses(function))
        rewrite(function.block, folder.rule)
    return module


class _Folder:
    def __init__(self, weights: set[Value], uses: dict[Value, int]) -> None:
        self.weights = weights
        self.uses = uses
        self.affine: dict[Value, _Affine] = {}

    def rule(self, op: Op, builder: Builder) -> Sequence[Value] | None:
        if op.name in ("convolution", "dot_general"):
            self.note_contraction(op)
            return None
        if op.name not in ("add", "sub", "mul", "div"):
            return None
        for place in (0, 1):
            known = self.affine.get(op.operands[place])
            if known is not None and (place == 0 or op.name in ("add", "mul", "sub")):
                return self.fold(op, place, known, builder)
        return None

    def note_contraction(self, op: Op) -> None:
        type = tensor_type(op.result)
        weight = op.operands[1]
        if weight not in self.weights or type.dtype.bits < 32:
            return
        narrow = any(tensor_type(operand).dtype is not type.dtype for operand in op.operands)
        if type.dtype.is_float and narrow:
            return
        self.note(op.result, self.uses.get(op.result, 0), op, None)

    def fold(self, op: Op, place: int, known: _Affine, builder: Builder) -> Sequence[Value] | None:
        factor = self.per_channel(op.operands[1 - place], known.channel, builder)
        if factor is None:
            return None
        if not tensor_type(op.result).dtype.is_float:
            return self.merge(op, place, known, factor, builder)
        if op.name == "add" and known.shift is None:
            self.note(op.result, self.uses.get(op.result, 0), known.contraction, factor)
            return None
        contraction, shift = known.contraction, known.shift
        if op.name in ("mul", "div"):
            contraction = self.scaled(contraction, factor, op.name, builder)
            shift = None if shift is None else self.combined(op.name, builder, shift, factor)
        elif op.name == "add":
            shift = factor if shift is None else self.combined("add", builder, shift, factor)
        elif place == 0:
            factor = self.combined("neg", builder, factor)
            shift = factor if shift is None else self.combined("add", builder, shift, factor)
        else:  # factor - (contract + shift)
            minus = self.weight(builder.constant(-1, tensor_type(op.result).dtype))
            contraction = self.scaled(contraction, minus, "mul", builder)
            shift = factor if shift is None else self.combined("sub", builder, factor, shift)
        uses = self.uses.get(op.result, 0)
        if shift is None:
            self.uses[contraction.result] = uses
            return [contraction.result]
        self.uses[contraction.result] = 1
        return self.shifted(op, replace(known, contraction=contraction, shift=shift), builder)

    def merge(
        self, op: Op, place: int, known: _Affine, factor: Value, builder: Builder
    ) -> Sequence[Value] | None:
        """As `fold`, of integers."""
        if op.name not in ("add", "sub") or (op.name == "sub" and place == 1):
            return None
        if known.shift is None:
            uses = self.uses.get(op.result, 0)
            self.note(op.result, uses, known.contraction, factor, op.name)
            return None
        name = "add" if op.name == known.sign else "sub"
        shift = self.combined(name, builder, known.shift, factor)
        return self.shifted(op, replace(known, shift=shift), builder)

    def shifted(self, op: Op, affine: _Affine, builder: Builder) -> Sequence[Value]:
        """What `op` becomes: `affine`, of which there is no value yet."""
        assert affine.shift is not None
        shape = tensor_type(op.result).shape
        dimensions = (affine.channel,) if tensor_type(affine.shift).rank else ()
        spread = builder.value("broadcast", affine.shift, shape=shape, dimensions=dimensions)
        result = builder.value(affine.sign, affine.contraction.result, spread)
        self.uses[result] = self.uses.get(op.result, 0)
        return [result]

    def note(
        self, value: Value, uses: int, contraction: Op, shift: Value | None, sign: str = "add"
    ) -> None:
        """Remember what `value` is, if nothing but one op reads it."""
        channel = _channel_of(contraction)
        if uses == 1 and channel is not None:
            self.affine[value] = _Affine(contraction, channel, shift, sign)

    def weight(self, value: Value) -> Value:
        self.weights.add(value)
        return value

    def combined(self, name: str, builder: Builder, *values: Value) -> Value:
        """An op on values that are each [channels] or of rank 0."""
        known = [each for each in map(_elements, values) if each is not None]
        if len(known) == len(values):
            return self.weight(builder.constant(REFERENCES[name](*known)))
        shape = max((tensor_type(each).shape for each in values), key=len)
        spread = (self.weight(builder.broadcast_to(each, shape)) for each in values)
        return self.weight(builder.value(name, *spread))

    def scaled(self, contraction: Op, factor: Value, name: str, builder: Builder) -> Op:
        """The contraction with its weight scaled per output channel."""
        x, w = contraction.operands
        scaled = self.weight(_scaled(w, factor, _weight_axis(contraction), name, builder))
        with builder.at(contraction.location):
            return builder.append(contraction.name, (x, scaled), (), contraction.attributes)

    def per_channel(self, value: Value, channel: int, builder: Builder) -> Value | None:
        """The value as a weight [channels] or of rank 0, if it repeats over all other axes."""
        op = defined_by(value, "broadcast")
        if op is None or op.operands[0] not in self.weights:
            return None
        source, dimensions = op.operands[0], Broadcast.of(op).dimensions
        type = tensor_type(source)
        axes = [axis for axis in range(type.rank) if type.shape[axis] != 1]
        if [dimensions[axis] for axis in axes] not in ([], [channel]):
            return None
        if not axes:
            return self.weight(builder.value("reshape", source, shape=())) if type.rank else source
        if type.rank == 1:
            return source
        shape = (type.shape[axes[0]],)
        return self.weight(builder.value("reshape", source, shape=shape))


def _scaled(w: Value, factor: Value, axis: int, name: str, builder: Builder) -> Value:
    """A weight by a factor of rank 0, or of rank 1 along that axis."""
    known, by = literal_of_value(w), _elements(factor)
    if known is None or by is None or not known.size:
        dimensions = (axis,) if tensor_type(factor).rank else ()
        shape = tensor_type(w).shape
        spread = builder.value("broadcast", factor, shape=shape, dimensions=dimensions)
        return builder.value(name, w, spread)
    scaled = _Scaled(known, by, axis, name)
    at_once = known.nbytes <= _MOST_AT_ONCE
    return builder.constant(Literal(scaled.make() if at_once else scaled, known.dtype))


class _Scaled(Later):
    """The elements of `weight` by a factor of rank 0, or of rank 1 along that axis."""

    is_own = True

    def __init__(self, weight: Literal, factor: Array, axis: int, name: str) -> None:
        self.weight, self.shape, self.compute = weight, weight.shape, _FACTORS[name]
        self.factors = factor.reshape(-1)
        self.inner = prod(self.shape[axis + 1 :])  # elements that lie together and have one factor

    def make(self) -> Array:
        array = self.weight.own_array()
        rows = (-1, self.factors.size, self.inner if self.factors.size > 1 else array.size)
        flat = array.reshape(rows)  # NumPy is slow with many axes
        with np.errstate(all="ignore"):
            self.compute(flat, self.factors[:, None], out=flat)
        return array

    def parts(self) -> Iterator[Array]:
        """The first elements alone, by which nearly all weights are told from equal ones."""
        head = next(self.weight.parts()).reshape(-1)[:_HEAD]
        rows = np.arange(head.size) // self.inner % self.factors.size
        with np.errstate(all="ignore"):
            yield self.compute(head, self.factors[rows])
        if head.size < self.weight.size:
            yield self.make().reshape(-1)[head.size :]


def _elements(value: Value) -> Array | None:
    """Those of a constant, of a reshape of one, or of a number that is repeated."""
    shape, is_repeated = known_dims(tensor_type(value).shape), False
    while (op := defined_by(value, "reshape", "broadcast")) is not None:
        is_repeated |= op.name == "broadcast"
        value = op.operands[0]
    literal = literal_of_value(value)
    if literal is None or (is_repeated and literal.size != 1):
        return None
    array = literal.array
    return np.full(shape, array.reshape(())) if is_repeated else array.reshape(shape)


def _channel_of(op: Op) -> int | None:
    """The result axis that a contraction's weight gives its output channels to."""
    if op.name == "convolution":
        return parse_layout(Convolution.of(op).layout).result_feature
    free = tensor_type(op.operands[1]).rank - len(DotGeneral.of(op).rhs_contract)
    single = free == 1 and not DotGeneral.of(op).rhs_batch
    return tensor_type(op.result).rank - 1 if single else None


def _weight_axis(op: Op) -> int:
    """The weight's axis of output channels."""
    if op.name == "convolution":
        return parse_layout(Convolution.of(op).layout).weight_output
    contract = DotGeneral.of(op).rhs_contract
    (axis,) = (axis for axis in range(tensor_type(op.operands[1]).rank) if axis not in contract)
    return axis

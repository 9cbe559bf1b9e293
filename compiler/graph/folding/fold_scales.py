"""Folds per-channel scales and shifts behind a contraction into its weights.

`(contract(x, w) + b) * s + t` becomes `contract(x, w * s) + (b * s + t)` where w, s, b and
t depend on constants and parameters only. Batch normalisation vanishes this way, whatever
ops an importer spelled it with. Floats of 32 bits and more only: narrower ones would
round the weights visibly.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.ops import Broadcast, Convolution, DotGeneral, parse_layout
from ingot.compiler.graph.rewriter import defined_by, rewrite, weights_of
from ingot.compiler.ir import Module, Op, Value, count_uses
from ingot.compiler.ir.dataclass import dataclass

__all__ = ["fold_scales"]


@dataclass(frozen=True)
class _Affine:
    """A value that is `contract(x, w) + shift`; `channel` is its axis of output channels."""

    contraction: Op
    channel: int
    shift: Value | None  # [channels], or rank 0


def fold_scales(module: Module) -> Module:
    """Fold scales in every function; returns the module."""
    for function in module.functions.values():
        folder = _Folder(weights_of(function), count_uses(function))
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
        if weight not in self.weights or not type.dtype.is_float or type.dtype.bits < 32:
            return
        if any(tensor_type(operand).dtype is not type.dtype for operand in op.operands):
            return
        self.note(op.result, self.uses.get(op.result, 0), op, None)

    def fold(self, op: Op, place: int, known: _Affine, builder: Builder) -> Sequence[Value] | None:
        factor = self.per_channel(op.operands[1 - place], known.channel, builder)
        if factor is None:
            return None
        if op.name == "add" and known.shift is None:
            self.note(op.result, self.uses.get(op.result, 0), known.contraction, factor)
            return None
        contraction, shift = known.contraction, known.shift
        if op.name in ("mul", "div"):
            contraction = self.scaled(contraction, factor, op.name, builder)
            shift = None if shift is None else self.combine(op.name, shift, factor, builder)
        elif op.name == "add":
            shift = factor if shift is None else self.combine("add", shift, factor, builder)
        elif place == 0:
            factor = self.weight(builder.value("neg", factor))
            shift = factor if shift is None else self.combine("add", shift, factor, builder)
        else:  # factor - (contract + shift)
            minus = self.weight(builder.constant(-1, tensor_type(op.result).dtype))
            contraction = self.scaled(contraction, minus, "mul", builder)
            shift = factor if shift is None else self.combine("sub", factor, shift, builder)
        uses = self.uses.get(op.result, 0)
        if shift is None:
            self.uses[contraction.result] = uses
            return [contraction.result]
        self.uses[contraction.result] = 1
        shape = tensor_type(op.result).shape
        dimensions = (known.channel,) if tensor_type(shift).rank else ()
        spread = builder.value("broadcast", shift, shape=shape, dimensions=dimensions)
        result = builder.value("add", contraction.result, spread)
        self.uses[result] = uses
        return [result]

    def note(self, value: Value, uses: int, contraction: Op, shift: Value | None) -> None:
        """Remember what `value` is, if nothing but one op reads it."""
        channel = _channel_of(contraction)
        if uses == 1 and channel is not None:
            self.affine[value] = _Affine(contraction, channel, shift)

    def weight(self, value: Value) -> Value:
        self.weights.add(value)
        return value

    def combine(self, name: str, a: Value, b: Value, builder: Builder) -> Value:
        """An op on two values that are each [channels] or rank 0."""
        a_type, b_type = tensor_type(a), tensor_type(b)
        shape = a_type.shape or b_type.shape
        a, b = (self.weight(builder.broadcast_to(each, shape)) for each in (a, b))
        return self.weight(builder.value(name, a, b))

    def scaled(self, contraction: Op, factor: Value, name: str, builder: Builder) -> Op:
        """The contraction with its weight scaled per output channel."""
        x, w = contraction.operands
        type = tensor_type(w)
        dimensions = (_weight_axis(contraction),) if tensor_type(factor).rank else ()
        spread = builder.value("broadcast", factor, shape=type.shape, dimensions=dimensions)
        scaled = self.weight(builder.value(name, w, self.weight(spread)))
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

"""Makes ops of narrow dtypes (f8, f4, i4, u2 ...) into ops on their codes, which are bytes.

Kernels compute with 8 to 64 bits. Ops that only move elements move codes; all others decode
their operands, work on the wide dtype, and encode what they give. Constants of less than 8 bits
lie packed, behind an `unpack`. Arguments, results and
variables keep their dtypes: a `reinterpret`, which costs nothing, stands between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ingot.compiler.graph.builder import Builder, tensor_type
from ingot.compiler.graph.forms.narrow_codes import (
    CODE,
    codes_of,
    decode,
    encode,
    is_narrow,
    packed,
    wide_dtype,
)
from ingot.compiler.graph.ops import CONTROL, Constant, Scatter
from ingot.compiler.ir import (
    Attribute,
    Block,
    Function,
    Literal,
    Module,
    Op,
    Region,
    ScalarType,
    TensorType,
    Type,
    Value,
    clone_region,
    walk,
)
from ingot.compiler.ir.attributes import map_leaves
from ingot.hal.spec import DType, dtype

__all__ = ["store_narrow"]

_MOVES = frozenset(
    {
        *("broadcast", "reshape", "transpose", "slice", "pad", "concatenate", "reverse"),
        *("gather", "take", "dynamic_slice", "dynamic_update_slice", "select"),
    }
)
_UNIT = 64
"""Bytes: constants begin at multiples of it in a module."""

_OF_BITS = frozenset({"popcount", "count_leading_zeros", "shift_right_logical"})


def store_narrow(module: Module) -> Module:
    """The module without narrow dtypes but at its ends."""
    for name, function in module.functions.items():
        if any(_has_narrow(op) for op in walk(function)):
            module.functions[name] = _Rewriter(function).run()
    return module


def _narrow_dtype(type: Type) -> DType | None:
    return type.dtype if isinstance(type, TensorType) and is_narrow(type.dtype) else None


def _has_narrow(op: Op) -> bool:
    return any(_narrow_dtype(value.type) for value in (*op.operands, *op.results))


def _carrier(type: Type) -> Type:
    """The type of the codes."""
    if isinstance(type, TensorType) and is_narrow(type.dtype):
        return TensorType(CODE, type.shape)
    return type


class _Rewriter:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.values: dict[Value, Value] = {}  # narrow ones as codes

    def run(self) -> Function:
        old = self.function.block
        new = Block(argument.type for argument in old.arguments)
        builder = Builder(new)
        for before, after in zip(old.arguments, new.arguments, strict=True):
            after.name = before.name
            narrow = _narrow_dtype(after.type)
            self.values[before] = (
                after if narrow is None else builder.value("reinterpret", after, dtype=CODE)
            )
        self._ops(old, builder)
        return replace(self.function, body=Region([new]))

    def _ops(self, old: Block, builder: Builder) -> None:
        for op in old.ops:
            with builder.at(op.location):
                results = self._op(op, builder)
            for before, after in zip(op.results, results, strict=True):
                after.name = after.name or before.name
                self.values[before] = after

    def _op(self, op: Op, builder: Builder) -> Sequence[Value]:
        if op.name in (*CONTROL, "yield") or not _has_narrow(op):
            return self._same(op, builder)
        operands = [self.values[each] for each in op.operands]
        narrow = _narrow_dtype(op.results[0].type) if op.results else None
        match op.name:
            case "constant":
                return [_constant(builder, Constant.of(op).value)]
            case "parameter" | "variable.load" | "global":
                value = builder.like(op)
                return [builder.value("reinterpret", value, dtype=CODE)]
            case "return" | "variable.store":
                kept = [
                    self._narrowed(builder, value, before.type)
                    for value, before in zip(operands, op.operands, strict=True)
                ]
                return builder.append(op.name, kept, (), op.attributes).results
            case "bitcast" | "reinterpret" if tensor_type(op.result).dtype.bits == _bits(op):
                return [self._bitcast(builder, operands[0], tensor_type(op.result).dtype)]
            case "convert":
                return [self._convert(op, operands[0], builder)]
            case "scatter" if Scatter.of(op).kind == "set":
                return self._same(op, builder)
            case "sort":
                return self._sort(op, operands, builder)
            case name if name in _MOVES:
                return self._same(op, builder)
        return self._computed(op, operands, narrow, builder)

    def _same(self, op: Op, builder: Builder) -> Sequence[Value]:
        """The op as it is, on codes."""
        operands = [self.values[each] for each in op.operands]
        regions = [self._region(region) for region in op.regions]
        return builder.append(op.name, operands, regions, op.attributes).results

    def _region(self, region: Region) -> Region:
        block = Block(_carrier(argument.type) for argument in region.block.arguments)
        for before, after in zip(region.block.arguments, block.arguments, strict=True):
            after.name = before.name
            self.values[before] = after
        self._ops(region.block, Builder(block))
        return Region([block])

    def _narrowed(self, builder: Builder, value: Value, type: Type) -> Value:
        narrow = _narrow_dtype(type)
        return value if narrow is None else builder.value("reinterpret", value, dtype=narrow)

    def _bitcast(self, builder: Builder, codes: Value, wanted: DType) -> Value:
        if is_narrow(wanted):
            own = tensor_type(codes).dtype
            return codes if own is CODE else builder.value("bitcast", codes, dtype=CODE)
        return codes if wanted is CODE else builder.value("bitcast", codes, dtype=wanted)

    def _convert(self, op: Op, x: Value, builder: Builder) -> Value:
        source, wanted = (tensor_type(each).dtype for each in (op.operands[0], op.result))
        if is_narrow(source):
            x = decode(builder, x, source)
        if is_narrow(wanted):
            return encode(builder, x, wanted)
        return x if tensor_type(x).dtype is wanted else builder.value("convert", x, dtype=wanted)

    def _sort(self, op: Op, operands: Sequence[Value], builder: Builder) -> Sequence[Value]:
        """A sort of decoded elements, with a comparator of these."""
        wide = self._decoded(op, operands, builder)
        region = clone_region(op.regions[0], {}, _wide_type, _wide_attribute)
        made = builder.append("sort", wide, [region], op.attributes).results
        return self._encoded(op, made, builder)

    def _decoded(self, op: Op, operands: Sequence[Value], builder: Builder) -> list[Value]:
        wide = []
        for value, before in zip(operands, op.operands, strict=True):
            own = _narrow_dtype(before.type)
            wide.append(value if own is None else decode(builder, value, own))
        return wide

    def _encoded(self, op: Op, made: Sequence[Value], builder: Builder) -> list[Value]:
        results = []
        for value, before in zip(made, op.results, strict=True):
            own = _narrow_dtype(before.type)
            results.append(value if own is None else encode(builder, value, own))
        return results

    def _computed(
        self, op: Op, operands: Sequence[Value], narrow: DType | None, builder: Builder
    ) -> Sequence[Value]:
        """The op on decoded operands, and its results encoded."""
        if op.name in _OF_BITS and narrow is not None:
            return [self._of_bits(op, operands, narrow, builder)]
        wide = self._decoded(op, operands, builder)
        attributes = map_leaves(op.attributes, _wide_attribute)
        made = builder.append(op.name, wide, (), attributes).results
        return self._encoded(op, made, builder)

    def _of_bits(self, op: Op, operands: Sequence[Value], narrow: DType, builder: Builder) -> Value:
        """What bits give that are looked at as they are: codes without what lies above them."""
        shape = tensor_type(op.result).shape
        low = builder.full((1 << narrow.bits) - 1, CODE, shape)
        made = builder.value(op.name, *(builder.value("and", each, low) for each in operands))
        if op.name == "count_leading_zeros":
            made = builder.value("sub", made, builder.full(8 - narrow.bits, CODE, shape))
        return encode(builder, made, narrow)


def _constant(builder: Builder, literal: Literal) -> Value:
    """The codes of a constant, which lies packed where that makes the module smaller."""
    codes, bits = codes_of(literal), literal.dtype.bits
    flat = codes.array.reshape(-1)
    units, packed_units = (-(-flat.size * each // (8 * _UNIT)) for each in (8, bits))
    if packed_units == units or bool((flat == flat[0]).all()):
        return builder.constant(codes)
    bytes = builder.constant(packed(flat, bits), CODE)
    return builder.value("unpack", bytes, dtype=dtype(f"u{bits}"), shape=codes.shape)


def _wide_type(type: Type) -> Type:
    """The type of decoded elements, of scalars too."""
    if isinstance(type, (ScalarType, TensorType)) and is_narrow(type.dtype):
        return replace(type, dtype=wide_dtype(type.dtype))
    return type


def _wide_attribute(value: Attribute) -> Attribute:
    """A dtype or a constant of a comparator that works on decoded elements."""
    if isinstance(value, DType) and is_narrow(value):
        return wide_dtype(value)
    if isinstance(value, Literal) and is_narrow(value.dtype):
        element = wide_dtype(value.dtype)
        return Literal(value.array.astype(element.numpy), element)
    return value


def _bits(op: Op) -> int:
    return tensor_type(op.operands[0]).dtype.bits

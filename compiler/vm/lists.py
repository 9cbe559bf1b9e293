"""Writes the instructions of work on slots: lists of tensors that the session keeps."""

from __future__ import annotations

from collections.abc import Mapping

from ingot.compiler.dispatch.ops import Slot, SlotAt, SlotCopy, SlotResult, SlotSwap
from ingot.compiler.graph.ops import defined_symbols
from ingot.compiler.ir import Function, Op, Value, tensor_type
from ingot.compiler.ir.dims import symbol
from ingot.compiler.stream.plan_memory import byte_length
from ingot.compiler.vm.code import CodeBuilder
from ingot.compiler.vm.control import Bytes
from ingot.compiler.vm.sizes import Sizes

__all__ = ["write_results", "write_slot_op"]


def write_slot_op(
    op: Op, function: Function, code: CodeBuilder, sizes: Sizes, places: dict[Value, Bytes]
) -> None:
    """The instructions of one `slot` op; `places` learns where an element lies."""
    slot = Slot.of(op).slot
    match op.name:
        case "slot.clear":
            code.op("list.clear", immediates=(slot,))
        case "slot.copy":
            code.op("list.copy", immediates=(slot, SlotCopy.of(op).source))
        case "slot.swap":
            code.op("list.swap", immediates=(slot, SlotSwap.of(op).other))
        case "slot.erase":
            code.op("list.erase", _index(op, sizes), immediates=(slot,))
        case "slot.set":
            tensor, count = _tensor(op, sizes, places)
            code.op("list.set", *tensor, immediates=(slot,), counts=(count,))
        case "slot.insert":
            tensor, count = _tensor(op, sizes, places)
            code.op("list.insert", _index(op, sizes), *tensor, immediates=(slot,), counts=(count,))
        case "slot.extend":
            (reference, offset, length, rows, *_), _ = _tensor(op, sizes, places)
            code.op("list.extend", reference, offset, length, rows, immediates=(slot,))
        case "slot.length":
            (name,) = defined_symbols(op)
            sizes.define(name, code.op("list.length", immediates=(slot,))[0])
        case "slot.argument":
            ordinal = function.arguments.index(op.operands[0])
            given = code.op("list.argument", immediates=(slot, ordinal))[0]
            for name in defined_symbols(op):
                sizes.define(name, given)
        case _:
            _write_get(op, slot, code, sizes, places)


def write_results(op: Op, function: Function, code: CodeBuilder, sizes: Sizes) -> None:
    """The instructions of a `slot.result`: every result of the function that it is."""
    slot, given = SlotResult.of(op).slot, sizes.value(SlotResult.of(op).given)
    for ordinal, value in enumerate(function.block.terminator.operands):
        if value is op.result:
            code.op("list.result", given, immediates=(ordinal, slot))


def _index(op: Op, sizes: Sizes) -> Value:
    return sizes.value(SlotAt.of(op).index)


def _tensor(op: Op, sizes: Sizes, places: Mapping[Value, Bytes]) -> tuple[tuple[Value, ...], int]:
    """The registers of the operand: reference, offset, length, dims; and its rank."""
    (x,) = op.operands
    shape = tensor_type(x).shape
    dims = tuple(map(sizes.value, shape))
    return (*places[x], sizes.value(byte_length(x)), *dims), len(dims)


def _write_get(
    op: Op, slot: int, code: CodeBuilder, sizes: Sizes, places: dict[Value, Bytes]
) -> None:
    index = _index(op, sizes)
    shape = tensor_type(op.result).shape
    for name in defined_symbols(op):
        axis = shape.index(symbol(name))
        sizes.define(name, code.op("list.dim", index, immediates=(slot, axis))[0])
    places[op.result] = Bytes(*code.op("list.get", index, immediates=(slot,)))

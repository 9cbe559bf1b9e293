"""Makes operands of the numbers in which regions differ that are equal otherwise.

Constants of one element stand in a kernel's code. Layers of a quantised model differ in
nothing but their scales and zero points: with these read from memory they share a kernel.
What is the same in all of them stays in the code.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.dispatch.group import MAXIMUM_BINDINGS
from ingot.compiler.dispatch.outline import region_key
from ingot.compiler.graph.ops import Clamp, Constant
from ingot.compiler.ir import (
    Block,
    Module,
    Op,
    Region,
    Value,
    clone_region,
    defined_by,
    tensor_type,
    walk,
)
from ingot.compiler.ir.dataclass import dataclass

__all__ = ["share_numbers"]

_UNKNOWN = {
    "f32": frozenset({"add", "sub", "mul", "div", "clamp"}),
    "i32": frozenset({"add", "sub", "mul"}),
}
"""By dtype, ops for which a kernel is as good with an unknown number."""


@dataclass(frozen=True)
class _Use:
    """A region in its block, its body with a constant for each place where a number stands, and
    those of them that may become operands."""

    block: Block
    region: Op
    body: Region
    numbers: list[Op]


def share_numbers(module: Module) -> Module:
    """Make such numbers operands, in every function; returns the module."""
    alike: dict[object, list[_Use]] = {}
    for function in module.functions.values():
        for block in [function.block, *(r.block for op in walk(function) for r in op.regions)]:
            for op in block.ops:
                if op.name == "dispatch.region":
                    body = clone_region(op.regions[0], {})
                    use = _Use(block, op, body, _split(body.block))
                    alike.setdefault(region_key(body, use.numbers), []).append(use)
    for uses in alike.values():
        columns = list(zip(*(map(_bytes, use.numbers) for use in uses), strict=True))
        # Places where all of them have equal numbers get one operand.
        places = {column: columns.index(column) for column in columns if len({*column}) > 1}
        region = uses[0].region
        if places and len(region.operands) + len(region.results) + len(places) <= MAXIMUM_BINDINGS:
            for use in uses:
                _lift(use, [places.get(column) for column in columns])
    return module


def _bytes(number: Op) -> bytes:
    return Constant.of(number).value.array.tobytes()


def _is_nan(number: Op) -> bool:
    array = Constant.of(number).value.array
    return bool((array != array).any())


def _split(block: Block) -> list[Op]:
    """Give every op constants of its own for the numbers that are broadcast to be its operands;
    those that may be unknown, in order."""
    ops: list[Op] = []
    numbers: list[Op] = []
    for op in block.ops:
        for place, operand in enumerate(op.operands):
            number = _number_of(operand)
            if number is None:
                continue
            own = Op("constant", (), [number.result.type], number.attributes)
            wide = Op("broadcast", [own.result], [operand.type], operand.owner.attributes)  # type: ignore[union-attr]
            op.operands[place] = wide.result
            ops += [own, wide]
            if op.name in _UNKNOWN.get(tensor_type(own.result).dtype.name, ()):
                numbers.append(own)
        if op.name == "clamp" and tensor_type(op.result).dtype.is_float:
            limits = map(_number_of, op.operands[::2])
            op.attributes = Clamp(all(each and not _is_nan(each) for each in limits))
        ops.append(op)
    used = {operand for op in ops for each in _with_inner(op) for operand in each.operands}
    block.ops = [op for op in ops if op.name not in ("constant", "broadcast") or op.result in used]
    used = {operand for op in block.ops for each in _with_inner(op) for operand in each.operands}
    block.ops = [op for op in block.ops if op.name != "constant" or op.result in used]
    return numbers


def _with_inner(op: Op) -> list[Op]:
    """The op and those of its regions."""
    return [op, *(each for region in op.regions for each in walk(region))]


def _number_of(value: Value) -> Op | None:
    """The constant of rank 0 that a value is a broadcast of."""
    wide = defined_by(value, "broadcast")
    number = wide and defined_by(wide.operands[0], "constant")
    return number if number and not tensor_type(number.result).shape else None


def _lift(use: _Use, places: Sequence[int | None]) -> None:
    """Move numbers in front of a region. `places`: per number the first one with its operand; None:
    it stays."""
    inner, region = use.body.block, use.region
    arguments: dict[int, Value] = {}
    replaced: dict[Value, Value] = {}
    for number, place in zip(use.numbers, places, strict=True):
        if place is None:
            continue
        if place not in arguments:
            outside = Op("constant", (), [number.result.type], number.attributes)
            use.block.ops.insert(use.block.ops.index(region), outside)
            region.operands.append(outside.result)
            arguments[place] = Value(number.result.type, inner)
            inner.arguments.append(arguments[place])
        replaced[number.result] = arguments[place]
        inner.ops.remove(number)
    for op in walk(inner):
        op.operands = [replaced.get(operand, operand) for operand in op.operands]
    region.regions[:] = [use.body]

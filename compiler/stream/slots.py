"""Elements of lists in a block: where one may be read where it lies, and where it needs a copy.

An element that is read (`slot.get`) is a view of the slot's memory while no element is put
into the slot before its last use; else it is copied at once. Rows behind an element
(`slot.extend`) leave it alone. A branch or loop changes what its bodies change.
"""

from __future__ import annotations

from collections.abc import Sequence

from ingot.compiler.dispatch.ops import Slot, SlotSwap
from ingot.compiler.ir import Block, Op, Value, walk
from ingot.compiler.stream.homes import Uses
from ingot.compiler.stream.ops import Placed, PlannedNative

__all__ = ["copy_changing_elements"]

_CHANGES = frozenset({"slot.set", "slot.insert", "slot.copy", "slot.swap", "stream.native"})


def copy_changing_elements(block: Block) -> None:
    """Put copies behind those reads in the block whose slot changes too early."""
    changes = [
        (slot, place)
        for place, op in enumerate(block.ops)
        for each in walk(op)
        if each.name in _CHANGES
        for slot in _slots(each)
    ]
    reads = [op for op in block.ops if op.name == "slot.get"]
    if not changes or not reads:
        return
    uses = Uses(block)
    copies: dict[Op, Op] = {}
    for read in reads:
        (slot,), begin, end = _slots(read), uses.place[read], uses.last_use(read.result)
        # What a branch or loop changes, its bodies may read after that.
        if any(
            changed == slot and begin < place < end + bool(block.ops[place].regions)
            for changed, place in changes
        ):
            copies[read] = Op("stream.copy", [read.result], [read.result.type], Placed())
            copies[read].location = read.location
    if not copies:
        return
    replaced: dict[Value, Value] = {read.result: copy.result for read, copy in copies.items()}
    for op in walk(block):
        op.operands = [replaced.get(operand, operand) for operand in op.operands]
    block.ops = [each for op in block.ops for each in (op, copies.get(op)) if each is not None]


def _slots(op: Op) -> Sequence[int]:
    if isinstance(op.attributes, PlannedNative):
        return range(op.attributes.slot, op.attributes.slot + op.attributes.slots)
    found = Slot.of(op)
    return [found.slot, found.other] if isinstance(found, SlotSwap) else [found.slot]
